"""Our occurrences are those of three independent implementations, over random expressions, starts and zones."""

import os
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from aws_croniter import AwsCroniter
from cronsim import CronSim, CronSimError
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from safedelete.core.schedule import Schedule, parse
from safedelete.errors import ConfigError

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/Havana",
    "Africa/Cairo",
]
STARTS = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)).map(
    lambda d: d.replace(microsecond=0, tzinfo=UTC)
)
NEAR_DST = st.sampled_from(
    [
        datetime(2026, 3, 29, tzinfo=UTC),
        datetime(2026, 10, 25, tzinfo=UTC),
        datetime(2026, 3, 8, tzinfo=UTC),
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 4, 4, tzinfo=UTC),
        datetime(2026, 10, 3, tzinfo=UTC),
    ]
).flatmap(lambda d: st.integers(-72, 6).map(lambda h: d + timedelta(hours=h)))
END = datetime(2199, 12, 1, tzinfo=UTC)  # ours ends with 2199, as AWS and systemd do
SLOW = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


def runs(schedule: Schedule, after: datetime, count: int) -> list[datetime]:
    found = schedule.occurrences(after + timedelta(seconds=1), END)
    return list(islice(found, count))


def possible(text: str, zone: str = "UTC") -> Schedule | None:
    """Return the schedule, or None when it is refused for naming a day or times that do not exist."""
    try:
        return parse(text, zone)
    except ConfigError as error:
        if "no such day" in str(error) or "no run at all" in str(error):
            return None
        raise


def field(low: int, high: int, star: str = "*") -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    span = st.tuples(value, value).map(sorted).filter(lambda r: r[0] < r[1])
    step = st.integers(1, max(high - low, 1))
    one = st.one_of(
        value.map(str),
        span.map(lambda r: f"{r[0]}-{r[1]}"),
        st.tuples(span, step).map(lambda r: f"{r[0][0]}-{r[0][1]}/{r[1]}"),
    )
    return st.one_of(
        st.just(star),
        value.map(str),
        step.map(lambda s: f"*/{s}"),
        st.lists(one, min_size=1, max_size=3).map(",".join),
    )


CRONTABS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join)


@SLOW
@given(CRONTABS, st.sampled_from(ZONES), STARTS | NEAR_DST)
def test_crontab_runs_when_cronsim_says(text: str, zone: str, start: datetime) -> None:
    # Stepping by whole hours, cronsim loses the run at 03:00 after a change of half an hour.
    assume(zone != "Australia/Lord_Howe" or not any(f.startswith("*") for f in text.split()[:2]))
    start = start.replace(second=0)
    try:
        oracle = CronSim(text, start.astimezone(ZoneInfo(zone)))
    except CronSimError:
        with pytest.raises(ConfigError):
            parse(text, zone)
        return
    schedule = possible(text, zone)
    if schedule is None:
        assert next(oracle, None) is None
        return
    # cronsim repeats an instant when a skipped time and the time after the gap are both asked for.
    expected = sorted({run.astimezone(UTC) for run in islice(oracle, 60)} - {start})
    # A time cronsim shifted may lie before the last one it gave, never before the start.
    expected = [run for run in expected if start < run < END]
    assert runs(schedule, start, len(expected)) == expected


AWS_DATES = st.one_of(
    field(1, 31),
    st.sampled_from(["L", "LW", "L-3", "L-27"]),
    st.integers(1, 31).map(lambda d: f"{d}W"),
).map(lambda d: (d, "?"))
DAY = st.sampled_from(["1", "2", "3", "4", "5", "6", "7", "SUN", "MON", "WED", "SAT"])
AWS_WEEK = st.one_of(
    DAY,
    st.sampled_from(["*", "2-6", "MON-FRI", "1,7", "MON,WED,FRI"]),
    DAY.map(lambda d: f"{d}L"),
    st.tuples(DAY, st.integers(1, 5)).map(lambda p: f"{p[0]}#{p[1]}"),
).map(lambda w: ("?", w))
AWS_FIELDS = st.tuples(
    field(0, 59),
    field(0, 23),
    AWS_DATES | AWS_WEEK,
    field(1, 12),
    st.sampled_from(["*", "2025-2033", "2026,2028,2031"]),
)


@SLOW
@given(AWS_FIELDS, STARTS)
def test_aws_cron_runs_when_aws_croniter_says(parts: tuple, start: datetime) -> None:
    minute, hour, (dates, week), month, year = parts
    assume(dates != "LW")  # aws-croniter reads it as the last day, whatever the weekday
    fields = f"{minute} {hour} {dates} {month} {week} {year}"
    oracle = AwsCroniter(fields).occurrence(start)
    schedule = possible(f"cron({fields})")
    if schedule is None:
        assert oracle.next() is None
        return
    at: datetime | None = start
    for _ in range(30):
        expected = AwsCroniter(fields).occurrence(at).next()
        if expected is None:
            break  # it gives up after ten empty months, too early to compare with
        assert schedule.next(at) == expected
        at = expected


@pytest.mark.parametrize(("month", "day"), [(1, 30), (2, 27), (3, 31), (5, 29), (8, 31), (10, 30), (11, 30)])
def test_aws_last_workday_of_2026(month: int, day: int) -> None:
    schedule = parse(f"cron(0 6 LW {month} ? 2026)")
    assert schedule.next(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2026, month, day, 6, tzinfo=UTC)


