"""Hypothesis strategies: rows and objects around a purge's cutoff, and the ways a store fails."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, ForeignKeyConstraint, MetaData, Table, types

from safedelete.declare import Purge
from safedelete.errors import ConfigError
from safedelete.testing.asked import check_columns, check_names
from safedelete.testing.changes import changes_of, denied_of
from safedelete.testing.documents import Path, document
from safedelete.testing.fitting import fitted
from safedelete.testing.keys import Keys
from safedelete.testing.listed import listed
from safedelete.testing.scene import ANCIENT, Row, Scene, Stored, Subject, element, subject_of
from safedelete.testing.servers.faults import LIES, Answer, Fault, Honest, Request
from safedelete.testing.values import (
    around,
    bare,
    by_type,
    compared,
    cutoff_now,
    instants,
    is_unique,
    takes_number,
    times_of,
    together,
)

_ETAG = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
"""That of an object which a row names: each holds one byte."""

_NOBODYS = "a.jpg.bak"
"""The key of an object that no row names, in each bucket in which rows own some."""

_ATTEMPTS = 12
"""Rows that may be made for one for which unique columns leave room."""

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

    Raises:
        ConfigError: A name is none of these.
    """
    chosen = names or tuple(name for name in LIES if name != "timeout")
    strange = next((name for name in chosen if name not in LIES), None)
    if strange is not None:
        raise ConfigError(f"There is no fault {strange!r}.", hint=f"There are {', '.join(map(repr, LIES))}.")
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
    check_names(names)
    subject = subject_of(purge, beside, names, metadata)
    check_columns(subject, columns or {})
    return scenes(subject, columns or {})


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
        objects += tuple(Stored(bucket, _NOBODYS, ANCIENT) for bucket in subject.owning)
        denied = denied_of(draw, subject, rows)
        # Not the same ones: a row that was changed is kept for that already.
        spared = [row for row in rows if row.name not in denied]
        return Scene(
            now,
            tuple(rows),
            objects,
            denied,
            changes_of(draw, subject, spared, now),
            frozenset(draw(st.sets(st.sampled_from([(o.bucket, o.key) for o in objects]), max_size=1)))
            if objects
            else frozenset(),
            subject,
        )

    return scene()


def made_up(subject: Subject, columns: Columns, examples: int) -> list[tuple[Scene, float]]:
    """Return scenes, each at the next instant of those there are to try, and a number from 0 to 1 with each.

    They are made before any is tried: what a purge does with one has no part in what the next is.
    """
    found: list[tuple[Scene, float]] = []
    turns = instants_of(subject)
    quiet = settings(
        max_examples=examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )

    @quiet
    @given(st.data(), st.floats(0, 1))
    def each(data: st.DataObject, moment: float) -> None:
        found.append((data.draw(scenes(subject, columns, turns[len(found) % len(turns)])), moment))

    each()
    return found


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
        self._keys = Keys(subject, self._made)
        self._likely = {t: compared(rows.predicates) for t, rows in self._targets.items()}
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
            for attempt in range(_ATTEMPTS):
                values = self._row(table, len(made) + 1, times, tie, attempt)
                if values is not None and not self._twice(table, values):
                    made.append(values)
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
        # One that the database works out cannot be told what to be.
        return [c for c in table.columns if (c.key in names or c.name in names) and c.computed is None]

    def _telling_apart(self, table: Table) -> list[Column[Any]]:
        """Return the columns whose value is their row's number, since only together with others they are unique."""
        times = [*times_of(table), *(self._ages(table) if table in self._targets else ())]
        found: list[Column[Any]] = []
        for columns in together(table):
            if any(is_unique(c) or c in found for c in columns):
                continue
            # Keys are to be shared where they can be.
            free = [
                c
                for c in columns
                if not (c.foreign_keys or c in self._given or c in times or self._keys.is_key(c))
            ]
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
        for column in [*chosen, *(c for c in times_of(table) if c not in chosen and c.computed is None)]:
            mine = [c for c in cutoffs if c.column in (column.key, column.name)]
            now = cutoff_now(column)
            mine = mine or [c for c in unknown if c.shape == now.shape] or [now]
            ties = [around(cutoff, self._now) for cutoff in sorted(mine, key=lambda c: c.age, reverse=True)]
            values = list(dict.fromkeys(value for each in ties for value in each))
            found[column] = [*values, None] if column.nullable else values
        return found

    def _row(
        self,
        table: Table,
        number: int,
        times: Mapping[Column[Any], list[Any]],
        tie: Mapping[str, Any],
        attempt: int,
    ) -> dict[str, Any] | None:
        values: dict[str, Any] = {}
        for key in sorted(table.foreign_key_constraints, key=lambda fk: str(fk.column_keys)):
            referred = self._referred(table, key, number)
            if referred is None:
                return None
            values |= referred
        fixed = {*values, *tie, *(c.name for c in (*self._given, *self._described) if c.table is table)}
        likely = self._likely.get(table, {})
        for column in table.columns:
            if column in self._given:
                values[column.name] = self._draw(self._given[column])
            elif column.name in values or column.computed is not None:
                continue
            elif column in self._described:
                values[column.name] = self._described[column]
            elif column in times:
                values[column.name] = self._draw(st.sampled_from([times[column][0], *times[column]]))
            elif self._keys.is_key(column):
                values[column.name] = self._draw(self._keys.strategy(column, number, attempt=attempt))
            elif isinstance(bare(column.type), types.JSON):
                values[column.name] = self._document(column, number)
            else:
                apart = column in self._numbered
                alike = likely.get((column, ()), ())
                values[column.name] = self._draw(by_type(column, number, alike, numbered=apart))
        return fitted(table, {**values, **tie}, fixed, lambda rows: self._draw(st.sampled_from(rows)))

    def _document(self, column: Column[Any], number: int) -> Any:
        """Return a document that holds what the purge reads of it."""
        held: dict[Path, Any] = {}
        for (other, path), alike in self._likely.get(column.table, {}).items():
            if other is column and path:
                # As with columns: every third row first as it does not match.
                choices = [None, *alike] if number % 3 == 2 else [*alike, None]
                held[path] = self._draw(st.sampled_from(choices))
        for path in self._keys.paths(column):
            held[path] = self._draw(self._keys.strategy(column, number, path=path))
        return document(held)

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
            mine = [values.get(c.name) for c in columns]
            if None not in mine and any(
                mine == [row.get(c.name) for c in columns] for row in self._made[table]
            ):
                return True
        return False
