"""Hold a declared predicate against the database before anything is counted. Reads only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Column, Connection, DateTime, Select, bindparam, literal_column, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.sql import visitors

from safedelete.core.seal import OTHER_KEY, unsealable
from safedelete.declare.predicates import family, functions
from safedelete.errors import ConfigError
from safedelete.sql import predicate
from safedelete.sql.failures import code, lost, words
from safedelete.sql.schema import Schema

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

NEVER: Final = literal_column("1") == literal_column("0")

_WRONG: Final = frozenset(
    {"42601", "42703", "42P01", "42883", "42804", "42846", "42702", "42725", "42P18", "42803", "22P02"}
    | {"1064", "1054", "1146", "1305", "1052", "1582", "1583", "1111", "SQLITE_ERROR"}
)
"""Syntax, an unknown name, a wrong type: what no grant repairs."""

_ALIKE: Final = frozenset(
    frozenset(pair)
    for pair in (("boolean", "number"), ("uuid", "text"), ("uuid", "binary"), ("uuid", "number"))
)
"""Sorts of values that one database stores as the other."""

_VOLATILE: Final = text(
    "SELECT proname FROM pg_proc WHERE proname IN :names GROUP BY proname HAVING bool_and(provolatile = 'v') ORDER BY 1"
).bindparams(bindparam("names", expanding=True))


def require_fit(target: SqlRows, connection: Connection, as_of: datetime) -> None:
    """Raise ConfigError unless the predicate can be run, on columns of the types that the model says, and keys be sealed.

    Reads only.
    """
    _types(target, target.schema)
    _keys(target, connection)
    _runs(target, connection, as_of)
    if target.database.backend.name == "postgresql":
        _volatile(target, connection)


def _types(target: SqlRows, schema: Schema) -> None:
    exact = target.database.backend.name != "sqlite"
    for column in _columns(target):
        found = schema.types.get(column.name)
        if found is None:
            continue
        here, there = family(column.type), family(found)
        if (
            here
            and there
            and here != there
            and frozenset((here, there)) not in _ALIKE
            and (exact or _clash(here, there))
        ):
            raise ConfigError(
                f"Rows({target.name}): {column.name} is {column.type!r} in the model and {found!r} in the database; compared "
                f"as {here} its values would not mean what the predicate says.",
                hint="Correct the column's type in the model; for an integer that holds a time, with unit=.",
            )
    for test in target.time_tests:
        found = schema.types.get(str(getattr(test.left, "name", "")))
        if test.cutoff.zone is not None and isinstance(found, DateTime) and found.timezone:
            raise ConfigError(
                f"Rows({target.name}): {test.cutoff.column} holds instants with a time zone in the database, so "
                f"tz={test.cutoff.zone!r} would move the cutoff.",
                hint="Say DateTime(timezone=True) in the model, and leave tz= out.",
            )


def _keys(target: SqlRows, connection: Connection) -> None:
    """What no key can be sealed with is better said when the purge is new than in the first night that finds a row."""
    statement = select(*target.keys.selected()).where(target.keys.whole()).limit(1)
    try:
        with target.database.reading(connection):
            found = connection.execute(statement).first()
    except SQLAlchemyError as error:
        target.database.raise_if_cancelled(error, f"reading a key of {target.name}")
        return  # the counts and the sample tell of it, as of a value that is none of the model's type
    except (TypeError, ValueError):
        return
    key = () if found is None else target.keys.read(found)
    for name, value in zip(target.keys.names, key, strict=False):
        for kind in unsealable([value]):
            raise ConfigError(
                f"Rows({target.name}): the primary key's column {name} holds values of a type that cannot be sealed: {kind}.",
                hint=OTHER_KEY,
            )


def _clash(here: str, there: str) -> bool:
    # SQLite keeps any value in any column; only what its affinities turn into something else can go wrong.
    return (here, there) in {("timestamp", "number"), ("date", "number"), ("number", "text")}


def _columns(target: SqlRows) -> Iterator[Column[object]]:
    for expression in target.rows.predicates:
        for element in visitors.iterate(expression):
            if isinstance(element, Column) and element.table is target.table:
                yield element


def _runs(target: SqlRows, connection: Connection, as_of: datetime) -> None:
    statement: Select[Any] = (
        select(literal_column("1")).select_from(target.table).where(target.rows.predicate, NEVER)
    )
    try:
        with target.database.reading(connection):
            connection.execute(statement, predicate.parameters(target.rows, as_of)).all()
    except SQLAlchemyError as error:
        target.database.raise_if_cancelled(error, f"trying the predicate of {target.name}")
        unsendable = isinstance(error, StatementError) and not isinstance(error, DBAPIError)
        if lost(error) or not (unsendable or code(error) in _WRONG):
            return  # a right that is missing, or a server in trouble: the counts tell of it
        shown, _ = predicate.rendered(
            target.rows.predicate, target.database.engine.dialect, predicate.parameters(target.rows, as_of)
        )
        raise ConfigError(
            f"Rows({target.name}): the database cannot run the predicate: {words(error)}. It is: {shown}",
            hint="Correct the predicate; SQL that was given as text, and the types of the values, first of all.",
        ) from error


def _volatile(target: SqlRows, connection: Connection) -> None:
    called = {name for expression in target.rows.predicates for name in functions(expression)}
    if not called:
        return
    with target.database.reading(connection):
        found = connection.execute(_VOLATILE, {"names": sorted(called)}).scalars().all()
    if found:
        raise ConfigError(
            f"Rows({target.name}): the predicate calls {', '.join(found)}, which PostgreSQL is told may answer differently each "
            "time (VOLATILE, the default of CREATE FUNCTION).",
            hint=f"If it depends on its arguments and the tables alone: ALTER FUNCTION {found[0]} STABLE;",
        )
