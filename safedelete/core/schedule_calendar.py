"""Read the subset of systemd's ``OnCalendar=`` that names whole seconds: weekdays, date, time, zone.

It means what the manual says. systemd 252 differs in one case: after a step that does not divide its hour or day
(``*:0/7``) it leaves out the run at midnight.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from safedelete.core.schedule_fields import (
    DATE,
    DAY_NAMES,
    HOUR,
    MINUTE,
    MONTH,
    YEAR,
    Days,
    Field,
    Pattern,
    number,
    refuse,
    step_of,
    times_of,
)

NICKNAMES: Final = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}

_LONG_NAMES: Final = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_WEEKDAY: Final = Field("day of the week", 0, 6, DAY_NAMES | {name: i for i, name in enumerate(_LONG_NAMES)})
_NUMERIC_MONTH: Final = Field(MONTH.name, MONTH.low, MONTH.high)
_SECOND: Final = Field("second", 0, 59)
_BACK: Final = Field("day before the end of the month", 1, 28)

_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+\-]*(?:/[A-Za-z0-9_+\-]+)*")
_PART: Final = r"[0-9*.,/]+"
_DATE: Final = re.compile(rf"(?:(?P<year>{_PART})-)?(?P<month>{_PART})(?P<sign>[-~])(?P<day>{_PART})")
_TIME: Final = re.compile(rf"(?P<hour>{_PART}):(?P<minute>{_PART})(?::(?P<second>{_PART}))?")
_ITEM: Final = re.compile(r"(?P<a>[0-9]{1,4})(?:\.\.(?P<b>[0-9]{1,4}))?(?:/(?P<step>[0-9]{1,4}))?")


def calendar_event(text: str) -> tuple[Pattern, str | None]:
    """Read an ``OnCalendar`` expression.

    Returns:
        The pattern, and the zone that the expression itself names.
    """
    parts = text.split()
    if parts[0].lower() in NICKNAMES:
        parts[:1] = NICKNAMES[parts[0].lower()].split()
    week = dates = times = zone = None
    if _is_week(parts[0]):
        week = parts.pop(0)
    if parts and _DATE.fullmatch(parts[0]):
        dates = _DATE.fullmatch(parts.pop(0))
    if parts and ":" in parts[0]:
        times = _TIME.fullmatch(parts[0])
        if times is None:
            refuse(
                text,
                f"the time is {parts[0]!r}; allowed is hour:minute or hour:minute:second, each '*', or a list of "
                "values, ranges a..b and steps a/n.",
                "For example 03:15, or 0/6:00 for every six hours.",
            )
        parts.pop(0)
    if parts and _ZONE.fullmatch(parts[-1]):
        zone = parts.pop()
    if parts or (week is None and dates is None and times is None):
        refuse(
            text,
            f"{' '.join(parts) or text!r} cannot be read as part of weekdays, date, time and zone, in that order.",
            "For example Mon..Fri *-*-* 03:15:00 Europe/Berlin.",
        )
    return Pattern(
        times=_times(times, text),
        months=frozenset(range(1, 13)) if dates is None else _values(dates["month"], _NUMERIC_MONTH, text),
        years=None if dates is None or dates["year"] in (None, "*") else _values(dates["year"], YEAR, text),
        days=_days(week, dates, text),
        clash="skip",
    ), zone


def _is_week(part: str) -> bool:
    """Whether a part starts with a day's name; ``monthly`` and ``UTC`` do not."""
    head = re.match(r"[A-Za-z]*", part)
    return head is not None and head[0].lower() in (_WEEKDAY.names or {})


def _days(week: str | None, dates: re.Match[str] | None, text: str) -> Days:
    weekdays = None if week is None else _weekdays(week, text)
    if dates is None or (dates["sign"] == "-" and dates["day"] == "*"):
        return Days(weekdays=weekdays)
    if dates["sign"] == "-":
        return Days(dates=_values(dates["day"], DATE, text), weekdays=weekdays)
    back: set[int] = set()
    for item in dates["day"].split(","):
        match = _ITEM.fullmatch(item)
        if not match or match["b"]:
            refuse(
                text,
                f"{dates['day']!r} after '~' is not a list of days counted from the end of the month.",
                "For example *-*~1 for the last day of each month.",
            )
        first = number(match["a"], _BACK, text)
        # systemd repeats towards the end of the month: ~7/1 is the last seven days.
        step = step_of(match["step"], _BACK, text) if match["step"] else first
        if match["step"] and step >= first:
            _never_repeats(item, text)
        back.update(range(first, 0, -step))
    return Days(before_last=frozenset(day - 1 for day in back), weekdays=weekdays)


def _weekdays(given: str, text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in given.split(","):
        match = re.fullmatch(r"([A-Za-z]+)(?:(?:\.\.|-)([A-Za-z]+))?", item)
        if not match:
            refuse(
                text,
                f"the weekdays are {given!r}; allowed are Mon to Sun, as lists and ranges such as Mon..Fri.",
                "For example Mon..Fri *-*-* 03:15:00.",
            )
        first = number(match[1], _WEEKDAY, text)
        last = number(match[2], _WEEKDAY, text) if match[2] else first
        if first > last:
            refuse(
                text,
                f"the weekday range {item!r} runs backwards; systemd's week starts on Monday.",
                "Write it as a list.",
            )
        found.update(range(first, last + 1))
    return frozenset(found)


def _times(match: re.Match[str] | None, text: str) -> tuple[int, ...]:
    if match is None:
        return (0,)
    seconds = frozenset({0}) if match["second"] is None else _values(match["second"], _SECOND, text)
    return times_of(_values(match["hour"], HOUR, text), _values(match["minute"], MINUTE, text), seconds)


def _values(given: str, field: Field, text: str) -> frozenset[int]:
    if given == "*":
        return frozenset(range(field.low, field.high + 1))
    found: set[int] = set()
    for item in given.split(","):
        match = _ITEM.fullmatch(item)
        if not match:
            refuse(
                text,
                f"the {field.name} is {given!r}; allowed are '*', or {field.allowed} as lists, ranges a..b and "
                "steps a/n.",
                "For example *-*-* 03:15:00.",
            )
        first = number(match["a"], field, text)
        last = number(match["b"], field, text) if match["b"] else field.high if match["step"] else first
        if first > last:
            refuse(
                text, f"the {field.name} range {item!r} runs backwards.", "Write it as a list of two ranges."
            )
        step = step_of(match["step"], field, text)
        if match["step"] and not match["b"] and first + step > last:
            _never_repeats(item, text)
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _never_repeats(item: str, text: str) -> NoReturn:
    refuse(text, f"the step of {item!r} leads out of its range at once.", "Leave the step out.")
