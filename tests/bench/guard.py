"""Drive the shipped guard over simulated jobs and accidents; print one JSON object.

    python -m tests.bench.guard --set 10 [--set 11] [--each 12] [--peers] [--no-lookahead]

Walk forward: each night the real ``decide`` sees the history that earlier nights have left. A normal night that is
refused is a false stop; it is approved the next morning and teaches like any run. On ten nights of each series, and
on its nights 0, 1, 3 and 7, the plan is decided again under each accident, without consequences for later nights.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

try:
    import numpy as np
except ImportError:
    sys.exit("The bench needs numpy and scipy: pip install 'safedelete-purge[bench]'")

from safedelete.core.guard import decide
from safedelete.core.limits import Guard
from safedelete.core.plan import AgeProfile, PastRun, Plan, TargetPlan
from tests.bench.churn import Churn, Fates, Plain
from tests.bench.peers import PEERS, Rule
from tests.bench.series import MONDAY, Series, accidents, make_set

DAY = timedelta(days=1)
COLD = (0, 1, 3, 7)
WARM = 7
"""Runs before a night counts as a normal one."""
MATURE = 60
TRIED = 14
"""Nights before accidents are tried."""
LIMITS = Guard()
GROWS = frozenset({"x2", "x3", "x5", "x10"})
"""Accidents whose rows are really there; the others find more among those that are."""
WIPES = frozenset({"cutoff0", "where_lost"})
CHURNS: dict[str, Callable[[], Churn]] = {
    "plain 2 %": lambda: Plain(0.02),
    "plain 10 %": lambda: Plain(0.10),
    "plain 20 %": lambda: Plain(0.20),
    "fates 2 %": lambda: Fates(0.02),
    "fates 10 %": lambda: Fates(0.10),
    "fates 20 %": lambda: Fates(0.20),
    "lumpy 10 %": lambda: Fates(0.10, lumpy=True),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One decision: ``normal``, ``one-off`` or the accident; whether it was refused, warned of as too few, and named."""

    series: int
    family: str
    kind: str
    night: int
    what: str
    usual: float
    count: float
    refused: bool
    few: bool = False
    codes: frozenset[str] = frozenset()


def plan_of(
    series: Series, night: int, count: float, what: str, ages: AgeProfile | None, late: int = 0
) -> Plan:
    """Return the plan of one night as the planner would make it."""
    cutoff = datetime(MONDAY.year, MONDAY.month, MONDAY.day, tzinfo=UTC)
    cutoff += (series.first_day + float(series.runs[night]) + 1.0) * DAY
    period = series.retention * DAY
    table = series.table[night]
    matching = series.counts[night] + series.young[night]
    extra = max(0.0, count - series.counts[night])
    if what in GROWS or late:
        table, matching = table + extra, matching + extra
    elif what == "where_lost":
        matching = table
    else:
        matching = max(matching, min(count, table))
    target = TargetPlan(
        name="rows", kind="rows", items=int(count), eligible=int(count), total=int(table), ageless=int(matching),
        cutoff=cutoff, period=period, ages=ages, late=late if night else None,
    )  # fmt: skip
    return Plan(job="job", as_of=cutoff + period, fingerprint="same", targets=(target,), digest="sealed")


def walk(series: Series, number: int, churn: Churn | None, tried: int) -> Iterator[Seen]:
    """Live through one series with the shipped guard."""
    seed = zlib.crc32(f"f|{series.family}|{series.index}|{series.nights}".encode())
    rng = np.random.default_rng(seed)
    if churn is not None:
        series = churn.start(series, np.random.default_rng(seed + 3))
    nights = np.arange(TRIED, series.nights)
    nights = nights[~series.one_off[nights]]
    chosen = set(rng.choice(nights, min(tried, len(nights)), replace=False).tolist()) | set(COLD)
    history: list[PastRun] = []

    def look(plan: Plan, what: str, count: float) -> Seen:
        decision = decide(plan, LIMITS, history)
        refuses = [f.code for f in decision.findings if f.severity == "refuse"]
        codes = frozenset(f.code for f in decision.findings)
        usual = float(series.counts[night])
        return Seen(
            number, series.family, series.kind, night, what, usual, count, bool(refuses), "SD206" in codes, codes
        )  # fmt: skip

    for night in range(series.nights):
        ages = churn.profile(night) if churn is not None else None
        count = float(series.counts[night])
        one_off = bool(series.one_off[night])
        plan = plan_of(series, night, count, "normal", ages)
        yield look(plan, "one-off" if one_off else "normal", count)
        if night in chosen and not one_off:
            for what, value in accidents(series, night, rng).items():
                yield look(plan_of(series, night, value, what, ages), what, float(value))
            if churn is not None:
                back = float(round(count * rng.uniform(1, 10)))
                value = count + back
                yield look(plan_of(series, night, value, "restore", ages, int(back)), "restore", value)
        history.append(
            PastRun(
                run=f"{night:05}", plan=plan, state="succeeded", deleted={"rows": int(count)},
                teaches=0 if one_off else 1,
            )
        )  # fmt: skip


