"""The edges of the volume rule, to the row and to the run."""

from __future__ import annotations

from math import exp, inf, log

import pytest

from safedelete.core.volume import Sample, Season, Usual, judge
from tests.unit.core.test_guard_exact import MIDDLE, held, night, spread

LAST, FIRST = 1 << 31 | 1, 1 << 1
"""The last and the first day of a month, as a season has them."""

USUAL = night(1000)


def floor(runs: int, compared: int | None = None) -> float:
    """Return the headroom of a job whose nights, or those that are compared, are all alike."""
    return max(1.6 + 3 / runs, exp(4 * spread(compared or runs, 0)))


def test_without_a_baseline_nothing_is_said() -> None:
    assert judge([], Season(1.0, 0, MIDDLE)) == Usual(
        limit=inf,
        low=0.0,
        expected=None,
        usual_low=None,
        usual_high=None,
        runs=0,
        headroom=1.0,
        rule="no baseline",
    )


def test_night_of_a_single_row_teaches_and_one_of_none_does_not() -> None:
    assert held([night(1)] * 10).runs == 10
    assert held([night(0)] * 10).runs == 0


# --- how much is usual ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("elapsed", "single"), [(1.49, True), (1.5, False), (2.0, False)])
def test_runs_of_a_night_and_a_half_teach_only_while_fewer_than_five_others_do(
    elapsed: float, single: bool
) -> None:
    long = [night(4000 * elapsed, elapsed=elapsed)] * 6
    assert held([*[USUAL] * 5, *long]).expected == pytest.approx(4000 if single else 1000)
    assert held([*[USUAL] * 4, *long]).expected == pytest.approx(4000)


def test_weekday_seen_once_may_take_that_much_for_the_part_of_a_night_it_covers() -> None:
    tuesdays = [night(1000, 1)] * 20
    found = held([*tuesdays, night(5000, 0)], 0, elapsed=0.5, days=1 << 20)
    assert found.limit == pytest.approx(5000 * 0.5 * found.headroom)


def test_weekday_never_seen_goes_by_the_level_of_all_days() -> None:
    found = held([night(1000, 1)] * 20, 0)
    assert (found.expected, found.limit) == (1000, pytest.approx(1001 * floor(20) - 1))


# --- headroom ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_headroom_of_the_first_runs(runs: int) -> None:
    assert held([USUAL] * runs).headroom == pytest.approx(floor(runs))


def test_three_runs_are_enough_to_learn_a_spread_from() -> None:
    assert held([night(v) for v in (499, 999, 1999)]).headroom == pytest.approx(
        exp(4 * spread(3, 1.4826 * log(2)))
    )
    assert held([night(v) for v in (999, 1999)]).headroom == pytest.approx(1.6 + 3 / 2)


def test_spread_is_around_the_middle_not_around_what_is_usual_by_now() -> None:
    grown = [night(499)] * 20 + [night(999)] * 8
    assert held(grown).headroom == pytest.approx(floor(28))


def test_headroom_has_an_end_whatever_the_swings() -> None:
    assert held([night(1), night(10**15)] * 15).headroom == pytest.approx(exp(50))


def test_month_edges_give_room_to_month_edges_alone() -> None:
    for edge in (FIRST, LAST):
        history = [USUAL] * 10 + [night(4000, days=edge)] + [USUAL] * 10 + [night(4000, days=edge)] * 2
        assert held(history).headroom == pytest.approx(floor(23, 20))
        assert held(history, days=edge).headroom == pytest.approx((4001 / 1001) ** 1.65)


def test_month_edges_give_no_room_in_a_jobs_first_week() -> None:
    history = [night(4000, day, days=LAST) for day in (0, 1)] + [night(1000, day) for day in (2, 3, 4, 5)]
    assert held(history, 6).headroom == pytest.approx(floor(6, 4))


def test_last_days_of_a_month_give_room_to_the_first_ones_until_they_are_known_as_peaks() -> None:
    history = [USUAL] * 10 + [night(4000, days=LAST)] * 2 + [USUAL] * 15
    assert held(history, days=FIRST).headroom == pytest.approx((4001 / 1001) ** 1.65)
    assert held([*history, USUAL], days=FIRST).headroom == pytest.approx(floor(28))


