"""Accidents that come in two steps: each step looked harmless to a guard that took the step before it at its word."""

from __future__ import annotations

from datetime import timedelta
from math import exp

import pytest

from safedelete.core.limits import Guard
from safedelete.core.lookahead import LEAST
from safedelete.core.plan import Cascade
from safedelete.runner.context import without_left
from tests.unit.core.guard_cases import (
    DAY,
    KEEP,
    START,
    ages,
    approved,
    codes,
    look,
    measure,
    nightly,
    plan,
    ran,
    the,
)

USUAL = [*nightly([150] * 20)]

# --- what the last run left --------------------------------------------------------------------------------------------


def test_rows_that_were_put_right_are_not_left_over_when_the_same_accident_comes_again() -> None:
    mended = ran(plan(20, 3_150, late=3_000), deleted=150, over={"events": 3_000})
    again = without_left(plan(21, 3_150, late=3_000), mended)
    assert again.targets[0].late == 3_000
    assert set(codes(look(again, [*USUAL, mended]))) == {"SD201", "SD212"}


def test_a_backlog_that_was_emptied_by_hand_is_no_room_for_other_rows() -> None:
    portion = ran(plan(20, 100, eligible=4_100, portion=100))
    tonight = without_left(plan(21, 100, eligible=4_100, portion=100, late=200), portion)
    assert (tonight.targets[0].late, tonight.targets[0].left) == (0, 200)
    decision = look(tonight, [*USUAL, portion])
    assert codes(decision) == ["SD201"]
    assert the(decision, "SD201").numbers["left_over"] == 200


def test_a_backlog_that_is_still_there_passes() -> None:
    portion = ran(plan(20, 100, eligible=4_100, portion=100))
    tonight = without_left(plan(21, 100, eligible=4_100, portion=100, late=4_000), portion)
    assert approved(look(tonight, [*USUAL, portion]))


# --- a forecast that one run alone made --------------------------------------------------------------------------------


def test_a_forecast_made_by_the_only_run_of_a_definition_is_believed_as_far_as_the_usual_volume() -> None:
    old = nightly([150] * 11, fingerprint="old")
    renewed = ran(plan(11, 165, fingerprint="new", ages=ages([6_150, *[150] * 20])))
    tonight = plan(12, 6_150, fingerprint="new", ages=ages(150))
    assert codes(look(tonight, [*old, renewed])) == ["SD211"]
    assert approved(look(plan(12, 200, fingerprint="new", ages=ages(150)), [*old, renewed]))


def test_on_the_second_night_a_forecast_is_believed_as_far_as_the_coming_days_look_like_it() -> None:
    first = ran(plan(0, 1_000, ages=ages([4_900_000, *[1_000] * 20])))
    assert codes(look(plan(1, 4_900_000, total=10_000_000, ages=ages(1_000)), [first])) == ["SD211"]
    lumpy = [1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 9_000] * 4
    first = ran(plan(0, 1_000, ages=ages([9_000, *lumpy])))
    assert approved(look(plan(1, 9_000, ages=ages(lumpy)), [first])), "a week that has such a night"


# --- what portions and first nights bring along ------------------------------------------------------------------------


def taking(rows: int) -> tuple[Cascade, ...]:
    return (Cascade("lines", "delete", rows, "lines_item_fkey"),)


@pytest.mark.parametrize(("rows", "refused"), [(0, False), (15, False), (5_000_000, True)])
def test_a_portion_whose_rows_never_took_any_along_is_refused_when_they_do(rows: int, refused: bool) -> None:
    drained = [
        ran(plan(i, 100, eligible=9_000 - 100 * i, portion=100, cascades=taking(0))) for i in range(30)
    ]
    tonight = plan(30, 100, eligible=6_000, portion=100, cascades=taking(rows))
    assert codes(look(tonight, drained)) == (["SD204"] if refused else [])


def test_a_smaller_portion_may_take_along_less_and_not_as_much() -> None:
    drained = [
        ran(plan(i, 1_000, eligible=90_000 - 1_000 * i, portion=1_000, cascades=taking(5_000)))
        for i in range(30)
    ]
    small = {"eligible": 60_000, "portion": 100}
    assert approved(look(plan(30, 100, cascades=taking(500), **small), drained))
    assert codes(look(plan(30, 100, cascades=taking(5_000), **small), drained)) == ["SD204"]
    assert measure(look(plan(30, 100, cascades=taking(500), **small), drained), "cascade").expected == 500


def test_a_surge_that_was_foreseen_makes_no_row_of_a_portion_own_more() -> None:
    usual = [ran(plan(i, 100, objects=100, ages=ages([*[100] * (29 - i), 3_000]))) for i in range(30)]
    portion = {"eligible": 3_000, "portion": 1_000, "ages": ages(100)}
    assert approved(look(plan(30, 1_000, objects=1_000, **portion), usual))
    assert codes(look(plan(30, 1_000, objects=20_000, **portion), usual)) == ["SD202"]


