"""Hypothesis strategies: rows and objects around a purge's cutoff, and the ways a store fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import Column, ForeignKeyConstraint, MetaData, String, Table, UniqueConstraint
from sqlalchemy.sql import visitors

from safedelete.declare import Purge, S3Orphans, S3Prefix
from safedelete.testing.scene import Naming, Row, RowName, Scene, Stored, Subject
from safedelete.testing.servers.faults import LIES, Answer, Fault, Honest, Request
from safedelete.testing.values import (
    ODD,
    around,
    by_type,
    constants,
    cutoff_now,
    instants,
    is_unique,
    times_of,
)

Columns = Mapping[Any, st.SearchStrategy[Any]]


class NamedFault:
    """A fault that shows its name in a failing example."""

    def __init__(self, name: str, fault: Fault) -> None:
        self.name = name
        self._fault = fault

    def __call__(self, request: Request, honest: Honest) -> Answer:
        """Answer."""
        return self._fault(request, honest)

    def __repr__(self) -> str:
        return self.name


def faults(*names: str) -> st.SearchStrategy[list[NamedFault | None]]:
    """Make schedules for ``StrictS3.script``: which of the next requests are answered honestly (None), and how the others.

    Args:
        names: Of :data:`safedelete.testing.servers.faults.LIES`; all of them but the time-out, unless given.
    """
    chosen = names or tuple(name for name in LIES if name != "timeout")
    known: list[NamedFault | None] = [None, *(NamedFault(name, LIES[name]) for name in chosen)]
    return st.lists(st.sampled_from(known), max_size=6)


def rows_around(
    purge: Purge,
    *,
    beside: Sequence[Purge] = (),
    names: Mapping[str, Sequence[Any]] | None = None,
    columns: Columns | None = None,
    metadata: MetaData | Sequence[MetaData] | None = None,
) -> st.SearchStrategy[Scene]:
    """Make scenes for a purge: its tables' rows around its cutoff, and objects in its buckets.

    Each scene has, for every table that the purge deletes from, rows long due, due by the smallest step, exactly at the cutoff,
    not due by the smallest step, an hour to either side, far from due, and without a time where the column allows it; now and
    then at an instant that puts the cutoff into a change of the clocks. Keys are odd, and shared where the schema
    lets them be. Tables that refer to these, and those that they refer to, are filled so that every foreign key
    holds. Text that a predicate compares a column with is among the column's values.

    Args:
        purge: The purge.
        beside: The other purges of its job file.
        names: Further columns by which rows name objects, by bucket.
        columns: What may stand in a column, by the column: where the type alone does not tell.
        metadata: Whose tables there are; those of the purges' tables, unless given.
    """
    from safedelete.testing.lab import metadata_of

    subject = Subject(purge, tuple(beside), names or {}, metadata_of((purge, *beside), metadata))
    return scenes(subject, columns or {})


def scenes(subject: Subject, columns: Columns) -> st.SearchStrategy[Scene]:
    """Make scenes for a purge with all that names its objects."""
    given = {_element(column): strategy for column, strategy in columns.items()}

    @st.composite
    def scene(draw: st.DrawFn) -> Scene:
        now = draw(st.sampled_from(instants(t.cutoff for rows in subject.rows for t in rows.age_tests)))
        maker = _Maker(draw, subject, given, now)
        rows = [row for table in subject.tables for row in maker.rows(table)]
        objects = tuple(o for target in subject.listed for o in _listed(draw, target, now))
        denied = _denied(draw, subject, rows)
        # Not the same ones: a row that was changed is kept for that already.
        spared = [row for row in rows if row.name not in denied]
        return Scene(
            now,
            tuple(rows),
            objects,
            denied,
            _changes(draw, subject, spared, now),
            frozenset(draw(st.sets(st.sampled_from([(o.bucket, o.key) for o in objects]), max_size=1)))
            if objects
            else frozenset(),
        )

    return scene()


class _Maker:
    """Makes the rows of one scene."""

    def __init__(self, draw: st.DrawFn, subject: Subject, given: Columns, now: datetime) -> None:
        self._draw = draw
        self._subject = subject
        self._given = given
        self._now = now
        self._made: dict[Table, list[dict[str, Any]]] = {}
        self._targets = {rows.table: rows for rows in subject.rows}
        self._keys = {c for naming in subject.namings for c in _columns_of(naming)}

    def rows(self, table: Table) -> list[Row]:
        """Make a table's rows; those it refers to have been made."""
        made = self._made.setdefault(table, [])
        times = self._times(table)
        if table in self._targets:
            first = next(iter(times), None)
            ties = times[first] if first is not None else [None] * 3
            # Twice those that are due: what else a predicate asks is left to chance.
            wanted = [*ties, *ties[:2]]
        else:
            first, wanted = None, [None] * self._draw(st.integers(1, 3))
        for tie in wanted:
            values = self._row(table, len(made) + 1, times)
            if values is None:
                break
            if first is not None:
                values[first.name] = tie
            if not self._twice(table, values):
                made.append(values)
        return [Row(table, values) for values in made]

    def _times(self, table: Table) -> dict[Column[Any], list[Any]]:
        rows = self._targets.get(table)
        cutoffs = {} if rows is None else {t.cutoff.column: t.cutoff for t in rows.age_tests}
        chosen = [c for c in table.columns if c.key in cutoffs or c.name in cutoffs]
        found: dict[Column[Any], list[Any]] = {}
        for column in [*chosen, *(c for c in times_of(table) if c not in chosen)]:
            cutoff = cutoffs.get(column.key, cutoffs.get(column.name)) or cutoff_now(column)
            values = around(cutoff, self._now)
            found[column] = [*values, None] if column.nullable else values
        return found

    def _row(
        self, table: Table, number: int, times: Mapping[Column[Any], list[Any]]
    ) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        for key in sorted(table.foreign_key_constraints, key=lambda fk: str(fk.column_keys)):
            referred = self._referred(table, key, number)
            if referred is None:
                return None
            values |= referred
        likely = constants(self._targets[table].predicates) if table in self._targets else {}
        for column in table.columns:
            if column in self._given:
                values[column.name] = self._draw(self._given[column])
            elif column.name in values or column.computed is not None:
                continue
            elif column in times:
                values[column.name] = self._draw(st.sampled_from([times[column][0], *times[column]]))
            elif column in self._keys and isinstance(column.type, String):
                values[column.name] = self._draw(self._key(column, number))
            else:
                values[column.name] = self._draw(by_type(column, number, likely.get(column.name, ())))
        return values

    def _key(self, column: Column[Any], number: int) -> st.SearchStrategy[Any]:
        prefixes = [t.prefix for t in self._subject.listed if isinstance(t, S3Orphans)]
        before = prefixes[0] if prefixes else ""
        most = getattr(column.type, "length", None) or 1000
        unique = is_unique(column)
        # Five in turn, so that already the plainest scene has rows that share: due ones with ones that are not, and a row of
        # another table with one that is due.
        place = number % 5 if column.table in self._targets else (number - 1) % 5
        texts = [
            f"{before}{number}-{odd}" if unique else f"{before}{odd}" for odd in (*ODD[place:], *ODD[:place])
        ]
        chosen = st.sampled_from([text[:most] for text in texts])
        return st.one_of(chosen, st.none()) if column.nullable else chosen

    def _referred(self, table: Table, key: ForeignKeyConstraint, number: int) -> dict[str, Any] | None:
        pairs = [(element.parent, element.column) for element in key.elements]
        nothing: dict[str, Any] = {own.name: None for own, _ in pairs}
        may_be_none = all(own.nullable for own, _ in pairs)
        parents = self._made.get(key.referred_table, [])
        single = len(pairs) == 1 and is_unique(pairs[0][0])
        if single:
            used = [row[pairs[0][0].name] for row in self._made[table]]
            parents = [row for row in parents if row[pairs[0][1].name] not in used]
        if not parents:
            if key.referred_table is table and not may_be_none:
                return {own.name: number for own, _ in pairs}
            return nothing if may_be_none else None
        turn = number % len(parents)
        choices: list[dict[str, Any]] = [
            {own.name: row[its.name] for own, its in pairs} for row in (*parents[turn:], *parents[:turn])
        ]
        chosen: dict[str, Any] = self._draw(st.sampled_from([*choices, nothing] if may_be_none else choices))
        return chosen

    def _twice(self, table: Table, values: Mapping[str, Any]) -> bool:
        together = [list(c.columns) for c in table.constraints if isinstance(c, UniqueConstraint)]
        together += [list(i.columns) for i in table.indexes if i.unique] + [list(table.primary_key.columns)]
        for columns in together:
            mine = [values[c.name] for c in columns]
            if None not in mine and any(mine == [row[c.name] for c in columns] for row in self._made[table]):
                return True
        return False


