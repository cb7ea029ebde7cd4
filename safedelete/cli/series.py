"""Turn recorded runs into what a chart draws: one series a target, the oldest run first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from safedelete.core.baseline import whole
from safedelete.core.decision import Decision, Measure
from safedelete.core.plan import AgeProfile, Plan, Unknown
from safedelete.core.run import RunState
from safedelete.ports import RunRecord

Mark = Literal["", "refused", "expired", "failed", "unfinished"]

COMING: Final = 14
"""Days ahead that a page draws: what the time column already says about the next two weeks."""

MARKS: Final[dict[RunState, Mark]] = {
    RunState.SUCCEEDED: "",
    RunState.REFUSED: "refused",
    RunState.EXPIRED: "expired",
    RunState.FAILED: "failed",
    RunState.CRASHED: "failed",
    RunState.INCOMPLETE: "unfinished",
    RunState.INTERRUPTED: "unfinished",
    RunState.ABANDONED: "unfinished",
    RunState.CANCELLED: "unfinished",
    RunState.PENDING: "unfinished",
    RunState.RUNNING: "unfinished",
    RunState.PLANNING: "unfinished",
}
"""Every state of a run → why it is not part of the baseline; empty where it is.

An expired plan is no refused one: the guard may have passed it (``plan --save``), or a person have accepted it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One run of one target.

    Attributes:
        run: Its id; empty for a plan that was not recorded.
        at: The plan's instant, UTC.
        value: Items it found to delete, the whole of a backlog included; None where they could not be counted.
        mark: Why it is not part of the baseline; empty for a successful run.
        expected: What was expected or forecast for it.
        forecast: Whether that came from the time column alone.
        limit: The most that would have passed.
        rule: What set the limit.
        verdict: What the guard said.
    """

    run: str
    at: datetime
    value: int | None
    mark: Mark = ""
    expected: float | None = None
    forecast: bool = False
    limit: float | None = None
    rule: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One target's runs, the oldest first.

    Attributes:
        target: Its name.
        unit: What is counted.
        points: Its runs.
        tonight: Whether the last point is a plan made now, rather than the last recorded run.
        coming: Items that become eligible on each of the next days, by the newest plan's time column.
        after: The instant that the coming days begin at.
    """

    target: str
    unit: str
    points: tuple[Point, ...]
    tonight: bool = False
    coming: tuple[int, ...] = ()
    after: datetime | None = None


def series(
    records: Sequence[RunRecord], plan: Plan | None = None, decision: Decision | None = None
) -> list[Series]:
    """Return a series for each target of the newest plan.

    Args:
        records: A purge's runs in any order; those without a plan are left out.
        plan: Tonight's; without it the newest recorded run comes last.
        decision: What the guard said about it.
    """
    runs = sorted((r for r in records if r.plan is not None), key=lambda r: (r.started_at, r.run))
    if plan is None and not runs:
        return []
    newest = plan or runs[-1].plan
    assert newest is not None
    found = []
    for target in newest.targets:
        points = [p for r in runs if r.plan is not None and (p := _point(r, r.plan, target.name)) is not None]
        if plan is not None:
            tonight = _of(plan, target.name, decision, run="", mark="")
            assert tonight is not None
            points.append(tonight)
        found.append(
            Series(
                target=target.name,
                unit=target.kind,
                points=tuple(points),
                tonight=plan is not None,
                coming=_coming(target.ages),
                after=newest.as_of if isinstance(target.ages, AgeProfile) else None,
            )
        )
    return found


def days_after(start: datetime, number: int) -> datetime:
    """Return the instant some days later."""
    return start + timedelta(days=number)


def measure_of(decision: Decision | None, target: str) -> Measure | None:
    """Return how a target's items were judged."""
    for measure in decision.measures if decision is not None else ():
        if measure.target == target and measure.measure == "items":
            return measure
    return None


def left_over(measure: Measure) -> float:
    """Return how many of the expected items the last run left behind, where the rest of them was forecast; else 0.

    A forecast is of what is new. On the nights of a backlog that is next to nothing of what is expected.
    """
    if measure.expected is None or measure.forecast is None:
        return 0.0
    return max(0.0, measure.expected - measure.forecast)


def _coming(ages: AgeProfile | Unknown | None) -> tuple[int, ...]:
    if not isinstance(ages, AgeProfile):
        return ()
    counts = dict(ages.days)
    return tuple(counts.get(day, 0) for day in range(min(COMING, ages.ahead)))


def _point(record: RunRecord, plan: Plan, name: str) -> Point | None:
    return _of(plan, name, record.decision, run=record.run, mark=MARKS[record.state])


def _of(plan: Plan, name: str, decision: Decision | None, *, run: str, mark: Mark) -> Point | None:
    target = next((t for t in plan.targets if t.name == name), None)
    if target is None:
        return None
    measure = measure_of(decision, name)
    return Point(
        run=run,
        at=plan.as_of,
        value=whole(target, plan.portion),
        mark=mark,
        expected=None if measure is None else measure.expected,
        forecast=measure is not None and measure.forecast is not None and not left_over(measure),
        limit=None if measure is None else measure.limit,
        rule="" if measure is None else measure.rule,
        verdict="" if measure is None else measure.verdict,
    )
