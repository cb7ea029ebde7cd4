"""The contracts of ``Ledger`` and ``Lock`` on memory, SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, update
from sqlalchemy.pool import NullPool

from safedelete.core.decision import Acceptance, Approval
from safedelete.errors import LedgerError, LockLostError, StoreError
from safedelete.ledger import tables
from safedelete.ledger.setup import create, initialise
from safedelete.ledger.store import SqlLedger
from safedelete.locks import lease
from safedelete.ports import Transaction
from safedelete.sql.engine import Database
from safedelete.testing.memory import ManualClock, MemoryDatabase, MemoryLedger, MemoryLock, MemoryTransaction
from safedelete.wiring.settings import SystemClock
from tests.contract.ledgers import AT, BOUND, Leases, LedgerContract, LockContract, a_run

SECONDS = 1.0


class SqlTransaction:
    """A batch's transaction, as far as a ledger and a lease need one."""

    def __init__(self, database: Database, identity: str) -> None:
        self._database = database
        self.database = identity
        self.connection: Connection = database.connect(immediate=True)
        self.connection.begin()

    def commit(self) -> None:
        self.connection.commit()
        self.rollback()

    def rollback(self) -> None:
        self._database.close(self.connection)


@contextmanager
def sql_ledger(url: str) -> Iterator[SqlLedger]:
    database = Database(url, may_create=True)
    initialise(database.engine, BOUND, adopt=False)
    yield SqlLedger(database.engine, "main")
    database.dispose()


@contextmanager
def sql_leases(url: str, other: str) -> Iterator[Leases]:
    database, apart = Database(url, may_create=True), Database(other, may_create=True)
    create(database.engine, lease.metadata)
    create(apart.engine, tables.metadata)
    lock = lease.LeaseLock(database.engine, "main", clock=SystemClock(), seconds=SECONDS, host="host", pid=1)

    def expire() -> None:
        """By hand, as the heartbeats of this process would go on renewing; each notices before it renews again."""
        ended = update(lease.table).values(expires_ms=0)
        for _ in range(20):
            try:
                with database.engine.begin() as connection:
                    if connection.dialect.name == "postgresql":
                        connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
                    elif connection.dialect.name != "sqlite":
                        connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
                    connection.execute(ended)
            except Exception:  # pinned: then it cannot be ended either, which is the promise
                return
            else:
                break
        time.sleep(SECONDS * 0.4)

    yield Leases(
        lock, expire, lambda: SqlTransaction(database, "main"), lambda: SqlTransaction(apart, "apart")
    )
    database.dispose()
    apart.dispose()


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledger(self) -> MemoryLedger:
        return MemoryLedger(MemoryDatabase("main"), BOUND)

    @pytest.fixture
    def elsewhere(self) -> Transaction:
        return MemoryTransaction(MemoryDatabase("apart"))


class SqlLedgerContract(LedgerContract):
    @pytest.fixture
    def elsewhere(self, tmp_path: Path) -> Iterator[Transaction]:
        database = Database(f"sqlite:///{tmp_path / 'apart.sqlite3'}", may_create=True)
        transaction = SqlTransaction(database, "apart")
        yield transaction
        transaction.rollback()
        database.dispose()

    @pytest.mark.parametrize(
        "damage",
        [
            {"accepts": "SD201"},
            {"accepts": '["SD201"]'},
            {"accepts": "[1]"},
            {"expires_at": "tomorrow"},
            {"at": "x"},
        ],
    )
    def test_a_damaged_approval_is_a_ledger_error(self, ledger: SqlLedger, damage: dict[str, str]) -> None:
        ledger.begin(a_run())
        ledger.approve(
            Approval(
                run="RUNA",
                digest="d",
                accepts=(Acceptance(code="SD201", target="uploads"),),
                reason="a campaign",
                who="me",
                at=AT,
                expires_at=AT + timedelta(hours=1),
                teaches=1,
            )
        )
        with ledger.engine.begin() as connection:
            connection.execute(update(tables.approval).values(**damage))
        with pytest.raises(LedgerError, match="approval of run RUNA"):
            ledger.approval("RUNA")


