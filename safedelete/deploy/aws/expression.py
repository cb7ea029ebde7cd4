"""A schedule as EventBridge Scheduler's ``cron(...)`` or ``rate(...)``, proven to run at the same instants."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

from safedelete.core.schedule import Schedule, parse
from safedelete.core.schedule_fields import Days, Pattern, times_of
from safedelete.deploy.instants import difference
from safedelete.errors import ConfigError

LONGEST: Final = 256
"""Letters that an expression may have."""

_WEEK: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_CRON: Final = "Declare a job for each part, or write cron(...), which says what AWS does."


def expression(job: str, schedule: Schedule) -> str:
    """Return the expression whose runs in the schedule's zone are the schedule's own.

    Raises:
        ConfigError: AWS has none, or it would run at other instants when the clock changes.
    """
    if schedule.kind in ("rate", "aws-cron"):
        text = _own(schedule.text)
    else:
        assert schedule.pattern is not None
        text = _translated(job, schedule, schedule.pattern)
        _prove(job, schedule, schedule.pattern, text)
    if len(text) > LONGEST:
        _refuse(job, schedule, f"as {text} it has {len(text)} letters; AWS takes {LONGEST}.", _CRON)
    return text


def _own(text: str) -> str:
    """Return AWS's own form as it wants it: lower-case outside, capital names inside, single blanks."""
    name, _, rest = text.partition("(")
    inner = " ".join(rest.removesuffix(")").split())
    name = name.strip().lower()
    return f"{name}({inner.upper() if name == 'cron' else inner.lower()})"


def _translated(job: str, schedule: Schedule, pattern: Pattern) -> str:
    hours = {seconds // 3600 for seconds in pattern.times}
    minutes = {seconds // 60 % 60 for seconds in pattern.times}
    if any(seconds % 60 for seconds in pattern.times):
        _refuse(job, schedule, "AWS knows no seconds.", "Name whole minutes.")
    if times_of(hours, minutes) != pattern.times:
        _refuse(
            job, schedule, "AWS crosses every hour with every minute, and these times are no such product."
        )
    dates, week = _days(job, schedule, pattern.days)
    years = "*" if pattern.years is None else _ranges(pattern.years)
    return (
        f"cron({_listed(minutes, range(60))} {_listed(hours, range(24))} {dates} "
        f"{_listed(pattern.months, range(1, 13))} {week} {years})"
    )


def _days(job: str, schedule: Schedule, days: Days) -> tuple[str, str]:
    """Return the fields of the date and the weekday; one of them is always ``?``."""
    by_date = days.dates is not None or bool(days.before_last)
    by_week = days.weekdays is not None or bool(days.nth or days.last_of)
    if by_date and by_week:
        rule = "on either of the two" if days.either else "where both meet"
        _refuse(job, schedule, f"it names dates and weekdays and runs {rule}; AWS takes one of them.")
    if by_week:
        return "?", _week(job, schedule, days)
    if days.before_last:
        if days.dates is not None or len(days.before_last) > 1:
            _refuse(
                job, schedule, "AWS takes one day counted from the end of the month, and no other beside it."
            )
        [back] = days.before_last
        return f"L-{back}" if back else "L", "?"
    return "*" if days.dates is None else _listed(days.dates, range(1, 32)), "?"


def _week(job: str, schedule: Schedule, days: Days) -> str:
    parts = [len(days.weekdays or ()), len(days.nth), len(days.last_of)]
    if sum(1 for part in parts if part) > 1 or len(days.nth) > 1 or len(days.last_of) > 1:
        _refuse(job, schedule, "AWS takes one weekday counted within the month, and no other beside it.")
    for day, place in days.nth:
        return f"{_WEEK[day]}#{place}"
    for day in days.last_of:
        return f"{(day + 1) % 7 + 1}L"
    return ",".join(_WEEK[day] for day in sorted(days.weekdays or ()))


def _prove(job: str, schedule: Schedule, pattern: Pattern, text: str) -> None:
    """Raise unless the expression runs at the schedule's own instants, also where the clock changes."""
    again = parse(text, schedule.zone)
    other = again.pattern
    assert other is not None
    rules = [(p.times, p.months, p.years, p.days.of(2028, 2), p.days.of(2026, 3)) for p in (pattern, other)]
    assert rules[0] == rules[1], (schedule.text, text)
    odd = difference(schedule, [again])
    if odd is not None:
        _refuse(
            job,
            schedule,
            f"when the clock of {schedule.zone} changes, AWS {odd.how} the run of {odd.at:%Y-%m-%d %H:%M} UTC: it skips "
            "local times that do not exist and runs repeated ones once.",
            "Say tz='UTC', choose hours that no change touches, or write cron(...), which says what AWS does.",
        )


def _listed(values: Collection[int], every: Collection[int]) -> str:
    return "*" if set(values) == set(every) else _ranges(values)


def _ranges(values: Collection[int]) -> str:
    """Return numbers as a list, three and more in a row as a range."""
    rows: list[list[int]] = []
    for value in sorted(values):
        if rows and rows[-1][-1] == value - 1:
            rows[-1].append(value)
        else:
            rows.append([value])
    return ",".join(f"{row[0]}-{row[-1]}" if len(row) > 2 else ",".join(map(str, row)) for row in rows)


def _refuse(job: str, schedule: Schedule, what: str, hint: str = _CRON) -> NoReturn:
    raise ConfigError(f"{job}: {schedule.text!r} cannot be a schedule of AWS: {what}", hint=hint)
