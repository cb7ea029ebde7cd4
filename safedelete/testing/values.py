"""Values for columns: by their type, and for columns that tell a row's time around a cutoff."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from sqlalchemy import BinaryExpression, Column, ColumnElement, Index, Table, UniqueConstraint, types
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BindParameter, False_, True_

from safedelete.declare.time import Cutoff
from safedelete.errors import ConfigError

FAR: Final = timedelta(days=400)
ODD: Final = (
    "a.jpg",
    "b/c.jpg",
    "é ü.txt",
    "a b+c%20?#.txt",
    "x//y",
    "&<>\"'.txt",
    "line\nbreak",
    "control\x01",
)
"""Keys whose like have made object stores delete something else, or nothing; the plainest first."""


def around(cutoff: Cutoff, now: datetime) -> list[Any]:
    """Return values of a time column, from long due to never due, the cutoff itself among them.

    Where the column's zone repeats an hour, the same wall-clock times of the hours before and after are there too.
    """
    at: Any = cutoff.value(now)
    match cutoff.shape:
        case "s" | "ms":
            unit: Any = 1
            far: Any = int(FAR.total_seconds()) * (1000 if cutoff.shape == "ms" else 1)
            hour: Any = 3600 * (1000 if cutoff.shape == "ms" else 1)
        case "date":
            unit, far, hour = timedelta(days=1), FAR, timedelta(days=2)
        case _:
            unit, far, hour = timedelta(microseconds=1), FAR, timedelta(hours=1)
    return list(dict.fromkeys([at - far, at - unit, at, at + unit, at - hour, at + hour, at + far]))


def instants(cutoffs: Iterable[Cutoff]) -> list[datetime]:
    """Return instants for a run: an ordinary one, a leap day, and those that put a cutoff into a change of the clocks."""
    found = [
        datetime(2026, 3, 1, 3, 15, tzinfo=UTC),
        datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC),
        datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC),
    ]
    for cutoff in cutoffs:
        if cutoff.zone is not None:
            zone = ZoneInfo(cutoff.zone)
            for change in changes(zone):
                found += [
                    change + cutoff.age + step for step in (timedelta(minutes=-30), timedelta(minutes=30))
                ]
    return found


def changes(zone: ZoneInfo) -> list[datetime]:
    """Return the instants of one year at which a zone changes its clocks, to the minute."""
    found: list[datetime] = []
    day = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(365):
        following = day + timedelta(days=1)
        offset = day.astimezone(zone).utcoffset()
        if following.astimezone(zone).utcoffset() != offset:
            minutes = (day + timedelta(minutes=m) for m in range(1, 24 * 60 + 1))
            found.append(next(m for m in minutes if m.astimezone(zone).utcoffset() != offset))
        day = following
    return found


def times_of(table: Table) -> list[Column[Any]]:
    """Return the columns of a table that hold a time."""
    return [c for c in table.columns if isinstance(_bare(c.type), (types.DateTime, types.Date))]


def cutoff_now(column: Column[Any]) -> Cutoff:
    """Return the cutoff that a time column has when nothing says how old a row must be: now."""
    kind = _bare(column.type)
    shape = "date" if not isinstance(kind, types.DateTime) else "aware" if kind.timezone else "naive"
    return Cutoff(column.name, timedelta(0), shape)  # type: ignore[arg-type]  # one of the three


def constants(predicates: Iterable[ColumnElement[Any]]) -> dict[str, list[Any]]:
    """Return the values that predicates compare columns with, so that made-up rows can match them."""
    found: dict[str, list[Any]] = {}
    for predicate in predicates:
        for element in visitors.iterate(predicate):
            if not isinstance(element, BinaryExpression) or not isinstance(element.left, Column):
                continue
            right: Any = element.right
            if isinstance(right, (True_, False_)):
                found.setdefault(element.left.name, []).append(isinstance(right, True_))
            if isinstance(right, BindParameter) and not isinstance(right.value, Cutoff):
                value: Any = right.value
                found.setdefault(element.left.name, []).extend(
                    value if isinstance(value, (list, tuple)) else [value]
                )
    return found


def is_unique(column: Column[Any]) -> bool:
    """Whether no two rows may have the same value of a column."""
    table: Table = column.table
    alone = [list(c.columns) == [column] for c in table.constraints if isinstance(c, UniqueConstraint)] + [
        list(i.columns) == [column] for i in table.indexes if i.unique
    ]
    return bool(column.unique) or any(alone) or list(table.primary_key.columns) == [column]


def has_index(column: Column[Any]) -> bool:
    """Whether a search by a column can use an index: one whose first column it is."""
    table: Table = column.table
    firsts: list[Any] = [_first(i) for i in table.indexes] + [
        _first(c) for c in table.constraints if isinstance(c, UniqueConstraint)
    ]
    return column in firsts or bool(column.unique) or _first(table.primary_key) is column


def by_type(column: Column[Any], number: int, likely: Sequence[Any]) -> st.SearchStrategy[Any]:
    """Return values for an ordinary column.

    Args:
        column: The column.
        number: Counts the rows of its table from 1; values of a unique column hold it.
        likely: Values that predicates compare it with.

    Raises:
        ConfigError: The type is not known, and the column can neither be NULL nor has a default.
    """
    plain = _plain(column, number)
    if plain is None:
        if column.nullable:
            return st.none()
        raise ConfigError(
            f"{column.table.fullname}.{column.name} is of type {column.type!r}, for which no value can be made up.",
            hint="Say what may stand in it: columns={Model.column: strategy}.",
        )
    if is_unique(column):
        return plain
    if likely:
        # Every third row first as it does not match, so that already the plainest scene has both.
        if isinstance(_bare(column.type), types.Boolean):
            plain = st.sampled_from([not likely[0], bool(likely[0])])
        alike = st.sampled_from(list(likely))
        plain = st.one_of(plain, alike) if number % 3 == 2 else st.one_of(alike, plain)
    return st.one_of(plain, st.none()) if column.nullable else plain


def _plain(column: Column[Any], number: int) -> st.SearchStrategy[Any] | None:
    kind = _bare(column.type)
    single = is_unique(column)
    simple: list[tuple[Any, st.SearchStrategy[Any]]] = [
        (types.Boolean, st.booleans()),
        (types.Integer, st.just(number) if single else st.integers(0, 3)),
        (types.Float, st.sampled_from([0.0, 0.5, -1.5])),
        (types.Numeric, st.just(Decimal(number)) if single else st.sampled_from([Decimal(0), Decimal(1)])),
        (types.LargeBinary, st.just(str(number).encode()) if single else st.sampled_from([b"", b"\x00"])),
        (types.Interval, st.just(timedelta(seconds=number))),
        (types.JSON, st.just({})),
        (types.Time, st.just(time(3, 15))),
    ]
    if isinstance(kind, types.Enum):
        members = list(kind.enum_class) if kind.enum_class is not None else list(kind.enums)
        assert all(isinstance(member, (str, enum.Enum)) for member in members)
        return st.sampled_from(members)
    if isinstance(kind, types.Uuid):
        import uuid

        value = uuid.UUID(int=number)
        return st.just(value if kind.as_uuid else str(value))
    if isinstance(kind, types.String):
        texts = [f"{number}"] if single else ["", "a", "é'\"%;", "0"]
        return st.sampled_from([text[: kind.length or 1000] for text in texts])
    return next((strategy for sort, strategy in simple if isinstance(kind, sort)), None)


def _bare(kind: Any) -> Any:
    return kind.impl_instance if isinstance(kind, types.TypeDecorator) else kind


def _first(of: Index | Any) -> Any:
    return next(iter(of.columns), None)


def shown(value: date | int) -> str:
    """Return a time for a person."""
    return value.isoformat() if isinstance(value, date) else str(value)
