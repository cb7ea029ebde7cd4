"""Prove that what rows name can be read, all of it and as it is now, by methods that change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from safedelete.core.item import ObjectRef
from safedelete.errors import StoreError
from safedelete.ports import Proof, Verdict
from safedelete.sql.failures import code, words
from safedelete.sql.lint import NEVER
from safedelete.sql.referenced import Column, SqlReferences

_DENIED: Final = frozenset({"42501", "1142", "1143", "1044"})

_REPLICA: Final = {
    "postgresql": "SELECT pg_is_in_recovery()",
    "mysql": "SELECT @@global.read_only",
}


class ReferenceProber:
    """``Prober`` for the referencing columns of one target. Writes no data."""

    def __init__(self, references: SqlReferences) -> None:
        self._references = references
        self._database = references.database

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove SELECT on each referencing table, and that the server is no replica, which may not know a row yet.

        Args:
            as_of: Not used; permissions do not depend on the plan's instant.
            sample: Not used.
        """
        del as_of, sample
        return [*self._tables(), *self._primary()]

    def _tables(self) -> Iterator[Proof]:
        proven: set[str] = set()
        for column in self._references.columns:
            subject = f"SELECT on {column.table} ({column.name})"
            if subject not in proven:
                proven.add(subject)
                yield self._select(column, subject)

    def _select(self, column: Column, subject: str) -> Proof:
        try:
            with self._database.reading() as connection:
                # With row security off, a policy that would hide rows is an error: a hidden row names nothing.
                connection.execute(select(column.bytes).where(column.under(""), NEVER)).all()
        except SQLAlchemyError as error:
            self._database.raise_if_cancelled(error, f"proving {subject}")
            denied = code(error) in _DENIED
            remedy = f"GRANT SELECT ON {column.table} TO {self._database.caller};" if denied else ""
            return Proof(subject, Verdict.DENIED if denied else Verdict.UNKNOWN, words(error), remedy)
        except StoreError as error:
            return Proof(subject, Verdict.UNKNOWN, str(error), error.hint)
        return Proof(subject, Verdict.ALLOWED)

    def _primary(self) -> Iterator[Proof]:
        question = _REPLICA.get(self._database.backend.name)
        if question is None:
            return
        subject = f"primary server of {self._database.name}"
        try:
            with self._database.reading() as connection:
                answer: Any = connection.execute(text(question)).scalar_one()
        except SQLAlchemyError as error:
            yield Proof(subject, Verdict.UNKNOWN, words(error))
        except StoreError as error:
            yield Proof(subject, Verdict.UNKNOWN, str(error), error.hint)
        else:
            if answer:
                why = "this is a replica, which may not know yet that a row names an object"
                yield Proof(subject, Verdict.DENIED, why, "Connect to the primary.")
            else:
                yield Proof(subject, Verdict.ALLOWED)
