"""Plans and histories in one line each, for the guard's tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from safedelete.core.decision import Approved, Decision, Finding, Measure
from safedelete.core.guard import decide
from safedelete.core.limits import Guard
from safedelete.core.plan import AgeProfile, PastRun, Plan, TargetPlan

DAY = timedelta(days=1)
START = datetime(2026, 1, 5, 3, 15, tzinfo=UTC)
"""Night 0: a Monday."""
KEEP = 90 * DAY
AHEAD = 30


def ages(
    per_day: int | Sequence[int] = 100, *, back: Sequence[tuple[int, int]] = (), older: int = 0
) -> AgeProfile:
    """Return a picture with so many rows on each coming day."""
    rows = [per_day] * AHEAD if isinstance(per_day, int) else list(per_day)
    days = sorted([*back, *enumerate(rows)])
    return AgeProfile(days=tuple((d, n) for d, n in days if n), older=older, back=60, ahead=AHEAD)


def target(night: float = 0, items: Any = 100, **changes: Any) -> TargetPlan:
    """Return a target as planned so many nights after ``START``, with a table of a million rows."""
    values: dict[str, Any] = {
        "name": "events",
        "kind": "rows",
        "items": items,
        "eligible": items,
        "total": 1_000_000,
        "cutoff": START + night * DAY - KEEP,
        "period": KEEP,
    }
    return TargetPlan(**(values | changes))


def plan(night: float = 0, items: Any = 100, **changes: Any) -> Plan:
    """Return a plan of one target; ``job``, ``fingerprint``, ``portion``, ``digest``, ``as_of`` go to the plan."""
    own = {k: changes.pop(k) for k in ("job", "fingerprint", "portion", "digest", "as_of") if k in changes}
    targets = changes.pop("targets", None) or (target(night, items, **changes),)
    values: dict[str, Any] = {
        "job": "purge",
        "as_of": START + night * DAY,
        "fingerprint": "one",
        "targets": tuple(targets),
        "digest": "sealed",
    }
    return Plan(**(values | own))


def ran(planned: Plan, *, deleted: int | None = None, **changes: Any) -> PastRun:
    """Return the successful run of a plan."""
    name = planned.targets[0].name
    values: dict[str, Any] = {
        "run": f"run-{(planned.as_of - START) / DAY:.3f}",
        "plan": planned,
        "state": "succeeded",
        "finished_at": planned.as_of + timedelta(minutes=5),
        "deleted": {t.name: t.items for t in planned.targets if isinstance(t.items, int)},
    }
    if deleted is not None:
        values["deleted"] = {name: deleted}
    return PastRun(**(values | changes))


def nightly(counts: Iterable[int], *, first: int = 0, **changes: Any) -> list[PastRun]:
    """Return a successful run for each count, a night apart."""
    return [ran(plan(first + i, n, **changes)) for i, n in enumerate(counts)]


def look(
    tonight: Plan, history: Sequence[PastRun] = (), limits: Guard | None = None, **more: Any
) -> Decision:
    """Decide."""
    return decide(tonight, limits or Guard(), history, **more)


def codes(decision: Decision, severity: str = "refuse") -> list[str]:
    """Return the codes of a severity, as found."""
    return [f.code for f in decision.findings if f.severity == severity]


def approved(decision: Decision) -> bool:
    """Whether the plan may be executed."""
    return isinstance(decision, Approved)


def the(decision: Decision, code: str) -> Finding:
    """Return the one finding with a code."""
    (found,) = [f for f in decision.findings if f.code == code]
    return found


def measure(decision: Decision, kind: str = "items", name: str | None = None) -> Measure:
    """Return the one measure of a kind."""
    (found,) = [m for m in decision.measures if m.measure == kind and name in (None, m.target)]
    return found
