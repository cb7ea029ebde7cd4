"""What a history teaches, run by run: what was new, what was left, which days were covered, and what is left out."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from safedelete.core.baseline import (
    LOOKBACK,
    WINDOW,
    Night,
    Season,
    cut_short,
    known,
    left_behind,
    month_bits,
    nights,
    read,
    season,
    whole,
)
from safedelete.core.plan import PastRun, Unknown
from tests.unit.core.guard_cases import START, nightly, plan, ran, target

LAST_OF_MONTH = 1


def taught(history: list[PastRun], name: str = "events") -> list[Night]:
    return nights(read(history, "purge", plan(1000).as_of), name)[0]


def portion(
    night: float, items: int, eligible: Any, *, deleted: int | None = None, **changes: Any
) -> PastRun:
    return ran(plan(night, items, eligible=eligible, portion=10), deleted=deleted, **changes)


# --- which runs are looked at -----------------------------------------------------------------------------------------


def test_looks_at_the_newest_four_windows_of_successful_runs() -> None:
    history = nightly([1] * 400)
    looked_at = read(history, "purge", plan(400).as_of).runs
    assert (LOOKBACK, len(looked_at)) == (360, 360)
    assert looked_at[0] is history[40]
    assert len(read(history[:359], "purge", plan(400).as_of).runs) == 359


@pytest.mark.parametrize(
    "idle",
    [
        ran(plan(0), teaches=0),
        ran(plan(0, 0)),
        ran(plan(0, 10, eligible=20, portion=10), deleted=20),
    ],
    ids=["one-off", "nothing to do", "portion"],
)
def test_baseline_ends_at_its_ninetieth_night_that_teaches_however_many_lie_between(idle: PastRun) -> None:
    teaching = nightly([1] * 100)
    assert WINDOW == 90
    assert taught(teaching)[0].run is teaching[10]
    between = [
        replace(idle, run=f"idle-{i}", plan=replace(idle.plan, as_of=START + timedelta(days=i + 0.5)))
        for i in range(50, 60)
    ]
    found = taught([*teaching, *between])
    assert len(found) == 90 + 10
    assert found[0].run is teaching[10]


def test_usual_run_fills_one_place_of_the_window_and_a_single_row_is_enough() -> None:
    assert len(taught([replace(p, teaches=2) for p in nightly([1] * 100)])) == 90


@pytest.mark.parametrize(("teaches", "weight"), [(0, 0), (1, 1), (2, 2), (3, 0), (-1, 0), (None, 0)])
def test_run_teaches_once_twice_or_never_and_never_where_that_is_damaged(teaches: Any, weight: int) -> None:
    (night,) = taught([ran(plan(0), teaches=teaches)])
    assert night.weight == weight


# --- twins, strays and other purges -----------------------------------------------------------------------------------


def limits_of(history: list[PastRun]) -> list[int]:
    return [night.fresh for night in taught(history)]


def test_of_two_entries_of_one_run_the_one_that_ended_later_counts() -> None:
    # As text, the run of 9 comes after the run of 10: the instants must decide.
    early = ran(plan(0, 9), run="r", finished_at=START + timedelta(minutes=1))
    late = ran(plan(0, 10), run="r", finished_at=START + timedelta(minutes=2))
    never = ran(plan(0, 99), run="r", finished_at=None)
    for history in ([early, late, never], [never, late, early], [late, early, never]):
        assert limits_of(history) == [10]
        assert read(history, "purge", plan(1).as_of).dropped == 2


def test_run_at_the_very_instant_of_the_plan_lies_before_it() -> None:
    record = read(nightly([1, 2]), "purge", plan(1).as_of)
    assert (len(record.runs), len(record.later)) == (2, 0)


def test_what_runs_that_did_not_succeed_have_deleted_since_is_added_up_by_target() -> None:
    def failed(night: float, deleted: dict[str, int], **changes: Any) -> PastRun:
        values: dict[str, Any] = {"run": f"f-{night}", "state": "failed", "finished_at": None}
        return replace(ran(plan(night)), deleted=deleted, **(values | changes))

    good = ran(plan(10))
    other = plan(12, job="other")
    naive = replace(plan(12), as_of=datetime(2026, 1, 20))
    since = read(
        [
            good,
            failed(9, {"events": 1}),
            failed(10, {"events": 2}),  # at the instant of the last success: that one has seen it
            failed(11, {"events": 40, "lines": 500}),
            failed(12, {"events": 300, "lines": -1}, finished_at=START),
            failed(12.1, {"events": 7000}, plan=other),
            failed(12.2, {"events": 70_000}, plan=naive),
            ran(plan(14), deleted=600_000),  # succeeded, by a clock gone wrong: no leftover of a failure
        ],
        "purge",
        plan(13).as_of,
    ).since
    assert since == {"events": 340, "lines": 500}
    assert read([failed(1, {"events": 3})], "purge", plan(2).as_of).since == {"events": 3}


# --- what was found, and what was left --------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "is_count"), [(0, True), (10**15, True), (10**15 + 1, False), (-1, False)])
def test_count_that_can_be_true(count: int, is_count: bool) -> None:
    assert known(count) is is_count


@pytest.mark.parametrize(
    ("items", "eligible", "cut", "found"),
    [
        (10, 500, None, 10),
        (10, 500, 10, 500),
        (10, 5, 10, 10),
        (10, Unknown("lost"), 10, 10),
        (Unknown("lost"), 500, 10, None),
    ],
)
def test_portion_stands_for_the_whole_it_was_cut_from(
    items: Any, eligible: Any, cut: int | None, found: int | None
) -> None:
    assert whole(target(0, items, eligible=eligible), cut) == found


@pytest.mark.parametrize(
    ("deleted", "left"),
    [({"events": 4}, 96), ({}, 90), ({"events": 100}, 0), ({"events": 101}, 0), ({"events": -5}, 0)],
)
def test_what_a_run_left_is_what_it_found_less_what_it_deleted_or_else_planned(
    deleted: dict[str, int], left: int
) -> None:
    past = replace(portion(0, 10, 100), deleted=deleted)
    assert left_behind(past, past.plan.targets[0], 100) == left


def test_run_that_counted_nothing_left_nothing_that_could_be_taken_off() -> None:
    lost = ran(plan(0, Unknown("lost")))
    assert limits_of([lost, ran(plan(1, 50))]) == [50]


def test_what_was_left_before_is_not_new_and_the_first_run_finds_all_of_its_own() -> None:
    history = [ran(plan(0, 100), deleted=70), ran(plan(1, 45), deleted=40), ran(plan(2, 3), deleted=3)]
    assert [(n.fresh, n.left) for n in taught(history)] == [(100, 30), (15, 5), (0, 0)]


def test_target_that_a_run_did_not_have_is_no_night_of_it_and_leaves_nothing() -> None:
    other = ran(plan(1, targets=[target(1, name="lines")]))
    found = taught([ran(plan(0, 100), deleted=70), other, ran(plan(2, 45))])
    assert [(n.fresh, n.left) for n in found] == [(100, 30), (45, 0)]


def test_run_that_ends_a_backlog_says_as_little_as_its_portions() -> None:
    history = [portion(0, 10, 11, deleted=10), portion(1, 3, 3, deleted=3), portion(2, 2, 2, deleted=2)]
    assert [n.partial for n in taught(history)] == [True, True, False]


def test_run_after_a_portion_that_took_the_rest_as_well_is_an_ordinary_one() -> None:
    history = [portion(0, 10, 20, deleted=20), portion(1, 3, 3, deleted=3)]
    assert [n.partial for n in taught(history)] == [True, False]


def test_what_could_not_be_counted_is_no_portion() -> None:
    lost = plan(0, Unknown("lost"), eligible=500, portion=10)
    assert not cut_short(lost, lost.targets[0])


@pytest.mark.parametrize(("eligible", "cut"), [(10, False), (11, True)])
def test_rows_that_went_while_they_were_sealed_make_no_portion(eligible: int, cut: bool) -> None:
    history = [portion(i, eligible - 2, eligible) for i in range(3)]
    assert [n.partial for n in taught(history)] == [cut] * 3
    assert taught(history)[0].fresh == (eligible if cut else eligible - 2)


def test_blocked_rows_that_were_left_make_no_backlog() -> None:
    history = [ran(plan(0, 20), deleted=10), ran(plan(1, 30), deleted=20)]
    assert [n.partial for n in taught(history)] == [False, False]


# --- which days are covered -------------------------------------------------------------------------------------------


def covered(day: datetime, *, before: datetime | None = None, **changes: Any) -> Season:
    """The season of a run whose 24 hours end at a cutoff."""
    now = plan(0, cutoff=day, as_of=day)
    past = None if before is None else ran(plan(0, cutoff=before, as_of=before, **changes))
    return season(now, now.targets[0], past)


@pytest.mark.parametrize(
    ("day", "bits"),
    [
        (datetime(2026, 1, 1), 1 << 1),
        (datetime(2026, 1, 30), 1 << 30),
        (datetime(2026, 1, 31), 1 << 31 | LAST_OF_MONTH),
        (datetime(2026, 2, 28), 1 << 28 | LAST_OF_MONTH),
        (datetime(2028, 2, 28), 1 << 28),
    ],
)
def test_last_day_of_a_month_is_marked_besides(day: datetime, bits: int) -> None:
    assert month_bits(day) == bits


@pytest.mark.parametrize(
    ("cutoff", "weekday"),
    [
        (datetime(2026, 1, 5, 11, 59, tzinfo=UTC), 6),
        (datetime(2026, 1, 5, 12, 0, tzinfo=UTC), 0),
        (datetime(2026, 1, 6, 11, 59, tzinfo=UTC), 0),
        (datetime(2026, 1, 6, 12, 0, tzinfo=UTC), 1),
        # 12:00 on Tuesday in Tashkent is 07:00 UTC, and the twelve hours before it lie on Monday.
        (datetime(2026, 1, 6, 12, 0, tzinfo=timezone(timedelta(hours=5))), 0),
    ],
)
def test_rows_belong_to_the_day_of_the_middle_of_the_24_hours_before_the_cutoff(
    cutoff: datetime, weekday: int
) -> None:
    assert covered(cutoff).weekday == weekday


def test_purge_without_a_time_goes_by_the_plans_instant() -> None:
    now = plan(0, cutoff=None, as_of=datetime(2026, 1, 6, 11, 0, tzinfo=UTC))
    assert season(now, now.targets[0], None).weekday == 0


@pytest.mark.parametrize("hours", [0, 6, 12, 30])
def test_nights_covered_are_the_clocks(hours: int) -> None:
    end = datetime(2026, 1, 15, 3, tzinfo=UTC)
    assert covered(end, before=end - timedelta(hours=hours)).elapsed == hours / 24


def test_first_run_and_the_first_of_a_definition_cover_an_unknown_time_and_one_day() -> None:
    end = datetime(2026, 1, 15, 3, tzinfo=UTC)
    assert covered(end) == Season(None, 2, 1 << 14)
    assert covered(end, before=end - timedelta(days=3), fingerprint="other") == Season(None, 2, 1 << 14)


@pytest.mark.parametrize(
    ("gap", "days"), [(1, [14]), (1.25, [14]), (1.9, [13, 14]), (2, [13, 14]), (3, [12, 13, 14])]
)
def test_nights_that_were_skipped_bring_their_own_days_of_the_month(gap: float, days: list[int]) -> None:
    end = datetime(2026, 1, 15, 3, tzinfo=UTC)
    assert covered(end, before=end - timedelta(days=gap)).days == sum(1 << d for d in days)


@pytest.mark.parametrize("seconds", [-30, 0, 30])
def test_a_start_some_seconds_early_has_skipped_no_less_of_the_month(seconds: int) -> None:
    end = datetime(2026, 2, 3, 3, tzinfo=UTC) + timedelta(seconds=seconds)
    assert covered(end, before=datetime(2026, 2, 1, 3, tzinfo=UTC)).days == 1 << 1 | 1 << 2


def test_dates_that_moved_by_two_days_in_little_more_than_one_cover_both() -> None:
    before = ran(
        plan(0, as_of=datetime(2026, 1, 13, 23, 50, tzinfo=UTC), cutoff=datetime(2026, 1, 13, tzinfo=UTC))
    )
    now = plan(0, as_of=datetime(2026, 1, 15, 0, 10, tzinfo=UTC), cutoff=datetime(2026, 1, 15, tzinfo=UTC))
    assert season(now, now.targets[0], before).days == 1 << 13 | 1 << 14


def test_gap_of_any_length_marks_at_most_31_days() -> None:
    # The newest covered day is the first of December: with the 30 before it, no 31st is among them.
    end = datetime(2026, 12, 2, 3, tzinfo=UTC)
    every = sum(1 << d for d in range(1, 31)) | LAST_OF_MONTH
    for gap in (31, 32, 1000, 500_000):
        assert covered(end, before=end - timedelta(days=gap)).days == every


def test_target_that_the_run_before_did_not_have_covers_its_own_day_alone() -> None:
    end = datetime(2026, 1, 15, 3, tzinfo=UTC)
    before = ran(plan(0, as_of=end - timedelta(days=5), targets=[target(0, name="lines")]))
    now = plan(0, cutoff=end, as_of=end)
    assert season(now, now.targets[0], before) == Season(5.0, 2, 1 << 14)
