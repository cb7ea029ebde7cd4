"""PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, event, func, literal_column, select, text
from sqlalchemy.exc import DBAPIError

from safedelete.sql.backends.base import Backend, TableName, Timeouts, milliseconds
from safedelete.sql.failures import Cause, Failure, code, words

_TOUCHED: Final = text(
    """
    SELECT n.nspname, r.relname, sum(s.touched)::bigint
    FROM (SELECT relid, n_tup_ins + n_tup_upd + n_tup_del AS touched FROM pg_stat_xact_user_tables) AS s
    JOIN pg_class AS r ON r.oid = coalesce(pg_partition_root(s.relid), s.relid)
    JOIN pg_namespace AS n ON n.oid = r.relnamespace
    WHERE s.touched > 0
    GROUP BY 1, 2
    """
)
_IDLE: Final = text(
    "SELECT n.nspname, c.relname, k.conname FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid"
    " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE k.contype = 'f' AND k.conparentid <> 0"
)
_IDLE_18: Final = text(
    "SELECT n.nspname, c.relname, k.conname FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid"
    " JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE k.contype = 'f' AND (k.conparentid <> 0 OR NOT k.conenforced)"
)
_LOCAL: Final = True
"""set_config's "for this transaction only"."""
_ROW_ERRORS: Final = ("23", "P0", "27", "44", "22")
"""SQLSTATE classes that one row's constraint or trigger raises."""


class Postgres(Backend):
    """PostgreSQL 13 and later, through psycopg 3."""

    name = "postgresql"
    lock_of_table = True
    names_touched = True

    def prepare_engine(self, engine: Engine) -> None:
        """Keep batch statements unprepared.

        After its fifth execution psycopg prepares a statement, and the server's generic plan then takes whichever index
        suits an unknown cutoff: a batch's time grows several-fold.
        """

        @event.listens_for(engine, "connect")
        def connected(connection: Any, _: Any) -> None:
            if hasattr(connection, "prepare_threshold"):
                connection.prepare_threshold = None

    def begin_reading(self, connection: Connection, timeouts: Timeouts) -> None:
        """One round trip: read only, for a bounded time, and row security raises."""
        connection.execute(
            select(
                func.set_config("transaction_read_only", "on", _LOCAL),
                func.set_config("row_security", "off", _LOCAL),
                # A naive cutoff is UTC, whatever zone the session has.
                func.set_config("TimeZone", "UTC", _LOCAL),
                func.set_config("statement_timeout", str(milliseconds(timeouts.read)), _LOCAL),
            )
        )

    def begin_batch(self, connection: Connection, timeouts: Timeouts) -> None:
        """One round trip for all settings, each for this transaction alone."""
        settings = {
            "statement_timeout": str(milliseconds(timeouts.statement)),
            "lock_timeout": str(milliseconds(timeouts.lock)),
            "idle_in_transaction_session_timeout": str(milliseconds(timeouts.idle)),
            "row_security": "off",
            "TimeZone": "UTC",
        }
        connection.execute(
            select(*(func.set_config(name, value, _LOCAL) for name, value in settings.items()))
        )

    def short_locks(self, connection: Connection, timeouts: Timeouts) -> None:
        """Wait a tenth of a second at most."""
        wait = min(100, milliseconds(timeouts.lock))
        connection.execute(select(func.set_config("lock_timeout", str(wait), _LOCAL)))

    def may_lock(self, connection: Connection, table: Table) -> bool:
        """FOR UPDATE wants the UPDATE privilege on at least one column."""
        answer = connection.execute(
            select(func.has_any_column_privilege(quoted(connection, table), "UPDATE"))
        )
        return bool(answer.scalar_one())

    def check_constraints(self, connection: Connection) -> None:
        """For the rest of the transaction, or until the savepoint goes back."""
        connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))

    def touched(self, connection: Connection) -> Mapping[TableName, int] | None:
        """Ask the transaction's own statistics; None where they are switched off."""
        rows = connection.execute(_TOUCHED).all()
        if not rows and connection.execute(select(func.current_setting("track_counts"))).scalar_one() != "on":
            return None
        return {(schema, name): int(n) for schema, name, n in rows}

    def alive(self, connection: Connection) -> Sequence[Any]:
        """The server process, and the transaction's id once it has one."""
        row = connection.execute(select(func.pg_backend_pid(), func.txid_current_if_assigned())).one()
        return tuple(row)

    def now(self, connection: Connection) -> datetime:
        """The server's clock, not the transaction's start."""
        now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
        return now.astimezone(UTC)

    def identity(self, connection: Connection) -> str:
        """The cluster's own number, the database's oid and its name.

        A dump restored anywhere differs in the number, the oid or the name. A physical copy (a snapshot, a base
        backup) has all three alike; the environment's name in the ledger is what tells those apart.
        """
        oid, name = connection.execute(
            text("SELECT oid, datname FROM pg_database WHERE datname = current_database()")
        ).one()
        try:
            with connection.begin_nested():
                cluster = connection.execute(
                    text("SELECT system_identifier FROM pg_control_system()")
                ).scalar_one()
        except DBAPIError as error:
            if error.connection_invalidated or code(error) not in {"42501", "42883"}:
                raise
            cluster = "undisclosed"
        return f"postgresql:{cluster}:{oid}:{name}"

    def caller(self, connection: Connection) -> str:
        """``current_user``."""
        return str(connection.execute(select(literal_column("current_user"))).scalar_one())

    def cancel(self, driver_connection: Any, engine: Engine) -> None:
        """Through the driver, which opens a connection of its own for it."""
        del engine
        if hasattr(driver_connection, "cancel_safe"):
            driver_connection.cancel_safe(timeout=5)
        else:
            driver_connection.cancel()

    def failure(self, error: BaseException) -> Failure:
        """By SQLSTATE."""
        state, said = code(error), words(error)
        if state in {"23503", "23001"}:
            return Failure(Cause.REFERENCED, state, said)
        if state in {"55P03", "40P01", "40001"}:
            return Failure(Cause.LOCKED, state, said)
        if state == "0A000":
            return Failure(Cause.EATEN, state, said)
        ours = len(state) == 5 and (state.startswith(_ROW_ERRORS) or state[0] in "3456789IJKLMNOPQRSTUVW")
        known_whole = state[:2] in {"34", "38", "39", "40", "42", "53", "54", "55", "57", "58"}
        return Failure(Cause.REFUSED if ours and not known_whole else Cause.OTHER, state, said)


