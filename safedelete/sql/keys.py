"""Primary keys as SQL: a batch of them in one clause, a page after one of them, their order.

A key's values are those of the column's storage type: a TypeDecorator's Python objects could neither be sealed nor be
trusted to turn back into the same stored value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import islice, pairwise
from operator import ne
from typing import Any, Final, TypeVar
from unicodedata import combining, normalize

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Date,
    DateTime,
    Dialect,
    FromClause,
    Integer,
    Interval,
    String,
    Table,
    Text,
    and_,
    any_,
    bindparam,
    cast,
    column,
    false,
    func,
    literal,
    or_,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine

from safedelete.core.item import Key, KeyRows
from safedelete.errors import UnfitKeysError

_JSON_SAFE: Final = (int, str)


RUN_FROM: Final = 100
"""Fewest keys that are worth looking for runs in."""
MOST_RUNS: Final = 16
"""Most gap-free runs of whole numbers that stand in a statement; more of them go as a list of keys."""

Value = TypeVar("Value")


_SPELT: Final = (datetime, IPv4Address, IPv6Address, IPv4Network, IPv6Network)
"""What is read in another form than it is kept in."""


class KeyColumns:
    """The primary key of one table on one dialect.

    Args:
        table: The table.
        dialect: The dialect.
        source: An alias of the table to read the columns from, where it stands beside itself.
    """

    def __init__(self, table: Table, dialect: Dialect, source: FromClause | None = None) -> None:
        self.dialect = dialect
        found = table if source is None else source
        self.columns: tuple[ColumnElement[Any], ...] = tuple(
            found.c[c.key] for c in table.primary_key.columns
        )
        self.names = tuple(c.name for c in table.primary_key.columns)
        self.types = tuple(storage_type(c.type, dialect) for c in self.columns)
        self._raw = tuple(type_coerce(c, t) for c, t in zip(self.columns, self.types, strict=True))

    def __len__(self) -> int:
        return len(self.columns)

    def selected(self) -> list[ColumnElement[Any]]:
        """Return what to SELECT or to RETURN for :meth:`read`."""
        return [c.label(f"sd_key_{i}") for i, c in enumerate(self._raw)]

    def raw(self) -> tuple[ColumnElement[Any], ...]:
        """Return the columns in their storage types, without labels."""
        return self._raw

    def read(self, row: Sequence[Any]) -> Key:
        """Return the key at the start of a row.

        Instants are brought to UTC: in the hour that a clock change repeats, Python calls equal instants of two zones
        unequal, and a sealed key would not find its own row. Network addresses are text: an array of both families is
        sent as none else.
        """
        return tuple(_plain(v) if isinstance(v, _SPELT) else v for v in row[: len(self.columns)])

    def read_columns(self, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return the keys at the start of these rows, at least one, as columns."""
        if len(self.columns) == len(rows[0]) == 1:
            single = [row[0] for row in rows]
            if not any(issubclass(kind, _SPELT) for kind in set(map(type, single))):
                return [single]
        columns = [list(values) for values in islice(zip(*rows, strict=True), len(self.columns))]
        for i, values in enumerate(columns):
            if any(issubclass(kind, _SPELT) for kind in set(map(type, values))):
                columns[i] = [self.read(row)[i] for row in rows]
        return columns

    def read_all(self, rows: Sequence[Sequence[Any]]) -> list[Key]:
        """Return the key at the start of each row."""
        return list(zip(*self.read_columns(rows), strict=True)) if rows else []

    def order(self) -> tuple[ColumnElement[Any], ...]:
        """Return what to ORDER BY."""
        return self.columns

    def whole(self) -> ColumnElement[bool]:
        """Match rows whose key has no NULL in it, which SQLite allows."""
        return and_(*(c.is_not(None) for c in self.columns))

    def after(self, key: Key) -> ColumnElement[bool]:
        """Match rows behind a key in key order."""
        values = [literal(v, t) for v, t in zip(key, self.types, strict=True)]
        if len(values) == 1:
            return self.columns[0] > values[0]
        if self.dialect.name in {"postgresql", "sqlite"}:
            behind: ColumnElement[bool] = tuple_(*self.columns) > tuple_(*values)
            return behind
        # InnoDB reads the whole index for a comparison of row values; spelt out, it takes the range.
        steps = []
        for i in range(len(values)):
            same = [self.columns[j] == values[j] for j in range(i)]
            steps.append(and_(*same, self.columns[i] > values[i]))
        return and_(self.columns[0] >= values[0], or_(*steps))

    def up_to(self, leading: ColumnElement[Any], value: Any, key: Key) -> ColumnElement[bool]:
        """Match rows at or before a place in the order of another column, ties broken by key.

        Args:
            leading: The column.
            value: As :func:`stored` reads it.
            key: The key of the row there.
        """
        kind = storage_type(leading.type, self.dialect)
        if _read_as_text(kind, self.dialect):
            place: ColumnElement[Any] = type_coerce(leading, kind)
            edge: ColumnElement[Any] = cast(literal(value, String()), kind)
        else:
            place = stored(leading, self.dialect)
            edge = literal(value, place.type)
        return or_(place < edge, and_(place == edge, ~self.after(key)))

    def between(self, first: Key, last: Key) -> ColumnElement[bool]:
        """Match every key from the first to the last, both included; single-column keys only."""
        low, high = (literal(key[0], self.types[0]) for key in (first, last))
        return self.columns[0].between(low, high)

    def match(self, keys: Sequence[Key] | KeyRows) -> ColumnElement[bool]:
        """Match exactly these keys, or those of these rows.

        One array or one JSON document carries them all: a list of row values is an order of magnitude slower on
        PostgreSQL and SQLite, and each length of list is another statement to parse.
        """
        if not keys:
            return false()
        columns: Sequence[Sequence[Any]]
        widths = {len(keys.columns)} if isinstance(keys, KeyRows) else set(map(len, keys))
        if widths != {len(self.columns)}:
            raise UnfitKeysError(
                f"A sealed key has {max(widths)} column(s); the table's has {len(self.columns)}.",
                hint="The table's primary key has changed since the keys were sealed. Plan again.",
            )
        columns = keys.columns if isinstance(keys, KeyRows) else list(zip(*keys, strict=True))
        runs = _runs(columns[0]) if len(columns) == 1 and isinstance(self.types[0], Integer) else []
        if runs:
            return self._match_runs(runs)
        if self.dialect.name == "postgresql":
            return self._match_arrays(columns)
        if self.dialect.name == "sqlite":
            document = self._json(columns)
            if document is not None:
                return self._match_json(document)
        return self._match_list(columns)

    def _match_runs(self, runs: Sequence[tuple[int, int]]) -> ColumnElement[bool]:
        # The driver gave whole numbers, so the column holds nothing else between them; in SQLite any column may.
        which = or_(*(self.between((first,), (last,)) for first, last in runs))
        if self.dialect.name == "sqlite":
            return and_(which, func.typeof(self.columns[0]) == "integer")
        return which

    def _match_arrays(self, columns: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
        arrays = [
            bindparam(None, list(values), type_=ARRAY(_wide(t)), unique=True)
            for values, t in zip(columns, self.types, strict=True)
        ]
        if len(arrays) == 1:
            return self.columns[0] == any_(arrays[0])
        names = [f"k{i}" for i in range(len(arrays))]
        rows = (
            func.unnest(*arrays)
            .table_valued(*(column(n, t) for n, t in zip(names, self.types, strict=True)), name="sd_keys")
            .render_derived()
        )
        return tuple_(*self.columns).in_(select(*(rows.c[n] for n in names)))

    def _match_json(self, document: str) -> ColumnElement[bool]:
        keys = func.json_each(bindparam(None, document, type_=String(), unique=True)).table_valued(
            "value", name="sd_keys"
        )
        if len(self.columns) == 1:
            return self.columns[0].in_(select(type_coerce(keys.c.value, NullType())))
        parts = [
            func.json_extract(keys.c.value, f"$[{i}]", type_=NullType()) for i in range(len(self.columns))
        ]
        return tuple_(*self.columns).in_(select(*parts))

    def _match_list(self, columns: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
        # MariaDB and MySQL optimise lists of row values. On SQLite this is for the few types that JSON would not carry
        # exactly (bytes, floats): slow for composite keys there, but the same exact set.
        if len(self.columns) == 1:
            return self._raw[0].in_(columns[0])
        return tuple_(*self._raw).in_(list(zip(*columns, strict=True)))

    def _json(self, columns: Sequence[Sequence[Any]]) -> str | None:
        stored: list[list[Any]] = []
        for values, type_ in zip(columns, self.types, strict=True):
            process = type_.dialect_impl(self.dialect).bind_processor(self.dialect)
            bound = [process(v) for v in values] if process else list(values)
            if not all(type(v) in _JSON_SAFE and not (type(v) is str and "\0" in v) for v in bound):
                return None
            stored.append(bound)
        whole: Any = stored[0] if len(stored) == 1 else list(zip(*stored, strict=True))
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def matching(expression: ColumnElement[Any], values: Sequence[str], dialect: Dialect) -> ColumnElement[bool]:
    """Match any of these texts, sent as one parameter where the dialect can."""
    if isinstance(expression.type, TypeDecorator):
        return expression.in_(values)
    if dialect.name == "postgresql":
        return expression == any_(bindparam(None, list(values), type_=ARRAY(String()), unique=True))
    if dialect.name == "sqlite":
        document = json.dumps(list(values), ensure_ascii=False)
        texts = func.json_each(bindparam(None, document, type_=String(), unique=True)).table_valued(
            "value", name="sd_texts"
        )
        return expression.in_(select(type_coerce(texts.c.value, NullType())))
    return expression.in_(values)


def storage_type(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any]:
    """Return what a column really stores, under any TypeDecorator."""
    while isinstance(type_, TypeDecorator):
        if isinstance(type_, Interval) and dialect.name == "postgresql":
            return type_.dialect_impl(dialect)  # one of its own; the other databases keep a time
        type_ = type_.load_dialect_impl(dialect)
    return type_


def stored(expression: ColumnElement[Any], dialect: Dialect) -> ColumnElement[Any]:
    """Return an expression so that what is read of it is the very value that the database compares by.

    SQLite keeps whatever was written: a text with its zone, as another program writes it, is read as a time without one, and
    that one, sent back, is another text, before which no row may lie. Python has no infinite times, and none before the year 1:
    PostgreSQL's are read as text.
    """
    if _read_as_text(storage_type(expression.type, dialect), dialect):
        return cast(expression, Text())
    if dialect.name == "sqlite":
        return type_coerce(expression, NullType())
    return type_coerce(expression, storage_type(expression.type, dialect))


def _read_as_text(kind: TypeEngine[Any], dialect: Dialect) -> bool:
    return dialect.name == "postgresql" and isinstance(kind, (DateTime, Date))


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return str(value)
    return value if value.tzinfo is None else value.astimezone(UTC)


def _runs(values: Sequence[Any]) -> list[tuple[int, int]]:
    """Return the gap-free runs of ascending whole numbers; none where there are too many, or something else is there."""
    if len(values) < RUN_FROM or set(map(type, values)) != {int}:
        return []
    breaks = [0]
    if values[-1] - values[0] != len(values) - 1 or any(map(ne, values, range(values[0], values[-1] + 1))):
        for i, (a, b) in enumerate(pairwise(values), 1):
            if b - a != 1:
                breaks.append(i)
                if b <= a or len(breaks) > MOST_RUNS:
                    return []
    return [(values[a], values[b - 1]) for a, b in pairwise([*breaks, len(values)])]


def _wide(type_: TypeEngine[Any]) -> TypeEngine[Any]:
    # A model may say Integer where the table says bigint; the wider array serves both, index included.
    return BigInteger() if isinstance(type_, Integer) else type_


def looked_up(ask: Callable[[Sequence[Key]], Mapping[Key, Value]], asked: Sequence[Key]) -> dict[Key, Value]:
    """Ask the database about keys, and return what it has under the keys it was asked for.

    Args:
        ask: Returns what is found for keys, under the keys as they are spelt there.
        asked: Which keys.
    """
    wanted = frozenset(asked)
    known = as_asked(ask(asked), wanted)
    if known.keys() <= wanted:
        return known
    # Spelt in a way that only the database can tell; by itself each is the one that was asked for.
    for key in [key for key in asked if key not in known]:
        known |= as_asked(ask([key]), [key])
    return {key: value for key, value in known.items() if key in wanted}


def as_asked(found: Mapping[Key, Value], asked: Collection[Key]) -> dict[Key, Value]:
    """Return what was found by :meth:`KeyColumns.match` under the keys it was asked for.

    Under a collation that ignores case, accents or trailing blanks, a row may answer with its key spelt otherwise: to the
    database it is the same key, and so it is to us. A spelling that could be that of several keys stays as it is.
    """
    strays = [key for key in found if key not in asked]
    if not strays:
        return dict(found)
    missing = [key for key in asked if key not in found]
    meant: dict[Key, Key] = {}
    # Nearest spelling first: where blanks count, 'A' is 'a' and not 'a '.
    for fold in (_cased, _trimmed, _bare):
        folded: dict[Key, list[Key]] = {}
        for key in (*missing, *strays):
            folded.setdefault(fold(key), []).append(key)
        pairs = [
            pair for pair in folded.values() if len(pair) == 2 and (pair[0] in asked) > (pair[1] in asked)
        ]
        meant |= {stray: key for key, stray in pairs}
        missing = [key for key in missing if key not in meant.values()]
        strays = [key for key in strays if key not in meant]
    if len(strays) == len(missing) == 1 and any(isinstance(part, str) for part in strays[0]):
        meant[strays[0]] = missing[0]
    return {meant.get(key, key): value for key, value in found.items()}


def _cased(key: Key) -> Key:
    return tuple(part.casefold() if isinstance(part, str) else part for part in key)


def _trimmed(key: Key) -> Key:
    return tuple(part.rstrip() if isinstance(part, str) else part for part in _cased(key))


def _bare(key: Key) -> Key:
    return tuple(
        "".join(c for c in normalize("NFKD", part) if not combining(c)) if isinstance(part, str) else part
        for part in _trimmed(key)
    )
