"""What a recorded run tells the guard about an earlier night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from safedelete.core.decision import Approved
from safedelete.core.plan import PastRun
from safedelete.core.run import RunState
from safedelete.ports import RunRecord

TAUGHT: Final = frozenset(
    {
        RunState.SUCCEEDED,
        RunState.REFUSED,
        RunState.FAILED,
        RunState.INCOMPLETE,
        RunState.INTERRUPTED,
        RunState.ABANDONED,
        RunState.CANCELLED,
        RunState.CRASHED,
    }
)
"""Runs that the guard may look at; it decides itself which of them teach, and what the others have deleted since."""

_WRONG_CLOCK: Final = "SD112"
_FEW: Final = 2
"""Runs that may lie after the approved one though there are fewer before it."""


def past_runs(records: Iterable[RunRecord]) -> list[PastRun]:
    """Turn finished runs into what the guard is shown, in the order given."""
    return [
        PastRun(
            run=record.run,
            plan=record.plan,
            state=record.state.value,
            finished_at=record.finished_at,
            deleted={name: tally.deleted for name, tally in record.tally.items()},
            over={name: tally.gone + tally.changed for name, tally in record.tally.items()},
            teaches=record.teaches,
            overrules=_overrules(record),
        )
        for record in records
        if record.plan is not None
    ]


def _overrules(record: RunRecord) -> tuple[str, ...]:
    """Name the runs whose clock a person called wrong by approving this one in spite of them."""
    decision = record.decision
    if not isinstance(decision, Approved) or decision.approval is None:
        return ()
    earlier = max(
        [int(f.numbers.get("earlier") or 0) for f in decision.findings if f.code == _WRONG_CLOCK], default=0
    )
    wrong: list[str] = []
    for accepted in decision.approval.accepts:
        if accepted.code == _WRONG_CLOCK and isinstance(accepted.limit, str):
            later = [run for run in accepted.limit.split(",") if run]
            # Where most runs lie after this one, it is this one's clock that was wrong.
            wrong += later if len(later) <= max(_FEW, earlier) else []
    return tuple(wrong)
