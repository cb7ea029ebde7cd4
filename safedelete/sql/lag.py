"""How far replicas are behind. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import text

from safedelete.errors import ConfigError, StoreError
from safedelete.sql.engine import Database
from safedelete.sql.failures import translated

_SENDERS: Final = text(
    "SELECT coalesce(nullif(application_name, ''), client_addr::text, pid::text), state,"
    " CASE WHEN replay_lsn >= pg_current_wal_flush_lsn() THEN 0 ELSE extract(epoch FROM replay_lag) END,"
    " pg_current_wal_flush_lsn() - replay_lsn"
    " FROM pg_stat_replication WHERE application_name <> 'pg_basebackup' ORDER BY 1"
)


class ReplicationLag:
    """Says why to pause while a replica is further behind than it may be.

    PostgreSQL's primary knows its replicas. MariaDB and MySQL are asked themselves, one connection each.

    Args:
        database: The purged database.
        most: Longest lag that is no reason to pause.
        replicas: MariaDB's and MySQL's replicas.

    Raises:
        ConfigError: The database has no replicas that could be asked, or they were not named.
    """

    def __init__(self, database: Database, most: timedelta, replicas: Sequence[Database] = ()) -> None:
        kind = database.backend.name
        if kind == "sqlite":
            raise ConfigError(
                f"max_replication_lag={most}: {database.name} is SQLite, which has no replicas.",
                hint="Leave it out.",
            )
        if kind == "mysql" and not replicas:
            raise ConfigError(
                f"max_replication_lag={most}: a primary of MariaDB or MySQL does not know how far its replicas are.",
                hint="Name them: replicas=[URL, ...]; the account there needs REPLICA MONITOR (MySQL: REPLICATION CLIENT).",
            )
        self._database = database
        self._most = most
        self._replicas = tuple(replicas)
        self._ask: Callable[[], str | None] = (
            self._ask_primary if kind == "postgresql" else self._ask_replicas
        )

    def __call__(self) -> str | None:
        """Return the reason to pause, or None. Reads only.

        Raises:
            StoreError: It cannot be told.
        """
        return self._ask()

    def _ask_primary(self) -> str | None:
        with (
            self._database.connected() as connection,
            translated("asking how far the replicas are"),
            self._database.reading(connection),
        ):
            found = connection.execute(_SENDERS).all()
        if not found:
            raise StoreError(
                f"No replica is connected to {self._database.name}, so nobody can say how far behind one is.",
                hint="Look at pg_stat_replication. Leave max_replication_lag out where there is no replica.",
            )
        for name, state, seconds, behind in found:
            if state is None:
                raise StoreError(
                    f"The role {self._database.caller} may not see how far the replica {name} is.",
                    hint=f"GRANT pg_read_all_stats TO {self._database.caller};",
                )
            if seconds is None:
                return f"the replica {name} ({state}) is {behind or 'an unknown number of'} bytes behind, for a time nobody knows"
            if seconds > self._most.total_seconds():
                return f"the replica {name} is {float(seconds):.1f} s behind; max_replication_lag is {self._most}"
        return None

    def _ask_replicas(self) -> str | None:
        for replica in self._replicas:
            with (
                replica.connected() as connection,
                translated(f"asking {replica.name} how far it is"),
                replica.reading(connection),
            ):
                maria = getattr(connection.dialect, "is_mariadb", False)
                statement = "SHOW ALL SLAVES STATUS" if maria else "SHOW REPLICA STATUS"
                found = [dict(row._mapping) for row in connection.execute(text(statement))]  # noqa: SLF001 - SQLAlchemy's own name
            if not found:
                raise StoreError(
                    f"{replica.name} is no replica.", hint="Correct replicas=, or start its replication."
                )
            for status in found:
                seconds: Any = status.get("Seconds_Behind_Master", status.get("Seconds_Behind_Source"))
                if seconds is None:
                    why = status.get("Last_SQL_Error") or status.get("Last_IO_Error") or "it is not running"
                    return f"the replication of {replica.name} stands still ({why})"
                if seconds > self._most.total_seconds():
                    return f"the replica {replica.name} is {seconds} s behind; max_replication_lag is {self._most}"
        return None
