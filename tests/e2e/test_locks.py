"""Each lock as a job sees it: who is told what, and what becomes of a holder that dies, freezes or loses the server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.locks.lease import GIVING_BACK
from safedelete.runner.function import RECORDING
from safedelete.testing.servers import Postgres, Redis, StubS3
from safedelete.testing.servers.faults import SLOW_DOWN
from tests.backends import GivenDatabase, GivenRedis, started
from tests.e2e.test_one_holder import BATCH, DUE, Hold, left, next_run, waited
from tests.e2e.test_one_holder import prepared as sealed_soon
from tests.e2e.world import World, ended

LEASE = 2.0
LOCKS = ["lease", "advisory", "redis"]

JOB = """
import os
import time
from datetime import timedelta

from safedelete import job


@job("sweep", schedule="rate(1 day)", timeout=timedelta(minutes=5), lock=LOCK)
def sweep(run):
    with open(os.environ["TRACE"], "a", buffering=1) as trace:
        while not os.path.exists(os.environ["ENOUGH"]):
            run.checkpoint()
            trace.write(f"{os.getpid()}\\n")
            time.sleep(0.01)
    run.processed(1)
"""


@dataclass
class Scene:
    """A job that works until it is told that it is enough, and leaves a line for every step."""

    world: World
    jobs: Path
    trace: Path
    enough: Path

    def start(self) -> subprocess.Popen[str]:
        """Start the job in a process of its own, and wait until it works."""
        process = self.world.start("run", self.jobs)
        self.until(lambda: self.steps(process.pid) > 0, process)
        return process

    def steps(self, pid: int) -> int:
        return self.trace.read_text().split().count(str(pid)) if self.trace.exists() else 0

    def until(self, condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        end = time.monotonic() + 60
        while not condition():
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError(ended(process, 1))
            time.sleep(0.01)

    def states(self) -> list[str]:
        document = self.world.cli("history", self.jobs, "--json", expect=0).document
        return [record["state"] for record in document]


def scene(lock: str, url: str, redis_url: str, folder: Path, store: StubS3) -> Scene:
    world = World("postgresql", sa.make_url(url), store, "acme", folder)  # type: ignore[arg-type]
    trace, enough = folder / "trace", folder / "enough"
    world.extra |= {
        "SAFEDELETE_LEASE_SECONDS": str(LEASE),
        "SAFEDELETE_REDIS_URL": redis_url,
        "TRACE": str(trace),
        "ENOUGH": str(enough),
    }
    jobs = world.jobs(source=JOB.replace("LOCK", repr(lock)))
    world.cli("init", jobs, expect=0)
    return Scene(world, jobs, trace, enough)


@pytest.fixture(params=LOCKS)
def locked(
    request: pytest.FixtureRequest,
    pg_database: str,
    redis_server: Redis | GivenRedis,
    stub_s3: StubS3,
    tmp_path: Path,
) -> Iterator[Scene]:
    made = scene(request.param, pg_database, redis_server.url, tmp_path, stub_s3)
    yield made
    made.world.clean_up()


def test_the_second_is_told_who_works_and_a_killed_holder_keeps_the_next_out_for_a_lease_at_most(
    locked: Scene,
) -> None:
    first = locked.start()
    second = locked.world.cli("run", locked.jobs, expect=5)
    assert f"{socket.gethostname()} (pid {first.pid}) holds it since 20" in second.said
    assert "Nothing was deleted." in second.said
    assert locked.steps(os.getpid()) == 0, "the second did nothing"
    first.kill()
    killed = time.monotonic()
    ended(first)
    locked.enough.touch()
    third = next_run(locked.world, locked.jobs)
    assert third.code == 0, third.err
    assert time.monotonic() - killed < LEASE + 3, "a lease, and what a run needs"
    assert locked.states() == ["succeeded", "crashed"]


def test_a_holder_frozen_past_its_lease_does_nothing_when_thawed(locked: Scene) -> None:
    first = locked.start()
    first.send_signal(signal.SIGSTOP)
    try:
        locked.enough.touch()
        assert next_run(locked.world, locked.jobs).code == 0, "the frozen one keeps nobody out for ever"
        locked.enough.unlink()
        before = locked.steps(first.pid)
    finally:
        first.send_signal(signal.SIGCONT)
    thawed = ended(first)
    assert thawed.code == 6, thawed.err
    assert "lost" in thawed.said
    assert locked.steps(first.pid) <= before + 1, "at most the step it was in when it was frozen"
    assert locked.states() == ["succeeded", "crashed"], "it did not overwrite what the next run recorded"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_server_that_dies_stops_the_run(
    lock: str, pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    with started(Redis) as redis, started(Postgres) as own:
        url = pg_database if lock == "redis" else own.create_database()
        at = scene(lock, url, redis.url, tmp_path, stub_s3)
        first = at.start()
        (redis if lock == "redis" else own).stop()
        died = time.monotonic()
        stopped = ended(first)
        assert stopped.code == 6, stopped.err
        assert time.monotonic() - died < LEASE + 3
        assert "lost" in stopped.said
        if lock == "redis":
            assert at.states() == ["interrupted"]


@pytest.mark.parametrize("lock", ["lease", "redis"])
def test_a_lock_server_that_hangs_stops_the_run(
    lock: str, pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    """It refuses nothing and answers nothing, as behind a network that swallows packets; the ledger may hang with it."""
    with started(Redis) as redis, started(Postgres) as own:
        url = pg_database if lock == "redis" else own.create_database()
        at = scene(lock, url, redis.url, tmp_path, stub_s3)
        at.jobs.write_text(at.jobs.read_text().replace("lock=", "grace=timedelta(seconds=2), lock="))
        first = at.start()
        server = family((redis if lock == "redis" else own).pid)
        for pid in server:
            os.kill(pid, signal.SIGSTOP)
        hung = time.monotonic()
        try:
            stopped = ended(first, 60)
        finally:
            for pid in server:
                os.kill(pid, signal.SIGCONT)
        assert stopped.code == 6, stopped.err
        assert "lost" in stopped.said
        assert time.monotonic() - hung < LEASE + RECORDING + GIVING_BACK + 5
        at.enough.touch()
        assert next_run(at.world, at.jobs).code == 0
        assert at.states() == ["succeeded", "interrupted" if lock == "redis" else "crashed"]


def family(pid: int | None) -> list[int]:
    """A process and all that it started; a server's own children need not be in its group."""
    assert pid is not None
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


