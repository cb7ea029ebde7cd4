"""What every schedule format comes down to: times of a day, and a rule that picks the days.

The parsers fill these in; ``core/schedule.py`` turns them into instants. Numbers are those of ``datetime``: Monday
is 0, the last day of a month is "0 before the last".
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Final, Literal, NoReturn, TypeAlias

from safedelete.errors import ConfigError

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2199
"""Both AWS and systemd end here."""

Clash: TypeAlias = Literal["skip", "shift", "follow"]
"""What becomes of local times that a DST change skips or repeats.

skip: a skipped time does not run, a repeated one runs the first time only (EventBridge Scheduler, systemd).
shift: a skipped time runs when the gap ends, a repeated one the first time only (cron, jobs at fixed hours).
follow: the job follows the wall clock as it stands, so a repeated time runs twice (cron, jobs with a ``*`` in the
minute or hour field).
"""

DAY_NAMES: Final = {name: i for i, name in enumerate(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])}
MONTH_NAMES: Final = {
    name: i
    for i, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], start=1
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Which days of a month match.

    Attributes:
        dates: Days of the month; None for any.
        before_last: Days counted from the last one of the month, which is 0.
        nearest: Days whose nearest Monday-to-Friday day of the same month is meant (AWS ``15W``).
        last_workday: The last Monday-to-Friday day of the month (AWS ``LW``).
        weekdays: Days of the week, Monday 0; None for any.
        nth: Pairs of weekday and its place in the month, from 1 (AWS ``2#3``).
        last_of: Weekdays whose last one in the month is meant (AWS ``6L``).
        either: A day matches when its date or its weekday does (the rule of cron); else both must.
    """

    dates: frozenset[int] | None = None
    before_last: frozenset[int] = frozenset()
    nearest: frozenset[int] = frozenset()
    last_workday: bool = False
    weekdays: frozenset[int] | None = None
    nth: frozenset[tuple[int, int]] = frozenset()
    last_of: frozenset[int] = frozenset()
    either: bool = False

    def of(self, year: int, month: int) -> list[int]:
        """Return the matching days of one month, ascending."""
        first, length = calendar.monthrange(year, month)
        everything = range(1, length + 1)
        by_date = self._by_date(first, length)
        by_week = self._by_week(first, length)
        if by_date is None and by_week is None:
            return list(everything)
        if by_date is None or by_week is None:
            return sorted(by_date or by_week or ())
        return sorted(by_date | by_week if self.either else by_date & by_week)

    def _by_date(self, first: int, length: int) -> set[int] | None:
        if self.dates is None and not (self.before_last or self.nearest or self.last_workday):
            return None
        found = {day for day in self.dates or () if day <= length}
        found |= {length - back for back in self.before_last if back < length}
        found |= {_workday(day, first, length) for day in self.nearest if day <= length}
        if self.last_workday:
            found.add(_workday(length, first, length))
        return found

    def _by_week(self, first: int, length: int) -> set[int] | None:
        if self.weekdays is None and not (self.nth or self.last_of):
            return None
        weekday = {day: (first + day - 1) % 7 for day in range(1, length + 1)}
        found = {day for day, w in weekday.items() if w in (self.weekdays or ())}
        found |= {day for day, w in weekday.items() if (w, (day - 1) // 7 + 1) in self.nth}
        return found | {day for day, w in weekday.items() if day + 7 > length and w in self.last_of}


def _workday(day: int, first: int, length: int) -> int:
    """Return the Monday-to-Friday day nearest to this one, without leaving the month."""
    match (first + day - 1) % 7:
        case 5:
            return day - 1 if day > 1 else day + 2
        case 6:
            return day + 1 if day < length else day - 2
    return day


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Local times and days, before any time zone comes in.

    Attributes:
        times: Seconds since local midnight, ascending, at least one.
        months: 1 to 12.
        years: None for any.
        days: The rule for the days of a month.
        clash: What a DST change does.
    """

    times: tuple[int, ...]
    months: frozenset[int]
    days: Days
    clash: Clash
    years: frozenset[int] | None = None

    def dates(self, first: date) -> Iterator[date]:
        """Yield matching days from one on, ascending, to the end of the last year."""
        for year in range(max(first.year, FIRST_YEAR), LAST_YEAR + 1):
            if self.years is None or year in self.years:
                for month in sorted(self.months):
                    if (year, month) >= (first.year, first.month):
                        found = (date(year, month, day) for day in self.days.of(year, month))
                        yield from (day for day in found if day >= first)

    def dates_back(self, last: date) -> Iterator[date]:
        """Yield matching days from one back, descending, to the start of the first year."""
        for year in range(min(last.year, LAST_YEAR), FIRST_YEAR - 1, -1):
            if self.years is None or year in self.years:
                for month in sorted(self.months, reverse=True):
                    if (year, month) <= (last.year, last.month):
                        found = (date(year, month, day) for day in reversed(self.days.of(year, month)))
                        yield from (day for day in found if day <= last)

    def possible(self) -> bool:
        """Whether any day matches at all; the calendar repeats after 400 years."""
        years = range(2000, 2400) if self.years is None else self.years
        return any(self.days.of(year, month) for year in years for month in self.months)


def times_of(hours: Iterable[int], minutes: Iterable[int], seconds: Iterable[int] = (0,)) -> tuple[int, ...]:
    """Return every combination as seconds since midnight, ascending."""
    return tuple(
        h * 3600 + m * 60 + s for h, m, s in product(sorted(hours), sorted(minutes), sorted(seconds))
    )


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a cron expression: its name for messages, its range, and the names it takes."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] | None = None

    @property
    def allowed(self) -> str:
        """What the field takes, in words."""
        words = f"{self.low} to {self.high}"
        if self.names:
            ordered = list(self.names)
            words += f", {ordered[0].upper()} to {ordered[-1].upper()}"
        return words


MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
DATE: Final = Field("day of the month", 1, 31)
MONTH: Final = Field("month", 1, 12, MONTH_NAMES)
YEAR: Final = Field("year", FIRST_YEAR, LAST_YEAR)

_ITEM: Final = re.compile(
    r"(?:(?P<star>\*)|(?P<a>[a-z]+|[0-9]+)(?:-(?P<b>[a-z]+|[0-9]+))?)(?:/(?P<step>[0-9]{1,4}))?",
    re.IGNORECASE,
)


_FORMS: Final = "At 03:15 each day: cron(15 3 * * ? *), 15 3 * * * or *-*-* 03:15:00."


def refuse(text: str, what: str, hint: str) -> NoReturn:
    """Raise the error of a schedule that cannot be read."""
    raise ConfigError(f"Schedule {text!r}: {what}", hint=hint)


def numbers(given: str, field: Field, text: str, *, open_step: bool) -> frozenset[int]:
    """Read a list of values, ranges and steps.

    Args:
        given: The field as written.
        field: Which one it is.
        text: The whole schedule, for messages.
        open_step: Whether ``5/10`` means "from 5 to the end, every 10"; crons disagree, so for them it is refused.
    """
    found: set[int] = set()
    for item in given.split(","):
        match = _ITEM.fullmatch(item)
        if not match:
            refuse(
                text,
                f"the {field.name} is {given!r}; allowed are {field.allowed}, as lists, ranges and steps.",
                _FORMS,
            )
        first, last = field.low, field.high
        if not match["star"]:
            first = last = number(match["a"], field, text)
            if match["b"]:
                last = number(match["b"], field, text)
            elif match["step"]:
                if not open_step:
                    refuse(
                        text,
                        f"the {field.name} {item!r} has a step without a range, which crons read differently.",
                        f"Write {match['a']}-{field.high}/{match['step']}.",
                    )
                last = field.high
        if first > last:
            refuse(
                text,
                f"the {field.name} range {item!r} runs backwards ({first} to {last}).",
                "Write it as a list of two ranges.",
            )
        found.update(range(first, last + 1, step_of(match["step"], field, text)))
    return frozenset(found)


def number(given: str, field: Field, text: str) -> int:
    """Read one value of a field, a name or a number."""
    names = field.names or {}
    value = names[given.lower()] if given.lower() in names else int(given) if given.isdecimal() else -1
    if not field.low <= value <= field.high:
        refuse(text, f"the {field.name} is {given!r}; allowed are {field.allowed}.", _FORMS)
    return value


def step_of(given: str | None, field: Field, text: str) -> int:
    """Read a step; one that never comes round twice is a mistake (``*/90`` minutes is not "every 90 minutes")."""
    if given is None:
        return 1
    step = int(given)
    if not 1 <= step <= max(field.high - field.low, 1):
        refuse(
            text,
            f"the step of the {field.name} is {step}; allowed are 1 to {field.high - field.low}.",
            "A step restarts with every hour, day or month; for other periods use rate(...).",
        )
    return step
