"""Gaps, daylight saving time, and what is refused."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from safedelete.core.schedule import Gaps, Schedule, parse
from safedelete.errors import ConfigError

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local(schedule: Schedule, start: str, end: str) -> list[str]:
    zone = ZoneInfo(schedule.zone)
    return [f"{run.astimezone(zone):%d %H:%M %z}" for run in schedule.occurrences(utc(start), utc(end))]


@pytest.mark.parametrize(
    ("calendar", "aws", "shortest", "longest"),
    [
        ("*-*-* 03:15", "cron(15 3 * * ? *)", 23 * HOUR, 25 * HOUR),
        ("*-*-* 02:30", "cron(30 2 * * ? *)", 24 * HOUR, 47 * HOUR),
        ("hourly", "cron(0 * * * ? *)", HOUR, 2 * HOUR),
        ("*:0/15", "cron(0/15 * * * ? *)", 15 * MINUTE, 75 * MINUTE),
        ("*:0/7", "cron(0/7 * * * ? *)", 4 * MINUTE, 64 * MINUTE),
        ("Mon..Fri 04:00", "cron(0 4 ? * MON-FRI *)", 24 * HOUR, 3 * DAY + HOUR),
        ("*-*-31", "cron(0 0 31 * ? *)", 31 * DAY, 61 * DAY + HOUR),
    ],
)
def test_two_year_gaps_in_berlin_on_systemd_and_aws(
    calendar: str, aws: str, shortest: timedelta, longest: timedelta
) -> None:
    found = parse(calendar, "Europe/Berlin").gaps(START)
    assert found == parse(aws, "Europe/Berlin").gaps(START)
    assert found == Gaps(shortest, longest)


@pytest.mark.parametrize(
    ("text", "shortest", "longest"),
    [
        ("30 2 * * *", 23 * HOUR + 30 * MINUTE, 25 * HOUR),  # 02:30 runs at 03:00 in spring
        ("0 * * * *", HOUR, HOUR),  # follows the clock: the repeated hour runs twice
        ("*/15 * * * *", 15 * MINUTE, 15 * MINUTE),
        ("0 0,12 * * *", 11 * HOUR, 13 * HOUR),
        ("0 0 29 2 *", 1461 * DAY, 1461 * DAY),
        ("@weekly", 7 * DAY - HOUR, 7 * DAY + HOUR),
    ],
)
def test_two_year_gaps_in_berlin_under_cron(text: str, shortest: timedelta, longest: timedelta) -> None:
    assert parse(text, "Europe/Berlin").gaps(START) == Gaps(shortest, longest)


def test_runs_at_half_past_one_and_three_come_within_half_an_hour_in_spring() -> None:
    early = parse("*-*-* 01:30", "Europe/Berlin").next(utc("2026-03-28 12:00"))
    late = parse("*-*-* 03:00", "Europe/Berlin").next(utc("2026-03-28 12:00"))
    assert early is not None
    assert late is not None
    assert late - early == 30 * MINUTE


@pytest.mark.parametrize(
    "text", ["*-*-* *:0/7", "30 1,2,3 * * *", "*/20 1-3 * * 0", "cron(0/25 0-4 ? * 1,7 *)"]
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_gaps_are_those_of_the_runs_listed_one_by_one(text: str, zone: str) -> None:
    schedule = parse(text, zone)
    end = START + timedelta(days=731)
    runs = [*schedule.occurrences(START, end), schedule.next(end - timedelta(seconds=1))]
    differences = [b - a for a, b in pairwise(run for run in runs if run is not None)]
    assert schedule.gaps(START) == Gaps(min(differences), max(differences))


def test_a_schedule_that_runs_once_has_no_gap() -> None:
    assert parse("2027-01-01 03:00").gaps(START) == Gaps(None, None)
    assert parse("cron(0 0 1 1 ? 2020)").next(START) is None
    assert parse("cron(0 0 1 1 ? 2027)").previous(START) is None


@pytest.mark.parametrize(
    ("zone", "start", "end", "time", "shifted"),
    [
        ("Europe/Berlin", "2026-03-28 12:00", "2026-03-29 12:00", "30 2", "29 03:00 +0200"),
        ("America/New_York", "2026-03-07 12:00", "2026-03-08 12:00", "30 2", "08 03:00 -0400"),
        ("Australia/Lord_Howe", "2026-10-03 06:00", "2026-10-04 06:00", "15 2", "04 02:30 +1100"),
    ],
)
def test_a_skipped_local_time_is_left_out_by_aws_and_systemd_and_moved_by_cron(
    zone: str, start: str, end: str, time: str, shifted: str
) -> None:
    minute, hour = time.split()
    assert local(parse(f"cron({time} * * ? *)", zone), start, end) == []
    assert local(parse(f"{hour}:{minute}", zone), start, end) == []
    assert local(parse(f"{time} * * *", zone), start, end) == [shifted]


@pytest.mark.parametrize(
    ("zone", "start", "end", "time", "first", "second"),
    [
        ("Europe/Berlin", "2026-10-24 12:00", "2026-10-25 12:00", "30 2", "25 02:30 +0200", "25 02:30 +0100"),
        (
            "America/New_York",
            "2026-10-31 12:00",
            "2026-11-01 12:00",
            "30 1",
            "01 01:30 -0400",
            "01 01:30 -0500",
        ),
        (
            "Australia/Lord_Howe",
            "2026-04-04 03:00",
            "2026-04-05 03:00",
            "45 1",
            "05 01:45 +1100",
            "05 01:45 +1030",
        ),
    ],
)
def test_a_repeated_local_time_runs_once_except_where_cron_follows_the_clock(
    zone: str, start: str, end: str, time: str, first: str, second: str
) -> None:
    minute, hour = time.split()
    assert local(parse(f"cron({time} * * ? *)", zone), start, end) == [first]
    assert local(parse(f"{hour}:{minute}", zone), start, end) == [first]
    assert local(parse(f"{time} * * *", zone), start, end) == [first]
    following = local(parse(f"{minute} * * * *", zone), start, end)
    assert first in following
    assert second in following


@pytest.mark.parametrize(
    ("zone", "spring", "autumn"),
    [
        ("Europe/Berlin", "2026-03-29 02:30", "2026-10-25 02:30"),
        ("America/New_York", "2026-03-08 02:30", "2026-11-01 01:30"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-04-05 01:45"),
    ],
)
def test_local_times_at_risk_name_the_day_and_what_happens(zone: str, spring: str, autumn: str) -> None:
    for text, effect in ((spring, "skipped"), (autumn, "repeated")):
        day, clock = text.split()
        risks = parse(f"*-*-* {clock}", zone).local_times_at_risk(START)
        assert (f"{day} {clock}", effect) in [(f"{r.local:%Y-%m-%d %H:%M}", r.effect) for r in risks]
    assert parse("*-*-* 12:00", zone).local_times_at_risk(START) == ()


def test_nothing_is_at_risk_in_utc_by_rate_or_where_cron_follows_the_clock() -> None:
    assert parse("30 2 * * *").local_times_at_risk(START) == ()
    assert parse("rate(1 hour)", "Europe/Berlin").local_times_at_risk(START) == ()
    assert parse("*/5 * * * *", "Europe/Berlin").local_times_at_risk(START) == ()


def test_midnight_repeated_across_two_days_keeps_runs_in_order() -> None:
    # St. John's set the clock back at 00:01, so 23:01 to midnight came twice, the second time after 00:00 of the next day.
    schedule = parse("*/10 * * * *", "America/St_Johns")
    runs = list(schedule.occurrences(utc("2010-11-07 00:00"), utc("2010-11-07 08:00")))
    assert [b - a for a, b in pairwise(runs)] == [10 * MINUTE] * 47
    assert all(schedule.previous(b) == a for a, b in pairwise(runs))


def test_a_clock_set_back_by_half_an_hour_loses_no_run_that_follows_it() -> None:
    schedule = parse("0 */3 * * *", "Australia/Lord_Howe")
    assert local(schedule, "2026-04-04 12:00", "2026-04-04 20:00") == [
        "05 00:00 +1100",
        "05 03:00 +1030",
        "05 06:00 +1030",
    ]


def test_rate_counts_from_its_anchor() -> None:
    schedule = parse("rate(5 hours)", anchor=utc("2026-01-01 00:30"))
    assert schedule.next(utc("2026-01-01 00:30")) == utc("2026-01-01 05:30")
    assert schedule.previous(utc("2026-01-01 00:30")) == utc("2025-12-31 19:30")
    assert schedule.previous(utc("2026-01-01 00:31")) == utc("2026-01-01 00:30")
    assert list(schedule.occurrences(utc("2026-01-01 05:30"), utc("2026-01-01 15:30"))) == [
        utc("2026-01-01 05:30"),
        utc("2026-01-01 10:30"),
    ]
    assert schedule.gaps(START) == Gaps(5 * HOUR, 5 * HOUR)


@pytest.mark.parametrize(
    ("text", "kind", "first"),
    [
        ("15 3 * * *", "crontab", "2026-01-01 03:15"),
        ("@daily", "crontab", "2026-01-02 00:00"),
        ("0 4 13 * FRI", "crontab", "2026-01-02 04:00"),  # the 13th, or any Friday
        ("0 4 */2 * FRI", "crontab", "2026-01-09 04:00"),  # a star: odd days that are Fridays
        ("0 0 * * 7", "crontab", "2026-01-04 00:00"),
        ("0 0 * feb sun", "crontab", "2026-02-01 00:00"),
        ("cron(0 10 ? * 2#1 *)", "aws-cron", "2026-01-05 10:00"),  # AWS counts Sunday as 1
        ("cron(0 10 L * ? *)", "aws-cron", "2026-01-31 10:00"),
        ("cron(0 10 L-2 * ? *)", "aws-cron", "2026-01-29 10:00"),
        ("cron(0 10 LW * ? *)", "aws-cron", "2026-01-30 10:00"),
        ("cron(0 10 31W 1 ? *)", "aws-cron", "2026-01-30 10:00"),
        ("cron(0 10 1W 8 ? *)", "aws-cron", "2026-08-03 10:00"),  # 1 August 2026 is a Saturday
        ("cron(0 10 ? * 6L *)", "aws-cron", "2026-01-30 10:00"),
        ("cron(0 10 ? * L *)", "aws-cron", "2026-01-03 10:00"),
        ("cron(5/20 10 * * ? 2030)", "aws-cron", "2030-01-01 10:05"),
        ("Mon *-*~7/1 04:00", "oncalendar", "2026-01-26 04:00"),
        ("Fri *-*-13 00:00", "oncalendar", "2026-02-13 00:00"),
        ("daily", "oncalendar", "2026-01-02 00:00"),
        ("*-*-* 10:00:30", "oncalendar", "2026-01-01 10:00:30"),
        ("10:00 Europe/Berlin", "oncalendar", "2026-01-01 09:00"),
    ],
)
def test_first_run_of_2026(text: str, kind: str, first: str) -> None:
    schedule = parse(text)
    assert schedule.kind == kind
    assert schedule.next(START) == utc(first)


BAD = [
    ("", "must be a text"),
    ("   ", "must be a text"),
    (None, "must be a text"),
    (15, "must be a text"),
    ("* * * *", "4 field(s)"),
    ("15 3 * * ? *", "a crontab line has 5"),
    ("60 3 * * *", "minute is '60'; allowed are 0 to 59"),
    ("15 24 * * *", "hour is '24'; allowed are 0 to 23"),
    ("15 3 0 * *", "day of the month is '0'; allowed are 1 to 31"),
    ("15 3 * 13 *", "month is '13'; allowed are 1 to 12, JAN to DEC"),
    ("15 3 * * 8", "day of the week is '8'; allowed are 0 to 7, SUN to SAT"),
    ("15 3 * * mond", "day of the week is 'mond'"),
    ("15 3 * * -1", "day of the week is '-1'"),
    ("*/0 3 * * *", "step of the minute is 0"),
    ("*/90 * * * *", "step of the minute is 90; allowed are 1 to 59"),
    ("5/10 * * * *", "step without a range"),
    ("30-10 * * * *", "runs backwards"),
    ("1,,2 * * * *", "minute is '1,,2'"),
    ("1.5 * * * *", "minute is '1.5'"),
    ("H 3 * * *", "minute is 'h'"),
    ("15 3 L * *", "day of the month is 'l'"),
    ("15 3 ? * *", "day of the month is '?'"),
    ("٣ 3 * * *", "minute is '٣'"),
    ("@reboot", "no nickname that names times"),
    ("@every 5m", "no nickname that names times"),
    ("0 3 30 2 *", "no such day exists"),
    ("0 3 31 4,6,9,11 *", "no such day exists"),
    ("cron(0 3 30 2 ? *)", "no such day exists"),
    ("cron(0 3 L-30 2 ? *)", "no such day exists"),
    ("cron(0 3 ? 2 2#5 2027)", "no such day exists"),
    ("cron(0 3 29 2 ? 2027)", "no such day exists"),
    ("*-02-30", "no such day exists"),
    ("2026-02-30", "no such day exists"),
    ("cron(15 3 * * *)", "takes 6 fields"),
    ("cron(15 3 * * ? *", "closing bracket"),
    ("cron()", "it has 0"),
    ("cron(15 3 * * * *)", "exactly one of them must be '?'"),
    ("cron(15 3 ? * ? *)", "exactly one of them must be '?'"),
    ("cron(15 3 ? * 0 *)", "day of the week is '0'; allowed are 1 to 7"),
    ("cron(15 3 ? * 2#6 *)", "allowed after '#' are 1 to 5"),
    ("cron(15 3 ? * 2#1,3#1 *)", "a '#' stands alone"),
    ("cron(15 3 32W * ? *)", "day of the month is '32'"),
    ("cron(15 3 L,15 * ? *)", "stand alone"),
    ("cron(15 3 L-31 * ? *)", "1 to 30"),
    ("cron(15 3 ? * FRI-MON *)", "runs backwards"),
    ("cron(15 3 * * ? 1969)", "year is '1969'; allowed are 1970 to 2199"),
    ("cron(15 3 * * ? 2200)", "year is '2200'"),
    ("rate(0 days)", "at least 1"),
    ("rate(1 days)", "singular for 1"),
    ("rate(5 minute)", "plural otherwise"),
    ("rate(1.5 hours)", "whole number"),
    ("rate(10 seconds)", "minute(s), hour(s) or day(s)"),
    ("rate(4000 days)", "longest allowed is 3653 days"),
    ("rate(5 minutes", "whole number"),
    ("at(2026-01-01T00:00:00)", "runs once"),
    ("Fri..Mon 3:15", "runs backwards"),
    ("3:60", "minute is '60'"),
    ("*:*/15", "minute is '*/15'"),
    ("3:15:00.5", "second is '00.5'"),
    ("*-13-1", "month is '13'; allowed are 1 to 12"),
    ("*-*~31", "allowed are 1 to 28"),
    ("3:15 Mon", "'Mon' is no time zone"),
    ("nightly", "none of the known forms"),
    ("every day at 3", "none of the known forms"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[str(text) for text, _ in BAD])
def test_a_bad_schedule_is_refused_with_what_was_given_and_what_is_allowed(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert says in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        ("cron(30 2 29 3 ? 2026)", "Europe/Berlin"),
        ("cron(0/15 2 8 3 ? 2026)", "America/New_York"),
        ("2011-12-30 *:*:00", "Pacific/Apia"),
        ("2026-10-04 02:15 Australia/Lord_Howe", "UTC"),
    ],
)
def test_times_that_every_change_of_the_clock_skips_are_refused_as_an_impossible_day_is(
    text: str, zone: str
) -> None:
    with pytest.raises(ConfigError, match="no run at all: changes of the clock in") as caught:
        parse(text, zone)
    assert repr(text) in str(caught.value)
    elsewhere = text.replace(" Australia/Lord_Howe", "")
    assert parse(elsewhere, "UTC").next(utc("2000-01-01")) is not None


def test_thirtieth_of_february_or_a_monday_is_possible_under_cron() -> None:
    assert parse("0 3 30 2 1").next(START) == utc("2026-02-02 03:00")


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "localtime", "europe/berlin ", None, 2, "UTC+1\0"]
)
def test_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(ConfigError, match="no time zone") as caught:
        parse("15 3 * * *", zone)
    assert repr(zone) in str(caught.value)


def test_two_different_zones_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"Europe/Berlin.*America/New_York"):
        parse("03:15 Europe/Berlin", "America/New_York")
    assert parse("03:15 Europe/Berlin", "Europe/Berlin").zone == "Europe/Berlin"


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        parse("@daily").next(datetime(2026, 1, 1))
