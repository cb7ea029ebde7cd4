"""Tables to be purged, and physical copies of them: every trial starts from identical pages, however often it is made."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from safedelete.testing.servers import MariaDB, Postgres

TABLE: Final = "items"
DAYS: Final = 200
"""Age of the oldest row; the younger half of the table is less than a tenth of that."""


SPAN: Final = 1_000_000
"""Seconds over which each half lies, however many rows it has: less than its age."""

PAYLOAD: Final = 200


class Copies(Protocol):
    """A server with tables of each shape, and copies of them."""

    def make(self, shape: str, rows: int) -> None:
        """Make and fill the table of one shape; half of its rows are old."""

    def copy(self, shape: str) -> Any:
        """Return a context with the URL of a database that holds a fresh copy."""


def statement(url: str, *statements: str) -> None:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for one in statements:
            connection.execute(text(one.replace(":", r"\:")))


# The old half comes first and a second apart; ids follow time, as they mostly do. Composite and UUID keys do not.
KEYS: Final = {
    "postgresql": {
        "integer": ("id bigint PRIMARY KEY", "n"),
        "composite": ("tenant int, number bigint, PRIMARY KEY (tenant, number)", "n % 97, n"),
        "uuid": ("id uuid PRIMARY KEY", "md5(n::text)::uuid"),
    },
    "mysql": {
        "integer": ("id bigint PRIMARY KEY", "n"),
        "composite": ("tenant int, number bigint, PRIMARY KEY (tenant, number)", "n % 97, n"),
    },
    "sqlite": {
        "integer": ("id INTEGER PRIMARY KEY", "n"),
    },
}


class PostgresCopies:
    """Copies by ``CREATE DATABASE … TEMPLATE``, which copies files."""

    def __init__(self, server: Postgres) -> None:
        self.server = server

    def make(self, shape: str, rows: int) -> None:
        key, value = KEYS["postgresql"][shape]
        url = self.server.create_database(f"base_{shape}")
        half = rows // 2
        statement(
            url,
            f"CREATE TABLE {TABLE} ({_columns(key)}, created_at timestamptz NOT NULL, customer int NOT NULL,"
            f" payload text NOT NULL, s3_key text NOT NULL{_constraint(key)})",
            f"INSERT INTO {TABLE} SELECT {value}, CASE WHEN n <= {half}"
            f" THEN now() - interval '{DAYS} days' + n * interval '1 second'"
            f" ELSE now() - interval '15 days' + (n - {half}) * interval '1 second' END,"
            f" (n * 7919) % 50021, repeat('x', {PAYLOAD}), 'uploads/' || n || '.jpg'"
            f" FROM generate_series(1::bigint, {rows}) AS n",
            f"CREATE INDEX items_created_at ON {TABLE} (created_at)",
            f"CREATE INDEX items_customer ON {TABLE} (customer)",
        )
        statement(_superuser(self.server, url), f"VACUUM ANALYZE {TABLE}", "CHECKPOINT")

    @contextmanager
    def copy(self, shape: str) -> Iterator[str]:
        name = f"copy_{secrets.token_hex(6)}"
        owner = make_url(self.server.url).username
        statement(
            self.server.superuser_url,
            f"CREATE DATABASE {name} TEMPLATE base_{shape} OWNER {owner} STRATEGY file_copy"
            if self._chooses()
            else f"CREATE DATABASE {name} TEMPLATE base_{shape} OWNER {owner}",
            "CHECKPOINT",
        )
        try:
            yield self.server.database_url(name)
        finally:
            self.server.drop_database(name)

    def _chooses(self) -> bool:
        engine = create_engine(self.server.url, poolclass=NullPool)
        with engine.connect() as connection:
            return int(connection.execute(text("SHOW server_version_num")).scalar_one()) >= 150_000


class MariaDBCopies:
    """Copies by exchanging the table's file."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        self.ddl: dict[str, str] = {}

    def make(self, shape: str, rows: int) -> None:
        key, value = KEYS["mysql"][shape]
        half = rows // 2
        self.ddl[shape] = (
            f"CREATE TABLE {TABLE} ({_columns(key)}, created_at datetime NOT NULL, customer int NOT NULL,"
            f" payload varchar({PAYLOAD}) NOT NULL, s3_key varchar(100) NOT NULL{_constraint(key)},"
            " KEY items_created_at (created_at), KEY items_customer (customer))"
        )
        url = self.server.create_database(f"base_{shape}")
        statement(
            url,
            self.ddl[shape],
            f"INSERT INTO {TABLE} SELECT {value.replace('n', 'seq')}, CASE WHEN seq <= {half}"
            f" THEN utc_timestamp() - interval {DAYS} day + interval seq second"
            f" ELSE utc_timestamp() - interval 15 day + interval (seq - {half}) second END,"
            f" (seq * 7919) % 50021, repeat('x', {PAYLOAD}), concat('uploads/', seq, '.jpg')"
            f" FROM seq_1_to_{rows}",
        )
        kept = self.server.folder / f"kept_{shape}"
        kept.mkdir()
        engine = create_engine(url.replace(_user(url), _user(self.server.superuser_url)), poolclass=NullPool)
        with engine.connect() as connection:
            connection.execute(text(f"FLUSH TABLES {TABLE} FOR EXPORT"))
            for suffix in ("ibd", "cfg"):
                shutil.copyfile(self._file(f"base_{shape}", suffix), kept / f"{TABLE}.{suffix}")
            connection.execute(text("UNLOCK TABLES"))

    @contextmanager
    def copy(self, shape: str) -> Iterator[str]:
        name = f"copy_{secrets.token_hex(6)}"
        url = self.server.create_database(name)
        statement(url, self.ddl[shape], f"ALTER TABLE {TABLE} DISCARD TABLESPACE")
        owner = self._file(name, "frm").stat()
        for suffix in ("ibd", "cfg"):
            file = self._file(name, suffix)
            shutil.copyfile(self.server.folder / f"kept_{shape}" / f"{TABLE}.{suffix}", file)
            os.chown(file, owner.st_uid, owner.st_gid)
        statement(url, f"ALTER TABLE {TABLE} IMPORT TABLESPACE", f"ANALYZE TABLE {TABLE}")
        try:
            yield url
        finally:
            self.server.drop_database(name)

    def _file(self, database: str, suffix: str) -> Path:
        return self.server.folder / "data" / database / f"{TABLE}.{suffix}"


