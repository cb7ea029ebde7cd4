"""The look-ahead: what tonight should bring, from what earlier runs saw coming in the time column.

In one sentence: *a night is refused when it brings more than the last run saw coming, by more than this job's
forecasts have been wrong before.* A forecast that only the last run made is not believed beyond the usual volume: an
update that moves a whole table's expiry to tomorrow would otherwise announce itself and pass.

Forecasts are taken from successful runs of the same definition only: a refused run's plan may be the very accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from math import exp, log, sqrt
from typing import Final

from safedelete.core.baseline import DAY, Night, between, known, profile
from safedelete.core.plan import Plan, TargetPlan
from safedelete.core.volume import ENOUGH, FEW, FEW_COVERED, FEWEST, MAD, NEVER_BEFORE, median

ERRORS: Final = 60
"""Newest forecast errors that set the tolerance: two months, of which one bad week is a small part."""

CONFIRM: Final = 6
"""Runs before the last whose forecast for tonight may confirm the last one's; their median is taken."""

LEAST: Final = 0.47
"""Tolerance above the bias, as a log ratio, is never below this (1.6 times): smaller surges are not worth waking anybody."""

SPREAD: Final = 3.3
"""Tolerance in robust standard deviations of the forecast errors: 1 in 2,000 nights of a normal error."""

PRIOR_SPREAD: Final = 0.18
"""Log standard deviation of the errors assumed before there is a record: near a fifth of the rows may change their fate."""

PRIOR_WEIGHT: Final = 5.0
"""Errors that the assumption is worth."""

SEEN: Final = 1.3
"""Times the second-largest error: a job whose forecasts are now and then far off is given that room.

On top of that error no more than ``LEAST``: two approved surges must not open the way for one far above them.
"""

SMALL: Final = 3.0
"""Limit at least (sqrt(forecast) + this) squared: whole numbers of few rows are noisy whatever the ratio."""

LATE_SHARE: Final = 0.5
"""Rows out of time may be this share of what is expected before they refuse by themselves."""

LATE_SEEN: Final = 2.0
"""Times the second-largest number of rows out of time that a run took: late writes come in such numbers now and then."""

LATE_QUIET: Final = 3.0
"""Times the usual number of rows out of time that pass without a word: naming each night's late writes, nobody would read it."""

MIDDLE: Final = (0.16, 0.84)
"""Points whose distance is two standard deviations of a normal error: the middle two thirds."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the look-ahead says about one target tonight.

    Attributes:
        expected: What the last run saw coming; less where only a part of that ever comes.
        limit: Most that passes by that forecast.
        before: Most that passes by what the runs before the last saw coming; None without such runs.
        low: Fewer than this is far too few; 0 where that cannot be said.
        errors: Past forecast errors that the tolerance comes from.
        tolerance: As a factor.
    """

    expected: float
    limit: float
    before: float | None
    low: float
    errors: int
    tolerance: float


def foresee(nights: Sequence[Night], plan: Plan, target: TargetPlan) -> Forecast | None:
    """Say what earlier runs saw coming for tonight, or None where none of them looked far enough.

    Args:
        nights: The target's earlier nights, oldest first.
        plan: Tonight's.
        target: Tonight's target.
    """
    same = [n for n in nights if n.run.plan.fingerprint == plan.fingerprint and n.target.cutoff is not None]
    if not same or target.cutoff is None or same[-1] is not nights[-1]:
        return None
    found = _errors(same)
    worth = _worth(found)
    errors = [error - worth for error in found]
    coming = [rows * exp(worth) for rows in _coming(same, len(same), target)]
    if not coming:
        return None
    usual = _tolerance(errors)
    tolerance = max(usual, _seen(errors))
    expected = coming[0]
    older = coming[1:]
    few = expected >= NEVER_BEFORE and _covers_enough(same, target.cutoff)
    return Forecast(
        expected=expected,
        limit=_room(expected, tolerance),
        before=_room(median(older), tolerance) if older else None,
        low=expected / max(FEW, exp(2 * usual)) if few else 0.0,
        errors=len(errors),
        tolerance=exp(tolerance),
    )