def walk_peer(series: Series, number: int, rule: Rule, per_night: bool, tried: int) -> Iterator[Seen]:
    """Live through one series with another tool's rule, or with the clairvoyant ceiling."""
    rng = np.random.default_rng(zlib.crc32(f"f|{series.family}|{series.index}|{series.nights}".encode()))
    nights = np.arange(TRIED, series.nights)
    nights = nights[~series.one_off[nights]]
    chosen = set(rng.choice(nights, min(tried, len(nights)), replace=False).tolist()) | set(COLD)
    spans = np.concatenate([[1.0], np.diff(series.runs)])
    for night in range(series.nights):
        count = float(series.counts[night])
        if rule is CEILING:
            assert series.ceiling is not None
            limit = float(series.ceiling[night])
        elif rule is HALF:
            limit = 0.5 * float(series.table[night])
        else:
            limit = rule(series.counts[:night], spans[:night])
            limit *= max(1.0, spans[night]) if per_night else 1.0
        one_off = bool(series.one_off[night])
        tries = {"one-off" if one_off else "normal": count}
        if night in chosen and not one_off:
            tries |= accidents(series, night, rng)
        for what, value in tries.items():
            yield Seen(
                number, series.family, series.kind, night, what, count, float(value), value > limit
            )  # fmt: skip


HALF = PEERS["half of the table"][0]


def CEILING(counts: np.ndarray, spans: np.ndarray) -> float:
    """Stand for the clairvoyant rule, which knows the process itself."""
    raise NotImplementedError


class Score:
    """Shares of refused decisions, with intervals from resampling whole series."""

    def __init__(self, seen: Sequence[Seen], jobs: int) -> None:
        self.seen = seen
        self.jobs = jobs
        # Nights of one job stand or fall together, so the resampling unit is the job.
        draws = np.random.default_rng(1).integers(0, jobs, (400, jobs))
        self.weights = np.apply_along_axis(np.bincount, 1, draws, minlength=jobs)

    def share(
        self, keep: Callable[[Seen], bool], per: float, hit: Callable[[Seen], bool] = lambda s: s.refused
    ) -> tuple[float, float, float, int] | None:
        hits, tries = np.zeros(self.jobs), np.zeros(self.jobs)
        for s in self.seen:
            if keep(s):
                tries[s.series] += 1
                hits[s.series] += hit(s)
        if not tries.sum():
            return None
        total = int(tries.sum())
        with np.errstate(invalid="ignore"):
            many = np.nan_to_num((self.weights @ hits) / (self.weights @ tries))
        low, high = np.quantile(many, (0.025, 0.975))
        if not hits.sum():
            high = 3.0 / total
        elif hits.sum() == total:
            low = 1 - 3.0 / total
        return per * hits.sum() / total, per * float(low), per * float(high), total


def normal(s: Seen) -> bool:
    return s.what == "normal" and s.night >= WARM


def harmful(s: Seen) -> bool:
    return s.what not in ("normal", "one-off", "zero") and s.count > s.usual


def regular(s: Seen) -> bool:
    return s.kind == "regular" and s.count - s.usual >= 20


def of_usual(s: Seen, times: float) -> bool:
    return s.count >= times * max(s.usual, 1)


