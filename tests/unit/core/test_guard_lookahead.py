"""Layer 2, cold start, backlogs: what the time column says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from safedelete.core.plan import PastRun, Unknown
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


def foreseen(counts: list[int], *, first: int = 0, coming: int = 30) -> list[PastRun]:
    """Runs whose profiles saw what the next nights bring, exactly."""
    after = [*counts, *([counts[-1]] * coming)]
    return [ran(plan(first + i, n, ages=ages(after[i + 1 : i + 1 + coming]))) for i, n in enumerate(counts)]


def test_heavy_night_that_was_seen_coming_passes() -> None:
    history = foreseen([100] * 20 + [100])
    heavy = [ran(plan(i, 100, ages=ages([100] * (20 - i) + [3000] + [100] * 5))) for i in range(21)]
    assert codes(look(plan(21, 3000), history)) == ["SD210"]
    decision = look(plan(21, 3000), heavy)
    assert approved(decision)
    assert (measure(decision).forecast, measure(decision).rule) == (3000, "forecast")


def test_double_of_what_was_forecast_refuses_though_the_volume_rule_would_pass_it() -> None:
    counts = [100, 250, 90, 260, 110, 240, 100] * 6
    history = foreseen([*counts, 100])
    assert approved(look(plan(43, 140), history))
    assert codes(look(plan(43, 200), history)) == ["SD210"]
    without = nightly([*counts, 100])
    assert approved(look(plan(43, 200), without))


def test_a_last_run_that_did_not_say_its_cutoff_foresees_nothing() -> None:
    history = foreseen([100] * 21)
    history[-1] = ran(plan(20, 100, ages=ages(100), cutoff=None))
    decision = look(plan(21, 100), history)
    assert measure(decision).forecast is None


def test_tolerance_is_learned_from_the_jobs_own_errors() -> None:
    wrong = [ran(plan(i, 1000 if i % 2 else 1700, ages=ages(1300))) for i in range(30)]
    right = [ran(plan(i, 1300, ages=ages(1300))) for i in range(30)]
    assert approved(look(plan(30, 2400), wrong))
    assert codes(look(plan(30, 2400), right)) == ["SD210"]


def test_bias_is_learned_too() -> None:
    history = [ran(plan(i, 1500, ages=ages(1000))) for i in range(30)]
    assert approved(look(plan(30, 2000), history))
    assert codes(look(plan(30, 2600), history)) == ["SD210"]


def test_one_wild_error_widens_nothing() -> None:
    clean = [ran(plan(i, 1000, ages=ages(1000))) for i in range(30)]
    wild = [*clean[:20], ran(plan(20, 9000, ages=ages(1000))), *clean[21:]]
    assert measure(look(plan(30, 1000), wild)).limit == measure(look(plan(30, 1000), clean)).limit


def test_forecast_that_only_the_last_run_made_is_not_believed_beyond_the_usual() -> None:
    history = [ran(plan(i, 100, ages=ages(100))) for i in range(30)]
    announced = [*history[:-1], ran(plan(29, 100, ages=ages([50_000, *[100] * 20])))]
    decision = look(plan(30, 50_000), announced)
    assert codes(decision) == ["SD211"]
    assert measure(decision).rule == "forecast jumped"
    assert measure(decision).forecast == 50_000


def test_jump_within_the_usual_volume_is_believed() -> None:
    history = [ran(plan(i, 60 + 40 * (i % 3), ages=ages(100))) for i in range(30)]
    history[-1] = ran(plan(29, 100, ages=ages([700, *[100] * 20])))
    assert codes(look(plan(30, 200), history)) == []
    assert codes(look(plan(30, 700), history)) == ["SD211"]


@pytest.mark.parametrize("state", ["refused", "failed", "incomplete", "pending"])
def test_forecast_of_a_run_that_did_not_succeed_is_not_used(state: str) -> None:
    history = [ran(plan(i, 100, ages=ages(100))) for i in range(20)]
    other = ran(plan(20, 100, ages=ages(9000)), state=state, deleted=0)
    tonight = plan(21, 200)
    assert look(tonight, [*history, other]).measures == look(tonight, history).measures


def test_forecast_of_another_definition_is_not_used() -> None:
    history = [ran(plan(i, 100, ages=ages(9000), fingerprint="old")) for i in range(20)]
    decision = look(plan(20, 100), history)
    assert codes(decision) == ["SD110"]
    assert measure(decision).forecast is None


def test_gap_adds_up_the_days_it_covers() -> None:
    history = [ran(plan(i, 100, ages=ages([100, 200, 300, 400]))) for i in range(20)]
    assert measure(look(plan(22, 600), history)).forecast == 600
    assert measure(look(plan(20.5, 150), history)).forecast == 200


def test_gap_longer_than_the_picture_falls_back_to_the_volume_rule() -> None:
    history = [ran(plan(i, 100, ages=ages(100))) for i in range(20)]
    found = measure(look(plan(19 + 31, 3100), history))
    assert found.forecast is None
    assert found.expected == pytest.approx(3100)


def test_picture_missing_last_night_is_taken_from_the_run_before() -> None:
    history = [ran(plan(i, 100, ages=ages([100, 777, 100]))) for i in range(20)]
    history.append(ran(plan(20, 100, ages=Unknown("timeout"))))
    assert measure(look(plan(21, 100), history)).forecast == 777


def test_few_rows_are_noise_whatever_the_forecast() -> None:
    history = [ran(plan(i, 3, ages=ages(3))) for i in range(30)]
    assert approved(look(plan(30, 20), history))
    assert codes(look(plan(30, 40), history)) == ["SD210"]


def test_far_fewer_than_forecast_warns() -> None:
    history = [ran(plan(i, 100, ages=ages(100))) for i in range(5)]
    assert codes(look(plan(5, 10), history), "warn") == ["SD206"]
    assert codes(look(plan(5, 60), history), "warn") == []


def test_rows_back_dated_by_a_mass_update_are_named_with_the_age_profile() -> None:
    history = [ran(plan(i, 1000, ages=ages(1000), late=0)) for i in range(30)]
    profile = ages(1000, back=[(-400, 0), (-12, 5000), (-1, 1000)], older=40)
    decision = look(plan(30, 6000, late=5000, ages=profile), history)
    assert codes(decision) == ["SD210", "SD212"]
    message = the(decision, "SD212").message
    assert "5,000 items became eligible out of time" in message
    assert "5,000 at 12 days before the cutoff" in message
    assert "40 more than 60 days before" in message


def test_rows_out_of_time_are_named_even_where_their_number_would_pass() -> None:
    history = [ran(plan(i, 100_000, ages=ages(100_000), late=0)) for i in range(30)]
    decision = look(plan(30, 105_000, late=5000), history)
    assert approved(decision)
    assert codes(decision, "warn") == ["SD300"]
    assert measure(decision).verdict == "warn"


def test_rows_out_of_time_refuse_by_themselves_from_half_of_what_is_expected() -> None:
    history = [ran(plan(i, 1000, ages=ages(1000), late=0)) for i in range(30)]
    assert codes(look(plan(30, 1400, late=500), history)) == []
    assert codes(look(plan(30, 1400, late=501), history)) == ["SD212"]


def test_job_that_always_gets_late_rows_is_not_told_every_night() -> None:
    history = [ran(plan(i, 1000, ages=ages(700), late=300)) for i in range(30)]
    assert codes(look(plan(30, 1000, late=300), history), "warn") == []


def test_heavy_night_that_was_foreseen_is_heavy_in_its_parts() -> None:
    after = [100] * 20 + [1000]
    history = [ran(plan(i, 100, objects=200, ages=ages(after[i + 1 :] or [1000]))) for i in range(20)]
    assert codes(look(plan(20, 1000, objects=2000), history)) == []
    assert codes(look(plan(20, 1000, objects=20_000), history)) == ["SD202"]


def test_whole_table_passes_the_share_only_where_it_was_seen_coming() -> None:
    after = [100] * 20 + [800]
    history = [ran(plan(i, 100, ageless=1000, ages=ages(after[i + 1 :] or [800]))) for i in range(20)]
    assert codes(look(plan(20, 800, ageless=1000), history)) == []
    assert codes(look(plan(20, 950, ageless=1000), history)) == ["SD114"]


# --- cold start -----------------------------------------------------------------------------------------------------


def test_first_run_without_a_time_column_waits_for_a_person() -> None:
    decision = look(plan(0, 5, total=50), ())
    assert codes(decision) == ["SD200"]
    assert "5 of 50 (10.0%)" in the(decision, "SD200").message


def test_nothing_to_delete_is_approved_on_the_first_night() -> None:
    decision = look(plan(0, 0), ())
    assert approved(decision)
    assert codes(decision, "warn") == []


def test_nothing_to_delete_is_refused_where_something_is_unknown() -> None:
    assert codes(look(plan(0, 0, objects=Unknown("denied")), ())) == ["SD100"]


def test_normal_first_night_passes_by_the_time_column_and_says_so() -> None:
    decision = look(plan(0, 130, ages=ages(100, back=[(-1, 130)])), ())
    assert approved(decision)
    assert codes(decision, "warn") == ["SD304"]
    found = measure(decision)
    assert found.rule.startswith("provisional")
    assert (found.runs, found.expected) == (0, 100)


def test_retention_of_9_days_instead_of_90_is_refused_on_the_first_night() -> None:
    back = [(-d, 100) for d in range(1, 61)]
    wrecked = plan(
        0, 8100, ages=ages([100] * 9, back=back, older=2100), period=9 * DAY, cutoff=START - 9 * DAY
    )
    decision = look(wrecked, ())
    assert codes(decision) == ["SD205"]
    assert "8,100" in the(decision, "SD205").message


def test_retention_of_nothing_has_no_day_ahead_and_is_refused() -> None:
    wrecked = plan(
        0,
        9000,
        ages=ages([], back=[(-1, 100)], older=8900),
        period=timedelta(hours=1),
        cutoff=START - DAY / 24,
    )
    assert codes(look(wrecked, ())) == ["SD200"]


def test_days_that_are_still_being_written_do_not_count_as_a_low_night() -> None:
    short = plan(0, 100, ages=ages([100, 100, 100, 5]), period=3.5 * DAY, cutoff=START - 3.5 * DAY)
    assert measure(look(short, ())).expected == 100


def test_empty_days_at_the_far_end_are_not_the_jobs_usual() -> None:
    expiring = plan(0, 100, ages=ages([100] * 5), period=timedelta(0), cutoff=START)
    assert approved(look(expiring, ()))
    assert codes(look(plan(0, 600, ages=ages([100] * 5), period=timedelta(0), cutoff=START), ())) == ["SD205"]


def test_second_night_is_held_against_the_first_nights_forecast() -> None:
    first = [ran(plan(0, 100, ages=ages(100)))]
    assert approved(look(plan(1, 120, ages=ages(100)), first))
    assert codes(look(plan(1, 1000, ages=ages(100)), first)) == ["SD210"]


def test_first_nights_without_look_ahead_have_the_headroom_of_youth() -> None:
    history = nightly([100, 100])
    assert approved(look(plan(2, 300), history))
    assert codes(look(plan(2, 1000), history)) == ["SD201"]


def test_backlog_that_a_person_accepted_is_not_what_a_night_takes() -> None:
    history = [ran(plan(0, 900_000, total=1_000_000)), *nightly([100], first=1)]
    assert codes(look(plan(2, 5000, total=100_000), history)) == ["SD201"]


# --- portions -------------------------------------------------------------------------------------------------------


def drained(nights: int, *, whole: int = 100_000, portion: int = 10_000, inflow: int = 100) -> list[PastRun]:
    """The nights of a backlog that is drained a portion at a time."""
    runs = []
    for night in range(nights):
        items = min(portion, whole)
        runs.append(ran(plan(night, items, eligible=whole, portion=portion, ages=ages(inflow))))
        whole += inflow - items
    return runs


def test_first_portion_of_a_backlog_waits_for_a_person_and_says_how_long_it_takes() -> None:
    tonight = plan(0, 10_000, eligible=100_000, portion=10_000, ages=ages(100))
    decision = look(tonight, ())
    assert codes(decision) == ["SD205"]
    said = the(decision, "SD306")
    assert "a portion of 10,000 of 100,000, oldest first; about 10 more runs" in said.message
    assert measure(decision).tonight == 100_000


def test_next_portion_passes_because_the_rest_was_accepted_before() -> None:
    history = drained(3)
    tonight = plan(3, 10_000, eligible=70_300, portion=10_000, ages=ages(100))
    decision = look(tonight, history)
    assert approved(decision)
    assert "about 7 more runs" in the(decision, "SD306").message
    assert measure(decision).expected == 70_300


def test_wrecked_cutoff_is_seen_in_the_whole_though_the_portion_stays_the_same() -> None:
    tonight = plan(3, 10_000, eligible=500_000, portion=10_000, ages=ages(100))
    assert codes(look(tonight, drained(3))) == ["SD210"]


def test_portion_never_teaches_what_is_usual() -> None:
    history = drained(11)
    tonight = plan(11, 5000, eligible=5000, portion=10_000)
    decision = look(tonight, history)
    assert measure(decision).runs == 0
    assert codes(decision) == ["SD210"]


def test_after_the_backlog_nights_teach_again() -> None:
    history = drained(20)
    found = measure(look(plan(20, 100, portion=10_000, ages=ages(100)), history))
    assert found.runs == 9
    assert found.expected == 100


def test_backlog_without_end_is_said_to_have_none() -> None:
    history = drained(3, inflow=20_000)
    tonight = plan(3, 10_000, eligible=130_000, portion=10_000, ages=ages(20_000))
    assert "no end" in the(look(tonight, history), "SD306").message


def test_blocked_rows_that_come_back_every_night_are_not_new() -> None:
    history = [ran(plan(i, 600, ages=ages(100)), deleted=100) for i in range(20)]
    decision = look(plan(20, 600, ages=ages(100)), history)
    assert approved(decision)
    assert measure(decision).expected == 600
    assert codes(look(plan(20, 1100), history)) == ["SD210"]


def test_objects_of_a_portion_are_bounded_by_the_portion() -> None:
    history = [ran(plan(0, 10, eligible=1000, portion=10, objects=20, ages=ages(5)))]
    decision = look(plan(1, 10, eligible=995, portion=10, objects=40, ages=ages(5)), history)
    assert measure(decision, "objects").rule == "portion, floor"
    assert approved(decision)
    decision = look(plan(1, 10, eligible=995, portion=10, objects=400, ages=ages(5)), history)
    assert codes(decision) == ["SD202"]


def test_future_days_are_read_off_the_picture_in_proportion() -> None:
    history = [
        ran(plan(i, 240, ages=ages([240, 120, 0, 0]), cutoff=START + i * DAY - KEEP)) for i in range(5)
    ]
    assert measure(look(plan(4.25, 60), history)).forecast == 60
    assert measure(look(plan(5.5, 300), history)).forecast == 300


def test_provisional_baseline_is_never_counted_as_runs() -> None:
    history = [ran(plan(i, 0)) for i in range(3)]
    found = measure(look(plan(3, 110, ages=ages(100)), history))
    assert (found.runs, found.rule.split(",")[0]) == (0, "provisional")


def test_a_forecast_made_before_another_definition_ran_is_not_used() -> None:
    history = nightly([100] * 20, ages=ages(100))
    history.append(ran(plan(20, 100, fingerprint="two", ages=ages(100))))
    assert measure(look(plan(21, 100), history)).forecast is None
    assert measure(look(plan(21, 100), history[:-1])).forecast is not None


def test_nothing_is_foreseen_for_a_cutoff_that_went_back() -> None:
    history = nightly([100] * 20, ages=ages(100))
    back = look(plan(20, 100, cutoff=START + 18 * DAY - KEEP), history)
    assert measure(back).forecast is None
