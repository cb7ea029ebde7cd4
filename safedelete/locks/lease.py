"""The default lock: a lease row with a fencing token, beside the rows it protects.

Expiry is a number of milliseconds by the *database's* clock, so hosts whose clocks disagree still agree on who holds
it. Taking an expired lease over raises its token. A heartbeat renews it; each batch proves it again inside
its own transaction (``fence`` before anything is held, ``pin`` before the commit). Beside that the holder keeps a
deadline of its own on a clock that also counts while the process is frozen: once that has passed, ``gate`` stops
every further request, whatever the database would say.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    and_,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from safedelete.errors import LedgerError, LockHeldError, LockLostError, StoreError
from safedelete.locks.watched import MARGIN
from safedelete.locks.words import words
from safedelete.ports import Clock, Transaction

metadata: Final = MetaData()

table: Final = Table(
    "safedelete_lease",
    metadata,
    Column("job", String(64), primary_key=True),
    Column("owner", String(255), nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Column("taken_at", String(32), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer, nullable=False),
    comment="safedelete: one row a job; who may delete now, until when by this database's clock",
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

GIVING_BACK: Final = 5.0
"""Seconds that giving a lease back may take."""

SUSPECTS: Final = "was this process suspended, or does the database not answer?"


class server_ms(FunctionElement[int]):  # noqa: N801  # named as the SQL function it stands for
    """The database's own clock, in milliseconds since 1970."""

    type = BigInteger()
    inherit_cache = True


