"""Nightly series for the guard's bench: 22 families of jobs, and what twelve accidents would do to them.

A series starts from ``arrivals[d]``, the rows that become eligible on day d, known beyond the last night by the whole
retention: an accident is then physical (a cutoff moved from 30 to 3 days really takes the next 27 days' rows).

One number selects a set: it changes every seed *and* stretches every parameter range, so that two sets share
neither a series nor a range. Set 0 is for tuning.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

MONDAY = dt.date(2023, 1, 2)
BURSTY = frozenset({"zero_nights", "lognormal", "burst_mix"})
SMALL = frozenset({"small_poisson", "small_nb", "constant"})

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass
class Calendar:
    """Weekday, day of month, last day of month and day of year of consecutive days."""

    start: int
    size: int

    def __post_init__(self) -> None:
        days = [MONDAY + dt.timedelta(days=self.start + i) for i in range(self.size)]
        self.weekday = np.array([d.weekday() for d in days])
        self.day = np.array([d.day for d in days])
        self.last = np.array([(d + dt.timedelta(days=1)).day == 1 for d in days])
        self.of_year = np.array([d.timetuple().tm_yday for d in days])


@dataclass
class Knobs:
    """Draws parameters from ranges that are stretched by a factor of the set's own."""

    number: int
    family: str
    rng: np.random.Generator

    def stretch(self, key: str) -> float:
        if self.number == 0:
            return 1.0
        seed = zlib.crc32(f"{self.number}|{self.family}|{key}".encode())
        return float(np.exp(np.random.default_rng(seed).uniform(-0.25, 0.25)))

    def flat(self, key: str, low: float, high: float, cap: float = np.inf) -> float:
        by = self.stretch(key)
        return min(float(self.rng.uniform(low * by, high * by)), cap)

    def log(self, key: str, low: float, high: float) -> float:
        by = self.stretch(key)
        return float(np.exp(self.rng.uniform(np.log(low * by), np.log(high * by))))

    def pick(self, options: list) -> object:
        return options[int(self.rng.integers(len(options)))]


@dataclass
class Shape:
    """A family's sampler and its ways of running."""

    draw: Draw
    skip: float = 0.0
    jitter: float = 0.0
    backlog: float = 0.0
    one_offs: list[float] = field(default_factory=list)
    one_off_nights: float = 0.0


def noise(rng: np.random.Generator, size: tuple[int, int], sigma: float) -> np.ndarray:
    """Lognormal with mean 1."""
    return np.exp(rng.normal(0, sigma, size) - 0.5 * sigma * sigma)


def poisson(level: np.ndarray | float, sigma: float, days: int) -> Draw:
    return lambda rng, n: rng.poisson(level * noise(rng, (n, days), sigma))


def week(k: Knobs, c: Calendar, low: float = 0.1, high: float = 0.6) -> np.ndarray:
    factor = np.ones(7)
    weekend = k.flat("wk", low, high)
    factor[5] = weekend
    factor[6] = weekend * k.flat("wk2", 0.7, 1.2)
    factor[0] *= k.flat("mon", 0.9, 1.3)
    return factor[c.weekday]


