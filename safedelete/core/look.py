"""One look at one target: every layer in turn, findings and measures collected on the way.

``core/guard.py`` looks at each target of a plan and joins what was found into one decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite
from operator import itemgetter
from typing import Final

from safedelete.core.baseline import (
    DAY,
    SEASON,
    Night,
    Record,
    Season,
    cut_short,
    known,
    month_bits,
    nights,
    profile,
    still_left,
    whole,
)
from safedelete.core.baseline import season as season_of
from safedelete.core.creep import long_gap, slow_creep
from safedelete.core.decision import Finding, Measure
from safedelete.core.findings import finding
from safedelete.core.fixed import cascaded, ceilings, declared, share, unknowns
from safedelete.core.limits import Guard
from safedelete.core.lookahead import Forecast, foresee, late_room
from safedelete.core.plan import Plan, TargetPlan
from safedelete.core.say import at_least, at_most, oldest_of
from safedelete.core.volume import NEVER_BEFORE, SPREAD_PARTS, Sample, Usual, judge

UNTRIED: Final = 0.1
"""Share of the table that passes while runs exist but none of them teaches (a new table purging nothing): far
below the half that no history makes room for, and above what a new table's nights bring."""

TAKEN: Final = 10.0
"""Rows that a first night's cascade, or objects that its rows, may take for each item: orders have lines and uploads
files, and a handful each is what tables are made for."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """The limit on fresh items, which rule set it, and the code that passing it makes."""

    limit: float
    rule: str
    code: str


class Look:
    """One target of tonight's plan before the guard.

    Attributes:
        found: Every finding, after :meth:`decide`.
        measures: Every measure, after :meth:`decide`.
        damaged: Earlier runs whose numbers for this target cannot be true.
    """

    def __init__(self, plan: Plan, target: TargetPlan, limits: Guard, record: Record | None) -> None:
        """Begin a look.

        Args:
            plan: The plan.
            target: One of its targets.
            limits: The declared limits.
            record: Its history; None where it could not be read, so that nothing is said of what is usual.
        """
        self.unread = record is None
        record = record or Record((), (), {}, 0)
        self.plan = plan
        self.target = target
        self.limits = limits
        self.record = record
        self.found: list[Finding] = []
        self.measures: list[Measure] = []
        self.past, self.damaged = nights(record, target.name)
        last = record.runs[-1] if record.runs else None
        self.season = season_of(plan, target, last)
        # Not where the last run is no night of this target: it has taken what the one before saw coming, and left what it left.
        self.follows = bool(self.past) and self.past[-1].run is last
        self.rest = still_left(self.past[-1].left, target) if self.follows else 0
        self.size = whole(target, plan.portion)

    def decide(self) -> None:
        """Fixed limits first, then what is usual."""
        target = self.target
        self.found += declared(target, self.limits)
        self.found += unknowns(target)
        if self.size is None or self.unread:
            rule = "not counted" if self.size is None else "history not read"
            self.measures.append(
                Measure(target=target.name, measure="items", tonight=self.size, rule=rule, verdict="stop")
            )
            return
        self._portion(self.size, self._items(self.size))

    def _items(self, size: int) -> float | None:
        """Hold the items, and what goes along with them, against all layers; returns how many new ones were expected."""
        target, total = self.target, self.target.total
        fresh = max(0, size - self.rest)
        table = float(total) if known(total) else 0.0
        forecast = foresee(self.past, self.plan, target) if self.follows else None
        samples = [Sample(n.fresh, n.season, 0 if n.partial else n.weight) for n in self.past]
        usual = judge(samples, self.season, small=UNTRIED * table)
        bound = self._bound(usual, forecast, table)
        if usual.expected is None and forecast is None:
            usual, bound = self._provisional(usual, bound, size)
        foreseen = forecast is not None and forecast.before is not None and fresh <= forecast.before
        most, too_large = share(target, fresh, self.past, rest=self.rest, foreseen=foreseen)
        expected = forecast.expected if forecast is not None else usual.expected
        verdicts = {"ok"}
        if fresh > bound.limit:
            verdicts.add("stop")
            self._stop(bound, size, expected)
        if too_large is not None:
            verdicts.add("stop")
            self.found.append(too_large)
        verdicts.add(self._late(expected))
        verdicts.add(self._few(fresh, forecast.low if forecast is not None else usual.low, expected))
        self.found += slow_creep(target.name, self.past)
        self.found += long_gap(target.name, self.past, self.season.elapsed)
        limit, rule = min(
            (bound.limit + self.rest, bound.rule),
            (most + self.rest, "share of table"),
            # Of a portion they bound the portion, and what is decided here is the whole.
            *(() if cut_short(self.plan, target) else ceilings(target, self.limits)),
            key=itemgetter(0),
        )
        self.measures.append(
            Measure(
                target=target.name,
                measure="items",
                tonight=size,
                share=size / table if table else None,
                nights=self.season.elapsed,
                usual_low=usual.usual_low,
                usual_high=usual.usual_high,
                runs=0 if bound.code == "SD205" else usual.runs,
                expected=None if expected is None else expected + self.rest,
                forecast=None if forecast is None else forecast.expected,
                limit=limit if isfinite(limit) else None,
                rule=rule,
                verdict="stop" if "stop" in verdicts else "warn" if "warn" in verdicts else "ok",
            )
        )
        self._parts(usual, forecast, bound)
        return expected

    def _bound(self, usual: Usual, forecast: Forecast | None, table: float) -> _Bound:
        if forecast is not None:
            believed = self._believed(usual, forecast.before, table)
            if believed < forecast.limit:
                return _Bound(believed, "forecast jumped", "SD211")
            return _Bound(forecast.limit, "forecast", "SD210")
        if usual.expected is not None:
            return _Bound(usual.limit, usual.rule, "SD201")
        if self.past:
            return _Bound(max(NEVER_BEFORE, UNTRIED * table), "no usable history", "SD201")
        return _Bound(0.0, "no history", "SD200")

    def _believed(self, usual: Usual, before: float | None, table: float) -> float:
        """Return how far the last run's forecast is believed: as far as something else bears it out."""
        others = [] if before is None else [before]
        if usual.expected is not None:
            others.append(usual.limit)
        if before is None:
            # The second night, or the second under a new definition.
            stand_in = self._stand_in()
            others += [stand_in[0].limit] if stand_in is not None else []
        return max(others, default=max(NEVER_BEFORE, UNTRIED * table))

    def _stand_in(self) -> tuple[Usual, int] | None:
        """Judge by the time column's own coming days; also says how many there are."""
        ages = profile(self.target)
        if ages is None or self.target.cutoff is None:
            return None
        # Days nearer than the retention are still being written: only whole ones say what a night brings.
        period = self.target.period
        whole_days = max(1, int(period / DAY)) if period else ages.ahead
        counts = dict(ages.days)
        last = max((d for d in counts if d < whole_days), default=-1)
        samples = []
        for d in range(last + 1):
            day = self.target.cutoff + d * DAY + SEASON
            samples.append(Sample(counts.get(d, 0), Season(1.0, day.weekday(), month_bits(day))))
        stand_in = judge(samples, self.season)
        return None if stand_in.expected is None else (stand_in, len(samples))

    def _provisional(self, usual: Usual, bound: _Bound, size: int) -> tuple[Usual, _Bound]:
        """Let the time column's own coming days stand in for a baseline, where there is none."""
        found = self._stand_in()
        if found is None:
            return usual, bound
        stand_in, days = found
        self.found.append(
            finding(
                "SD304",
                f"{self.target.name}: {self._nothing}; the next {days} days of the time "
                f"column say about {stand_in.expected:,.0f} a night, tonight is {size:,}.",
                target=self.target.name,
                numbers={"days": days, "expected": stand_in.expected, "items": size},
            )
        )
        return stand_in, _Bound(stand_in.limit, f"provisional, {stand_in.rule}", "SD205")

    @property
    def _nothing(self) -> str:
        if not self.past:
            return "no earlier run to compare with"
        return (
            f"none of {len(self.past)} earlier run{'s' * (len(self.past) != 1)} can be compared with "
            "(one-off, a portion, empty, or under another definition)"
        )

    def _stop(self, bound: _Bound, size: int, new: float | None) -> None:
        target, limit = self.target, bound.limit + self.rest
        expected = None if new is None else new + self.rest
        if bound.code == "SD200":
            total = f" of {target.total:,} ({size / max(target.total, 1):.1%})" if known(target.total) else ""
            text = f"would delete {size:,}{total}; {self._nothing}"
        else:
            rest = f", of them {self.rest:,} left over" if self.rest else ""
            about = "" if expected is None else f"; about {expected:,.0f} expected"
            text = f"would delete {size:,} items{rest}{about}; limit {at_most(limit)} ({bound.rule})"
        self.found.append(
            finding(
                bound.code,
                f"{target.name}: {text}.",
                target=target.name,
                numbers={
                    "items": size,
                    "left_over": self.rest,
                    "expected": expected,
                    "limit": limit,
                    "rule": bound.rule,
                },
            )
        )

    def _late(self, expected: float | None) -> str:
        late = self.target.late
        if not known(late):
            return "ok"
        most, quiet = late_room(self.past, expected or 0.0)
        if late <= quiet:
            return "ok"
        code = "SD212" if late > most else "SD300"
        oldest = oldest_of(self.target)
        self.found.append(
            finding(
                code,
                f"{self.target.name}: {late:,} items became eligible out of time (back-dated, bulk-updated or "
                f"restored since the last run); {at_most(most)} pass{oldest}.",
                target=self.target.name,
                numbers={"late": late, "limit": most, "expected": expected},
            )
        )
        return "stop" if code == "SD212" else "warn"

    def _few(self, fresh: int, low: float, expected: float | None) -> str:
        # What a run that did not succeed deleted since is missing tonight, and rightly so.
        if fresh + self.record.since.get(self.target.name, 0) >= low or expected is None:
            return "ok"
        self.found.append(
            finding(
                "SD206",
                f"{self.target.name}: only {fresh:,} items; about {expected:,.0f} expected, and fewer than "
                f"{at_least(low)} is far too few.",
                target=self.target.name,
                numbers={"items": fresh, "expected": expected, "low": low},
                severity=self.limits.too_few,
            )
        )
        return "stop" if self.limits.too_few == "refuse" else "warn"

    def _portion(self, size: int, expected: float | None) -> None:
        target = self.target
        items = target.items
        if not cut_short(self.plan, target) or not known(items):
            return
        # Where the last run left nothing, all of it is new tonight, and only what is expected comes every night.
        fresh = float(max(0, size - self.rest))
        inflow = min(fresh, expected) if expected is not None else fresh if self.rest else 0.0
        net = items - inflow
        runs_left = (
            f"about {ceil((size - items) / net):,} more runs" if net > 0 else "no end: more arrives than goes"
        )
        self.found.append(
            finding(
                "SD306",
                f"{target.name}: a portion of {items:,} of {size:,}, oldest first; {runs_left}.",
                target=target.name,
                numbers={"items": items, "whole": size, "inflow": inflow},
            )
        )

    def _parts(self, usual: Usual, forecast: Forecast | None, bound: _Bound) -> None:
        """Hold objects, bytes and cascades against the volume rule."""
        target = self.target
        lift = 1.0
        if forecast is not None and usual.expected and not cut_short(self.plan, target):
            # A heavy night that was foreseen is heavy in all parts, as far as believed; a portion is compared by the row.
            lift = max(1.0, min(forecast.expected, bound.limit) / usual.expected)
        if target.kind == "rows" and known(target.objects):
            values = [(n, n.target.objects) for n in self.past]
            self._part("objects", "SD202", target.name, target.objects, values, lift)
        if known(target.bytes):
            sizes = [(n, n.target.bytes) for n in self.past]
            self._part("bytes", "SD203", target.name, target.bytes, sizes, lift)
        if target.cascades:
            takes = [(n, cascaded(n.target)) for n in self.past]
            for table, rows in cascaded(target).items():
                if known(rows):
                    taken = [(n, t.get(table, 0)) for n, t in takes]
                    self._part("cascade", "SD204", table, rows, taken, lift)

    @property
    def _items_tonight(self) -> int:
        items = self.target.items
        assert known(items)  # else nothing but that was decided
        return items

    def _part(
        self,
        measure: str,
        code: str,
        name: str,
        tonight: int,
        values: Sequence[tuple[Night, object]],
        lift: float,
    ) -> None:
        portion, season, items = cut_short(self.plan, self.target), self.season, self._items_tonight
        if portion:
            # How many items a portion has was decided beforehand, whatever nights it covers; what each brings along was not.
            season = replace(season, elapsed=1.0)
            samples = [
                Sample(round(value * items / n.target.items), replace(n.season, elapsed=1.0), n.weight)
                for n, value in values
                if known(value) and known(n.target.items) and n.target.items
            ]
        else:
            samples = [
                Sample(value, n.season, 0 if n.partial else n.weight) for n, value in values if known(value)
            ]
        usual = judge(samples, season, spread=SPREAD_PARTS)
        if tonight == 0 and usual.expected is None:
            return
        expected = None if usual.expected is None else usual.expected * lift
        limit, rule = usual.limit * lift, usual.rule
        if usual.expected is None:
            if measure == "bytes":
                limit = inf
            elif any(s.weight for s in samples):
                limit, rule = NEVER_BEFORE, "never before"
            else:
                limit, rule = max(NEVER_BEFORE, TAKEN * items), "first night"
        elif portion:
            rule = f"portion, {rule}"
        stop = tonight > limit
        told = (limit, rule)
        if measure == "bytes" and self.limits.max_bytes is not None:
            told = min(told, (self.limits.max_bytes, "max_bytes"))
        self.measures.append(
            Measure(
                target=name,
                measure=measure,
                tonight=tonight,
                nights=None if portion else season.elapsed,
                usual_low=usual.usual_low,
                usual_high=usual.usual_high,
                runs=usual.runs,
                expected=expected,
                limit=told[0] if isfinite(told[0]) else None,
                rule=told[1],
                verdict="stop" if stop else "ok",
            )
        )
        if stop:
            rows = f"rows of {name} would go or change with {self.target.name}"
            what = rows if measure == "cascade" else measure
            none = "no earlier run that counts did"
            about = none if expected is None else f"about {expected:,.0f} expected"
            self.found.append(
                finding(
                    code,
                    f"{name}: {tonight:,} {what}; {about}; limit {at_most(limit)} ({rule}).",
                    target=name,
                    numbers={"tonight": tonight, "expected": expected, "limit": limit, "rule": rule},
                )
            )
