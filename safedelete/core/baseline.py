"""Turn the ledger's history into the nights a guard can learn from.

A *night* is one successful run of one target, with what it newly found, how many nights it covers and which day of
the week and the month its rows belong to. What never teaches (refused, failed, partial and dry runs, portions of a
backlog, one-offs) is sorted out here, once, for every rule.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil, floor
from typing import Final, TypeGuard

from safedelete.core.plan import AgeProfile, PastRun, Plan, TargetPlan

DAY: Final = timedelta(days=1)

SEASON: Final = timedelta(hours=12)
"""A night's rows belong to the day that holds the middle of the 24 hours before its cutoff: the season goes by the
day whose rows go, not by the wall clock (a run at 23:00 and one at 01:00 then agree)."""

WINDOW: Final = 90
"""Newest teaching nights that form the baseline: 30 made four times as many false stops in the simulation."""

LOOKBACK: Final = 4 * WINDOW
"""Newest successful runs looked at to find them: one-offs, portions and empty nights between them do not teach."""

ABSURD: Final = 10**15
"""A count above this, or below 0, is damage, not a count."""

SHORTEST: Final = 0.25
"""Nights; two runs within six hours are compared as if six hours apart, or a retry would seem a surge."""


@dataclass(frozen=True, slots=True)
class Season:
    """Which calendar days some nights cover.

    Attributes:
        elapsed: Nights since the successful run before; None for the first, or the first under a new definition.
        weekday: Of the newest day whose rows go; Monday is 0.
        days: Bit d: a covered day is the d-th of a month; bit 0: a covered day is the last of a month.
    """

    elapsed: float | None
    weekday: int
    days: int


@dataclass(frozen=True, slots=True)
class Night:
    """One successful run of one target.

    Attributes:
        run: The run.
        target: Its numbers.
        season: The days it covers.
        fresh: Eligible items less those the run before had left behind.
        left: Eligible items it left behind itself: blocked, locked, or the rest of a backlog.
        weight: How often it enters the baseline: 0, 1 or 2.
        partial: A portion, or the run that finished a backlog: it says nothing about a usual night.
    """

    run: PastRun
    target: TargetPlan
    season: Season
    fresh: int
    left: int
    weight: int
    partial: bool


@dataclass(frozen=True, slots=True)
class Record:
    """The usable part of a history.

    Attributes:
        runs: Successful runs before tonight, oldest first, each once.
        later: Successful runs whose instant lies after tonight's: the clock went backwards.
        since: Items that runs which did not succeed have deleted since the last successful one, by target.
        dropped: Entries left out as damaged or double.
    """

    runs: tuple[PastRun, ...]
    later: tuple[PastRun, ...]
    since: Mapping[str, int]
    dropped: int


def whole(target: TargetPlan, portion: int | None) -> int | None:
    """Return what a plan found to delete: its items, and of a portion the whole it was cut from."""
    items, eligible = target.items, target.eligible
    if not known(items):
        return None
    # Fewer than are eligible may be sealed for other reasons too: rows that went in between, or whose keys name nothing.
    if portion is None or not known(eligible) or eligible <= portion:
        return items
    return max(items, eligible)


def known(count: object) -> TypeGuard[int]:
    """Whether this is a count that can be true."""
    return type(count) is int and 0 <= count <= ABSURD


def read(history: Sequence[PastRun], job: str, as_of: datetime) -> Record:
    """Sort a history out, whatever order it came in.

    Args:
        history: Runs of any state; those of another purge are ignored.
        job: The purge.
        as_of: Tonight's instant.
    """
    best: dict[str, PastRun] = {}
    dropped = 0
    for past in history:
        if past.state != "succeeded" or past.plan.job != job:
            continue
        if past.plan.as_of.tzinfo is None:
            dropped += 1
            continue
        twin = best.get(past.run)
        dropped += twin is not None
        best[past.run] = past if twin is None else max(twin, past, key=_rank)
    wrong = {run for past in best.values() for run in past.overrules}
    runs = sorted((p for p in best.values() if p.run not in wrong), key=lambda p: (p.plan.as_of, p.run))
    cut = bisect_right(runs, as_of, key=lambda p: p.plan.as_of)
    earlier = tuple(runs[max(0, cut - LOOKBACK) : cut])
    return Record(earlier, tuple(runs[cut:]), _since(history, job, as_of, earlier), dropped)


def nights(record: Record, name: str) -> tuple[list[Night], int]:
    """Return a target's nights, oldest first, until ``WINDOW`` of them teach; and how many were damaged."""
    found: list[Night] = []
    teaching = damaged = 0
    before = record.runs[-1] if record.runs else None
    target, owed = _target_and_rest(before, name)
    for i in range(len(record.runs) - 1, -1, -1):
        past, here, left = record.runs[i], target, owed
        before = record.runs[i - 1] if i else None
        # What the run before left behind is not new tonight, and the run that ends a backlog is no usual night.
        target, owed = _target_and_rest(before, name)
        if here is None:
            continue
        size = whole(here, past.plan.portion)
        if size is None:
            damaged += 1
            continue
        drained = owed > 0 and before is not None and target is not None and cut_short(before.plan, target)
        night = Night(
            run=past,
            target=here,
            season=season(past.plan, here, before),
            fresh=max(0, size - still_left(owed, here)),
            left=left,
            weight=past.teaches if past.teaches in (1, 2) else 0,
            partial=drained or cut_short(past.plan, here),
        )
        found.append(night)
        teaching += night.weight > 0 and not night.partial and night.fresh > 0
        if teaching >= WINDOW:
            break
    found.reverse()
    return found, damaged


