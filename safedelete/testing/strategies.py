"""Hypothesis strategies: rows and objects around a purge's cutoff, and the ways a store fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import Column, ForeignKeyConstraint, MetaData, String, Table
from sqlalchemy.sql import visitors

from safedelete.declare import Purge, S3Orphans, S3Prefix
from safedelete.errors import ConfigError
from safedelete.testing.listed import key_below, listed
from safedelete.testing.scene import Naming, Row, RowName, Scene, Subject, element, subject_of
from safedelete.testing.servers.faults import LIES, Answer, Fault, Honest, Request
from safedelete.testing.values import (
    ODD,
    around,
    by_type,
    constants,
    cutoff_now,
    instants,
    is_unique,
    takes_number,
    times_of,
    together,
)

_ETAG = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
"""That of an object which a row names: each holds one byte."""

_CROWD = 24
"""Rows of a table that a foreign key names no two of: as many as any table has around two ages."""

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

    Each scene has, for every age that the purge tells by a column, rows long due, due by the smallest step, exactly at the
    cutoff, not due by the smallest step, an hour to either side, far from due, and without a time where the column allows
    it; now and then at an instant that puts the cutoff into a change of the clocks. Keys are odd, shared where the schema
    lets them be, and some lie where a target of the purge lists. Tables that refer to these, and those that they refer to,
    are filled so that every foreign key holds. What a predicate compares a column with is among the column's values.

    Args:
        purge: The purge.
        beside: The other purges of its job file.
        names: Further columns by which rows name objects, by bucket.
        columns: What may stand in a column, by the column: where the type alone does not tell.
        metadata: Whose tables there are; those of the purges' tables, unless given.
    """
    return scenes(subject_of(purge, beside, names, metadata), columns or {})


def scenes(subject: Subject, columns: Columns, now: datetime | None = None) -> st.SearchStrategy[Scene]:
    """Make scenes for a purge with all that names its objects, of one instant or of several."""
    given = {element(column): strategy for column, strategy in columns.items()}

    @st.composite
    def scene(draw: st.DrawFn) -> Scene:
        at = now or draw(st.sampled_from(instants_of(subject)))
        return made(draw, at)

    def made(draw: st.DrawFn, now: datetime) -> Scene:
        maker = _Maker(draw, subject, given, now)
        rows = [row for table in subject.tables for row in maker.rows(table)]
        objects = tuple(o for target in subject.listed for o in listed(draw, target, now))
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