def late_room(nights: Sequence[Night], expected: float) -> tuple[float, float]:
    """Say how many rows out of time pass, and how many pass without a word.

    Args:
        nights: The target's earlier nights.
        expected: What tonight should bring.
    """
    taught = [(float(n.target.late), n.weight) for n in nights if not n.partial and known(n.target.late)]
    earlier = sorted(late for late, weight in taught for _ in range(weight))
    limit = max(NEVER_BEFORE, LATE_SHARE * expected, *(LATE_SEEN * second for second in earlier[-2:-1]))
    quiet = max(NEVER_BEFORE, LATE_QUIET * median(earlier)) if earlier else NEVER_BEFORE
    return limit, min(limit, quiet)


def _covers_enough(same: Sequence[Night], cutoff: datetime) -> bool:
    """Whether a run covers so much of the usual time that few rows are too few: a picture counts by the day, not by the hour."""
    last = same[-1].target.cutoff
    assert last is not None
    spans = [n.season.elapsed for n in same if n.season.elapsed is not None]
    return (cutoff - last) / DAY >= FEW_COVERED * (median(spans) if spans else 1.0)


def _coming(same: Sequence[Night], at: int, target: TargetPlan) -> list[float]:
    """Return the forecasts for one night by the runs before it, the newest first."""
    cutoff, start = target.cutoff, same[at - 1].target.cutoff
    assert cutoff is not None
    assert start is not None
    found: list[float] = []
    for night in reversed(same[max(0, at - 1 - CONFIRM) : at]):
        forecast = _by(night, start, cutoff)
        if forecast is not None:
            found.append(forecast)
    return found


def _by(night: Night, start: datetime, end: datetime) -> float | None:
    ages, cutoff = profile(night.target), night.target.cutoff
    if ages is None or cutoff is None:
        return None
    first, last = (start - cutoff) / DAY, (end - cutoff) / DAY
    if last > ages.ahead or last < first:
        return None
    return between(ages, first, last)


def _errors(same: Sequence[Night]) -> list[float]:
    """Return log(brought / forecast) of past nights, each against the run just before it."""
    found: list[float] = []
    for before, night in pairwise(same[-ERRORS - 1 :]):
        start, end = before.target.cutoff, night.target.cutoff
        if night.season.elapsed is None or start is None or end is None:
            continue
        forecast = _by(before, start, end)
        if forecast is not None and max(forecast, night.fresh) >= NEVER_BEFORE:
            found += [log((night.fresh + 1) / (forecast + 1))] * night.weight
    return found


def _worth(errors: Sequence[float]) -> float:
    """Return what forecasts have been worth, as a log ratio, or 0.

    Of sessions that each use extends, a tenth of those due tomorrow may ever come: room for them all would be room for a
    surge, and each ordinary night would seem far too few. A part within the least tolerance is left as it is.
    """
    return min(0.0, median(errors) + LEAST) if len(errors) >= FEWEST else 0.0


def _tolerance(errors: Sequence[float]) -> float:
    """Return the tolerance as a log ratio: the bias and, on top, the spread or the least."""
    ordered = sorted(errors)
    count = len(ordered)
    bias = deviation = 0.0
    if count >= FEWEST:
        middle = median(ordered)
        bias = max(0.0, middle)
        # Errors that swing between two values have a MAD of 0; half the range of the middle two thirds does not.
        last = count - 1
        swing = 0.5 * (ordered[round(MIDDLE[1] * last)] - ordered[round(MIDDLE[0] * last)])
        deviation = max(MAD * median([abs(e - middle) for e in ordered]), swing)
    sigma = sqrt((PRIOR_WEIGHT * PRIOR_SPREAD**2 + count * deviation**2) / (PRIOR_WEIGHT + count))
    return bias + max(LEAST, SPREAD * sigma)


def _seen(errors: Sequence[float]) -> float:
    """Return the room, as a log ratio, for a surge such as there have been."""
    if len(errors) < ENOUGH:
        return 0.0
    second = sorted(errors)[-2]
    return min(SEEN * second, second + LEAST)


def _room(expected: float, tolerance: float) -> float:
    return max(expected * exp(tolerance), (sqrt(expected) + SMALL) ** 2)
