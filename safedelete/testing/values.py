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
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BindParameter, False_, Null, True_, UnaryExpression

from safedelete.declare.time import Cutoff
from safedelete.errors import ConfigError
from safedelete.testing.documents import Read, read_by, takes_out

FAR: Final = timedelta(days=400)
ODD: Final = (
    "a.jpg",
    "a.jpg2",
    "a b+c%20?#.txt",
    "x//y",
    "é ü.txt",
    "b/c.jpg",
    "&<>\"'.txt",
    "line\nbreak",
    "control\x01",
)
"""Keys whose like have made object stores, or their users, delete something else, or nothing; the plainest first."""

_POSTGRESQL: Final = {
    "INET": "192.0.2.1",
    "CIDR": "192.0.2.0/24",
    "MACADDR": "02:00:00:00:00:01",
    "TSVECTOR": "",
}
"""Values of types that have no kind among SQLAlchemy's own."""

_LIKE: Final = (
    operators.like_op,
    operators.ilike_op,
    operators.startswith_op,
    operators.istartswith_op,
    operators.endswith_op,
    operators.iendswith_op,
    operators.contains_op,
    operators.icontains_op,
)
_ABOVE: Final = (operators.gt, operators.ne)


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
    """Return instants for a run: an ordinary one, one at which a cutoff is in an hour that its zone repeats, if one does,
    one on a leap day, one with a fraction of a second, and those around the other changes of the clocks.
    """  # one sentence
    changed: list[datetime] = []
    for cutoff in cutoffs:
        if cutoff.zone is not None:
            zone = ZoneInfo(cutoff.zone)
            steps = (timedelta(minutes=-30), timedelta(minutes=30))
            near = [change + step for change in changes(zone) for step in steps]
            near.sort(key=lambda at: not _repeated(at, zone))
            changed += [at + cutoff.age for at in near]
    return [
        datetime(2026, 3, 1, 3, 15, tzinfo=UTC),
        *changed[:1],
        datetime(2028, 2, 29, 23, 59, 59, tzinfo=UTC),
        datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC),
        *changed[1:],
    ]


def _repeated(at: datetime, zone: ZoneInfo) -> bool:
    local = at.astimezone(zone)
    return local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset()


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
    return [c for c in table.columns if isinstance(bare(c.type), (types.DateTime, types.Date))]


def cutoff_now(column: Column[Any]) -> Cutoff:
    """Return the cutoff that a time column has when nothing says how old a row must be: now."""
    kind = bare(column.type)
    shape = "date" if not isinstance(kind, types.DateTime) else "aware" if kind.timezone else "naive"
    return Cutoff(column.name, timedelta(0), shape)  # type: ignore[arg-type]  # one of the three


def constants(predicates: Iterable[ColumnElement[Any]]) -> dict[str, list[Any]]:
    """Return values by which made-up rows can match predicates: those that they compare columns with, the ones to either
    side, and text that is like a pattern. One that matches comes first.
    """  # one sentence
    found: dict[str, list[Any]] = {}
    for (column, path), values in compared(predicates).items():
        if not path:
            found[column.name] = values
    return found


def compared(predicates: Iterable[ColumnElement[Any]]) -> dict[Read, list[Any]]:
    """Return such values by what they are compared with: a column, or a value in the document that a column holds."""
    found: dict[Read, list[Any]] = {}
    for predicate in predicates:
        for element in visitors.iterate(predicate):
            if not isinstance(element, BinaryExpression) or takes_out(element):
                continue
            read = list(dict.fromkeys(read_by(element.left)))
            if len(read) != 1:
                continue
            values = found.setdefault(read[0], [])
            # Of a function of one column, what the column itself holds may be what it gives.
            plain = element.left is read[0][0] or bool(read[0][1])
            values += [
                v for v in _matching(element) if v not in values and (plain or _may_hold(read[0][0], v))
            ]
    return {read: values for read, values in found.items() if values}


def _may_hold(column: Column[Any], value: Any) -> bool:
    try:
        return value is None or type(value) is bare(column.type).python_type
    except NotImplementedError:
        return False


def _matching(test: BinaryExpression[Any]) -> list[Any]:
    right: Any = test.right
    if isinstance(right, (True_, False_)):
        return [isinstance(right, True_)]
    if isinstance(right, Null):
        return [None] if test.operator is operators.is_ else []
    given = [
        value
        for part in visitors.iterate(right)
        if isinstance(part, BindParameter) and not isinstance(part.value, Cutoff)
        for value in (part.value if isinstance(part.value, (list, tuple)) else [part.value])
    ]
    if test.operator in _LIKE:
        return ["".join(str(value) for value in given).replace("\\", "").replace("%", "").replace("_", "a")]
    found: list[Any] = []
    for value in given:
        below, above = _beside(value)
        turn = [above, value, below] if test.operator in _ABOVE else [below, value, above]
        found += turn if test.operator in (*_ABOVE, operators.lt) else [value, above, below]
    return [value for place, value in enumerate(found) if value is not None and value not in found[:place]]


