"""What needs no statistics: declared limits, unknown numbers, a changed definition, a clock or cutoff gone wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from safedelete.core.baseline import DAY, Night, Record, known
from safedelete.core.decision import Finding
from safedelete.core.findings import finding
from safedelete.core.limits import Guard
from safedelete.core.plan import Count, PastRun, Plan, TargetPlan, Unknown, length

STEP: Final = timedelta(hours=1)
"""How far the cutoff's step may differ from the clock's: a change to or from summer time."""

WHOLE_DAYS: Final = timedelta(hours=25)
"""The same where both cutoffs are where a day begins in some time zone, as those of date columns are: they move a day at a
time."""

QUARTERS: Final = (10, 11, 15, 18)
"""Hours UTC in whose 15th minute a day begins: on Chatham, in Eucla, in Nepal. Elsewhere it does at a full or a half hour."""

SHARE: Final = 0.5
"""Largest share of the table, or of what matches at any age, before two runs have shown that more is usual."""

SHARE_ROOM: Final = 1.2
"""Times the second-largest share seen, where that is more: a table that shrinks a little need not ask anew each night."""

SHARE_MOST: Final = 0.98
"""A learned share stays below this, so that a lost age test shows, unless everything went twice before."""

SHARE_FROM: Final = 20
"""Rows of a table from which taking everything can become usual: of two rows, both go now and then."""

SHARE_FORESEEN: Final = 0.9
"""The share that passes where earlier runs saw tonight's rows coming: a fixed retention on a table that nobody writes to
ends so, and yet the last tenth is asked for."""


def too_many(plan: Plan, max_sealed: int) -> Iterator[Finding]:
    """Hold a plan that is not sealed yet against what the ledger may seal of it."""
    items = sum(target.items for target in plan.targets if isinstance(target.items, int))
    if plan.digest is None and items > max_sealed:
        yield finding(
            "SD104",
            f"{plan.job}: {items:,} items would be sealed; max_sealed is {max_sealed:,}.",
            numbers={"items": items, "max_sealed": max_sealed},
        )


def declared(target: TargetPlan, limits: Guard) -> Iterator[Finding]:
    """Hold a target, and what its cascades take, against the declared limits."""
    yield from _uncounted(target)
    for objection in target.objections:
        yield finding("SD115", f"{target.name}: {objection}.", target=target.name)
    if target.kind == "objects" and target.total == 0:
        yield finding(
            "SD309", f"{target.name}: nothing at all lies there, not even young objects.", target=target.name
        )
    if limits.min_age is not None and target.period is None:
        # The edit that min_age is there to catch: a retention that got lost altogether.
        yield finding(
            "SD116",
            f"{target.name}: takes rows of any age; min_age is {limits.min_age}.",
            target=target.name,
            numbers={"seconds": None, "min_age": limits.min_age.total_seconds()},
        )
    if limits.min_age is not None and target.period is not None and target.period < limits.min_age:
        yield finding(
            "SD116",
            f"{target.name}: the cutoff lies {target.period} behind the plan's instant; min_age is {limits.min_age}.",
            target=target.name,
            numbers={"seconds": target.period.total_seconds(), "min_age": limits.min_age.total_seconds()},
        )
    if limits.max_items is not None:
        taken = {target.name: target.items} | {
            name: rows for name, rows in cascaded(target, deletes_only=True).items() if name != target.name
        }
        for name, count in taken.items():
            if known(count) and count > limits.max_items:
                yield finding(
                    "SD101",
                    f"{name}: would delete {count:,} items; max_items is {limits.max_items:,}.",
                    target=name,
                    numbers={"items": count, "max_items": limits.max_items},
                )
    if limits.max_fraction is not None:
        yield from _fraction(target, limits.max_fraction)
    if limits.max_bytes is not None:
        size = target.bytes
        if not known(size):
            yield finding(
                "SD100",
                f"{target.name}: max_bytes is set, but the plan knows no sizes ({_said(size)}).",
                target=target.name,
            )
        elif size > limits.max_bytes:
            yield finding(
                "SD103",
                f"{target.name}: would delete {size:,} bytes; max_bytes is {limits.max_bytes:,}.",
                target=target.name,
                numbers={"bytes": size, "max_bytes": limits.max_bytes},
            )


def ceilings(target: TargetPlan, limits: Guard) -> list[tuple[float, str]]:
    """Return the most items each declared limit lets a target delete, with the limit's name."""
    found: list[tuple[float, str]] = []
    if limits.max_items is not None:
        found.append((float(limits.max_items), "max_items"))
    if limits.max_fraction is not None and known(target.total):
        found.append((float(Fraction(str(limits.max_fraction)) * target.total), "max_fraction"))
    return found


