"""A database in trouble in the middle of a run: what can be tried again is, and the rest ends clearly and can be resumed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete import Purge, Rows, older_than
from safedelete.core.effort import CONTENDED, UNREACHED
from safedelete.errors import (
    IncompleteError,
    LedgerUnreachedError,
    NoSpaceError,
    SchemaChangedError,
    StoreError,
)
from safedelete.ledger.store import SqlLedger
from safedelete.sql import SqlRows
from safedelete.sql.batch import SqlRowTransaction
from safedelete.sql.failures import translated
from safedelete.testing.servers import Postgres
from tests.backends import started
from tests.e2e.nights import MovedClock, Nights, events
from tests.worlds import batches_of

DUE = 50
BATCH = 10
KEPT = 14
"""Days."""


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFEDELETE_ENVIRONMENT", "test")


class Unhurried(MovedClock):
    """Pauses are noted, and last a moment only."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.during: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.during()
        time.sleep(min(seconds, 0.02))


class Trouble(Nights):
    """Fifty rows that are due, in batches of ten."""

    clock: Unhurried

    def ready(self, **options: Any) -> Any:
        self.fill(days=KEPT + 1, each=DUE)
        return self.init(self.purge(days=KEPT, **options))

    def due(self) -> int:
        return self.rows() - KEPT * DUE

    def states(self, purge: Any) -> list[str]:
        with self.ledger(purge) as ledger:
            (run, *_) = ledger.runs("events", limit=1)
            return [stored.state.value for stored in ledger.batches(run.run)]

    @contextmanager
    def ledger(self, purge: Any) -> Iterator[SqlLedger]:
        from safedelete.wiring.connect import context_of

        with context_of(purge, clock=self.clock) as ctx:
            assert isinstance(ctx.ledger, SqlLedger)
            yield ctx.ledger


@pytest.fixture
def pg(pg_database: str) -> Trouble:
    return Trouble(pg_database, Unhurried())


@pytest.fixture
def maria(mariadb_database: str) -> Trouble:
    return Trouble(mariadb_database, Unhurried())


@pytest.fixture
def sqlite(sqlite_url: str) -> Trouble:
    return Trouble(sqlite_url, Unhurried())


@pytest.fixture(params=["pg", "maria", "sqlite"])
def trouble(request: pytest.FixtureRequest) -> Trouble:
    found: Trouble = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def private() -> Iterator[Postgres]:
    """A server of our own, to be crashed."""
    with started(Postgres) as server:
        yield server


@contextmanager
def at_batch(
    number: int, act: Callable[[SqlRowTransaction], None], *, always: bool = False
) -> Iterator[None]:
    """Act when the nth batch has begun; with ``always`` at every try after it as well."""
    real = SqlRows.begin
    seen = 0

    def begin(self: SqlRows, as_of: datetime) -> SqlRowTransaction:
        nonlocal seen
        seen += 1
        transaction = real(self, as_of)
        if seen == number or (always and seen > number):
            act(transaction)
        return transaction

    with batches_of(BATCH), mock.patch.object(SqlRows, "begin", begin):
        yield


def kill_backend(transaction: SqlRowTransaction) -> None:
    """Kill the batch's server process with a signal: the whole server restarts, as after a crash."""
    os.kill(transaction.connection.connection.driver_connection.info.backend_pid, signal.SIGKILL)  # type: ignore[union-attr]


# --- what passes


def test_a_server_that_crashes_and_comes_back_is_connected_to_again(private: Postgres) -> None:
    trouble = Trouble(private.create_database(), Unhurried())
    purge = trouble.ready()
    trouble.clock.during = lambda: time.sleep(0.1)
    with at_batch(3, kill_backend):
        report = trouble.run(purge)
    assert report.total.deleted == DUE
    assert trouble.due() == 0
    assert trouble.clock.slept


