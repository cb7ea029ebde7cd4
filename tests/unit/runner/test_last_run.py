"""Which run counts as the last one, and what it left behind itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.baseline import read
from safedelete.core.plan import Count, PastRun, Plan, TargetPlan, Unknown
from safedelete.runner.context import without_left

START = datetime(2026, 3, 1, 3, tzinfo=UTC)


def plan(night: int, *, eligible: Count = 100, items: Count = 100, late: Count | None = None) -> Plan:
    target = TargetPlan(
        name="events", kind="rows", items=items, eligible=eligible, total=1000, late=late, cutoff=START
    )
    return Plan(job="j", as_of=START + timedelta(days=night), fingerprint="f", targets=(target,))


def ran(night: int, state: str = "succeeded", *, overrules: tuple[str, ...] = ()) -> PastRun:
    return PastRun(run=f"r{night}", plan=plan(night), state=state, overrules=overrules)


def last(*history: PastRun, night: int = 9) -> str | None:
    runs = read(history, "j", START + timedelta(days=night)).runs
    return runs[-1].run if runs else None


def test_the_newest_successful_run_is_the_last_whatever_the_order() -> None:
    assert last(ran(2), ran(4), ran(3)) == "r4"
    assert last(ran(2), ran(4, "refused"), ran(3, "failed")) == "r2"
    assert last() is None


def test_a_run_in_the_future_is_not_the_last() -> None:
    assert last(ran(2), ran(20), night=3) == "r2"


def test_a_run_whose_clock_was_wrong_is_never_the_last_again() -> None:
    assert last(ran(2), ran(5), ran(3, overrules=("r5",)), night=6) == "r3"


@pytest.mark.parametrize(
    ("before", "deleted", "late", "expected"),
    [
        (plan(1, eligible=1000, items=100), 100, 900, 0),
        (plan(1, eligible=1000, items=100), 100, 950, 50),
        (plan(1, eligible=110, items=100), 100, 10, 0),
        (plan(1, eligible=100), 97, 3, 0),
        (plan(1, eligible=100), 100, 5_000, 5_000),
        (plan(1, eligible=100), None, 7, 7),
        (plan(1, eligible=Unknown("?")), 0, 7, 7),
    ],
    ids=[
        "portion",
        "portion and more",
        "cannot be sealed",
        "kept",
        "nothing left",
        "not said",
        "not counted",
    ],
)
def test_what_the_last_run_left_is_not_out_of_time(
    before: Plan, deleted: int | None, late: int, expected: int
) -> None:
    past = PastRun(
        run="r", plan=before, state="succeeded", deleted={} if deleted is None else {"events": deleted}
    )
    (target,) = without_left(plan(2, late=late), past).targets
    assert target.late == expected


def test_what_could_not_be_counted_stays_unknown() -> None:
    past = PastRun(run="r", plan=plan(1), state="succeeded", deleted={"events": 0})
    for late in (None, Unknown("timed out")):
        assert without_left(plan(2, late=late), past).targets[0].late == late