@SLOW
@given(
    st.one_of(CRONTABS.filter(lambda t: t.split()[2].startswith("*") or t.split()[4].startswith("*"))), STARTS
)
def test_previous_run_is_the_one_cronsim_gives_backwards(text: str, start: datetime) -> None:
    try:
        schedule = parse(text)
        oracle = CronSim(text, start, reverse=True)
    except (ConfigError, CronSimError):
        assume(False)
        raise
    at = start
    for expected in islice(oracle, 20):
        if expected.year < 1971:
            break
        assert schedule.previous(at) == expected
        at = expected


ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def systemd(text: str, base: datetime, count: int) -> list[datetime]:
    done = subprocess.run(
        [
            str(ANALYZE),
            "calendar",
            f"--base-time={base:%Y-%m-%d %H:%M:%S} UTC",
            f"--iterations={count}",
            text,
        ],
        capture_output=True,
        text=True,
        env={"TZ": "UTC", "PATH": os.environ["PATH"], "LC_ALL": "C"},
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr)
    # In UTC it prints the local form only; the pattern takes either.
    found = re.findall(r"(?:Next elapse|Iter\. #\d+): \w+ (\d\S+ \d\S+) UTC", done.stdout)
    return [datetime.strptime(run, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) for run in found]


def component(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    span = st.tuples(value, value).map(sorted).filter(lambda r: r[0] < r[1])
    step = st.integers(1, max(high - low, 1))
    one = st.one_of(
        value.map(str),
        span.map(lambda r: f"{r[0]}..{r[1]}"),
        # systemd 252 leaves out midnight after a step that overshoots the end of its hour or day.
        st.tuples(value, step)
        .filter(lambda r: (high + 1 - r[0]) % r[1] == 0 and r[0] + r[1] <= high)
        .map(lambda r: f"{r[0]}/{r[1]}"),
    )
    return st.one_of(st.just("*"), value.map(str), st.lists(one, min_size=1, max_size=2).map(",".join))


CALENDARS = st.tuples(
    st.sampled_from(["", "Mon ", "Mon..Fri ", "Sat,Sun ", "tuesday,Thu..Sat "]),
    st.one_of(
        st.just("*-*-*"),
        st.tuples(component(1, 12), component(1, 31)).map(lambda p: f"*-{p[0]}-{p[1]}"),
        st.tuples(component(1, 12), st.sampled_from(["1", "3", "7/1", "10/3", "2,5", "28"])).map(
            lambda p: f"*-{p[0]}~{p[1]}"
        ),
        st.just("2025..2031-*-1"),
    ),
    st.tuples(component(0, 23), component(0, 59)).map(lambda p: f"{p[0]}:{p[1]}"),
).map(lambda p: f"{p[0]}{p[1]} {p[2]}")


@needs_systemd
@settings(SLOW, max_examples=40)
@given(CALENDARS, st.sampled_from([z for z in ZONES if z != "America/Havana"]), STARTS | NEAR_DST)
def test_calendar_event_runs_when_systemd_says(text: str, zone: str, start: datetime) -> None:
    # Inside a repeated hour systemd answers differently depending on which of the two it starts from.
    local = start.astimezone(ZoneInfo(zone))
    assume(local.replace(fold=0).utcoffset() == local.replace(fold=1).utcoffset())
    expected = [run for run in systemd(f"{text} {zone}", start, 40) if run < END]
    schedule = possible(f"{text} {zone}")
    if schedule is None:
        assert expected == []
        return
    assert runs(schedule, start, len(expected)) == expected


RARE = ["*-*-* 03:15", "*-*-* 02:30", "Mon..Fri 04:00", "*-*-31", "weekly", "monthly", "quarterly", "yearly"]
OFTEN = ["hourly", "*:0/15", "*:0/5", "*-*-* 1..3:0/20"]
CHANGES = ["2026-03-07", "2026-03-28", "2026-04-03", "2026-10-02", "2026-10-24", "2026-10-31"]


@needs_systemd
@pytest.mark.parametrize(
    ("text", "day", "count"),
    [(text, "2025-12-31", 740) for text in RARE] + [(text, day, 400) for text in OFTEN for day in CHANGES],
)
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_common_calendar_events_equal_systemd_across_two_years(
    text: str, zone: str, day: str, count: int
) -> None:
    start = datetime.fromisoformat(f"{day} 09:59").replace(tzinfo=UTC)
    expected = systemd(f"{text} {zone}", start, count)
    assert len(expected) > 100
    assert runs(parse(text, zone), start, len(expected)) == expected


@needs_systemd
@pytest.mark.parametrize(
    "text",
    [
        "*:*/15",
        "*-*-*/2",
        "Fri..Mon 3:15",
        "24:00",
        "3:60",
        "*-13-1",
        "*-*-32",
        "*-*-0",
        "*-*~31..2",
        "*-*~29",
        "*-*~7/7",
        "20/5:00",
        "5",
        "3:15 Mon",
        "Mon,,Tue 3:00",
        "*-*-* 3",
        "22..4:00",
        "*-*-* 3:15 Nowhere/X",
        "2300-1-1",
        "Foo 3:15",
    ],
)
def test_what_systemd_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Failed to parse"):
        systemd(text, datetime(2026, 1, 1, tzinfo=UTC), 1)
    with pytest.raises(ConfigError):
        parse(text)