def cascaded(target: TargetPlan, *, deletes_only: bool = False) -> dict[str, Count]:
    """Add up what the cascades do to each table; one unknown part makes its sum unknown."""
    sums: dict[str, Count] = {}
    for cascade in target.cascades:
        if cascade.action == "block" or (deletes_only and cascade.action != "delete"):
            continue
        before = sums.get(cascade.table, 0)
        if isinstance(before, Unknown):
            continue
        rows = cascade.rows
        sums[cascade.table] = before + rows if known(rows) else Unknown(f"a part of it is {_said(rows)}")
    return sums


def changed(plan: Plan, record: Record) -> Iterator[Finding]:
    """Hold definition, cutoffs and clock against the last successful run."""
    for target in plan.targets:
        if target.cutoff is not None and target.cutoff > plan.as_of:
            ahead = target.cutoff - plan.as_of
            yield finding(
                "SD113",
                f"{target.name}: the cutoff {_at(target.cutoff)} lies {ahead} after the plan's instant "
                f"{_at(plan.as_of)}.",
                target=target.name,
                numbers={"seconds": ahead.total_seconds()},
            )
    if record.later:
        first = record.later[0]
        yield finding(
            "SD112",
            f"The plan was made at {_at(plan.as_of)}, but run {first.run} has succeeded at "
            f"{_at(first.plan.as_of)}: the clock went backwards by {first.plan.as_of - plan.as_of}.",
            numbers={
                "runs": ",".join(p.run for p in record.later),
                "earlier": len(record.runs),
                "seconds": (first.plan.as_of - plan.as_of).total_seconds(),
            },
        )
    if not record.runs:
        return
    last = record.runs[-1].plan
    if last.fingerprint != plan.fingerprint:
        yield finding(
            "SD110",
            f"The definition is not that of the last successful run ({record.runs[-1].run}, {_at(last.as_of)})"
            f"{_difference(last, plan)}.",
            numbers={"was": last.fingerprint, "is": plan.fingerprint, "run": record.runs[-1].run},
        )
    for target in plan.targets:
        yield from _step(plan.as_of, target, record.runs)


def share(
    target: TargetPlan, fresh: int, nights: Sequence[Night], *, rest: int, foreseen: bool
) -> tuple[float, Finding | None]:
    """Bound the share of the table, and of the rows that match when the age test is left out.

    Args:
        target: Tonight's target.
        fresh: What it would take beside what the last run left behind.
        nights: Its earlier nights.
        rest: What the last run left behind.
        foreseen: Whether earlier runs saw that much coming.

    Returns:
        The limit in items, infinite where neither total is known, and the finding where it is passed.
    """
    lowest = float("inf")
    found: Finding | None = None
    for total, label, second in (
        (
            target.total,
            "of the table" if target.kind == "rows" else "of the prefix",
            _second(nights, "total"),
        ),
        (target.ageless, "of what matches at any age", _second(nights, "ageless")),
    ):
        if not known(total):
            continue
        top = second if total >= SHARE_FROM else 0.0
        most = max(SHARE, min(SHARE_ROOM * second, max(SHARE_MOST, top)))
        if foreseen:
            most = max(most, SHARE_FORESEEN)
        limit = float(Fraction(str(most)) * total)
        if fresh > limit and limit < lowest:
            beside = f", beside {rest:,} left over" if rest else ""
            found = finding(
                "SD114",
                f"{target.name}: would delete {fresh:,} of {total:,} ({fresh / max(total, 1):.1%} {label}){beside}; "
                f"at most {100 * most:.4g}% passes.",
                target=target.name,
                numbers={"items": fresh + rest, "left_over": rest, "total": total, "most": most},
            )
        lowest = min(lowest, limit)
    return lowest, found


def unknowns(target: TargetPlan) -> Iterator[Finding]:
    """Name the numbers whose absence loosens the decision without stopping it."""
    missing = [
        f"{label}: {count}"
        for label, count in (
            ("total", target.total),
            ("rows that match at any age", target.ageless),
            ("rows out of time", target.late),
            ("bytes", target.bytes),
        )
        if isinstance(count, Unknown)
    ]
    missing += [
        f"{label}: {_said(count)}"
        for label, count in (("total", target.total), ("rows out of time", target.late))
        if isinstance(count, int) and not known(count)
    ]
    if missing:
        yield finding("SD305", f"{target.name}: not known: {'; '.join(missing)}.", target=target.name)
    if isinstance(target.ages, Unknown):
        yield finding(
            "SD301", f"{target.name}: no day-by-day picture: {target.ages.why}.", target=target.name
        )


def _uncounted(target: TargetPlan) -> Iterator[Finding]:
    counts: list[tuple[str, Count]] = [
        ("items", target.items),
        ("eligible items", target.eligible),
        ("objects", target.objects),
    ]
    counts += [(f"rows of {c.table} ({c.action})", c.rows) for c in target.cascades]
    for label, count in counts:
        if not known(count):
            yield finding(
                "SD100",
                f"{target.name}: the number of {label} is {_said(count)}; unknown is never zero.",
                target=target.name,
                numbers={"count": label},
            )