def _beside(value: Any) -> tuple[Any, Any]:
    """Return the values to either side of one; None where there are none."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return value - 1, value + 1
    if isinstance(value, date):
        return value - timedelta(days=1), value + timedelta(days=1)
    return None, None


def is_unique(column: Column[Any]) -> bool:
    """Whether no two rows may have the same value of a column."""
    table: Table = column.table
    alone = [list(c.columns) == [column] for c in table.constraints if isinstance(c, UniqueConstraint)] + [
        list(i.columns) == [column] for i in table.indexes if i.unique
    ]
    return bool(column.unique) or any(alone) or list(table.primary_key.columns) == [column]


def has_index(column: Column[Any]) -> bool:
    """Whether a search by a column's range can use an index: one that begins with the column itself, and is in order."""
    table: Table = column.table
    firsts: list[Any] = [_leading(i) for i in table.indexes] + [
        _first(c) for c in table.constraints if isinstance(c, UniqueConstraint)
    ]
    firsts.append(_first(table.primary_key))
    return bool(column.unique) or any(first is column for first in firsts)


def together(table: Table) -> list[list[Column[Any]]]:
    """Return the sets of columns of which no two rows may have the same values."""
    found = [list(c.columns) for c in table.constraints if isinstance(c, UniqueConstraint)]
    found += [[c for c in i.columns if isinstance(c, Column)] for i in table.indexes if i.unique]
    return [*found, list(table.primary_key.columns)]


def takes_number(column: Column[Any]) -> bool:
    """Whether a column of this type can tell any number of rows apart."""
    kind = bare(column.type)
    wide = (types.Integer, types.Numeric, types.String, types.LargeBinary, types.Interval, types.Uuid)
    return isinstance(kind, wide) and not isinstance(kind, (types.Enum, types.Float))


def by_type(
    column: Column[Any], number: int, likely: Sequence[Any], *, numbered: bool = False
) -> st.SearchStrategy[Any]:
    """Return values for an ordinary column.

    Args:
        column: The column.
        number: Counts the rows of its table from 1; values of a unique column hold it.
        likely: Values that predicates compare it with.
        numbered: The number is to tell its row from others, though the column alone need not be unique.

    Raises:
        ConfigError: The type is not known, and the column can neither be NULL nor has a default.
    """
    single = numbered or is_unique(column)
    plain = _plain(column, number, single)
    if plain is None:
        if column.nullable:
            return st.none()
        raise ConfigError(
            f"{column.table.fullname}.{column.name} is of type {column.type!r}, for which no value can be made up.",
            hint="Say what may stand in it: columns={Model.column: strategy}.",
        )
    if single:
        return plain
    if likely:
        # Every third row first as it does not match, so that already the plainest scene has both.
        if isinstance(bare(column.type), types.Boolean):
            plain = st.sampled_from([not likely[0], bool(likely[0])])
        alike = st.sampled_from(list(likely))
        plain = st.one_of(plain, alike) if number % 3 == 2 else st.one_of(alike, plain)
    return st.one_of(plain, st.none()) if column.nullable else plain


def _plain(column: Column[Any], number: int, single: bool) -> st.SearchStrategy[Any] | None:
    kind = bare(column.type)
    simple: list[tuple[Any, st.SearchStrategy[Any]]] = [
        (types.Boolean, st.booleans()),
        (types.Integer, st.just(number) if single else st.integers(0, 3)),
        (types.Float, st.sampled_from([0.0, 0.5, -1.5])),
        (types.Numeric, st.just(Decimal(number)) if single else st.sampled_from([Decimal(0), Decimal(1)])),
        (types.LargeBinary, st.just(str(number).encode()) if single else st.sampled_from([b"", b"\x00"])),
        (types.Interval, st.just(timedelta(seconds=number))),
        (types.JSON, st.just({})),
        (types.ARRAY, st.just([])),
        (types.Time, st.just(time(3, 15))),
    ]
    if not single and kind.__visit_name__ in _POSTGRESQL:
        return st.just(_POSTGRESQL[kind.__visit_name__])
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


def bare(kind: Any) -> Any:
    """Return a type without what decorates it."""
    return kind.impl_instance if isinstance(kind, types.TypeDecorator) else kind


def zoned(column: Column[Any], value: Any) -> Any:
    """Return a value as it was given to a column with a zone, of which SQLite gives back the digits alone."""
    kind = bare(column.type)
    aware = isinstance(kind, types.DateTime) and kind.timezone
    return (
        value.replace(tzinfo=UTC) if aware and isinstance(value, datetime) and value.tzinfo is None else value
    )


def comparable(value: Any) -> Any:
    """Return what a value is compared by: itself, or in a word what cannot be compared with another of its kind."""
    if value is None or isinstance(value, enum.Enum):
        return value
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__:
        return kind.__name__ if kind.__repr__ is object.__repr__ else repr(value)
    try:
        return value if bool(value == value) else repr(value)  # noqa: PLR0124
    except (TypeError, ValueError):
        # An array answers for each of its elements.
        return repr(value)


def _first(of: Any) -> Any:
    return next(iter(of.columns), None)


def _leading(index: Index) -> Any:
    """Return what an index is ordered by first: a column, forwards or backwards, or an expression made of some."""
    if index.dialect_kwargs.get("postgresql_using") == "hash":
        return None
    found: Any = next(iter(index.expressions), None)
    while isinstance(found, UnaryExpression) and found.modifier is not None:
        found = found.element
    return found


def shown(value: date | int) -> str:
    """Return a time for a person."""
    return value.isoformat() if isinstance(value, date) else str(value)