def test_last_days_of_a_month_are_one_kind_of_peak_whatever_their_number() -> None:
    history = [USUAL] * 60
    history[10], history[40] = night(9000, days=1 << 31 | 1), night(9000, days=1 << 30 | 1)
    assert held(history, days=FIRST).headroom == pytest.approx(floor(60))


def test_peak_days_are_looked_for_from_the_twenty_eighth_run_on() -> None:
    peaks = [night(9000, days=1 << 20)] * 2
    assert held([*peaks, *[USUAL] * 25]).headroom == pytest.approx((9001 / 1001) ** 1.65)
    assert held([*peaks, *[USUAL] * 26]).headroom == pytest.approx(floor(28))


@pytest.mark.parametrize(("rows", "peak"), [(2001, False), (2002, True)])
def test_peak_is_more_than_twice_what_is_usual_counting_from_one(rows: int, peak: bool) -> None:
    history = [USUAL] * 60
    history[10] = history[40] = night(rows, days=1 << 20)
    assert held(history).headroom == pytest.approx(floor(60) if peak else ((rows + 1) / 1001) ** 1.65)
    once = [USUAL] * 60
    once[10] = night(rows, days=1 << 20)
    found = held(once, days=1 << 20)
    assert (found.rule == "day of month") is peak
    if peak:
        assert found.limit == pytest.approx(2 * rows)


def test_peak_on_a_heavy_weekday_is_as_many_times_its_usual() -> None:
    history = [night(10_000 if i % 7 == 4 else 1000, i % 7) for i in range(40)]
    history[10] = night(5000, 3, days=1 << 20)
    found = held(history, 4, days=1 << 20)
    assert (found.rule, found.limit) == ("day of month", pytest.approx(2 * 10_000 * 5001 / 1001))


def test_three_nights_that_are_comparable_are_enough_to_leave_the_others_out() -> None:
    edge = night(4000, days=FIRST)
    assert held([*[USUAL] * 3, edge]).headroom == pytest.approx(exp(4 * spread(3, 0)))
    assert held([*[USUAL] * 2, edge]).headroom == pytest.approx(4001 / 1001 * 1.6)


def test_weekday_that_has_no_usual_of_its_own_gives_no_room_once_others_have_one() -> None:
    four = [night(1000, day) for day in (0, 0, 1, 1)]
    saturday = night(4000, 5)
    assert held([*four, saturday]).headroom == pytest.approx(exp(4 * spread(4, 0)))
    alone = [night(1000, day) for day in (0, 1, 2, 3)]
    assert held([*alone, saturday]).headroom == pytest.approx(4001 / 1001 * 1.6)


def test_weekday_seen_twice_gives_room() -> None:
    history = [*[USUAL] * 6, night(500, 1), night(2000, 1)]
    assert held(history).headroom == pytest.approx(2001 / 1251 * 1.6)


# --- after a quiet night, and far too few -----------------------------------------------------------------------------


def test_catch_up_needs_two_runs_of_either_weekday() -> None:
    # Usual of Monday: the median of 2,000 and 400, so 400 is less than half of it.
    history = [night(2000, 0), night(1000, 1), night(1000, 1), night(400, 0)]
    found = held(history, 1)
    assert (found.rule, found.limit) == ("after a quiet night", pytest.approx(2200 * found.headroom - 400))
    assert held([*history[:2], history[3]], 1).rule != "after a quiet night"
    assert held(history[1:], 1).rule != "after a quiet night"


def test_empty_nights_of_another_weekday_do_not_excuse_this_one() -> None:
    week = [1000, 1000, 1000, 1000, 1000, 1000, 0]
    history = [night(v, day) for _ in range(4) for day, v in enumerate(week)]
    assert held(history, 0).low == pytest.approx(200)
    assert held(history, 6).low == 0


def test_far_too_few_is_known_after_fourteen_nights_whatever_their_weekdays() -> None:
    history = [night(1000, i % 7) for i in range(14)]
    assert held(history).low == pytest.approx(200)
    assert held(history[:13]).low == 0


def test_an_empty_night_is_remembered_for_thirty() -> None:
    weekdays = [night(1000, i % 5) for i in range(30)]
    assert held([night(0, 4), *weekdays], 5).low == pytest.approx(200)
    assert held([night(0, 4), *weekdays[1:]], 5).low == 0


def test_night_of_one_row_is_not_an_empty_one() -> None:
    assert held([*[USUAL] * 20, night(1)]).low > 0
    assert held([*[USUAL] * 20, night(0)]).low == 0