def _fraction(target: TargetPlan, most: float) -> Iterator[Finding]:
    total, items = target.total, target.items
    if not known(total):
        yield finding(
            "SD100",
            f"{target.name}: max_fraction is set, but the total is {_said(total)}.",
            target=target.name,
        )
    elif known(items) and items > Fraction(str(most)) * total:  # 0.29 * 100 is less than 29
        yield finding(
            "SD102",
            f"{target.name}: would delete {items:,} of {total:,} ({items / max(total, 1):.1%}); "
            f"max_fraction is {most:.1%}.",
            target=target.name,
            numbers={"items": items, "total": total, "max_fraction": most},
        )


def _step(as_of: datetime, target: TargetPlan, runs: Sequence[PastRun]) -> Iterator[Finding]:
    """Hold a cutoff's distance from the clock against that of every run since a step was last accepted.

    Against the last run alone, a cutoff that drifts by less than is allowed a night would never be found.
    """
    since: list[tuple[datetime, datetime]] = []
    for run in runs:
        cutoff = next((t.cutoff for t in run.plan.targets if t.name == target.name), None)
        if cutoff is None:
            continue
        at = (run.plan.as_of, cutoff)
        # It succeeded out of step, so a person accepted it: the measure is taken anew from there.
        since = [at] if any(_off(before, at) for before in since) else [*since, at]
    if not since or target.cutoff is None:
        return
    tonight = (as_of, target.cutoff)
    last_clock, last_cutoff = since[-1]
    if target.cutoff < last_cutoff:
        yield finding(
            "SD112",
            f"{target.name}: the cutoff went back from {_at(last_cutoff)} to {_at(target.cutoff)} while the clock moved on "
            f"by {as_of - last_clock}.",
            target=target.name,
            numbers={"seconds": (target.cutoff - last_cutoff).total_seconds()},
        )
    off = next((before for before in reversed(since) if _off(before, tonight)), None)
    if off is not None:
        clock, moved = as_of - off[0], target.cutoff - off[1]
        which = "the last successful run" if off is since[-1] else f"the run of {_at(off[0])}"
        yield finding(
            "SD111",
            f"{target.name}: since {which} the clock moved {clock / DAY:.2f} days and the cutoff "
            f"{moved / DAY:.2f}, from {_at(off[1])} to {_at(target.cutoff)}.",
            target=target.name,
            numbers={"clock_days": clock / DAY, "cutoff_days": moved / DAY},
        )


def _off(before: tuple[datetime, datetime], after: tuple[datetime, datetime]) -> bool:
    """Whether a cutoff moved otherwise than the clock, each given as instant and cutoff."""
    clock, moved = after[0] - before[0], after[1] - before[1]
    allowed = WHOLE_DAYS if _midnight(before[1]) and _midnight(after[1]) else STEP
    return abs(moved - clock) > allowed


def _difference(last: Plan, plan: Plan) -> str:
    before = {t.name: t for t in last.targets}
    now = {t.name: t for t in plan.targets}
    said = []
    if gone := sorted(before.keys() - now.keys()):
        said.append(f"no longer a target: {', '.join(gone)}")
    if new := sorted(now.keys() - before.keys()):
        said.append(f"new target: {', '.join(new)}")
    for name, target in now.items():
        earlier = before.get(name)
        if earlier is None:
            continue
        if earlier.period != target.period:
            said.append(f"{name}: retention {_period(earlier.period)}, now {_period(target.period)}")
        if _timeless(earlier) != _timeless(target):
            said.append(f"{name}: the predicate reads differently")
    if last.portion != plan.portion:
        said.append(f"per_run {_portion(last.portion)}, now {_portion(plan.portion)}")
    if not said:
        said.append("the owned keys, mode=, size=, may_touch= or another option differ")
    return f": {'; '.join(said)}"


def _timeless(target: TargetPlan) -> str:
    """Return the predicate without the cutoff, which moves each night: a listing in words holds its instant."""
    return (
        target.statement if target.cutoff is None else target.statement.replace(target.cutoff.isoformat(), "")
    )


def _portion(portion: int | None) -> str:
    return "none" if portion is None else f"{portion:,}"


def _second(nights: Sequence[Night], of: str) -> float:
    """Return the second-largest share that a night took; 0 where there are not two."""
    shares = [0.0, 0.0]
    for night in nights:
        total = night.target.total if of == "total" else night.target.ageless
        if known(total) and total and not night.partial:
            shares += [min(1.0, night.fresh / total)] * night.weight
    return sorted(shares)[-2]


def _said(count: Count | None) -> str:
    if count is None:
        return "unknown"
    if isinstance(count, Unknown):
        return str(count)
    return f"{count}, which cannot be a count" if not known(count) else f"{count:,}"


def _midnight(instant: datetime) -> bool:
    """Whether it may be a midnight, local to some zone."""
    at = instant.astimezone(UTC)
    return not (at.second or at.microsecond) and (
        at.minute in (0, 30) or (at.minute == 15 and at.hour in QUARTERS)
    )


def _at(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds")


def _period(period: timedelta | None) -> str:
    return "none" if period is None else length(period)
