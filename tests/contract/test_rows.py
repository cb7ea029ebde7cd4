"""The contract of ``RowTarget`` on memory, SQLite and PostgreSQL, with and without the right to lock rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Engine,
    ForeignKey,
    Integer,
    MetaData,
    String,
    create_engine,
    delete,
    insert,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy import Table as SqlTable
from sqlalchemy.pool import NullPool

from safedelete.core.outcome import ItemOutcome, Outcome
from safedelete.declare import Rows, S3Keys, past
from safedelete.sql.engine import Database
from safedelete.sql.rows import SqlRows
from safedelete.testing.memory import MemoryDatabase, MemoryRow, MemoryRows, MemoryTable
from tests.contract.rows import BUCKET, RowTargetContract, Table
from tests.worlds import photo

ROLE = "runner_without_locks"


def memory(*, may_lock: bool) -> Table:
    table = MemoryTable(MemoryDatabase(), "uploads")

    def put(number: int, expires: datetime | None, key: str, parent: int | None) -> None:
        table.put(MemoryRow((number,), expires, (photo(key),)))
        if parent is not None:
            table.refusals[parent,] = ItemOutcome(
                Outcome.BLOCKED, "referenced", f"row {number} references it"
            )

    def lock(number: int) -> Callable[[], None]:
        table.lock((number,))
        return lambda: table.unlock((number,))

    return Table(
        target=MemoryRows(table, may_lock=may_lock),
        put=put,
        keep=lambda n: table.update((n,), kept=True),
        rename=lambda n, key: table.update((n,), objects=(photo(key),)),
        remove=lambda n: table.remove((n,)),
        lock=lock,
        numbers=lambda: {key[0] for key in table.rows},
        may_lock=may_lock,
    )


def in_sql(admin: Engine, database: Database, *, may_lock: bool = True) -> Table:
    metadata = MetaData()
    uploads = SqlTable(
        "uploads",
        metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("expires_at", DateTime(timezone=True), index=True),
        Column("kept", Boolean, nullable=False),
        Column("s3_key", String(200), index=True),
        Column("parent", ForeignKey("uploads.id"), index=True),
    )
    metadata.create_all(admin)
    if not may_lock:
        with admin.begin() as connection:
            connection.execute(text(f"GRANT SELECT, DELETE ON uploads TO {ROLE}"))
    declared = Rows(
        uploads, past(uploads.c.expires_at), uploads.c.kept.is_(False), owns=S3Keys(BUCKET, uploads.c.s3_key)
    )
    c = uploads.c

    def run(statement: object) -> None:
        with admin.begin() as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def put(number: int, expires: datetime | None, key: str, parent: int | None) -> None:
        run(insert(uploads).values(id=number, expires_at=expires, kept=False, s3_key=key, parent=parent))

    def lock(number: int) -> Callable[[], None]:
        connection = admin.connect()
        connection.begin()
        connection.execute(select(c.id).where(c.id == number).with_for_update())
        return connection.close

    def numbers() -> set[int]:
        with admin.connect() as connection:
            return set(connection.execute(select(c.id)).scalars())

    return Table(
        target=SqlRows(declared, database),
        put=put,
        keep=lambda n: run(update(uploads).where(c.id == n).values(kept=True)),
        rename=lambda n, key: run(update(uploads).where(c.id == n).values(s3_key=key)),
        remove=lambda n: run(delete(uploads).where(c.id == n)),
        lock=lock,
        numbers=numbers,
        locks_rows=admin.dialect.name != "sqlite",
        may_lock=may_lock,
    )


class TestMemory(RowTargetContract):
    @pytest.fixture
    def table(self) -> Table:
        return memory(may_lock=True)


class TestMemoryWithoutLocks(RowTargetContract):
    @pytest.fixture
    def table(self) -> Table:
        return memory(may_lock=False)


class TestSQLite(RowTargetContract):
    @pytest.fixture
    def table(self, sqlite_url: str) -> Iterator[Table]:
        admin = create_engine(sqlite_url, poolclass=NullPool)
        database = Database(sqlite_url, may_create=True)
        yield in_sql(admin, database)
        database.dispose()
        admin.dispose()


class TestPostgreSQL(RowTargetContract):
    @pytest.fixture
    def table(self, pg_database: str) -> Iterator[Table]:
        admin = create_engine(pg_database, poolclass=NullPool)
        database = Database(pg_database)
        yield in_sql(admin, database)
        database.dispose()
        admin.dispose()


class TestPostgreSQLWithoutLocks(RowTargetContract):
    @pytest.fixture
    def table(self, pg_database: str, postgres: object) -> Iterator[Table]:
        url = make_url(pg_database)
        superuser = make_url(str(postgres.superuser_url)).set(database=url.database)  # type: ignore[attr-defined]
        root = create_engine(superuser, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with root.connect() as connection:
            connection.execute(text(f"DROP ROLE IF EXISTS {ROLE}"))
            connection.execute(text(f"CREATE ROLE {ROLE} LOGIN"))
        admin = create_engine(pg_database, poolclass=NullPool)
        database = Database(url.set(username=ROLE, password=None))
        yield in_sql(admin, database, may_lock=False)
        database.dispose()
        admin.dispose()
        with root.connect() as connection:
            connection.execute(text(f"DROP OWNED BY {ROLE}"))
            connection.execute(text(f"DROP ROLE {ROLE}"))
        root.dispose()
