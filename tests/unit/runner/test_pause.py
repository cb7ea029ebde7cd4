"""A paused job does not start, and a cancelled run ends where it stands."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from safedelete.core.run import RunState
from safedelete.declare import RunContext
from safedelete.errors import (
    CancelledRunError,
    ExitCode,
    LedgerError,
    PausedError,
)
from safedelete.ports import Notice
from safedelete.runner import pause as pausing
from safedelete.runner import purge
from safedelete.runner.pause import cancellation
from safedelete.runner.stop import deadline, nobody
from tests.unit.runner.test_function import NAME, Host
from tests.worlds import JOB, Process, World, batches_of, die, on


def paused(world: World, job: str = JOB) -> Notice:
    notice = Notice(
        kind="pause", subject=job, since=world.clock.now(), who="ann@desk app", reason="a migration"
    )
    world.ledger.say(notice)
    return notice


def cancel(world: World, run: str) -> None:
    now = world.clock.now()
    world.ledger.say(Notice(kind="cancel", subject=run, since=now, who="ann@desk", reason="wrong table"))
    world.clock.advance(1)


def cancellable(world: World, at: Callable[..., None] | None = None) -> Process:
    stop = deadline(
        world.clock,
        timedelta(hours=1),
        timedelta(seconds=30),
        nobody,
        cancellation(world.ledger, JOB, "host:1", world.clock),
    )
    return world.process(at=at, stop=stop)


def test_a_paused_purge_deletes_nothing_and_says_who_why_and_since_when() -> None:
    world = World()
    notice = paused(world)
    runs = len(world.ledger.runs(JOB, limit=99))
    with pytest.raises(PausedError) as raised:
        world.process().run()
    error = raised.value
    assert error.exit_code is ExitCode.SKIPPED
    for word in ("ann@desk app", "a migration", f"{notice.since:%Y-%m-%d %H:%M} UTC"):
        assert word in str(error)
    assert (error.holder, error.deleted) == ("ann@desk app", 0)
    assert all(world.has_row(number) and world.has_object(f"{number}.jpg") for number in range(6))
    assert len(world.ledger.runs(JOB, limit=99)) == runs


def test_a_pause_of_one_job_is_none_of_another() -> None:
    world = World()
    paused(world, "another")
    assert world.process().run().state is RunState.SUCCEEDED


def test_after_a_pause_the_purge_runs_again() -> None:
    world = World()
    paused(world)
    world.ledger.take_back("pause", JOB, at=world.clock.now(), who="ann")
    assert world.process().run().state is RunState.SUCCEEDED


def test_a_refused_start_gives_the_lock_back() -> None:
    world = World()
    paused(world)
    for name in ("host:1", "host:2"):
        with pytest.raises(PausedError):
            world.process(name).run()


def test_a_pause_that_cannot_be_read_is_no_permission_to_start() -> None:
    world = World()

    def broken() -> None:
        raise LedgerError("The ledger could not read who paused what.")

    with pytest.raises(LedgerError):
        world.process(at=on("ledger.notices", broken)).run()
    assert all(world.has_row(number) for number in range(6))


def test_a_saved_plan_of_a_paused_purge_is_not_executed() -> None:
    world = World()
    saved = purge.save(world.process().ctx)
    paused(world)
    assert saved.run is not None
    with pytest.raises(PausedError):
        purge.execute_sealed(world.process().ctx, saved.run)
    assert all(world.has_row(number) for number in range(6))


def test_a_paused_purge_may_still_be_looked_at() -> None:
    world = World()
    paused(world)
    assert purge.plan(world.process().ctx).exit_code is ExitCode.DONE
    assert purge.dry_run(world.process().ctx).exit_code is ExitCode.DONE


def test_a_cancelled_purge_ends_at_its_next_batch_and_nothing_goes_on_with_it() -> None:
    world = World()
    with batches_of(2):
        at = on("rows.begin", lambda: cancel(world, world.last().run), nth=1)
        with pytest.raises(CancelledRunError) as raised:
            cancellable(world, at).run()
        record = world.last()
        left = {number for number in range(6) if world.has_row(number)}
        assert len(left) == 4
        assert all(world.has_object(f"{number}.jpg") for number in left)
        assert record.state is RunState.CANCELLED
        assert (record.exit_code, raised.value.exit_code) == (ExitCode.INCOMPLETE, ExitCode.INCOMPLETE)
        assert "cancelled by ann@desk: wrong table" in record.reason
        assert raised.value.deleted == 2
        sums = world.total(record.run)
        assert (sums.deleted, sums.total) == (2, 6)
        world.clock.advance(86_400)
        after = world.process().run()
    assert after.run != record.run
    assert not after.resumed


def test_a_purge_that_is_cancelled_while_it_counts_deletes_nothing() -> None:
    world = World()
    at = on("rows.survey", lambda: cancel(world, world.last().run))
    with pytest.raises(CancelledRunError, match="It had not deleted anything"):
        cancellable(world, at).run()
    assert world.last().state is RunState.CANCELLED
    assert all(world.has_row(number) for number in range(6))


def test_a_run_that_died_before_it_read_its_cancellation_is_not_resumed() -> None:
    world = World()
    with batches_of(2):
        world.process(at=on("objects.delete", die, nth=2)).run_killed()
        dead = world.last()
        cancel(world, dead.run)
        world.clock.advance(120)
        report = world.process("host:2").run()
    assert not report.resumed
    record = world.ledger.record(dead.run)
    assert record.state is RunState.ABANDONED
    assert record.reason == "cancelled by ann@desk: wrong table"


@pytest.mark.parametrize("error", [LedgerError("no answer"), OSError("the token service is away")])
def test_a_ledger_that_does_not_answer_the_question_does_not_end_the_run(error: Exception) -> None:
    world = World()
    asked = []

    class Silent:
        def cancelled(self, _job: str, _owner: str) -> Notice | None:
            asked.append(world.clock.uptime())
            raise error

    ask = cancellation(Silent(), JOB, "host:1", world.clock)  # type: ignore[arg-type]  # one method is asked
    with capture_logs() as lines:
        assert [ask(), ask()] == [None, None]
        world.clock.advance(1)
        assert ask() is None
    assert len(asked) == 2
    assert [line["error"] for line in lines] == [str(error)] * 2


def test_a_ledger_that_hangs_holds_up_no_checkpoint_and_its_late_answer_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run whose lock is lost meanwhile has to notice, and it asks for its lock after this."""
    monkeypatch.setattr(pausing, "PATIENCE", 0.05)
    world = World()
    go, asked = threading.Event(), []

    class Hangs:
        def cancelled(self, _job: str, _owner: str) -> Notice | None:
            asked.append(world.clock.uptime())
            go.wait(30)
            return Notice(
                kind="cancel", subject="R", since=world.clock.now(), who="ann", reason="wrong table"
            )

    ask = cancellation(Hangs(), JOB, "host:1", world.clock)  # type: ignore[arg-type]  # one method is asked
    began = time.monotonic()
    for _ in range(5):
        assert ask() is None
        world.clock.advance(2)
    assert time.monotonic() - began < 5
    assert len(asked) == 1, "one question at a time"
    go.set()
    until = time.monotonic() + 10
    while ask() is None:
        assert time.monotonic() < until
    assert ask() == "cancelled by ann: wrong table"


