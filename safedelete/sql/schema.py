"""What the database itself says about a table: its columns, unique keys, indexes, and the foreign keys around it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Inspector, Table, inspect, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.reflection import ObjectKind, ObjectScope
from sqlalchemy.exc import SAWarning
from sqlalchemy.sql import visitors
from sqlalchemy.types import TypeEngine

from safedelete.declare.targets import Rows
from safedelete.errors import ConfigError
from safedelete.sql import indexes
from safedelete.sql.backends.base import TableName
from safedelete.sql.backends.postgres import idle_keys, partition_roots, quoted
from safedelete.sql.engine import Database
from safedelete.sql.failures import translated
from safedelete.sql.watch import Surroundings

_SPACE: Final = text(
    "SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(:name)"
)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """One foreign key, from child to parent.

    Attributes:
        name: The constraint's name; made up from its columns where it has none.
        child: The referencing table.
        columns: Its columns.
        parent: The referenced table.
        referred: The parent's columns, in the same order.
        action: ``CASCADE``, ``SET NULL``, ``SET DEFAULT``, ``RESTRICT`` or ``NO ACTION``.
        deferred: Whether it is checked at commit only.
        follows: Whether the child's rows change when their parent's key does (ON UPDATE).
    """

    name: str
    child: TableName
    columns: tuple[str, ...]
    parent: TableName
    referred: tuple[str, ...]
    action: str
    deferred: bool = False
    follows: bool = False

    def trails(self, other: ForeignKey) -> bool:
        """Whether rows of this child change when another foreign key alters those of its parent."""
        return (
            self.follows and self.parent == other.child and not set(self.referred).isdisjoint(other.columns)
        )


@dataclass(frozen=True, slots=True)
class Schema:
    """A snapshot of the database's own description.

    Attributes:
        table: The target, by schema and name.
        default: The connection's default schema; None where there is none.
        columns: The target's columns by name; None when there is no such table.
        unique: Its unique keys, as sets of columns.
        foreign_keys: Every foreign key of the database.
        indexes: By table, the column lists of its indexes and keys, in order.
        primary_keys: By table.
        names: By table, every column's name.
        types: The target's columns' types, as reflected.
        kind: ``table``, ``partition``, or ``view`` for a view in the table's place.
        surroundings: What a delete may meet, where the server does not say what it met; None where it does.
    """

    table: TableName
    default: str | None
    columns: frozenset[str] | None
    unique: tuple[frozenset[str], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    indexes: dict[TableName, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    primary_keys: dict[TableName, tuple[str, ...]] = field(default_factory=dict)
    types: dict[str, TypeEngine[Any]] = field(default_factory=dict)
    kind: str = "table"
    surroundings: Surroundings | None = None

    @classmethod
    def read(cls, database: Database, table: Table) -> Schema:
        """Read it. Reads only.

        Raises:
            StoreError: The database does not answer.
        """
        with (
            database.connected() as connection,
            translated(f"reading the schema around {table.fullname}"),
            database.reading(connection),
            warnings.catch_warnings(),
        ):
            # A type or an expression index that SQLAlchemy has no name for is none of our business.
            warnings.simplefilter("ignore", SAWarning)
            return _Reader(connection, table).schema()

    def require(self, rows: Rows) -> None:
        """Raise ConfigError unless the declared table and its columns are there."""
        if self.columns is None:
            raise ConfigError(
                f"Rows({rows.name}): the database has no table {rows.name}.",
                hint="Check the database's address and the table's schema, and run the migrations first.",
            )
        if self.kind == "view":
            raise ConfigError(
                f"Rows({rows.name}): {rows.name} is a view; what a DELETE on it removes cannot be held to a plan.",
                hint="Purge the table behind it.",
            )
        if self.kind == "partition":
            raise ConfigError(
                f"Rows({rows.name}): {rows.name} is a partition; PostgreSQL counts what a DELETE touches under the whole table.",
                hint="Purge the partitioned table, with the partition's own condition in the predicate; or drop the partition.",
            )
        declared = frozenset(c.name for c in rows.table.primary_key.columns)
        if not any(unique <= declared for unique in self.unique):
            raise ConfigError(
                f"Rows({rows.name}): in the database no key is unique over {', '.join(sorted(declared))}, which the model calls "
                "its primary key; one planned row could not be told from another.",
                hint="Declare the table's real key in the model (a partitioned table's includes the partition column).",
            )
        used = {c.name for c in rows.table.primary_key.columns}
        for expression in (*rows.predicates, *(c for keys in rows.owns for c in _columns_of(keys))):
            used |= {c.name for c in _columns(expression) if c.table is rows.table}
        wordy = sorted(name for name in declared if _unordered(self.types.get(name)))
        if wordy:
            raise ConfigError(
                f"Rows({rows.name}): {', '.join(wordy)} is an ENUM whose words are not in the order of the alphabet, or a SET. "
                "MariaDB and MySQL order it in one way and compare it in another, so rows would be passed over.",
                hint="Make it a VARCHAR, or bring the words into order.",
            )
        missing = sorted(used - self.columns)
        if missing:
            raise ConfigError(
                f"Rows({rows.name}): the table has no column {', '.join(missing)}.",
                hint="Run the migrations, correct the model, or grant SELECT: MariaDB hides columns that may not be read.",
            )

    def is_unique(self, expression: ColumnElement[Any]) -> bool:
        """Whether no two rows of the target can hold one value in this column."""
        name = getattr(expression, "name", None)
        return isinstance(expression, Column) and frozenset((str(name),)) in self.unique

    def has_index(self, table: TableName, columns: Sequence[str]) -> bool:
        """Whether an index of the table starts with these columns, in any order."""
        wanted = set(columns)
        return any(set(index[: len(wanted)]) == wanted for index in self.indexes.get(table, ()))

    def children(self, parent: TableName) -> list[ForeignKey]:
        """Return the foreign keys that reference a table."""
        return [fk for fk in self.foreign_keys if fk.parent == parent]

    def reachable(self, start: TableName) -> list[ForeignKey]:
        """Return every foreign key that a delete from a table may run into, through cascades at any depth."""
        found: list[ForeignKey] = []
        todo, seen = [start], {start}
        while todo:
            for fk in self.children(todo.pop()):
                found.append(fk)
                if fk.action == "CASCADE" and fk.child not in seen:
                    seen.add(fk.child)
                    todo.append(fk.child)
        return found

    @property
    def cascades_into_itself(self) -> bool:
        """Whether deleting one row of the target may delete another."""
        return any(fk.child == self.table and fk.action == "CASCADE" for fk in self.reachable(self.table))

    def display(self, table: TableName) -> str:
        """Return a table's name as plans and findings use it: with its schema unless it is the default one."""
        schema, name = table
        return name if schema is None or schema == self.default else f"{schema}.{name}"


