"""A database's failures in the ledger's words, and how instants are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from safedelete.errors import LedgerError


def instant(value: datetime) -> str:
    """Write an instant as the ledger stores it: ISO 8601, UTC, microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def first_line(error: BaseException) -> str:
    """Return the database's own words, without SQLAlchemy's statement and parameters."""
    source = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(source).strip().splitlines() or [type(source).__name__])[0]


def denied(error: SQLAlchemyError) -> bool:
    """Whether the database refused for want of a privilege, or because it is read-only."""
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None)
    if state is not None:
        return state in {"42501", "25006"}
    code = original.args[0] if original is not None and original.args else None
    if isinstance(code, int):
        return code in {1142, 1143, 1227, 1290, 1044}
    return "readonly" in str(original) or "read-only" in str(original)


def missing_table(error: DBAPIError) -> bool:
    """Whether the database says that there is no such table."""
    state = getattr(error.orig, "sqlstate", None)
    code = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return state == "42P01" or code == 1146 or "no such table" in str(error.orig)


@contextmanager
def told(what: str) -> Iterator[None]:
    """Turn a database's error into a LedgerError that says what could not be done."""
    try:
        yield
    except IntegrityError as error:
        raise LedgerError(
            f"The ledger could not {what}: {first_line(error)}.",
            hint="Another process may have written the same row; look at it with `safedelete history FILE`.",
        ) from error
    except SQLAlchemyError as error:
        hint = (
            "The role lacks a privilege on the ledger's tables."
            if denied(error)
            else "Check that the ledger's database answers, and its URL (SAFEDELETE_LEDGER_URL, SAFEDELETE_DATABASE_URL)."
        )
        raise LedgerError(f"The ledger could not {what}: {first_line(error)}.", hint=hint) from error