def steady(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s = k.log("mu", 300, 1e6), k.flat("s", 0.05, 0.28)
    return Shape(poisson(mu, s, n))


def weekly(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s = k.log("mu", 300, 1e6), k.flat("s", 0.05, 0.28)
    return Shape(poisson(mu * week(k, c), s, n))


def weekend_zero(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s = k.log("mu", 200, 2e5), k.flat("s", 0.05, 0.28)
    work = np.where(c.weekday >= 5, 0.0, 1.0)
    tiny = k.flat("tiny", 0, 0.3)
    return Shape(lambda rng, m: rng.poisson(mu * work * noise(rng, (m, n), s) + np.where(work == 0, tiny, 0)))


def weekly_batch(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, by = k.log("mu", 200, 2e5), k.flat("s", 0.06, 0.25), k.flat("k", 4, 14)
    return Shape(poisson(mu * np.where(c.weekday == k.rng.integers(7), by, 1.0), s, n))


def month_end(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, by = k.log("mu", 300, 5e5), k.flat("s", 0.06, 0.25), k.flat("k", 3, 8)
    level = week(k, c, 0.5, 1.0) * np.where(c.last, by, 1.0)
    level = level * np.where(c.day == 1, 1 + (by - 1) * k.flat("k1", 0.2, 0.8), 1.0)
    return Shape(poisson(mu * level, s, n))


def growth(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, rate = k.log("mu", 200, 5e4), k.flat("s", 0.05, 0.25), k.flat("g", 0.002, 0.012)
    return Shape(poisson(mu * week(k, c, 0.4, 1.0) * np.exp(rate * np.minimum(np.arange(n), 420)), s, n))


def yearly(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, swing = k.log("mu", 300, 5e5), k.flat("s", 0.05, 0.22), k.flat("a", 0.3, 0.6, cap=0.75)
    peak, at, width = k.flat("pk", 1.8, 3.2), k.rng.integers(1, 360), k.flat("pw", 4, 10)
    away = np.minimum(np.abs(c.of_year - at), 365 - np.abs(c.of_year - at))
    season = 1 + swing * np.sin(2 * np.pi * c.of_year / 365.25)
    holiday = 1 + (peak - 1) * np.exp(-0.5 * (away / width) ** 2)
    return Shape(poisson(mu * season * holiday * week(k, c, 0.4, 1.0), s, n))


def skipped(k: Knobs, n: int, c: Calendar) -> Shape:
    shape = steady(k, n, c)
    shape.skip = k.flat("skip", 0.03, 0.08)
    return shape


def skipped_weekly(k: Knobs, n: int, c: Calendar) -> Shape:
    shape = weekly(k, n, c)
    shape.skip = k.flat("skip", 0.03, 0.08)
    return shape


def zero_nights(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, busy = k.log("mu", 100, 2e5), k.flat("s", 0.3, 0.6), k.flat("q", 0.3, 0.75, cap=0.85)
    return Shape(lambda rng, m: rng.poisson(mu * noise(rng, (m, n), s)) * (rng.random((m, n)) < busy))


def lognormal(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s = k.log("mu", 300, 1e6), k.flat("s", 0.6, 1.1)
    return Shape(poisson(mu, s, n))


def burst_mix(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s = k.log("mu", 300, 5e5), k.flat("s", 0.08, 0.25)
    often, tail = k.flat("q", 0.02, 0.06), k.flat("al", 1.3, 2.5)

    def draw(rng: np.random.Generator, m: int) -> np.ndarray:
        bursts = (rng.random((m, n)) < often) * np.minimum(3 * (1 + rng.pareto(tail, (m, n))), 60)
        return rng.poisson(mu * noise(rng, (m, n), s) * np.maximum(1, bursts))

    return Shape(draw)


def small_poisson(k: Knobs, n: int, c: Calendar) -> Shape:
    mu = k.log("mu", 0.3, 15)
    return Shape(lambda rng, m: rng.poisson(mu, (m, n)))


def small_nb(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, size = k.log("mu", 1, 18), k.flat("k", 0.8, 3)
    return Shape(lambda rng, m: rng.poisson(rng.gamma(size, mu / size, (m, n))))


def backlog(k: Knobs, n: int, c: Calendar) -> Shape:
    shape = [steady, weekly][k.rng.integers(2)](k, n, c)
    shape.backlog = k.log("bl", 30, 400)
    return shape


def oneoff(k: Knobs, n: int, c: Calendar) -> Shape:
    shape = [steady, weekly][k.rng.integers(2)](k, n, c)
    shape.one_offs = [k.flat("of", 0.2, 0.9, cap=0.95) for _ in range(int(k.rng.integers(1, 4)))]
    shape.one_off_nights = k.log("ok", 10, 60)
    return shape


def level_shift(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, by = k.log("mu", 300, 5e5), k.flat("s", 0.05, 0.2), k.flat("k", 1.5, 3.0)
    if k.rng.random() < 0.3:
        by = 1 / by
    at = int(k.flat("t", 0.3, 0.8) * n)
    return Shape(poisson(mu * week(k, c, 0.4, 1.0) * np.where(np.arange(n) >= at, by, 1.0), s, n))


def constant(k: Knobs, n: int, c: Calendar) -> Shape:
    rows = int(k.pick([1, 7, 24, 48, 96, 288, 1440, 5000]))
    often = k.flat("q", 0.0, 0.03)
    off = max(1, rows // 24)

    def draw(rng: np.random.Generator, m: int) -> np.ndarray:
        level = np.full((m, n), rows)
        hit = rng.random((m, n)) < often
        return np.where(hit, level + rng.integers(-off, off + 1, (m, n)), level)

    return Shape(draw, skip=k.flat("skip", 0, 0.03))


def ramp_zero(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, empty = k.log("mu", 100, 2e5), k.flat("s", 0.05, 0.25), int(k.flat("z", 10, 60))
    since = np.arange(n) - empty
    by_day, length = week(k, c, 0.4, 1.0), k.flat("tau", 0.5, 15)
    ramp = np.where(since < 0, 0, 1) * (1 - np.exp(-(since + 1).clip(0) / length))
    return Shape(poisson(mu * by_day * ramp, s, n))


def irregular(k: Knobs, n: int, c: Calendar) -> Shape:
    shape = weekly(k, n, c)
    shape.jitter = k.flat("jit", 0.1, 0.45)
    return shape


def wander(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s, w = k.log("mu", 300, 5e5), k.flat("s", 0.05, 0.2), k.flat("w", 0.03, 0.1)

    def draw(rng: np.random.Generator, m: int) -> np.ndarray:
        level, step = np.zeros((m, n)), rng.normal(0, w, (m, n))
        for day in range(1, n):
            level[:, day] = 0.97 * level[:, day - 1] + step[:, day]
        return rng.poisson(mu * np.exp(level) * noise(rng, (m, n), s))

    return Shape(draw)


def mixed(k: Knobs, n: int, c: Calendar) -> Shape:
    mu, s = k.log("mu", 300, 1e5), k.flat("s", 0.08, 0.25)
    by, rate = k.flat("k", 2, 6), k.flat("g", 0, 0.006)
    level = week(k, c, 0.15, 0.8) * np.where(c.last, by, 1.0) * np.exp(rate * np.minimum(np.arange(n), 420))
    return Shape(poisson(mu * level, s, n), skip=k.flat("skip", 0.01, 0.05))


FAMILIES = (
    steady, weekly, weekend_zero, weekly_batch, month_end, growth, yearly, skipped, skipped_weekly, zero_nights,
    lognormal, burst_mix, small_poisson, small_nb, backlog, oneoff, level_shift, constant, ramp_zero, irregular,
    wander, mixed,
)  # fmt: skip


@dataclass
class Series:
    """One job's nights.

    Attributes:
        family: Its generator.
        index: Its place within the family.
        retention: Days.
        arrivals: Rows that become eligible, by day, beyond the last night by the retention.
        runs: When each night ran, in days.
        counts: What each night's plan counts.
        table: Rows of the table before each night.
        young: Of these, rows that will become eligible later.
        one_off: Nights with a one-off beside the usual rows.
        first_day: Of the calendar, in days after ``MONDAY``.
        ceiling: The 99.9 % point of each night over many draws of the same process; clairvoyant.
    """

    family: str
    index: int
    retention: int
    arrivals: np.ndarray
    runs: np.ndarray
    counts: np.ndarray
    table: np.ndarray
    young: np.ndarray
    one_off: np.ndarray
    first_day: int
    ceiling: np.ndarray | None = None

    @property
    def nights(self) -> int:
        return len(self.counts)

    @property
    def day(self) -> np.ndarray:
        return np.round(self.runs).astype(int)

    @property
    def kind(self) -> str:
        return "bursty" if self.family in BURSTY else "small" if self.family in SMALL else "regular"

    def becoming(self, start: float, end: float) -> float:
        """Rows that become eligible between two instants, in days; a part of a day in proportion."""
        return float(_upto(self.arrivals[None], np.array([start, end])) @ np.array([-1.0, 1.0]))


def _upto(arrivals: np.ndarray, at: np.ndarray) -> np.ndarray:
    days = arrivals.shape[1]
    sums = np.concatenate([np.zeros((len(arrivals), 1)), np.cumsum(arrivals, 1)], 1)
    at = np.clip(at, 0, days)
    whole = np.floor(at).astype(int)
    inside = np.where(whole < days, arrivals[:, np.minimum(whole, days - 1)], 0)
    return (sums[:, whole] + (at - whole) * inside).squeeze()


def make(number: int, family: Callable[[Knobs, int, Calendar], Shape], index: int, draws: int = 0) -> Series:
    """Make one series of a set; ``draws`` more of the same process give the clairvoyant ceiling."""
    name = family.__name__
    seed = zlib.crc32(f"{number}/{name}/{index}".encode())
    rng = np.random.default_rng(seed)
    nights = int(rng.choice([30, 45, 60, 90, 120, 180, 240, 300, 365, 400]))
    if name == "ramp_zero":
        nights = max(nights, 120)
    knobs = Knobs(number, name, rng)
    retention = int(knobs.pick([7, 14, 30, 30, 30, 60, 90, 180, 365]))
    first_day = int(rng.integers(0, 365))
    days = 2 * nights + retention + 20
    shape = family(knobs, days, Calendar(first_day, days))
    run_rng = np.random.default_rng(seed + 1)
    arrivals = np.asarray(shape.draw(run_rng, 1)[0], dtype=float)
    runs = np.array(list(_instants(run_rng, nights, shape)))
    before = np.concatenate([[max(runs[0], 0.0)], runs[:-1] + 1.0])
    done = _upto(arrivals[None], runs + 1.0)
    counts = np.round(done - _upto(arrivals[None], before))
    usual = arrivals[:nights].mean() + 1e-9
    forever = round(float(knobs.pick([0, 0, 0.5, 2, 10])) * usual * retention)
    if shape.backlog:
        counts[0] += round(shape.backlog * usual)
    one_off = np.zeros(nights, bool)
    for share in shape.one_offs:
        at = min(nights - 1, max(3, int(share * nights)))
        one_off[at] = True
        counts[at] += round(shape.one_off_nights * usual)
    young = _upto(arrivals[None], runs + 1.0 + retention) - done
    ceiling = None
    if draws:
        many = np.asarray(shape.draw(np.random.default_rng(seed + 2), draws), dtype=float)
        ceiling = np.quantile(np.round(_upto(many, runs + 1.0) - _upto(many, before)), 0.999, axis=0)
        ceiling[0] += round(shape.backlog * usual)
    return Series(
        name, index, retention, arrivals, runs, counts, counts + young + forever, young, one_off, first_day, ceiling
    )  # fmt: skip


def _instants(rng: np.random.Generator, nights: int, shape: Shape) -> Iterator[float]:
    nominal = 0
    for i in range(nights):
        if i and shape.skip and rng.random() < shape.skip:
            nominal += int(rng.choice([1, 1, 1, 2, 3]))
        yield nominal + (rng.uniform(-shape.jitter, shape.jitter) if shape.jitter else 0.0)
        nominal += 1


def accidents(series: Series, night: int, rng: np.random.Generator) -> dict[str, float]:
    """Return what tonight's plan would count under each accident."""
    count, table = series.counts[night], series.table[night]
    start = int(series.day[night]) + 1
    ahead = series.arrivals[start : start + series.retention]
    fan_out, nulled = int(rng.integers(3, 13)), rng.uniform(0.15, 0.6)
    return {
        "cutoff/10": count + ahead[: max(1, round(series.retention * 0.9))].sum(),
        "cutoff0": count + ahead.sum(),
        "where_lost": table,
        "tz24h": count + ahead[:1].sum(),
        "clock+7d": count + ahead[:7].sum(),
        "null_col": count + round(nulled * (table - count)),
        "fanout": count * fan_out,
        "x2": count * 2,
        "x3": count * 3,
        "x5": count * 5,
        "x10": count * 10,
        "zero": 0.0,
    }


def make_set(number: int, each: int = 12, draws: int = 0) -> Iterator[Series]:
    """Make every series of a set."""
    for family in FAMILIES:
        for index in range(each):
            yield make(number, family, index, draws)
