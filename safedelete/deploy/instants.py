"""Whether a platform would run a job when it was declared to run, instant by instant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from heapq import merge
from itertools import groupby, pairwise, takewhile, zip_longest
from typing import Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from safedelete.core.schedule import Schedule
from safedelete.core.schedule_fields import Pattern

FROM: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Fixed, so that the same schedule is always translated or always refused."""

UNTIL: Final = datetime(2029, 1, 1, tzinfo=UTC)
"""Two years hold every change of a zone's clock twice; the third one holds a 29th of February."""

_DAY: Final = timedelta(days=1)


class Difference(NamedTuple):
    """The first run that is not the same.

    Attributes:
        at: When, aware, UTC.
        how: What the platform does with it.
    """

    at: datetime
    how: Literal["leaves out", "adds"]


def difference(declared: Schedule, platform: Sequence[Schedule]) -> Difference | None:
    """Return the first run that a platform would leave out or add, from 2026 to 2028; None where there is none.

    Args:
        declared: The job's schedule.
        platform: What the platform would go by, with its own rule for changes of the clock; runs together.
    """
    for start, end in _telling(declared, platform):
        ours = declared.occurrences(start, end)
        theirs = (at for at, _ in groupby(merge(*(one.occurrences(start, end) for one in platform))))
        for mine, its in zip_longest(ours, theirs, fillvalue=UNTIL):
            if mine != its:
                return Difference(min(mine, its), "leaves out" if mine < its else "adds")
    return None


def _telling(declared: Schedule, platform: Sequence[Schedule]) -> Iterable[tuple[datetime, datetime]]:
    """Return the spans that have to be looked at run by run.

    Where local days and times are the same, only a change of the clock can make a difference.
    """
    ours, theirs = _local(declared.pattern), [_local(one.pattern) for one in platform]
    same = (
        declared.pattern is not None
        and {one.zone for one in platform} == {declared.zone}
        and {times for times, _ in theirs} == {ours[0]}
        and frozenset[date]().union(*(days for _, days in theirs)) == ours[1]
    )
    return [(day - _DAY, day + 2 * _DAY) for day in _changes(declared.zone)] if same else [(FROM, UNTIL)]


@lru_cache(maxsize=64)
def _local(pattern: Pattern | None) -> tuple[tuple[int, ...], frozenset[date]]:
    if pattern is None:
        return (), frozenset()
    return pattern.times, frozenset(takewhile(lambda day: day < UNTIL.date(), pattern.dates(FROM.date())))


@lru_cache(maxsize=8)
def _changes(zone: str) -> Sequence[datetime]:
    """Return the days, as midnights in UTC, in which a zone's clock changes."""
    if zone == "UTC":
        return []
    there = ZoneInfo(zone)
    days = [FROM.date() + n * _DAY for n in range((UNTIL - FROM).days + 1)]
    offsets = [datetime.combine(day, time(), there).utcoffset() for day in days]
    return [
        datetime.combine(day, time(), UTC)
        for day, (before, after) in zip(days, pairwise(offsets), strict=False)
        if before != after
    ]
