"""The contract of ``SecondLock`` on PostgreSQL, MariaDB and Redis, and that of ``Lock`` with each beside a lease."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import sqlalchemy as sa
from structlog.testing import capture_logs

from safedelete.errors import ConfigError, LockHeldError, LockLostError, StoreError
from safedelete.ledger.setup import create
from safedelete.locks.advisory import AdvisoryLock
from safedelete.locks.both import LeaseAnd
from safedelete.locks.lease import LeaseLock, metadata
from safedelete.locks.redis import RedisLock
from safedelete.ports import Lock, SecondLock
from safedelete.sql.engine import Database
from safedelete.testing.servers import Redis
from safedelete.wiring.settings import SystemClock
from tests.backends import GivenRedis
from tests.contract.ledgers import Leases, LockContract
from tests.contract.test_ledgers import SECONDS, sql_leases
from tests.locks.wire import TransactionPooler, Wire

HOST, PID = socket.gethostname(), os.getpid()


@dataclass
class Second:
    """A lock under test.

    Attributes:
        lock: Takes it.
        end: Has the server forget every lock.
        hold: Has the server answer nothing more.
        names_holder: Whether the server itself can name host, pid and since.
    """

    lock: SecondLock
    end: Callable[[], object]
    hold: Callable[[], None]
    names_holder: bool = True


@contextmanager
def advisory(url: str) -> Iterator[Second]:
    """Through a wire that can be held."""
    direct = sa.make_url(url)
    administrator = sa.create_engine(Database(url).url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with Wire(direct.port or 0) as wire:
        database = Database(direct.set(port=wire.port))
        lock = AdvisoryLock(database.engine, clock=SystemClock(), seconds=SECONDS, host=HOST, pid=PID)

        def end() -> None:
            with administrator.connect() as connection:
                if connection.dialect.name == "postgresql":
                    connection.exec_driver_sql(
                        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                    )
                    return
                ours = "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND db = DATABASE()"
                for session in connection.exec_driver_sql(ours).scalars().all():
                    connection.exec_driver_sql(f"KILL {session}")

        yield Second(lock, end, wire.hold, names_holder=direct.get_backend_name() == "postgresql")
        database.dispose()


@contextmanager
def in_redis(url: str) -> Iterator[Second]:
    direct = sa.make_url(url)
    client = redis.Redis.from_url(url)
    with Wire(direct.port or 0) as wire:
        lock = RedisLock(
            f"redis://127.0.0.1:{wire.port}/0",
            prefix="test",
            ledger="main",
            clock=SystemClock(),
            seconds=SECONDS,
            host=HOST,
            pid=PID,
        )
        yield Second(lock, client.flushdb, wire.hold)
    client.flushdb()
    client.close()


class SecondLockContract:
    """Inherit, and give a fixture ``second``."""

    def test_it_keeps_everybody_else_out_and_says_who_holds_it(self, second: Second) -> None:
        held = second.lock.acquire("purge", owner="one")
        with pytest.raises(LockHeldError) as caught:
            second.lock.acquire("purge", owner="two")
        if second.names_holder:
            assert caught.value.holder == f"{HOST}:{PID}"
            assert f"{HOST} (pid {PID})" in str(caught.value)
            assert caught.value.since.startswith("20")
            assert caught.value.since in str(caught.value)
        else:
            assert caught.value.holder.startswith("connection ")
        held.gate()
        held.fence()
        held.release()

    def test_jobs_do_not_hinder_each_other(self, second: Second) -> None:
        one, two = second.lock.acquire("purge", owner="one"), second.lock.acquire("other", owner="one")
        one.release()
        two.fence()
        two.release()

    def test_given_back_it_is_free_at_once_and_lets_nothing_more_start(self, second: Second) -> None:
        first = second.lock.acquire("purge", owner="one")
        first.release()
        for prove in (first.gate, first.fence):
            with pytest.raises(LockLostError, match="given back"):
                prove()
        again = second.lock.acquire("purge", owner="two")
        first.release()
        again.fence()
        again.release()

    def test_it_outlives_its_own_length_while_it_is_renewed(self, second: Second) -> None:
        held = second.lock.acquire("purge", owner="one")
        time.sleep(SECONDS * 1.5)
        held.gate()
        with pytest.raises(LockHeldError):
            second.lock.acquire("purge", owner="two")
        held.fence()
        held.release()

    def test_a_server_that_forgot_it_is_noticed_at_the_next_fence(self, second: Second) -> None:
        held = second.lock.acquire("purge", owner="one")
        second.end()
        with pytest.raises(LockLostError):
            held.fence()
        with pytest.raises(LockLostError):
            held.gate()
        held.release()

    def test_a_server_that_forgot_it_is_noticed_by_whoever_only_asks_the_gate(self, second: Second) -> None:
        held = second.lock.acquire("purge", owner="one")
        second.end()
        until = time.monotonic() + SECONDS
        with pytest.raises(LockLostError):
            while time.monotonic() < until:
                held.gate()
                time.sleep(0.01)
        held.release()

    def test_another_takes_it_after_the_server_forgot_it_and_the_first_never_frees_the_seconds(
        self, second: Second
    ) -> None:
        first = second.lock.acquire("purge", owner="one")
        second.end()
        again = second.lock.acquire("purge", owner="two")
        with pytest.raises(LockLostError):
            first.fence()
        first.release()
        again.fence()
        with pytest.raises(LockHeldError):
            second.lock.acquire("purge", owner="three")
        again.release()

    def test_a_server_that_hangs_is_waited_for_until_our_own_deadline_and_no_longer(
        self, second: Second
    ) -> None:
        held = second.lock.acquire("purge", owner="one")
        second.hold()
        began = time.monotonic()
        with pytest.raises(LockLostError, match="not proven in time"):
            held.fence()
        assert time.monotonic() - began < SECONDS * 1.5
        with pytest.raises(LockLostError):
            held.gate()


class TestPostgreSQLAdvisoryLock(SecondLockContract):
    @pytest.fixture
    def second(self, pg_database: str) -> Iterator[Second]:
        with advisory(pg_database) as second:
            yield second

    def test_the_server_ends_the_session_of_a_holder_that_asks_no_more(self, pg_database: str) -> None:
        """What keeps a frozen host from keeping the next run out for ever."""
        with advisory(pg_database) as second:
            second.lock.acquire("purge", owner="one")
            second.hold()
            engine = sa.create_engine(Database(pg_database).url, poolclass=sa.NullPool)
            until = time.monotonic() + 10
            while _count(engine, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"):
                assert time.monotonic() < until
                time.sleep(0.05)


class TestMariaDBAdvisoryLock(SecondLockContract):
    @pytest.fixture
    def second(self, mariadb_database: str) -> Iterator[Second]:
        with advisory(mariadb_database) as second:
            yield second

    def test_the_server_ends_the_session_of_a_holder_that_asks_no_more(self, mariadb_database: str) -> None:
        with advisory(mariadb_database) as frozen, advisory(mariadb_database) as second:
            frozen.lock.acquire("purge", owner="one")
            frozen.hold()
            until = time.monotonic() + 10
            while True:
                try:
                    second.lock.acquire("purge", owner="two").release()
                    break
                except LockHeldError:
                    assert time.monotonic() < until
                    time.sleep(0.05)

    def test_two_databases_of_one_server_do_not_share_a_lock(
        self, mariadb_database: str, mariadb: object
    ) -> None:
        other = mariadb.create_database()  # type: ignore[attr-defined]
        with advisory(mariadb_database) as one, advisory(other) as two:
            held, beside = one.lock.acquire("purge", owner="a"), two.lock.acquire("purge", owner="b")
            held.release()
            beside.release()
        mariadb.drop_database(sa.make_url(other).database)  # type: ignore[attr-defined]


class TestRedisLock(SecondLockContract):
    @pytest.fixture
    def second(self, redis_server: Redis | GivenRedis) -> Iterator[Second]:
        with in_redis(redis_server.url) as second:
            yield second


def _count(engine: sa.Engine, statement: str) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql(statement).scalar_one())


@contextmanager
def together(leases: Leases, second: Second) -> Iterator[Leases]:
    """The lease and a second lock, as jobs use them."""

    def expire() -> None:
        leases.expire()
        second.end()

    yield replace(leases, lock=LeaseAnd(leases.lock, second.lock), expire=expire)


class TestLeaseAndPostgreSQLAdvisory(LockContract):
    @pytest.fixture
    def leases(self, pg_database: str, tmp_path: Path) -> Iterator[Leases]:
        apart = f"sqlite:///{tmp_path / 'apart.db'}"
        with (
            sql_leases(pg_database, apart) as alone,
            advisory(pg_database) as second,
            together(alone, second) as both,
        ):
            yield both


class TestLeaseAndRedis(LockContract):
    @pytest.fixture
    def leases(self, pg_database: str, tmp_path: Path, redis_server: Redis | GivenRedis) -> Iterator[Leases]:
        apart = f"sqlite:///{tmp_path / 'apart.db'}"
        with (
            sql_leases(pg_database, apart) as alone,
            in_redis(redis_server.url) as second,
            together(alone, second) as both,
        ):
            yield both

    def test_a_second_lock_that_is_held_leaves_the_lease_free(
        self, leases: Leases, redis_server: Redis | GivenRedis
    ) -> None:
        assert isinstance(leases.lock, LeaseAnd)
        with in_redis(redis_server.url) as second:
            outside = second.lock.acquire("purge", owner="elsewhere")
            with pytest.raises(LockHeldError, match=f"pid {PID}"):
                leases.lock.acquire("purge", owner="one")
            outside.release()
            leases.lock.acquire("purge", owner="two").release()


# --- a host whose clock is wrong ---


@pytest.mark.parametrize("database", ["pg_database", "mariadb_database"])
def test_an_advisory_lock_is_free_before_the_server_has_noticed_that_its_session_ended(
    database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with advisory(request.getfixturevalue(database)) as second:
        held, ended = second.lock.acquire("purge", owner="one"), list[sa.Connection]()

        def close(connection: sa.Connection) -> None:
            ended.append(connection)

        with monkeypatch.context() as patched:
            patched.setattr(sa.Connection, "close", close)
            held.release()
        try:
            second.lock.acquire("purge", owner="two").release()
        finally:
            for connection in ended:
                connection.close()
        assert ended


class JumpingClock(SystemClock):
    """The host's clock, set back by an administrator."""

    back = timedelta(0)

    def now(self) -> datetime:
        return super().now() - self.back