def test_a_first_night_whose_rows_each_take_thousands_along_waits_for_a_person() -> None:
    few = look(plan(0, 100, ages=ages(100), cascades=taking(1_000)))
    assert approved(few)
    assert measure(few, "cascade").limit == 1_000
    many = look(plan(0, 100, ages=ages(100), cascades=taking(50_000_000)))
    assert codes(many) == ["SD204"]
    assert the(many, "SD204").numbers["rule"] == "first night"


def test_a_first_night_whose_rows_each_own_dozens_of_objects_waits_for_a_person() -> None:
    few = look(plan(0, 100, ages=ages(100), objects=1_000))
    assert approved(few)
    assert measure(few, "objects").limit == 1_000
    many = look(plan(0, 100, ages=ages(100), objects=1_001))
    assert codes(many) == ["SD202"]
    assert the(many, "SD202").numbers["rule"] == "first night"


def test_rows_out_of_time_of_a_portion_teach_nothing() -> None:
    twice = [
        ran(
            plan(
                i,
                150,
                late=6_000 if i in (5, 6) else 0,
                **({"eligible": 900, "portion": 150} if i in (5, 6) else {}),
            )
        )
        for i in range(20)
    ]
    assert "SD212" in codes(look(plan(20, 150, late=9_000), twice))


# --- approved surges ---------------------------------------------------------------------------------------------------


def test_two_approved_surges_open_the_way_for_a_little_more_than_themselves() -> None:
    counts = [100] * 40
    counts[20] = counts[30] = 2_000
    history = [ran(plan(i, n, ages=ages(100))) for i, n in enumerate(counts)]
    assert approved(look(plan(40, 2_900), history))
    assert codes(look(plan(40, 3_600), history)) == ["SD210"]


def test_approved_surges_do_not_make_an_empty_night_usual() -> None:
    counts = [100] * 40
    counts[20] = counts[30] = 2_000
    history = [ran(plan(i, n, ages=ages(100))) for i, n in enumerate(counts)]
    assert "SD206" in codes(look(plan(40, 15), history), "warn")


def test_rows_out_of_time_of_a_one_off_run_teach_nothing() -> None:
    for teaches, refused in ((0, True), (1, False)):
        twice = [
            ran(plan(i, 150, late=6_000 if i in (5, 6) else 0), teaches=teaches if i in (5, 6) else 1)
            for i in range(20)
        ]
        assert ("SD212" in codes(look(plan(20, 150, late=9_000), twice))) is refused


# --- numbers that cannot be true ---------------------------------------------------------------------------------------


def test_absurd_numbers_of_earlier_runs_make_no_room() -> None:
    history = [ran(plan(i, 150, late=10**18 if i in (5, 6) else 0)) for i in range(20)]
    assert "SD212" in codes(look(plan(20, 150, late=900), history))
    strange = [*nightly([150] * 20, ages=ages(150)), ran(plan(20, 150, ages=ages([10**18, 150])))]
    assert codes(look(plan(21, 5_000), strange)) == ["SD210"]


@pytest.mark.parametrize("number", ["total", "late"])
def test_a_number_of_tonight_that_cannot_be_true_is_named(number: str) -> None:
    decision = look(plan(20, 150, **{number: -1}), USUAL)
    assert "-1, which cannot be a count" in the(decision, "SD305").message


@pytest.mark.parametrize(
    ("items", "total", "most"), [(29, 100, 0.29), (57, 100, 0.57), (6_900, 10_000, 0.69)]
)
def test_max_fraction_is_inclusive_whatever_the_binary_fraction(items: int, total: int, most: float) -> None:
    tonight = plan(0, items, total=total, eligible=items)
    assert "SD102" not in codes(look(tonight, limits=Guard(max_fraction=most)))
    more = plan(0, items + 1, total=total, eligible=items + 1)
    assert "SD102" in codes(look(more, limits=Guard(max_fraction=most)))


def test_late_rows_of_a_run_accepted_as_usual_count_twice() -> None:
    for teaches, refused in ((1, True), (2, False)):
        history = [
            ran(plan(i, 150, late=6_000 if i == 5 else 0), teaches=teaches if i == 5 else 1)
            for i in range(20)
        ]
        assert ("SD212" in codes(look(plan(20, 150, late=9_000), history))) is refused


def test_an_ordinary_night_with_a_limit_per_run_teaches_though_a_row_went_while_it_was_sealed() -> None:
    history = [ran(plan(i, 99, eligible=100, portion=400)) for i in range(20)]
    decision = look(plan(20, 99, eligible=100, portion=400), history)
    assert codes(decision, "warn") == []
    assert (measure(decision).runs, measure(decision).expected) == (19, 99)
    assert codes(look(plan(20, 399, eligible=399, portion=400), history)) == ["SD201"]


