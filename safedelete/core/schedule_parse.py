"""Read crontab lines, AWS ``cron(...)`` and ``rate(...)``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from safedelete.core.schedule_fields import (
    DATE,
    HOUR,
    MINUTE,
    MONTH,
    YEAR,
    Days,
    Field,
    Pattern,
    number,
    numbers,
    refuse,
    times_of,
)

NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_CRON_DAYS: Final = {name: i for i, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_CRON_WEEKDAY: Final = Field("day of the week", 0, 7, _CRON_DAYS)
_AWS_WEEKDAY: Final = Field("day of the week", 1, 7, {name: i + 1 for name, i in _CRON_DAYS.items()})
_AWS_FIELDS: Final = "minute hour day-of-month month day-of-week year"

_RATE: Final = re.compile(r"rate\(\s*([0-9]{1,9})\s+(minute|hour|day)(s?)\s*\)", re.IGNORECASE)
_LONGEST: Final = timedelta(days=3653)


def crontab(text: str) -> Pattern:
    """Read five crontab fields, or a nickname such as ``@daily``."""
    line = text.strip().lower()
    if line.startswith("@"):
        if line not in NICKNAMES:
            refuse(
                text,
                f"{line!r} is no nickname that names times; allowed are {', '.join(sorted(NICKNAMES))}.",
                "A job that must run at boot or by an interval has no place here; for intervals use rate(...).",
            )
        line = NICKNAMES[line]
    fields = line.split()
    minute, hour, dates, month, week = fields
    minutes = numbers(minute, MINUTE, text, open_step=False)
    hours = numbers(hour, HOUR, text, open_step=False)
    on_dates = numbers(dates, DATE, text, open_step=False)
    on_days = frozenset((day - 1) % 7 for day in numbers(week, _CRON_WEEKDAY, text, open_step=False))
    # Vixie's rule, in every descendant: a field that starts with a star restricts; two that do not widen.
    starred = dates.startswith("*") or week.startswith("*")
    follows = minute.startswith("*") or hour.startswith("*")
    return Pattern(
        times=times_of(hours, minutes),
        months=numbers(month, MONTH, text, open_step=False),
        days=Days(
            dates=None if dates == "*" else on_dates,
            weekdays=None if week == "*" else on_days,
            either=not starred,
        ),
        clash="follow" if follows else "shift",
    )


def aws_cron(text: str) -> Pattern:
    """Read the six fields of ``cron(...)``."""
    if not text.endswith(")"):
        refuse(text, "the closing bracket is missing.", "Write cron(15 3 * * ? *).")
    fields = text[text.index("(") + 1 : -1].split()
    if len(fields) != 6:
        refuse(
            text,
            f"cron(...) takes 6 fields ({_AWS_FIELDS}); it has {len(fields)}.",
            "Five crontab fields stand without cron(...).",
        )
    minute, hour, dates, month, week, year = fields
    if (dates == "?") == (week == "?"):
        refuse(
            text,
            f"day-of-month is {dates!r} and day-of-week is {week!r}; exactly one of them must be '?'.",
            "For every day write '* * ?' in fields 3 to 5: cron(15 3 * * ? *).",
        )
    return Pattern(
        times=times_of(
            numbers(hour, HOUR, text, open_step=True), numbers(minute, MINUTE, text, open_step=True)
        ),
        months=numbers(month, MONTH, text, open_step=True),
        years=None if year == "*" else numbers(year, YEAR, text, open_step=True),
        days=_aws_dates(dates.upper(), text) if week == "?" else _aws_week(week.upper(), text),
        clash="skip",
    )


def _aws_dates(given: str, text: str) -> Days:
    if given == "*":
        return Days()
    if given == "L":
        return Days(before_last=frozenset({0}))
    if given == "LW":
        return Days(last_workday=True)
    if match := re.fullmatch(r"L-([0-9]{1,2})", given):
        if not 1 <= int(match[1]) <= 30:
            refuse(
                text,
                f"the day of the month is {given!r}; allowed after 'L-' are 1 to 30.",
                "L is the last day of the month, L-1 the one before.",
            )
        return Days(before_last=frozenset({int(match[1])}))
    if match := re.fullmatch(r"([0-9]{1,2})W", given):
        return Days(nearest=frozenset({number(match[1], DATE, text)}))
    if re.search(r"[LW]", given):
        refuse(
            text,
            f"the day of the month is {given!r}; L, LW, L-n and nW stand alone.",
            "Declare a second job for the other day, or write the days as a list.",
        )
    return Days(dates=numbers(given, DATE, text, open_step=True))


def _aws_week(given: str, text: str) -> Days:
    if given == "*":
        return Days()
    if given == "L":
        return Days(weekdays=frozenset({_monday_first(7)}))
    if match := re.fullmatch(r"([1-7]|[A-Z]{3})L", given):
        return Days(last_of=frozenset({_monday_first(number(match[1], _AWS_WEEKDAY, text))}))
    if match := re.fullmatch(r"([0-9]|[A-Z]{3})#([0-9]+)", given):
        place = int(match[2])
        if not 1 <= place <= 5:
            refuse(
                text,
                f"the day of the week is {given!r}; allowed after '#' are 1 to 5.",
                "For example 2#1 (first Monday); for the last one write 2L.",
            )
        return Days(nth=frozenset({(_monday_first(number(match[1], _AWS_WEEKDAY, text)), place)}))
    if "#" in given:
        refuse(
            text,
            f"the day of the week is {given!r}; a '#' stands alone, as in 2#1 (first Monday).",
            "Declare a job for each of them.",
        )
    return Days(
        weekdays=frozenset(_monday_first(day) for day in numbers(given, _AWS_WEEKDAY, text, open_step=True))
    )


def _monday_first(aws: int) -> int:
    """Turn AWS's Sunday = 1 into Monday = 0."""
    return (aws - 2) % 7


def rate(text: str) -> timedelta:
    """Read ``rate(value unit)``; the unit is plural unless the value is 1, as AWS demands."""
    match = _RATE.fullmatch(text)
    if not match:
        refuse(
            text,
            "rate(...) takes a whole number and minute(s), hour(s) or day(s).",
            "For example rate(1 day) or rate(15 minutes).",
        )
    value, unit, plural = int(match[1]), match[2].lower(), match[3]
    if value < 1:
        refuse(text, f"the rate's value is {value}; it must be at least 1.", "For example rate(1 day).")
    if bool(plural) != (value != 1):
        refuse(
            text,
            f"AWS wants the singular for 1 and the plural otherwise; it is {value} {unit}{plural}.",
            f"Write rate({value} {unit}{'' if value == 1 else 's'}).",
        )
    minutes = {"minute": 1, "hour": 60, "day": 1440}[unit] * value
    if minutes > _LONGEST // timedelta(minutes=1):
        refuse(
            text,
            f"the rate is {value} {unit}{plural}; the longest allowed is {_LONGEST.days} days.",
            "Write it as cron(...), with a month and a day.",
        )
    return timedelta(minutes=minutes)