def test_threads_that_come_to_a_checkpoint_at_once_do_not_trip_over_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pausing, "EVERY", 0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    world = World()
    ask = cancellation(world.ledger, JOB, "host:1", world.clock)
    try:
        with ThreadPoolExecutor(8) as pool:
            asking = [pool.submit(lambda: [ask() for _ in range(150)]) for _ in range(8)]
            assert {answer for one in asking for answer in one.result()} == {None}
    finally:
        sys.setswitchinterval(interval)


def test_a_resumed_run_counts_its_deadline_from_when_it_was_resumed() -> None:
    world = World()
    with batches_of(2):
        world.process(at=on("objects.delete", die, nth=2)).run_killed()
        began = world.last().started_at
        world.clock.advance(7200)
        report = world.process("host:2").run()
    record = world.last()
    assert report.resumed
    assert (record.started_at, record.began_at - began) == (began, timedelta(seconds=7200))


def test_a_paused_function_does_not_start() -> None:
    called = []
    host = Host(called.append)
    paused(host.world, NAME)
    with pytest.raises(PausedError):
        host.run()
    assert (called, host.records()) == ([], [])


def test_a_cancelled_function_ends_at_its_next_checkpoint() -> None:
    def act(run: RunContext) -> None:
        run.processed(1)
        run.checkpoint()
        cancel(host.world, host.records()[0].run)
        run.checkpoint()
        run.processed(1)

    host = Host(act)
    with pytest.raises(CancelledRunError):
        host.run(cancelled=cancellation(host.world.ledger, NAME, "host:1", host.world.clock))
    (record,) = host.records()
    assert (record.state, record.exit_code) == (RunState.CANCELLED, ExitCode.INCOMPLETE)
    assert record.tally[NAME].deleted == 1
    assert "cancelled by ann@desk: wrong table" in record.reason
