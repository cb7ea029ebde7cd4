"""Two runs of one purge: one deletes, and a holder that lost its lease deletes nothing more.

The store is a stub in this process, which can stop a run exactly where a test wants it: inside a batch, between the
request and its answer.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import Postgres, StubS3
from safedelete.testing.servers.faults import SLOW_DOWN, Fault, Request
from tests.backends import GivenDatabase
from tests.e2e.world import Ended, World, ended, metadata, uploads

BATCH = 1_000
DUE = 3 * BATCH
LEASE = "3"


class Hold:
    """Stops the n-th request that deletes planned objects, until it is let go."""

    def __init__(self, store: StubS3, *, at: int, answer: Fault | None = None) -> None:
        self.arrived = threading.Event()
        self.go = threading.Event()
        self.seen = 0
        self._at = at
        self._answer = answer
        store.program = self

    def __call__(self, request: Request) -> Fault | None:
        if not deletes(request):
            return None
        self.seen += 1
        if self.seen != self._at:
            return None
        self.arrived.set()
        assert self.go.wait(60), "nobody let the request go"
        return self._answer


def deletes(request: Request) -> bool:
    """Whether a request is a batch's, and not a permission probe's."""
    return request.operation == "DeleteObjects" and any("probe" not in key for key in request.keys)


@pytest.fixture
def store() -> Iterator[StubS3]:
    with StubS3() as stub:
        stub.create_bucket("acme")
        yield stub
        # Whatever a failed test left waiting must not keep the stub from stopping.
        held = stub.program
        if isinstance(held, Hold):
            held.go.set()


@pytest.fixture(params=["postgresql", "sqlite"])
def world(request: pytest.FixtureRequest, store: StubS3, tmp_path: Path) -> Iterator[World]:
    made = _world(request, request.param, store, tmp_path)
    yield made
    made.clean_up()


@pytest.fixture
def pg_world(request: pytest.FixtureRequest, store: StubS3, tmp_path: Path) -> Iterator[World]:
    made = _world(request, "postgresql", store, tmp_path)
    yield made
    made.clean_up()


def _world(request: pytest.FixtureRequest, kind: str, store: StubS3, folder: Path) -> World:
    superuser = None
    if kind == "postgresql":
        server: Postgres | GivenDatabase = request.getfixturevalue("postgres")
        url = sa.make_url(request.getfixturevalue("pg_database"))
        superuser = sa.make_url(server.superuser_url).set(database=url.database)
    else:
        url = sa.make_url(f"sqlite:///{folder / 'app.db'}")
    world = World(kind, url, store, "acme", folder, superuser=superuser)  # type: ignore[arg-type]
    if superuser is not None:
        world.sql(f'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO "{url.username}"')
        world.sql(f'GRANT ALL ON SCHEMA public TO "{url.username}"')
    world.extra["SAFEDELETE_LEASE_SECONDS"] = LEASE
    return world


def prepared(world: World, store: StubS3, options: str = "") -> Path:
    """Seed three batches that are due, and as much on each of the next nights."""
    metadata.create_all(world.engine)
    now = datetime.now(UTC)
    rows = [
        {
            "id": n,
            "expires_at": now - timedelta(hours=1) + timedelta(days=(n - 1) // DUE),
            "hold": False,
            "s3_key": f"up/{n:06}.bin",
        }
        for n in range(1, 3 * DUE + 1)
    ]
    with world.engine.begin() as connection:
        connection.execute(sa.insert(uploads), rows)
    for row in rows:
        store.put("acme", str(row["s3_key"]), b"x")
    jobs = world.jobs(options)
    world.cli("init", jobs, expect=0)
    return jobs


def left(world: World, store: StubS3) -> tuple[int, int]:
    """Return how many due rows and due objects are there."""
    numbers = {int(key[3:9]) for key in store.keys("acme")}
    rows = world.rows()
    assert rows >= set(range(DUE + 1, 3 * DUE + 1))
    assert numbers >= set(range(DUE + 1, 3 * DUE + 1))
    return len([n for n in rows if n <= DUE]), len([n for n in numbers if n <= DUE])


def next_run(world: World, jobs: Path) -> Ended:
    """Run again until the lease of a dead holder has ended."""
    until = time.monotonic() + 30
    while True:
        ran = world.cli("run", jobs, "--json")
        if ran.code != 5:
            return ran
        assert time.monotonic() < until, ran.err
        time.sleep(0.2)


def waited(event: threading.Event, process: subprocess.Popen[str]) -> None:
    """Wait for a run to arrive somewhere, and say what it said if it ended instead."""
    until = time.monotonic() + 60
    while not event.wait(0.1):
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(ended(process, 1))


def let_lease_end(world: World) -> None:
    """Wait until the holder's lease has ended by the database's own clock."""
    now = (
        "EXTRACT(EPOCH FROM clock_timestamp()) * 1000"
        if world.kind == "postgresql"
        else "(julianday('now') - 2440587.5) * 86400000"
    )
    until = time.monotonic() + 30
    while not world.value(f"SELECT expires_ms < {now} FROM safedelete_lease"):
        assert time.monotonic() < until
        time.sleep(0.05)


def since(process: subprocess.Popen[Any], world: World) -> tuple[str, int, str]:
    with world.engine.connect() as connection:
        row = connection.exec_driver_sql("SELECT host, pid, taken_at FROM safedelete_lease").one()
    assert row.pid == process.pid
    return row.host, row.pid, row.taken_at


def test_second_run_while_one_holds_the_lease_exits_5_and_names_the_holder(
    world: World, store: StubS3
) -> None:
    jobs = prepared(world, store)
    hold = Hold(store, at=1)
    first = world.start("run", jobs, "--json", SAFEDELETE_LEASE_SECONDS="30")
    waited(hold.arrived, first)
    second = world.cli("run", jobs, expect=5)
    assert hold.seen == 1, "the second run asked the store for nothing"
    if world.kind == "postgresql":
        host, pid, taken = since(first, world)
        assert host == socket.gethostname()
        for part in (host, str(pid), taken):
            assert part in second.said
    assert "Nothing was deleted." in second.said
    hold.go.set()
    assert ended(first).code == 0
    assert left(world, store) == (0, 0)


def test_the_holder_is_named_on_sqlite_between_batches(world: World, store: StubS3) -> None:
    jobs = prepared(world, store)
    with world.inside():
        from safedelete.wiring.connect import context_of

        job: Any = world.job(jobs)
        with context_of(job) as ctx:
            lease = ctx.enter()
            second = world.cli("run", jobs, expect=5)
            lease.release()
    assert f"{socket.gethostname()} (pid {os.getpid()})" in second.said
    assert left(world, store) == (DUE, DUE)


def test_holder_frozen_past_its_lease_deletes_nothing_more_when_thawed(
    pg_world: World, store: StubS3
) -> None:
    world = pg_world
    jobs = prepared(world, store)
    hold = Hold(store, at=2, answer=SLOW_DOWN)
    first = world.start("run", jobs, "--json")
    waited(hold.arrived, first)
    first.send_signal(signal.SIGSTOP)
    try:
        let_lease_end(world)
        second = next_run(world, jobs)
        assert second.code == 0, second.err
        assert second.document["resumed"] is True
        assert left(world, store) == (0, 0)
        before = hold.seen
        hold.go.set()
    finally:
        first.send_signal(signal.SIGCONT)
    thawed = ended(first)
    assert thawed.code == 6, thawed.err
    assert hold.seen == before, "it asked for no delete after it was thawed"
    assert "lost" in thawed.said
    shown = world.shown(second.run)
    assert shown["state"] == "succeeded"
    assert {item["outcome"] for item in shown["items"]} <= {"deleted", "gone"}
    assert sum(tally["deleted"] + tally["gone"] for tally in shown["outcomes"].values()) == DUE


def test_sigterm_during_a_purge_finishes_the_batch_and_ends_resumable(world: World, store: StubS3) -> None:
    jobs = prepared(world, store)
    hold = Hold(store, at=2)
    first = world.start("run", jobs, "--json", SAFEDELETE_LEASE_SECONDS="30")
    waited(hold.arrived, first)
    first.send_signal(signal.SIGTERM)
    hold.go.set()
    asked = time.monotonic()
    stopped = ended(first)
    assert stopped.code == 4, stopped.err
    assert time.monotonic() - asked < 20, "within the grace"
    assert "SIGTERM" in stopped.said
    rest = left(world, store)
    assert rest[0] == rest[1], "each row goes with its object"
    assert 0 < rest[0] < DUE
    assert f"{DUE - rest[0]:,} item(s) were deleted before this." in stopped.said
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["resumed"] is True
    assert ran.document["outcomes"]["uploads"]["deleted"] == DUE
    assert left(world, store) == (0, 0)


def test_sigterm_ends_a_run_whose_store_does_not_answer(world: World, store: StubS3) -> None:
    jobs = prepared(world, store, options="grace=timedelta(seconds=2),")
    hold = Hold(store, at=2)
    first = world.start("run", jobs, SAFEDELETE_LEASE_SECONDS="8")
    waited(hold.arrived, first)
    first.send_signal(signal.SIGTERM)
    asked = time.monotonic()
    stopped = ended(first)
    took = time.monotonic() - asked
    assert stopped.code == 4, stopped.err
    assert took < 10, "the grace is two seconds"
    assert "grace" in stopped.said
    hold.go.set()
    assert next_run(world, jobs).code == 0
    assert left(world, store) == (0, 0)


def test_killed_run_is_resumed_by_the_next(world: World, store: StubS3) -> None:
    jobs = prepared(world, store)
    hold = Hold(store, at=2)
    first = world.start("run", jobs)
    waited(hold.arrived, first)
    first.kill()
    ended(first)
    hold.go.set()
    ran = next_run(world, jobs)
    assert ran.code == 0, ran.err
    assert ran.document["resumed"] is True
    assert left(world, store) == (0, 0)
    tally = ran.document["outcomes"]["uploads"]
    assert tally["deleted"] + tally["gone"] == DUE
    events = [line["event"] for line in ran.log]
    assert "an earlier run crashed" in events
    assert "resuming" in events


def test_killed_run_whose_definition_changed_is_abandoned_and_planned_anew(
    world: World, store: StubS3
) -> None:
    jobs = prepared(world, store)
    hold = Hold(store, at=2)
    first = world.start("run", jobs)
    waited(hold.arrived, first)
    first.kill()
    ended(first)
    hold.go.set()
    until = time.monotonic() + 30
    while "up/001500.bin" in store.keys("acme"):
        # The request was on the wire when its sender died.
        assert time.monotonic() < until
        time.sleep(0.01)
    world.sql("UPDATE uploads SET expires_at = '2099-01-01 00:00:00' WHERE id IN (1500, 2500)")
    changed: Callable[[str], str] = lambda text: text.replace("uploads.c.hold.is_(False), ", "")  # noqa: E731
    jobs.write_text(changed(jobs.read_text()))
    ran = next_run(world, jobs)
    records = {r["state"]: r for r in world.cli("history", jobs, "--json", expect=0).document}
    assert ran.code == 7, "rows of the abandoned run had lost their objects, and that is told"
    told = re.search(r"An earlier run left ([\d,]+) failed", ran.document["message"])
    assert told is not None
    assert int(told[1].replace(",", "")) > 1, "the whole slice that was on the wire"
    old = {
        item["key"][0]: (item["outcome"], item["code"])
        for item in world.shown(records["abandoned"]["run"])["items"]
    }
    assert old[1500] == ("failed", "dangling")
    # In the batch that was under way it is looked at, in a later one it is not.
    assert old[2500] in (("changed", "predicate"), ("blocked", "not-attempted"))
    rows, objects = world.rows(), {int(key[3:9]) for key in store.keys("acme")}
    assert {n for n in rows if n <= DUE} == {1500, 2500}
    assert {n for n in objects if n <= DUE} == {2500}
