"""A schedule as AWS's own expression runs at the same instants, or is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedelete.core.schedule import parse
from safedelete.deploy.aws.expression import expression
from safedelete.errors import ConfigError

FROM = datetime(2026, 1, 1, tzinfo=UTC)
TO = FROM + timedelta(days=800)


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("15 3 * * *", "Europe/Berlin", "cron(15 3 * * ? *)"),
        ("*/20 6-8 * 2,11 *", "UTC", "cron(0,20,40 6-8 * 2,11 ? *)"),
        ("0 4 * * 1-5", "America/New_York", "cron(0 4 ? * MON,TUE,WED,THU,FRI *)"),
        ("0 4 13 * *", "UTC", "cron(0 4 13 * ? *)"),
        ("@weekly", "UTC", "cron(0 0 ? * SUN *)"),
        ("@hourly", "UTC", "cron(0 * * * ? *)"),
        ("0 4 */10 * *", "UTC", "cron(0 4 1,11,21,31 * ? *)"),
        ("Mon *-*-* 03:15", "Europe/Berlin", "cron(15 3 ? * MON *)"),
        ("*-*~01 03:15", "UTC", "cron(15 3 L * ? *)"),
        ("*-02~03 04:00", "UTC", "cron(0 4 L-2 2 ? *)"),
    ],
)
def test_the_instants_are_the_schedules_own(text: str, zone: str, expected: str) -> None:
    schedule = parse(text, zone)
    found = expression("a-job", schedule)
    assert found == expected
    again = parse(found, zone)
    assert list(again.occurrences(FROM, TO)) == list(schedule.occurrences(FROM, TO))


@given(
    minute=st.sampled_from(["0", "5,50", "*/20", "10-12"]),
    hour=st.sampled_from(["4", "*/6", "5,17", "9-11"]),
    date=st.sampled_from(["*", "1", "*/10", "28-31"]),
    month=st.sampled_from(["*", "2", "3,10"]),
    week=st.sampled_from(["*", "0", "1-5", "7", "2,4"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_translated_runs_at_the_same_instants(
    minute: str, hour: str, date: str, month: str, week: str, zone: str
) -> None:
    schedule = parse(f"{minute} {hour} {date} {month} {week}", zone)
    try:
        found = expression("a-job", schedule)
    except ConfigError:
        return
    again = parse(found, zone)
    assert list(again.occurrences(FROM, TO)) == list(schedule.occurrences(FROM, TO))


@pytest.mark.parametrize(
    "text", ["cron(15 3 ? * mon#2 *)", "CRON( 15  3 L * ? 2026-2030 )", "rate(7 minutes)"]
)
def test_awss_own_form_stays_but_for_blanks_and_case(text: str) -> None:
    found = expression("a-job", parse(text))
    assert found.lower() == "(".join(
        part.strip() for part in " ".join(text.lower().split()).replace(" )", ")").split("(")
    )
    assert list(parse(found).occurrences(FROM, TO)) == list(parse(text).occurrences(FROM, TO))


@pytest.mark.parametrize(
    ("text", "zone", "said"),
    [
        ("0 4 13 * 5", "UTC", "either of the two"),
        ("0 4 */2 * 1", "UTC", "where both meet"),
        ("*-*-* 03:15:30", "UTC", "no seconds"),
        # cron runs it when the gap ends, AWS not at all.
        ("30 2 * * *", "Europe/Berlin", "leaves out the run of 2026-03-29 01:00 UTC"),
        # cron follows the clock and runs twice.
        ("*/15 * * * *", "Europe/Berlin", "leaves out the run of 2026-10-25 01:00 UTC"),
        ("Mon,Fri *-*~01 03:15", "UTC", "where both meet"),
    ],
)
def test_what_aws_would_run_at_other_instants_is_refused_with_what_to_do(
    text: str, zone: str, said: str
) -> None:
    with pytest.raises(ConfigError, match="cannot be a schedule of AWS") as error:
        expression("a-job", parse(text, zone))
    assert said in str(error.value)
    assert error.value.hint