@compiles(server_ms, "postgresql")
def _postgresql(_element: object, _compiler: object, **_: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


@compiles(server_ms, "sqlite")
def _sqlite(_element: object, _compiler: object, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@compiles(server_ms, "mysql")
@compiles(server_ms, "mariadb")
def _mysql(_element: object, _compiler: object, **_: Any) -> str:
    # Not UNIX_TIMESTAMP: it is told a local time, and twice the same one in the hour that winter time repeats.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"


class LeaseLock:
    """Takes leases on one database. Implements ``ports.Lock``.

    Args:
        engine: The database that holds the rows to be protected.
        database: Its identity.
        clock: For the holder's own deadline.
        seconds: Length of a lease.
        host: Name of this host, for whoever is told that the lock is held.
        pid: Id of this process.
    """

    def __init__(
        self, engine: Engine, database: str, *, clock: Clock, seconds: float, host: str, pid: int
    ) -> None:
        self.engine = engine
        self.database = database
        self.clock = clock
        self.seconds = seconds
        self.host = host
        self.pid = pid

    def acquire(self, job: str, *, owner: str) -> HeldLease:
        """Take the lease, or take it over when it has expired."""
        asked = self.clock.uptime()
        try:
            token = self._take(job, owner) or self._insert(job, owner)
        except SQLAlchemyError as error:
            raise self._trouble(job, error) from error
        if token is None:
            raise self._held(job)
        return HeldLease(self, job, owner, token, asked)

    def _take(self, job: str, owner: str) -> int | None:
        c = table.c
        with self.engine.begin() as connection:
            _wait_briefly(connection)
            taken = connection.execute(
                update(table)
                .where(c.job == job, c.expires_ms <= server_ms())
                .values(token=c.token + 1, **self._values(owner))
            )
            if taken.rowcount != 1:
                return None
            return int(connection.execute(select(c.token).where(c.job == job, c.owner == owner)).scalar_one())

    def _insert(self, job: str, owner: str) -> int | None:
        try:
            with self.engine.begin() as connection:
                _wait_briefly(connection)
                connection.execute(insert(table).values(job=job, token=1, **self._values(owner)))
        except IntegrityError:
            return None
        return 1

    def _values(self, owner: str) -> dict[str, Any]:
        return {
            "owner": owner,
            "expires_ms": server_ms() + literal(int(self.seconds * 1000), BigInteger()),
            "taken_at": self.clock.now().astimezone(UTC).isoformat(timespec="seconds"),
            "host": self.host,
            "pid": self.pid,
        }

    def _held(self, job: str) -> LockHeldError:
        return self._named(job) or LockHeldError(
            f"The lock of {job} changed hands while it was asked for.", hint="Try again."
        )

    def _named(self, job: str) -> LockHeldError | None:
        c = table.c
        with self.engine.connect() as connection:
            row = connection.execute(
                select(c.host, c.pid, c.taken_at, c.expires_ms - server_ms()).where(c.job == job)
            ).first()
        if row is None:
            return None
        host, pid, since, left = row
        return LockHeldError(
            f"{job} is locked: {host} (pid {pid}) holds it since {since}; its lease ends in {max(left, 0) / 1000:.0f} s "
            "unless renewed.",
            holder=f"{host}:{pid}",
            since=since,
            hint="Another run is working. If that process is dead, the next run takes over when the lease has ended.",
        )

    def _trouble(self, job: str, error: SQLAlchemyError) -> LockHeldError | LedgerError:
        text = words(error)
        if _busy(error):
            try:
                held = self._named(job)
            except SQLAlchemyError:
                held = None  # The busy database does not answer this either; what it said first is told.
            return held or LockHeldError(
                f"The lock could not be asked for, since the database is busy ({text}).",
                hint="Another run's batch is probably in flight; the next run will try again.",
            )
        return LedgerError(
            f"The lock could not be asked for: {text}.",
            hint="The table safedelete_lease must exist in the purged database (`safedelete init FILE`). "
            "Saving and executing are for the runner's role, which has SELECT, INSERT and UPDATE on it (`safedelete render grants "
            "FILE`); give no other role that.",
        )


class HeldLease:
    """A lease that this process holds. Implements ``ports.Lease``."""

    def __init__(self, lock: LeaseLock, job: str, owner: str, token: int, asked: float) -> None:
        self._lock = lock
        self._job = job
        self._owner = owner
        self._token = token
        self._length = lock.seconds * (1 - MARGIN)
        self._deadline = asked + self._length
        self._lost: str | None = None
        self._over = threading.Event()
        self._heart = threading.Thread(target=self._beat, name=f"lease-{job}", daemon=True)
        self._heart.start()

    @property
    def token(self) -> int:
        """The fencing token."""
        return self._token

    def gate(self) -> None:
        """Raise once the lease is known to be lost, or its local deadline has passed. No I/O."""
        if self._lost is not None:
            raise self._gone(self._lost)
        late = self._lock.clock.uptime() - self._deadline
        if late >= 0:
            raise self._gone(f"it was not renewed in time ({late:.1f} s late; {SUSPECTS})")

    def fence(self, transaction: Transaction | None = None) -> None:
        """Read the lease, in the given transaction where that is on its database. Reads only."""
        self.gate()
        query = select(table.c.token).where(self._ours())
        connection = self._joined(transaction)
        if connection is not None:
            with _told(" in the batch's transaction"):
                found = connection.execute(query).first()
        else:
            # Not answered is not lost: until the local deadline, the batch may be tried again.
            with _told(), self._lock.engine.connect() as own:
                found = own.execute(query).first()
        if found is None:
            self._lost = "another run took it over, or it expired"
            raise self._gone(self._lost)

    def pin(self, transaction: Transaction) -> None:
        """Hold the lease row until the transaction ends, so that nobody can take it over before the commit."""
        connection = self._joined(transaction)
        if connection is None:
            self.fence()
            return
        self.gate()
        if connection.dialect.name == "sqlite":
            # BEGIN IMMEDIATE keeps every other writer out, the heartbeat too: so the batch itself renews.
            asked = self._lock.clock.uptime()
            with _told(" in the batch's transaction"):
                found = connection.execute(self._renewal()).rowcount == 1
            if found:
                self._deadline = max(self._deadline, asked + self._length)
        else:
            query = select(table.c.token).where(self._ours()).with_for_update(read=True)
            with _told(" in the batch's transaction"):
                found = connection.execute(query).first() is not None
        if not found:
            self._lost = "another run took it over, or it expired"
            raise self._gone(self._lost)
        self.gate()

    def release(self) -> None:
        """Stop renewing and let the next run in at once; whoever still holds this object may delete nothing more."""
        self._lost = self._lost or "it was given back"
        self._over.set()
        # A database that hangs keeps the thread, not this run.
        self._heart.join(timeout=GIVING_BACK)

    def _beat(self) -> None:
        # A thread has nobody to raise to: what a killed process's statements raise in tests ends it, and nothing else can.
        with suppress(BaseException):
            try:
                self._renew()
            finally:
                self._give_back()

    def _give_back(self) -> None:
        statement = update(table).where(*self._mine()).values(expires_ms=0)
        # An unreleased lease only makes the next run wait until it expires.
        with suppress(Exception), self._lock.engine.begin() as connection:
            _wait_briefly(connection)
            connection.execute(statement)

    def _renew(self) -> None:
        pause = self._lock.seconds / 4
        while not self._over.wait(pause):
            asked = self._lock.clock.uptime()
            try:
                with self._lock.engine.begin() as connection:
                    _wait_briefly(connection)
                    renewed = connection.execute(self._renewal()).rowcount == 1
            except Exception:
                # Not renewed is not lost: the local deadline decides, and a database that answers again renews. An
                # Engine of the user's may raise whatever its own way of connecting does.
                pause = self._lock.seconds / 20
                continue
            if not renewed:
                self._lost = "another run took it over, or it expired"
                return
            self._deadline = max(self._deadline, asked + self._length)
            pause = self._lock.seconds / 4

    def _renewal(self) -> Any:
        length = literal(int(self._lock.seconds * 1000), BigInteger())
        return update(table).where(self._ours()).values(expires_ms=server_ms() + length)

    def _mine(self) -> tuple[Any, ...]:
        c = table.c
        return (c.job == self._job, c.owner == self._owner, c.token == self._token)

    def _ours(self) -> Any:
        return and_(*self._mine(), table.c.expires_ms > server_ms())

    def _joined(self, transaction: Transaction | None) -> Connection | None:
        if transaction is None or transaction.database != self._lock.database:
            return None
        connection = getattr(transaction, "connection", None)
        return connection if isinstance(connection, Connection) else None

    def _gone(self, why: str) -> LockLostError:
        return LockLostError(
            f"The lock of {self._job} is lost: {why}.",
            hint="This run deletes nothing more. The next run goes on from the ledger.",
            deleted=None,
        )


@contextmanager
def _told(where: str = "") -> Iterator[None]:
    """Tell a database that does not answer, which may be asked again, from a lease that is lost."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(
            f"The lease could not be read{where}: {words(error)}. The batch's rows stay.",
            hint="The connection was lost, or another statement holds the lease's row.",
            deleted=None,
        ) from error


def _wait_briefly(connection: Connection) -> None:
    """Do not queue behind a batch that pins the lease for longer than a moment."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
    elif connection.dialect.name in ("mysql", "mariadb"):
        # Of the session, as there is none of a transaction; a batch sets its own when it begins.
        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 2")


def _busy(error: SQLAlchemyError) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    if getattr(error.orig, "sqlstate", None) == "55P03":
        return True
    if error.orig is not None and error.orig.args[:1] in ((1205,), (1213,)):
        return True
    return isinstance(error, OperationalError) and "locked" in str(error.orig)