def instants_of(subject: Subject) -> list[datetime]:
    """Return the instants at which a purge is to be tried, the plainest first."""
    return instants(t.cutoff for rows in subject.rows for t in rows.age_tests)


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
        self._listed: dict[Column[Any], list[S3Prefix | S3Orphans]] = {}
        for naming in subject.namings:
            for column in _columns_of(naming):
                self._listed.setdefault(column, []).extend(
                    t for t in subject.listed if t.bucket == naming.bucket
                )
        self._described = {
            column: value
            for rows in subject.rows
            for keys in rows.owns
            for column, value in ((keys.etag, _ETAG), (keys.size, 1))
            if isinstance(column, Column)
        }
        self._numbered = {column for table in subject.tables for column in self._telling_apart(table)}
        self._crowded = {key for table in self._targets for key in self._wholly_told_apart_by(table)}

    def rows(self, table: Table) -> list[Row]:
        """Make a table's rows; those it refers to have been made."""
        made = self._made.setdefault(table, [])
        times = self._times(table)
        wanted: list[dict[str, Any]]
        if table in self._targets:
            ages = self._ages(table) or list(times)[:1]
            wanted = [{column.name: tie} for column in ages for tie in times[column]] or [{}, {}, {}]
            # Twice those that are due: what else a predicate asks is left to chance.
            wanted += wanted[:2]
        elif any(key.referred_table is table for key in self._crowded):
            wanted = [{}] * _CROWD
        else:
            wanted = [{}] * self._draw(st.integers(1, 3))
        lost: list[dict[str, Any]] = []
        for tie in wanted:
            for _ in range(3):
                values = self._row(table, len(made) + 1, times)
                if values is not None and not self._twice(table, values | tie):
                    made.append(values | tie)
                    break
            else:
                lost.append(tie)
        if table in self._targets:
            self._want(table, times, made, lost)
        return [Row(table, values) for values in made]

    def _want(
        self,
        table: Table,
        times: Mapping[Column[Any], list[Any]],
        made: Sequence[Mapping[str, Any]],
        lost: Sequence[Mapping[str, Any]],
    ) -> None:
        """Raise unless there is a row on either side of the cutoff, and one right at it."""
        missing = [
            tie
            for tie in lost
            for column in times
            if tie.get(column.name) in times[column][:4]
            and not any(row[column.name] == tie[column.name] for row in made)
        ]
        if missing or not made:
            said = ", ".join(f"{name}={value!r}" for tie in missing[:1] for name, value in tie.items())
            raise ConfigError(
                f"No row of {table.fullname} {f'with {said} ' if said else ''}could be made up: its unique columns leave no "
                "room beside the other rows, or there is none for a foreign key to name.",
                hint="Say what may stand in the column that tells its rows apart: columns={Model.column: strategy}.",
            )

    def _ages(self, table: Table) -> list[Column[Any]]:
        names = {t.cutoff.column for t in self._targets[table].age_tests}
        return [c for c in table.columns if c.key in names or c.name in names]

    def _telling_apart(self, table: Table) -> list[Column[Any]]:
        """Return the columns whose value is their row's number, since only together with others they are unique."""
        times = [*times_of(table), *(self._ages(table) if table in self._targets else ())]
        found: list[Column[Any]] = []
        for columns in together(table):
            if any(is_unique(c) or c in found for c in columns):
                continue
            free = [c for c in columns if not c.foreign_keys and c not in self._given and c not in times]
            found += [c for c in free if takes_number(c)][-1:]
        return found

    def _wholly_told_apart_by(self, table: Table) -> list[ForeignKeyConstraint]:
        """Return the foreign keys without which no two rows of a table differ: their tables need a row for each."""
        apart = [cs for cs in together(table) if cs and not any(c in self._numbered for c in cs)]
        return [
            key
            for key in table.foreign_key_constraints
            if any(
                all(c.foreign_keys for c in cs) and any(c in list(key.columns) for c in cs) for cs in apart
            )
        ]

    def _times(self, table: Table) -> dict[Column[Any], list[Any]]:
        rows = self._targets.get(table)
        cutoffs = [t.cutoff for t in rows.age_tests] if rows is not None else []
        chosen = self._ages(table) if rows is not None else []
        known = {name for c in chosen for name in (c.key, c.name)}
        # Of an expression nobody can say which columns it goes by: any that holds what it is compared with.
        unknown = [cutoff for cutoff in cutoffs if cutoff.column not in known]
        found: dict[Column[Any], list[Any]] = {}
        for column in [*chosen, *(c for c in times_of(table) if c not in chosen)]:
            mine = [c for c in cutoffs if c.column in (column.key, column.name)]
            now = cutoff_now(column)
            mine = mine or [c for c in unknown if c.shape == now.shape] or [now]
            ties = [around(cutoff, self._now) for cutoff in sorted(mine, key=lambda c: c.age, reverse=True)]
            values = list(dict.fromkeys(value for each in ties for value in each))
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
            elif column in self._described:
                values[column.name] = self._described[column]
            elif column in times:
                values[column.name] = self._draw(st.sampled_from([times[column][0], *times[column]]))
            elif column in self._keys and isinstance(column.type, String):
                values[column.name] = self._draw(self._key(column, number))
            else:
                apart = column in self._numbered
                values[column.name] = self._draw(
                    by_type(column, number, likely.get(column.name, ()), numbered=apart)
                )
        return values

    def _key(self, column: Column[Any], number: int) -> st.SearchStrategy[Any]:
        # Where a target lists, so that it is seen what becomes of an object that a row names; a sweep wants them all there.
        places = self._listed.get(column, [])
        sweeps = [t for t in places if isinstance(t, S3Orphans)]
        place_of: list[S3Prefix | S3Orphans | None] = [*sweeps] or [*places, *places, None]
        beneath = place_of[(number - 1) % len(place_of)]
        most = getattr(column.type, "length", None) or 1000
        unique = is_unique(column) or column in self._numbered
        # Five in turn, so that already the plainest scene has rows that share: due ones with ones that are not, and a row of
        # another table with one that is due.
        # Of a row's several columns none begins as another does: it owns as many objects.
        mine = [c for c in column.table.columns if c in self._keys]
        place = (number + mine.index(column) - (column.table not in self._targets)) % 5
        texts = [
            key_below(beneath, f"{number}-{odd}" if unique else odd) for odd in (*ODD[place:], *ODD[:place])
        ]
        longer = self._longer(column) if unique and number % 3 == 0 else None
        if longer is not None and len(longer) <= most:
            texts = [longer]
        chosen = st.sampled_from([text[:most] for text in texts])
        return st.one_of(chosen, st.none()) if column.nullable else chosen

    def _longer(self, column: Column[Any]) -> str | None:
        """Return an earlier row's key and a little more: who deletes whatever begins with a key takes that, too."""
        earlier = self._made[column.table][-2:-1]
        return f"{earlier[0][column.name]}2" if earlier and earlier[0][column.name] else None

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
        for columns in together(table):
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


def _columns_of(naming: Naming) -> list[Column[Any]]:
    return [c for c in visitors.iterate(naming.column) if isinstance(c, Column)]
