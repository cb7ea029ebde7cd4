"""Silence is told: what should have succeeded by now, from the schedule alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedelete.core.run import RunState
from safedelete.core.schedule import parse
from safedelete.core.status import Health, JobStory, Seen, judge

S = RunState
MINUTE = timedelta(minutes=1)
TIMEOUT, GRACE = 20 * MINUTE, timedelta(seconds=20)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def seen(began: str, state: RunState = S.SUCCEEDED, *, refused: bool = False, run: str = "RUN1") -> Seen:
    return Seen(run=run, state=state, began_at=at(began), refused=refused, why="because.")


def stands(
    now: str,
    *runs: Seen,
    schedule: str = "cron(0 3 * * ? *)",
    zone: str = "UTC",
    declared: str | None = None,
    paused: str | None = None,
    unpaused: str | None = None,
) -> Health:
    story = JobStory(
        name="purge",
        schedule=parse(schedule, zone),
        timeout=TIMEOUT,
        grace=GRACE,
        runs=runs,
        declared_at=None if declared is None else at(declared),
        paused_since=None if paused is None else at(paused),
        unpaused_at=None if unpaused is None else at(unpaused),
    )
    return judge(story, at(now))


def kinds(health: Health) -> list[str]:
    return [problem.kind for problem in health.problems]


def test_a_job_that_succeeded_last_night_is_well() -> None:
    health = stands("2026-03-10 12:00", seen("2026-03-10 03:00:31"))
    assert (health.ok, health.word, health.due) == (True, "ok", at("2026-03-11 03:20:20"))


@pytest.mark.parametrize(
    ("now", "missed"),
    [
        ("2026-03-11 03:20:20", 0),
        ("2026-03-11 03:20:21", 1),
        ("2026-03-12 03:20:00", 1),
        ("2026-03-12 03:20:21", 2),
        ("2026-09-26 12:00:00", 200),
        ("2036-03-11 12:00:00", 1000),
    ],
)
def test_runs_that_were_skipped_are_counted_from_the_moment_they_had_to_be_over(
    now: str, missed: int
) -> None:
    health = stands(now, seen("2026-03-10 03:00:31"))
    assert (kinds(health), health.missed) == ((["overdue"], missed) if missed else ([], 0))
    if missed:
        said = health.problems[0].message
        assert (
            "1,000 runs or more" if missed == 1000 else f"{missed} run{'s' if missed > 1 else ''} "
        ) in said
        assert "the first by 2026-03-11 03:20 UTC; the last success began 2026-03-10 03:00 UTC" in said


def test_a_run_that_is_at_work_within_its_deadline_is_not_overdue() -> None:
    working = seen("2026-03-20 03:00", S.RUNNING, run="RUN2")
    health = stands("2026-03-20 03:20", seen("2026-03-10 03:00"), working)
    assert (health.ok, health.word) == (True, "running")
    health = stands("2026-03-20 03:20:21", seen("2026-03-10 03:00"), working)
    assert kinds(health) == ["late", "overdue"]
    assert (
        "RUN2 began 2026-03-20 03:00 UTC and had to end by 2026-03-20 03:20 UTC" in health.problems[0].message
    )


@pytest.mark.parametrize(
    ("state", "refused", "bad"),
    [
        (S.FAILED, False, True),
        (S.REFUSED, True, True),
        (S.INCOMPLETE, False, True),
        (S.INTERRUPTED, False, True),
        (S.CRASHED, False, True),
        (S.ABANDONED, False, True),
        (S.EXPIRED, True, True),
        (S.EXPIRED, False, False),
        (S.CANCELLED, False, False),
        (S.PENDING, False, False),
        (S.SUCCEEDED, False, False),
    ],
)
def test_the_last_run_speaks_for_the_job_unless_a_person_ended_it(
    state: RunState, refused: bool, bad: bool
) -> None:
    last = seen("2026-03-10 03:00", state, refused=refused, run="RUN2")
    health = stands("2026-03-10 12:00", seen("2026-03-09 03:00"), last)
    assert ("failed" in kinds(health)) == bad
    if bad:
        assert f"RUN2, ended {state.value}: because" in health.problems[0].message


def test_a_cancelled_run_that_left_failures_has_failed() -> None:
    left = replace(seen("2026-03-10 03:00", S.CANCELLED, run="RUN2"), failed=True)
    good = seen("2026-03-09 03:00")
    assert kinds(stands("2026-03-10 03:10", good, left)) == ["failed"]
    assert kinds(stands("2026-03-10 03:10", good, replace(left, failed=False))) == []


def test_a_run_from_the_future_does_not_hide_what_failed_since() -> None:
    health = stands(
        "2026-03-10 12:00",
        seen("2027-03-10 03:00", run="RUN1"),
        seen("2026-03-10 03:00", S.FAILED, run="RUN2"),
    )
    assert not health.ok
    assert "run RUN1 began" in health.problems[0].message
    assert kinds(stands("2026-03-10 03:00:00", seen("2026-03-10 03:00:31"))) == []


def test_a_declaration_or_an_end_of_a_pause_from_the_future_hides_no_missing_run() -> None:
    health = stands("2026-03-12 12:00", declared="2036-03-09 12:00")
    assert kinds(health) == ["never ran"]
    health = stands("2026-03-12 12:00", seen("2026-03-10 03:00", S.FAILED), declared="2036-03-09 12:00")
    assert kinds(health) == ["failed", "overdue"]
    health = stands("2026-03-12 12:00", seen("2026-03-10 03:00"), unpaused="2036-03-09 12:00")
    assert (kinds(health), health.missed) == (["overdue"], 2)
    assert stands("2026-03-10 03:00", declared="2026-03-10 03:00:31").ok, (
        "clocks need not agree to the second"
    )


def test_a_success_after_a_failure_makes_it_well_again() -> None:
    health = stands(
        "2026-03-10 12:00", seen("2026-03-10 03:00", S.FAILED), seen("2026-03-10 09:00", run="RUN2")
    )
    assert health.ok


def test_a_job_deployed_yesterday_whose_first_run_is_not_due_is_well() -> None:
    health = stands("2026-03-10 02:00", declared="2026-03-09 12:00")
    assert (health.ok, health.word, health.due) == (True, "not due yet", at("2026-03-10 03:20:20"))
    health = stands("2026-03-10 03:20:21", declared="2026-03-09 12:00")
    assert kinds(health) == ["never ran"]
    assert "declared since 2026-03-09 12:00 UTC; 1 run should have succeeded" in health.problems[0].message


def test_a_job_that_never_ran_and_was_never_declared_is_not_taken_for_a_new_one() -> None:
    health = stands("2026-03-10 02:00")
    assert kinds(health) == ["never ran"]
    assert "safedelete init FILE" in health.problems[0].message


def test_a_job_that_has_only_failed_is_overdue_and_failed() -> None:
    health = stands("2026-03-12 12:00", seen("2026-03-10 03:00", S.FAILED), declared="2026-03-09 12:00")
    assert kinds(health) == ["failed", "overdue"]
    assert "none has yet" in health.problems[1].message


def test_a_paused_job_owes_nothing_and_is_shown_as_paused() -> None:
    health = stands(
        "2026-09-10 12:00",
        seen("2026-03-10 03:00"),
        declared="2026-03-09 12:00",
        paused="2026-03-10 04:00",
    )
    assert (health.ok, health.word, health.paused) == (True, "paused", True)
    assert stands("2026-09-10 12:00", paused="2026-03-10 04:00").ok, "nor does one that never ran"


def test_a_pause_does_not_hide_that_the_job_had_failed() -> None:
    health = stands("2026-09-10 12:00", seen("2026-03-10 03:00", S.FAILED), paused="2026-03-10 04:00")
    assert (kinds(health), health.word, health.paused) == (["failed"], "failed", True)


def test_a_paused_job_that_is_at_work_past_its_deadline_is_told_all_the_same() -> None:
    health = stands("2026-03-10 12:00", seen("2026-03-10 03:00", S.RUNNING), paused="2026-03-10 04:00")
    assert kinds(health) == ["late"]


def test_after_a_pause_the_next_run_is_waited_for() -> None:
    runs = seen("2026-03-10 03:00")
    assert stands("2026-06-01 12:00", runs, unpaused="2026-06-01 09:00").ok
    assert kinds(stands("2026-06-02 12:00", runs, unpaused="2026-06-01 09:00")) == ["overdue"]


def test_a_success_a_moment_before_its_time_is_the_run_of_that_time() -> None:
    assert stands("2026-03-10 12:00", seen("2026-03-10 02:59:58")).ok
    assert kinds(stands("2026-03-10 12:00", seen("2026-03-10 02:30"))) == ["overdue"]


def test_a_success_of_a_job_that_runs_every_minute_is_not_taken_for_the_next_ones() -> None:
    story = JobStory(
        name="beat",
        schedule=parse("* * * * *"),
        timeout=timedelta(seconds=30),
        grace=timedelta(seconds=10),
        runs=[seen("2026-03-10 03:00:00")],
    )
    assert judge(story, at("2026-03-10 03:01:41")).due == at("2026-03-10 03:01:40")
    early = replace(story, runs=[seen("2026-03-10 02:59:45")])
    assert judge(early, at("2026-03-10 03:01")).due == at("2026-03-10 03:01:40")


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        # On AWS 02:30 does not exist on 2026-03-29 in Berlin; the night after is the next run. Cron runs it at 03:00.
        ("cron(30 2 * * ? *)", "2026-03-30 00:50:20"),
        ("30 2 * * *", "2026-03-29 01:20:20"),
    ],
)
def test_the_night_that_summer_time_skips_is_due_as_its_platform_runs_it(schedule: str, due: str) -> None:
    health = stands("2026-03-28 12:00", seen("2026-03-28 01:30"), schedule=schedule, zone="Europe/Berlin")
    assert health.due == at(due)


def test_the_night_that_winter_time_repeats_owes_one_run() -> None:
    run = seen("2026-10-25 00:30")  # 02:30 summer time; 02:30 winter time is 01:30 UTC
    health = stands("2026-10-25 12:00", run, schedule="cron(30 2 * * ? *)", zone="Europe/Berlin")
    assert (health.ok, health.due) == (True, at("2026-10-26 01:50:20"))


def test_a_schedule_of_weekdays_is_due_the_next_weekday_not_after_its_longest_gap() -> None:
    weekdays = "cron(0 3 ? * MON-FRI *)"
    assert kinds(stands("2026-03-10 12:00", seen("2026-03-09 03:00"), schedule=weekdays)) == ["overdue"]
    assert stands("2026-03-15 12:00", seen("2026-03-13 03:00"), schedule=weekdays).ok


def test_a_rate_counts_from_the_last_success_since_only_the_scheduler_knows_its_start() -> None:
    runs = seen("2026-03-10 07:13")
    assert stands("2026-03-10 08:33:20", runs, schedule="rate(1 hour)").ok
    health = stands("2026-03-10 10:33:21", runs, schedule="rate(1 hour)")
    assert (kinds(health), health.missed) == (["overdue"], 3)


ONCE = "cron(0 3 10 3 ? 2026)"


@pytest.mark.parametrize("schedule", ["cron(0 3 1 1 ? 2020)", "Wed 2020-*-* 03:00", "0 3 1 1 *"])
def test_a_job_whose_years_are_over_is_told_and_one_whose_are_not_is_not(schedule: str) -> None:
    health = stands("2026-03-10 12:00", schedule=schedule, declared="2026-03-09 12:00")
    if "2020" not in schedule:
        assert health.ok
        return
    assert (kinds(health), health.word, health.missed) == (["ended"], "ended", 0)
    assert f"{schedule!r} had its last run 2020-" in health.problems[0].message


def test_a_schedule_whose_last_run_is_past_owes_no_more_and_is_told_as_ended() -> None:
    health = stands("2027-03-10 12:00", seen("2026-03-10 03:00"), schedule=ONCE)
    assert (kinds(health), health.missed) == (["ended"], 0)
    assert "had its last run 2026-03-10 03:00 UTC, and never runs again" in health.problems[0].message
    assert "take it out of the job file" in health.problems[0].message


def test_the_last_run_is_waited_for_before_its_job_is_told_as_ended() -> None:
    waiting = {"schedule": ONCE, "declared": "2026-03-09 12:00"}
    assert stands("2026-03-10 02:59", **waiting).ok
    assert stands("2026-03-10 03:20:20", **waiting).ok
    assert kinds(stands("2026-03-10 03:20:21", **waiting)) == ["never ran", "ended"]
    working = seen("2026-03-10 03:05", S.RUNNING)
    assert stands("2026-03-10 03:25:20", working, **waiting).word == "running"


def test_a_paused_job_whose_years_are_over_is_left_alone() -> None:
    assert stands("2027-03-10 12:00", schedule=ONCE, paused="2027-01-01 09:00").word == "paused"


SCHEDULES = ["cron(0 3 * * ? *)", "rate(6 hours)", "*/20 * * * *", "cron(30 2 ? * MON-FRI *)", "0 4 1 * *"]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SCHEDULES),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    st.integers(0, 500 * 24 * 60),
    st.integers(0, 60 * 24 * 60),
)
def test_no_success_is_missed_for_longer_than_longest_gap_timeout_and_grace(
    schedule: str, zone: str, began: int, later: int
) -> None:
    start = at("2026-01-01") + began * MINUTE
    now = start + later * MINUTE
    story = JobStory(
        name="purge",
        schedule=parse(schedule, zone),
        timeout=TIMEOUT,
        grace=GRACE,
        runs=[Seen(run="R", state=S.SUCCEEDED, began_at=start)],
    )
    health = judge(story, now)
    longest = story.schedule.gaps(start - timedelta(days=40)).longest
    assert longest is not None
    if now - start > longest + TIMEOUT + GRACE + MINUTE:
        assert kinds(health) == ["overdue"]
        assert health.missed >= 1
    assert health.due is not None
    assert health.ok == (now <= health.due)
