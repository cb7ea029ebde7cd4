"""A database's failures in the ledger's words, and how instants are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from safedelete.errors import LedgerError, LedgerUnreachedError

AGAIN: Final = (
    "Its connection was lost, or another transaction was in its way; run again, which goes on from there."
)


def instant(value: datetime) -> str:
    """Write an instant as the ledger stores it: ISO 8601, UTC, microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def storable(text: str) -> str:
    """Return a text as every database takes it.

    A program's output may hold a NUL, which PostgreSQL keeps in no text; an argument or a file name that is no UTF-8 has
    halves of surrogate pairs in their place, which no driver can send. How a run ended must not be lost for either.
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def first_line(error: BaseException) -> str:
    """Return the database's own words, without SQLAlchemy's statement and parameters."""
    source = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(source).strip().splitlines() or [type(source).__name__])[0]


def denied(error: SQLAlchemyError) -> bool:
    """Whether the database refused for want of a privilege, or because it is read-only."""
    original = getattr(error, "orig", None)
    code = original.args[0] if original is not None and original.args else None
    if isinstance(code, int):
        # PyMySQL has a SQLSTATE as well, but one for many errors.
        return code in {1142, 1143, 1227, 1290, 1044}
    state = getattr(original, "sqlstate", None)
    if state is not None:
        return state in {"42501", "25006"}
    return "readonly" in str(original) or "read-only" in str(original)


def passing(error: SQLAlchemyError) -> bool:
    """Whether the connection was lost, or another transaction was in the way: the same may succeed a moment later."""
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    number = error.orig.args[0] if error.orig is not None and error.orig.args else None
    if isinstance(number, int):
        return number in {1205, 1213, 1020, 1040, 1053, 1927, 2002, 2003, 2006, 2013}
    if state is not None:
        return state.startswith("08") or state in {
            "40001",
            "40P01",
            "55P03",
            "57P01",
            "57P02",
            "57P03",
            "53300",
        }
    # A connection that psycopg never got has no state; SQLite has none at all.
    return "is locked" in str(error.orig) or "connection failed" in str(error.orig)


def missing_table(error: DBAPIError) -> bool:
    """Whether the database says that there is no such table."""
    state = getattr(error.orig, "sqlstate", None)
    code = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return state == "42P01" or code == 1146 or "no such table" in str(error.orig)


LACKS: Final = "The role lacks a privilege on the ledger's tables: `safedelete render grants FILE` writes what each role needs."
NO_APPROVER: Final = (
    "Approve as a role that may: `safedelete render grants FILE` writes an approver's. Do not give this right to the role "
    "that runs purges: it could approve its own."
)
"""Not :data:`LACKS`: whoever reads that at the runner's prompt gives the runner the one right that it must not have."""


@contextmanager
def told(what: str, refused: str = LACKS) -> Iterator[None]:
    """Turn a database's error into a LedgerError that says what could not be done.

    Args:
        what: What was to be done.
        refused: What to do where the role may not.
    """
    try:
        yield
    except IntegrityError as error:
        raise LedgerError(
            f"The ledger could not {what}: {first_line(error)}.",
            hint="Another process may have written the same row; look at it with `safedelete history FILE`.",
        ) from error
    except SQLAlchemyError as error:
        if passing(error):
            raise LedgerUnreachedError(
                f"The ledger could not {what}: {first_line(error)}.",
                hint=AGAIN,
            ) from error
        hint = (
            refused
            if denied(error)
            else "Check that the ledger's database answers, and its URL (SAFEDELETE_LEDGER_URL, SAFEDELETE_DATABASE_URL)."
        )
        raise LedgerError(f"The ledger could not {what}: {first_line(error)}.", hint=hint) from error
