"""Faults that users of other schedulers, purges and locks reported, each in its smallest form.

Those that have a test elsewhere: two starters (tests/locks/test_race.py); a lock shorter than the run, a crash that leaves
the lock, a lock behind a pooler (test_locks.py, tests/contract/test_second_locks.py); a job that hangs for ever
(test_deadline.py); summer time (test_summer_time.py, tests/unit/core/test_schedule.py); runs that were dropped, given up or never
started (tests/cli/test_operate.py).
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import StubS3
from tests.e2e.test_one_holder import BATCH, DUE, Hold, left, next_run, waited
from tests.e2e.test_one_holder import prepared as sealed_soon
from tests.e2e.world import JOBS, World, ended


@pytest.fixture
def world(sqlite_url: str, stub_s3: StubS3, tmp_path: Path) -> Iterator[World]:
    stub_s3.create_bucket("acme")
    made = World("sqlite", sa.make_url(sqlite_url), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    made.extra["SAFEDELETE_LEASE_SECONDS"] = "2"
    yield made
    if isinstance(stub_s3.program, Hold):
        stub_s3.program.go.set()
    made.clean_up()


def test_scheduled_manual_reviewed_and_retried_runs_share_one_lock(world: World) -> None:
    """A limit of one that counted only the scheduler's own starts (apache/airflow#9975)."""
    jobs = world.ready()
    saved = world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    with world.inside():
        from safedelete.wiring.connect import context_of

        with context_of(world.job(jobs)) as ctx:  # type: ignore[arg-type]
            lease = ctx.enter()
            for command in (
                ("run", jobs),
                ("execute", saved, "--file", jobs),
                ("plan", jobs, "--save"),
                ("cancel", saved, "--reason", "not tonight", "--file", jobs),
            ):
                assert "holds it since" in world.cli(*command, expect=5).said, command
            lease.release()
    assert len(world.rows()) == 12, "nobody deleted anything"
    world.cli("execute", saved, "--file", jobs, expect=0)


def test_a_run_killed_in_the_middle_of_its_grace_leaves_a_ledger_that_the_next_run_converges_from(
    world: World, stub_s3: StubS3
) -> None:
    """SIGTERM, and SIGKILL when the platform's stop timeout is over (aws/amazon-ecs-agent#126)."""
    jobs = sealed_soon(world, stub_s3)
    hold = Hold(stub_s3, at=2)
    first = world.start("run", jobs)
    waited(hold.arrived, first)
    first.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(1)
    first.kill()
    ended(first)
    hold.go.set()
    assert left(world, stub_s3)[0] == DUE - BATCH, "the batch in flight was rolled back"
    ran = next_run(world, jobs)
    assert ran.code == 0, ran.err
    assert ran.document["resumed"] is True
    assert left(world, stub_s3) == (0, 0)


def test_a_roles_short_statement_timeout_does_not_kill_every_purge(
    pg_database: str, stub_s3: StubS3, tmp_path: Path
) -> None:
    """The web application's own limit, inherited by the nightly job (tombii/better-ccflare#384)."""
    world = World("postgresql", sa.make_url(pg_database), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    world.seed(due=3, objects=False)
    jobs = world.jobs(source=JOBS.replace(", owns=OWNS", ""))
    world.cli("init", jobs, expect=0)
    world.sql(
        "CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_sleep(0.2); RETURN OLD; END $$",
        "CREATE TRIGGER doze BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION doze()",
        *(
            f'ALTER ROLE "{world.url.username}" IN DATABASE "{world.url.database}" SET {name} = \'{value}\''
            for name, value in (("statement_timeout", "400ms"), ("lock_timeout", "1ms"))
        ),
    )
    assert world.value("SHOW statement_timeout") == "400ms"
    world.cli("run", jobs, expect=0)
    assert world.rows() == set(range(4, 13))
    world.clean_up()


def test_threads_of_one_process_that_run_a_job_at_once_do_not_overlap(world: World) -> None:
    """A limit of one that held between processes only (go-co-op/gocron#799)."""
    jobs = world.jobs(
        source="""
import threading
from datetime import timedelta

from safedelete import job

together = threading.Event()
inside = []


@job("sweep", schedule="rate(1 day)", timeout=timedelta(minutes=5))
def sweep(run):
    inside.append(threading.get_ident())
    together.wait(30)
"""
    )
    world.cli("init", jobs, expect=0)
    with world.inside():
        import safedelete
        from safedelete.errors import LockHeldError

        declared = world.job(jobs)
        module = declared.function.__globals__  # type: ignore[union-attr]
        refused: list[str] = []

        def run() -> None:
            try:
                safedelete.run(declared)
            except LockHeldError as error:
                refused.append(str(error))
                module["together"].set()

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert (len(module["inside"]), len(refused)) == (1, 1)
