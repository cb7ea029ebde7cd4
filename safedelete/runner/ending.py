"""How a run ends, and how that is recorded."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from safedelete.core.outcome import DANGLING, ItemOutcome, Outcome, Tally
from safedelete.core.plan import Plan
from safedelete.core.run import BatchState, RunState
from safedelete.errors import (
    BlastRadiusError,
    CancelledRunError,
    ExitCode,
    IncompleteError,
    LockLostError,
    PartialDeleteError,
    SafeDeleteError,
    StoreError,
)
from safedelete.phases.parts import Part, Stop, never
from safedelete.phases.verify import settle_open, verify
from safedelete.ports import Lease, RunChange
from safedelete.runner.context import PurgeContext

log = structlog.get_logger("safedelete.run")


def verdict(
    total: Tally, owed: int, inherited: Tally, unsealed: Sequence[str] = ()
) -> tuple[RunState, ExitCode, str]:
    """Judge a finished run by its sums.

    Success means that nothing failed, nothing is unknown, and something was done where something was sealed.

    Args:
        total: Its outcomes.
        owed: Items that were sealed.
        inherited: Outcomes of abandoned runs that nobody has told of yet.
        unsealed: Targets whose items were counted, and are still there, but of which none was sealed.
    """
    done = total.deleted + total.gone
    kept = total.changed + total.blocked
    if total.total != owed:
        state, code = RunState.FAILED, ExitCode.STORE
        sums = f"{owed:,} items were sealed, but {total.total:,} have an outcome."
    elif not total.clean:
        state, code = RunState.FAILED, ExitCode.STORE
        sums = f"{total.failed:,} item(s) failed and {total.unknown:,} are unknown; {done:,} of {owed:,} are gone."
    elif total.locked:
        state, code = RunState.INCOMPLETE, ExitCode.INCOMPLETE
        sums = f"{total.locked:,} row(s) stayed locked; {done:,} of {owed:,} are gone."
    elif owed and not done:
        state, code = RunState.INCOMPLETE, ExitCode.INCOMPLETE
        sums = f"{owed:,} items were sealed and none was deleted."
    elif unsealed:
        state, code = RunState.INCOMPLETE, ExitCode.INCOMPLETE
        sums = f"{done:,} of {owed:,} are gone, but of {', '.join(unsealed)} items are due and none could be sealed."
    else:
        state, code = RunState.SUCCEEDED, ExitCode.DONE
        sums = f"{done:,} of {owed:,} are gone" + (f"; {kept:,} kept." if kept else ".")
    if not inherited.clean:
        # Whatever became of this run, what that one left is a failure that somebody has to look at.
        left = f"An earlier run left {inherited.failed:,} failed and {inherited.unknown:,} unknown item(s)."
        return state, ExitCode.STORE, f"{sums} {left}"
    return state, code, sums


def unsealed(ctx: PurgeContext, plan: Plan) -> tuple[str, ...]:
    """Name the targets of which a plan counted items, none was sealed, and some still count. Reads only.

    Counting and sealing ask by two statements. Where they disagree night after night, nothing goes and nothing fails.
    """
    return tuple(
        target.name
        for target, part in zip(plan.targets, ctx.parts, strict=True)
        if target.items == 0 and target.eligible != 0 and _still_due(part, plan)
    )


def _still_due(part: Part, plan: Plan) -> bool:
    """Whether a target has items by the plan's own instant: those that went since explain a seal without any."""
    try:
        return part.reader.survey(plan.as_of, portion=plan.portion, since=None).items != 0
    except StoreError as error:
        log.warning("what was not sealed cannot be counted again", target=part.reader.name, error=str(error))
        return True


def failed_early(ctx: PurgeContext, run: str, error: BaseException) -> None:
    """Record how a run ended that had not deleted anything yet."""
    stopped = isinstance(error, (IncompleteError, LockLostError, KeyboardInterrupt))
    try:
        if ctx.ledger.record(run).state is not RunState.PLANNING:
            return
        if isinstance(error, SafeDeleteError):
            error.deleted = 0
        # Moved first: a run that another process has taken over keeps its seal.
        ctx.ledger.move(
            run,
            _ended(error, stopped=stopped),
            owner=ctx.setting.owner,
            change=RunChange(finished_at=ctx.clock.now(), reason=str(error), exit_code=code_of(error)),
        )
        ctx.ledger.drop_seal(run)
    except SafeDeleteError as second:
        _untold(run, second)


def failed_late(ctx: PurgeContext, run: str, plan: Plan, lease: Lease, error: BaseException) -> None:
    """Record how a run ended while it deleted; everything but a final verdict is resumable."""
    final = isinstance(error, (PartialDeleteError, BlastRadiusError, CancelledRunError))
    tally: dict[str, Tally] | None = None
    try:
        if final:
            verify(run, ctx.parts, ctx.ledger, lease, stop=Stop(never, never), progress=ctx.progress)
            settle_open(run, ctx.parts, ctx.ledger, lease, as_of=plan.as_of)
        tally = ctx.tallies(plan, run)
        if isinstance(error, CancelledRunError) and not sum(tally.values(), Tally()).clean:
            # No later run goes on with a cancelled one, so nobody else will tell of what failed.
            error.exit_code = ExitCode.STORE
        ctx.ledger.move(
            run,
            _ended(error, stopped=not final),
            owner=ctx.setting.owner,
            change=RunChange(
                finished_at=ctx.clock.now(), tally=tally, reason=str(error), exit_code=code_of(error)
            ),
        )
    except SafeDeleteError as second:
        _untold(run, second)
    if isinstance(error, SafeDeleteError):
        error.deleted = None if tally is None else _deleted(ctx, run, error, sum(tally.values(), Tally()))


def _deleted(ctx: PurgeContext, run: str, error: SafeDeleteError, total: Tally) -> int | None:
    """Return how many items went; None while that is not known, or where objects went and their rows did not."""
    # A stop comes between two slices: the batch is in doubt for what was not tried, and nothing else.
    between = isinstance(error, IncompleteError)
    try:
        for stored in ctx.ledger.batches(run, {BatchState.IN_DOUBT, BatchState.DEFERRED, BatchState.DONE}):
            doubt = stored.state is BatchState.IN_DOUBT and not between
            if doubt or any(map(_unsaid, stored.outcomes.values())):
                return None
    except SafeDeleteError:
        return None
    return total.deleted


def _unsaid(outcome: ItemOutcome) -> bool:
    return outcome.code == DANGLING or outcome.state is Outcome.UNKNOWN


def _ended(error: BaseException, *, stopped: bool) -> RunState:
    if isinstance(error, CancelledRunError):
        return RunState.CANCELLED
    return RunState.INTERRUPTED if stopped else RunState.FAILED


def _untold(run: str, second: SafeDeleteError) -> None:
    # Whoever took the lock over has recorded this run already, or the ledger is what failed; in both cases the first
    # error is the one to tell, and the next run finds the run unfinished.
    log.warning("the run's end could not be recorded", run=run, error=str(second))


def code_of(error: BaseException) -> int:
    """Return the exit code that an error ends a command with."""
    return int(error.exit_code) if isinstance(error, SafeDeleteError) else int(ExitCode.UNEXPECTED)
