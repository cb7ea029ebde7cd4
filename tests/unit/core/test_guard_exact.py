"""The rules' limits to the row, worked out by hand, so that no constant moves unseen."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from safedelete.core.baseline import between, left_behind, profile
from safedelete.core.lookahead import foresee
from safedelete.core.plan import AgeProfile, PastRun
from safedelete.core.volume import Sample, Season, Usual, judge
from tests.unit.core.guard_cases import ages, look, measure, plan, ran, the

MIDDLE = 1 << 15
"""A covered day in the middle of a month."""


def night(
    value: float, weekday: int = 0, *, elapsed: float | None = 1.0, days: int = MIDDLE, weight: int = 1
) -> Sample:
    return Sample(value, Season(elapsed, weekday, days), weight)


def held(
    history: list[Sample], weekday: int = 0, *, elapsed: float | None = 1.0, days: int = MIDDLE
) -> Usual:
    return judge(history, Season(elapsed, weekday, days), small=50)


def spread(count: int, deviation: float) -> float:
    return sqrt((6 * 0.09 + count * deviation**2) / (6 + count))


@pytest.mark.parametrize("runs", [8, 28, 60, 90])
def test_floor(runs: int) -> None:
    found = held([night(1000)] * runs)
    room = max(1.6 + 3 / runs, exp(4 * spread(runs, 0)))
    assert found.limit == pytest.approx(1001 * room - 1)
    assert found.rule == ("floor" if room == 1.6 + 3 / runs else "spread")
    assert (found.runs, found.expected) == (runs, 1000)


def test_window_is_ninety_runs() -> None:
    found = held([night(9000)] * 50 + [night(1000)] * 90)
    assert found.runs == 90
    assert found.limit == pytest.approx(1001 * (1.6 + 3 / 90) - 1)


def test_spread_and_prior() -> None:
    # Ratios of ln 2 up and down in turn: median 0, MAD ln 2.
    values = [999, 499, 1999] * 10
    found = held([night(v) for v in values])
    r = log(2)
    assert found.expected == 999
    assert found.rule == "spread"
    assert found.headroom == pytest.approx(exp(4 * spread(30, 1.4826 * r)))


def test_seen_before_is_the_second_largest_to_the_power() -> None:
    found = held([night(1000)] * 26 + [night(8000), night(6000), *[night(1000)] * 3])
    assert found.rule == "seen before"
    assert found.headroom == pytest.approx((6001 / 1001) ** 1.65)


def test_seen_before_of_a_young_job_is_the_largest_times_the_floor() -> None:
    def room(runs: int) -> float:
        return held([night(4000), *[night(1000)] * (runs - 1)]).headroom

    assert room(19) == pytest.approx(4001 / 1001 * 1.6)
    assert room(20) == pytest.approx(max(1.6 + 3 / 20, exp(4 * spread(20, 0))))


def test_usual_counts_as_seen_twice() -> None:
    found = held([*[night(1000)] * 20, night(4000, weight=2), *[night(1000)] * 5])
    assert found.headroom == pytest.approx((4001 / 1001) ** 1.65)


def test_small_counts() -> None:
    found = held([night(3)] * 60)
    assert found.limit == pytest.approx((sqrt(3) + 1.5) ** 2)
    assert found.rule == "small counts"


def test_weekday_has_a_usual_of_its_own_from_its_second_run_by_its_last_eight() -> None:
    monday = [night(v, 0) for v in [9000] * 3 + [100] * 4 + [300] * 4]
    assert held(monday).expected == 200
    tuesdays = [night(1000, 1)] * 20
    assert held([*tuesdays, night(50, 0), night(70, 0)], 0).expected == 60
    once = held([*tuesdays, night(5000, 0)], 0, days=1 << 20)
    assert once.expected == 1000
    assert once.limit == pytest.approx(5000 * once.headroom)


def test_level_is_the_median_of_twenty_eight_runs() -> None:
    # Month edges give no weekday a usual of its own, so the level stands in.
    history = [night(9000, days=2)] * 20 + [night(100, days=2)] * 14 + [night(300, days=2)] * 14
    assert held(history).expected == 200


def test_nights_covered_add_their_own_weekdays() -> None:
    history = [night(100.0 * (1 + d), d) for _ in range(6) for d in range(7)]
    found = held(history, 2, elapsed=3.0)
    assert found.expected == 100 + 200 + 300
    assert found.limit == pytest.approx((600 + 3) * found.headroom - 3)
    assert held(history, 2, elapsed=1.4).expected == pytest.approx(300 * 1.4)
    assert held(history, 2, elapsed=0.1).expected == pytest.approx(300 * 0.25)
    assert held(history, 6, elapsed=56.0).expected == 8 * 2800
    assert found.usual_low == 300
    assert found.usual_high == 2100


def test_run_that_covers_more_than_a_night_does_not_teach_once_five_others_do() -> None:
    long = [night(3000, elapsed=1.5)] * 6
    assert held([*long, *[night(1000)] * 5]).expected == 1000
    assert held([*long, *[night(1000)] * 4]).expected == 1500
    assert held([*long[:1], *[night(1000)] * 5], elapsed=1.0).runs == 6


def test_first_run_stands_in_until_three_others_exist_unless_it_is_large() -> None:
    first = night(50, elapsed=None)
    assert held([first]).expected == 50
    assert held([night(51, elapsed=None)]).expected is None
    assert held([first, *[night(10)] * 2]).runs == 3
    assert held([first, *[night(10)] * 3]).runs == 3


def test_peak_day_of_the_month_may_take_twice_its_largest_peak() -> None:
    history = [night(1000, i % 7) for i in range(40)]
    history[10] = night(5000, 3, days=1 << 20)
    peak = held(history, 3, days=1 << 20)
    assert (peak.rule, peak.limit) == ("day of month", pytest.approx(2 * 5000))
    two = held(history, 3, elapsed=2.0, days=1 << 20)
    assert two.limit == pytest.approx(2 * 5000 + 2000 * two.headroom)
    history[10] = night(1900, 3, days=1 << 20)
    assert held(history, 3, days=1 << 20).rule != "day of month"


def test_peak_days_are_left_out_of_other_nights_headroom_once_they_were_seen_twice() -> None:
    history = [night(1000, i % 7) for i in range(60)]
    history[10] = history[40] = night(9000, 3, days=1 << 20)
    assert held(history, 4).headroom == pytest.approx(1.6 + 3 / 60)
    history[40] = night(9000, 3, days=1 << 21)
    assert held(history, 4).headroom == pytest.approx((9001 / 1001) ** 1.65)


def test_first_month_edge_may_take_six_times_usual_from_the_fourth_run() -> None:
    for bit in (1, 2):
        found = held([night(1000)] * 4, days=bit)
        assert (found.rule, found.limit) == ("first month edge", pytest.approx(1001 * 6 - 1))
        assert held([night(1000)] * 3, days=bit).rule != "first month edge"
        assert held([*[night(1000)] * 4, night(1000, days=bit)], days=bit).rule != "first month edge"
    assert held([*[night(1000)] * 4, night(1000, days=2)], days=1).rule == "first month edge"


def test_night_after_a_quiet_one_may_catch_up() -> None:
    full = [night(1000)] * 20
    found = held([*full, night(499)])
    assert (found.rule, found.limit) == ("after a quiet night", pytest.approx(2000 * found.headroom - 499))
    for last in (
        night(500),
        night(400, elapsed=1.5),
        night(400, elapsed=None),
        night(400, weight=0),
        night(400, 5),
    ):
        assert held([*full, last]).rule != "after a quiet night"
    assert held([*full, night(400)], elapsed=2.0).rule != "after a quiet night"


def test_far_too_few_is_a_fifth_or_the_headroom_squared() -> None:
    assert held([night(1000)] * 20).low == pytest.approx(1000 / 5)
    swing = held([night(v) for v in [999, 499, 1999] * 10])
    assert swing.low == pytest.approx(max(1.0, 999 / swing.headroom**2))
    assert held([night(20)] * 20).low == pytest.approx(4)
    assert held([night(19)] * 20).low == 0
    assert held([*[night(1000)] * 20, night(0), *[night(1000)] * 7]).low == 0
    assert held([*[night(1000)] * 20, night(0), *[night(1000)] * 8]).low > 0
    assert held([night(1000)] * 3).low == 0
    assert held([night(1000)] * 4).low > 0


# --- look-ahead -----------------------------------------------------------------------------------------------------


def seen(count: int, forecast: int, brought: list[int]) -> list[PastRun]:
    return [ran(plan(i, brought[i % len(brought)], ages=ages(forecast))) for i in range(count)]


def limit(history: list[PastRun]) -> float:
    return measure(look(plan(len(history), 100), history)).limit or 0.0


def error_spread(errors: int, deviation: float) -> float:
    return sqrt((5 * 0.18**2 + errors * deviation**2) / (5 + errors))


def test_tolerance_before_there_is_a_record() -> None:
    assert limit(seen(1, 1000, [1000])) == pytest.approx(1000 * exp(3.3 * 0.18))


def test_tolerance_of_perfect_forecasts_is_the_least() -> None:
    assert limit(seen(40, 1000, [1000])) == pytest.approx(1000 * exp(0.47))


def test_tolerance_adds_the_bias() -> None:
    assert limit(seen(40, 999, [1999])) == pytest.approx(999 * 2 * exp(0.47))
    assert limit(seen(40, 999, [699])) == pytest.approx(999 * exp(0.47))
    # Half of what is forecast comes: taken off as far as it is beyond the least tolerance.
    assert limit(seen(40, 999, [499])) == pytest.approx(999 / 2 * exp(0.47) * exp(0.47))


def test_tolerance_of_errors_that_swing() -> None:
    history = seen(61, 999, [999, 499, 1999])
    swing = 1.4826 * log(2)
    assert limit(history) == pytest.approx(999 * exp(3.3 * error_spread(60, swing)))


def test_tolerance_of_errors_between_two_values_is_not_nothing() -> None:
    history = seen(61, 999, [1999, 499])
    half = log(2)
    found = foresee_of(history)
    assert found.tolerance >= exp(3.3 * error_spread(60, half)) * 0.99


def test_second_worst_error_is_given_room_from_twenty_errors_on() -> None:
    calm = [1000] * 25
    calm[10], calm[15] = 5000, 4000
    history = [ran(plan(i, n, ages=ages(1000))) for i, n in enumerate(calm)]
    assert limit(history) == pytest.approx(1000 * (4001 / 1001) ** 1.3)
    assert limit(history[:20]) < 1000 * 2


def test_only_the_newest_sixty_errors_teach() -> None:
    wild = [ran(plan(i, 9000, ages=ages(1000))) for i in range(30)]
    calm = [ran(plan(30 + i, 1000, ages=ages(1000))) for i in range(61)]
    assert foresee_of([*wild, *calm]).errors == 60
    assert limit([*wild, *calm]) == pytest.approx(1000 * exp(0.47))


def test_few_rows_have_the_room_of_whole_numbers() -> None:
    assert limit(seen(30, 9, [9])) == pytest.approx((3 + 3) ** 2)


def test_forecast_of_the_runs_before_is_their_median() -> None:
    history = seen(30, 1000, [1000])
    history[29] = ran(plan(29, 1000, ages=ages([90_000, *[1000] * 20])))
    believed = foresee_of(history)
    assert believed.expected == 90_000
    assert believed.before == pytest.approx(1000 * exp(0.47))
    for i in (26, 27, 28):
        history[i] = ran(plan(i, 1000, ages=ages([1000] * (29 - i) + [90_000] + [1000] * 9)))
    halved = foresee_of(history)
    assert halved.before == pytest.approx(45_500 * exp(0.47), rel=0.01)


def test_far_fewer_than_forecast() -> None:
    assert foresee_of(seen(40, 1000, [1000])).low == pytest.approx(1000 / 5)
    assert foresee_of(seen(40, 20, [20])).low > 0
    assert foresee_of(seen(40, 19, [19])).low == 0


def foresee_of(history: list[PastRun]):  # type: ignore[no-untyped-def]
    from safedelete.core.baseline import nights, read

    tonight = plan(len(history), 100)
    past, damaged = nights(read(history, tonight.job, tonight.as_of), "events")
    assert damaged == 0
    found = foresee(past, tonight, tonight.targets[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("start", "end", "rows"),
    [
        (0, 1, 10),
        (0, 2, 30),
        (0.5, 1, 5),
        (0.5, 1.5, 15),
        (1, 1, 0),
        (-1, 0, 7),
        (-0.5, 0.5, 8.5),
        (2, 3, 0),
        (3, 9, 40),
    ],
)
def test_part_of_a_day_counts_in_proportion(start: float, end: float, rows: float) -> None:
    profile = AgeProfile(days=((-1, 7), (0, 10), (1, 20), (3, 40)), ahead=9)
    assert between(profile, start, end) == pytest.approx(rows)


def test_a_picture_of_damaged_numbers_is_none() -> None:
    assert profile(plan(0, ages=ages(100)).targets[0]) is not None
    assert profile(plan(0, ages=ages(100, older=-1)).targets[0]) is None
    assert profile(plan(0, ages=ages([100, -1])).targets[0]) is None


def test_what_a_run_left_behind_by_damaged_numbers_is_nothing() -> None:
    (target,) = plan(0, 100).targets
    assert left_behind(ran(plan(0, 100), deleted=60, over={"events": 10}), target, 100) == 30
    assert left_behind(ran(plan(0, 100), deleted=60, over={"events": -50}), target, 100) == 0
    assert left_behind(ran(plan(0, 100), deleted=-60), target, 100) == 0


def test_late_rows_that_others_nights_had_twice_are_given_double_room() -> None:
    history = seen(20, 1000, [1000])
    late = [ran(plan(i, 1000, ages=ages(1000), late=400 if i in (5, 9) else 0)) for i in range(20)]
    decision = look(plan(20, 1900, late=801), late)
    assert the(decision, "SD212").numbers["limit"] == 800
    assert the(look(plan(20, 1500, late=501), history), "SD212").numbers["limit"] == 500


def test_bias_is_learned_from_the_third_error_on() -> None:
    assert limit(seen(3, 999, [1999])) == pytest.approx(999 * exp(3.3 * error_spread(2, 0)))
    assert limit(seen(4, 999, [1999])) == pytest.approx(999 * 2 * exp(0.47))


def test_two_late_nights_are_enough_to_give_late_rows_room() -> None:
    late = [ran(plan(i, 1000, ages=ages(1000), late=400)) for i in range(2)]
    assert the(look(plan(2, 1500, late=801), late), "SD212").numbers["limit"] == 800
    assert the(look(plan(1, 1500, late=801), late[:1]), "SD212").numbers["limit"] == 500


def test_forecast_reaches_as_far_as_the_picture_and_no_further() -> None:
    history = seen(1, 100, [100])
    assert measure(look(plan(30, 3000), history)).forecast == 3000
    assert measure(look(plan(30.25, 3000), history)).forecast is None


def test_errors_of_one_off_nights_teach_nothing_and_of_usual_ones_twice() -> None:
    history = seen(30, 1000, [1000])
    once = [*history[:10], ran(plan(10, 9000, ages=ages(1000)), teaches=0), *history[11:]]
    assert foresee_of(history).errors == 29
    assert foresee_of(once).errors == 28
    twice = [*history[:10], ran(plan(10, 4000, ages=ages(1000)), teaches=2), *history[11:]]
    assert foresee_of(twice).errors == 30
    assert limit(twice) == pytest.approx(1000 * (4001 / 1001) ** 1.3)


@pytest.mark.parametrize(
    ("forecast", "brought", "errors"), [(19, 19, 0), (20, 20, 9), (5, 20, 9), (20, 5, 9), (5, 19, 0)]
)
def test_errors_of_a_few_rows_teach_nothing(forecast: int, brought: int, errors: int) -> None:
    assert foresee_of(seen(10, forecast, [brought])).errors == errors


def test_second_worst_of_twenty_errors_is_the_first_to_give_room() -> None:
    counts = [1000] * 22
    counts[10], counts[15] = 5000, 4000
    history = [ran(plan(i, n, ages=ages(1000))) for i, n in enumerate(counts)]
    assert limit(history[:21]) == pytest.approx(1000 * (4001 / 1001) ** 1.3)
    assert limit(history[:20]) < 2000


def test_three_errors_are_enough_to_learn_half_their_range_from() -> None:
    history = [ran(plan(i, n, ages=ages(999))) for i, n in enumerate([999, 999, 999, 3999])]
    assert limit(history) == pytest.approx(999 * exp(3.3 * error_spread(3, log(2))))


def test_range_of_the_errors_leaves_out_a_sixth_at_either_end() -> None:
    # Ten steps between eleven errors: the second highest and the second lowest are left out, the third is not.
    def tolerance(odd: int, brought: int) -> float:
        counts = [999] * 12
        counts[2 : 2 + odd] = [brought] * odd
        return foresee_of([ran(plan(i, n, ages=ages(999))) for i, n in enumerate(counts)]).tolerance

    for brought in (124, 7999):
        assert tolerance(2, brought) == pytest.approx(exp(0.47))
        assert tolerance(3, brought) == pytest.approx(exp(3.3 * error_spread(11, log(8) / 2)))


def test_far_fewer_than_a_wide_tolerance_is_its_square() -> None:
    young = foresee_of(seen(1, 1000, [1000]))
    assert young.low == pytest.approx(1000 / 5)
    wild = foresee_of(seen(61, 999, [999, 499, 1999]))
    assert wild.low == pytest.approx(999 / wild.tolerance**2)


def test_plan_with_the_cutoff_of_the_last_run_should_bring_nothing() -> None:
    found = measure(look(plan(4, 10), seen(5, 100, [100])))
    assert (found.forecast, found.limit, found.verdict) == (0, (0 + 3) ** 2, "stop")


def test_error_of_the_first_run_after_another_definition_teaches_nothing() -> None:
    history = seen(20, 1000, [1000])
    history[10] = ran(plan(10, 1000, ages=ages(1000), fingerprint="other"))
    # Nine errors before it; then the first run covers an unknown time, and eight more follow.
    assert foresee_of(history).errors == 9 + 8
