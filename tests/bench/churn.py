"""What each night's plan sees coming, and how the rows' fate changes until they are due.

``plain`` is the simple model: one lognormal error per plan, and 1 plan in 100 far off. ``fates`` is a model of rows:
each night some of the waiting rows die before their time (deleted by their owner) and some are born late (written
with an old instant), weekdays churn four times as much as weekends, and a forecast made j nights ahead has j nights
of churn before it. ``lumpy`` adds nights on which a good part of what is due tomorrow is put off by a week.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from safedelete.core.plan import AgeProfile
from tests.bench.series import Series

AHEAD = 9
"""Days that a profile of the bench looks ahead: more than the six runs the guard compares."""


class Churn(Protocol):
    """A model of how forecasts go wrong."""

    def start(self, series: Series, rng: np.random.Generator) -> Series:
        """Return the series as it comes out under this model, and draw its nights."""

    def profile(self, night: int) -> AgeProfile:
        """Return what the plan of a night sees coming."""


def _pack(rows: np.ndarray) -> AgeProfile:
    days = tuple((d, round(n)) for d, n in enumerate(rows.tolist()) if round(n) > 0)
    return AgeProfile(days=days, back=1, ahead=AHEAD)


def _truth(series: Series) -> np.ndarray:
    """Rows that become eligible on each of the days after each night: nights x AHEAD."""
    days = series.arrivals
    sums = np.concatenate([[0.0], np.cumsum(days)])
    at = np.clip(series.runs[:, None] + 1.0 + np.arange(AHEAD + 1)[None], 0, len(days) - 1)
    whole = np.floor(at).astype(int)
    return np.diff(sums[whole] + (at - whole) * days[whole], axis=1)


@dataclass
class Plain:
    """forecast = truth / lognormal(-0.02, sd); 1 plan in 100 off by 0.5 to 1.4 besides."""

    sd: float

    def start(self, series: Series, rng: np.random.Generator) -> Series:
        off = np.exp(rng.normal(-0.02, self.sd, series.nights))
        off *= np.where(rng.random(series.nights) < 0.01, rng.uniform(0.5, 1.4, series.nights), 1.0)
        self.rows = _truth(series) / off[:, None]
        return series

    def profile(self, night: int) -> AgeProfile:
        return _pack(self.rows[night])


@dataclass
class Fates:
    """Rows die before their time and are born late; see the module's text."""

    rate: float
    lumpy: bool = False

    def start(self, series: Series, rng: np.random.Generator) -> Series:
        nights = series.nights
        weekday = (series.first_day + series.day) % 7
        rate = np.where(weekday < 5, 1.2, 0.3) * self.rate
        deaths = _share(rng, 0.7 * rate)
        births = _share(rng, 0.3 * rate)
        self.rows = _truth(series)
        factor = (1 - births) / (1 - deaths)
        for ahead in range(AHEAD):
            # Night t sees day d through the churn of nights t .. t + d.
            for step in range(ahead + 1):
                self.rows[: nights - step, ahead] *= factor[step:]
        if self.lumpy:
            series = self._put_off(series, rng)
        return series

    def _put_off(self, series: Series, rng: np.random.Generator) -> Series:
        """Move part of tomorrow's rows a week on, the evening before; the plan of that evening sees it."""
        counts = series.counts.copy()
        for night in np.flatnonzero(rng.random(series.nights - 8) < 0.03):
            due, later = night + 1, night + 8
            moved = round(rng.uniform(0.2, 0.6) * counts[due])
            if series.one_off[due] or series.one_off[later] or series.runs[later] - series.runs[due] > 7.5:
                continue
            counts[due] -= moved
            counts[later] += moved
            for seen in range(night, later):
                ahead = later - seen - 1
                self.rows[seen, ahead] += moved
            self.rows[night, 0] = max(0.0, self.rows[night, 0] - moved)
        return Series(**{**series.__dict__, "counts": counts})

    def profile(self, night: int) -> AgeProfile:
        return _pack(self.rows[night])


def _share(rng: np.random.Generator, mean: np.ndarray) -> np.ndarray:
    """Beta-distributed shares around a mean, half as wide as it."""
    mean = np.clip(mean, 1e-4, 0.6)
    size = (1 - mean) / (0.25 * mean) - 1
    return rng.beta(mean * size, (1 - mean) * size)
