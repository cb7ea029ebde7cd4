"""A schedule as systemd's ``OnCalendar`` expressions, proven to run at the same instants."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import NoReturn

from safedelete.core.schedule import Schedule, parse
from safedelete.core.schedule_fields import Days, Pattern
from safedelete.deploy.instants import difference
from safedelete.errors import ConfigError

_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


def on_calendar(job: str, schedule: Schedule) -> list[str]:
    """Return the expressions whose runs together are the schedule's own.

    Raises:
        ConfigError: systemd has no expression for it, or would run it at other instants when the clock changes.
    """
    if schedule.pattern is None:
        assert schedule.period is not None
        return [_rate(job, schedule, schedule.period)]
    lines = _translated(job, schedule, schedule.pattern)
    odd = difference(schedule, [parse(line) for line in lines])
    if odd is not None:
        other = f", or declare what systemd does: schedule={lines[0]!r}" if len(lines) == 1 else ""
        _refuse(
            job,
            schedule,
            f"when the clock of {schedule.zone} changes, systemd {odd.how} the run of {odd.at:%Y-%m-%d %H:%M} UTC: it "
            "skips local times that do not exist and runs repeated ones once.",
            f"Say tz='UTC', choose hours that no change touches{other}.",
        )
    return lines


def _translated(job: str, schedule: Schedule, pattern: Pattern) -> list[str]:
    days = pattern.days
    if days.nearest or days.last_workday:
        _refuse(
            job, schedule, "OnCalendar knows no workday nearest to a date (W).", "Name weekdays or dates."
        )
    return [f"{when} {_times(pattern)} {schedule.zone}".lstrip() for when in _days(days, _dates(pattern))]


def _rate(job: str, schedule: Schedule, period: timedelta) -> str:
    """Return a wall-clock expression of the same rate: a timer's intervals start anew with every boot."""
    if period == _DAY:
        return "*-*-* 00:00:00 UTC"
    if period < _HOUR and not _HOUR % period:
        return f"*-*-* *:0/{period // _MINUTE}:00 UTC"
    if period == _HOUR:
        return "*-*-* *:00:00 UTC"
    if period < _DAY and not period % _HOUR and not _DAY % period:
        return f"*-*-* 0/{period // _HOUR}:00:00 UTC"
    return _refuse(
        job,
        schedule,
        "systemd has no wall-clock times that far apart.",
        "Use a rate that divides an hour or a day, or name the times.",
    )


def _refuse(job: str, schedule: Schedule, what: str, hint: str) -> NoReturn:
    raise ConfigError(f"{job}: {schedule.text!r} cannot be a systemd timer: {what}", hint=hint)


def _days(days: Days, prefix: str) -> list[str]:
    """Return weekday-and-date parts; cron's "date or weekday" takes two."""
    week = "" if days.weekdays is None else _listed(_WEEK[day] for day in sorted(days.weekdays)) + " "
    some_dates = days.dates is not None or bool(days.before_last)
    by_date = []
    if days.dates is not None:
        by_date.append(f"{prefix}-{_numbers(days.dates, range(1, 32))}")
    if days.before_last:
        by_date.append(f"{prefix}~{_numbers({back + 1 for back in days.before_last}, ())}")
    found = []
    if some_dates and week and days.either:
        found = [*by_date, f"{week}{prefix}-*"]
    elif some_dates:
        found = [week + dates for dates in by_date]
    elif week:
        found = [f"{week}{prefix}-*"]
    for day, place in sorted(days.nth):
        found.append(f"{_WEEK[day]} {prefix}-{7 * place - 6:02}..{min(7 * place, 31):02}")
    found += [f"{_WEEK[day]} {prefix}~07/1" for day in sorted(days.last_of)]
    return found or [f"{prefix}-*"]


def _dates(pattern: Pattern) -> str:
    years = "*" if pattern.years is None else _listed(str(year) for year in sorted(pattern.years))
    return f"{years}-{_numbers(pattern.months, range(1, 13))}"


def _times(pattern: Pattern) -> str:
    # Every parser makes its times as a product of hours, minutes and seconds.
    hours = {seconds // 3600 for seconds in pattern.times}
    minutes = {seconds // 60 % 60 for seconds in pattern.times}
    rest = {seconds % 60 for seconds in pattern.times}
    parts = (_numbers(hours, range(24)), _numbers(minutes, range(60)), _numbers(rest, range(60)))
    return ":".join(parts)


def _numbers(values: Collection[int], every: Collection[int]) -> str:
    return "*" if set(values) == set(every) else _listed(f"{value:02}" for value in sorted(values))


def _listed(values: Iterable[str]) -> str:
    return ",".join(values)
