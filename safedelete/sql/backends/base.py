"""What the row side asks of a server, with answers that hold where a server has nothing special."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, Table

from safedelete.sql.failures import Failure

TableName = tuple[str | None, str]
"""Schema (None for the connection's own) and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long a batch may wait for the database, or make the database wait, and how long a count may take.

    Attributes:
        read: One statement that only reads: a count of a plan, a page of a scan. PostgreSQL, MariaDB and MySQL end it;
            SQLite has no such limit.
        statement: One statement of a batch.
        lock: One lock. Rows are never waited for, so this is for tables, and for children of a foreign key.
        idle: The open transaction while the object store works; must be below the lease's time to live.
    """

    read: timedelta = timedelta(minutes=10)
    statement: timedelta = timedelta(seconds=30)
    lock: timedelta = timedelta(seconds=2)
    idle: timedelta = timedelta(seconds=45)


def milliseconds(time: timedelta) -> int:
    """Return whole milliseconds, at least 1: 0 would mean "no limit" to a server."""
    return max(1, round(time.total_seconds() * 1000))


class Backend(ABC):
    """One kind of server. Methods that are given a connection are called inside a transaction."""

    name: str = ""
    locks_rows: bool = True
    """Whether SELECT ... FOR UPDATE exists; else the transaction itself excludes every other writer."""
    lock_of_table: bool = False
    """Whether FOR UPDATE may name the table it means."""
    returning: bool = True
    """Whether DELETE … RETURNING may be used where the dialect has it."""
    names_touched: bool = False
    """Whether the server itself says which tables a transaction touched."""

    @property
    def counts_first(self) -> bool:
        """Whether what foreign keys take is counted before a delete while other writers go on: nobody says it afterwards."""
        return self.locks_rows and not self.names_touched

    def prepare_engine(self, engine: Engine) -> None:
        """Attach what every new connection of ours needs."""

    def begin_reading(self, connection: Connection, timeouts: Timeouts) -> None:
        """Make the transaction read-only, bound its statements, and let row security raise instead of filtering."""

    def end_reading(self, connection: Connection) -> None:
        """Give the connection back as it was."""

    def begin_batch(self, connection: Connection, timeouts: Timeouts) -> None:
        """Set a batch's timeouts, and let row security raise instead of filtering."""

    def short_locks(self, connection: Connection, timeouts: Timeouts) -> None:
        """Wait for locks only briefly from here on: used once a batch met one, while looking for the rows behind it."""

    def may_lock(self, connection: Connection, table: Table) -> bool:
        """Whether the role may lock rows of a table."""
        del connection, table
        return True

    def check_constraints(self, connection: Connection) -> None:
        """Have deferred constraints checked now."""

    def touched(self, connection: Connection) -> Mapping[TableName, int] | None:
        """Return rows touched so far in this transaction by table, aborted savepoints included; None if unsaid."""
        del connection
        return None

    def returns(self, connection: Connection) -> bool:
        """Whether a DELETE can say which rows it took."""
        return self.returning and bool(connection.dialect.delete_returning)

    @abstractmethod
    def now(self, connection: Connection) -> datetime:
        """Return the database's own clock, aware UTC. Reads only."""

    def changes(self, connection: Connection) -> int | None:
        """Return the number of rows this connection changed so far, triggers and cascades included; None if unsaid."""
        del connection
        return None

    @abstractmethod
    def alive(self, connection: Connection) -> Sequence[Any]:
        """Return what identifies the open transaction; another answer later means that it was lost. Reads only."""

    def in_transaction(self, connection: Connection) -> bool:
        """Whether the driver still has the transaction open; a trigger may have ended it. No I/O."""
        return connection.in_transaction()

    @abstractmethod
    def identity(self, connection: Connection) -> str:
        """Return what tells this database from a copy of it. Reads only."""

    @abstractmethod
    def caller(self, connection: Connection) -> str:
        """Return the role that statements run as. Reads only."""

    @abstractmethod
    def cancel(self, driver_connection: Any, engine: Engine) -> None:
        """Cancel the statement that another thread has in flight on this driver connection."""

    @abstractmethod
    def failure(self, error: BaseException) -> Failure:
        """Say what a failed delete means."""