def detection(score: Score) -> dict[str, object]:
    """Return the shares of accidents refused, in %, with intervals."""

    def warm(s: Seen) -> bool:
        return harmful(s) and s.night >= TRIED and s.what != "restore"

    rows: dict[str, Callable[[Seen], bool]] = {
        what: (lambda s, what=what: warm(s) and regular(s) and s.what == what)
        for what in ("x2", "x3", "x5", "x10", "tz24h", "clock+7d", "cutoff/10", "fanout", "null_col")
    }
    rows["ge5_regular"] = lambda s: warm(s) and regular(s) and of_usual(s, 5)
    rows["ge5"] = lambda s: warm(s) and of_usual(s, 5)
    rows["ge5_bursty"] = lambda s: warm(s) and of_usual(s, 5) and s.kind == "bursty"
    rows["wipe"] = lambda s: warm(s) and s.what in WIPES
    found = {name: _cell(score.share(keep, 100.0)) for name, keep in rows.items()}
    found["zero_warned"] = _cell(
        score.share(lambda s: s.what == "zero" and s.usual > 0 and s.night >= TRIED, 100.0, lambda s: s.few)
    )
    return found


def stops(score: Score) -> dict[str, object]:
    """Return false stops per 1,000 normal nights."""
    return {
        "false_stops_per_1000": _cell(score.share(normal, 1000.0)),
        "false_stops_per_1000_regular": _cell(
            score.share(lambda s: normal(s) and s.kind != "bursty", 1000.0)
        ),
        "false_stops_per_1000_regular_mature": _cell(
            score.share(lambda s: normal(s) and s.kind != "bursty" and s.night >= MATURE, 1000.0)
        ),
        "warnings_too_few_per_1000": _cell(score.share(normal, 1000.0, lambda s: s.few)),
    }


def cold_start(score: Score) -> dict[str, object]:
    """Return what the first runs are worth."""
    found: dict[str, object] = {
        "false_stops_runs_2_to_7_pct": _cell(
            score.share(lambda s: s.what == "normal" and 1 <= s.night < WARM, 100.0)
        ),
        "first_run_refused_pct": _cell(
            score.share(lambda s: s.what == "normal" and s.night == 0 and s.count > 0, 100.0)
        ),
    }
    for night in COLD[1:]:
        found[f"ge5_after_{night}"] = _cell(
            score.share(lambda s, n=night: harmful(s) and s.night == n and of_usual(s, 5), 100.0)
        )
        found[f"wipe_after_{night}"] = _cell(
            score.share(lambda s, n=night: harmful(s) and s.night == n and s.what in WIPES, 100.0)
        )
    return found


def _first_nights(series: Sequence[Series]) -> dict[str, object]:
    """Decide first nights from the time column alone, 60 days to either side."""
    seen = []
    for number, s in enumerate(series):
        for what, days in (
            ("normal", 0.0),
            ("cutoff/10", 0.9 * s.retention),
            ("cutoff0", float(s.retention)),
        ):
            start = float(s.runs[0]) + 1.0
            # A cutoff that is wrong by some days makes those days' rows eligible, and has fewer days ahead of it.
            back = int(days) + 1
            counts = {-1: float(s.counts[0])} if not days else {}
            if days:
                counts = {-d: s.becoming(start + days - d, start + days - d + 1) for d in range(1, back)}
                counts[-back] = max(0.0, s.becoming(start, start + days) - sum(counts.values())) + s.counts[0]
            ahead = int(min(60, s.retention - days))
            counts |= {d: s.becoming(start + days + d, start + days + d + 1) for d in range(ahead)}
            rows = tuple(sorted((d, round(n)) for d, n in counts.items() if d >= -60 and round(n) > 0))
            older = sum(round(n) for d, n in counts.items() if d < -60)
            count = sum(n for d, n in rows if d < 0) + older
            plan = plan_of(s, 0, count, what, AgeProfile(days=rows, older=older))
            moved = replace(
                plan.targets[0],
                cutoff=plan.as_of - (s.retention - days) * DAY,
                period=(s.retention - days) * DAY,
            )
            decision = decide(replace(plan, targets=(moved,)), LIMITS, ())
            refused = any(f.severity == "refuse" for f in decision.findings)
            seen.append(Seen(number, s.family, s.kind, 0, what, float(s.counts[0]), float(count), refused))
    score = Score(seen, len(series))
    found: dict[str, object] = {
        "normal_first_night_refused_pct": _cell(
            score.share(lambda s: s.what == "normal" and s.family != "backlog" and s.count > 0, 100.0)
        ),
        "backlog_refused_pct": _cell(
            score.share(lambda s: s.what == "normal" and s.family == "backlog", 100.0)
        ),
    }
    for what in ("cutoff/10", "cutoff0"):
        found[f"{what}_refused_pct"] = _cell(
            score.share(
                lambda s, w=what: s.what == w and s.family != "backlog" and s.count >= 5 * max(1, s.usual),
                100.0,
            )
        )
    return found