def test_the_first_night_of_a_table_with_nothing_due_yet_is_never_too_few() -> None:
    young = ages([0] * 5 + [100] * 25)
    decision = look(plan(0, 0, ages=young), (), Guard(too_few="refuse"))
    assert approved(decision)


def test_a_second_start_right_after_a_run_is_never_too_few() -> None:
    history = nightly([10_000] * 30)
    assert approved(look(plan(29.01, 0), history, Guard(too_few="refuse")))
    assert codes(look(plan(30, 0), [*history, ran(plan(29.01, 0))], Guard(too_few="refuse"))) == ["SD206"]


def test_sessions_that_are_mostly_extended_are_forecast_as_many_as_come() -> None:
    # Ten thousand would expire tomorrow; on every day nine tenths of them are used again.
    history = [ran(plan(i, 1_000, objects=1_000, ages=ages(10_000))) for i in range(30)]
    quiet = look(plan(30, 1_000, objects=1_000), history, Guard(too_few="refuse"))
    assert approved(quiet), "each ordinary night would be far too few"
    assert measure(quiet).forecast == pytest.approx(1_001 * exp(LEAST), rel=0.001)
    assert approved(look(plan(30, 2_500, objects=2_500), history))
    assert codes(look(plan(30, 5_000, objects=1_000), history)) == ["SD210"]
    assert codes(look(plan(30, 1_000, objects=5_000), history)) == ["SD202"]
    assert codes(look(plan(30, 1_000, objects=1_000, late=900), history)) == ["SD212"]
    assert codes(look(plan(30, 100, objects=100), history), "warn") == ["SD206"]


def test_sessions_that_are_no_longer_extended_are_refused_twice_and_then_usual() -> None:
    history = [ran(plan(i, 1_000, ages=ages(10_000))) for i in range(30)]
    for night in (30, 31):
        assert codes(look(plan(night, 10_000), history)) == ["SD210"]
        history.append(ran(plan(night, 10_000, ages=ages(10_000))))
    assert approved(look(plan(32, 10_000), history))


@pytest.mark.parametrize(("brought", "worth"), [(1_000, 1.0), (626, 1.0), (500, 0.8), (100, 0.16)])
def test_a_forecast_is_discounted_only_beyond_the_least_tolerance(brought: int, worth: float) -> None:
    history = [ran(plan(i, brought, ages=ages(1_000))) for i in range(4)]
    assert measure(look(plan(4, brought), history)).forecast == pytest.approx(1_000 * worth, rel=0.02)
    assert measure(look(plan(3, brought), history[:3])).forecast == 1_000, "two errors teach nothing yet"


def test_a_second_run_on_one_date_of_a_date_column_is_an_ordinary_one_and_so_is_the_next_nights() -> None:
    midnight = START.replace(hour=0, minute=0) - KEEP
    history = [ran(plan(i, 10_000, cutoff=midnight + i * DAY, ages=ages(10_000))) for i in range(30)]
    again = plan(29.6, 0, cutoff=midnight + 29 * DAY, ages=ages(10_000))
    decision = look(again, history, Guard(too_few="refuse"))
    assert (codes(decision), measure(decision).forecast) == ([], 0)
    tonight = look(
        plan(30, 10_000, cutoff=midnight + 30 * DAY), [*history, ran(again)], Guard(too_few="refuse")
    )
    assert (codes(tonight), measure(tonight).forecast) == ([], 10_000)


@pytest.mark.parametrize(
    ("runs", "since", "said"),
    [(30, 0.49, False), (30, 0.5, True), (1, 0.49, False), (1, 0.5, True), (30, 1.0, True)],
)
def test_a_part_of_a_day_is_too_few_only_from_half_the_usual_time_on(
    runs: int, since: float, said: bool
) -> None:
    # The rows of a day may all be of one hour, and the picture counts days.
    history = [ran(plan(i, 10_000, ages=ages(10_000))) for i in range(runs)]
    decision = look(plan(runs - 1 + since, 0), history, Guard(too_few="refuse"))
    assert codes(decision) == (["SD206"] if said else [])


def test_an_hour_that_brings_nothing_is_too_few_where_every_run_covers_an_hour() -> None:
    history = [ran(plan(i / 24, 1_000, ages=ages(24_000))) for i in range(30)]
    assert codes(look(plan(30 / 24, 0), history), "warn") == ["SD206"]
    assert codes(look(plan(29.4 / 24, 0), history), "warn") == []


def test_the_night_after_a_skipped_month_edge_is_not_refused_for_starting_earlier() -> None:
    # 500 on the first of every month, else 100; the run of the first of May is skipped.
    def rows(night: int) -> int:
        return 500 if (START + timedelta(days=night) - KEEP - timedelta(hours=12)).day == 1 else 100

    skipped = next(n for n in range(115, 160) if rows(n) == 500)
    history = [ran(plan(n, rows(n))) for n in range(skipped)]
    for seconds in (-20, 0, 20):
        tonight = plan(skipped + 1 + seconds / 86_400, 600)
        assert approved(look(tonight, history)), seconds
