"""One look at one target: which layer's limit holds, what is said about it, and what hangs on the target."""

from __future__ import annotations

from datetime import timedelta
from math import exp
from typing import Any

import pytest

from safedelete.core.limits import Guard
from safedelete.core.plan import AgeProfile, Cascade, PastRun, Unknown
from safedelete.core.say import sentence
from tests.unit.core.guard_cases import START, ages, approved, codes, look, measure, nightly, plan, ran, the
from tests.unit.core.test_guard_exact import spread

USUAL = nightly([100] * 30)
SEEN = [ran(plan(i, 100, objects=200, ages=ages(100))) for i in range(30)]


def announced(history: list[PastRun], rows: int = 50_000, **changes: Any) -> list[PastRun]:
    """The history, with a last run that saw far more coming for tonight than any before it."""
    last = len(history) - 1
    coming = ages([rows, *[100] * 20])
    return [*history[:-1], ran(plan(last, 100, objects=200, ages=coming), **changes)]


# --- the verdict on items, and its numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "limits", "verdict"),
    [
        ({}, {}, "ok"),
        ({"items": 1000}, {}, "stop"),
        ({"total": 150}, {}, "stop"),
        ({"late": 51}, {}, "stop"),
        ({"late": 21}, {}, "warn"),
        ({"items": 5}, {}, "warn"),
        ({"items": 5}, {"too_few": "refuse"}, "stop"),
    ],
)
def test_each_layer_alone_sets_the_verdict(
    changes: dict[str, Any], limits: dict[str, Any], verdict: str
) -> None:
    decision = look(plan(30, **changes), USUAL, Guard(**limits))
    assert measure(decision).verdict == verdict
    assert approved(decision) is (verdict != "stop")
    assert len(decision.findings) == (verdict != "ok")


def test_share_is_of_the_table_and_unknown_where_that_is() -> None:
    assert measure(look(plan(30, 100, total=400), USUAL)).share == 0.25
    assert measure(look(plan(30, 100, total=Unknown("slow")), USUAL)).share is None


def test_what_was_left_over_is_told_and_added_to_what_is_expected_and_to_the_limit() -> None:
    history = [ran(plan(i, 600), deleted=100) for i in range(20)]
    decision = look(plan(20, 1100), history)
    limit = 500 + 101 * exp(4 * spread(19, 0)) - 1
    found = the(decision, "SD201")
    assert (found.numbers["left_over"], found.numbers["expected"]) == (500, 600)
    assert found.numbers["limit"] == pytest.approx(limit)
    assert found.message == (
        f"events: would delete 1,100 items, of them 500 left over; about 600 expected; limit {int(limit):,} (spread)."
    )
    assert (measure(decision).expected, measure(decision).limit) == (600, pytest.approx(limit))
    assert "left over" not in the(look(plan(30, 1100), USUAL), "SD201").message


def test_one_row_is_one_too_many_where_no_run_was_before() -> None:
    decision = look(plan(0, 1, total=1_000_000), ())
    assert codes(decision) == ["SD200"]
    assert measure(decision).limit == 0
    assert "1 of 1 (100.0%)" in the(look(plan(0, 1, total=1), ()), "SD200").message


def test_of_two_equal_limits_the_jobs_own_is_named() -> None:
    found = measure(look(plan(20, 5, total=40), nightly([0] * 20)))
    assert (found.limit, found.rule) == (20, "no usable history")


def test_a_limit_is_told_as_the_most_that_passes() -> None:
    # By the rule 72.8: of whole rows, 72 pass and not 73.
    history = nightly([43] * 40)
    limit = measure(look(plan(40, 43), history)).limit or 0.0
    most = int(limit)
    assert limit - most > 0.5, "rounded, the limit would be the first number that it refuses"
    assert approved(look(plan(40, most), history))
    refused = look(plan(40, most + 1), history)
    assert the(refused, "SD201").message.endswith(
        f"would delete {most + 1} items; about 43 expected; limit {most} (floor)."
    )
    assert f"limit {most} (floor)" in sentence(measure(refused))