def season(plan: Plan, target: TargetPlan, before: PastRun | None) -> Season:
    """Return which days a run covers, given the successful run before it.

    The first run under a new definition covers an unknown time, as the very first does.
    """
    day = _day(plan, target)
    if before is None or before.plan.fingerprint != plan.fingerprint:
        return Season(None, day.weekday(), month_bits(day))
    elapsed = (plan.as_of - before.plan.as_of) / DAY
    bits = month_bits(day)
    earlier = _target(before.plan, target.name)
    if earlier is not None:
        # Nights that were skipped bring their own days of the month along.
        # Rounded, as nights are counted: a run that starts a second earlier than the last one has skipped no less.
        gap = min(round((day - _day(before.plan, earlier)) / DAY), 31)
        for back in range(1, gap):
            bits |= month_bits(day - back * DAY)
    return Season(elapsed, day.weekday(), bits)


def left_behind(past: PastRun, target: TargetPlan, size: int) -> int:
    """Return how much of what a successful run found it left: blocked items, or the rest of a backlog.

    What it found gone or changed is over: should it match again, somebody has made it match.

    A run that does not say what it deleted is taken to have deleted what it planned.

    Args:
        past: The run.
        target: One of its targets.
        size: What it found there.
    """
    deleted, over = past.deleted.get(target.name, target.items), past.over.get(target.name, 0)
    return max(0, size - deleted - over) if known(deleted) and known(over) else 0


def still_left(left: int, target: TargetPlan) -> int:
    """Return how much of what a run left behind is there on a later night: never more than that night found."""
    return min(left, target.left) if known(target.left) else left


def month_bits(day: datetime) -> int:
    """Return bit d for the d-th of a month, and bit 0 besides for its last day."""
    return (1 << day.day) | ((day + DAY).day == 1)


def profile(target: TargetPlan) -> AgeProfile | None:
    """Return the day-by-day picture where there is a usable one."""
    ages = target.ages
    if not isinstance(ages, AgeProfile) or target.cutoff is None:
        return None
    return ages if known(ages.older) and all(known(rows) for _, rows in ages.days) else None


def between(ages: AgeProfile, start: float, end: float) -> float:
    """Count the picture's rows from one day to another, a part of a day in proportion.

    Args:
        ages: The picture.
        start: Days after the picture's cutoff, inclusive; may be a fraction.
        end: The same, exclusive; not before the start.
    """
    days = ages.days
    touched = days[bisect_left(days, (floor(start),)) : bisect_left(days, (ceil(end),))]
    return sum((rows * (min(end, d + 1.0) - max(start, float(d))) for d, rows in touched), 0.0)


def _since(
    history: Sequence[PastRun], job: str, as_of: datetime, earlier: Sequence[PastRun]
) -> Mapping[str, int]:
    last = earlier[-1].plan.as_of if earlier else None
    found: dict[str, int] = {}
    partial = sorted((p for p in history if p.state != "succeeded" and p.deleted), key=_rank)
    for past in {p.run: p for p in partial}.values():
        at = past.plan.as_of
        mine = at == as_of  # an interrupted run that is decided on again
        if past.plan.job != job or at.tzinfo is None or mine or (last is not None and at <= last):
            continue
        for name, deleted in past.deleted.items():
            if known(deleted):
                found[name] = found.get(name, 0) + deleted
    return found


def _target_and_rest(past: PastRun | None, name: str) -> tuple[TargetPlan | None, int]:
    """Return a target as a run planned it, and what the run left of it."""
    target = None if past is None else _target(past.plan, name)
    size = None if past is None or target is None else whole(target, past.plan.portion)
    return target, 0 if past is None or target is None or size is None else left_behind(past, target, size)


def _target(plan: Plan, name: str) -> TargetPlan | None:
    for target in plan.targets:
        if target.name == name:
            return target
    return None


def cut_short(plan: Plan, target: TargetPlan) -> bool:
    """Whether ``per_run`` kept a plan from taking all that is eligible."""
    size = whole(target, plan.portion)
    return size is not None and size != target.items


def _day(plan: Plan, target: TargetPlan) -> datetime:
    return ((target.cutoff or plan.as_of) - SEASON).astimezone(UTC)


def _rank(past: PastRun) -> tuple[str, str]:
    """Order twins and partial runs the same way whatever order they came in; text, since instants may be naive."""
    return ("" if past.finished_at is None else past.finished_at.isoformat(), repr(past))
