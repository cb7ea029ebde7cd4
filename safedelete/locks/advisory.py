"""A session's advisory lock beside the lease: ``pg_try_advisory_lock`` on PostgreSQL, ``GET_LOCK`` on MariaDB and MySQL.

It lives exactly as long as one server session, so it has a connection of its own that carries nothing else. A lost
session is not noticed by a client that does not ask, and a client library that reconnects would hide it: so every proof
asks for the very session that took the lock. The server is told to end the session when nobody has asked for as long
as a lease: a host that was frozen or cut off does not keep the next run out for ever.

Behind a pooler that hands each transaction to another session such a lock excludes nobody and outlives its taker. That
is found out before it is taken, and refused.
"""

from __future__ import annotations

import hashlib
import math
import re
from contextlib import suppress
from datetime import UTC
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from safedelete.errors import ConfigError, LockHeldError, StoreError
from safedelete.locks.watched import SilentError, WatchedHold
from safedelete.locks.words import words
from safedelete.ports import Clock

NAME: Final = re.compile(r"safedelete (\d+) (\S+Z) (.+)")
"""How a session on PostgreSQL says whose it is: pid, since when, host. 63 bytes at most, visible to every role."""


class AdvisoryLock:
    """Takes advisory locks on one database. Implements ``ports.SecondLock``.

    Args:
        engine: The database.
        clock: For the holder's own deadline.
        seconds: How long the lock may go without being proven.
        host: Name of this host.
        pid: Id of this process.

    Raises:
        ConfigError: The database has no advisory locks.
    """

    def __init__(self, engine: Engine, *, clock: Clock, seconds: float, host: str, pid: int) -> None:
        if engine.dialect.name not in DIALECTS:
            raise ConfigError(
                f'lock="advisory" needs PostgreSQL, MariaDB or MySQL; {engine.dialect.name} has no advisory locks.',
                hint='Ask for "lease", which works on every database; for a lock beside it, "redis".',
            )
        self._engine = engine
        self._dialect = DIALECTS[engine.dialect.name]
        self._clock = clock
        self._seconds = seconds
        self._host = host
        self._pid = pid

    def acquire(self, job: str, *, owner: str) -> WatchedHold:  # noqa: ARG002
        """Take the job's lock in a session of its own."""
        asked = self._clock.uptime()
        try:
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        except SQLAlchemyError as error:
            raise _unanswered(job, error) from error
        try:
            # Out of the pool for good: a session that comes back from it must not hold a lock.
            connection.detach()
            session = self._sessions(connection, job)
            since = self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._dialect.prepare(connection, f"safedelete {self._pid} {since} {self._host}", self._seconds)
            if not self._dialect.take(connection, job):
                raise self._held(connection, job)
        except SQLAlchemyError as error:
            connection.close()
            raise _unanswered(job, error) from error
        except BaseException:
            connection.close()
            raise
        keeper = SessionKeeper(connection, self._dialect, job, session)
        return WatchedHold(
            job, "advisory lock", keeper, clock=self._clock, seconds=self._seconds, asked=asked
        )

    def _sessions(self, connection: Connection, job: str) -> int:
        """Return the server session behind a connection, once it is sure to be one and the same."""
        seen = {self._dialect.session(connection) for _ in range(3)}
        told = self._dialect.told(connection.connection.dbapi_connection)
        if len(seen) > 1 or (told is not None and seen != {told}):
            raise ConfigError(
                f'{job}: lock="advisory" cannot work here: a connection pooler stands between us and the database '
                f"(the connection was given session {told}, statements run in {', '.join(map(str, sorted(seen)))}).",
                hint="A pooler that shares sessions between clients grants such a lock to several of them, and keeps it "
                "when they are gone. Connect to the server itself, or leave lock= out: the lease works through poolers.",
            )
        return seen.pop()

    def _held(self, connection: Connection, job: str) -> LockHeldError:
        found = self._dialect.holder(connection, job)
        named = NAME.fullmatch(found)
        hint = "Another run is working. If its process is dead, the server frees the lock when it notices."
        if named is None:
            return LockHeldError(
                f"{job} is locked: {found or 'a session that has just ended'} holds its advisory lock.",
                holder=found,
                hint=hint,
            )
        pid, since, host = named.groups()
        return LockHeldError(
            f"{job} is locked: {host} (pid {pid}) holds its advisory lock since {since}.",
            holder=f"{host}:{pid}",
            since=since,
            hint=hint,
        )


class SessionKeeper:
    """Speaks with the session that holds one lock. Implements ``locks.watched.Keeper``."""

    def __init__(self, connection: Connection, dialect: Dialect, job: str, session: int) -> None:
        self._connection = connection
        self._dialect = dialect
        self._job = job
        self._session = session

    def prove(self) -> str:
        """Ask the session whether it is the one that took the lock, and still has it."""
        try:
            if self._dialect.session(self._connection) != self._session:
                return "its connection was given another session"
            if not self._dialect.mine(self._connection, self._job):
                return "its session no longer holds it"
        except DBAPIError as error:
            if error.connection_invalidated:
                return f"its session ended ({words(error)})"
            raise SilentError(words(error)) from error
        except SQLAlchemyError as error:
            raise SilentError(words(error)) from error
        return ""

    def give_back(self) -> None:
        """Free the lock, and end its session: a server takes its time to notice that one has ended."""
        with suppress(SQLAlchemyError):
            self._dialect.free(self._connection, self._job)
        with suppress(SQLAlchemyError):
            self._connection.close()