def test_the_fewest_that_are_enough_are_told_as_such() -> None:
    history = nightly([102] * 40)
    assert codes(look(plan(40, 21), history), "warn") == []
    assert the(look(plan(40, 20), history), "SD206").message.endswith("and fewer than 21 is far too few.")


def test_a_last_run_whose_numbers_cannot_be_true_leaves_the_look_ahead_out() -> None:
    history = [ran(plan(i, 100, ages=ages(100))) for i in range(30)]
    assert measure(look(plan(30, 100), history)).rule == "forecast"
    damaged = [*history, ran(plan(30, 10**18, ages=ages(100)))]
    # That run took what the one before it saw coming for its night: tonight has a night's worth left.
    decision = look(plan(31, 100), damaged)
    assert (measure(decision).forecast, measure(decision).expected) == (None, 100)
    assert codes(look(plan(31, 250), damaged)) == ["SD201"]


# --- forecasts that are believed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ageless", "expected"), [(40, []), (39, ["SD114"])])
def test_nine_tenths_pass_up_to_the_very_limit_of_what_was_foreseen(
    ageless: int, expected: list[str]
) -> None:
    history = [ran(plan(i, 9, ages=ages(9))) for i in range(30)]
    decision = look(plan(30, 36, ageless=ageless), history)
    assert measure(look(plan(30, 36), history)).limit == (3 + 3) ** 2
    assert codes(decision) == expected


def test_jump_is_believed_as_far_as_the_usual_volume() -> None:
    # The jobs' forecasts say 100, and so do its last nights, but up to then a night took 1,000.
    history = [ran(plan(i, 1000)) for i in range(20)]
    history += [ran(plan(i, 100, ages=ages(100))) for i in range(20, 30)]
    history[-1] = ran(plan(29, 100, ages=ages([50_000, *[100] * 20])))
    decision = look(plan(30, 1500), history)
    assert approved(decision)
    assert measure(decision).rule == "forecast jumped"
    assert codes(look(plan(30, 10_000), history)) == ["SD211"]


def test_jump_is_not_believed_where_no_volume_is_usual() -> None:
    history = announced([ran(plan(i, 100, ages=ages(100)), teaches=0) for i in range(10)], teaches=0)
    decision = look(plan(10, 40_000), history)
    assert codes(decision) == ["SD211"]
    assert measure(decision).limit == pytest.approx(100 * exp(3.3 * 0.18))


def test_jump_that_is_not_believed_gives_no_room_to_the_parts() -> None:
    assert codes(look(plan(30, 100, objects=200), announced(SEEN))) == []
    assert codes(look(plan(30, 150, objects=20_000), announced(SEEN))) == ["SD202"]


# --- the picture that stands in for a history -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "days"),
    [
        (timedelta(days=90), 30),
        (timedelta(days=3, hours=12), 3),
        (timedelta(days=1), 1),
        (timedelta(hours=1), 1),
        (timedelta(0), 30),
    ],
)
def test_days_that_a_picture_holds_whole_are_those_within_the_retention(period: timedelta, days: int) -> None:
    decision = look(plan(0, 100, ages=ages(100), period=period, cutoff=START - period), ())
    assert the(decision, "SD304").numbers["days"] == days


def test_picture_knows_the_weekday_of_each_of_its_days() -> None:
    # Night 0 takes the rows of a Monday; the next Monday in the picture is its day 6.
    for heavy, expected in ((6, 5000), (5, 100), (0, 100)):
        week = ages([5000 if d % 7 == heavy else 100 for d in range(30)])
        assert measure(look(plan(0, 5000, ages=week), ())).expected == expected


def test_empty_days_of_a_picture_are_no_usual_night() -> None:
    assert measure(look(plan(0, 100, ages=ages([100, 0, 0] * 10)), ())).expected == 100


def test_one_heavy_day_of_a_picture_gives_no_room_to_the_others() -> None:
    def room(rows: list[int]) -> float:
        return measure(look(plan(0, 100, ages=ages(rows)), ())).limit or 0.0

    assert room([*[100] * 10, 400, *[100] * 19]) == pytest.approx(room([100] * 30))


