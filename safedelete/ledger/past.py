"""What a recorded run tells the guard about an earlier night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from safedelete.core.decision import Approved
from safedelete.core.plan import PastRun
from safedelete.core.run import RunState
from safedelete.ports import RunRecord

TAUGHT: Final = frozenset({RunState.SUCCEEDED, RunState.REFUSED, RunState.FAILED, RunState.INCOMPLETE})
"""Finished runs that the guard may look at; it decides itself which of them teach."""

_WRONG_CLOCK: Final = "SD112"


def past_runs(records: Iterable[RunRecord]) -> list[PastRun]:
    """Turn finished runs into what the guard is shown, in the order given."""
    return [
        PastRun(
            run=record.run,
            plan=record.plan,
            state=record.state.value,
            finished_at=record.finished_at,
            deleted={name: tally.deleted for name, tally in record.tally.items()},
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
    if _WRONG_CLOCK not in decision.approval.codes:
        return ()
    named = [str(f.numbers.get("runs") or "") for f in decision.findings if f.code == _WRONG_CLOCK]
    return tuple(run for text in named for run in text.split(",") if run)
