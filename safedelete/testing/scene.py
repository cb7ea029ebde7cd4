"""What a lab is filled with: rows and objects around a purge's cutoff, and what happens to them while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, MetaData, Table, select, update
from sqlalchemy.exc import IntegrityError, StatementError

from safedelete.declare import Purge, Rows, S3Orphans, S3Prefix
from safedelete.declare.targets import Mode
from safedelete.declare.time import resolve
from safedelete.errors import ConfigError
from safedelete.testing.lab import Lab
from safedelete.testing.scratch import by_column, metadata_of
from safedelete.testing.strict_s3 import Kept
from safedelete.testing.values import comparable, zoned

ANCIENT: Final = datetime(2000, 1, 1, tzinfo=UTC)

RowName: TypeAlias = tuple[str, tuple[Any, ...]]
"""A row: its table's name and its primary key."""

Place: TypeAlias = tuple[str, str]
"""An object: bucket and key."""


def name_of(table: Table, key: Iterable[Any]) -> RowName:
    """Return a row's name, the same one whether it is as it was made up or as the database gives it."""
    columns = table.primary_key.columns
    return table.fullname, tuple(zoned(c, part) for c, part in zip(columns, key, strict=True))


class Naming(NamedTuple):
    """A column, or an expression, by which rows of a table name objects."""

    table: Table
    bucket: str
    column: ColumnElement[Any]
    whole_prefix: bool = False


@dataclass(frozen=True, eq=False)
class Row:
    """One row to be inserted, its values by column name."""

    table: Table
    values: Mapping[str, Any]

    @property
    def name(self) -> RowName:
        """Which row it is."""
        return name_of(self.table, [self.values.get(c.name) for c in self.table.primary_key.columns])


@dataclass(frozen=True)
class Stored:
    """One object that no row need name.

    Attributes:
        bucket: Bucket.
        key: Key.
        modified: When it was last written, aware, whole seconds.
        size: Bytes that it is listed with.
        storage_class: In S3's words.
    """

    bucket: str
    key: str
    modified: datetime
    size: int = 1
    storage_class: str = "STANDARD"


