"""Rules of other tools, as they are documented, to stand beside the guard; each returns the most that passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import nbinom, poisson

Rule = Callable[[np.ndarray, np.ndarray], float]
"""(earlier counts, nights each covers), oldest first → limit per night covered tonight, or infinite."""


def _rates(counts: np.ndarray, spans: np.ndarray, last: int) -> np.ndarray:
    return counts[-last:] / np.maximum(1, spans[-last:])


def times_mean(counts: np.ndarray, spans: np.ndarray) -> float:
    return 3 * counts[-30:].mean() if len(counts) >= 3 else np.inf


def three_sd(counts: np.ndarray, spans: np.ndarray) -> float:
    return counts.mean() + 3 * counts.std(ddof=1) if len(counts) >= 3 else np.inf


def times_last(counts: np.ndarray, spans: np.ndarray) -> float:
    return 2 * counts[-1] if len(counts) else np.inf


def median_mad(counts: np.ndarray, spans: np.ndarray) -> float:
    if len(counts) < 5:
        return np.inf
    middle = np.median(counts[-30:])
    return float(middle + 3.5 * 1.4826 * np.median(np.abs(counts[-30:] - middle)))


def twice_max(counts: np.ndarray, spans: np.ndarray) -> float:
    return 2 * _rates(counts, spans, 30).max() if len(counts) else np.inf


def weighted_quantile(counts: np.ndarray, spans: np.ndarray) -> float:
    if len(counts) < 3:
        return np.inf
    rates = _rates(counts, spans, len(counts))
    weight = 0.97 ** np.arange(len(rates))[::-1]
    order = np.argsort(rates)
    at = int(np.searchsorted(np.cumsum(weight[order]) / weight.sum(), 0.99))
    return float(2 * rates[order][min(at, len(rates) - 1)])


def negative_binomial(counts: np.ndarray, spans: np.ndarray) -> float:
    if len(counts) < 5:
        return np.inf
    recent = counts[-30:]
    mean = max(recent.mean(), 0.2)
    spread = recent.var(ddof=1) * (1 + 1 / len(recent))
    if spread <= 1.02 * mean:
        return float(poisson.isf(1e-4, mean))
    size = mean * mean / (spread - mean)
    return float(nbinom.isf(1e-4, size, size / (size + mean)))


def never(counts: np.ndarray, spans: np.ndarray) -> float:
    return np.inf


PEERS: Mapping[str, tuple[Rule, bool]] = {
    "3 x mean of 30": (times_mean, False),
    "mean + 3 sd (BatchNormal)": (three_sd, False),
    "2 x last night (RelativeRateOfChange)": (times_last, False),
    "median + 3.5 MAD of 30": (median_mad, False),
    "2 x max of 30, per night": (twice_max, True),
    "2 x weighted 99 % quantile, per night": (weighted_quantile, True),
    "negative binomial, p = 1e-4": (negative_binomial, False),
    "half of the table": (never, False),
}
"""Name → (rule, whether its limit is times the nights covered)."""