def lookahead(series: Sequence[Series], tried: int) -> dict[str, object]:
    """Run every churn model; the headline is the plain one at 10 %, on regular jobs."""
    by_churn: dict[str, dict[str, object]] = {}
    for name, make in CHURNS.items():
        seen = [s for i, one in enumerate(series) for s in walk(one, i, make(), tried)]
        score = Score(seen, len(series))

        def big(s: Seen) -> bool:
            return s.night >= TRIED and s.count - s.usual >= 20

        row: dict[str, object] = dict(stops(score))
        for what in ("x2", "x3", "x5", "tz24h"):
            row[what] = _cell(score.share(lambda s, w=what: big(s) and s.what == w, 100.0))
            row[f"{what}_regular"] = _cell(
                score.share(lambda s, w=what: big(s) and s.kind == "regular" and s.what == w, 100.0)
            )
        row["wipe"] = _cell(score.share(lambda s: harmful(s) and s.night >= TRIED and s.what in WIPES, 100.0))
        row["restore_refused"] = _cell(score.share(lambda s: big(s) and s.what == "restore", 100.0))
        row["restore_named"] = _cell(
            score.share(
                lambda s: big(s) and s.what == "restore", 100.0, lambda s: bool(s.codes & {"SD212", "SD300"})
            )
        )
        by_churn[name] = row
        print(f"# look-ahead, {name}: done", file=sys.stderr)
    head = by_churn["plain 10 %"]
    # Small counts excepted, as everywhere: three times ten rows is noise with or without a forecast.
    found = {what: head[f"{what}_regular"] for what in ("x2", "x3", "x5")}
    return {"false_stops_per_1000": head["false_stops_per_1000"]} | found | {"by_churn": by_churn}


def _cell(found: tuple[float, float, float, int] | None) -> dict[str, float] | None:
    if found is None:
        return None
    value, low, high, of = found
    return {"value": round(value, 3), "low": round(low, 3), "high": round(high, 3), "of": of}


def main() -> None:
    """Read the options, run, print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--set", type=int, action="append", dest="sets", help="0 is for tuning; may be repeated"
    )
    options.add_argument("--each", type=int, default=12, help="series of each family and set")
    options.add_argument(
        "--tried", type=int, default=10, help="nights of a series on which accidents are tried"
    )
    options.add_argument("--peers", action="store_true", help="also run other tools' rules and the ceiling")
    options.add_argument("--no-lookahead", action="store_true")
    options.add_argument("--no-volume", action="store_true")
    given = options.parse_args()
    sets = given.sets or [0]
    series = [s for n in sets for s in make_set(n, given.each, 2000 if given.peers else 0)]
    result: dict[str, object] = {
        "set": sets if len(sets) > 1 else sets[0],
        "series": len(series),
        "nights": sum(s.nights for s in series),
    }
    if not given.no_volume:
        seen = [s for i, one in enumerate(series) for s in walk(one, i, None, given.tried)]
        score = Score(seen, len(series))
        result |= stops(score)
        result["by_generator"] = {
            family: _cell(score.share(lambda s, f=family: normal(s) and s.family == f, 1000.0))
            for family in dict.fromkeys(s.family for s in series)
        }
        result["detection"] = detection(score)
        result["cold_start"] = cold_start(score) | {"time_column": _first_nights(series)}
    if given.peers:
        rules = dict(PEERS) | {"clairvoyant 99.9 % point": (CEILING, False)}
        result["peers"] = {}
        for name, (rule, per_night) in rules.items():
            seen = [
                s for i, one in enumerate(series) for s in walk_peer(one, i, rule, per_night, given.tried)
            ]
            score = Score(seen, len(series))
            result["peers"][name] = stops(score) | {"detection": detection(score)}
    if not given.no_lookahead:
        result["lookahead"] = lookahead(series, given.tried)
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
