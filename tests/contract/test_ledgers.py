"""The contracts of ``Ledger`` and ``Lock`` on memory, SQLite, PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event, select, update
from sqlalchemy.pool import NullPool

from safedelete.core.decision import Acceptance, Approval
from safedelete.core.run import RunState
from safedelete.errors import LedgerError, LockLostError, StoreError
from safedelete.ledger import tables
from safedelete.ledger.setup import create, initialise
from safedelete.ledger.store import SqlLedger
from safedelete.locks import lease
from safedelete.ports import Notice, RunChange, Transaction
from safedelete.sql.engine import Database
from safedelete.testing.memory import ManualClock, MemoryDatabase, MemoryLedger, MemoryLock, MemoryTransaction
from safedelete.testing.servers import MariaDB
from safedelete.wiring.settings import SystemClock
from tests.backends import started
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

    def test_a_text_that_no_database_keeps_is_kept_legibly(self, ledger: SqlLedger) -> None:
        given, kept = "a\0b \udcff - €", "a\\x00b \\udcff - €"
        ledger.begin(a_run())
        ledger.move("RUNA", RunState.REFUSED, change=RunChange(reason=given))
        ledger.approve(
            Approval(
                run="RUNA",
                digest="d",
                accepts=(),
                reason=given,
                who=given,
                at=AT,
                expires_at=AT + timedelta(hours=1),
            )
        )
        ledger.say(Notice(kind="pause", subject="purge", since=AT, who=given, reason=given))
        ledger.take_back("pause", "purge", at=AT, who=given)
        approval, (notice,) = ledger.approval("RUNA"), ledger.notices("pause", "purge")
        assert approval is not None
        assert {ledger.record("RUNA").reason, approval.reason, approval.who} == {kept}
        assert {notice.who, notice.reason, notice.ended_by} == {kept}

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


class InBerlin(MariaDB):
    """A server that keeps the local time of its host."""

    def __init__(self) -> None:
        super().__init__(settings={"default-time-zone": "SYSTEM"})

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        command, environment = super()._prepare()
        return command, {**environment, "TZ": "Europe/Berlin"}


def test_a_lease_lasts_as_long_as_ever_in_the_hour_that_the_servers_winter_time_repeats() -> None:
    """02:30 comes twice; told apart, or a lease of the first would end an hour late and a living one of the second at once."""
    with started(InBerlin) as server:
        database = Database(server.create_database())
        with database.engine.connect() as connection:
            for instant in (datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)):
                connection.exec_driver_sql(f"SET timestamp = {instant.timestamp()}")
                assert connection.exec_driver_sql("SELECT HOUR(NOW())").scalar_one() == 2
                asked = connection.execute(select(lease.server_ms())).scalar_one()
                assert asked == instant.timestamp() * 1000
        database.dispose()


@pytest.mark.parametrize("error", [OSError("the token service does not answer"), KeyError("token")])
def test_a_heartbeat_that_cannot_connect_in_the_engines_own_way_is_tried_again(
    error: Exception, sqlite_url: str
) -> None:
    database, broken = Database(sqlite_url, may_create=True), threading.Event()
    create(database.engine, lease.metadata)
    tried = threading.Event()

    @event.listens_for(database.engine, "do_connect")
    def connects(*_: object) -> None:
        if broken.is_set():
            tried.set()
            raise error

    lock = lease.LeaseLock(database.engine, "main", clock=SystemClock(), seconds=SECONDS, host="host", pid=1)
    held = lock.acquire("purge", owner="me")
    broken.set()
    assert tried.wait(SECONDS)
    broken.clear()
    until = time.monotonic() + SECONDS * 1.5
    while time.monotonic() < until:
        held.gate()
        time.sleep(0.02)
    held.fence()
    held.release()
    assert lock.acquire("purge", owner="you").token == 2
    database.dispose()


def test_a_database_that_hangs_does_not_hold_up_a_holder_that_gives_back(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "GIVING_BACK", 0.2)
    database, hangs, go = Database(sqlite_url, may_create=True), threading.Event(), threading.Event()
    create(database.engine, lease.metadata)

    @event.listens_for(database.engine, "do_connect")
    def connects(*_: object) -> None:
        if hangs.is_set():
            go.wait(30)

    lock = lease.LeaseLock(database.engine, "main", clock=SystemClock(), seconds=SECONDS, host="host", pid=1)
    held = lock.acquire("purge", owner="me")
    hangs.set()
    began = time.monotonic()
    held.release()
    assert time.monotonic() - began < 5
    with pytest.raises(LockLostError):
        held.gate()
    go.set()
    held._heart.join(10)
    database.dispose()


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


def test_a_text_of_any_language_is_kept_whatever_the_databases_own_character_set(
    mariadb_database: str,
) -> None:
    """MariaDB made its databases for latin1 up to version 11.5, and how a run ended was lost for one letter."""
    database = Database(mariadb_database)
    with database.engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE `{database.url.database}` CHARACTER SET latin1")
    initialise(database.engine, BOUND, adopt=False)
    ledger = SqlLedger(database.engine, "main")
    said = "нет места: € → 日本 🙂"
    ledger.begin(a_run())
    ledger.move("RUNA", RunState.FAILED, change=RunChange(reason=said))
    ledger.say(Notice(kind="pause", subject="purge", since=AT, who=said, reason=said))
    assert ledger.record("RUNA").reason == said
    assert [(n.who, n.reason) for n in ledger.notices("pause", "purge")] == [(said, said)]
    database.dispose()


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
