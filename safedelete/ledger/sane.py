"""What an instant or a plan of the ledger has to be for anybody to reckon with it.

Types alone do not say it: a time without a zone, one at an end of the calendar, a day with fewer than no rows are all well
formed, and each would end in the middle of somebody's arithmetic, as a defect, instead of here, as damage.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from safedelete.core.plan import AgeProfile, Plan, TargetPlan

FIRST: Final = 1970
"""Year before which nothing was planned, begun or approved."""

LONG_AGO: Final = 100
"""Year before which no retention reaches, however long: far enough from the calendar's start to reckon with."""

LAST: Final = 9000
"""Year from which on an instant is no instant: far enough from the calendar's end to reckon with."""

MOST: Final = 1 << 63
"""A count that no database could have told, to either side: it would not even be a number with a fraction."""

FARTHEST: Final = 100_000
"""Most days that a picture may lie from its cutoff."""


def require_instant(value: datetime, name: str, *, first: int = FIRST) -> None:
    """Raise ValueError unless an instant has a zone and lies where it can be reckoned with."""
    if value.utcoffset() is None:
        raise ValueError(f"{name} {value.isoformat()} has no zone")
    if not first <= value.year < LAST:
        raise ValueError(f"{name} {value.isoformat()} is not between the years {first} and {LAST}")


def require_plan(plan: Plan) -> None:
    """Raise ValueError unless a plan's instants and numbers can be reckoned with; whether they are true the guard asks."""
    require_instant(plan.as_of, "as_of")
    for target in plan.targets:
        _require_target(target)


def _require_target(target: TargetPlan) -> None:
    if target.cutoff is not None:
        require_instant(target.cutoff, f"cutoff of {target.name}", first=LONG_AGO)
    counts = {
        "items": target.items,
        "eligible": target.eligible,
        "total": target.total,
        "objects": target.objects,
        "bytes": target.bytes,
        "nulls": target.nulls,
        "ageless": target.ageless,
        "late": target.late,
        "conditional": target.conditional,
        **{f"rows of {cascade.table}": cascade.rows for cascade in target.cascades},
    }
    for name, count in counts.items():
        if isinstance(count, int) and abs(count) >= MOST:
            raise ValueError(f"{name} of {target.name} is no count")
    if isinstance(target.ages, AgeProfile):
        _require_ages(target.ages, target.name)


def _require_ages(ages: AgeProfile, name: str) -> None:
    for day, rows in ages.days:
        if abs(day) > FARTHEST or not 0 <= rows < MOST:
            raise ValueError(f"a day of the ages of {name} has no count, or is none")
    if not 0 <= ages.older < MOST:
        raise ValueError(f"the older ages of {name} are no count")
    if not (0 <= ages.back <= FARTHEST and 0 <= ages.ahead <= FARTHEST):
        raise ValueError(f"the ages of {name} reach too far")