class SQLiteCopies:
    """Copies of a file, in WAL mode with synchronous=FULL."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, shape: str, rows: int) -> None:
        key, value = KEYS["sqlite"][shape]
        half = rows // 2
        base = self.folder / f"base_{shape}.db"
        base.unlink(missing_ok=True)
        with sqlite3.connect(base) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(
                f"CREATE TABLE {TABLE} ({key}, created_at TEXT NOT NULL, customer INTEGER NOT NULL,"
                " payload TEXT NOT NULL, s3_key TEXT NOT NULL)"
            )
            connection.execute(
                f"WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
                f" INSERT INTO {TABLE} SELECT {value}, strftime('%Y-%m-%d %H:%M:%f000', 'now', CASE WHEN n <= {half}"
                f" THEN '-{DAYS} days' ELSE '-15 days' END, (n % {min(half, SPAN)}) || ' seconds'),"
                f" (n * 7919) % 50021, printf('%{PAYLOAD}s', 'x'), 'uploads/' || n || '.jpg' FROM s"
            )
            connection.execute(f"CREATE INDEX items_created_at ON {TABLE} (created_at)")
            connection.execute(f"CREATE INDEX items_customer ON {TABLE} (customer)")
        connection.close()

    @contextmanager
    def copy(self, shape: str) -> Iterator[str]:
        file = self.folder / f"copy_{secrets.token_hex(6)}.db"
        shutil.copyfile(self.folder / f"base_{shape}.db", file)
        os.sync()
        try:
            yield f"sqlite:///{file}"
        finally:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{file}{suffix}").unlink(missing_ok=True)


def _columns(key: str) -> str:
    return key.partition(", PRIMARY KEY")[0]


def _constraint(key: str) -> str:
    _, found, rest = key.partition(", PRIMARY KEY")
    return found + rest


def _user(url: str) -> str:
    return url.partition("//")[2].partition(":")[0] + ":"


def _superuser(server: Postgres, url: str) -> str:
    database = make_url(url).database
    return make_url(server.superuser_url).set(database=database).render_as_string(hide_password=False)
