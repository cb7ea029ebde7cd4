"""Prove that the lease's table can be used, before a run finds out that it cannot renew."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Executable, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from safedelete.core.item import ObjectRef
from safedelete.ledger.failures import denied, first_line
from safedelete.locks.lease import LeaseLock, table
from safedelete.ports import Proof, Verdict


class LeaseProber:
    """Proves SELECT, INSERT and UPDATE on the lease's table. Implements ``ports.Prober``.

    Taking a lease tries only what it needs that time: the first run of a job inserts, every later one updates.

    Args:
        lock: Where leases are taken.
    """

    def __init__(self, lock: LeaseLock) -> None:
        self._lock = lock

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:  # noqa: ARG002
        """Try each statement on a job that cannot exist, and roll it back. Keeps nothing."""
        job = f"probe {secrets.token_hex(8)}"
        row = {"job": job, "owner": "", "token": 0, "expires_ms": 0, "taken_at": "", "host": "", "pid": 0}
        statements: dict[str, Executable] = {
            "SELECT": select(table.c.token).where(table.c.job == job),
            "INSERT": insert(table).values(row),
            "UPDATE": update(table).where(table.c.job == job).values(token=0),
        }
        return [self._proof(right, statement) for right, statement in statements.items()]

    def _proof(self, right: str, statement: Executable) -> Proof:
        subject = f"{right} on {table.name}"
        try:
            with self._lock.engine.connect() as connection:
                connection.execute(statement)
                connection.rollback()
        except SQLAlchemyError as error:
            refused = denied(error)
            return Proof(
                subject,
                Verdict.DENIED if refused else Verdict.UNKNOWN,
                first_line(error),
                f"GRANT {right} ON {table.name} TO <role>;"
                if refused
                else "The table must exist in the purged database: run `safedelete init FILE`.",
            )
        return Proof(subject, Verdict.ALLOWED)
