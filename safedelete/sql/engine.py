"""Open the database that a purge works on.

An Engine that the user gives keeps its own ways of connecting (creator, connect arguments, token plugins) but not its
pool: our settings must not leak into the application's connections, nor its sessions' leftovers into ours.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool, PoolProxiedConnection, QueuePool

from safedelete.errors import ConfigError, InterruptedRunError, StoreError, UnreachedError
from safedelete.sql.backends import Backend, SQLite, Timeouts, backend_for
from safedelete.sql.backends.sqlite import BEGIN
from safedelete.sql.failures import code, is_cancelled, translated, words

__all__ = ["Database", "Timeouts"]

_DRIVERS = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}


class Database:
    """One database, with connections set up the way deleting needs them.

    Args:
        source: An Engine, a URL, or None for ``$SAFEDELETE_DATABASE_URL``, else ``$DATABASE_URL``.
        environ: The environment variables; the process's own unless given.
        timeouts: A batch's timeouts.
        may_create: Let SQLite make the file when there is none; else a missing file is an error, never an empty
            database in its place.

    Raises:
        ConfigError: There is no URL, it cannot be read, or its driver is not installed.
    """

    def __init__(
        self,
        source: Engine | URL | str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        may_create: bool = False,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        given, origin = (
            (source, "The database URL")
            if source is not None
            else _from_environment(os.environ if environ is None else environ)
        )
        url = given.url if isinstance(given, Engine) else _url(given, origin)
        self.backend: Backend = backend_for(url.get_backend_name())
        if isinstance(self.backend, SQLite) and url.database in (None, "", ":memory:"):
            raise ConfigError(
                f"{describe(url)}: an in-memory SQLite database cannot be purged; no second connection sees it.",
                hint="Use a file.",
            )
        self.url = url
        self._may_create = may_create
        self.engine = _engine(url, given if isinstance(given, Engine) else None, self.backend)
        self._live: set[Any] = set()
        self._lock = threading.Lock()
        self._cancelled = False
        self._idle: PoolProxiedConnection | None = None

    def __repr__(self) -> str:
        return f"Database({self.name})"

    @property
    def name(self) -> str:
        """Where it is, without user, password and options; fit for messages."""
        return describe(self.url)

    @cached_property
    def identity(self) -> str:
        """What tells this database from a copy of it; the same for every role and every host name. Reads only."""
        with self.reading() as connection, translated(f"asking {self.name} who it is"):
            return self.backend.identity(connection)

    @cached_property
    def caller(self) -> str:
        """The role that statements run as; empty where there are no roles. Reads only."""
        with self.reading() as connection, translated(f"asking {self.name} for the current role"):
            return self.backend.caller(connection)

    def now(self) -> datetime:
        """Return the database's own clock, aware UTC. Reads only."""
        with self.reading() as connection, translated(f"asking {self.name} for the time"):
            return self.backend.now(connection)

    @contextmanager
    def connected(self, **options: Any) -> Iterator[Connection]:
        """Open a connection of our own, which :meth:`cancel` can reach, and close it afterwards.

        Raises:
            StoreError: The database does not answer.
        """
        connection = self.connect(**options)
        try:
            yield connection
        finally:
            self.close(connection)

    def connect(self, *, immediate: bool = False) -> Connection:
        """Open a connection that :meth:`cancel` can reach; give it back to :meth:`close`.

        Args:
            immediate: On SQLite, take the write lock at once when a transaction begins.

        Raises:
            StoreError: The database does not answer.
        """
        self._check_file()
        try:
            connection = self.engine.connect()
        except SQLAlchemyError as error:
            raise UnreachedError(
                f"The database {self.name} does not answer: {words(error)}.",
                hint="Check that it runs, that its address is right, and that this host and role may connect.",
            ) from error
        if immediate and isinstance(self.backend, SQLite):
            self._stay_open()
            self.backend.wait(connection, self.timeouts)
            connection = connection.execution_options(**{BEGIN: "BEGIN IMMEDIATE"})
        with self._lock:
            self._live.add(connection.connection.driver_connection)
        return connection

    def _stay_open(self) -> None:
        """Keep one idle connection until :meth:`dispose`: whoever closes the last one copies the whole WAL back."""
        if self._idle is None:
            with translated(f"opening {self.name}"):
                self._idle = self.engine.raw_connection()
                # Not before its first statement is it one of those that share the WAL.
                self._idle.cursor().execute("PRAGMA schema_version").fetchone()

    def _check_file(self) -> None:
        if self._may_create or not isinstance(self.backend, SQLite):
            return
        file = str(self.url.database)
        if not file.startswith("file:") and not Path(file).is_file():
            raise StoreError(
                f"The database {self.name} does not exist.",
                hint="Check the path; a relative one counts from the working directory.",
            )

    def close(self, connection: Connection) -> None:
        """Close a connection of :meth:`connect`; whatever it left open is rolled back. Never raises."""
        with suppress(SQLAlchemyError):
            driver = (
                None
                if connection.closed or connection.invalidated
                else connection.connection.driver_connection
            )
            with self._lock:
                self._live.discard(driver)
        with suppress(SQLAlchemyError):
            connection.close()

    @contextmanager
    def reading(self, connection: Connection | None = None) -> Iterator[Connection]:
        """Open one short read-only transaction, on a connection of its own unless one is given. Reads only.

        Raises:
            StoreError: The database does not answer.
        """
        if connection is None:
            with self.connected() as own, self.reading(own) as inner:
                yield inner
            return
        with connection.begin():
            self.backend.begin_reading(connection, self.timeouts)
            try:
                yield connection
            finally:
                if not connection.invalidated:
                    self.backend.end_reading(connection)

    def cancel(self) -> None:
        """Cancel every statement in flight, from another thread. Idempotent; never raises."""
        self._cancelled = True
        with self._lock:
            live = list(self._live)
        for driver in live:
            with suppress(SQLAlchemyError, OSError, *_driver_errors(self.engine)):
                self.backend.cancel(driver, self.engine)

    def raise_if_cancelled(self, error: SQLAlchemyError, doing: str) -> None:
        """Raise where a failed statement was cancelled on purpose: a stop is no answer, and unknown neither.

        Args:
            error: What the statement raised.
            doing: What was being done, as ``counting uploads``.

        Raises:
            InterruptedRunError: The statement was cancelled, by :meth:`cancel` or by another session.
        """
        if is_cancelled(error) or (self._cancelled and code(error) == "57014"):
            raise InterruptedRunError(
                f"A stop was asked for while {doing}; the statement was cancelled.",
                hint="Run again; nothing has to be repaired.",
            ) from error

    def dispose(self) -> None:
        """Close every connection, those in use included; what they left open is rolled back. Idempotent."""
        with self._lock:
            live, self._live = self._live, set()
        for driver in live:
            with suppress(OSError, *_driver_errors(self.engine)):
                driver.close()
        if self._idle is not None:
            with suppress(SQLAlchemyError, *_driver_errors(self.engine)):
                self._idle.close()
            self._idle = None
        self.engine.dispose()


