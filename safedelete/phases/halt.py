"""What ends a run from inside its deleting: an approval of another plan, a batch denied as a whole, a target that failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.core.plan import Plan
from safedelete.core.seal import digest
from safedelete.errors import LedgerError, PartialDeleteError, StalePlanError
from safedelete.phases.preflight import Cleared
from safedelete.ports import Ledger, LedgerReader


def require_match(plan: Plan, cleared: Cleared, run: str, ledger: Ledger) -> None:
    """Raise unless approval, proof and sealed batches are of one plan. Reads only."""
    same = (cleared.job, cleared.fingerprint, cleared.as_of) == (plan.job, plan.fingerprint, plan.as_of)
    if not same:
        raise StalePlanError(
            f"{plan.job}: the preflight proved another plan than the guard approved.", hint="Plan again."
        )
    require_sealed(plan, run, ledger)


def require_sealed(plan: Plan, run: str, ledger: LedgerReader) -> None:
    """Raise LedgerError unless the sealed batches are what the plan says: as many items of each target, and no others. Reads only."""
    sealed = ledger.sealed(run)
    wrong = [t.name for i, t in enumerate(plan.targets) if t.items != sealed.get(i, 0)]
    if wrong:
        raise LedgerError(
            f"The plan of run {run} and its sealed batches name different numbers of items of {', '.join(wrong)}.",
            hint="The ledger was damaged or edited. Plan again.",
        )
    found = digest(plan.fingerprint, plan.as_of, ledger.checksums(run))
    if found != plan.digest:
        raise LedgerError(
            f"The sealed batches of run {run} are not those that were approved (digest {found[:12]}, approved "
            f"{(plan.digest or 'none')[:12]}).",
            hint=f"The ledger was damaged or edited. Cancel the run (`safedelete cancel {run} --reason ...`) and plan again.",
        )


ENOUGH: Final = 1_000
"""Items that tell what the rest of a batch would fare like: one DeleteObjects request."""


def stop_when_denied(
    outcomes: Mapping[int, ItemOutcome], lost: Collection[int] = (), *, tried: int, over: bool
) -> None:
    """Stop when not one item of a batch went because the store would not: the next thousand would fare the same.

    Rows whose objects a crashed attempt had taken say nothing about what the store would do now.

    Args:
        outcomes: Of the batch so far, by index.
        lost: Indexes of rows whose objects an earlier try had taken.
        tried: How many of the batch have been tried.
        over: Whether that is all of it.
    """
    failed = {i: o for i, o in outcomes.items() if o.state in (Outcome.FAILED, Outcome.UNKNOWN)}
    bad = [o for i, o in failed.items() if i not in lost]
    if bad and len(failed) == tried and (over or tried >= ENOUGH):
        raise PartialDeleteError(
            f"Not one of the {tried:,} items of a batch that were tried could be deleted: {bad[0].code or bad[0].state.value} "
            f"({bad[0].detail}). The run stopped; later batches were not attempted.",
            hint="`safedelete check FILE` names the permission that is missing.",
            deleted=None,
        )


def stop_after_failure(run: str, name: str, index: int, targets: int, ledger: Ledger) -> None:
    """Raise after a target that did not end clean, where others would follow. Reads only."""
    tally = ledger.tally(run).get(index, Tally())
    if not tally.clean and index + 1 < targets:
        raise PartialDeleteError(
            f"{name} ended with {tally.failed:,} failed and {tally.unknown:,} unknown item(s); "
            f"the {targets - index - 1} target(s) after it were not attempted.",
            hint=f"`safedelete show {run} --items` lists them.",
            deleted=None,
        )
