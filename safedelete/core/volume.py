"""The volume rule: how much a night may take after what earlier nights took.

In one sentence: *a night is refused when it takes more than its weekday's usual amount for each night it covers,
times a headroom that is as large as this job has shown to need.*

Every constant was chosen in a simulation (``python -m tests.bench.guard``) on its tuning set; ``docs/explanation/
guard.md`` shows what each one buys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt
from operator import itemgetter
from typing import Final

from safedelete.core.baseline import SHORTEST, WINDOW, Season

SAME_WEEKDAY: Final = 8
"""Usual = median of this many runs of the weekday: two months forget a level, and one bad night cannot move it."""

SEEN_WEEKDAY: Final = 2
"""Runs of a weekday before it has a usual of its own; until then the level of all days stands in."""

LEVEL: Final = 28
"""Runs in the level of all days: four whole weeks, so that no weekday weighs more than another."""

SPREAD: Final = 4.0
"""Headroom in robust standard deviations of log(rows / usual). 3.3 catches more x2 and stops 1.6 times as often."""

SPREAD_PARTS: Final = 5.0
"""The same for objects, bytes and cascades: they mostly rise with the items, and each is one more chance of a
false stop."""

PRIOR_SPREAD: Final = 0.3
"""Log standard deviation assumed of a job nobody knows yet; night-to-night spreads of regular jobs lie below it."""

PRIOR_WEIGHT: Final = 6.0
"""Runs that the assumption is worth."""

FLOOR: Final = 1.6
"""Headroom is never below this: a change of half as much again is not worth waking anybody."""

YOUNG: Final = 3.0
"""Added to the floor divided by the number of runs: a baseline of one night allows 4.6 times that night."""

SEEN: Final = 1.65
"""Exponent on the second-largest ratio seen: second, so that one bad night that slipped through teaches nothing."""

ENOUGH: Final = 20
"""Ratios before the second-largest is used; until then the floor times the largest."""

SMALL: Final = 1.5
"""Limit at least (sqrt(usual) + this) squared: about three standard deviations of a Poisson count."""

PEAK: Final = 2.0
"""A day of the month is a peak when it is above this times usual (or above the root of the headroom)."""

PEAK_ROOM: Final = 2.0
"""A day of the month that was a peak before may take this times the largest of its peaks."""

FIRST_EDGE: Final = 6.0
"""Headroom on the first end or first beginning of a month that a job sees: monthly batches are 3 to 8 times usual."""

CATCH_UP: Final = 1.5
"""Nights from which a run does not teach: what it took cannot be dealt out to single days."""

NEVER_BEFORE: Final = 20.0
"""Rows that may go where there never were any: below this every ratio is noise."""

FEW: Final = 5.0
"""Far too few: less than a fifth of what is expected; a source that lost a fifth of its tenants is not yet that."""

FEW_WEEKDAYS: Final = 4
"""Runs of the weekday without an empty one before too few can be said of it: a month."""

FEW_RUNS: Final = 14
"""Runs of any day from which it can be said, where a weekday has no month yet: two weeks."""

FEW_BACK: Final = 30
"""Runs of any day among which one that was empty keeps it from being said."""

FEW_COVERED: Final = 0.5
"""Share of the time that a run usually covers, below which nothing is too few: a second start finds what came in minutes."""

FEWEST: Final = 3
"""Values below which a spread says nothing, and only what is assumed beforehand counts."""

SINGLE: Final = 5
"""Runs of one night from which those that cover several are left out of the baseline."""

EDGE_FROM: Final = 4
"""Runs before the first month edge is given room: until then nothing is usual that it could be an edge of."""

QUIET: Final = 0.5
"""A night of less than this times usual was quiet, and its rows may come the night after."""

FORGOTTEN: Final = 28
"""Nights of a gap that are looked up by weekday; a longer one is dealt with in proportion."""

ROOM_MOST: Final = 50.0
"""Largest headroom as a log ratio: beyond it exp() would soon overflow, and nothing would be stopped anyway."""

MAD: Final = 1.4826
"""Standard deviations in a median absolute deviation of a normal error (Rousseeuw and Croux 1993)."""

USUAL_FROM_TO: Final = (0.1, 0.9)
"""Points between which lie the nights that are called usual: four of five."""

EDGE: Final = 0b11
"""Season bits of the last and the first day of a month."""

_SILENT: Final = (-inf, "")
"""The limit of a rule that has nothing to say about a night."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one earlier night took by one measure.

    Attributes:
        value: Rows, objects or bytes.
        season: The days it covers.
        weight: 0: executed, but never teaches; 1; 2: counts as seen twice.
    """

    value: float
    season: Season
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Usual:
    """What the volume rule says about tonight.

    Attributes:
        limit: Most that passes; infinite where there is nothing to go by.
        low: Fewer than this is far too few; 0 where that cannot be said.
        expected: Usual amount for the nights covered; None without a baseline.
        usual_low: 10 % point of what a night took lately, for the nights covered.
        usual_high: 90 % point.
        runs: Runs in the baseline.
        headroom: Times usual.
        rule: What set the limit.
    """

    limit: float = inf
    low: float = 0.0
    expected: float | None = None
    usual_low: float | None = None
    usual_high: float | None = None
    runs: int = 0
    headroom: float = 1.0
    rule: str = "no baseline"


def judge(history: Sequence[Sample], tonight: Season, *, small: float = inf, spread: float = SPREAD) -> Usual:
    """Say how much tonight may take.

    Args:
        history: Earlier nights, oldest first, empty ones included.
        tonight: The days it covers; an unknown elapsed time counts as one night.
        small: Largest first run that may stand for a night (its own elapsed time is unknown); any, when left out.
        spread: Headroom in robust standard deviations.
    """
    base = _baseline(history, small)
    if not base:
        return Usual()
    shortest = _shortest(base)
    elapsed = _covers(tonight, shortest)
    single = [s for s in base if _covers(s.season, shortest) < CATCH_UP]
    runs = single if len(single) >= SINGLE else base
    rates = [_rate(s, shortest) for s in runs]
    levels = _levels(runs, rates, shortest)
    room, rule = _headroom(runs, rates, levels, tonight, spread)
    nights, expected = _expect(levels, tonight.weekday, elapsed)

    limit = (expected + nights) * room - nights
    once = levels.once[tonight.weekday]
    if once is not None:
        limit = max(limit, once * elapsed * room)
    limit, rule = max(
        (limit, rule),
        _day_of_month(base, levels, tonight, expected, nights, room),
        _after_a_quiet_night(history, levels, tonight, expected, nights, room),
        ((sqrt(expected) + SMALL) ** 2, "small counts"),
        key=itemgetter(0),
    )
    recent = sorted(rates[-LEVEL:])
    return Usual(
        limit=limit,
        low=_too_few(history, levels, tonight, expected, room),
        expected=expected,
        usual_low=_point(recent, USUAL_FROM_TO[0]) * elapsed,
        usual_high=_point(recent, USUAL_FROM_TO[1]) * elapsed,
        runs=len(base),
        headroom=room,
        rule=rule,
    )


@dataclass(frozen=True, slots=True)
class _Levels:
    """Usual amount per night by weekday, from how many runs, and what a weekday took that was seen once.

    Beside them how many nights a run usually covers, and the least that any counts as.
    """

    usual: list[float]
    seen: list[int]
    once: list[float | None]
    covers: float
    shortest: float

    @property
    def weekly(self) -> bool:
        return max(self.seen) >= SEEN_WEEKDAY


def _baseline(history: Sequence[Sample], small: float) -> list[Sample]:
    teaching = [s for s in history if s.weight and s.value > 0]
    timed = [s for s in teaching if s.season.elapsed is not None]
    if len(timed) < FEWEST:
        # The first run covers an unknown time. It stands in until there are others, unless it looks like a backlog.
        timed = [s for s in teaching if s.season.elapsed is not None or s.value <= small]
    return timed[-WINDOW:]


def _shortest(base: Sequence[Sample]) -> float:
    """Return the fewest nights that a run counts as; fewer than else where most runs of the job cover fewer."""
    spans = [s.season.elapsed for s in base if s.season.elapsed]
    return min(SHORTEST, median(spans)) if len(spans) >= FEWEST else SHORTEST


def _covers(season: Season, shortest: float) -> float:
    return 1.0 if season.elapsed is None else max(season.elapsed, shortest)


def _rate(sample: Sample, shortest: float) -> float:
    return sample.value / _covers(sample.season, shortest)


def _levels(runs: Sequence[Sample], rates: Sequence[float], shortest: float) -> _Levels:
    by_day: list[list[float]] = [[], [], [], [], [], [], []]
    for sample, rate in zip(runs, rates, strict=True):
        if not sample.season.days & EDGE:
            by_day[sample.season.weekday].append(rate)
    level = median(rates[-LEVEL:])
    lately = [values[-SAME_WEEKDAY:] for values in by_day]
    return _Levels(
        usual=[median(values) if len(values) >= SEEN_WEEKDAY else level for values in lately],
        seen=[len(values) for values in lately],
        once=[values[0] if len(values) == 1 else None for values in lately],
        covers=median([_covers(s.season, shortest) for s in runs]),
        shortest=shortest,
    )


def _headroom(
    runs: Sequence[Sample], rates: Sequence[float], levels: _Levels, tonight: Season, spread: float
) -> tuple[float, str]:
    usual = levels.usual
    ratios = [log((x + 1) / (usual[s.season.weekday] + 1)) for s, x in zip(runs, rates, strict=True)]
    apart = _peak_days(runs, ratios) & ~tonight.days
    if not tonight.days & EDGE:
        apart |= EDGE
    kept = [
        (r, s.weight)
        for r, s in zip(ratios, runs, strict=True)
        if not s.season.days & apart and (not levels.weekly or levels.seen[s.season.weekday] >= SEEN_WEEKDAY)
    ]
    if len(kept) < FEWEST:
        kept = [(r, s.weight) for r, s in zip(ratios, runs, strict=True)]
    ordered = sorted(r for r, _ in kept)
    count = len(ordered)
    deviation = 0.0
    if count >= FEWEST:
        middle = _middle(ordered)
        deviation = MAD * median([abs(r - middle) for r in ordered])
    sigma = sqrt((PRIOR_WEIGHT * PRIOR_SPREAD**2 + count * deviation**2) / (PRIOR_WEIGHT + count))
    if count < ENOUGH:
        seen = max(0.0, ordered[-1]) + log(FLOOR)
    else:
        twice = [r for r, weight in kept if weight > 1]
        seen = SEEN * max(ordered[-2], *twice, 0.0)
    room, rule = max(
        (log(FLOOR + YOUNG / len(runs)), "floor"), (spread * sigma, "spread"), (seen, "seen before")
    )
    return exp(min(room, ROOM_MOST)), rule


def _peak_days(runs: Sequence[Sample], ratios: Sequence[float]) -> int:
    """Return the days of the month that were far above usual every time, at least twice."""
    if len(runs) < LEVEL:
        return 0
    times: dict[int, int] = {}
    peaks: dict[int, int] = {}
    high = log(PEAK)
    for sample, ratio in zip(runs, ratios, strict=True):
        bits = sample.season.days
        # Of several days, the latest in its month; the last day of a month counts as such too (else this adds 0).
        for bit in (1 << (bits.bit_length() - 1), bits & 1):
            times[bit] = times.get(bit, 0) + 1
            peaks[bit] = peaks.get(bit, 0) + (ratio > high)
    return sum(bit for bit, n in times.items() if n >= 2 and peaks[bit] == n)


def _expect(levels: _Levels, weekday: int, elapsed: float) -> tuple[int, float]:
    nights = max(1, round(elapsed))
    if nights == 1:
        return 1, levels.usual[weekday] * elapsed
    days = [(weekday - back) % 7 for back in range(min(nights, FORGOTTEN))]
    return nights, sum(levels.usual[d] for d in days) * nights / len(days)


def _day_of_month(
    base: Sequence[Sample], levels: _Levels, tonight: Season, expected: float, nights: int, room: float
) -> tuple[float, str]:
    same = [s for s in base if s.season.days & tonight.days]
    edge = tonight.days & EDGE
    if edge and len(base) >= EDGE_FROM and not any(s.season.days & edge for s in base):
        return (expected + nights) * FIRST_EDGE - nights, "first month edge"
    if not same:
        return _SILENT
    usual = levels.usual
    rates = [_rate(s, levels.shortest) for s in same]
    ratio = max((x + 1) / (usual[s.season.weekday] + 1) for s, x in zip(same, rates, strict=True))
    if ratio <= max(PEAK, sqrt(room)):
        return _SILENT
    peak = (
        PEAK_ROOM * max(*rates, usual[tonight.weekday] * ratio) * min(1.0, _covers(tonight, levels.shortest))
    )
    return peak + (expected * room if nights > 1 else 0.0), "day of month"


def _after_a_quiet_night(
    history: Sequence[Sample], levels: _Levels, tonight: Season, expected: float, nights: int, room: float
) -> tuple[float, str]:
    """A night that brought less than half its usual may be followed by its catch-up."""
    last = history[-1]
    day = last.season.weekday
    if nights > 1 or last.weight == 0 or last.season.elapsed is None or last.season.elapsed >= CATCH_UP:
        return _SILENT
    if min(levels.seen[day], levels.seen[tonight.weekday]) < SEEN_WEEKDAY:
        return _SILENT
    due = levels.usual[day] * _covers(last.season, levels.shortest)
    if last.value >= QUIET * due:
        return _SILENT
    return (due + expected) * room - last.value, "after a quiet night"


def _too_few(
    history: Sequence[Sample], levels: _Levels, tonight: Season, expected: float, room: float
) -> float:
    """Return what is far too few, or 0: a job that had empty nights, or few rows, is left alone."""
    least = FEW_COVERED * levels.covers
    if tonight.elapsed is None or tonight.elapsed < least:
        return 0.0
    history = [s for s in history if s.season.elapsed is None or s.season.elapsed >= least]
    same = [s.value for s in history if s.season.weekday == tonight.weekday][-SAME_WEEKDAY:]
    if len(same) < FEW_WEEKDAYS:
        same = [s.value for s in history[-FEW_BACK:]] if len(history) >= FEW_RUNS else []
    if not same or min(same) <= 0 or expected < NEVER_BEFORE:
        return 0.0
    return max(1.0, expected / max(FEW, room**2))


def median(values: Sequence[float]) -> float:
    """Return the middle of some values; statistics.median costs three times as much on these short lists."""
    return _middle(sorted(values))


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else 0.5 * (ordered[half - 1] + ordered[half])


def _point(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