def describe(url: URL) -> str:
    """Return where a URL points, without user, password and options: those may hold secrets."""
    return URL.create(url.drivername, host=url.host, port=url.port, database=url.database).render_as_string()


def environment_url() -> str | None:
    """Return the database URL that the environment names for a purge without ``database=``; None where it names none."""
    try:
        return _from_environment(os.environ)[0]
    except ConfigError:
        return None


def _from_environment(environ: Mapping[str, str]) -> tuple[str, str]:
    for variable in ("SAFEDELETE_DATABASE_URL", "DATABASE_URL"):
        if environ.get(variable, "").strip():
            return environ[variable].strip(), f"${variable}"
    raise ConfigError(
        "There is no database: database= is not given and neither $SAFEDELETE_DATABASE_URL nor $DATABASE_URL is set.",
        hint="Set SAFEDELETE_DATABASE_URL, for example postgresql+psycopg://user@host/name.",
    )


def _url(source: URL | str, origin: str) -> URL:
    try:
        url = make_url(source)
    except (ArgumentError, ValueError) as error:
        # The text is left out: it may hold a password.
        raise ConfigError(
            f"{origin} cannot be read as a database URL.",
            hint="It should look like postgresql+psycopg://user:password@host:5432/name or sqlite:////path/file.db.",
        ) from error
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


def _engine(url: URL, given: Engine | None, backend: Backend) -> Engine:
    options: dict[str, Any] = {"hide_parameters": True}
    if isinstance(backend, SQLite):
        # One connection a transaction: SQLite's are cheap, and a pooled one may belong to another thread.
        options["poolclass"] = NullPool
        if given is None:
            options["connect_args"] = {"check_same_thread": False}
    else:
        options |= {
            "poolclass": QueuePool,
            "pool_size": 4,
            "max_overflow": 16,
            "pool_pre_ping": True,
            "isolation_level": "READ COMMITTED",
        }
    if given is not None:
        if given.get_execution_options().get("schema_translate_map"):
            raise ConfigError(
                f"{describe(url)}: the Engine has a schema_translate_map, which would send a purge to other tables than it names.",
                hint="Name the schema in the Table or model, and give an Engine without the map.",
            )
        options["creator"] = lambda: _lend(given)
    try:
        engine = create_engine(url, **options)
    except (NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            f"{describe(url)}: the driver is not installed ({error}).",
            hint='Install it: pip install "safedelete-purge[postgres]" or "safedelete-purge[mysql]".',
        ) from error
    except (ArgumentError, TypeError) as error:
        raise ConfigError(
            f"{describe(url)}: {error}.",
            hint="Write the URL as SQLAlchemy takes it: postgresql+psycopg://user@host/database.",
        ) from error
    backend.prepare_engine(engine)
    return engine


def _lend(engine: Engine) -> Any:
    """Take one connection out of the application's engine for good, made the way the application makes them."""
    fairy = engine.raw_connection()
    driver = fairy.dbapi_connection
    fairy.detach()
    return driver


def _driver_errors(engine: Engine) -> tuple[type[BaseException], ...]:
    module: Any = engine.dialect.loaded_dbapi
    return (module.Error, DBAPIError)