class Dialect(Protocol):
    """What differs between the servers."""

    def told(self, driver: Any) -> int | None:
        """Return the session that the server named when the connection was made; None where the driver keeps none."""

    def session(self, connection: Connection) -> int:
        """Return the session that a statement runs in."""

    def prepare(self, connection: Connection, name: str, seconds: float) -> None:
        """Say who we are, and have the session end when nothing is asked of it for this long."""

    def take(self, connection: Connection, job: str) -> bool:
        """Take the lock without waiting; returns whether it is ours."""

    def free(self, connection: Connection, job: str) -> None:
        """Let go of the lock."""

    def mine(self, connection: Connection, job: str) -> bool:
        """Whether this session holds the lock."""

    def holder(self, connection: Connection, job: str) -> str:
        """Return who holds the lock, as far as the server says."""


class PostgreSQL:
    """PostgreSQL 13 and later; its locks are per database."""

    def told(self, driver: Any) -> int | None:
        """Psycopg keeps what the server said at the start; a pooler says a number of its own."""
        found = getattr(getattr(driver, "info", None), "backend_pid", None)
        return found if isinstance(found, int) else None

    def session(self, connection: Connection) -> int:
        """Its server process."""
        return int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())

    def prepare(self, connection: Connection, name: str, seconds: float) -> None:
        """``idle_session_timeout`` is there since version 14."""
        settings = {"application_name": name, "statement_timeout": str(math.ceil(seconds * 250))}
        if (connection.dialect.server_version_info or (0,)) >= (14,):
            settings["idle_session_timeout"] = str(math.ceil(seconds * 1000))
        for setting, value in settings.items():
            connection.execute(
                text("SELECT set_config(:name, :value, false)"), {"name": setting, "value": value}
            )

    def take(self, connection: Connection, job: str) -> bool:
        """``pg_try_advisory_lock``."""
        return bool(
            connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _number(job)}).scalar_one()
        )

    def free(self, connection: Connection, job: str) -> None:
        """``pg_advisory_unlock``."""
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _number(job)})

    def mine(self, connection: Connection, job: str) -> bool:
        """As ``pg_locks`` says."""
        found = connection.execute(_HOLDER, _halves(job)).first()
        return found is not None and bool(found.mine)

    def holder(self, connection: Connection, job: str) -> str:
        """The holder's session says whose it is."""
        found = connection.execute(_HOLDER, _halves(job)).first()
        return "" if found is None else found.name or f"server process {found.pid}"


class MySQL:
    """MariaDB and MySQL; their locks are the whole server's, so the name holds the database's."""

    def told(self, driver: Any) -> int | None:
        """A proxy that keeps sessions apart for such a lock may still number them itself: not held against it."""
        del driver
        return None

    def session(self, connection: Connection) -> int:
        """Its connection id."""
        return int(connection.execute(text("SELECT CONNECTION_ID()")).scalar_one())

    def prepare(self, connection: Connection, name: str, seconds: float) -> None:
        """A session cannot name itself to others here; the lease does."""
        del name
        connection.execute(
            text("SET SESSION wait_timeout = :seconds"), {"seconds": max(1, math.ceil(seconds))}
        )

    def take(self, connection: Connection, job: str) -> bool:
        """``GET_LOCK`` with no time to wait; NULL is an error of the server's."""
        return bool(self._ask(connection, "SELECT GET_LOCK(:name, 0)", job))

    def free(self, connection: Connection, job: str) -> None:
        """``RELEASE_LOCK``."""
        self._ask(connection, "SELECT RELEASE_LOCK(:name)", job)

    def mine(self, connection: Connection, job: str) -> bool:
        """As ``IS_USED_LOCK`` says."""
        return bool(self._ask(connection, "SELECT IS_USED_LOCK(:name) = CONNECTION_ID()", job))

    def holder(self, connection: Connection, job: str) -> str:
        """The holder's connection, and where it comes from if this role may know."""
        session = self._ask(connection, "SELECT IS_USED_LOCK(:name)", job)
        if session is None:
            return ""
        host = connection.execute(
            text("SELECT host FROM information_schema.processlist WHERE id = :id"), {"id": session}
        ).scalar()
        return f"connection {session}" + (f" from {host}" if host else "")

    def _ask(self, connection: Connection, question: str, job: str) -> Any:
        return connection.execute(text(question), {"name": self._name(connection, job)}).scalar_one()

    def _name(self, connection: Connection, job: str) -> str:
        # 64 characters at most on MySQL.
        return (
            "safedelete:"
            + hashlib.sha256(f"{connection.engine.url.database} {job}".encode()).hexdigest()[:40]
        )


DIALECTS: Final[dict[str, Dialect]] = {"postgresql": PostgreSQL(), "mysql": MySQL(), "mariadb": MySQL()}

_HOLDER: Final = text(
    """
    SELECT l.pid, l.pid = pg_backend_pid() AS mine, a.application_name AS name
    FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = CAST(CAST(:high AS bigint) AS oid) AND l.objid = CAST(CAST(:low AS bigint) AS oid)
    """
)
"""A lock on a bigint shows its two halves."""


def _number(job: str) -> int:
    return int.from_bytes(hashlib.sha256(f"safedelete:{job}".encode()).digest()[:8], "big", signed=True)


def _halves(job: str) -> dict[str, int]:
    number = _number(job) & (1 << 64) - 1
    return {"high": number >> 32, "low": number & (1 << 32) - 1}


def _unanswered(job: str, error: SQLAlchemyError) -> StoreError:
    return StoreError(
        f"The advisory lock of {job} could not be asked for: {words(error)}.",
        hint="It needs a connection of its own; check that the database answers and has one to spare.",
    )
