"""Each lint rule fires at its limit, and not one step inside it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.lint import JobFacts, lint
from safedelete.core.schedule import parse

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)
SOUND = JobFacts(
    name="sound",
    kind="purge",
    schedule=parse("15 3 * * *"),
    timeout=20 * MINUTE,
    grace=20 * SECOND,
    stop_timeout=120 * SECOND,
    successes=(5 * MINUTE, 8 * MINUTE),
    limited=True,
    lease=60 * SECOND,
    batch=5 * SECOND,
    lock="sound",
    ledger="durable",
    alarm="cloudwatch",
)


def codes(facts: JobFacts) -> list[str]:
    return [finding.code for finding in lint([facts], NOW)]


def test_a_sound_job_breaks_no_rule() -> None:
    assert codes(SOUND) == []


def test_what_is_unknown_breaks_no_rule() -> None:
    assert (
        codes(JobFacts(name="bare", kind="job", schedule=SOUND.schedule, timeout=HOUR, grace=20 * SECOND))
        == []
    )


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        ({"timeout": DAY}, "SD401", "refuse"),
        ({"timeout": DAY - 10 * MINUTE, "spread": 10 * MINUTE}, "SD401", "refuse"),
        ({"timeout": 23 * HOUR, "schedule": parse("15 3 * * *", "Europe/Berlin")}, "SD401", "refuse"),
        ({"timeout": 8 * MINUTE}, "SD402", "warn"),
        ({"timeout": 20 * HOUR}, "SD402", "warn"),
        ({"grace": 120 * SECOND}, "SD403", "refuse"),
        ({"schedule": parse("30 2 * * *", "Europe/Berlin")}, "SD404", "warn"),
        ({"schedule": parse("cron(30 2 * * ? *)", "Europe/Berlin")}, "SD404", "warn"),
        ({"schedule": parse("50 23 * * SUN")}, "SD405", "warn"),
        ({"schedule": parse("cron(0 4 1 * ? *)")}, "SD405", "warn"),
        ({"limited": False}, "SD406", "warn"),
        ({"lease": 5 * SECOND}, "SD407", "refuse"),
        ({"ledger": "ephemeral"}, "SD408", "refuse"),
        ({"another": "a function"}, "SD409", "refuse"),
        ({"schedule": parse("cron(0 3 1 1 ? 2020)")}, "SD411", "refuse"),
        ({"schedule": parse("Mon 2025-*-* 03:00")}, "SD411", "refuse"),
        ({"schedule": parse("cron(0 0 1 1 ? 2026)")}, "SD411", "refuse"),
    ],
)
def test_each_rule_fires_at_its_limit(change: dict[str, object], code: str, severity: str) -> None:
    found = lint([replace(SOUND, **change)], NOW)  # type: ignore[arg-type]
    assert [(f.code, f.severity, f.target) for f in found] == [(code, severity, "sound")]
    assert found[0].hint
    assert "sound" in found[0].message


@pytest.mark.parametrize(
    "change",
    [
        {"timeout": 19 * HOUR},
        {"timeout": 8 * MINUTE + SECOND},
        {"grace": 119 * SECOND},
        {"schedule": parse("30 3 * * *", "Europe/Berlin")},
        {"schedule": parse("0 * * * *", "Europe/Berlin")},
        {"schedule": parse("hourly", "Europe/Berlin")},
        {"schedule": parse("@weekly"), "alarm": "prometheus"},
        {"schedule": parse("@monthly"), "alarm": "ping"},
        {"schedule": parse("0 4 * * 1-6")},
        {"kind": "job", "limited": False},
        {"lease": 6 * SECOND},
        {"schedule": parse("cron(1 0 1 1 ? 2026)")},
        {"schedule": parse("2199-12-31 23:59:59")},
    ],
)
def test_no_rule_fires_just_inside_its_limit(change: dict[str, object]) -> None:
    assert codes(replace(SOUND, **change)) == []  # type: ignore[arg-type]


def test_a_timeout_whose_grace_reaches_the_next_run_is_warned_of_once() -> None:
    late = replace(SOUND, schedule=parse("rate(10 minutes)"), timeout=10 * MINUTE - 10 * SECOND, successes=())
    assert codes(late) == ["SD402", "SD403"]


def test_messages_carry_the_numbers_they_judge_by() -> None:
    (finding,) = lint([replace(SOUND, timeout=25 * HOUR)], NOW)
    assert "1 day, 1:00:00" in finding.message
    assert "1 day, 0:00:00" in finding.message
    assert finding.numbers == {"timeout_s": 90_000, "spread_s": 0, "shortest_s": 86_400}


def test_a_skipped_time_says_what_its_platform_does() -> None:
    cron = lint([replace(SOUND, schedule=parse("30 2 * * *", "Europe/Berlin"))], NOW)
    aws = lint([replace(SOUND, schedule=parse("cron(30 2 * * ? *)", "Europe/Berlin"))], NOW)
    assert "02:30 in Europe/Berlin is skipped on 2026-03-29 and runs when the gap ends" in cron[0].message
    assert "02:30 in Europe/Berlin is skipped on 2026-03-29 and does not run" in aws[0].message
    assert "longest gap 1 day, 23:00:00" in aws[0].message


def test_two_jobs_under_one_lock_name_are_found_and_named() -> None:
    jobs = [replace(SOUND, name="a"), replace(SOUND, name="b"), replace(SOUND, name="c", lock="")]
    (finding,) = lint(jobs, NOW)
    assert finding.code == "SD409"
    assert "'sound': a, b;" in finding.message
    same = [replace(SOUND, name="a", lock=""), replace(SOUND, name="b", lock="a")]
    assert [f.code for f in lint(same, NOW)] == ["SD409"]


def test_a_schedule_without_a_run_to_come_says_when_it_had_its_last() -> None:
    (finding,) = lint([replace(SOUND, schedule=parse("cron(0 3 ? * MON 2019-2020)", "Europe/Berlin"))], NOW)
    assert (
        "'cron(0 3 ? * MON 2019-2020)' had its last run 2020-12-28 02:00 UTC, and never runs again"
        in finding.message
    )
