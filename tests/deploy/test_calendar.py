"""A schedule as OnCalendar runs at the same instants as the schedule, by systemd's own word."""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.schedule import parse
from safedelete.deploy.calendar import on_calendar
from safedelete.errors import ConfigError
from tests.deploy.conftest import made

FROM = datetime(2026, 1, 1, tzinfo=UTC)
SYSTEMD = shutil.which("systemd-analyze")

SCHEDULES = [
    ("15 3 * * *", "Europe/Berlin"),
    ("*/20 6-8 * 2,11 *", "UTC"),
    ("0 4 13 * 5", "UTC"),
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
]


@pytest.mark.parametrize(("text", "zone"), SCHEDULES)
def test_the_times_are_the_schedules_own(text: str, zone: str) -> None:
    schedule = parse(text, zone)
    again = sorted(
        {
            at
            for line in on_calendar("a-job", schedule)
            for at in parse(line).occurrences(FROM, FROM + timedelta(days=800))
        }
    )
    # The cases lie outside of DST changes, where cron and systemd differ.
    assert again == list(schedule.occurrences(FROM, FROM + timedelta(days=800)))


@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize(("text", "zone"), SCHEDULES)
def test_systemd_reads_them_as_we_do(text: str, zone: str) -> None:
    assert SYSTEMD is not None
    for line in on_calendar("a-job", parse(text, zone)):
        done = subprocess.run(
            [SYSTEMD, "calendar", "--base-time=2026-01-01 00:00:00 UTC", "--iterations=5", line],
            capture_output=True,
            text=True,
            check=True,
            env={"TZ": "UTC", "LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
        found = re.findall(r"(?:elapse|Iter\. #\d+|Iteration #\d+): \w{3} (\S+ \S+) UTC", done.stdout)
        at = [datetime.fromisoformat(f"{when}+00:00") for when in found]
        ours = []
        after = FROM
        while len(ours) < len(at) and (run := parse(line).next(after)) is not None:
            ours.append(run)
            after = run
        assert at
        assert at == ours, line


@pytest.mark.parametrize(
    "text", ["rate(7 minutes)", "rate(2 days)", "cron(0 5 15W * ? *)", "cron(0 5 LW * ? *)"]
)
def test_what_systemd_cannot_express_is_refused_with_what_to_do(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a systemd timer") as error:
        on_calendar("a-job", made("a-job", text).schedule)
    assert error.value.hint