def test_a_server_that_stays_away_ends_the_run_and_the_next_one_goes_on(private: Postgres) -> None:
    url = private.create_database()
    name = sa.make_url(url).database
    trouble = Trouble(url, Unhurried())
    purge = trouble.ready()
    admin = sa.create_engine(private.superuser_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")

    def leave(_: SqlRowTransaction) -> None:
        with admin.connect() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )

    with at_batch(3, leave), pytest.raises(LedgerUnreachedError, match="connection failed"):
        trouble.run(purge)
    with admin.connect() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    trouble.sql(
        "UPDATE safedelete_lease SET expires_ms = 0"
    )  # it could not be given back; as if its time had passed
    assert sum(trouble.clock.slept) == pytest.approx(
        sum(UNREACHED.pause(failed, 0) for failed in range(1, UNREACHED.attempts)), rel=0.6
    )
    assert trouble.due() == DUE - 2 * BATCH
    with batches_of(BATCH):
        report = trouble.run(purge)
    assert report.resumed
    assert report.total.deleted == DUE
    assert trouble.due() == 0


def test_a_connection_that_is_killed_is_replaced(maria: Trouble) -> None:
    purge = maria.ready()

    def kill(transaction: SqlRowTransaction) -> None:
        thread = transaction.connection.connection.driver_connection.thread_id()  # type: ignore[union-attr]
        maria.sql(f"KILL CONNECTION {thread}")

    with at_batch(3, kill):
        assert maria.run(purge).total.deleted == DUE
    assert maria.due() == 0


PASSING = {
    "pg": ("40P01", "40001", "55P03", "57014"),
    "maria": ("1213", "1205", "1020", "1969"),
}


def fails(trouble: Trouble, code: str, times: int) -> None:
    """Have the delete of one row fail some times with a code; the count outlives the transactions it fails in."""
    trouble.sql("CREATE SEQUENCE tries")
    if trouble.engine.dialect.name == "postgresql":
        trouble.sql(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF old.id = 25 AND "
            f"nextval('tries') <= {times} THEN RAISE EXCEPTION 'made up' USING ERRCODE = '{code}'; END IF; RETURN old; END $$"
        )
        trouble.sql("CREATE TRIGGER fail BEFORE DELETE ON events FOR EACH ROW EXECUTE FUNCTION fail()")
        return
    trouble.sql(
        "CREATE TRIGGER fail BEFORE DELETE ON events FOR EACH ROW BEGIN IF old.id = 25 AND "
        f"NEXTVAL(tries) <= {times} THEN SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'made up'; END IF; END"
    )


def tries(trouble: Trouble) -> int:
    with trouble.engine.connect() as connection:
        kind = "last_value" if trouble.engine.dialect.name == "postgresql" else "next_not_cached_value"
        if kind == "last_value":
            return int(connection.exec_driver_sql("SELECT last_value FROM tries").scalar_one())
        return int(connection.exec_driver_sql("SELECT NEXTVAL(tries)").scalar_one()) - 1


@pytest.mark.parametrize(
    ("kind", "code"), [(kind, code) for kind, codes in PASSING.items() for code in codes]
)
def test_a_deadlock_a_conflict_or_a_timeout_is_tried_again(
    request: pytest.FixtureRequest, kind: str, code: str
) -> None:
    trouble: Trouble = request.getfixturevalue(kind)
    purge = trouble.ready()
    fails(trouble, code, 1)
    with batches_of(BATCH):
        report = trouble.run(purge)
    assert report.total.deleted == DUE
    assert trouble.due() == 0