def _denied(draw: st.DrawFn, subject: Subject, rows: Sequence[Row]) -> frozenset[RowName]:
    owners = {target.table for target in subject.rows if target.owns}
    mine = [row.name for table in owners for row in _likely_due(rows, table)]
    return frozenset(draw(st.sets(st.sampled_from(mine), min_size=1, max_size=2))) if mine else frozenset()


def _changes(
    draw: st.DrawFn, subject: Subject, rows: Sequence[Row], now: datetime
) -> dict[RowName, dict[str, Any]]:
    found: dict[RowName, dict[str, Any]] = {}
    for target in subject.rows:
        ways: list[Callable[[Row], dict[str, Any]]] = []
        for test in target.age_tests:
            column = next((c for c in target.table.columns if test.cutoff.column in (c.key, c.name)), None)
            if column is not None:
                young = around(test.cutoff, now)[-1]
                ways.append(lambda _row, name=column.name, value=young: {name: value})  # type: ignore[misc]
        renamed = [key.name for keys in target.owns for key in keys.columns if isinstance(key, Column)]
        ways += [lambda row, name=name: {name: f"renamed-{row.name[1][0]}"} for name in renamed]  # type: ignore[misc]
        mine = _likely_due(rows, target.table)
        if mine and ways:
            for row in draw(
                st.lists(st.sampled_from(mine), unique_by=lambda r: r.name, min_size=1, max_size=2)
            ):
                found[row.name] = draw(st.sampled_from(ways))(row)
    return found


