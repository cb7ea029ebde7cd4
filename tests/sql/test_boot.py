"""A run makes no table and migrates nothing, and says who tried to."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from safedelete.errors import ConfigError
from safedelete.sql import boot, inflight
from safedelete.sql.boot import ddl_verb, refusing_connections, refusing_ddl, whole_process
from safedelete.sql.inflight import followed

table = sa.Table("made_at_boot", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    yield made
    made.dispose()


def tables(engine: sa.Engine) -> list[str]:
    return sa.inspect(engine).get_table_names()


EVERYWHERE = ("postgresql", "mysql", "mariadb", "sqlite", "oracle")
POSTGRES = ("postgresql",)
MYSQL = ("mysql", "mariadb")
NOT_MYSQL = ("postgresql", "sqlite")


@pytest.mark.parametrize(
    ("dialects", "text", "verb"),
    [
        (EVERYWHERE, "CREATE TABLE x (id int)", "CREATE"),
        (EVERYWHERE, "  \n create unlogged table x (id int)", "CREATE"),
        (EVERYWHERE, "-- add it\nALTER TABLE x ADD y int", "ALTER"),
        (EVERYWHERE, "/* a; b */ /* c */ DROP TABLE x", "DROP"),
        (MYSQL, "# MySQL's comment\nDROP INDEX i ON x", "DROP"),
        (MYSQL, "/*!40101 CREATE TABLE x (id int) */", "CREATE"),
        (EVERYWHERE, "TRUNCATE x", "TRUNCATE"),
        (EVERYWHERE, "RENAME TABLE x TO y", "RENAME"),
        (EVERYWHERE, "COMMENT  ON TABLE x IS 'y'", "COMMENT ON"),
        (EVERYWHERE, "SELECT 1; DROP TABLE x", "DROP"),
        (EVERYWHERE, "(CREATE TABLE x (id int))", "CREATE"),
        (EVERYWHERE, "CREATE TABLE temporary_things (id int)", "CREATE"),
        (EVERYWHERE, "CREATE TEMP TABLE x (id int)", None),
        (EVERYWHERE, "create or replace temporary view x AS SELECT 1", None),
        (EVERYWHERE, "CREATE LOCAL TEMPORARY TABLE x (id int)", None),
        (EVERYWHERE, "DROP TEMPORARY TABLE x", None),
        (EVERYWHERE, "INSERT INTO x VALUES ('a; DROP TABLE x')", None),
        (EVERYWHERE, "INSERT INTO x VALUES ('it''s; DROP TABLE x')", None),
        (EVERYWHERE, 'SELECT "; DROP TABLE x" FROM y', None),
        (POSTGRES, "SELECT $$; CREATE TABLE x$$, $a$; DROP x$a$", None),
        (EVERYWHERE, "SELECT 1 -- ; DROP TABLE x", None),
        (EVERYWHERE, "DELETE FROM created WHERE dropped", None),
        (EVERYWHERE, "SELECT drop FROM x", None),
        (EVERYWHERE, "UPDATE x SET truncate = 1", None),
        (EVERYWHERE, "SET CONSTRAINTS ALL IMMEDIATE", None),
        (EVERYWHERE, "", None),
        (NOT_MYSQL, r"SELECT 'a\'; DROP TABLE x; SELECT 'b'", "DROP"),
        (MYSQL, r"SELECT 'a\'; DROP TABLE x; SELECT b'", None),
        (MYSQL, r'SELECT "a\"; DROP TABLE x; SELECT b"', None),
        (POSTGRES, r"SELECT E'a\'; DROP TABLE x; SELECT b'", None),
        (POSTGRES, r"SELECT e'a\\'; DROP TABLE x", "DROP"),
        (POSTGRES, "SELECT 1\n# 2; DROP TABLE x", "DROP"),
        (MYSQL, "SELECT 1 # ; DROP TABLE x", None),
        (MYSQL, "SELECT 1--1; DROP TABLE x", "DROP"),
        (MYSQL, "SELECT a$b$; DROP TABLE x; SELECT c$b$", "DROP"),
        (POSTGRES, "SELECT a$b$; DROP TABLE x; SELECT c$b$", "DROP"),
        (POSTGRES, "SELECT $b$; DROP TABLE x; SELECT $b$", None),
        (POSTGRES, "SELECT $1; DROP TABLE x; SELECT $1", "DROP"),
        (POSTGRES, "/* /* */ ' */ DROP TABLE x -- '", "DROP"),
        (POSTGRES, "/*! CREATE */ SELECT 1", None),
        (MYSQL, "/*M!100100 CREATE TABLE x (id int) */", "CREATE"),
        (MYSQL, "SELECT 1 /*!; DROP TABLE x */", "DROP"),
        (MYSQL, "SET STATEMENT max_statement_time = 9 FOR CREATE TABLE x (id int)", "CREATE"),
        (POSTGRES, "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", "CREATE"),
        (POSTGRES, "explain analyse verbose create table x as select 1", "CREATE"),
        (POSTGRES, "EXPLAIN (BUFFERS, ANALYZE) CREATE MATERIALIZED VIEW x AS SELECT 1", "CREATE"),
        (POSTGRES, "EXPLAIN (ANALYZE, TIMING off) SELECT 1 INTO x", "SELECT INTO"),
        (POSTGRES, "EXPLAIN CREATE TABLE x AS SELECT 1", None),
        (POSTGRES, "EXPLAIN (ANALYZE off) CREATE TABLE x AS SELECT 1", None),
        (POSTGRES, "EXPLAIN ANALYZE SELECT 1", None),
        (POSTGRES, "SELECT * INTO x FROM y", "SELECT INTO"),
        (POSTGRES, "WITH a AS (SELECT 1) SELECT * INTO UNLOGGED x FROM a", "SELECT INTO"),
        (
            POSTGRES,
            "WITH a AS (INSERT INTO y VALUES (1) RETURNING id) SELECT id INTO x FROM a",
            "SELECT INTO",
        ),
        (POSTGRES, "SELECT * INTO TEMP x FROM y", None),
        (POSTGRES, "SELECT 1 AS into, y.into, 'into' FROM y", None),
        (POSTGRES, "WITH a AS (SELECT 1) INSERT INTO x SELECT * FROM a", None),
        (POSTGRES, "INSERT INTO x SELECT * FROM y", None),
        (MYSQL, "SELECT id INTO @last FROM y", None),
    ],
)
def test_ddl_is_known_by_its_first_word(dialects: tuple[str, ...], text: str, verb: str | None) -> None:
    assert {dialect: ddl_verb(text, dialect) for dialect in dialects} == dict.fromkeys(dialects, verb)


@pytest.mark.parametrize("way", ["create_all", "text", "driver", "element"])
def test_ddl_is_refused_with_the_file_and_line_that_did_it(engine: sa.Engine, way: str) -> None:
    ways = {
        "create_all": lambda c: table.metadata.create_all(bind=c),
        "text": lambda c: c.execute(sa.text("CREATE TABLE made_at_boot (id int)")),
        "driver": lambda c: c.exec_driver_sql("CREATE TABLE made_at_boot (id int)"),
        "element": lambda c: c.execute(sa.schema.CreateTable(table)),
    }
    with (
        pytest.raises(ConfigError) as raised,
        refusing_ddl("reminders"),
        engine.begin() as connection,
    ):
        ways[way](connection)
    line = ways[way].__code__.co_firstlineno
    assert f"reminders emits DDL while it runs (CREATE) ({__file__}:{line})" in str(raised.value)
    assert "allow_ddl=True" in raised.value.hint
    assert tables(engine) == []


def test_a_job_that_catches_the_refusal_fails_all_the_same(engine: sa.Engine) -> None:
    def act() -> None:
        with refusing_ddl("reminders"):
            try:
                table.metadata.create_all(engine)
            except ConfigError:
                return

    with pytest.raises(ConfigError, match="emits DDL"):
        act()


def test_what_is_no_ddl_passes_and_a_temporary_table_too(engine: sa.Engine) -> None:
    with refusing_ddl("reminders"), engine.begin() as connection:
        connection.exec_driver_sql("CREATE TEMP TABLE mine (id int)")
        connection.exec_driver_sql("INSERT INTO mine VALUES (1)")
        assert connection.exec_driver_sql("SELECT id FROM mine").scalar_one() == 1


def test_a_job_that_said_so_may(engine: sa.Engine) -> None:
    with refusing_ddl("reminders", allowed=True):
        table.metadata.create_all(engine)
    assert tables(engine) == ["made_at_boot"]


def test_afterwards_it_is_allowed_again(engine: sa.Engine) -> None:
    with refusing_ddl("reminders"):
        pass
    table.metadata.create_all(engine)
    assert tables(engine) == ["made_at_boot"]


def in_a_thread(engine: sa.Engine) -> list[Exception]:
    raised: list[Exception] = []

    def act() -> None:
        try:
            table.metadata.create_all(engine)
        except ConfigError as error:
            raised.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    return raised


def test_another_thread_of_the_host_is_not_affected(engine: sa.Engine) -> None:
    with refusing_ddl("reminders"):
        assert in_a_thread(engine) == []
    assert tables(engine) == ["made_at_boot"]


def test_where_the_process_is_the_jobs_alone_its_threads_are_refused_too(engine: sa.Engine) -> None:
    def act() -> list[Exception]:
        with whole_process(), refusing_ddl("reminders"):
            return in_a_thread(engine)

    with pytest.raises(ConfigError, match="emits DDL"):
        act()
    assert tables(engine) == []
    assert in_a_thread(engine) == []


def test_a_coroutine_and_its_threads_are_refused(engine: sa.Engine) -> None:
    async def act() -> None:
        await asyncio.to_thread(table.metadata.create_all, engine)

    with pytest.raises(ConfigError, match="emits DDL"), refusing_ddl("reminders"):
        asyncio.run(act())


def test_while_a_file_loads_another_thread_may_connect(engine: sa.Engine, tmp_path: Path) -> None:
    with refusing_connections(tmp_path / "jobs.py"):
        assert in_a_thread(engine) == []
    assert tables(engine) == ["made_at_boot"]


@pytest.mark.parametrize("way", ["connect", "raw_connection", "session"])
@pytest.mark.parametrize("pool", [sa.NullPool, sa.QueuePool, sa.StaticPool])
def test_while_a_file_loads_an_engine_with_a_creator_of_its_own_may_not_connect_either(
    pool: type[sa.Pool], way: str, tmp_path: Path
) -> None:
    engine = sa.create_engine(
        "sqlite://", creator=lambda: sqlite3.connect(tmp_path / "app.db"), poolclass=pool
    )
    ways = {
        "connect": engine.connect,
        "raw_connection": engine.raw_connection,
        "session": lambda: Session(engine).execute(sa.text("SELECT 1")),
    }
    with (
        pytest.raises(ConfigError, match="opens a database connection while it loads"),
        refusing_connections(tmp_path / "jobs.py"),
    ):
        ways[way]()
    engine.connect().close()
    engine.dispose()


def test_a_heartbeat_that_ran_before_a_file_is_loaded_may_connect_and_a_thread_of_the_file_may_not(
    engine: sa.Engine, tmp_path: Path
) -> None:
    loading, failures = threading.Event(), list[Exception]()

    def renew() -> None:
        assert loading.wait(30)
        try:
            engine.connect().close()
            engine.dispose()
        except ConfigError as error:
            failures.append(error)

    heartbeat = threading.Thread(target=renew)
    heartbeat.start()
    with pytest.raises(ConfigError, match="opens a database connection"), whole_process():  # noqa: SIM117
        with refusing_connections(tmp_path / "jobs.py"):
            loading.set()
            heartbeat.join()
            assert failures == []
            late = threading.Thread(target=renew)
            late.start()
            late.join()
    assert len(failures) == 1


def test_while_a_file_loads_ddl_on_a_connection_that_is_open_is_refused(
    engine: sa.Engine, tmp_path: Path
) -> None:
    with (
        engine.connect() as connection,
        pytest.raises(ConfigError, match="emits DDL while it loads"),
        refusing_connections(tmp_path / "jobs.py"),
    ):
        table.metadata.create_all(connection)


def test_a_guarded_block_takes_away_its_own_guard_alone() -> None:
    with whole_process(), refusing_ddl("reminders"):
        outer = boot._everywhere[-1]
        with refusing_ddl("reminders"):
            inner = boot._everywhere[-1]
        assert inner is not outer
        assert boot._everywhere == [outer]
        assert boot._everywhere[0] is outer


def test_following_statements_adds_its_listeners_once_and_removes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Events:
        listen = staticmethod(lambda _target, name, _listener: asked.append(name))
        remove = staticmethod(lambda *_: asked.append("removed"))

    monkeypatch.setattr(inflight, "event", Events)
    monkeypatch.setattr(inflight, "_listening", False)
    for _ in range(3):
        with followed(), followed():
            pass
    assert asked == ["before_cursor_execute", "after_cursor_execute", "handle_error"]


def test_a_statement_is_followed_until_the_last_follower_has_gone(engine: sa.Engine) -> None:
    seen: list[int] = []

    def look() -> None:
        with followed():
            pass
        seen.append(len(inflight._flying))

    with engine.connect() as connection:
        connection.connection.driver_connection.create_function("look", 0, look)
        with followed():
            connection.execute(sa.text("SELECT look()")).all()
        connection.execute(sa.text("SELECT look()")).all()
    assert seen == [1, 0]
    assert inflight._flying == {}