def deadlocks(maria: Trouble) -> int:
    with maria.engine.connect() as connection:
        return int(connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").one()[1])


def test_a_deadlock_with_another_session_is_tried_again(maria: Trouble) -> None:
    """The other session holds a child that the batch's cascade wants, and then wants a row that the batch holds."""
    purge = maria.ready()
    maria.sql(
        "CREATE TABLE notes (id int PRIMARY KEY, event_id bigint NOT NULL, body varchar(20),"
        " FOREIGN KEY (event_id) REFERENCES events (id) ON DELETE CASCADE)"
    )
    maria.sql("INSERT INTO notes SELECT seq, seq, 'x' FROM seq_1_to_200")
    maria.sql("CREATE TABLE ballast (id int PRIMARY KEY)")
    # It gives up by itself, whatever happens.
    other = sa.create_engine(maria.url, poolclass=NullPool, connect_args={"read_timeout": 30})
    failures: list[BaseException] = []
    threads: list[threading.Thread] = []

    def get_in_the_way(_: SqlRowTransaction) -> None:
        connection = other.connect()
        connection.begin()
        # The one with less to undo is the victim: that has to be the batch.
        connection.exec_driver_sql("INSERT INTO ballast SELECT seq FROM seq_1_to_2000")
        connection.exec_driver_sql("UPDATE notes SET body = 'y' WHERE id = 25")
        threads.append(threading.Thread(target=then_want_more, args=(connection,)))
        threads[-1].start()

    def then_want_more(connection: sa.Connection) -> None:
        try:
            with connection, other.connect() as looking:
                end = time.monotonic() + 20
                # Not from innodb_trx, which asks for PROCESS.
                waiting = (
                    "SELECT count(*) FROM information_schema.processlist"
                    " WHERE info LIKE 'DELETE FROM events%%' AND time_ms > 200"
                )
                while not looking.exec_driver_sql(waiting).scalar_one():
                    assert time.monotonic() < end, "the batch never waited for the child"
                    time.sleep(0.01)
                connection.exec_driver_sql("SELECT id FROM events WHERE id = 21 FOR UPDATE")
                connection.commit()
        except BaseException as error:
            failures.append(error)

    before = deadlocks(maria)
    with at_batch(3, get_in_the_way):
        report = maria.run(purge)
    threads[0].join()
    other.dispose()
    assert failures == []
    assert report.total.deleted == DUE
    assert maria.due() == 0
    assert deadlocks(maria) == before + 1


def test_a_conflict_that_does_not_pass_ends_after_a_bounded_number_of_tries(maria: Trouble) -> None:
    purge = maria.ready()
    fails(maria, "1213", 1000)
    with batches_of(BATCH), pytest.raises(StoreError, match="made up"):
        maria.run(purge)
    assert tries(maria) == CONTENDED.attempts
    assert maria.due() == DUE - 2 * BATCH
    maria.sql("DROP TRIGGER fail")
    with batches_of(BATCH):
        assert maria.run(purge).resumed
    assert maria.due() == 0


# --- what does not pass


FULL = {"pg": "53100", "maria": "1021"}


@pytest.mark.parametrize("kind", FULL)
def test_a_full_disk_ends_the_run_at_once_and_can_be_resumed(
    request: pytest.FixtureRequest, kind: str
) -> None:
    trouble: Trouble = request.getfixturevalue(kind)
    purge = trouble.ready()
    fails(trouble, FULL[kind], 1)
    with batches_of(BATCH), pytest.raises(NoSpaceError, match="made up") as full:
        trouble.run(purge)
    assert "Make room" in full.value.hint
    assert full.value.deleted == 2 * BATCH
    assert tries(trouble) == 1
    with batches_of(BATCH):
        assert trouble.run(purge).resumed
    assert trouble.due() == 0


def test_a_full_sqlite_file_ends_the_run_at_once_and_can_be_resumed(sqlite: Trouble) -> None:
    sqlite.sql("CREATE TABLE junk (x)")
    sqlite.sql(
        "CREATE TRIGGER big AFTER DELETE ON events BEGIN INSERT INTO junk VALUES (zeroblob(100000)); END"
    )
    sqlite.fill(days=KEPT + 1, each=DUE)
    rows = Rows(events, older_than(events.c.created_at, days=KEPT), may_touch=["junk"])
    every_day = {"schedule": "rate(1 day)", "timeout": timedelta(minutes=5)}
    purge = sqlite.init(Purge("events", rows, database=sqlite.url, **every_day))

    def fill(transaction: SqlRowTransaction) -> None:
        pages = transaction.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        transaction.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with at_batch(3, fill), pytest.raises(NoSpaceError, match="full"):
        sqlite.run(purge)
    assert sqlite.due() == DUE - 2 * BATCH
    with batches_of(BATCH):
        assert sqlite.run(purge).resumed
    assert sqlite.due() == 0


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("kind", ["pg", "maria"])
def test_a_statement_killed_in_batch_three_of_five(
    request: pytest.FixtureRequest, kind: str, always: bool
) -> None:
    """Killed once it is tried again; killed each time it leaves two batches done, and the run can be resumed."""
    trouble: Trouble = request.getfixturevalue(kind)
    purge = trouble.ready()
    real = SqlRowTransaction.hold

    def hold(self: SqlRowTransaction, rows: Any) -> Any:
        if getattr(self, "to_be_killed", False):
            itself = (
                "SELECT pg_cancel_backend(pg_backend_pid())" if kind == "pg" else "KILL QUERY CONNECTION_ID()"
            )
            with translated("holding rows"):
                self.connection.exec_driver_sql(itself)
        return real(self, rows)

    def mark(transaction: SqlRowTransaction) -> None:
        vars(transaction)["to_be_killed"] = True

    with mock.patch.object(SqlRowTransaction, "hold", hold), at_batch(3, mark, always=always):
        if not always:
            assert trouble.run(purge).total.deleted == DUE
            return
        with pytest.raises(StoreError):
            trouble.run(purge)
    assert trouble.states(purge) == ["done", "done", "in_doubt", "sealed", "sealed"]
    assert trouble.due() == DUE - 2 * BATCH
    with batches_of(BATCH):
        report = trouble.run(purge)
    assert report.resumed
    assert report.total.deleted == DUE
    assert trouble.due() == 0


# --- a schema that changes between plan and execution

CHANGES = {
    "column dropped": "ALTER TABLE events DROP COLUMN created_at",
    "table renamed": "ALTER TABLE events RENAME TO events_old",
    "table dropped": "DROP TABLE events",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_schema_that_changed_after_the_plan_deletes_nothing(trouble: Trouble, change: str) -> None:
    purge = trouble.ready()

    def alter(transaction: SqlRowTransaction) -> None:
        transaction.connection.rollback()
        if trouble.engine.dialect.name == "sqlite" and "COLUMN" in CHANGES[change]:
            trouble.sql("DROP INDEX ix_events_created_at")
        trouble.sql(CHANGES[change])
        transaction.connection.begin()

    with at_batch(1, alter), pytest.raises(SchemaChangedError, match=r"events|created_at") as changed:
        trouble.run(purge)
    assert "plan again" in changed.value.hint
    assert changed.value.deleted == 0


@pytest.mark.parametrize("column", ["created_at", "id"])
def test_a_column_whose_type_changes_during_the_run_deletes_nothing(pg: Trouble, column: str) -> None:
    purge = pg.ready()

    def alter(transaction: SqlRowTransaction) -> None:
        transaction.connection.rollback()
        pg.sql(f"ALTER TABLE events ALTER COLUMN {column} TYPE text")
        transaction.connection.begin()

    with at_batch(1, alter), pytest.raises(SchemaChangedError) as changed:
        pg.run(purge)
    assert changed.value.deleted == 0
    assert pg.due() == DUE


# --- what a purge declares


def test_a_declared_reason_pauses_the_run_and_a_lag_is_asked_for(pg: Trouble) -> None:
    asked: list[int] = []

    def reason() -> str | None:
        asked.append(pg.due())
        return "a backup runs" if len(asked) < 3 else None

    purge = pg.ready(pause_when=reason)
    assert pg.run(purge).total.deleted == DUE
    assert asked[:3] == [DUE] * 3
    assert sum(pg.clock.slept) >= 2


def test_a_run_whose_replicas_cannot_be_asked_stops_and_the_next_one_goes_on(pg: Trouble) -> None:
    purge = pg.ready(max_replication_lag=timedelta(seconds=5))
    with (
        mock.patch("safedelete.phases.pause.UNASKED", 0.05),
        pytest.raises(IncompleteError, match="No replica is connected"),
    ):
        pg.run(purge)
    assert pg.due() == DUE
    assert pg.run(pg.purge(days=KEPT)).total.deleted == DUE
