"""Rows that a table's CHECK constraints let in: asked of an SQLite in memory, before any database sees them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import islice, product
from typing import Any, Final

from sqlalchemy import CheckConstraint, Column, Table, create_engine, event, literal, select, text, types
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import CompileError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from safedelete.testing.values import bare

_TRIES: Final = 600
"""Rows that may be asked about for one that fits."""

_NUMBER: Final = re.compile(r"(?<![\w'.])-?\d+(?:\.\d+)?")
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")

_DIALECT: Final = sqlite.dialect()


@dataclass(frozen=True)
class Check:
    """One CHECK constraint.

    Attributes:
        condition: In SQL.
        columns: The columns that it speaks of.
        numbers: The numbers in it.
        texts: The texts in it.
    """

    condition: str
    columns: tuple[Column[Any], ...]
    numbers: tuple[Decimal, ...]
    texts: tuple[str, ...]


def checks_of(table: Table) -> list[Check]:
    """Return a table's CHECK constraints that SQLite may be asked about."""
    compiler: Any = _DIALECT.statement_compiler(_DIALECT, None)
    found: list[Check] = []
    # One that is written beside a column is the column's alone.
    for constraint in (*table.constraints, *(one for column in table.columns for one in column.constraints)):
        if not isinstance(constraint, CheckConstraint):
            continue
        try:
            condition = compiler.process(constraint.sqltext, include_table=False, literal_binds=True)
        except CompileError:
            continue
        words = {word.lower() for word in re.findall(r"\w+", _TEXT.sub("", condition))}
        found.append(
            Check(
                condition,
                tuple(c for c in table.columns if c.name.lower() in words),
                tuple(Decimal(number) for number in _NUMBER.findall(_TEXT.sub("", condition))),
                tuple(text.replace("''", "'") for text in _TEXT.findall(condition)),
            )
        )
    return sorted(found, key=lambda check: check.condition)


def fitted(
    table: Table,
    values: Mapping[str, Any],
    fixed: Collection[str],
    choose: Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> dict[str, Any]:
    """Return a row with as few other values as a table's CHECK constraints need; as it is where none were found.

    A condition that SQLite does not know is left to the database under test.

    Args:
        table: The table.
        values: The row, by column name.
        fixed: Names of columns whose values stay.
        choose: Picks one of several rows that fit.
    """
    row = dict(values)
    checks = checks_of(table)
    for check in checks:
        if _holds(table, check, row) is not False:
            continue
        free = [c for c in check.columns if c.name not in fixed and c.name in row]
        around = [c for c in checks if set(c.columns) & set(free)]
        fits = (
            other
            for other in islice(_others(check, row, free), _TRIES)
            if all(_holds(table, c, other) is not False for c in around)
        )
        # More than one, so that a column does not become the same in every row.
        some = list(islice(fits, 3))
        if some:
            row = choose(some)
    return row


def _others(check: Check, row: Mapping[str, Any], free: Collection[Column[Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows with other values, those first in which one column alone is another."""
    choices = {column.name: _candidates(column, check, row) for column in free}
    for name, values in choices.items():
        yield from ({**row, name: value} for value in values)
    for many in product(*choices.values()):
        yield {**row, **dict(zip(choices, many, strict=True))}


def _candidates(column: Column[Any], check: Check, row: Mapping[str, Any]) -> list[Any]:
    kind = bare(column.type)
    drawn = row[column.name]
    found: list[Any] = []
    if isinstance(kind, types.Boolean):
        found = [True, False]
    elif isinstance(kind, types.Enum):
        found = list(kind.enum_class or kind.enums)
    elif isinstance(kind, (types.Integer, types.Numeric, types.Float)):
        # What was drawn is in it, so that what told a row apart still does.
        near = [number + drawn for number in check.numbers if isinstance(drawn, (int, Decimal))]
        near += [number + step for number in check.numbers for step in (0, 1, -1, Decimal("0.5"))]
        wide = [*near, *(Decimal(number) for number in range(-1, 12)), Decimal(100), Decimal(1000)]
        found = _numbers(kind, wide)
    elif isinstance(kind, types.String):
        word = drawn if isinstance(drawn, str) and drawn else "a"
        found = [like.replace("%", word, 1).replace("%", "").replace("_", "a") for like in check.texts]
        found += [word.rjust(int(n), "0") for n in check.numbers if 0 <= n <= 200]
        found += [*check.texts, word, word.lower(), word.upper(), "a", "A", "0", "a@example.org", "https://a"]
        found += [letter * int(n) for n in check.numbers if 0 <= n <= 200 for letter in ("a", "0", "A")]
        found += [letter * int(n + 1) for n in check.numbers if 0 <= n <= 200 for letter in ("a", "0")]
        found = [value[: kind.length or 1000] for value in found]
    elif isinstance(kind, (types.DateTime, types.Date)):
        day = timedelta(days=1)
        others = [row.get(c.name) for c in check.columns if c is not column]
        found = [
            value + step
            for value in others
            if isinstance(value, date) and type(value) is type(drawn or value)
            for step in (0 * day, -day, day)
        ]
    return list(dict.fromkeys([*found, *([None] if column.nullable else [])]))


def _numbers(kind: Any, wide: list[Decimal]) -> list[Any]:
    if isinstance(kind, types.Integer):
        return list(dict.fromkeys(int(number) for number in wide))
    if isinstance(kind, types.Float):
        return [float(number) for number in wide]
    scale = kind.scale
    return wide if scale is None else [number.quantize(Decimal(1).scaleb(-scale)) for number in wide]


def _holds(table: Table, check: Check, row: Mapping[str, Any]) -> bool | None:
    """Whether a row meets a condition; None where it is not known, or SQLite cannot tell."""
    given = [c for c in check.columns if c.name in row]
    if len(given) < len(check.columns) or not given:
        return None
    try:
        source = select(*(literal(row[c.name], c.type).label(c.name) for c in given)).subquery(table.name)
        with _engine().connect() as connection:
            told = connection.execute(select(text(f"({check.condition})")).select_from(source)).scalar()
    except (DBAPIError, SQLAlchemyError, TypeError, ValueError, AttributeError):
        return None
    # As SQL has it: what is unknown lets a row in.
    return told is None or bool(told)


@lru_cache(maxsize=1)
def _engine() -> Any:
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})

    @event.listens_for(engine, "connect")
    def functions(connection: sqlite3.Connection, _record: object) -> None:
        for name in ("char_length", "character_length", "octet_length"):
            connection.create_function(name, 1, lambda value: None if value is None else len(str(value)))
        connection.create_function("btrim", 1, lambda value: None if value is None else str(value).strip())

    return engine
