"""Random schemas, purges, writers and kills: nothing goes that was not sealed, and everything is accounted for.

A whole purge runs on a real database, with its objects in memory. At any of its calls a writer may change rows, or the process
may die; the next run goes on from what is left.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from sqlalchemy.pool import NullPool

from safedelete import Guard, Rows, S3Keys, past
from safedelete.core.item import ObjectRef
from safedelete.core.outcome import DANGLING, Outcome, Tally
from safedelete.core.run import RunState
from safedelete.core.seal import RowBatch
from safedelete.errors import ConfigError, RefusedError, SafeDeleteError
from safedelete.ledger.setup import initialise
from safedelete.ledger.store import SqlLedger
from safedelete.phases.parts import RowPart, quiet
from safedelete.ports import Binding
from safedelete.runner import purge, review
from safedelete.runner.context import PurgeContext, Setting
from safedelete.runner.report import Report
from safedelete.runner.stop import deadline, nobody
from safedelete.sql import Database, SqlRows, Timeouts
from safedelete.sql.batch import SqlRowTransaction
from safedelete.testing.memory import (
    Call,
    Killed,
    ManualClock,
    MemoryDatabase,
    MemoryLock,
    MemoryObjects,
    Watch,
)
from safedelete.testing.servers import Postgres
from tests.backends import GivenDatabase
from tests.worlds import batches_of, on

BUCKET = "acme-things"
JOB = "things"
TABLES = ("t0", "t1", "t2")
ROWS = 7
FINAL = frozenset(
    {RunState.SUCCEEDED, RunState.INCOMPLETE, RunState.FAILED, RunState.ABANDONED, RunState.REFUSED}
)

edges = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.integers(0, 2),
        st.sampled_from(("CASCADE", "SET NULL", "NO ACTION", "RESTRICT")),
    ),
    max_size=4,
    unique_by=lambda edge: edge[:2],
)
changes = st.tuples(
    st.sampled_from(("renew", "renew", "age", "rename", "remove", "insert", "child", "unlink")),
    st.sampled_from((1, 3, 5, 7, 2, 4, 6, 101, 102)),
)
CALLS = (
    "rows.begin",
    "batch.hold",
    "batch.delete",
    "ledger.settle",
    "batch.commit",
    "ledger.seal",
    "ledger.doubt",
)
moments = st.tuples(
    # Between the two stores is where it matters most.
    st.sampled_from([*CALLS, *["objects.request"] * 4, *["lease.pin"] * 2]),
    st.sampled_from(("before", "after")),
    st.integers(1, 2),
)
"""A call, whether it has been made, and which of its kind."""


class MortalRows(SqlRows):
    """Rows whose open transaction ends with the process."""

    def begin(self, as_of: datetime) -> SqlRowTransaction:
        transaction = super().begin(as_of)
        vars(transaction)["disconnect"] = transaction.rollback
        return transaction


class Things(RuleBasedStateMachine):
    """One table whose rows own objects, two that reference it and each other, and whoever works on them."""

    make: ClassVar[Callable[[], tuple[str, Callable[[], None]]]]

    @initialize(schema=edges, links=st.lists(st.none() | st.integers(1, ROWS), min_size=56, max_size=56))
    def begin(self, schema: list[tuple[int, int, str]], links: list[int | None]) -> None:
        url, self.drop = type(self).make()
        quick = {"timeout": 0} if url.startswith("sqlite") else {}
        self.engine = sa.create_engine(url, poolclass=NullPool, connect_args=quick)
        self.database = Database(url, timeouts=Timeouts(lock=timedelta(milliseconds=50)))
        self.clock, self.objects = ManualClock(), MemoryObjects(chunk=2)
        self.leases = MemoryDatabase("leases")
        self.runs = 0
        self.numbers = 100
        self.by_others: set[int] = set()
        self.orphaned: set[str] = set()
        self.parents = {i: [f"f{p}" for c, p, _ in schema if c == i] for i in range(3)}
        feed = iter(links)
        later: list[str] = []
        with self.engine.begin() as connection:
            for i, name in enumerate(TABLES):
                own = ["id INTEGER PRIMARY KEY"] + (["at TIMESTAMP", "s3_key VARCHAR(99)"] if i == 0 else [])
                foreign = [f"f{p} INTEGER" for c, p, _ in schema if c == i]
                keys = [
                    f"FOREIGN KEY (f{p}) REFERENCES t{p} (id) ON DELETE {a}" for c, p, a in schema if c == i
                ]
                # SQLite cannot add a foreign key later, and PostgreSQL cannot name a table that is not there yet.
                within = keys if quick else []
                later += [f"ALTER TABLE {name} ADD {key}" for key in keys if not quick]
                connection.exec_driver_sql(f"CREATE TABLE {name} ({', '.join([*own, *foreign, *within])})")
            for row in range(1, ROWS + 1):
                self._add(connection, row, due=row % 2 == 1)
            for i in (1, 2):
                for row in range(1, ROWS + 1):
                    # A row that references itself or another of its table does so to an earlier one.
                    cells = [
                        row,
                        *(_earlier(row, next(feed)) if f == f"f{i}" else next(feed) for f in self.parents[i]),
                    ]
                    shown = ", ".join("NULL" if cell is None else str(cell) for cell in cells)
                    connection.exec_driver_sql(f"INSERT INTO t{i} VALUES ({shown})")
            for statement in later:
                connection.exec_driver_sql(statement)
        things = sa.Table(
            "t0",
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("at", sa.DateTime),
            sa.Column("s3_key", sa.String(99)),
        )
        self.rows = Rows(
            things,
            past(things.c.at),
            owns=S3Keys(BUCKET, things.c.s3_key, shared=False),
            allow_unindexed_fk=True,
        )
        self.ledger = SqlLedger(self.database.engine, self.database.identity)
        self.binding = Binding("test", frozenset({self.database.identity}), frozenset({BUCKET}))
        initialise(self.database.engine, self.binding, adopt=False)

    # --- the application

    def _add(self, connection: sa.Connection, number: int, *, due: bool) -> None:
        at = self.clock.now().replace(tzinfo=None) + timedelta(days=-3 if due else 3)
        self.objects.put(BUCKET, f"k{number}")
        statement = sa.text("INSERT INTO t0 (id, at, s3_key) VALUES (:id, :at, :key)")
        connection.execute(statement, {"id": number, "at": str(at), "key": f"k{number}"})

    def _write(self, change: tuple[str, int]) -> None:
        """Change something as an application would; what a lock keeps it from doing, it leaves."""
        kind, number = change
        now = self.clock.now().replace(tzinfo=None)
        with suppress(sa.exc.DBAPIError), self.engine.begin() as connection:
            if self.engine.dialect.name == "postgresql":
                connection.exec_driver_sql("SET LOCAL lock_timeout = '30ms'")
            else:
                connection.exec_driver_sql("PRAGMA foreign_keys = ON")
            if kind == "insert":
                self.numbers += 1
                self._add(connection, self.numbers, due=number % 2 == 0)
            elif kind in ("renew", "age"):
                at = now + timedelta(days=30 if kind == "renew" else -30)
                connection.exec_driver_sql(f"UPDATE t0 SET at = '{at}' WHERE id = {number}")
            elif kind == "rename":
                self.numbers += 1
                self.objects.put(BUCKET, f"k{self.numbers}")
                done = connection.exec_driver_sql(
                    f"UPDATE t0 SET s3_key = 'k{self.numbers}' WHERE id = {number}"
                )
                self.orphaned |= {f"k{number}"} if done.rowcount else {f"k{self.numbers}"}
            elif kind == "remove":
                connection.exec_driver_sql(f"DELETE FROM t0 WHERE id = {number}")
                self.by_others.add(number)
                self.orphaned.add(f"k{number}")
            elif kind == "child" and self.parents[1]:
                column = self.parents[1][0]
                connection.exec_driver_sql(
                    f"UPDATE t1 SET {column} = {number} WHERE id = {1 + number % ROWS}"
                )
            elif kind == "unlink" and self.parents[2]:
                connection.exec_driver_sql(f"UPDATE t2 SET {self.parents[2][0]} = NULL WHERE id = {number}")

    @rule(several=st.lists(changes, min_size=1, max_size=3), hours=st.integers(0, 60))
    def work(self, several: list[tuple[str, int]], hours: int) -> None:
        """The application works between two runs, and time passes; later rows become due."""
        for change in several:
            self._write(change)
        self.clock.advance(3600 * hours)

    # --- the purge

    def _context(self, at: Callable[[Call], None]) -> PurgeContext:
        watch = Watch(at)
        self.runs += 1
        rows = MortalRows(self.rows, self.database)
        store = watch.over("objects", self.objects.seen_by(watch.request))
        return PurgeContext(
            job=JOB,
            fingerprint="f1",
            guard=Guard(),
            portion=None,
            max_sealed=10_000,
            resume_within=timedelta(hours=24),
            parts=[RowPart(watch.over("rows", rows), store, missing_ok=True)],
            ledger=watch.over("ledger", self.ledger),
            lock=watch.over("lock", MemoryLock(self.leases, self.clock)),
            clock=self.clock,
            new_run=lambda: f"RUN{self.runs:05}",
            setting=Setting(
                environment="test",
                database="main",
                caller="role",
                owner=f"host:{self.runs}",
                binding=self.binding,
            ),
            stop=deadline(self.clock, timedelta(hours=1), timedelta(seconds=30), nobody),
            progress=quiet,
        )

    def _purge(self, at: Callable[[Call], None]) -> Report | None:
        """Run, and approve what the guard wants to have seen; None where it stays refused."""
        ctx = self._context(at)
        try:
            return purge.run(ctx)
        except RefusedError as refused:
            run = refused.run
        except ConfigError:
            return None  # a cascade into the rows of the purge itself
        with suppress(RefusedError):
            assert run is not None
            review.approve(
                self.ledger,
                self.clock,
                run,
                reason="seen",
                who="ann",
                expires_in=timedelta(hours=1),
                teaches=1,
            )
            return purge.execute_sealed(self._context(at), run)
        return None

    @rule(change=changes, when=moments)
    def run_beside_a_writer(self, change: tuple[str, int], when: tuple[str, str, int]) -> None:
        """A whole run, with one change at any moment."""

        at = _once(when, lambda: self._write(change))

        self.clock.advance(120)
        with suppress(SafeDeleteError), batches_of(2):
            report = self._purge(at)
            if report is not None:
                self._accounted(report)
        self._true()

    @rule(nth=st.integers(1, 2), number=st.sampled_from((1, 3, 5, 7)))
    def run_killed_between_the_stores(self, nth: int, number: int) -> None:
        """The process dies when objects are gone and their rows are not, and one of those rows comes back to life."""
        self.run_killed(("objects.request", "after", nth), ("renew", number))

    @rule(when=moments, change=changes)
    def run_killed(self, when: tuple[str, str, int], change: tuple[str, int]) -> None:
        """A run that dies at any moment; somebody changes something, and the next run goes on."""

        at = _once(when, _die)

        self.clock.advance(120)
        with suppress(SafeDeleteError, Killed), batches_of(2):
            self._purge(at)
        self._write(change)
        self._true()
        self.run_beside_a_writer(("none", 0), when)

    # --- what has to hold

    def _true(self) -> None:
        """After any call: what is gone was sealed, and a row that was purged left no object."""
        with self.engine.connect() as connection:
            there = {row.id: row.s3_key for row in connection.execute(sa.text("SELECT id, s3_key FROM t0"))}
        sealed: set[int] = set()
        dangling: set[int] = set()
        unsettled: set[int] = set()
        for record in self.ledger.runs(JOB, limit=1000):
            for stored in self.ledger.batches(record.run):
                assert isinstance(stored.items, RowBatch)
                keys = [row.key[0] for row in stored.items.rows]
                sealed |= set(keys)
                dangling |= {keys[i] for i, o in stored.outcomes.items() if o.code == DANGLING}
                if record.state not in FINAL:
                    unsettled |= set(keys)
        every = set(range(1, ROWS + 1)) | set(range(101, self.numbers + 1))
        made = {n for n in every if self.objects.holds(ObjectRef(BUCKET, f"k{n}")) or n <= ROWS}
        gone = {n for n in made if n not in there and f"k{n}" not in there.values()} - self.by_others
        purged = {n for n in gone if n in sealed}
        assert {n for n in gone if n <= ROWS} <= sealed, "only what was sealed goes"
        for number in purged - unsettled:
            if f"k{number}" not in self.orphaned:
                assert not self.objects.holds(ObjectRef(BUCKET, f"k{number}")), (
                    "no object stays behind its row"
                )
        for number, key in there.items():
            if not self.objects.holds(ObjectRef(BUCKET, key)):
                assert number in dangling | unsettled, (
                    "a row that lost its object is told of, or still in doubt"
                )

    def _accounted(self, report: Report) -> None:
        if report.plan is None or report.state is RunState.REFUSED:
            return
        total = sum(report.tally.values(), Tally())
        assert total.total == sum(self.ledger.sealed(str(report.run)).values())
        for stored in self.ledger.batches(str(report.run)):
            states = Tally.of(stored.outcomes.values())
            assert states.total + len(stored.pending) <= len(stored.items)
            assert Outcome.DELETED not in {o.state for o in stored.outcomes.values()}

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.database.dispose()
            self.engine.dispose()
            self.drop()


def _once(when: tuple[str, str, int], act: Callable[[], None]) -> Callable[[Call], None]:
    name, moment, nth = when
    return on(name, act, nth=nth, moment=moment)


def _die() -> None:
    raise Killed


def _earlier(row: int, link: int | None) -> int | None:
    return None if link is None or link >= row else link


LOOKING = settings(
    stateful_step_count=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A failure is printed with its steps as they were found: to shrink them takes minutes of whole runs.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    print_blob=True,
)


def test_random_purges_on_sqlite() -> None:
    def make() -> tuple[str, Callable[[], None]]:
        folder = tempfile.TemporaryDirectory()
        return f"sqlite:///{Path(folder.name) / 'x.db'}", folder.cleanup

    class OnSQLite(Things):
        pass

    OnSQLite.make = staticmethod(make)
    run_state_machine_as_test(OnSQLite, settings=settings(LOOKING, max_examples=12))


@pytest.mark.skipif(
    os.environ.get("CI") != "true", reason="the SQLite machine runs the same rules; CI runs both"
)
def test_random_purges_on_postgres(postgres: Postgres | GivenDatabase) -> None:
    def make() -> tuple[str, Callable[[], None]]:
        url: Any = sa.make_url(postgres.create_database())
        return url.render_as_string(hide_password=False), lambda: postgres.drop_database(url.database)

    class OnPostgres(Things):
        pass

    OnPostgres.make = staticmethod(make)
    run_state_machine_as_test(OnPostgres, settings=settings(LOOKING, max_examples=5))