def test_sample_counts_once_unless_it_is_said_to_count_twice() -> None:
    history = [Sample(1000, Season(1.0, 0, MIDDLE))] * 25
    history[3] = Sample(4000, Season(1.0, 0, MIDDLE))
    assert held(history).headroom == pytest.approx(floor(25))


# --- runs that are not a night apart ----------------------------------------------------------------------------------


def every(hours: float, rows: float, runs: int) -> list[Sample]:
    """Return the runs of a job that finds so many rows every few hours."""
    return [night(rows, int(i * hours / 24) % 7, elapsed=hours / 24) for i in range(runs)]


@pytest.mark.parametrize("hours", [1, 3, 6, 12, 24])
def test_a_run_is_held_against_the_time_it_covers_however_often_the_job_runs(hours: int) -> None:
    history = every(hours, 1000, 90)
    usual = held(history, history[-1].season.weekday, elapsed=hours / 24)
    assert usual.expected == pytest.approx(1000)
    assert usual.limit == pytest.approx(1001 * floor(90) - 1, rel=0.01)
    # After an outage, all that came meanwhile is there at once.
    late = held(history, history[-1].season.weekday, elapsed=1.0)
    assert late.expected == pytest.approx(24_000 / hours)


def test_a_few_close_runs_make_no_short_nights() -> None:
    history = [*[night(1000, elapsed=1.0)] * 2, *[night(10, elapsed=0.01)] * 2]
    assert held([night(10, elapsed=0.01)] * 2, elapsed=1.0).expected == pytest.approx(40)
    assert held([night(10, elapsed=0.01)] * 3, elapsed=1.0).expected == pytest.approx(1000)
    assert held(history, elapsed=0.01).expected == pytest.approx((1000 + 40) / 2 * 0.25)
    assert held([night(10, elapsed=0.0)] * 5, elapsed=0.0).expected == pytest.approx(10)


@pytest.mark.parametrize("rows", [124, 125])
def test_a_quiet_run_is_one_that_brought_less_than_half_of_what_its_time_brings(rows: int) -> None:
    history = [*every(6, 250, 40), night(rows, every(6, 250, 40)[-1].season.weekday, elapsed=0.25)]
    found = held(history, history[-1].season.weekday, elapsed=0.25)
    assert (found.rule == "after a quiet night") is (rows < 125)
    if rows < 125:
        assert found.limit == pytest.approx(500 * found.headroom - rows)


def test_a_second_start_within_minutes_is_no_night_to_catch_up_on() -> None:
    found = held([*[USUAL] * 20, night(0, elapsed=0.01)])
    assert (found.rule, found.limit) == ("after a quiet night", pytest.approx(1250 * found.headroom))


def test_a_part_of_a_peak_day_may_take_its_part_of_the_peak() -> None:
    history = [USUAL] * 40
    history[10] = night(5000, days=1 << 20)
    whole = held(history, days=1 << 20)
    assert (whole.rule, whole.limit) == ("day of month", pytest.approx(10_000))
    assert held(history, days=1 << 20, elapsed=0.5).limit == pytest.approx(5_000)
    assert held(history, days=1 << 20, elapsed=1.4).limit == pytest.approx(10_000)


@pytest.mark.parametrize(("elapsed", "low"), [(0.01, 0), (0.49, 0), (0.5, 100), (1.0, 200), (None, 0)])
def test_too_few_is_said_only_of_half_the_usual_time_and_more(elapsed: float | None, low: float) -> None:
    assert held([USUAL] * 20, elapsed=elapsed).low == pytest.approx(low)


def test_a_weekly_job_that_is_started_again_the_day_after_may_find_nothing() -> None:
    weekly = [night(7000, elapsed=7.0)] * 20
    assert held(weekly, elapsed=7.0).low == pytest.approx(1400)
    assert held(weekly, elapsed=1.0).low == 0


def test_a_second_start_that_found_nothing_is_no_empty_night() -> None:
    again = night(0, elapsed=0.01)
    assert held([*[USUAL] * 20, again, USUAL]).low == pytest.approx(200)
    thin = [night(1000, i % 7) for i in range(14)]
    assert held([*thin, again]).low == pytest.approx(200)
    assert held([*thin, night(0, elapsed=0.5)]).low == 0
    assert held([*thin, night(0, elapsed=None)]).low == 0
