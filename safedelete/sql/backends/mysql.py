"""MariaDB and MySQL, through PyMySQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Engine, text

from safedelete.sql.backends.base import Backend, Timeouts, milliseconds
from safedelete.sql.failures import Cause, Failure, code, words

_ROW_ERRORS: Final = frozenset({"1644", "1048", "1062", "4025", "3819", "1406", "1364"})
_REFERENCED: Final = frozenset({"1451", "1217", "1452", "1216"})
_LOCKED: Final = frozenset({"1205", "3572"})
"""A deadlock (1213) is not among them: it rolls the whole transaction back, savepoints and held rows included."""
# Beside the limits, what our statements need whatever the server's defaults or its init_connect say: without foreign keys
# children would be orphaned without a word, and under a limit of rows an answer would be cut short.
_READING: Final = text(
    "SET SESSION time_zone = '+00:00', sql_select_limit = 18446744073709551615,"
    " lock_wait_timeout = :lock, max_execution_time = :statement"
)
_READING_MARIADB: Final = text(
    "SET SESSION time_zone = '+00:00', sql_select_limit = 18446744073709551615,"
    " lock_wait_timeout = :lock, max_statement_time = :statement"
)
_BATCH: Final = text(
    "SET SESSION time_zone = '+00:00', sql_select_limit = 18446744073709551615, foreign_key_checks = 1, sql_safe_updates = 0,"
    " innodb_lock_wait_timeout = :lock, lock_wait_timeout = :lock"
)
_BATCH_MARIADB: Final = text(
    "SET SESSION time_zone = '+00:00', sql_select_limit = 18446744073709551615, foreign_key_checks = 1, sql_safe_updates = 0,"
    " innodb_lock_wait_timeout = :lock, lock_wait_timeout = :lock, max_statement_time = :statement,"
    " idle_transaction_timeout = :idle"
)


class MySQL(Backend):
    """MariaDB 10.6 and later, MySQL 8.0 and later."""

    name = "mysql"

    def begin_reading(self, connection: Connection, timeouts: Timeouts) -> None:
        """The server opens a transaction at its first statement; these, before it, bound it and make it read-only.

        The limits are the session's, which may have been a batch's before and had that one's.
        """
        limits = {"lock": _seconds(timeouts.read), "statement": timeouts.read.total_seconds()}
        if _is_mariadb(connection):
            connection.execute(_READING_MARIADB, limits)
        else:
            connection.execute(_READING, limits | {"statement": milliseconds(timeouts.read)})
        connection.execute(text("SET TRANSACTION READ ONLY"))

    def begin_batch(self, connection: Connection, timeouts: Timeouts) -> None:
        """One round trip for all settings. They are the session's; the connection is ours alone."""
        limits: dict[str, float] = {"lock": _seconds(timeouts.lock)}
        if not _is_mariadb(connection):
            connection.execute(_BATCH, limits)
            return
        limits |= {"statement": timeouts.statement.total_seconds(), "idle": _seconds(timeouts.idle)}
        connection.execute(_BATCH_MARIADB, limits)

    def short_locks(self, connection: Connection, timeouts: Timeouts) -> None:
        """A second is the shortest there is."""
        del timeouts
        connection.execute(text("SET SESSION innodb_lock_wait_timeout = 1"))

    def alive(self, connection: Connection) -> Sequence[Any]:
        """The connection's number, and on MariaDB whether its transaction is still open."""
        open_ = ", @@in_transaction" if _is_mariadb(connection) else ""
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
        # HA_ERR_FK_DEPTH_EXCEEDED: InnoDB follows cascades for 15 levels.
        if number in _REFERENCED or (number in ("1030", "1296") and "error 193 " in said):
            return Failure(Cause.REFERENCED, number, said)
        if number in _LOCKED:
            return Failure(Cause.LOCKED, number, said)
        return Failure(Cause.REFUSED if number in _ROW_ERRORS else Cause.OTHER, number, said)


def _is_mariadb(connection: Connection) -> bool:
    return bool(getattr(connection.dialect, "is_mariadb", False))


def _seconds(time: timedelta) -> int:
    """Return whole seconds, at least 1: 0 would mean "at once" or "no limit"."""
    return max(1, round(time.total_seconds()))
