"""What must hold of a purge's data after a run, whatever the run did; checked against the stores alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Column

from safedelete.declare import Rows, S3Orphans, S3Prefix
from safedelete.declare.time import Cutoff
from safedelete.testing.scene import Place, RowName, Scene, Snapshot, Subject, said
from safedelete.testing.strict_s3 import Kept
from safedelete.testing.values import cutoff_now, has_index, shown, times_of, zoned

PROMISES: Final[Mapping[str, str]] = {
    "cutoff": "What is younger than its retention stays, and so does what has exactly that age.",
    "planned": "Nothing goes that the purge's own conditions do not match.",
    "changed": "What was changed after the plan stays, with its objects.",
    "denied": "A row stays while the store refuses to delete an object of it.",
    "objects-first": "No row goes before its objects.",
    "shared": "An object stays while a row that stays names it.",
    "recoverable": "What is to be hidden in a versioned bucket keeps every version.",
    "cascade": "Rows of other tables go, and rows that stay are changed, only where the test says that they may.",
    "runs": "The purge runs: nothing refuses it that no person may accept.",
    "converges": "The run after a crash, or after a denial was lifted, finishes what is due.",
    "idempotent": "A second run at the same instant changes nothing.",
    "index": "A time column that a purge goes by has an index.",
}
"""The promises that a kit can hold a purge to, by the names that ``accept=`` takes."""


@dataclass(frozen=True)
class Broken:
    """One broken promise.

    Attributes:
        promise: Which, by name.
        what: A sentence, with the values.
        rows: The rows that show it.
        objects: The objects that show it.
    """

    promise: str
    what: str
    rows: frozenset[RowName] = frozenset()
    objects: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class Night:
    """One run, or the part of it that happened before it died.

    Attributes:
        subject: The purge.
        scene: The data.
        before: What there was when it was planned.
        after: What there is.
        due: The rows that matched when it was planned.
        altered: The rows changed after the plan.
        denied: The objects that the store refused to delete.
        also_deletes: Names of further tables that may lose rows.
        also_changes: Names of tables of which rows that stay may be changed.
    """

    subject: Subject
    scene: Scene
    before: Snapshot
    after: Snapshot
    due: frozenset[RowName]
    altered: frozenset[RowName] = frozenset()
    denied: frozenset[Place] = frozenset()
    also_deletes: Collection[str] = ()
    also_changes: Collection[str] = ()
    gone: frozenset[RowName] = field(init=False)
    lost: frozenset[Place] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gone", frozenset(self.before.rows) - frozenset(self.after.rows))
        object.__setattr__(self, "lost", frozenset(self.before.objects) - frozenset(self.after.objects))

    def broken(self) -> Iterator[Broken]:
        """Yield every promise that this run broke, the plainest first."""
        for row in sorted(self.gone, key=repr):
            yield from self._row(row)
        for place in sorted(self.lost):
            yield from self._object(place)
        yield from self._changed()
        for place, ids in sorted(self.before.hidden.items()):
            lost = set(ids) - set(self.after.hidden.get(place, ()))
            if lost:
                what = f"{len(lost)} of the {len(ids)} version(s) of {_at(place)} went for good, and it was only to be hidden"
                owners = frozenset(self.before.namers(place))
                yield Broken("recoverable", what, owners, frozenset({place}))
        for place in sorted(self.scene.overwritten & self.lost):
            yield Broken(
                "changed",
                f"{_at(place)} was written anew after the plan, and went",
                objects=frozenset({place}),
            )

    def _row(self, row: RowName) -> Iterator[Broken]:
        one = frozenset({row})
        target = next((rows for rows in self.subject.rows if rows.table.fullname == row[0]), None)
        if target is None:
            if row[0] not in self.also_deletes:
                yield Broken(
                    "cascade", f"{said(row)} went along, and {row[0]} is no target of the purge", one
                )
        else:
            why = young(target, self._declared(row), self.scene.now)
            if why:
                yield Broken("cutoff", f"{said(row)} went: {why}", one)
            elif row in self.altered:
                yield Broken("changed", f"{said(row)} was changed after the plan, and went", one)
            elif row not in self.due:
                yield Broken(
                    "planned", f"{said(row)} went, and the conditions of {target.name} do not match it", one
                )
        mine = self.before.named.get(row, frozenset())
        for place in sorted(mine & frozenset(self.after.objects)):
            if any(self.after.namers(place)):
                continue
            if place in self.denied:
                yield Broken(
                    "denied",
                    f"{said(row)} went, and the store refuses to delete {_at(place)}",
                    one,
                    frozenset({place}),
                )
            else:
                yield Broken(
                    "objects-first",
                    f"{said(row)} is gone, and its {_at(place)} is still there",
                    one,
                    frozenset({place}),
                )

    def _changed(self) -> Iterator[Broken]:
        """Yield the rows and objects that stay, and are no longer what they were."""
        for row in sorted(frozenset(self.before.rows) & frozenset(self.after.rows), key=repr):
            # What is due may be marked as such before it goes.
            if row in self.due or row in self.scene.changes or row[0] in self.also_changes:
                continue
            was, now = self.before.rows[row], self.after.rows[row]
            told = [
                f"its {name} was {was[name]!r}, and is {now[name]!r}"
                for name in was
                if was[name] != now[name]
            ]
            if told:
                yield Broken("cascade", f"{said(row)} stayed and was changed: {told[0]}", frozenset({row}))
        for place in sorted(frozenset(self.before.objects) & frozenset(self.after.objects)):
            if place in self.scene.overwritten or place[0] in self.subject.modes:
                continue
            if self.before.objects[place].etag != self.after.objects[place].etag:
                what = f"{_at(place)} stayed, and what it held is gone: it was written anew"
                yield Broken("planned", what, frozenset(self.before.namers(place)), frozenset({place}))

    def _object(self, place: Place) -> Iterator[Broken]:
        one = frozenset({place})
        owners = frozenset(self.before.namers(place))
        for row in sorted(self.after.namers(place), key=repr):
            # A row that is due may have lost one object of two, to a crash or beside a denied one.
            if row not in self.due or row in self.altered:
                promise = "changed" if row in self.altered and row in self.due else "shared"
                with_it = sorted(owners & self.gone, key=repr)[:1]
                what = f"{_at(place)} is gone, and {said(row)} stays and names it"
                yield Broken(promise, what, frozenset({row, *with_it}), one)
        if owners & (self.due | self.gone):
            return
        why = [listing(target, place, self.before, self.scene.now) for target in self.subject.listed]
        if not any(reason == "" for reason in why):
            young_ones = [reason for reason in why if reason]
            promise = "cutoff" if young_ones else "planned"
            yield Broken(
                promise,
                f"{_at(place)} went: {(young_ones or ['no target of the purge matches it'])[0]}",
                owners,
                one,
            )

    def _declared(self, row: RowName) -> Mapping[str, Any]:
        made = next((r for r in self.scene.rows if r.name == row), None)
        if made is None:
            return {}
        # What the database has worked out itself is nowhere but there.
        there = self.before.rows.get(row, {})
        worked_out = [c for c in made.table.columns if c.computed is not None and c.name in there]
        return {**{c.name: zoned(c, there[c.name]) for c in worked_out}, **made.values}


def young(target: Rows, values: Mapping[str, Any], now: datetime) -> str:
    """Return why a row is too young to go; empty where it is old enough, as far as its time columns tell.

    Every age that the declaration names has to be reached: of ages joined by OR nobody but a person can tell which one
    counts for a row. Where it names none, every time column has to lie in the past. An age of an expression is reached where
    any time column lies in the past: what the expression makes of them is the database's to say.
    """
    columns = {name: c for c in target.table.columns for name in (c.key, c.name)}
    tests = [(columns.get(test.cutoff.column), test.cutoff) for test in target.age_tests]
    times = times_of(target.table)
    if not tests and not times:
        return f"no column of {target.name} says how old it is"
    named = [(column, cutoff) for column, cutoff in tests if column is not None]
    if not tests:
        named = [(column, cutoff_now(column)) for column in times]
    told = [_not_past(column, cutoff, values, now) for column, cutoff in named]
    if len(named) < len(tests):
        free = [_not_past(column, cutoff_now(column), values, now) for column in times]
        told += free if all(free) else []
    return "; ".join(dict.fromkeys(why for why in told if why))


def _not_past(column: Column[Any], cutoff: Cutoff, values: Mapping[str, Any], now: datetime) -> str:
    value: Any = values.get(column.name)
    limit: Any = cutoff.value(now)
    if value is None:
        return f"its {column.name} is NULL"
    if value == limit:
        return f"its {column.name} is {shown(value)}, and the cutoff {shown(limit)} is exclusive"
    return "" if value < limit else f"its {column.name} {shown(value)} is not before {shown(limit)}"


def unindexed(subject: Subject) -> Iterator[Broken]:
    """Yield the time columns of a purge without an index, so that each night reads the whole table."""
    for target in subject.rows:
        for test in target.age_tests:
            column: Column[Any] | None = next(
                (c for c in target.table.columns if test.cutoff.column in (c.key, c.name)), None
            )
            if column is not None and not has_index(column):
                name = f"{target.table.fullname}.{column.name}"
                yield Broken(
                    "index",
                    f"{name} has no index: each night reads all of {target.name}, and the guard cannot look ahead. "
                    f'Index("ix_{target.table.name}_{column.name}", {name})',
                )


def owed(subject: Subject, there: Snapshot, now: datetime) -> frozenset[Place]:
    """Return the listed objects that are due."""
    return frozenset(
        place
        for place in there.objects
        if any(listing(target, place, there, now) == "" for target in subject.listed)
    )


def listing(target: S3Prefix | S3Orphans, place: Place, before: Snapshot, now: datetime) -> str | None:
    """Return why a listed object is not due: empty where it is, None where it does not meet the target's conditions."""
    bucket, key = place
    if bucket != target.bucket or not key.startswith(target.prefix):
        return None
    if isinstance(target, S3Orphans):
        if any(before.namers(place)):
            return "a row names it"
    elif not _meets(target, key, before.objects[place]):
        return None
    written, limit = before.objects[place].modified, now - target.older_than
    return "" if written < limit else f"it was written {shown(written)}, not before the cutoff {shown(limit)}"


def _meets(target: S3Prefix, key: str, kept: Kept) -> bool:
    pattern = target.pattern_regex
    return (
        (pattern is None or pattern.fullmatch(key[len(target.prefix) :]) is not None)
        and (target.min_size is None or kept.size >= target.min_size)
        and (target.max_size is None or kept.size <= target.max_size)
        and (not target.storage_classes or kept.storage_class in target.storage_classes)
    )


def _at(place: Place) -> str:
    return f"s3://{place[0]}/{place[1]!r}"