# --- and a purge


@pytest.fixture
def purged(
    postgres: Postgres | GivenDatabase, pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> Iterator[World]:
    stub_s3.create_bucket("acme")
    url = sa.make_url(pg_database)
    superuser = sa.make_url(postgres.superuser_url).set(database=url.database)
    world = World("postgresql", url, stub_s3, "acme", tmp_path, superuser=superuser)  # type: ignore[arg-type]
    world.sql(f'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO "{url.username}"')
    world.sql(f'GRANT ALL ON SCHEMA public TO "{url.username}"')
    world.extra["SAFEDELETE_LEASE_SECONDS"] = str(LEASE)
    yield world
    if isinstance(stub_s3.program, Hold):
        stub_s3.program.go.set()
    world.clean_up()


def test_a_purge_whose_redis_dies_asks_for_no_further_delete(purged: World, stub_s3: StubS3) -> None:
    with started(Redis) as redis:
        purged.extra["SAFEDELETE_REDIS_URL"] = redis.url
        jobs = sealed_soon(purged, stub_s3, options='lock="redis",')
        hold = Hold(stub_s3, at=2)
        first = purged.start("run", jobs, "--json")
        waited(hold.arrived, first)
        redis.stop()
        hold.go.set()
        stopped = ended(first)
        assert stopped.code == 6, stopped.err
        assert "Redis lock" in stopped.said
        assert hold.seen == 2, "the third batch was not asked for"
    rows, objects = left(purged, stub_s3)
    assert rows >= objects, "no row went before its object"
    assert objects == BATCH
    jobs.write_text(jobs.read_text().replace('lock="redis"', 'lock="lease"'))
    ran = next_run(purged, jobs)
    assert ran.code == 0, ran.err
    assert ran.document["resumed"] is True, "another lock is no other definition"
    assert left(purged, stub_s3) == (0, 0)


def test_a_purge_whose_advisory_session_is_ended_asks_for_no_further_delete(
    purged: World, stub_s3: StubS3
) -> None:
    jobs = sealed_soon(purged, stub_s3, options='lock="advisory",')
    hold = Hold(stub_s3, at=1, answer=SLOW_DOWN)
    first = purged.start("run", jobs, "--json", SAFEDELETE_LEASE_SECONDS="30")
    waited(hold.arrived, first)
    purged.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
    # Its next fence asks the session; a heartbeat would have noticed in seven seconds.
    hold.go.set()
    stopped = ended(first)
    assert stopped.code == 6, stopped.err
    assert "advisory lock" in stopped.said
    assert left(purged, stub_s3)[0] >= DUE - BATCH


def test_a_purge_takes_the_lease_whatever_other_lock_it_asks_for(
    purged: World, stub_s3: StubS3, redis_server: Redis | GivenRedis
) -> None:
    """Two hosts that were configured differently must not purge at once."""
    purged.extra["SAFEDELETE_REDIS_URL"] = redis_server.url
    jobs = sealed_soon(purged, stub_s3)
    hold = Hold(stub_s3, at=1)
    first = purged.start("run", jobs, "--json", SAFEDELETE_LOCK="redis", SAFEDELETE_LEASE_SECONDS="30")
    waited(hold.arrived, first)
    for other in LOCKS:
        assert str(first.pid) in purged.cli("run", jobs, expect=5, SAFEDELETE_LOCK=other).said
    hold.go.set()
    assert ended(first).code == 0


# --- what is asked for and cannot be had


def test_an_advisory_lock_on_sqlite_is_refused_before_anything_is_planned(
    sqlite_url: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    stub_s3.create_bucket("acme")
    world = World("sqlite", sa.make_url(sqlite_url), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    jobs = world.ready(objects=False)
    for verb in ("plan", "check", "run"):
        said = world.cli(verb, jobs, expect=2, SAFEDELETE_LOCK="advisory").said
        assert "sqlite has no advisory locks" in said
    declared = world.jobs(f'lock="advisory", database="{sqlite_url}"')
    assert "sqlite has no advisory locks" in world.cli("plan", declared, expect=2).said
    world.clean_up()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"SAFEDELETE_LOCK": "redis"}, "$SAFEDELETE_REDIS_URL is not set"),
        ({"SAFEDELETE_LOCK": "zookeeper"}, "$SAFEDELETE_LOCK"),
        ({"SAFEDELETE_LOCK": "redis", "SAFEDELETE_REDIS_URL": "redis://127.0.0.1:1/0"}, "does not answer"),
    ],
)
def test_a_lock_that_cannot_be_had_ends_the_run_before_anything(
    more: dict[str, str], says: str, sqlite_url: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    world = World("sqlite", sa.make_url(sqlite_url), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    jobs = world.ready(objects=False)
    ran = world.cli("run", jobs, **more)
    assert ran.code in (2, 7)
    assert says in ran.said
    assert "Nothing was deleted." in ran.said
    world.clean_up()
