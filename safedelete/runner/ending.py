"""How a run ends, and how that is recorded."""

from __future__ import annotations

import structlog

from safedelete.core.outcome import Tally
from safedelete.core.plan import Plan
from safedelete.core.run import RunState
from safedelete.errors import (
    BlastRadiusError,
    ExitCode,
    IncompleteError,
    LockLostError,
    PartialDeleteError,
    SafeDeleteError,
)
from safedelete.phases.verify import settle_open
from safedelete.ports import RunChange
from safedelete.runner.context import PurgeContext

log = structlog.get_logger("safedelete.run")


def verdict(total: Tally, owed: int, inherited: Tally) -> tuple[RunState, ExitCode, str]:
    """Judge a finished run by its sums.

    Success means that nothing failed, nothing is unknown, and something was done where something was sealed.

    Args:
        total: Its outcomes.
        owed: Items that were sealed.
        inherited: Outcomes this run had to give to what an abandoned run left.
    """
    done = total.deleted + total.gone
    kept = total.changed + total.blocked
    if total.total != owed:
        return (
            RunState.FAILED,
            ExitCode.STORE,
            f"{owed:,} items were sealed, but {total.total:,} have an outcome.",
        )
    if not total.clean:
        sums = f"{total.failed:,} item(s) failed and {total.unknown:,} are unknown; {done:,} of {owed:,} are gone."
        return RunState.FAILED, ExitCode.STORE, sums
    if total.locked:
        sums = f"{total.locked:,} row(s) stayed locked; {done:,} of {owed:,} are gone."
        return RunState.INCOMPLETE, ExitCode.INCOMPLETE, sums
    if owed and not done:
        return RunState.INCOMPLETE, ExitCode.INCOMPLETE, f"{owed:,} items were sealed and none was deleted."
    sums = f"{done:,} of {owed:,} are gone" + (f"; {kept:,} kept." if kept else ".")
    if not inherited.clean:
        left = f"An earlier run left {inherited.failed:,} failed and {inherited.unknown:,} unknown item(s)."
        return RunState.SUCCEEDED, ExitCode.STORE, f"{sums} {left}"
    return RunState.SUCCEEDED, ExitCode.DONE, sums


def failed_early(ctx: PurgeContext, run: str, error: BaseException) -> None:
    """Record how a run ended that had not deleted anything yet."""
    if ctx.ledger.record(run).state is not RunState.PLANNING:
        return
    if isinstance(error, SafeDeleteError):
        error.deleted = 0
    stopped = isinstance(error, (IncompleteError, LockLostError, KeyboardInterrupt))
    ctx.ledger.drop_seal(run)
    ctx.ledger.move(
        run,
        RunState.INTERRUPTED if stopped else RunState.FAILED,
        owner=ctx.setting.owner,
        change=RunChange(finished_at=ctx.clock.now(), reason=str(error), exit_code=code_of(error)),
    )


def failed_late(ctx: PurgeContext, run: str, plan: Plan, error: BaseException) -> None:
    """Record how a run ended while it deleted; everything but a final verdict is resumable."""
    final = isinstance(error, (PartialDeleteError, BlastRadiusError))
    tally: dict[str, Tally] | None = None
    try:
        if final:
            settle_open(run, ctx.parts, ctx.ledger, as_of=plan.as_of)
        tally = ctx.tallies(plan, run)
        ctx.ledger.move(
            run,
            RunState.FAILED if final else RunState.INTERRUPTED,
            owner=ctx.setting.owner,
            change=RunChange(
                finished_at=ctx.clock.now(), tally=tally, reason=str(error), exit_code=code_of(error)
            ),
        )
    except SafeDeleteError as second:
        # Whoever took the lock over has recorded this run already, or the ledger is what failed; in both cases the
        # first error is the one to tell, and the next run finds the run unfinished.
        log.warning("the run's end could not be recorded", run=run, error=str(second))
    if isinstance(error, SafeDeleteError):
        error.deleted = None if tally is None else sum(tally.values(), Tally()).deleted


def code_of(error: BaseException) -> int:
    """Return the exit code that an error ends a command with."""
    return int(error.exit_code) if isinstance(error, SafeDeleteError) else int(ExitCode.UNEXPECTED)