class TestSQLiteLedger(SqlLedgerContract):
    @pytest.fixture
    def ledger(self, sqlite_url: str) -> Iterator[SqlLedger]:
        with sql_ledger(sqlite_url) as ledger:
            yield ledger


class TestPostgreSQLLedger(SqlLedgerContract):
    @pytest.fixture
    def ledger(self, pg_database: str) -> Iterator[SqlLedger]:
        with sql_ledger(pg_database) as ledger:
            yield ledger


class TestMariaDBLedger(SqlLedgerContract):
    @pytest.fixture
    def ledger(self, mariadb_database: str) -> Iterator[SqlLedger]:
        with sql_ledger(mariadb_database) as ledger:
            yield ledger


class TestMemoryLock(LockContract):
    @pytest.fixture
    def leases(self) -> Leases:
        clock, database, apart = ManualClock(), MemoryDatabase("main"), MemoryDatabase("apart")
        return Leases(
            MemoryLock(database, clock, seconds=60),
            lambda: clock.freeze(61),
            lambda: MemoryTransaction(database),
            lambda: MemoryTransaction(apart),
        )

    def test_heartbeats_keep_a_lease_alive(self) -> None:
        clock = ManualClock()
        held = MemoryLock(MemoryDatabase(), clock, seconds=60).acquire("purge", owner="one")
        clock.advance(86_400)
        held.fence()


class TestSQLiteLock(LockContract):
    @pytest.fixture
    def leases(self, tmp_path: Path) -> Iterator[Leases]:
        with sql_leases(f"sqlite:///{tmp_path / 'main.db'}", f"sqlite:///{tmp_path / 'apart.db'}") as leases:
            yield leases


class TestPostgreSQLLock(LockContract):
    @pytest.fixture
    def leases(self, pg_database: str, tmp_path: Path) -> Iterator[Leases]:
        with sql_leases(pg_database, f"sqlite:///{tmp_path / 'apart.db'}") as leases:
            yield leases


class TestMariaDBLock(LockContract):
    @pytest.fixture
    def leases(self, mariadb_database: str, tmp_path: Path) -> Iterator[Leases]:
        with sql_leases(mariadb_database, f"sqlite:///{tmp_path / 'apart.db'}") as leases:
            yield leases


def test_a_lease_that_cannot_be_read_is_not_called_lost(sqlite_url: str) -> None:
    with sql_leases(sqlite_url, sqlite_url) as leases:
        held = leases.lock.acquire("purge", owner="me")
        with create_engine(sqlite_url).begin() as connection:
            connection.exec_driver_sql("DROP TABLE safedelete_lease")
        with pytest.raises(StoreError, match="could not be read: no such table") as caught:
            held.fence()
        assert "[SQL" not in str(caught.value)
        assert "sqlalche.me" not in str(caught.value)
        held.gate()
        held.release()


def test_the_ledgers_tables_have_transactions_whatever_the_servers_default(mariadb_database: str) -> None:
    engine = create_engine(mariadb_database, poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def old_default(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET default_storage_engine = MyISAM")

    create(engine, tables.metadata)
    create(engine, lease.metadata)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = DATABASE()"
        ).scalars()
        assert set(found) == {"InnoDB"}
    engine.dispose()


def test_a_holder_that_was_frozen_stops_by_its_own_clock_whatever_the_database_says(sqlite_url: str) -> None:
    database, clock = Database(sqlite_url, may_create=True), ManualClock()
    create(database.engine, lease.metadata)
    lock = lease.LeaseLock(database.engine, "main", clock=clock, seconds=600, host="host", pid=1)
    held = lock.acquire("purge", owner="me")
    clock.freeze(539)
    held.gate()
    clock.freeze(2)
    with pytest.raises(LockLostError, match="was this process suspended"):
        held.gate()
    with pytest.raises(LockLostError):
        held.fence()
    held.release()
    database.dispose()