@pytest.mark.parametrize("kind", ["lease", "advisory", "redis"])
def test_a_host_clock_that_jumps_back_an_hour_neither_ends_a_lock_nor_keeps_it(
    kind: str, pg_database: str, redis_server: Redis | GivenRedis
) -> None:
    database, clock = Database(pg_database), JumpingClock()
    create(database.engine, metadata)
    common: dict[str, Any] = {"clock": clock, "seconds": SECONDS, "host": HOST, "pid": PID}
    lock: Lock | SecondLock = {
        "lease": lambda: LeaseLock(database.engine, "main", **common),
        "advisory": lambda: AdvisoryLock(database.engine, **common),
        "redis": lambda: RedisLock(redis_server.url, prefix="test", ledger="main", **common),
    }[kind]()
    held = lock.acquire("purge", owner="one")
    clock.back = timedelta(hours=1)
    time.sleep(SECONDS * 1.5)
    held.gate()
    held.fence()
    with pytest.raises(LockHeldError):
        lock.acquire("purge", owner="two")
    held.release()
    again = lock.acquire("purge", owner="two")
    clock.back = timedelta(hours=-1)
    again.fence()
    again.release()
    database.dispose()


# --- what cannot work is refused, with the reason ---


@pytest.mark.parametrize("sessions", [1, 2])
def test_an_advisory_lock_behind_a_transaction_pooler_is_refused_with_the_reason(
    pg_database: str, sessions: int
) -> None:
    url = sa.make_url(pg_database)
    with TransactionPooler(url.port or 0, str(url.username), str(url.database), sessions=sessions) as pooler:
        through = Database(url.set(port=pooler.port))
        with through.engine.connect() as one, through.engine.connect() as two:
            clients = [c.execution_options(isolation_level="AUTOCOMMIT") for c in (one, two)]
            ask = "SELECT pg_try_advisory_lock(1)"
            got = [client.exec_driver_sql(ask).scalar_one() for client in clients * 2]
            assert got.count(True) > 1, "behind this pooler the lock excludes nobody"
        lock = AdvisoryLock(through.engine, clock=SystemClock(), seconds=60, host=HOST, pid=PID)
        with pytest.raises(ConfigError, match="connection pooler stands between") as caught:
            lock.acquire("purge", owner="one")
        assert "was given session 4242" in str(caught.value)
        assert "the lease works through poolers" in caught.value.hint
        through.dispose()