# --- late rows, few rows, creep and gaps ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "code"), [(0, []), (20, []), (21, ["SD300"]), (50, ["SD300"]), (51, ["SD212"])]
)
def test_late_rows_pass_in_silence_up_to_twenty_and_with_a_word_up_to_half(
    late: int, code: list[str]
) -> None:
    decision = look(plan(30, 100, late=late), USUAL)
    assert [f.code for f in decision.findings] == code
    if code:
        assert the(decision, code[0]).numbers == {"late": late, "limit": 50, "expected": 100}


def test_three_times_the_usual_late_rows_pass_in_silence() -> None:
    history = [ran(plan(i, 10_000, late=300)) for i in range(30)]
    assert codes(look(plan(30, 10_000, late=900), history), "warn") == []
    assert codes(look(plan(30, 10_000, late=901), history), "warn") == ["SD300"]


def test_late_rows_are_told_without_an_expectation_where_there_is_none() -> None:
    decision = look(plan(1, 50, late=21), [ran(plan(0, 100), teaches=0)])
    assert the(decision, "SD212").numbers == {"late": 21, "limit": 20, "expected": None}


def test_late_rows_are_told_with_the_three_fullest_days_long_before_the_cutoff() -> None:
    def said(back: list[tuple[int, int]]) -> str:
        profile = ages(100, back=back)
        return the(look(plan(30, 100, late=60, ages=profile), USUAL), "SD212").message

    assert said([(-7, 20), (-5, 30), (-4, 10), (-3, 40), (-1, 500)]).endswith(
        "; age profile: 40 at 3 days before the cutoff, 30 at 5 days before the cutoff, 20 at 7 days before the cutoff."
    )
    assert said([(-2, 10), (-1, 500)]).endswith("; age profile: 10 at 2 days before the cutoff.")
    assert said([(-1, 500)]).endswith("50 pass.")


@pytest.mark.parametrize(("items", "expected"), [(20, []), (19, ["SD206"])])
def test_far_too_few_is_less_than_a_fifth(items: int, expected: list[str]) -> None:
    assert codes(look(plan(30, items), USUAL), "warn") == expected


def test_what_an_interrupted_run_took_is_not_added_to_its_own_plan_when_it_is_decided_again() -> None:
    def other(as_of: float) -> PastRun:
        return ran(plan(as_of, 1000), deleted=990, state="interrupted")

    history = nightly([1000] * 30)
    assert "SD206" in codes(look(plan(30, 10), [*history, other(30)]), "warn")
    assert "SD206" not in codes(look(plan(30, 10), [*history, other(29.9)]), "warn")


@pytest.mark.parametrize(
    ("then", "now", "told"),
    [(100, 400, False), (100, 401, True), (5, 25, False), (5, 26, True), (1000, 1100, False)],
)
def test_creep_is_more_than_four_times_and_more_than_noise(then: int, now: int, told: bool) -> None:
    decision = look(plan(90, now), nightly([then] * 45 + [now] * 45))
    assert ("SD302" in codes(decision, "warn")) is told
    if told:
        assert the(decision, "SD302").numbers == {"now": now, "then": then}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        # Places from the end, 1 being the last run: 61 to 90 are then, 1 to 14 are now; five of each are needed.
        ((61, 70, 75, 80, 90), (1, 5, 8, 11, 14), True),
        ((60, 70, 75, 80, 90), (1, 5, 8, 11, 14), False),
        ((61, 70, 75, 80, 91), (1, 5, 8, 11, 14), False),
        ((61, 70, 75, 80, 90), (1, 5, 8, 11, 15), False),
    ],
)
def test_creep_compares_the_last_fourteen_runs_with_those_of_sixty_to_ninety_ago(
    old: tuple[int, ...], new: tuple[int, ...], told: bool
) -> None:
    counts = [100 if place in old else 900 if place in new else 0 for place in range(100, 0, -1)]
    assert ("SD302" in codes(look(plan(100, 100), nightly(counts)), "warn")) is told