def meant_schema(connection: Connection, table: Table) -> str | None:
    """Return the schema that a table's name means on PostgreSQL: any of the search_path, not its first alone. Reads only."""
    if connection.dialect.name != "postgresql":
        return None
    found: str | None = connection.execute(_SPACE, {"name": quoted(connection, table)}).scalar()
    return found


def _acts(action: str) -> bool:
    return action.upper().startswith(("CASCADE", "SET"))


def _columns(expression: ColumnElement[Any]) -> list[Column[Any]]:
    return [e for e in visitors.iterate(expression) if isinstance(e, Column)]


def _columns_of(keys: Any) -> list[ColumnElement[Any]]:
    return [*keys.columns, *(c for c in (keys.prefix, keys.etag, keys.size) if c is not None)]


class _Reader:
    def __init__(self, connection: Connection, table: Table) -> None:
        self.connection = connection
        self.inspector: Inspector = inspect(connection)
        self.dialect = connection.dialect.name
        self.default = None if self.dialect == "sqlite" else self.inspector.default_schema_name
        self._family: list[TableName] = []
        """On MariaDB and MySQL the target, and the tables that lead to it."""
        self.target: TableName = (table.schema or meant_schema(connection, table) or self.default, table.name)

    def schema(self) -> Schema:
        schema, name = self.target
        here = self.inspector.has_table(name, schema=schema)
        partitions = partition_roots(self.connection)
        kind = "partition" if self.target in partitions else "table"
        if here and name in self.inspector.get_view_names(schema=schema):
            kind = "view"
        described = self.inspector.get_columns(name, schema=schema) if here else []
        columns = frozenset(c["name"] for c in described) if here else None
        lists: dict[TableName, tuple[tuple[str, ...], ...]] = {}
        keys: dict[TableName, tuple[str, ...]] = {}
        foreign: list[ForeignKey] = []
        spaces = self._spaces()
        # Read before the rest, so that what comes meanwhile is noticed once too often rather than never.
        surroundings = Surroundings.read(self.connection, self._family) if self._family else None
        for space, names in spaces:
            if self.dialect != "sqlite":
                for table, found in self._multi("get_multi_foreign_keys", space, names):
                    # A partition repeats its parent's foreign keys under its own name; counted twice they would be wrong.
                    if table not in partitions:
                        mine = [fk for fk in found if (*table, fk.get("name")) not in self._idle]
                        foreign += [self._foreign(table, fk, partitions) for fk in mine]
            for table, key in self._multi("get_multi_pk_constraint", space, names):
                keys[table] = tuple((key or {}).get("constrained_columns") or ())
            for table, found in self._multi("get_multi_indexes", space, names):
                lists[table] = tuple(
                    tuple(index["column_names"])
                    for index in found
                    if indexes.finds(index) and (table[0], index["name"]) not in self._invalid
                )
            for table, found in self._multi("get_multi_unique_constraints", space, names):
                lists[table] = lists.get(table, ()) + tuple(tuple(u["column_names"]) for u in found)
        if self.dialect == "sqlite":
            foreign = self._sqlite_foreign_keys(keys)
        for table, primary in keys.items():
            lists[table] = ((primary,) if primary else ()) + lists.get(table, ())
        return Schema(
            table=self.target,
            default=self.default,
            columns=columns,
            unique=self._unique(keys.get(self.target, ())) if here and kind != "view" else (),
            foreign_keys=tuple(foreign),
            indexes=lists,
            primary_keys=keys,
            types={c["name"]: c["type"] for c in described},
            kind=kind,
            surroundings=surroundings,
        )

    def _multi(self, method: str, space: str | None, names: list[str] | None) -> list[tuple[TableName, Any]]:
        answer = getattr(self.inspector, method)(
            schema=space, filter_names=names, kind=ObjectKind.TABLE, scope=ObjectScope.ANY
        )
        return [((schema or self.default, name), value) for (schema, name), value in answer.items()]

    def _spaces(self) -> list[tuple[str | None, list[str] | None]]:
        """Return the schemas to read, and which of their tables; None for all of them."""
        if self.dialect == "sqlite":
            return [(None, None)]
        if self.dialect == "postgresql":
            hidden = ("pg_", "information_schema")
            return [(s, None) for s in self.inspector.get_schema_names() if not s.startswith(hidden)]
        return list(self._referencing().items())

    def _referencing(self) -> dict[str | None, list[str] | None]:
        """Return the tables of MariaDB and MySQL whose foreign keys may matter: ours, and all that lead to it.

        Each takes a statement of its own, and one that the role may not be shown would fail the whole of it.
        """
        edges = text(
            "SELECT DISTINCT referenced_table_name, table_schema, table_name FROM information_schema.key_column_usage"
            " WHERE referenced_table_schema = :schema"
        )
        within: dict[str | None, list[tuple[str, str, str]]] = {}
        found = [self.target]
        for schema, name in found:
            if schema not in within:
                answer = self.connection.execute(edges, {"schema": schema})
                within[schema] = [(parent, space, child) for parent, space, child in answer]
            # Whether case counts in names is the server's setting; one table too many does no harm.
            children = [(s, c) for parent, s, c in within[schema] if parent.casefold() == name.casefold()]
            found += [child for child in children if child not in found]
        self._family = found
        spaces: dict[str | None, list[str] | None] = {}
        for schema, name in found:
            spaces[schema] = [*(spaces.get(schema) or []), name]
        return spaces

    def _foreign(self, child: TableName, fk: Any, partitions: Mapping[TableName, TableName]) -> ForeignKey:
        options = fk.get("options") or {}
        columns = tuple(fk["constrained_columns"])
        parent: TableName = (fk.get("referred_schema") or self.default, fk["referred_table"])
        return ForeignKey(
            name=str(fk.get("name") or f"{child[1]}({', '.join(columns)})"),
            child=child,
            columns=columns,
            # One that references a partition acts when the row goes from the whole table.
            parent=partitions.get(parent, parent),
            referred=tuple(fk["referred_columns"]),
            # PostgreSQL may name the columns behind it: SET NULL (a).
            action=str(options.get("ondelete") or "NO ACTION").upper().partition(" (")[0],
            deferred=str(options.get("initially") or "").upper() == "DEFERRED",
            follows=_acts(str(options.get("onupdate") or "")),
        )

    def _sqlite_foreign_keys(self, keys: dict[TableName, tuple[str, ...]]) -> list[ForeignKey]:
        # SQLAlchemy reads the actions from the DDL's text, and misses those written beside a column.
        statement = text(
            'SELECT m.name, m.sql, f.id, f."table", f."from", f."to", f.on_delete, f.on_update'
            " FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f"
            " WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq"
        )
        spelt = {name.lower(): name for _, name in keys}
        parts: dict[tuple[str, int], list[Any]] = {}
        for row in self.connection.execute(statement):
            parts.setdefault((row[0], row[2]), []).append(row)
        found = []
        for (child, _), rows in parts.items():
            parent = (None, spelt.get(rows[0][3].lower(), rows[0][3]))
            columns = tuple(row[4] for row in rows)
            named = tuple(row[5] for row in rows)
            found.append(
                ForeignKey(
                    name=f"{child}({', '.join(columns)})",
                    child=(None, child),
                    columns=columns,
                    parent=parent,
                    referred=named if None not in named else keys.get(parent, ()),
                    action=rows[0][6].upper(),
                    # Whether it is deferred is nowhere but in the text; checking one time too many does no harm.
                    deferred="DEFERRED" in rows[0][1].upper(),
                    follows=_acts(rows[0][7]),
                )
            )
        return found

    @cached_property
    def _idle(self) -> frozenset[tuple[str, str, str]]:
        return idle_keys(self.connection)

    @cached_property
    def _invalid(self) -> frozenset[TableName]:
        return indexes.invalid(self.connection)

    def _unique(self, primary: tuple[str, ...]) -> tuple[frozenset[str], ...]:
        schema, name = self.target
        found = [frozenset(primary)] if primary else []
        found += [
            frozenset(u["column_names"]) for u in self.inspector.get_unique_constraints(name, schema=schema)
        ]
        found += [
            frozenset(str(c) for c in index["column_names"])
            for index in self.inspector.get_indexes(name, schema=schema)
            if index.get("unique")
            and None not in index["column_names"]
            and not indexes.partial(index)
            and (schema, index["name"]) not in self._invalid
        ]
        return tuple(found)


def _unordered(kind: TypeEngine[Any] | None) -> bool:
    """Whether a column is compared otherwise than it is ordered."""
    if isinstance(kind, mysql.SET):
        return True
    return isinstance(kind, mysql.ENUM) and kind.enums != sorted(kind.enums, key=str.casefold)