def test_an_advisory_lock_on_sqlite_is_refused(sqlite_url: str) -> None:
    database = Database(sqlite_url, may_create=True)
    with pytest.raises(ConfigError, match="sqlite has no advisory locks"):
        AdvisoryLock(database.engine, clock=SystemClock(), seconds=60, host=HOST, pid=PID)
    database.dispose()


def redis_lock(url: str, **changed: str) -> RedisLock:
    known = {"prefix": "test", "ledger": "main"} | changed
    return RedisLock(url, clock=SystemClock(), seconds=SECONDS, host=HOST, pid=PID, **known)


def test_a_redis_that_refuses_the_password_is_told_without_repeating_it(
    redis_server: Redis | GivenRedis,
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("requirepass", "right")
        try:
            for given in (":wrong-one@", ""):
                url = redis_server.url.replace("redis://", f"redis://{given}")
                with pytest.raises(ConfigError, match="refuses us") as caught:
                    redis_lock(url).acquire("purge", owner="one")
                assert "wrong-one" not in str(caught.value) + caught.value.hint
                assert "SAFEDELETE_REDIS_URL" in caught.value.hint
            right = redis_server.url.replace("redis://", "redis://:right@")
            redis_lock(right).acquire("purge", owner="one").release()
        finally:
            client.execute_command("AUTH", "right")
            client.config_set("requirepass", "")


@pytest.mark.parametrize("missing", ["eval", "pexpire"])
def test_a_redis_user_who_may_not_renew_is_told_so_before_anything_is_done(
    missing: str, redis_server: Redis | GivenRedis
) -> None:
    """The key could be taken; the run would lose it in the middle of its work."""
    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command(
            *f"ACL SETUSER weak on >secret ~* +set +get +pexpire +del +eval +info -{missing}".split()
        )
        try:
            url = redis_server.url.replace("redis://", "redis://weak:secret@")
            with pytest.raises(ConfigError, match="refuses us") as caught:
                redis_lock(url).acquire("purge", owner="one")
            assert "EVAL" in caught.value.hint
            if missing == "eval":
                assert not client.keys("safedelete:*"), "nobody is kept out by it"
        finally:
            client.execute_command("ACL", "DELUSER", "weak")
            client.flushdb()


def test_a_redis_that_is_not_there_is_a_store_that_does_not_answer() -> None:
    with Wire(1) as wire:
        port = wire.port
    with pytest.raises(StoreError, match="does not answer"):
        redis_lock(f"redis://127.0.0.1:{port}/0").acquire("purge", owner="one")


def test_a_redis_url_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        redis_lock("http://user:hidden@host")
    assert "hidden" not in str(caught.value)


def test_a_redis_that_evicts_the_key_stops_the_run_and_was_warned_of(
    redis_server: Redis | GivenRedis,
) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory-policy", "allkeys-random")
        client.config_set("maxmemory", "64mb")
        try:
            with capture_logs() as lines:
                held = redis_lock(redis_server.url).acquire("purge", owner="one")
            assert any("may evict" in str(line) for line in lines)
            # Below what it needs for itself, so the first write has it evict whatever there is.
            client.config_set("maxmemory", "1")
            with pytest.raises(LockLostError, match="evicted"):
                held.fence()
            held.release()
        finally:
            client.config_set("maxmemory", "0")
            client.config_set("maxmemory-policy", "noeviction")


def test_two_jobs_that_share_a_lock_name_by_mistake_are_told_apart_from_two_runs(
    redis_server: Redis | GivenRedis,
) -> None:
    held = redis_lock(redis_server.url, ledger="billing").acquire("purge", owner="one")
    with pytest.raises(LockHeldError, match="ledger is another one") as caught:
        redis_lock(redis_server.url, ledger="media").acquire("purge", owner="two")
    assert "by mistake" in caught.value.hint
    with pytest.raises(LockHeldError) as same:
        redis_lock(redis_server.url, ledger="billing").acquire("purge", owner="two")
    assert "ledger" not in str(same.value)
    redis_lock(redis_server.url, prefix="staging").acquire("purge", owner="two").release()
    held.release()


def test_a_key_that_something_else_uses_is_not_taken_for_a_run(redis_server: Redis | GivenRedis) -> None:
    lock = redis_lock(redis_server.url)
    with redis.Redis.from_url(redis_server.url) as client:
        client.set(lock.key("purge"), "theirs")
        with pytest.raises(LockHeldError, match="not ours"):
            lock.acquire("purge", owner="one")
        client.delete(lock.key("purge"))