@dataclass(frozen=True, eq=False)
class Scene:
    """The data of one example. Every object that a row names is there; those in ``objects`` are there besides.

    Attributes:
        now: The instant of the run, aware.
        rows: Parents before children.
        objects: Further objects.
        denied: Rows of which the store refuses to delete an object, in the first night.
        changes: New values of rows, written between plan and execution of the first night.
        overwritten: Objects that are written anew in between.
        subject: What it was made for.
    """

    now: datetime
    rows: tuple[Row, ...] = ()
    objects: tuple[Stored, ...] = ()
    denied: frozenset[RowName] = frozenset()
    changes: Mapping[RowName, Mapping[str, Any]] = field(default_factory=dict)
    overwritten: frozenset[Place] = frozenset()
    subject: Subject | None = None

    def with_rows(self, kept: Iterable[Row]) -> Scene:
        """Return it with these rows only, and what is about them."""
        rows = tuple(kept)
        names = {row.name for row in rows}
        return replace(
            self,
            rows=rows,
            denied=self.denied & names,
            changes={name: values for name, values in self.changes.items() if name in names},
        )

    def things(self) -> list[object]:
        """Return every single thing that it could do without, for :meth:`without`, children before parents."""
        return [
            *((name, "denied") for name in sorted(self.denied, key=repr)),
            *((name, "changed") for name in self.changes),
            *reversed(self.rows),
            *((place, "overwritten") for place in sorted(self.overwritten)),
            *self.objects,
        ]

    def without(self, thing: object) -> Scene:
        """Return it with one thing less."""
        if isinstance(thing, Row):
            return self.with_rows(row for row in self.rows if row is not thing)
        if isinstance(thing, Stored):
            return replace(self, objects=tuple(stored for stored in self.objects if stored != thing))
        assert isinstance(thing, tuple)
        name, _ = thing
        return replace(
            self,
            denied=self.denied - {name} if thing[1] == "denied" else self.denied,
            changes={n: v for n, v in self.changes.items() if thing != (n, "changed")},
            overwritten=self.overwritten - {name},
        )

    def __str__(self) -> str:
        lines = [f"now {self.now.isoformat()}"]
        for row in self.rows:
            values = ", ".join(f"{name}={value!r}" for name, value in row.values.items())
            lines.append(f"{row.table.fullname}({values})")
        lines += [f"s3://{o.bucket}/{o.key!r}, written {o.modified.isoformat()}" for o in self.objects]
        lines += [f"denied: an object of {said(name)}" for name in sorted(self.denied, key=repr)]
        lines += [
            f"changed after the plan: {said(name)} to {values!r}" for name, values in self.changes.items()
        ]
        lines += [f"overwritten after the plan: s3://{b}/{k!r}" for b, k in sorted(self.overwritten)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Let Hypothesis show it as it shows itself, not field by field."""
        write = printer.text
        write(str(self))


@dataclass(frozen=True)
class Subject:
    """The purge under test with all that may name its objects.

    Attributes:
        purge: The purge.
        beside: The other purges of its job file.
        names: Further columns by which rows name objects, by bucket.
        metadata: Whose tables there are.
    """

    purge: Purge
    beside: tuple[Purge, ...]
    names: Mapping[str, Sequence[Any]]
    metadata: tuple[MetaData, ...]

    @cached_property
    def rows(self) -> tuple[Rows, ...]:
        """The purge's targets that are rows."""
        return tuple(target for target in self.purge.targets if isinstance(target, Rows))

    @cached_property
    def listed(self) -> tuple[S3Prefix | S3Orphans, ...]:
        """The purge's targets that are found by listing."""
        return tuple(target for target in self.purge.targets if not isinstance(target, Rows))

    @cached_property
    def modes(self) -> Mapping[str, Mode]:
        """What the purge does in each bucket that keeps versions."""
        places = [*self.listed, *(keys for rows in self.rows for keys in rows.owns)]
        return {place.bucket: place.mode for place in places if place.mode is not None}

    @cached_property
    def namings(self) -> tuple[Naming, ...]:
        """Every column known to name objects."""
        found: list[Naming] = []
        for purge in (self.purge, *self.beside):
            for target in purge.targets:
                if isinstance(target, S3Orphans):
                    found += [Naming(_table_of(c), target.bucket, c) for c in target.columns]
                if not isinstance(target, Rows):
                    continue
                for keys in target.owns:
                    found += [Naming(target.table, keys.bucket, column) for column in keys.columns]
                    if keys.prefix is not None:
                        found.append(Naming(target.table, keys.bucket, keys.prefix, whole_prefix=True))
        for bucket, columns in self.names.items():
            found += [Naming(_table_of(c), bucket, c) for c in map(element, columns)]
        return tuple({(n.table.fullname, n.bucket, str(n.column)): n for n in found}.values())

    @cached_property
    def owning(self) -> tuple[str, ...]:
        """The buckets in which rows of the purge own objects."""
        return tuple(dict.fromkeys(keys.bucket for rows in self.rows for keys in rows.owns))

    @cached_property
    def owned(self) -> tuple[Naming, ...]:
        """The columns by which rows of the purge name the objects that go with them."""
        mine = {(rows.table, keys.bucket) for rows in self.rows for keys in rows.owns}
        by = {str(c) for rows in self.rows for keys in rows.owns for c in (*keys.columns, keys.prefix)}
        return tuple(n for n in self.namings if (n.table, n.bucket) in mine and str(n.column) in by)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables an example fills: targets, what names objects, whatever refers to them, and all they refer to."""
        wanted = {rows.table for rows in self.rows} | {naming.table for naming in self.namings}
        every = [table for metadata in self.metadata for table in metadata.sorted_tables]
        while True:
            below = {t for t in every for fk in t.foreign_keys if fk.column.table in wanted} - wanted
            above = {fk.column.table for t in wanted | below for fk in t.foreign_keys} - wanted
            if not below | above:
                return tuple(table for table in every if table in wanted)
            wanted |= below | above


@dataclass(frozen=True)
class Snapshot:
    """What a lab holds at one moment.

    Attributes:
        rows: Every row by name.
        objects: Every object, with its ETag, date, size and class. Where the purge removes all versions of an object, it is
            there until the last of them is gone; elsewhere the current version alone counts.
        named: The objects each row names, whether they are there or not; of those below a prefix the ones that are.
        below: The prefixes that each row owns, with their slash.
        hidden: Where the purge hides what is current, the versions and markers of each object.
    """

    rows: Mapping[RowName, Mapping[str, Any]]
    objects: Mapping[Place, Kept]
    named: Mapping[RowName, frozenset[Place]]
    below: Mapping[RowName, frozenset[Place]] = field(default_factory=dict)
    hidden: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)

    def namers(self, place: Place) -> Iterator[RowName]:
        """Yield the rows that name an object, or a prefix that it lies below, whether it is there or not."""
        yield from (row for row, places in self.named.items() if place in places)
        for row, prefixes in self.below.items():
            within = any(place[0] == bucket and place[1].startswith(prefix) for bucket, prefix in prefixes)
            if within and place not in self.named.get(row, ()):
                yield row


def fill(lab: Lab, subject: Subject, scene: Scene) -> None:
    """Empty a lab, and put a scene into it.

    Raises:
        ConfigError: The database does not take the rows.
    """
    lab.empty()
    lab.clock.instant = scene.now
    for row in scene.rows:
        try:
            lab.add(row.table, **row.values)
        except (IntegrityError, StatementError) as error:
            raise ConfigError(
                f"The made-up row {dict(row.values)!r} does not fit into {row.table.fullname}: {error.__cause__ or error}.",
                hint=_hint(row.table, str(error.__cause__ or error)),
            ) from error
    for naming in subject.namings:
        for bucket, key in dict.fromkeys(named_by(lab, naming).values()):
            # As old as can be, so that no sweep spares one for its age alone.
            named = f"{key.rstrip('/')}/in it" if naming.whole_prefix else key
            _put(lab, subject, Stored(bucket, named, ANCIENT))
    for stored in scene.objects:
        _put(lab, subject, stored)


def _hint(table: Table, why: str) -> str:
    """Return what to do about a row that does not fit: the columns that the database speaks of, or else any."""
    words = set(re.findall(r"\w+", why))
    named = [column.name for column in table.columns if column.name in words] or ["column"]
    said = "; ".join(
        f"columns={{{table.name}.c.{name}: strategy}}, or the model's attribute" for name in named[:2]
    )
    return f"Say what may stand there: {said}."


def _put(lab: Lab, subject: Subject, stored: Stored) -> None:
    """Store an object; where the purge has to do with versions, with an earlier one beneath."""
    for _ in range(1 if subject.modes.get(stored.bucket) is None else 2):
        lab.store.put(
            stored.bucket,
            stored.key,
            b"x",
            modified=stored.modified,
            size=stored.size,
            storage_class=stored.storage_class,
        )


def look(lab: Lab, subject: Subject) -> Snapshot:
    """Return what a lab holds, by its own hand. Reads only."""
    rows: dict[RowName, Mapping[str, Any]] = {}
    for table in subject.tables:
        for values in lab.rows(table):
            name = name_of(table, (values[c.name] for c in table.primary_key.columns))
            rows[name] = {column: comparable(value) for column, value in values.items()}
    modes = subject.modes
    objects = lab.store.contents(hidden=[bucket for bucket, mode in modes.items() if mode == "purge"])
    hidden = {place: ids for place, ids in lab.store.history().items() if modes.get(place[0]) == "marker"}
    named: dict[RowName, set[Place]] = {}
    prefixes: dict[RowName, set[Place]] = {}
    for naming in subject.namings:
        for row, (bucket, key) in named_by(lab, naming).items():
            if not naming.whole_prefix:
                named.setdefault(row, set()).add((bucket, key))
                continue
            below = f"{key.rstrip('/')}/"
            prefixes.setdefault(row, set()).add((bucket, below))
            named.setdefault(row, set()).update(
                p for p in objects if p[0] == bucket and p[1].startswith(below)
            )
    names, below_of = ({row: frozenset(found) for row, found in d.items()} for d in (named, prefixes))
    return Snapshot(rows, objects, names, below_of, hidden)


def due(lab: Lab, rows: Rows) -> frozenset[RowName]:
    """Return the rows that a target's predicate matches now, by a SELECT of our own. Reads only."""
    statement = select(*rows.table.primary_key.columns).where(rows.predicate)
    values = resolve(rows.age_tests, lab.clock.now())
    return frozenset(name_of(rows.table, key) for key in lab.ask(statement, values))


def change(lab: Lab, subject: Subject, scene: Scene) -> None:
    """Write what a scene changes between plan and execution."""
    tables = {table.fullname: table for table in subject.tables}
    for (name, pk), values in scene.changes.items():
        table = tables[name]
        chosen = [c == part for c, part in zip(table.primary_key.columns, pk, strict=True)]
        # What the table does not take, no application could have written either.
        with suppress(IntegrityError):
            lab.tell(update(table).where(*chosen).values(by_column(table, values)))
        for naming in subject.namings:
            place = named_by(lab, naming).get((name, pk))
            if naming.table is table and place is not None and place not in lab.store.contents():
                lab.store.put(*place, b"x")
    for bucket, key in scene.overwritten:
        lab.store.put(bucket, key, b"written anew")


def said(name: RowName) -> str:
    """Return a row's name for a person."""
    table, key = name
    return f"{table} {key[0]!r}" if len(key) == 1 else f"{table} {key!r}"


def named_by(lab: Lab, naming: Naming) -> dict[RowName, Place]:
    """Return what rows name by one column; of a prefix, the prefix. Reads only."""
    keys = naming.table.primary_key.columns
    statement = select(*keys, naming.column.label("named")).where(naming.column.is_not(None))
    return {
        name_of(naming.table, found[:-1]): (naming.bucket, str(found[-1]))
        for found in lab.ask(statement, {})
        if found[-1]
    }


def element(column: Any) -> Any:
    """Return a column as Core has it, also where it is a model's attribute."""
    return column.__clause_element__() if hasattr(column, "__clause_element__") else column


def subject_of(
    purge: Purge,
    beside: Sequence[Purge],
    names: Mapping[str, Sequence[Any]] | None,
    metadata: MetaData | Sequence[MetaData] | None,
) -> Subject:
    """Return a purge as it is tested: with the tables given, or else those of all purges and all that ``names`` has."""
    known = names or {}
    whose = list(metadata_of((purge, *beside), metadata))
    if metadata is None:
        whose += [_table_of(element(column)).metadata for columns in known.values() for column in columns]
    return Subject(purge, tuple(beside), known, tuple(dict.fromkeys(whose)))


def _table_of(column: ColumnElement[Any]) -> Table:
    (table,) = select(column).get_final_froms()
    assert isinstance(table, Table)
    return table
