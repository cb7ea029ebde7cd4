"""How far replicas are behind, asked of real ones; what cannot be told is never taken for no lag."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete.errors import ConfigError, StoreError
from safedelete.sql import Database
from safedelete.sql.lag import ReplicationLag
from safedelete.testing.servers import Postgres
from safedelete.testing.servers.machine import free_port
from safedelete.testing.servers.postgres import _binaries, _usable
from tests.backends import started
from tests.sql.conftest import Server

MOST = timedelta(seconds=1)


class Replica(Postgres):
    """A streaming replica of another private server."""

    def __init__(self, primary: Postgres) -> None:
        super().__init__()
        self.primary = primary

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        account = self._account()
        binaries = _usable(_binaries(), account, self.folder)
        data = self.folder / "data"
        address = ["--host=127.0.0.1", f"--port={self.primary.port}", "--username=postgres"]
        copying = [f"--pgdata={data}", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf"]
        self.run_tool([str(binaries / "pg_basebackup"), *address, *copying], account)
        self.port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "wal_receiver_status_interval": "1s",
            "max_connections": "100",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(binaries / "postgres"), "-D", str(data), *options], {}

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture(scope="module")
def primary() -> Iterator[Postgres]:
    with started(Postgres) as server:
        yield server


@pytest.fixture
def lag_of() -> Iterator[Callable[[str], ReplicationLag]]:
    opened: list[Database] = []

    def make(url: str) -> ReplicationLag:
        opened.append(Database(url))
        return ReplicationLag(opened[-1], MOST)

    yield make
    for database in opened:
        database.dispose()


def on(url: str, statement: str) -> Any:
    engine = sa.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = connection.exec_driver_sql(statement)
        return found.scalar() if found.returns_rows else None


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.05)


def test_a_primary_tells_how_far_its_replica_is(
    primary: Postgres, lag_of: Callable[[str], ReplicationLag]
) -> None:
    lag = lag_of(primary.superuser_url)
    with pytest.raises(StoreError, match="No replica is connected"):
        lag()
    with started(lambda: Replica(primary)) as replica:
        replaying = replica.database_url("postgres", role="postgres")
        until(
            lambda: on(
                primary.superuser_url, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
            )
        )
        until(lambda: lag() is None)

        on(replaying, "SELECT pg_wal_replay_pause()")
        on(primary.superuser_url, "CREATE TABLE IF NOT EXISTS work AS SELECT generate_series(1, 1000) AS n")
        until(lambda: lag() is not None)
        assert "the replica" in str(lag())

        on(replaying, "SELECT pg_wal_replay_resume()")
        until(lambda: lag() is None)

        role = "lag_reader"
        on(primary.superuser_url, f"CREATE ROLE {role} LOGIN")
        blind = lag_of(primary.database_url("postgres", role=role))
        with pytest.raises(StoreError, match="may not see") as refused:
            blind()
        on(primary.superuser_url, refused.value.hint)
        until(lambda: blind() is None)


def test_replicas_of_mariadb_must_be_named_and_be_replicas(maria: Server) -> None:
    with pytest.raises(ConfigError, match="does not know") as refused:
        ReplicationLag(maria.open(), MOST)
    assert "replicas=" in refused.value.hint
    with pytest.raises(StoreError, match="is no replica"):
        ReplicationLag(maria.open(), MOST, [maria.open()])()


def test_replication_that_stands_still_is_a_reason_to_pause(maria: Server) -> None:
    maria.sql("CHANGE MASTER 'apart' TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'nobody'")
    try:
        assert "stands still (it is not running)" in str(ReplicationLag(maria.open(), MOST, [maria.open()])())
    finally:
        maria.sql("RESET SLAVE 'apart' ALL")


def test_a_replica_that_does_not_answer_is_not_up_to_date(maria: Server) -> None:
    gone = Database("mysql+pymysql://nobody@127.0.0.1:1/none")
    with pytest.raises(StoreError, match="does not answer"):
        ReplicationLag(maria.open(), MOST, [gone])()


def test_sqlite_has_no_replicas(sqlite: Server) -> None:
    sqlite.sql("CREATE TABLE t (id int)")
    with pytest.raises(ConfigError, match="no replicas"):
        ReplicationLag(sqlite.open(), MOST)