def _likely_due(rows: Sequence[Row], table: Table) -> list[Row]:
    """Return the rows that were made with a time before the cutoff: the first two and the last two."""
    mine = [row for row in rows if row.table is table]
    return list({row.name: row for row in (*mine[:2], *mine[-2:])}.values())


def _listed(draw: st.DrawFn, target: S3Prefix | S3Orphans, now: datetime) -> list[Stored]:
    second = timedelta(seconds=1)
    cutoff = (now - target.older_than).replace(microsecond=0)
    pattern = getattr(target, "pattern", None)
    size = min(getattr(target, "min_size", None) or 1, 4096)
    steps = [-timedelta(days=400), -second, timedelta(0), second, timedelta(days=400)]
    odd = draw(st.permutations(ODD))
    found: list[Stored] = []
    for number, step in enumerate(steps):
        key = f"{number}-{odd[number]}"
        if pattern is not None:
            key = pattern.replace("**/", "d/").replace("*", str(number)).replace("?", "y")
        found.append(Stored(target.bucket, target.prefix + key, cutoff + step, size))
    if target.prefix:
        found.append(Stored(target.bucket, f"{target.prefix.rstrip('/')}2/beside", cutoff + steps[0], size))
    return found


def _columns_of(naming: Naming) -> list[Column[Any]]:
    return [c for c in visitors.iterate(naming.column) if isinstance(c, Column)]


def _element(column: Any) -> Any:
    return column.__clause_element__() if hasattr(column, "__clause_element__") else column
