"""Prove what the role may do to one target, by methods that change nothing.

The proof is the real statement: the planning SELECT and the batch's DELETE, with the target's own predicate and
``1 = 0`` beside it, in a transaction that is rolled back. What such a statement cannot see (an owner whose cascade would
fail, a trigger that would fire, a replica) is asked of the server's catalog.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, Connection, Integer, MetaData, Table, delete, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateTable

from safedelete.core.item import ObjectRef
from safedelete.errors import ConfigError, SafeDeleteError, StoreError
from safedelete.ports import MOST_SKEW, Proof, Verdict
from safedelete.sql import around, predicate
from safedelete.sql.around import account
from safedelete.sql.boot import proving
from safedelete.sql.cascades import taken_with
from safedelete.sql.catalog import PostgresCatalog
from safedelete.sql.failures import code, words
from safedelete.sql.lint import NEVER
from safedelete.sql.rows import SqlRows

_DENIED: Final = frozenset({"42501", "25006", "1142", "1143", "1044", "1227", "1290", "1792", "1370", "1836"})
_DENIED_SQLITE: Final = ("SQLITE_READONLY", "SQLITE_AUTH", "SQLITE_PERM", "SQLITE_CANTOPEN")

_ENGINE: Final = text(
    "SELECT t.engine, e.transactions FROM information_schema.tables AS t"
    " LEFT JOIN information_schema.engines AS e ON e.engine = t.engine"
    " WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_name = :name"
)


class SqlProber:
    """``Prober`` for one table target. Writes no data.

    Args:
        target: The target.
        now: The clock that cutoffs are computed from.
    """

    def __init__(self, target: SqlRows, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.target = target
        self._now = now

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove each permission the target needs. Idempotent.

        Args:
            as_of: The frozen instant, for the real statements with their predicate.
            sample: Not used: a table's permissions do not depend on which rows go.

        Raises:
            StoreError: The database does not answer.
        """
        del sample
        target = self.target
        readable = self._try(f"SELECT on {target.name}", "SELECT", self._select, as_of)
        if readable.verdict is Verdict.DENIED and target.database.backend.name == "mysql":
            return [
                readable
            ]  # without SELECT the schema hides the columns, which would then seem to be missing
        try:
            target.__dict__.pop("schema", None)
            target.schema.require(target.rows)
        except ConfigError as error:
            return [Proof(f"table {target.name}", Verdict.DENIED, str(error), error.hint)]
        found: list[Proof] = []
        may_run_delete = True
        if target.database.backend.name == "postgresql":
            with target.database.reading() as connection:
                catalog = PostgresCatalog(connection, target)
                found += catalog.proofs()
                may_run_delete = not catalog.fires_on_nothing
        else:
            found += self._around()
        found.append(readable)
        if may_run_delete:
            found.append(self._try(f"DELETE on {target.name}", "DELETE", self._delete, as_of))
        if target.database.backend.counts_first and target.schema.reachable(target.schema.table):
            found.append(self._try(f"counting what references {target.name}", "", self._count, as_of))
        if target.database.backend.name == "sqlite":
            found.append(self._try(f"writing beside {target.database.name}", "", self._create, as_of))
        if target.database.backend.name == "mysql":
            found += [self._read_only(), self._transactional()]
        if target.database.backend.name != "sqlite":
            found.append(self.clock())
        return _merged(found)

    def _try(
        self, subject: str, privilege: str, run: Callable[[Connection, datetime], None], as_of: datetime
    ) -> Proof:
        try:
            connection = self.target.database.connect(immediate=privilege != "SELECT")
        except StoreError as error:
            return Proof(subject, Verdict.UNKNOWN, str(error), error.hint)
        try:
            connection.begin()
            self.target.database.backend.begin_batch(connection, self.target.database.timeouts)
            run(connection, as_of)
        except SQLAlchemyError as error:
            self.target.database.raise_if_cancelled(error, f"proving {subject}")
            return self._failed(subject, privilege, error)
        except SafeDeleteError as error:
            return Proof(subject, Verdict.UNKNOWN, str(error), error.hint)
        finally:
            self.target.database.close(connection)
        return Proof(subject, Verdict.ALLOWED)

    def _around(self) -> list[Proof]:
        subject = f"what stands around {self.target.name}"
        try:
            with self.target.database.reading() as connection:
                return list(around.proofs(connection, self.target))
        except SQLAlchemyError as error:
            self.target.database.raise_if_cancelled(error, f"proving {subject}")
            return [Proof(subject, Verdict.UNKNOWN, words(error))]

    def _failed(self, subject: str, privilege: str, error: SQLAlchemyError) -> Proof:
        found = code(error)
        denied = found in _DENIED or found.startswith(_DENIED_SQLITE)
        return Proof(
            subject,
            Verdict.DENIED if denied else Verdict.UNKNOWN,
            words(error),
            self._remedy(found, privilege),
        )

    def _remedy(self, found: str, privilege: str) -> str:
        target = self.target
        if found.startswith("SQLITE"):
            if found.startswith(_DENIED_SQLITE):
                return (
                    f"Let this process write {target.database.url.database} and its folder, and open it without "
                    "mode=ro, immutable and query_only."
                )
            return "Try again when no other writer holds the database."
        if found in {"25006", "1290", "1792", "1836"}:
            return "Connect to the primary, read-write."
        if found in _DENIED and privilege:
            table = target.database.engine.dialect.identifier_preparer.format_table(target.table)
            caller = target.database.caller
            role = caller if target.database.backend.name == "postgresql" else account(caller)
            return f"GRANT {privilege} ON {table} TO {role};"
        return ""

    def _select(self, connection: Connection, as_of: datetime) -> None:
        target = self.target
        statement = select(*target.keys.selected(), *target.owned.selected()).where(
            target.rows.predicate, NEVER
        )
        connection.execute(statement, predicate.parameters(target.rows, as_of)).all()

    def _delete(self, connection: Connection, as_of: datetime) -> None:
        target = self.target
        values = predicate.parameters(target.rows, as_of)
        backend = target.database.backend
        if backend.locks_rows and backend.may_lock(connection, target.table):
            held = select(*target.keys.selected()).where(target.rows.predicate, NEVER)
            of = target.table if backend.lock_of_table else None
            connection.execute(held.with_for_update(of=of, skip_locked=True), values).all()
            statement = delete(target.table).where(NEVER)  # held rows are deleted by key alone
        elif backend.locks_rows:
            statement = delete(target.table).where(target.rows.predicate, NEVER)
        else:
            statement = delete(target.table).where(NEVER)
        if backend.returns(connection):
            returning = statement.returning(*target.keys.selected(), *target.owned.selected())
            connection.execute(returning, values).all()
        else:
            connection.execute(statement, values)

    def _count(self, connection: Connection, as_of: datetime) -> None:
        # Each batch counts the children of its rows, and locks those that have children of their own.
        del as_of
        taken_with(self.target, connection, ())

    def _create(self, connection: Connection, as_of: datetime) -> None:
        # An unwritable folder shows only when a journal has to be made, so something must be written and taken back.
        del as_of
        with proving():
            connection.execute(CreateTable(Table("_safedelete_probe", MetaData(), Column("x", Integer))))

    def clock(self) -> Proof:
        """Hold the database's clock against the host's: rows were dated by the one and are judged by the other. Reads only."""
        subject = f"clock of {self.target.database.name}"
        before = self._now()
        try:
            there = self.target.database.now()
        except StoreError as error:
            return Proof(subject, Verdict.UNKNOWN, str(error), error.hint)
        after = self._now()
        if before - MOST_SKEW <= there <= after + MOST_SKEW:
            return Proof(subject, Verdict.ALLOWED)
        skew = there - before if there < before else there - after
        return Proof(
            subject,
            Verdict.DENIED,
            f"The database's clock is {abs(skew).total_seconds():,.0f} s {'behind' if there < before else 'ahead of'} this "
            f"host's ({there.isoformat(timespec='seconds')} and {after.isoformat(timespec='seconds')}); a cutoff would be off "
            "by as much.",
            "Set both clocks by NTP.",
        )

    def _transactional(self) -> Proof:
        """A DELETE that cannot be taken back would be done before the first object has gone."""
        target = self.target
        subject = f"transactions on {target.name}"
        schema, name = target.schema.table
        try:
            with target.database.reading() as connection:
                found = connection.execute(_ENGINE, {"schema": schema, "name": name}).one_or_none()
        except SQLAlchemyError as error:
            return Proof(subject, Verdict.UNKNOWN, words(error))
        if found is None:
            return Proof(subject, Verdict.UNKNOWN, "Its storage engine is not known to information_schema.")
        engine, transactional = found
        if transactional == "YES":
            return Proof(subject, Verdict.ALLOWED)
        table = target.database.engine.dialect.identifier_preparer.format_table(target.table)
        return Proof(
            subject,
            Verdict.DENIED,
            f"Its storage engine, {engine}, has no transactions: rows would be gone before their objects are.",
            f"ALTER TABLE {table} ENGINE = InnoDB;",
        )

    def _read_only(self) -> Proof:
        # An administrator's account writes to a read-only server without an error.
        subject = f"read-write server {self.target.database.name}"
        try:
            with self.target.database.reading() as connection:
                answer: Any = connection.execute(text("SELECT @@global.read_only")).scalar_one()
        except SQLAlchemyError as error:
            return Proof(subject, Verdict.UNKNOWN, words(error))
        # A word since MariaDB 12, which has several ways of being read-only.
        if str(answer).upper() not in ("0", "OFF"):
            return Proof(
                subject, Verdict.DENIED, "read_only is on: this is a replica.", "Connect to the primary."
            )
        return Proof(subject, Verdict.ALLOWED)


def _merged(proofs: Sequence[Proof]) -> list[Proof]:
    """Return one proof a subject, the worst of each: the catalog and the statement may speak of the same thing."""
    rank = [Verdict.ADVICE, Verdict.ALLOWED, Verdict.UNKNOWN, Verdict.DENIED]
    best: dict[str, Proof] = {}
    for proof in proofs:
        known = best.get(proof.subject)
        if known is None or rank.index(proof.verdict) > rank.index(known.verdict):
            best[proof.subject] = proof
    return list(best.values())