def quoted(connection: Connection, table: Table) -> str:
    """Return a table's name as the server's functions take it: quoted, with its schema where it has one."""
    return str(connection.dialect.identifier_preparer.format_table(table))


def has_unenforced(connection: Connection) -> bool:
    """Whether the server has foreign keys that it does not enforce: PostgreSQL, since 18."""
    version = connection.dialect.server_version_info or (0,)
    return connection.dialect.name == "postgresql" and version >= (18,)


def idle_keys(connection: Connection) -> frozenset[tuple[str, str, str]]:
    """Name foreign keys, by schema and table, that do nothing of their own. Reads only.

    They are written down only (NOT ENFORCED), or are the part of one that references a whole table for one of its partitions.
    """
    if connection.dialect.name != "postgresql":
        return frozenset()
    statement = _IDLE_18 if has_unenforced(connection) else _IDLE
    return frozenset((schema, table, name) for schema, table, name in connection.execute(statement))


def partition_roots(connection: Connection) -> Mapping[TableName, TableName]:
    """Return the whole table of each partition. Reads only."""
    if connection.dialect.name != "postgresql":
        return {}
    statement = text(
        "SELECT n.nspname, c.relname, m.nspname, r.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " JOIN pg_class AS r ON r.oid = pg_partition_root(c.oid) JOIN pg_namespace AS m ON m.oid = r.relnamespace"
        " WHERE c.relispartition AND c.relkind IN ('r', 'p')"
    )
    return {(space, name): (where, root) for space, name, where, root in connection.execute(statement)}
