"""A declared function, run under the same lock, deadline and record as a purge."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from safedelete.core.outcome import Tally
from safedelete.core.run import UNFINISHED, RunState
from safedelete.declare.jobs import Job
from safedelete.errors import ExitCode, IncompleteError, LockLostError, SafeDeleteError
from safedelete.phases.parts import Stop
from safedelete.phases.preflight import require
from safedelete.ports import Binding, Clock, Lease, Ledger, Lock, RunChange, RunRecord, Silence, Teller
from safedelete.runner.ending import code_of
from safedelete.runner.report import Report

log = structlog.get_logger("safedelete.run")


class Context:
    """What a job's function is handed. Implements ``declare.RunContext``."""

    def __init__(self, lease: Lease, stop: Stop, *, dry_run: bool) -> None:
        self._lease = lease
        self._stop = stop
        self._dry_run = dry_run
        self.tally = Tally()

    @property
    def dry_run(self) -> bool:
        """Whether the function should only say what it would do."""
        return self._dry_run

    def checkpoint(self) -> None:
        """Raise when the lock is lost, the deadline has passed or a stop was asked for."""
        self._stop.between()
        self._lease.gate()

    def processed(self, items: int) -> None:
        """Add to the number of items done; kept where a purge keeps what it deleted, and shown as processed."""
        self.tally += Tally(deleted=items)

    def failed(self, items: int) -> None:
        """Add to the number of items that failed; any makes the run fail."""
        self.tally += Tally(failed=items)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContext:
    """Everything one function job needs, handed in by the wiring."""

    job: Job
    ledger: Ledger
    lock: Lock
    clock: Clock
    new_run: Callable[[], str]
    owner: str
    binding: Binding
    stop: Stop
    teller: Teller = field(default_factory=Silence)


def run_function(ctx: FunctionContext, *, dry_run: bool = False) -> Report:
    """Run a declared function once.

    Raises:
        SafeDeleteError: Whatever stopped it, after the ledger has been told. What the function itself raises passes
            through unchanged.
    """
    ctx.ledger.verify(ctx.binding)
    lease = ctx.lock.acquire(ctx.job.name, owner=ctx.owner)
    try:
        if dry_run:
            return _rehearse(ctx, lease)
        require(ctx.ledger.probe())
        for record in ctx.ledger.runs(ctx.job.name, limit=10, states=UNFINISHED):
            ctx.ledger.move(
                record.run, RunState.CRASHED, change=RunChange(reason="its process died or lost the lock")
            )
            ctx.teller.crashed(record)
        run = ctx.new_run()
        ctx.ledger.begin(
            RunRecord(
                run=run,
                job=ctx.job.name,
                kind="job",
                state=RunState.PLANNING,
                started_at=ctx.clock.now(),
                owner=ctx.owner,
            )
        )
        ctx.ledger.move(run, RunState.RUNNING)
        ctx.teller.started(run)
        context = Context(lease, ctx.stop, dry_run=False)
        try:
            _call(ctx.job, context)
            lease.fence()
        except BaseException as error:
            ended = _stopped(ctx.stop, error)
            _failed(ctx, run, context, ended)
            if ended is error:
                raise
            raise ended from error
        state = RunState.SUCCEEDED if context.tally.clean else RunState.FAILED
        code, message = _verdict(context)
        ctx.ledger.move(
            run,
            state,
            owner=ctx.owner,
            change=RunChange(
                finished_at=ctx.clock.now(),
                tally={ctx.job.name: context.tally},
                exit_code=code,
                reason=message,
            ),
        )
        log.info("finished", job=ctx.job.name, run=run, state=state.value, message=message)
        return Report(
            job=ctx.job.name,
            kind="job",
            run=run,
            state=state,
            exit_code=code,
            tally={ctx.job.name: context.tally},
            message=message,
        )
    finally:
        lease.release()


def _rehearse(ctx: FunctionContext, lease: Lease) -> Report:
    """Call the function with ``dry_run`` set; records nothing, since nothing was done."""
    context = Context(lease, ctx.stop, dry_run=True)
    _call(ctx.job, context)
    code, message = _verdict(context)
    return Report(
        job=ctx.job.name,
        kind="job",
        exit_code=code,
        tally={ctx.job.name: context.tally},
        message=f"{ctx.job.name}: dry run, not recorded. {message}",
    )


def _verdict(context: Context) -> tuple[ExitCode, str]:
    code = ExitCode.DONE if context.tally.clean else ExitCode.STORE
    return code, f"{context.tally.deleted:,} processed, {context.tally.failed:,} failed."


def _call(job: Job, context: Context) -> None:
    result = job.function(context)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def _stopped(stop: Stop, error: BaseException) -> BaseException:
    """Return what ended a function: a statement that the watchdog cancelled looks like a database that failed."""
    if isinstance(error, Exception) and not isinstance(error, SafeDeleteError):
        try:
            stop.between()
        except IncompleteError as why:
            return why
    return error


def _failed(ctx: FunctionContext, run: str, context: Context, error: BaseException) -> None:
    stopped = isinstance(error, (IncompleteError, LockLostError, KeyboardInterrupt))
    try:
        ctx.ledger.move(
            run,
            RunState.INTERRUPTED if stopped else RunState.FAILED,
            owner=ctx.owner,
            change=RunChange(
                finished_at=ctx.clock.now(),
                tally={ctx.job.name: context.tally},
                reason=f"{type(error).__name__}: {error}",
                exit_code=code_of(error),
            ),
        )
    except SafeDeleteError as second:
        log.warning("the run's end could not be recorded", run=run, error=str(second))
