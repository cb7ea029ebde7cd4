"""MariaDB and MySQL, through PyMySQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, text

from safedelete.sql.backends.base import Backend, Timeouts, milliseconds
from safedelete.sql.failures import Cause, Failure, code, words

_ROW_ERRORS: Final = frozenset({"1644", "1048", "1062", "4025", "3819", "1406", "1364"})
_REFERENCED: Final = frozenset({"1451", "1217", "1452", "1216"})
_LOCKED: Final = frozenset({"1205", "3572"})
"""A deadlock (1213) is not among them: it rolls the whole transaction back, savepoints and held rows included."""
_ALWAYS: Final = f"time_zone = '+00:00', foreign_key_checks = 1, sql_select_limit = {2**64 - 1}"
"""Where the server, or its init_connect, says otherwise: rows would be orphaned without a word, and answers cut short."""


class MySQL(Backend):
    """MariaDB 10.6 and later, MySQL 8.0 and later."""

    name = "mysql"

    def begin_reading(self, connection: Connection, timeouts: Timeouts) -> None:
        """The server opens a transaction at its first statement; these, before it, bound it and make it read-only.

        The limits are the session's, which may have been a batch's before and had that one's.
        """
        seconds = timeouts.read.total_seconds()
        maria = getattr(connection.dialect, "is_mariadb", False)
        limit = (
            {"max_statement_time": seconds} if maria else {"max_execution_time": milliseconds(timeouts.read)}
        )
        _set(connection, **limit, lock_wait_timeout=max(1, round(seconds)))
        connection.execute(text("SET TRANSACTION READ ONLY"))

    def begin_batch(self, connection: Connection, timeouts: Timeouts) -> None:
        """One round trip for all settings. They are the session's; the connection is ours alone."""
        lock = max(1, round(timeouts.lock.total_seconds()))
        limits: dict[str, float] = {"innodb_lock_wait_timeout": lock, "lock_wait_timeout": lock}
        if getattr(connection.dialect, "is_mariadb", False):
            limits["max_statement_time"] = timeouts.statement.total_seconds()
            limits["idle_transaction_timeout"] = max(1, round(timeouts.idle.total_seconds()))
        _set(connection, **limits)

    def short_locks(self, connection: Connection, timeouts: Timeouts) -> None:
        """A second is the shortest there is."""
        del timeouts
        connection.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))

    def alive(self, connection: Connection) -> Sequence[Any]:
        """The connection's number, and on MariaDB whether its transaction is still open."""
        open_ = ", @@in_transaction" if getattr(connection.dialect, "is_mariadb", False) else ""
        return tuple(connection.execute(text(f"SELECT CONNECTION_ID(){open_}")).one())

    def now(self, connection: Connection) -> datetime:
        """The server's clock."""
        now: datetime = connection.execute(text("SELECT UTC_TIMESTAMP(6)")).scalar_one()
        return now.replace(tzinfo=UTC)

    def identity(self, connection: Connection) -> str:
        """The server's own id where it has one, else what it calls itself, with the schema."""
        wanted = text(
            "SHOW GLOBAL VARIABLES WHERE variable_name IN"
            " ('server_uuid', 'server_uid', 'hostname', 'port', 'datadir')"
        )
        names: dict[str, Any] = {name: value for name, value in connection.execute(wanted)}  # noqa: C416 - rows, not pairs
        server = names.get("server_uuid") or names.get("server_uid")
        if not server:
            server = ":".join(str(names.get(part, "")) for part in ("hostname", "port", "datadir"))
        schema = connection.execute(text("SELECT DATABASE()")).scalar_one()
        return f"mysql:{server}:{schema}"

    def caller(self, connection: Connection) -> str:
        """``CURRENT_USER()``: the account that privileges are held by."""
        return str(connection.execute(text("SELECT CURRENT_USER()")).scalar_one())

    def cancel(self, driver_connection: Any, engine: Engine) -> None:
        """KILL QUERY from a second connection."""
        with engine.connect() as second:
            second.execute(text("KILL QUERY :id"), {"id": driver_connection.thread_id()})

    def failure(self, error: BaseException) -> Failure:
        """By the server's error number."""
        number, said = code(error), words(error)
        if number in _REFERENCED:
            return Failure(Cause.REFERENCED, number, said)
        if number in _LOCKED:
            return Failure(Cause.LOCKED, number, said)
        return Failure(Cause.REFUSED if number in _ROW_ERRORS else Cause.OTHER, number, said)


def _set(connection: Connection, **values: float) -> None:
    """Set session variables by one statement, beside those that our statements need whatever the server's defaults are."""
    named = "".join(f", {name} = :{name}" for name in values)
    connection.execute(text(f"SET SESSION {_ALWAYS}{named}"), values)
