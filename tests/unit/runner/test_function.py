"""A declared function runs under the lock, the deadline and the record of a purge."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from safedelete.cli import text
from safedelete.cli.document import record_document, report_document
from safedelete.core.run import RunState
from safedelete.declare import RunContext, job
from safedelete.errors import (
    ConfigError,
    DeadlineExceededError,
    ExitCode,
    InterruptedRunError,
    LockHeldError,
    LockLostError,
    SafeDeleteError,
)
from safedelete.ports import RunRecord
from safedelete.runner import function
from safedelete.runner.function import FunctionContext, run_function
from safedelete.runner.report import Report
from safedelete.runner.stop import deadline, nobody
from safedelete.testing.memory import MemoryLock
from tests.worlds import World, another_begins

NAME = "send-reminders"


class Host:
    """A world with one function job in it."""

    def __init__(self, act: Callable[[RunContext], object], *, grace: float = 20) -> None:
        self.world = World(expired=0)
        self.declared = job(
            NAME, schedule="rate(1 day)", timeout=timedelta(minutes=5), grace=timedelta(seconds=grace)
        )(act)

    def run(
        self,
        *,
        dry_run: bool = False,
        asked: Callable[[], str | None] = nobody,
        cancelled: Callable[[], str | None] = nobody,
        owner: str = "host:1",
    ) -> Report:
        world, declared = self.world, self.declared
        number = len(world.ledger.runs(NAME, limit=99)) + 1
        ctx = FunctionContext(
            job=declared,
            ledger=world.ledger,
            lock=MemoryLock(world.database, world.clock),
            clock=world.clock,
            new_run=lambda: f"JOB{number}",
            owner=owner,
            binding=world.ledger.bound,
            stop=deadline(world.clock, declared.timeout, declared.grace, asked, cancelled),
        )
        return run_function(ctx, dry_run=dry_run)

    def records(self) -> list[RunRecord]:
        return list(self.world.ledger.runs(NAME, limit=99))


def five(run: RunContext) -> None:
    for _ in range(5):
        run.checkpoint()
        run.processed(1)


def test_what_a_function_did_is_recorded_and_shown_as_processed() -> None:
    host = Host(five)
    report = host.run()
    (record,) = host.records()
    assert (report.exit_code, record.state, record.kind) == (ExitCode.DONE, RunState.SUCCEEDED, "job")
    assert report_document(report)["outcomes"] == {NAME: {"processed": 5, "failed": 0}}
    assert record_document(record)["outcomes"] == {NAME: {"processed": 5, "failed": 0}}
    for said in (text.result(report), text.run(record, None), text.history(NAME, [record], limit=5)):
        assert "processed" in said
        assert "deleted" not in said


def test_a_dry_run_of_a_function_records_nothing() -> None:
    seen = []

    def act(run: RunContext) -> None:
        seen.append(run.dry_run)
        five(run)

    host = Host(act)
    report = host.run(dry_run=True)
    assert (seen, host.records(), report.run, report.state) == ([True], [], None, None)
    said = text.result(report)
    assert said.startswith(
        f"{NAME}: dry run, not recorded. 5 processed, 0 failed.\n\nThis was a dry run: nothing was deleted"
    )
    host.run()
    assert (seen, len(host.records())) == ([True, False], 1)


def test_one_failed_item_makes_the_run_fail() -> None:
    def act(run: RunContext) -> None:
        run.processed(4)
        run.failed(1)

    host = Host(act)
    report = host.run()
    assert (report.exit_code, report.state) == (ExitCode.STORE, RunState.FAILED)
    assert host.records()[0].reason == "4 processed, 1 failed."
    assert host.run(dry_run=True).exit_code is ExitCode.STORE


def test_a_coroutine_is_run_to_its_end() -> None:
    async def act(run: RunContext) -> None:
        run.processed(2)

    assert Host(act).run().total.deleted == 2


def test_a_coroutine_is_run_where_the_host_has_a_loop_running() -> None:
    async def act(run: RunContext) -> None:
        await asyncio.sleep(0)
        run.processed(2)

    async def host() -> int:
        return Host(act).run().total.deleted

    assert asyncio.run(host()) == 2


def test_a_coroutine_touches_no_signal_handler() -> None:
    seen = []

    async def act(_run: RunContext) -> None:
        seen.append(signal.getsignal(signal.SIGINT))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        Host(act).run()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.default_int_handler]


def test_a_function_knows_its_deadline_and_its_log_lines_name_job_and_run() -> None:
    seen = []

    def act(run: RunContext) -> None:
        seen.append(run.deadline)
        run.log.info("sent", batch=3)

    host = Host(act)
    started = host.world.clock.now()
    with capture_logs() as lines:
        report = host.run()
    assert seen == [started + timedelta(minutes=5)]
    assert seen[0].utcoffset() == timedelta(0)
    assert {"event": "sent", "batch": 3, "job": NAME, "run": report.run, "log_level": "info"} in lines


def test_what_a_function_raises_passes_through_and_is_recorded() -> None:
    def act(run: RunContext) -> None:
        run.processed(3)
        raise KeyError("address")

    host = Host(act)
    with pytest.raises(KeyError):
        host.run()
    (record,) = host.records()
    assert (record.state, record.exit_code) == (RunState.FAILED, ExitCode.UNEXPECTED)
    assert record.tally[NAME].deleted == 3
    assert "KeyError" in record.reason


@pytest.mark.parametrize("late", [True, False])
def test_a_checkpoint_ends_a_function_that_is_late_or_asked_to_stop(late: bool) -> None:
    host = Host(five)

    def asked() -> str | None:
        if late:
            host.world.clock.advance(120)
            return None
        return "SIGTERM"

    with pytest.raises(DeadlineExceededError if late else InterruptedRunError):
        host.run(asked=asked)
    assert (host.records()[0].state, host.records()[0].exit_code) == (
        RunState.INTERRUPTED,
        ExitCode.INCOMPLETE,
    )


def test_a_function_whose_lock_was_taken_over_does_not_succeed() -> None:
    runs: list[Any] = []

    def act(run: RunContext) -> None:
        if not runs:
            runs.append(run)
            host.world.clock.freeze(61)
            host.run(owner="host:2")

    host = Host(act)
    with pytest.raises(LockLostError):
        host.run()
    assert {r.run: r.state for r in host.records()} == {"JOB1": RunState.CRASHED, "JOB2": RunState.SUCCEEDED}


@pytest.mark.parametrize("step", ["probe", "move"], ids=["before it looks for dead runs", "before it begins"])
def test_a_host_frozen_since_it_took_the_lock_does_nothing_once_it_thaws(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[RunContext] = []
    host = Host(called.append)
    world = host.world
    real = getattr(world.ledger, step)

    def frozen(*arguments: Any, **options: Any) -> object:
        monkeypatch.undo()
        world.clock.freeze(61)
        another_begins(world, NAME)
        return real(*arguments, **options)

    monkeypatch.setattr(world.ledger, step, frozen)
    with pytest.raises(LockLostError):
        host.run()
    assert called == []
    assert world.ledger.record("ANOTHER").state is RunState.RUNNING


def test_two_runs_of_a_function_do_not_overlap() -> None:
    refused = []

    def act(_run: RunContext) -> None:
        with pytest.raises(LockHeldError):
            host.run(owner="host:2")
        refused.append(True)

    host = Host(act)
    host.run()
    assert refused


@pytest.mark.parametrize("way", ["ends", "raises", "rehearses"])
@pytest.mark.parametrize("why", ["deadline", "stop", "lock"])
def test_a_function_that_catches_what_a_checkpoint_told_it_is_ended_so_all_the_same(
    why: str, way: str
) -> None:
    """What it had not got to would pass for done."""

    def act(run: RunContext) -> None:
        if why == "lock":
            host.world.clock.freeze(61)
        elif why == "deadline":
            host.world.clock.advance(301)
        try:
            run.checkpoint()
        except Exception:
            if way == "raises":
                raise RuntimeError("one batch failed") from None
            return
        run.processed(1)

    host = Host(act)
    expected = {"deadline": DeadlineExceededError, "stop": InterruptedRunError, "lock": LockLostError}[why]
    with pytest.raises(expected):
        host.run(asked=lambda: "SIGTERM" if why == "stop" else None, dry_run=way == "rehearses")
    if way != "rehearses":
        code = ExitCode.LOCK_LOST if why == "lock" else ExitCode.INCOMPLETE
        assert [(r.state, r.exit_code) for r in host.records()] == [(RunState.INTERRUPTED, code)]


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_function_that_hands_back_a_generator_has_not_succeeded(*, dry_run: bool) -> None:
    def wrapped(run: RunContext) -> object:
        return (run.processed(n) for n in range(3))

    host = Host(wrapped)
    with pytest.raises(SafeDeleteError, match="a generator, of which nothing has run"):
        host.run(dry_run=dry_run)
    assert [record.state for record in host.records()] == ([] if dry_run else [RunState.FAILED])


def test_failures_that_threads_count_at_once_are_all_counted() -> None:
    threads, each = 8, 300

    def act(run: RunContext) -> None:
        def count() -> None:
            for _ in range(each):
                run.failed(1)
                run.processed(2)

        with ThreadPoolExecutor(threads) as pool:
            for _ in range(threads):
                pool.submit(count)

    host = Host(act)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        host.run()
    finally:
        sys.setswitchinterval(before)
    tally = host.records()[0].tally[NAME]
    assert (tally.failed, tally.deleted) == (threads * each, 2 * threads * each)


@pytest.mark.parametrize("items", [-1, 0.5, "3", None])
@pytest.mark.parametrize("what", ["processed", "failed"])
def test_a_count_that_is_none_is_refused(what: str, items: Any) -> None:
    """A negative one would take back what failed."""

    def act(run: RunContext) -> None:
        run.failed(1)
        getattr(run, what)(items)

    host = Host(act)
    with pytest.raises(ConfigError, match=rf"run\.{what}\({items!r}\): give a whole number"):
        host.run()
    assert host.records()[0].tally[NAME].failed == 1


def test_a_lost_lock_is_told_though_the_ledger_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "RECORDING", 0.2)
    go = threading.Event()

    def act(run: RunContext) -> None:
        real = host.world.ledger.move

        def hang(*given: Any, **more: Any) -> Any:
            go.wait(30)
            return real(*given, **more)

        monkeypatch.setattr(host.world.ledger, "move", hang)
        host.world.clock.freeze(61)
        run.checkpoint()

    host = Host(act)
    began = time.monotonic()
    with capture_logs() as lines, pytest.raises(LockLostError):
        host.run()
    assert time.monotonic() - began < 10
    assert any(line.get("error") == "the ledger does not answer" for line in lines)
    go.set()


@pytest.mark.parametrize("code", [0, None, 3, "all is well"])
@pytest.mark.parametrize("way", ["function", "coroutine"])
def test_a_function_that_calls_sys_exit_fails_the_run_and_ends_nothing(way: str, code: Any) -> None:
    def leave(run: RunContext) -> None:
        run.failed(3)
        sys.exit(code)

    async def leave_later(run: RunContext) -> None:
        leave(run)

    host = Host(leave if way == "function" else leave_later)
    with pytest.raises(SafeDeleteError, match=r"send-reminders called sys\.exit\(") as raised:
        host.run()
    assert raised.value.exit_code is ExitCode.UNEXPECTED
    (record,) = host.records()
    assert (record.state, record.exit_code) == (RunState.FAILED, ExitCode.UNEXPECTED)
    assert record.tally[NAME].failed == 3
    with pytest.raises(SafeDeleteError, match=r"sys\.exit"):
        host.run(dry_run=True)
