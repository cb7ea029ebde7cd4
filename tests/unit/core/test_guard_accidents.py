"""Accidents that come in two steps: each step looked harmless to a guard that took the step before it at its word."""

from __future__ import annotations

import pytest

from safedelete.core.limits import Guard
from safedelete.core.plan import Cascade
from safedelete.runner.context import without_left
from tests.unit.core.guard_cases import (
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
