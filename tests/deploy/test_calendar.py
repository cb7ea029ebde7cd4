"""A schedule as OnCalendar runs at the same instants as the schedule, by systemd's own word, or is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from safedelete.core.schedule import parse
from safedelete.deploy.calendar import on_calendar
from safedelete.deploy.instants import Difference, difference
from safedelete.errors import ConfigError
from tests.deploy.conftest import made

FROM = datetime(2026, 1, 1, tzinfo=UTC)
LATE = datetime(2100, 1, 1, tzinfo=UTC)
SYSTEMD = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")

SCHEDULES = [
    ("15 3 * * *", "Europe/Berlin"),
    ("*/20 6-8 * 2,11 *", "UTC"),
    ("0 4 13 * 5", "UTC"),
    ("0 4 13 * 5", "Europe/Berlin"),
    ("0 4 29 2 *", "Europe/Berlin"),
    ("0 4 * * 1-5", "America/New_York"),
    ("@weekly", "UTC"),
    ("cron(15 3 * * ? *)", "Australia/Lord_Howe"),
    ("cron(0 5 L * ? *)", "UTC"),
    ("cron(0 5 L-3 * ? *)", "UTC"),
    ("cron(0 5 ? * 2#1 *)", "UTC"),
    ("cron(0 5 ? 3-9 FRI#5 2026-2030)", "UTC"),
    ("cron(0 5 ? * 6L *)", "UTC"),
    ("cron(0/10 5 ? * MON-WED *)", "Europe/Berlin"),
    ("rate(1 day)", "UTC"),
    ("rate(1 hour)", "UTC"),
    ("rate(6 hours)", "UTC"),
    ("rate(15 minutes)", "UTC"),
    ("Mon..Fri *-*~07/1 03:15:00", "UTC"),
    ("*-02~03 04:00", "Europe/Berlin"),
    # AWS and systemd both leave the repeated hour out.
    ("cron(30 2 * * ? *)", "Europe/Berlin"),
    ("cron(0/15 * * * ? *)", "Europe/Berlin"),
]

CHANGES = [
    ("Europe/Berlin", "2026-03-29 00:20", "2026-10-24 23:20"),
    ("America/New_York", "2026-03-08 06:20", "2026-11-01 04:20"),
    # By half an hour.
    ("Australia/Lord_Howe", "2026-04-04 13:50", "2026-10-03 14:50"),
    # At midnight.
    ("America/Havana", "2026-03-08 04:20", "2026-11-01 03:20"),
]


def runs(lines: Sequence[str], after: datetime, count: int) -> list[list[datetime]]:
    """Return what systemd says: the next runs of each line."""
    assert SYSTEMD is not None
    base = f"--base-time={after:%Y-%m-%d %H:%M:%S} UTC"
    done = subprocess.run(
        [SYSTEMD, "calendar", base, f"--iterations={count}", *lines],
        capture_output=True,
        text=True,
        check=True,
        env={"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    found = [
        re.findall(r"(?:elapse|Iter\. #\d+|Iteration #\d+): \w{3} (\S+ \S+) UTC", block)
        for block in done.stdout.split("\n\n")
    ]
    assert len(found) == len(lines)
    return [[datetime.fromisoformat(f"{at}+00:00") for at in block] for block in found]


@pytest.mark.parametrize(
    ("text", "platform", "odd"),
    [
        ("0 4 * * *", ["*-*-* 04:00"], None),
        ("0 4 * * *", ["*-*-1..31 04:00", "Mon 04:00"], None),
        ("0 4 * * *", ["*-*-01..30 04:00"], Difference(datetime(2026, 1, 31, 4, tzinfo=UTC), "leaves out")),
        ("0 4 1 * *", ["*-*-01,31 04:00"], Difference(datetime(2026, 1, 31, 4, tzinfo=UTC), "adds")),
        ("0 4 28 2 *", ["*-02~01 04:00"], Difference(datetime(2028, 2, 28, 4, tzinfo=UTC), "leaves out")),
        (
            "0 4 1 1 *",
            ["2026..2027-01-01 04:00"],
            Difference(datetime(2028, 1, 1, 4, tzinfo=UTC), "leaves out"),
        ),
    ],
)
def test_every_run_of_three_years_is_compared(text: str, platform: list[str], odd: Difference | None) -> None:
    assert difference(parse(text), [parse(line) for line in platform]) == odd


@pytest.mark.parametrize(
    "text", ["rate(1 day)", "rate(12 hours)", "rate(1 hour)", "rate(15 minutes)", "rate(1 minute)"]
)
def test_a_rate_keeps_its_distance(text: str) -> None:
    schedule = parse(text)
    [line] = on_calendar("a-job", schedule)
    end = FROM + timedelta(days=3)
    assert list(parse(line).occurrences(FROM, end)) == list(schedule.occurrences(FROM, end))


@needs_systemd
def test_systemd_reads_them_as_we_do() -> None:
    # Rendering proves that together they are the schedule's own.
    lines = [line for text, zone in SCHEDULES for line in on_calendar("a-job", parse(text, zone))]
    for line, found in zip(lines, runs(lines, FROM, 5), strict=True):
        assert found, line
        assert found == list(islice(parse(line).occurrences(FROM + timedelta(seconds=1), LATE), len(found)))


@needs_systemd
@pytest.mark.parametrize(("zone", "forward", "back"), CHANGES)
def test_systemd_treats_a_change_of_the_clock_as_we_say_it_does(zone: str, forward: str, back: str) -> None:
    times = ["*:00,15,30,45:00", "02:30:00", "01:45:00", "00:30:00", "00..03:10:00"]
    lines = [f"*-*-* {time} {zone}" for time in times]
    for day in (forward, back):
        after = datetime.fromisoformat(f"{day}+00:00")
        for line, found in zip(lines, runs(lines, after, 10), strict=True):
            assert found == list(islice(parse(line).occurrences(after, LATE), 10)), line


@pytest.mark.parametrize(
    "text", ["rate(7 minutes)", "rate(2 days)", "cron(0 5 15W * ? *)", "cron(0 5 LW * ? *)"]
)
def test_what_systemd_cannot_express_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a systemd timer") as error:
        on_calendar("a-job", made("a-job", text).schedule)
    assert error.value.hint


@pytest.mark.parametrize(
    ("text", "said", "instead", "longest"),
    [
        # cron runs it when the gap ends, systemd not at all.
        ("30 2 * * *", "leaves out the run of 2026-03-29 01:00 UTC", "*-*-* 02:30:00 Europe/Berlin", 47 * 60),
        # cron follows the clock and runs twice.
        (
            "*/15 * * * *",
            "leaves out the run of 2026-10-25 01:00 UTC",
            "*-*-* *:00,15,30,45:00 Europe/Berlin",
            75,
        ),
    ],
)
def test_what_systemd_would_run_at_other_instants_is_refused_and_what_it_does_can_be_declared(
    text: str, said: str, instead: str, longest: int
) -> None:
    with pytest.raises(ConfigError, match="cannot be a systemd timer") as error:
        on_calendar("a-job", parse(text, "Europe/Berlin"))
    assert said in str(error.value)
    assert repr(instead) in error.value.hint
    other = made("a-job", instead, timeout=timedelta(minutes=1))
    assert on_calendar("a-job", other.schedule) == [instead]
    # The alarm on a missed run then waits for as long as systemd does.
    assert other.longest == timedelta(minutes=longest)