@pytest.mark.parametrize(("apart", "told"), [(1.0, True), (0.64, True), (0.6, False), (1 / 24, False)])
def test_creep_needs_a_month_between_then_and_now(apart: float, told: bool) -> None:
    history = [ran(plan(i * apart, 100 if i < 45 else 900)) for i in range(90)]
    assert ("SD302" in codes(look(plan(90 * apart, 900), history), "warn")) is told


@pytest.mark.parametrize(("since", "told"), [(30.0, True), (29.99, False)])
def test_a_month_between_then_and_now_is_thirty_days_inclusive(since: float, told: bool) -> None:
    old = [ran(plan(i * 0.5, 100)) for i in range(30)]
    between = [ran(plan(14.5 + i * 0.6, 100)) for i in range(1, 47)]
    new = [ran(plan(14.5 + since + i, 900)) for i in range(14)]
    tonight = plan(14.5 + since + 14, 900)
    assert ("SD302" in codes(look(tonight, [*old, *between, *new]), "warn")) is told


def test_one_offs_are_no_creep() -> None:
    once = [ran(plan(76 + i, 900), teaches=0) for i in range(14)]
    assert "SD302" not in codes(look(plan(90, 100), nightly([100] * 90, first=-14) + once), "warn")


def test_portions_are_no_creep() -> None:
    drained = [ran(plan(76 + i, 900, eligible=90_000, portion=900)) for i in range(14)]
    assert "SD302" not in codes(look(plan(90, 100), nightly([100] * 90, first=-14) + drained), "warn")


@pytest.mark.parametrize(
    ("every", "gap", "told"), [(1, 7.0, False), (1, 7.1, True), (3, 9.0, False), (3, 9.1, True)]
)
def test_gap_is_told_above_a_week_and_three_times_the_usual(every: int, gap: float, told: bool) -> None:
    history = [ran(plan(every * i, 100 * every)) for i in range(10)]
    decision = look(plan(9 * every + gap, round(100 * gap)), history)
    assert codes(decision, "warn") == (["SD303"] if told else [])


# --- portions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("eligible", "inflow", "said"),
    [
        (50, 0, "about 4 more runs"),
        (99, 9, "about 89 more runs"),
        (100, 10, "no end: more arrives than goes"),
    ],
)
def test_portion_says_how_long_it_takes_at_what_arrives(eligible: int, inflow: int, said: str) -> None:
    history = [ran(plan(0, 10, eligible=100, portion=10))]
    found = the(look(plan(1, 10, eligible=eligible, portion=10), history), "SD306")
    assert found.message.endswith(f"{said}.")
    assert found.numbers == {"items": 10, "whole": eligible, "inflow": inflow}


def test_first_portion_takes_all_that_waits_for_a_backlog() -> None:
    found = the(look(plan(0, 10, eligible=100, portion=10), ()), "SD306")
    assert found.message.endswith("; about 9 more runs.")
    assert found.numbers["inflow"] == 0


def test_rows_that_came_at_once_are_not_what_arrives_every_night() -> None:
    tonight = plan(30, 500, eligible=5_100, portion=500)
    found = the(look(tonight, nightly([100] * 30, portion=500)), "SD306")
    assert found.message.endswith("a portion of 500 of 5,100, oldest first; about 12 more runs.")
    assert found.numbers["inflow"] == 100
    foreseen = [ran(plan(i, 100, ages=ages(100), portion=500)) for i in range(30)]
    assert the(look(tonight, foreseen), "SD306").numbers["inflow"] == 100
    first = the(look(plan(0, 500, eligible=5_100, portion=500, ages=ages(100)), ()), "SD306")
    assert first.numbers["inflow"] == 100


def test_fewer_new_rows_than_expected_are_what_arrives() -> None:
    history = [*nightly([100] * 30, portion=500), ran(plan(30, 500, eligible=5_000, portion=500))]
    found = the(look(plan(31, 500, eligible=4_540, portion=500), history), "SD306")
    assert found.numbers["inflow"] == 40


