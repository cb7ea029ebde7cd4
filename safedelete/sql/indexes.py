"""Which indexes find the rows of any one value, as SQLAlchemy describes them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text

from safedelete.sql.backends.base import TableName


def finds(index: Any) -> bool:
    """Whether an index is of a kind that finds a value, and of all rows."""
    columns = index["column_names"]
    if None in columns:
        return False
    options = index.get("dialect_options") or {}
    if (options.get("postgresql_using") or "btree") not in ("btree", "hash"):
        return False
    # A foreign key looks for a value, never for NULL, so an index without the NULLs serves it as well.
    return not partial(index) or any(_skips_nulls(index, column) for column in columns)


def partial(index: Any) -> bool:
    """Whether an index leaves rows out."""
    return _condition(index) is not None


def invalid(connection: Connection) -> frozenset[TableName]:
    """Name indexes that failed while they were built (CONCURRENTLY): they are there, and prove nothing. Reads only."""
    if connection.dialect.name != "postgresql":
        return frozenset()
    statement = text(
        "SELECT n.nspname, c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT i.indisvalid"
    )
    return frozenset((schema, name) for schema, name in connection.execute(statement))


def _condition(index: Any) -> Any:
    options = index.get("dialect_options") or {}
    return next(
        (options[name] for name in options if name.endswith("_where") and options[name] is not None), None
    )


def _skips_nulls(index: Any, column: str) -> bool:
    said = "".join(c for c in str(_condition(index)) if c not in '()"').casefold().split()
    return said == [*column.casefold().split(), "is", "not", "null"]
