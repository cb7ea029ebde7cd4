"""A declared function, run under the same lock, deadline and record as a purge."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from os import PathLike
from typing import Any, Final

import structlog

from safedelete.core.outcome import Tally
from safedelete.core.redact import redact, scrubbed
from safedelete.core.run import RunState
from safedelete.declare.jobs import Job
from safedelete.errors import (
    CancelledRunError,
    ConfigError,
    ExitCode,
    IncompleteError,
    LockLostError,
    SafeDeleteError,
)
from safedelete.phases.parts import Stop
from safedelete.phases.preflight import require
from safedelete.ports import Binding, Clock, Lease, Ledger, Lock, RunChange, RunRecord, Silence, Teller
from safedelete.runner.ending import code_of
from safedelete.runner.pause import refuse_paused
from safedelete.runner.program import run_program
from safedelete.runner.report import Report
from safedelete.runner.takeover import mark_crashed

log = structlog.get_logger("safedelete.run")

TERM_SHARE: Final = 0.4
"""Share of the grace that a program has between SIGTERM and SIGKILL; the rest is for recording how the run ended."""

SILENT_SHARE: Final = 0.5
"""Share of the lease after which a program is killed whose job gives no sign of itself: well before another run may
begin, since a lease is renewed every quarter of its length."""

RECORDING: Final = 5.0
"""Seconds that recording a lost lock may take."""


class Context:
    """What a job's function is handed. Implements ``declare.RunContext``."""

    def __init__(self, ctx: FunctionContext, lease: Lease, deadline: datetime, *, run: str | None) -> None:
        self._ctx = ctx
        self._lease = lease
        self._deadline = deadline
        self._run = run
        self._log = log.bind(job=ctx.job.name, run=run)
        self._counting = threading.Lock()
        self.tally = Tally()
        self.told: SafeDeleteError | None = None
        """What a checkpoint has raised first: the run has to end so, though the function may have caught it."""

    @property
    def dry_run(self) -> bool:
        """Whether the function should only say what it would do."""
        return self._run is None

    @property
    def deadline(self) -> datetime:
        """When the job's timeout ends, aware UTC."""
        return self._deadline

    @property
    def log(self) -> Any:
        """A logger whose lines carry the job's name and the run's id."""
        return self._log

    def checkpoint(self) -> None:
        """Raise when the lock is lost, the deadline has passed or a stop was asked for."""
        try:
            self._ctx.stop.between()
            self._lease.gate()
        except SafeDeleteError as error:
            self.told = self.told or error
            raise

    def processed(self, items: int) -> None:
        """Add to the number of items done; kept where a purge keeps what it deleted, and shown as processed."""
        self._count(processed=items)

    def failed(self, items: int) -> None:
        """Add to the number of items that failed; any makes the run fail."""
        self._count(failed=items)

    def _count(self, **given: int) -> None:
        ((what, items),) = given.items()
        try:
            number = index(items)
        except TypeError:
            number = -1
        if number < 0:
            raise ConfigError(
                f"run.{what}({items!r}): give a whole number of at least 0.",
                hint="It is added to what was counted before.",
                deleted=None,
            )
        # Threads of the function may count at once, and a lost failure would be a success.
        with self._counting:
            self.tally += Tally(failed=number) if what == "failed" else Tally(deleted=number)

    def exec(
        self,
        arguments: Sequence[str],
        *,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> int:
        """Run a program to its end, its output into the log; returns its exit status. In a dry run only logs it."""
        self.checkpoint()
        if self.dry_run:
            self._log.info("program not started: dry run", argv=redact(list(map(str, arguments)))[0])
            return 0
        return run_program(
            arguments,
            check=self.checkpoint,
            gate=self._lease.gate,
            log=self._log,
            grace=self._ctx.job.grace.total_seconds() * TERM_SHARE,
            silence=self._ctx.lease_seconds * SILENT_SHARE,
            ok=ok,
            env=env,
            cwd=cwd,
        )


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
    task: str = ""
    guard: Callable[[], AbstractContextManager[None]] = nullcontext
    """Entered around the function itself: refuses what a job may not do."""
    lease_seconds: float = 60.0
    """How long its lock lasts without being renewed."""
    teller: Teller = field(default_factory=Silence)


def run_function(ctx: FunctionContext, *, dry_run: bool = False) -> Report:
    """Run a declared function once.

    Raises:
        SafeDeleteError: Whatever stopped it, after the ledger has been told. What the function itself raises passes
            through unchanged.
    """
    ctx.ledger.verify(ctx.binding)
    deadline = ctx.clock.now() + ctx.job.timeout
    lease = ctx.lock.acquire(ctx.job.name, owner=ctx.owner)
    try:
        if dry_run:
            return _rehearse(ctx, lease, deadline)
        refuse_paused(ctx.ledger, ctx.job.name)
        require(ctx.ledger.probe())
        mark_crashed(ctx.ledger, ctx.job.name, ctx.teller, lease)
        run = ctx.new_run()
        ctx.ledger.begin(
            RunRecord(
                run=run,
                job=ctx.job.name,
                kind="job",
                state=RunState.PLANNING,
                started_at=ctx.clock.now(),
                owner=ctx.owner,
                task=ctx.task,
            )
        )
        ctx.ledger.move(run, RunState.RUNNING)
        ctx.teller.started(run)
        context = Context(ctx, lease, deadline, run=run)
        try:
            _call(ctx, context)
            lease.fence()
        except BaseException as error:
            ended = _stopped(ctx.stop, error, context.told)
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


def _rehearse(ctx: FunctionContext, lease: Lease, deadline: datetime) -> Report:
    """Call the function with ``dry_run`` set; records nothing, since nothing was done."""
    context = Context(ctx, lease, deadline, run=None)
    _call(ctx, context)
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


def _call(ctx: FunctionContext, context: Context) -> None:
    with ctx.guard():
        try:
            # A process that was suspended since it took the lock must not begin beside the run that has it now.
            context.checkpoint()
            result = ctx.job.function(context)
            if inspect.isawaitable(result):
                _finish(result)
            elif inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise SafeDeleteError(
                    f"{ctx.job.name} returned a generator, of which nothing has run.",
                    hint="Loop over it inside the job's function.",
                )
            if context.told is not None:
                # Caught by the function, which ended all the same: what it had not got to would pass for done.
                raise context.told
        except SystemExit as error:
            # Let through, it would end the host's process, and with exit status 0 whatever the job had counted.
            raise SafeDeleteError(
                f"{ctx.job.name} called sys.exit({'' if error.code is None else repr(error.code)}) (SystemExit).",
                hint="Return where all is well, and raise an error where it is not: how a run ends is the ledger's to "
                "tell, and the process is not the job's to end.",
                deleted=None,
            ) from error


def _finish(result: Awaitable[object]) -> None:
    """Run a coroutine to its end, in a loop of its own that touches no signal handler."""

    async def awaited() -> None:
        await result

    def in_a_loop() -> None:
        # Not Runner.run(): that one puts a handler of its own on SIGINT, which belongs to the host.
        with asyncio.Runner() as runner:
            runner.get_loop().run_until_complete(awaited())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        in_a_loop()
        return
    # The host calls us from a coroutine: its own loop waits for this call, and cannot run another one.
    with ThreadPoolExecutor(1, thread_name_prefix="safedelete-job") as pool:
        pool.submit(copy_context().run, in_a_loop).result()


def _stopped(stop: Stop, error: BaseException, told: SafeDeleteError | None) -> BaseException:
    """Return what ended a function: a statement that the watchdog cancelled looks like a database that failed."""
    if isinstance(error, Exception) and not isinstance(error, SafeDeleteError):
        if told is not None:
            return told
        try:
            stop.between()
        except IncompleteError as why:
            return why
    return error


def _failed(ctx: FunctionContext, run: str, context: Context, error: BaseException) -> None:
    if isinstance(error, SafeDeleteError):
        _, sums = _verdict(context)
        error.processed = f"What the job did before this is for it to say; it counted {sums}"
    stopped = isinstance(error, (IncompleteError, LockLostError, KeyboardInterrupt))
    state = RunState.INTERRUPTED if stopped else RunState.FAILED

    def record() -> None:
        try:
            ctx.ledger.move(
                run,
                RunState.CANCELLED if isinstance(error, CancelledRunError) else state,
                owner=ctx.owner,
                change=RunChange(
                    finished_at=ctx.clock.now(),
                    tally={ctx.job.name: context.tally},
                    # It is not our text: a driver's error may hold the URL it was given, password and all.
                    reason=scrubbed(f"{type(error).__name__}: {error}"),
                    exit_code=code_of(error),
                ),
            )
        except SafeDeleteError as second:
            log.warning("the run's end could not be recorded", run=run, error=str(second))

    if not isinstance(error, LockLostError):
        record()
        return
    # The lock's server may be the ledger's, and hang: then the next run calls this one crashed.
    thread = threading.Thread(target=record, name="recording", daemon=True)
    thread.start()
    thread.join(RECORDING)
    if thread.is_alive():
        log.warning("the run's end could not be recorded", run=run, error="the ledger does not answer")
