"""When a job runs: past and future instants of a schedule, and how far apart they can lie.

Crontab lines, AWS ``cron(...)`` and ``rate(...)``, and systemd's ``OnCalendar`` all become one :class:`Schedule`. Each
platform treats local times that a DST change skips or repeats in its own way, so a deadline or an alarm that
derives from a schedule must know which one runs it: daily at 02:30 in Berlin leaves 47 hours between two runs every
spring on AWS and systemd, and 25 at most under cron.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple, NoReturn, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from safedelete.core.schedule_calendar import NICKNAMES as CALENDAR_NICKNAMES
from safedelete.core.schedule_calendar import calendar_event
from safedelete.core.schedule_fields import DAY_NAMES, FIRST_YEAR, LAST_YEAR, Clash, Pattern, refuse
from safedelete.core.schedule_parse import aws_cron, crontab, rate
from safedelete.errors import ConfigError

Kind: TypeAlias = Literal["crontab", "aws-cron", "rate", "oncalendar"]

HORIZON: Final = timedelta(days=731)
"""Two years: every yearly event, both DST changes among them, is in there twice."""

_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(FIRST_YEAR, 1, 1, tzinfo=UTC)
_NOT_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_ZONE_HINT: Final = (
    "Use an IANA name such as Europe/Berlin or UTC; a bare container may lack the tzdata package."
)


class Gaps(NamedTuple):
    """How far apart two neighbouring runs can lie.

    Attributes:
        shortest: None where the schedule has fewer than two runs.
        longest: None as above.
    """

    shortest: timedelta | None
    longest: timedelta | None


class LocalTime(NamedTuple):
    """A scheduled local time that a DST change skips or repeats.

    Attributes:
        local: The local time, naive, in the schedule's zone.
        effect: What the change does to it on the clock.
    """

    local: datetime
    effect: Literal["skipped", "repeated"]


class _Chunk(NamedTuple):
    """The runs of one local day, or of two that a DST change entangles: a start, and seconds after it."""

    base: datetime
    offsets: Sequence[int]

    def at(self, index: int) -> datetime:
        return self.base + timedelta(seconds=self.offsets[index])


@dataclass(frozen=True, slots=True)
class Schedule:
    """A parsed schedule, made by :func:`parse`. All instants are aware and in UTC.

    Attributes:
        text: As it was given.
        kind: Which format it is in.
        zone: IANA name of the zone that its local times are in; for ``rate`` it does not matter.
        pattern: Times and days; None for ``rate``.
        period: The interval of ``rate``; None for the others.
        anchor: An instant at which ``rate`` runs; AWS takes the schedule's start date or creation.
    """

    text: str
    kind: Kind
    zone: str = "UTC"
    pattern: Pattern | None = None
    period: timedelta | None = None
    anchor: datetime = _EPOCH

    def next(self, after: datetime) -> datetime | None:
        """Return the first run strictly after an aware instant; None when there is none until 2199."""
        start = _aware(after)
        return next((run for run in self._runs(start) if run > start), None)

    def previous(self, before: datetime) -> datetime | None:
        """Return the last run strictly before an aware instant; None when there was none since 1970."""
        end = min(_aware(before), datetime(LAST_YEAR + 1, 1, 2, tzinfo=UTC))
        if self.period is not None:
            return self.anchor + ((end - self.anchor) // -self.period + 1) * -self.period
        if self.pattern is None or end <= _EPOCH - _DAY:
            return None
        best: datetime | None = None
        found: date | None = None
        for day in self.pattern.dates_back(end.astimezone(_zone(self.zone)).date() + _DAY):
            # The day before may reach into this one where the clock is set back at midnight.
            if found is not None and day < found - _DAY:
                break
            for run in _expand(self._chunk(day)):
                if run < end and (best is None or run > best):
                    best, found = run, found or day
        return best

    def occurrences(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yield every run from ``start``, inclusive, to ``end``, exclusive, ascending."""
        first, last = _aware(start), _aware(end)
        for run in self._runs(first):
            if run >= last:
                return
            if run >= first:
                yield run

    def gaps(self, start: datetime) -> Gaps:
        """Measure the gaps between neighbouring runs over the two years from an aware instant.

        A rarer schedule is followed on until it has run twice.
        """
        if self.period is not None:
            return Gaps(self.period, self.period)
        first = _aware(start)
        end = first + HORIZON
        shortest: int | None = None
        longest = 0
        last: datetime | None = None
        ordinary: tuple[int, ...] | None = None
        for chunk in self._chunks(first):
            skip = bisect_left(chunk.offsets, (first - chunk.base) / _SECOND)
            if skip == len(chunk.offsets):
                continue
            opening = chunk.at(skip)
            found: tuple[int, ...] = () if last is None else ((opening - last) // _SECOND,)
            if opening < end and (skip or chunk.offsets is not self._times):
                found += _spans(chunk.offsets[skip:])
            elif opening < end:
                # Days without a DST change share one sequence of times, which is measured once.
                ordinary = _spans(chunk.offsets) if ordinary is None else ordinary
                found += ordinary
            for gap in found:
                shortest = gap if shortest is None else min(shortest, gap)
                longest = max(longest, gap)
            last = chunk.at(-1)
            if opening >= end and shortest is not None:
                break
        if shortest is None:
            return Gaps(None, None)
        return Gaps(timedelta(seconds=shortest), timedelta(seconds=longest))

    def local_times_at_risk(self, start: datetime) -> tuple[LocalTime, ...]:
        """Return the local times of two years that a DST change skips or repeats.

        Empty where that does no harm: in UTC, for ``rate``, and for crontab lines that follow the clock (``*`` in the
        minute or hour).
        """
        first = _aware(start)
        zone = _zone(self.zone)
        if self.pattern is None or self.pattern.clash == "follow" or zone is UTC:
            return ()
        found: list[LocalTime] = []
        last_day = (first + HORIZON).astimezone(zone).date()
        for day in self.pattern.dates(first.astimezone(zone).date()):
            if day > last_day:
                break
            if _steady(day, zone):
                continue
            for seconds in self._times:
                local = datetime.combine(day, time()) + timedelta(seconds=seconds)
                early, late = _instant(local, zone), _instant(local, zone, fold=1)
                if early != late:
                    found.append(LocalTime(local, "skipped" if early > late else "repeated"))
        return tuple(found)

    @property
    def _times(self) -> tuple[int, ...]:
        return () if self.pattern is None else self.pattern.times

    def _runs(self, start: datetime) -> Iterator[datetime]:
        """Yield runs ascending, from some time before ``start`` on."""
        if self.period is None:
            for chunk in self._chunks(start):
                yield from _expand(chunk)
            return
        run = self.anchor + ((start - self.anchor) // self.period) * self.period
        while run.year <= LAST_YEAR:
            yield run
            run += self.period

    def _chunks(self, start: datetime) -> Iterator[_Chunk]:
        """Yield chunks that do not overlap, ascending, from the local day before ``start`` on."""
        if self.pattern is None or start.year > LAST_YEAR:
            return
        zone = _zone(self.zone)
        held: list[datetime] = []
        for day in self.pattern.dates(max(start, _EPOCH).astimezone(zone).date() - _DAY):
            chunk = self._chunk(day)
            if chunk.offsets is self._times and not held:
                yield chunk
                continue
            runs = sorted({*held, *_expand(chunk)})
            # Where the clock is set back just after midnight, this day ends after the next one has begun.
            tomorrow = _instant(datetime.combine(day + _DAY, time()), zone)
            held = [run for run in runs if run >= tomorrow]
            yield from _as_chunk([run for run in runs if run < tomorrow])
        yield from _as_chunk(held)

    def _chunk(self, day: date) -> _Chunk:
        zone = _zone(self.zone)
        midnight = datetime.combine(day, time())
        if _steady(day, zone):
            return _Chunk(_instant(midnight, zone), self._times)
        runs: set[datetime] = set()
        clash: Clash = "skip" if self.pattern is None else self.pattern.clash
        for seconds in self._times:
            runs.update(_resolve(midnight + timedelta(seconds=seconds), zone, clash))
        base = min(runs, default=_EPOCH)
        return _Chunk(base, [(run - base) // _SECOND for run in sorted(runs)])


def parse(text: str, zone: str = "UTC", *, anchor: datetime | None = None) -> Schedule:
    """Read a schedule in any of the four formats.

    Args:
        text: Five crontab fields or a nickname (``@daily``); ``cron(...)`` with six fields; ``rate(...)``; or an
            ``OnCalendar`` expression.
        zone: IANA name of the zone of its local times. An ``OnCalendar`` expression may name it itself.
        anchor: An aware instant at which ``rate`` runs; the Unix epoch unless said.

    Raises:
        ConfigError: The text cannot be read, names a day that does not exist, or the zone is unknown; says which
            field, what was given and what is allowed.
    """
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"Schedule {text!r}: must be a text.",
            hint="Give cron(...), rate(...), five crontab fields or an OnCalendar expression.",
        )
    check_zone(zone)
    line = text.strip()
    if line.lower().startswith("rate("):
        return Schedule(
            line, "rate", zone, period=rate(line), anchor=_EPOCH if anchor is None else _aware(anchor)
        )
    pattern: Pattern
    named: str | None = None
    kind: Kind
    if line.lower().startswith("cron("):
        kind, pattern = "aws-cron", aws_cron(line)
    elif line.startswith("@") or len(line.split()) == 5:
        kind, pattern = "crontab", crontab(line)
    elif _looks_like_calendar(line) and not line.lower().startswith("at("):
        kind, (pattern, named) = "oncalendar", calendar_event(line)
    else:
        _refuse_unknown(line)
    if named is not None:
        if not _known(named):
            refuse(line, f"{named!r} is no time zone of this machine.", _ZONE_HINT)
        if zone not in ("UTC", named):
            refuse(line, f"it names the zone {named}, and tz= names {zone}.", "Leave one of them out.")
    if not pattern.possible():
        refuse(
            line,
            "no such day exists: the months, days and years given never meet.",
            "February has 28 or 29 days; April, June, September and November have 30.",
        )
    schedule = Schedule(line, kind, named or zone, pattern)
    # Without years any day comes round in one that changes the clock on another.
    if pattern.years is not None and schedule.next(_EPOCH - _DAY) is None:
        refuse(
            line,
            f"it has no run at all: changes of the clock in {schedule.zone} skip each of its times.",
            "Choose a time that is there, or tz='UTC'.",
        )
    return schedule


def check_zone(zone: object) -> str:
    """Return the name of a time zone that this machine knows.

    Raises:
        ConfigError: There is none of that name.
    """
    if isinstance(zone, str) and _known(zone):
        return zone
    raise ConfigError(f"There is no time zone {zone!r} on this machine.", hint=_ZONE_HINT)


def _known(zone: str) -> bool:
    if not zone or zone in _NOT_ZONES:
        return False
    try:
        _zone(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _looks_like_calendar(line: str) -> bool:
    head = line.split(maxsplit=1)[0].lower()
    return (
        ":" in line
        or head in CALENDAR_NICKNAMES
        or head[:3] in DAY_NAMES
        or (("-" in head or "~" in head) and len(line.split()) <= 2 and not head.startswith("-"))
    )


def _refuse_unknown(line: str) -> NoReturn:
    fields = len(line.split())
    if line.lower().startswith("at("):
        refuse(
            line,
            "at(...) runs once, which is no schedule.",
            "Use `safedelete run FILE NAME` for a single run.",
        )
    if fields == 6:
        refuse(line, "it has 6 fields; a crontab line has 5.", f"For AWS write cron({line}).")
    refuse(
        line,
        f"it has {fields} field(s) and none of the known forms.",
        "Give cron(...), rate(...), five crontab fields or an OnCalendar expression such as *-*-* 03:15:00.",
    )


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


def _aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError(f"{instant!r} is naive; a schedule needs aware instants.")
    return instant.astimezone(UTC)


def _instant(local: datetime, zone: tzinfo, *, fold: Literal[0, 1] = 0) -> datetime:
    return local.replace(tzinfo=zone, fold=fold).astimezone(UTC)


def _steady(day: date, zone: tzinfo) -> bool:
    """Whether the day has 24 hours, none of them skipped or repeated, and neither are its two midnights."""
    if zone is UTC:
        return True
    midnight = datetime.combine(day, time())
    ends = (midnight, midnight + _DAY)
    return len({end.replace(tzinfo=zone, fold=fold).utcoffset() for end in ends for fold in (0, 1)}) == 1


def _resolve(local: datetime, zone: tzinfo, clash: Clash) -> tuple[datetime, ...]:
    early, late = _instant(local, zone), _instant(local, zone, fold=1)
    if early == late:
        return (early,)
    if early < late:
        return (early, late) if clash == "follow" else (early,)
    return (_gap_end(late, early, zone),) if clash == "shift" else ()


def _gap_end(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """Return the instant at which the clock is set forward, which lies between these two."""
    old = before.astimezone(zone).utcoffset()
    low, high = 0, (after - before) // _SECOND
    while high - low > 1:
        middle = (low + high) // 2
        changed = (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() != old
        low, high = (low, middle) if changed else (middle, high)
    return before + timedelta(seconds=high)


def _expand(chunk: _Chunk) -> Iterator[datetime]:
    return (chunk.base + timedelta(seconds=offset) for offset in chunk.offsets)


def _as_chunk(runs: Sequence[datetime]) -> Iterator[_Chunk]:
    if runs:
        yield _Chunk(runs[0], [(run - runs[0]) // _SECOND for run in runs])


def _spans(offsets: Sequence[int]) -> tuple[int, ...]:
    gaps = [b - a for a, b in pairwise(offsets)]
    return (min(gaps), max(gaps)) if gaps else ()
