"""A run ends by its deadline whatever it is blocked in, and by SIGTERM within its grace; the ledger says why."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import StubS3
from tests.e2e.world import JOBS, World, ended, metadata

TIMEOUT, GRACE = 1.5, 2.0
START = 15.0
"""Seconds that a busy machine may need to start an interpreter and to end it."""

BLOCKED = f"""
import ctypes
import os
import threading
import time
from datetime import timedelta
from pathlib import Path

from sqlalchemy import create_engine, text

from safedelete import job


@job("sweep", schedule="rate(1 day)", timeout=timedelta(seconds={TIMEOUT}), grace=timedelta(seconds={GRACE}))
def sweep(run):
    run.processed(1)
    Path(__file__).with_name("started").touch()
    BLOCK
    run.checkpoint()
"""

QUERY = {
    "postgresql": "SELECT pg_sleep(600)",
    "mariadb": "SELECT SLEEP(600)",
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
}
IN_A_QUERY = """with create_engine(os.environ["JOBS_OWN_URL"]).connect() as connection:
        connection.execute(text(QUERY))"""
IN_C = "ctypes.CDLL(None).sleep(600)"
IN_C_FOR_GOOD = """mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)"""
"""No signal ends this, as one ends a sleep."""

IN_C_WITHOUT_LETTING_GO = "ctypes.PyDLL(None).sleep(600)"


@pytest.fixture(params=["sqlite"])
def world(
    request: pytest.FixtureRequest, sqlite_url: str, stub_s3: StubS3, tmp_path: Path
) -> Iterator[World]:
    """A ledger in SQLite; what blocks a job is elsewhere."""
    stub_s3.create_bucket("acme")
    made = World("sqlite", sa.make_url(sqlite_url), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    made.extra["SAFEDELETE_LEASE_SECONDS"] = "5"
    yield made
    made.clean_up()


def blocked(world: World, block: str, **more: str) -> tuple[Path, subprocess.Popen[str]]:
    """Start a job that blocks, and wait until it does."""
    jobs = world.jobs(source=BLOCKED.replace("BLOCK", block))
    world.cli("init", jobs, expect=0)
    process = world.start("run", jobs, **more)
    until = time.monotonic() + 60
    while not (world.folder / "started").exists():
        if process.poll() is not None or time.monotonic() > until:
            raise AssertionError(ended(process, 1))
        time.sleep(0.01)
    return jobs, process


def last_run(world: World, jobs: Path) -> dict[str, Any]:
    found: dict[str, Any] = world.cli("history", jobs, "--json", expect=0).document[0]
    return found


@pytest.mark.parametrize("kind", QUERY)
def test_a_job_blocked_in_a_query_of_its_own_is_cancelled_at_its_deadline(
    kind: str, world: World, request: pytest.FixtureRequest
) -> None:
    fixture = {"postgresql": "pg_database", "mariadb": "mariadb_database", "sqlite": "sqlite_url"}[kind]
    url: str = request.getfixturevalue(fixture)
    drivers = {"mariadb": "mariadb+pymysql", "postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
    own = sa.make_url(url).set(drivername=drivers[kind]).render_as_string(hide_password=False)
    began = time.monotonic()
    jobs, process = blocked(world, IN_A_QUERY.replace("QUERY", repr(QUERY[kind])), JOBS_OWN_URL=own)
    stopped = ended(process)
    assert time.monotonic() - began < TIMEOUT + GRACE + START
    assert stopped.code == 4, stopped.err
    assert "process ends now" not in stopped.err, "the cancelled statement was enough"
    record = last_run(world, jobs)
    assert (record["state"], record["exit_code"]) == ("interrupted", 4)
    assert "timeout of 0:00:01.500000 has passed" in record["reason"]


def test_a_job_blocked_in_c_is_ended_and_recorded_as_interrupted(world: World) -> None:
    jobs, process = blocked(world, IN_C)
    began = time.monotonic()
    stopped = ended(process)
    assert time.monotonic() - began < TIMEOUT + GRACE + 1
    assert stopped.code == 4, stopped.err
    assert "The timeout of 1.5 s passed" in stopped.err
    record = last_run(world, jobs)
    assert (record["state"], record["exit_code"]) == ("interrupted", 4)
    assert record["reason"].startswith("The timeout of 1.5 s passed")


def test_a_job_blocked_in_c_hears_sigterm_all_the_same(world: World) -> None:
    source = BLOCKED.replace(f"timeout=timedelta(seconds={TIMEOUT})", "timeout=timedelta(minutes=5)")
    jobs = world.jobs(source=source.replace("BLOCK", IN_C_FOR_GOOD))
    world.cli("init", jobs, expect=0)
    process = world.start("run", jobs)
    until = time.monotonic() + 60
    while not (world.folder / "started").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    process.terminate()
    began = time.monotonic()
    stopped = ended(process)
    assert time.monotonic() - began < GRACE + 1
    assert stopped.code == 4, stopped.err
    assert last_run(world, jobs)["reason"].startswith("SIGTERM asked for a stop")


@pytest.mark.parametrize(
    ("leave", "name"),
    [
        ("threading.Thread(target=time.sleep, args=(600,), name='sender').start()", "sender"),
        ("ThreadPoolExecutor(1, 'pool').submit(time.sleep, 600)", "pool_0"),
    ],
)
def test_a_thread_that_a_job_leaves_behind_does_not_keep_its_process(
    leave: str, name: str, world: World
) -> None:
    jobs, process = blocked(world, f"from concurrent.futures import ThreadPoolExecutor\n    {leave}")
    began = time.monotonic()
    stopped = ended(process)
    assert time.monotonic() - began < TIMEOUT + GRACE + START
    assert stopped.code == 1, stopped.err
    assert f"the job has left {name} at work; the process ends now" in stopped.err
    assert "1 processed, 0 failed" in stopped.out, "what was said is not lost"
    assert last_run(world, jobs)["state"] == "succeeded"


def test_a_job_whose_log_nobody_reads_any_more_is_ended_too(world: World) -> None:
    """A log driver that hangs: its pipe is full, and the job, as the watchdog would, waits for it with every line."""
    jobs, process = blocked(world, 'for _ in range(1_000): run.log.info("x" * 10_000)')
    began = time.monotonic()
    assert process.wait(TIMEOUT + GRACE + START) == 4
    assert time.monotonic() - began < TIMEOUT + GRACE + 1
    process.communicate()
    record = last_run(world, jobs)
    assert (record["state"], record["exit_code"]) == ("interrupted", 4)


def test_a_job_that_keeps_the_interpreter_from_running_is_ended_too_and_the_next_run_calls_it_crashed(
    world: World,
) -> None:
    jobs, process = blocked(world, IN_C_WITHOUT_LETTING_GO)
    began = time.monotonic()
    stopped = ended(process)
    assert time.monotonic() - began < TIMEOUT + GRACE + 2
    assert stopped.code != 0
    assert "sweep" in stopped.err, "where it hung"
    jobs.write_text(jobs.read_text().replace(IN_C_WITHOUT_LETTING_GO, "pass"))
    until = time.monotonic() + 30
    while (ran := world.cli("run", jobs)).code == 5:
        assert time.monotonic() < until
        time.sleep(0.2)
    assert ran.code == 0, ran.err
    states = [r["state"] for r in world.cli("history", jobs, "--json", expect=0).document]
    assert states == ["succeeded", "crashed"]


def test_a_purge_in_a_hanging_store_ends_within_timeout_and_grace_and_goes_on_the_next_time(
    pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    stub_s3.create_bucket("acme")
    world = World("postgresql", sa.make_url(pg_database), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    world.seed(due=30)
    source = JOBS.replace("minutes=10", f"seconds={TIMEOUT + 2}")
    jobs = world.jobs(f"grace=timedelta(seconds={GRACE}),", source=source)
    world.cli("init", jobs, expect=0)
    arrived, go = threading.Event(), threading.Event()

    def hang(request: Any) -> None:
        if request.operation == "DeleteObjects" and any("probe" not in key for key in request.keys):
            arrived.set()
            go.wait(60)

    stub_s3.program = hang
    process = world.start("run", jobs)
    try:
        assert arrived.wait(30), ended(process, 1)
        began = time.monotonic()
        stopped = ended(process)
        assert time.monotonic() - began < TIMEOUT + 2 + GRACE + 1
    finally:
        go.set()
    assert stopped.code == 4, stopped.err
    record = last_run(world, jobs)
    assert (record["state"], record["exit_code"]) == ("interrupted", 4)
    assert "timeout of 3.5 s passed; the run did not end within its grace" in record["reason"]
    world.sql("UPDATE safedelete_lease SET expires_ms = 0")
    jobs.write_text(jobs.read_text().replace(f"seconds={TIMEOUT + 2}", "minutes=10"))
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["resumed"] is True
    assert world.rows() == world.objects() == set(range(31, 121))
    world.clean_up()


def test_a_purge_blocked_in_its_database_is_cancelled_at_its_deadline(
    pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    stub_s3.create_bucket("acme")
    world = World("postgresql", sa.make_url(pg_database), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    world.seed(due=3, objects=False)
    world.sql(
        "CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(600); RETURN OLD; END $$",
        "CREATE TRIGGER doze BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION doze()",
    )
    source = JOBS.replace("minutes=10", f"seconds={TIMEOUT + 2}").replace(", owns=OWNS", "")
    jobs = world.jobs(f"grace=timedelta(seconds={GRACE}),", source=source)
    world.cli("init", jobs, expect=0)
    began = time.monotonic()
    stopped = ended(world.start("run", jobs))
    assert stopped.code == 4, stopped.err
    assert time.monotonic() - began < TIMEOUT + 2 + GRACE + START
    record = last_run(world, jobs)
    assert (record["state"], record["exit_code"]) == ("interrupted", 4)
    assert "timeout" in record["reason"]
    world.sql("DROP TRIGGER doze ON uploads")
    jobs.write_text(jobs.read_text().replace(f"seconds={TIMEOUT + 2}", "minutes=10"))
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["resumed"] is True
    assert world.rows() == set(range(4, 13))
    world.clean_up()


def test_sigterm_during_a_purge_of_100_000_rows_ends_it_and_the_next_run_finishes_it(
    pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    due = 100_000
    world = World("postgresql", sa.make_url(pg_database), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    metadata.create_all(world.engine)
    world.sql(
        "INSERT INTO uploads (id, expires_at, hold)"
        f" SELECT n, now() - interval '1 hour' + (n - 1) / {due} * interval '1 day', false"
        f" FROM generate_series(1, {3 * due}) AS n"
    )
    jobs = world.jobs(source=JOBS.replace(", owns=OWNS", ""))
    world.cli("init", jobs, expect=0)
    process = world.start("run", jobs, "--json")
    done = "SELECT count(*) FROM safedelete_batch WHERE state = 'done'"
    until = time.monotonic() + 60
    while world.value(done) < 2:
        assert process.poll() is None, ended(process, 1)
        assert time.monotonic() < until
    process.terminate()
    began = time.monotonic()
    stopped = ended(process)
    assert time.monotonic() - began < 20, "within the grace"
    assert stopped.code == 4, stopped.err
    before = 3 * due - len(world.rows())
    assert 0 < before < due
    assert f"{before:,} item(s) were deleted before this." in stopped.said
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["resumed"] is True
    assert ran.document["outcomes"]["uploads"]["deleted"] == due
    assert world.rows() == set(range(due + 1, 3 * due + 1))
    world.clean_up()
