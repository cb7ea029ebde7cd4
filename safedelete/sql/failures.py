"""What a driver's error means for a delete: one row's fault, somebody else's lock, or the end of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from safedelete.errors import (
    BusyError,
    NoSpaceError,
    SchemaChangedError,
    StoreError,
    UnfitKeysError,
    UnreachedError,
)


class Cause(StrEnum):
    """Why a statement failed."""

    REFERENCED = "referenced"
    """A foreign key holds the row."""
    REFUSED = "refused"
    """Another constraint or a trigger refused the row."""
    LOCKED = "locked"
    """Another transaction was in the way: a lock timeout or a deadlock."""
    EATEN = "eaten"
    """A rule stands in the delete's place, for every row of the table."""
    OTHER = "other"
    """Not a matter of one row: a permission, a lost connection, a cancelled statement, a full disk."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed statement.

    Attributes:
        cause: What it means.
        code: The database's own code (SQLSTATE, errno or name).
        words: The database's own words, without statement and parameters.
    """

    cause: Cause
    code: str
    words: str


def words(error: BaseException) -> str:
    """Return what the database said, on one line, without the statement and its parameters."""
    cause: object = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    diag = getattr(cause, "diag", None)
    primary = getattr(diag, "message_primary", None)
    if primary:
        detail = getattr(diag, "message_detail", None)
        text = f"{primary} ({detail})" if detail else str(primary)
    else:
        args = getattr(cause, "args", ())
        text = " ".join(str(a) for a in args) if args else str(cause)
    return " ".join(text.split()) or type(cause).__name__


def lost(error: BaseException) -> bool:
    """Whether the connection went with the statement."""
    return isinstance(error, DBAPIError) and bool(error.connection_invalidated)


@contextmanager
def translated(doing: str, *, hint: str = "", deleted: int | None = 0) -> Iterator[None]:
    """Turn a database error into a StoreError that says what was being done.

    Args:
        doing: What was being done, as ``reading uploads``.
        hint: What to do next.
        deleted: As for :class:`~safedelete.errors.SafeDeleteError`.

    Raises:
        BusyError: Another transaction was in the way; trying again may help.
        UnreachedError: The connection was lost; trying again on another may help.
        NoSpaceError: The disk is full.
        SchemaChangedError: A table or column is not there.
        StoreError: Any other database error.
    """
    try:
        yield
    except SQLAlchemyError as error:
        kind = _kind(error)
        fate = "; the connection was lost" if lost(error) else ""
        raise kind(
            f"The database failed while {doing}: {words(error)}{fate}.",
            hint=_HINTS.get(kind, hint),
            deleted=deleted,
        ) from error


def is_unreached(error: BaseException) -> bool:
    """Whether the connection was lost, or the server takes none at the moment."""
    found = code(error)
    return lost(error) or found in _UNREACHED or (len(found) == 5 and found.startswith("08"))


def _kind(error: BaseException) -> type[StoreError]:
    found, said = code(error), words(error)
    if is_busy(error):
        return BusyError
    if is_unreached(error):
        return UnreachedError
    if found in _FULL or "error 28 from storage engine" in said or "Errcode: 28" in said:
        return NoSpaceError
    if found in _UNFIT:
        return UnfitKeysError
    if found in _ABSENT or (found == "SQLITE_ERROR" and said.startswith(("no such table", "no such column"))):
        return SchemaChangedError
    return StoreError


def is_cancelled(error: BaseException) -> bool:
    """Whether somebody cancelled the statement, as a stop does; a timeout of the server's own is not meant.

    PostgreSQL has one code for both, and words for each that depend on its language; one that was asked for by this
    very process is known to :class:`~safedelete.sql.engine.Database` besides.
    """
    found = code(error)
    return found in {"1317", "SQLITE_INTERRUPT"} or (found == "57014" and "user request" in words(error))


_UNREACHED = frozenset(
    {
        "57P01",
        "57P02",
        "57P03",
        "25P03",
        "53300",
        "1040",
        "1053",
        "1927",
        "2002",
        "2003",
        "2006",
        "2013",
        "2055",
    }
)
"""Of PostgreSQL: shut down, crashed, starting up, idle for too long, no connection left; of MariaDB the same."""

_FULL = frozenset({"53100", "1021", "1114", "SQLITE_FULL"})

_ABSENT = frozenset({"42P01", "42703", "3F000", "1146", "1054", "1049"})
"""No such table, column or schema."""

_HINTS: Mapping[type[StoreError], str] = {
    NoSpaceError: "Make room on the database's disk, or raise its quota; then run again, which goes on from the ledger.",
    UnfitKeysError: "A value is of another type than the table's column: correct the model's types; where the table has "
    "changed since the plan was made, plan again.",
    SchemaChangedError: "The schema changed since the plan was made. Correct the job file, and plan again.",
}

_UNFIT = frozenset({"42846", "42883", "42804", "22P02"})
"""PostgreSQL's codes for values that cannot be compared with, or cast to, a column's type."""

_BUSY = frozenset({"40001", "40P01", "55P03", "1205", "1213", "1020", "SQLITE_BUSY", "SQLITE_LOCKED"})


def code(error: BaseException) -> str:
    """Return the database's code for an error: SQLSTATE, SQLite's name or the server's number; empty without one."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    args = getattr(cause, "args", ())
    if args and isinstance(args[0], int):
        return str(args[0])  # PyMySQL has a SQLSTATE as well, but one for many errors
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return str(state or getattr(cause, "sqlite_errorname", None) or "")


def is_busy(error: BaseException) -> bool:
    """Whether another transaction was in the way."""
    found = code(error)
    return found in _BUSY or found.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
