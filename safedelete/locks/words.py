"""A database's own words, for what is said of a lock."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError


def words(error: SQLAlchemyError) -> str:
    """Return the first line of what the database said, without statement and links."""
    return (str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__])[0]
