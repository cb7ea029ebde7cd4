"""``Lab``: a purge of yours in a world of its own, a scratch database, buckets in memory and a clock to move."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from sqlalchemy import (
    Engine,
    Executable,
    MetaData,
    Select,
    Table,
    create_engine,
    delete,
    event,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from safedelete.core.findings import never_acceptable
from safedelete.declare import Purge, Rows, S3Orphans
from safedelete.errors import ConfigError, RefusedError
from safedelete.ledger import tables as ledger_tables
from safedelete.ledger.setup import create, initialise
from safedelete.ledger.store import SqlLedger
from safedelete.locks import lease
from safedelete.ports import Binding
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.runner.context import PurgeContext
from safedelete.runner.report import Report
from safedelete.sql.engine import Database
from safedelete.testing.dates import Dated, LabClock
from safedelete.testing.memory.clock import START
from safedelete.testing.mortal import Mortal
from safedelete.testing.scratch import (
    by_column,
    columns_of,
    left_out,
    make_tables,
    metadata_of,
    url_of,
    versioned,
)
from safedelete.testing.strict_s3 import StrictS3
from safedelete.wiring.connect import buckets_of, context_of
from safedelete.wiring.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from safedelete.testing.scene import Scene

ENVIRONMENT: Final = "lab"


class Lab(Mortal):
    """Purges as they are declared, but in a scratch database, in buckets in memory, and at a date of the test's choice.

    What they would share with the world is left out: their database, clients and inventory, locks beside the lease, replicas,
    ``pause_when``, metrics, and whatever the environment says.

    Args:
        purges: The purges; each is asked about the objects that the others' rows own, as those of one job file are.
        metadata: Whose tables are made; those that the purges' tables belong to, unless given.
        url: Of an empty database, for types that SQLite has not; its tables are dropped in the end. None for SQLite.
        now: The first instant, aware.

    Attributes:
        engine: The scratch database, for code under test.
        client: An S3 client of the buckets, for code under test.
        store: The buckets, for the test: what is in them, and how they fail.
        clock: The date, for the test to move.

    Raises:
        ConfigError: The database given has one of these tables already, or one of safedelete's own; a table is in a
            schema, and no database was given; or a bucket is an access point.

    Example:
        >>> from examples.retention import Upload, uploads
        >>> with Lab(uploads) as lab:
        ...     lab.store.create_bucket("acme-uploads")
        ...     lab.add(Upload, id=1, expires_at=lab.clock.now(), legal_hold=False, s3_key="a.jpg")
        ...     lab.put("acme-uploads", "a.jpg")
        ...     lab.clock.advance(days=1)
        ...     report = lab.run(uploads)
        ...     report.total.deleted, lab.store.keys("acme-uploads")
        (1, set())
    """

    def __init__(
        self,
        *purges: Purge,
        metadata: MetaData | Sequence[MetaData] | None = None,
        url: str | None = None,
        now: datetime = START,
    ) -> None:
        self.clock = LabClock(now)
        super().__init__(StrictS3(now=self.clock.now, sleep=self.clock.sleep, record=False))
        self.declared = purges
        self.metadata = metadata_of(purges, metadata)
        self._url = url_of(url)
        self.left_out: Mapping[str, str] = {}
        self._folder = ""
        self._process: Database | None = None
        self._bound: dict[int, Purge] = {}

    # --- life ---

    def start(self) -> Self:
        """Make the database and its ledger, and take over this process's S3 clients."""
        if not self._url:
            self._folder = tempfile.mkdtemp(prefix="safedelete-lab-")
        self.url = self._url or f"sqlite:///{Path(self._folder) / 'lab.sqlite3'}"
        self.store.start()
        try:
            self.client: S3Client = self.store.client()
            self._hand, self.engine = self._connect(), self._connect()
            self._watch(self.engine)
            self._make()
            self.store.program = self._request
        except BaseException:
            self._close()
            raise
        return self

    def stop(self) -> None:
        """Forget all of it. Idempotent."""
        if not self.store.running:
            return
        self.revive()
        if self._url:
            for metadata in (*self.metadata, lease.metadata, ledger_tables.metadata):
                metadata.drop_all(self._hand)
        self._close()

    def _close(self) -> None:
        self._end()
        self.store.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _connect(self) -> Engine:
        engine = create_engine(self.url, poolclass=NullPool)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _foreign_keys)
        return engine

    def _make(self) -> None:
        self._want_nothing()
        point = next((bucket for bucket in buckets_of(self.declared) if bucket.startswith("arn:")), None)
        if point is not None:
            raise ConfigError(
                f"The lab's store has buckets, but no access points, and {point} is one. Nothing was deleted.",
                hint="Declare the bucket by its name where tests load the job file: S3Prefix(os.environ['UPLOADS'], ...).",
            )
        self.left_out = left_out(self._hand, self.metadata)
        make_tables(self._hand, self.metadata, self.left_out)
        for bucket in buckets_of(self.declared):
            self.store.create_bucket(bucket, versioned=bucket in versioned(self.declared))
        create(self._hand, lease.metadata)
        database = Database(self.url)
        try:
            found = Binding(ENVIRONMENT, frozenset({database.identity}), buckets_of(self.declared))
        finally:
            database.dispose()
        initialise(self._hand, found, adopt=False)

    def _want_nothing(self) -> None:
        """Raise unless no table that the lab would empty, and drop in the end, is there: its schema's, if it has one."""
        mine = [t for metadata in self.metadata for t in metadata.tables.values()]
        placed = next((t.fullname for t in mine if t.schema and not self._url), None)
        if placed is not None:
            raise ConfigError(
                f"The lab's own database is SQLite, which has no schemas, and {placed} is in one. Nothing was deleted.",
                hint="Give it an empty database of the kind you use, with that schema: url=.",
            )
        there = inspect(self._hand)
        every = (*mine, *lease.metadata.tables.values(), *ledger_tables.metadata.tables.values())
        found = next((t.fullname for t in every if there.has_table(t.name, schema=t.schema)), None)
        if found is not None:
            raise ConfigError(
                f"The database given to the lab has a table {found!r} already. Nothing was deleted.",
                hint="A lab fills and empties its tables: give it a database of its own.",
            )

    # --- what is in it ---

    def add(self, entity: Any, **values: Any) -> None:
        """Insert a row.

        Args:
            entity: A model or a table, or one object of a model.
            values: By column name, or by the model's attribute.

        Raises:
            ConfigError: A value is of no column, or the scratch database cannot have the table.
        """
        if hasattr(entity, "__table__") and not isinstance(entity, type):
            self.want([entity.__table__])
            with Session(self._hand) as session, session.begin():
                session.add(entity)
            return
        table: Table = entity if isinstance(entity, Table) else entity.__table__
        self.want([table])
        self.tell(insert(table).values(by_column(table, columns_of(entity, values))))

    def fill(self, scene: Scene) -> None:
        """Empty the lab and put in what ``rows_around`` has made: its rows and objects, at its instant.

        What happens to them during a run, ``scene.denied`` and ``scene.changes`` among it, is for the test to do.

        Args:
            scene: Made for a purge of this lab.
        """
        from safedelete.testing.scene import fill

        if scene.subject is None:
            raise ConfigError(
                "This scene was made by hand, and no purge says which objects its rows name.",
                hint="Draw it from rows_around(purge), or put its rows in by lab.add.",
            )
        fill(self, scene.subject, scene)

    def want(self, tables: Iterable[Table]) -> None:
        """Raise unless the scratch database has tables."""
        for table in tables:
            if table.fullname in self.left_out:
                raise ConfigError(
                    f"The lab's own database is SQLite, which cannot have {table.fullname}: {self.left_out[table.fullname]}. "
                    "Nothing was deleted.",
                    hint="Give it an empty database of the kind you use: url=, of a server of your CI's, or of "
                    "safedelete.testing.servers.Postgres.",
                )

    def rows(self, entity: Any) -> list[Mapping[str, Any]]:
        """Return a table's rows, ordered by primary key, each by column name."""
        table: Table = entity if isinstance(entity, Table) else entity.__table__
        self.want([table])
        found = self.ask(select(table).order_by(*table.primary_key.columns), {})
        names = [column.name for column in table.columns]
        return [dict(zip(names, row, strict=True)) for row in found]

    def ask(self, statement: Select[Any], values: Mapping[str, Any]) -> Sequence[Any]:
        """Return a SELECT's rows, whether the process is dead or not. Reads only."""
        with self._hand.connect() as connection:
            return connection.execute(statement, dict(values)).all()

    def tell(self, statement: Executable) -> None:
        """Carry a statement out, whether the process is dead or not."""
        with self._hand.begin() as connection:
            connection.execute(statement)

    def put(self, bucket: str, key: str, body: bytes = b"x", *, age: timedelta = timedelta(0)) -> None:
        """Store an object that was last written some time ago."""
        self.store.put(bucket, key, body, modified=self.clock.now() - age)

    def empty(self) -> None:
        """Remove every row and object, the ledger's runs and all faults; buckets and date stay."""
        if self._dead:
            self.revive()
        self.kill_at(None)
        self.store.empty()
        self.store.behave()
        self.store.program = self._request
        kept = [t for t in ledger_tables.metadata.sorted_tables if t is not ledger_tables.meta]
        every = [
            t for metadata in self.metadata for t in metadata.sorted_tables if t.fullname not in self.left_out
        ]
        with self._hand.begin() as connection:
            for table in (*reversed(every), *reversed(kept), lease.table):
                connection.execute(delete(table))

    # --- runs ---

    def bound(self, purge: Purge) -> Purge:
        """Return the purge as the lab runs it: the same targets, in the lab's database and buckets."""
        if id(purge) in self._bound:
            return self._bound[id(purge)]
        mine = copy(purge)
        mine.database, mine.lock, mine.pause_when = self.url, None, None
        mine.max_replication_lag, mine.replicas = None, ()
        mine.targets = tuple(self._target(target) for target in purge.targets)
        self._bound[id(purge)] = mine
        others = dict.fromkeys((*self.declared, *purge.beside))
        mine.beside = tuple(self.bound(other) for other in others if other is not purge)
        return mine

    def _target(self, target: Any) -> Any:
        mine = copy(target)
        if isinstance(target, Rows):
            mine.owns = tuple(copy(keys) for keys in target.owns)
            for keys in mine.owns:
                keys.client = self.client
        else:
            mine.client = self.client
            if not isinstance(target, S3Orphans):
                mine.inventory = None
        return mine

    @contextmanager
    def context(self, purge: Purge) -> Iterator[PurgeContext]:
        """Connect everything that one run of a purge needs, for tests that change a part of it."""
        settings = Settings(
            environment=ENVIRONMENT,
            database_url=None,
            ledger_url=None,
            revision="",
            lease_seconds=60.0,
            lock="lease",
            redis_url=None,
            file=None,
            metrics="",
            notify="",
        )
        if self._process is None:
            # Kept for the next run: a database that is opened anew has to make up its statements anew.
            self._process = database = Dated(self.url, self.clock)
            self._watch(database.engine)
        opened = self._process, SqlLedger(self._process.engine, self._process.identity)
        mine = self.bound(purge)
        with context_of(mine, settings=settings, clock=self.clock, connected=opened) as ctx:
            yield ctx

    def plan(self, purge: Purge) -> Report:
        """Count and decide. Reads only."""
        with self.context(purge) as ctx:
            return runner.plan(ctx)

    def run(self, purge: Purge, *, approve: bool = True, between: Callable[[], None] | None = None) -> Report:
        """Run a purge once. Deletes, in the lab.

        Args:
            purge: One of the lab's, or any other of the same tables and buckets.
            approve: Approve the plan where the guard refuses it for what a person may accept: a lab has few rows, and no
                history.
            between: Called after the plan was sealed and before it is executed.

        Raises:
            SafeDeleteError: Whatever stopped it.
        """
        with self.context(purge) as ctx:
            if between is None:
                try:
                    return runner.run(ctx)
                except RefusedError as refused:
                    if not approve or refused.run is None or never_acceptable(refused.findings):
                        raise
                    return self._execute(ctx, refused.run, refused=True)
            report = runner.save(ctx)
            between()
            refusing = report.decision is not None and report.exit_code != 0
            assert report.run is not None
            return self._execute(ctx, report.run, refused=refusing and approve)

    def _execute(self, ctx: PurgeContext, run: str, *, refused: bool) -> Report:
        if refused:
            review.approve(ctx.ledger, ctx.clock, run, reason="a lab", who=ENVIRONMENT)
        return runner.execute_sealed(ctx, run)

    # --- dying ---

    def revive(self) -> None:
        """Begin a new process, after the lease of the one that died has run out."""
        if self._process is not None:
            # Its connections end, as a server ends them; what SQLAlchemy has compiled is no part of any process here.
            self._process.dispose()
        self.kill_at(None)
        self.tell(update(lease.table).values(expires_ms=0))

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.dispose()


def _foreign_keys(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