@pytest.mark.parametrize("gap", [1, 5])
@pytest.mark.parametrize(("lines", "expected"), [(300, []), (1200, ["SD204"])])
def test_what_the_rows_of_a_portion_take_along_does_not_grow_with_the_nights_it_covers(
    gap: int, lines: int, expected: list[str]
) -> None:
    def portion(night: float, rows: int) -> Any:
        left = 10_000 - 100 * night
        cascade = (Cascade("lines", "delete", rows),)
        return plan(night, 100, eligible=left, portion=100, cascades=cascade)

    history = [ran(portion(i, 300)) for i in range(8)]
    decision = look(portion(7 + gap, lines), history)
    assert codes(decision) == expected
    assert measure(decision, "cascade").nights is None
    assert measure(decision, "cascade").expected == 300


# --- objects, bytes and cascades --------------------------------------------------------------------------------------


def test_objects_are_held_against_five_standard_deviations() -> None:
    history = nightly([100] * 20, objects=200)
    found = measure(look(plan(20, objects=200), history), "objects")
    assert (found.expected, found.limit) == (200, pytest.approx(201 * exp(5 * spread(19, 0)) - 1))


@pytest.mark.parametrize(("forecast", "expected"), [(100, 200), (50, 200), (1000, 2000)])
def test_parts_rise_with_the_forecast_and_never_fall(forecast: int, expected: int) -> None:
    coming = [ran(plan(i, 100, objects=200, ages=ages([100] * (19 - i) + [forecast]))) for i in range(20)]
    assert measure(look(plan(20, 100, objects=200), coming), "objects").expected == pytest.approx(expected)


def test_nothing_is_measured_where_nothing_goes_and_nothing_ever_did() -> None:
    assert [m.measure for m in look(plan(30), USUAL).measures] == ["items"]
    assert measure(look(plan(30, objects=1), USUAL), "objects").tonight == 1
    owning = nightly([100] * 30, objects=200)
    assert measure(look(plan(30, objects=0), owning), "objects").tonight == 0


def test_first_objects_are_bounded_by_the_row_until_a_run_teaches_and_first_bytes_never() -> None:
    once = [ran(plan(0), teaches=0)]
    assert codes(look(plan(1, objects=1000), once)) == []
    assert measure(look(plan(1, objects=1001), once), "objects").limit == 1000
    assert codes(look(plan(1, objects=1001), once)) == ["SD202"]
    heavy = look(plan(30, bytes=10**9), nightly([100] * 30, bytes=0))
    assert codes(heavy) == []
    assert (measure(heavy, "bytes").limit, measure(heavy, "bytes").verdict) == (None, "ok")
    assert codes(look(plan(30, objects=5000), USUAL)) == ["SD202"]


def test_objects_of_portions_teach_nothing() -> None:
    history = [ran(plan(i, 10, eligible=100 - 10 * i, portion=10, objects=20)) for i in range(5)]
    decision = look(plan(5, 50, portion=50, objects=500), history)
    assert "SD202" not in codes(decision)


def test_numbers_of_a_finding_are_those_of_its_message() -> None:
    coming = [ran(plan(i, 100, objects=200, ages=ages([100] * (19 - i) + [1000]))) for i in range(20)]
    found = the(look(plan(20, 100, objects=20_000), coming), "SD202")
    assert "about 2,000 expected" in found.message
    assert found.numbers["expected"] == pytest.approx(2000)


def test_message_says_what_would_go_along() -> None:
    usual = nightly([100] * 30, objects=200, cascades=(Cascade("lines", "delete", 300),))
    tonight = plan(30, objects=2000, cascades=(Cascade("lines", "delete", 3000),))
    decision = look(tonight, usual)
    assert the(decision, "SD202").message.startswith("events: 2,000 objects; about 200 expected; limit ")
    assert the(decision, "SD204").message.startswith(
        "lines: 3,000 rows of lines would go or change with events; about 300 expected; limit "
    )


def test_picture_without_a_day_ahead_stands_in_for_nothing() -> None:
    assert codes(look(plan(0, 5, ages=AgeProfile(days=((-3, 5),))), ())) == ["SD200"]
    assert codes(look(plan(0, 5, ages=AgeProfile()), ())) == ["SD200"]
