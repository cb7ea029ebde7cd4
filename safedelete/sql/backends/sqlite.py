"""SQLite, through the standard library's driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from safedelete.errors import StoreError
from safedelete.sql.backends.base import Backend, Timeouts, milliseconds
from safedelete.sql.failures import Cause, Failure, code, words

BEGIN = "safedelete_begin"
"""Execution option: the statement that opens a transaction."""

WAL_PAGES = 10_000
"""Pages in the write-ahead log before a batch copies them back: 40 MB. Deleting rewrites the same index pages again and
again, and with the usual 1,000 each batch would copy them once more. Without a WAL it means nothing."""

_WAS_READ_ONLY = "safedelete_was_read_only"


def driver(connection: Connection) -> Any:
    """Return the standard library's connection."""
    return connection.connection.driver_connection


class SQLite(Backend):
    """SQLite 3.31 and later."""

    name = "sqlite"
    locks_rows = False

    def prepare_engine(self, engine: Engine) -> None:
        """Open transactions ourselves, and switch foreign keys on, which SQLite leaves off.

        The driver would open a transaction late, at the first write, and never an immediate one. The journal mode is
        the application's business and stays untouched.
        """

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: Any) -> None:
            if hasattr(connection, "autocommit"):
                connection.autocommit = (
                    -1
                )  # sqlite3.LEGACY_TRANSACTION_CONTROL, where isolation_level decides
            connection.isolation_level = None
            connection.execute("PRAGMA foreign_keys=ON")
            if connection.execute("PRAGMA foreign_keys").fetchone() != (1,):
                raise StoreError(
                    "SQLite keeps foreign_keys off on this connection, so deleting a row would orphan its children.",
                    hint="Use a SQLite library that was built with foreign keys.",
                )

        @event.listens_for(engine, "begin")
        def begun(connection: Connection) -> None:
            connection.exec_driver_sql(connection.get_execution_options().get(BEGIN, "BEGIN"))

    def begin_reading(self, connection: Connection, timeouts: Timeouts) -> None:
        """Let the connection refuse every write; how long a statement may take cannot be said."""
        del timeouts
        connection.info[_WAS_READ_ONLY] = connection.execute(text("PRAGMA query_only")).scalar_one()
        connection.execute(text("PRAGMA query_only=ON"))

    def end_reading(self, connection: Connection) -> None:
        """Allow writes again, where they were allowed before."""
        if not connection.info.pop(_WAS_READ_ONLY, 0):
            driver(connection).execute("PRAGMA query_only=OFF")

    def begin_batch(self, connection: Connection, timeouts: Timeouts) -> None:
        """The waiting was done by BEGIN IMMEDIATE; nothing else can be in the way afterwards."""

    @staticmethod
    def wait(connection: Connection, timeouts: Timeouts) -> None:
        """Wait this long for another writer before BEGIN IMMEDIATE gives up, and let the WAL grow over some batches."""
        wait = milliseconds(timeouts.lock)
        driver(connection).execute(f"PRAGMA busy_timeout={wait:d}")
        driver(connection).execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES:d}").fetchone()

    def changes(self, connection: Connection) -> int | None:
        """The connection's own counter, which includes cascades and triggers."""
        return int(driver(connection).total_changes)

    def alive(self, connection: Connection) -> Sequence[Any]:
        """One query, and the driver's word that the transaction is open."""
        connection.execute(text("SELECT 1"))
        return (self.in_transaction(connection),)

    def in_transaction(self, connection: Connection) -> bool:
        """By the driver: RAISE(ROLLBACK) in a trigger ends a transaction behind SQLAlchemy's back."""
        return bool(driver(connection).in_transaction)

    def now(self, connection: Connection) -> datetime:
        """The host's own clock."""
        return datetime.fromisoformat(
            connection.execute(text("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')")).scalar_one()
        )

    def identity(self, connection: Connection) -> str:
        """The file's resolved path: a copy is another file."""
        for _, schema, file in connection.execute(text("PRAGMA database_list")):
            if schema == "main" and file:
                return f"sqlite:{Path(file).resolve()}"
        raise StoreError(
            "An in-memory SQLite database has no identity, and no second connection can see it.",
            hint="Use a file.",
        )

    def caller(self, connection: Connection) -> str:
        """SQLite knows no roles."""
        del connection
        return ""

    def cancel(self, driver_connection: Any, engine: Engine) -> None:
        """Interrupt whatever the connection is running."""
        del engine
        driver_connection.interrupt()

    def failure(self, error: BaseException) -> Failure:
        """By the extended result's name."""
        name, said = code(error), words(error)
        if name == "SQLITE_CONSTRAINT_FOREIGNKEY":
            return Failure(Cause.REFERENCED, name, said)
        if name.startswith("SQLITE_CONSTRAINT"):
            # RESTRICT is implemented as a trigger and says so in its code, with the foreign key's words.
            cause = Cause.REFERENCED if "FOREIGN KEY" in said else Cause.REFUSED
            return Failure(cause, name, said)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return Failure(Cause.LOCKED, name, said)
        return Failure(Cause.OTHER, name, said)
