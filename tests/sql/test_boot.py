"""A run makes no table and migrates nothing, and says who tried to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.errors import ConfigError
from safedelete.sql.boot import ddl_verb, refusing_connections, refusing_ddl, whole_process

table = sa.Table("made_at_boot", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    yield made
    made.dispose()


def tables(engine: sa.Engine) -> list[str]:
    return sa.inspect(engine).get_table_names()


@pytest.mark.parametrize(
    ("text", "verb"),
    [
        ("CREATE TABLE x (id int)", "CREATE"),
        ("  \n create unlogged table x (id int)", "CREATE"),
        ("-- add it\nALTER TABLE x ADD y int", "ALTER"),
        ("/* a; b */ /* c */ DROP TABLE x", "DROP"),
        ("# MySQL's comment\nDROP INDEX i ON x", "DROP"),
        ("/*!40101 CREATE TABLE x (id int) */", "CREATE"),
        ("TRUNCATE x", "TRUNCATE"),
        ("RENAME TABLE x TO y", "RENAME"),
        ("COMMENT  ON TABLE x IS 'y'", "COMMENT ON"),
        ("SELECT 1; DROP TABLE x", "DROP"),
        ("(CREATE TABLE x (id int))", "CREATE"),
        ("CREATE TABLE temporary_things (id int)", "CREATE"),
        ("CREATE TEMP TABLE x (id int)", None),
        ("create or replace temporary view x AS SELECT 1", None),
        ("CREATE LOCAL TEMPORARY TABLE x (id int)", None),
        ("DROP TEMPORARY TABLE x", None),
        ("INSERT INTO x VALUES ('a; DROP TABLE x')", None),
        ("INSERT INTO x VALUES ('it''s; DROP TABLE x')", None),
        ('SELECT "; DROP TABLE x" FROM y', None),
        ("SELECT $$; CREATE TABLE x$$, $a$; DROP x$a$", None),
        ("SELECT 1 -- ; DROP TABLE x", None),
        ("DELETE FROM created WHERE dropped", None),
        ("SELECT drop FROM x", None),
        ("UPDATE x SET truncate = 1", None),
        ("SET CONSTRAINTS ALL IMMEDIATE", None),
        ("", None),
    ],
)
def test_ddl_is_known_by_its_first_word(text: str, verb: str | None) -> None:
    assert ddl_verb(text) == verb


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


def test_while_a_file_loads_ddl_on_a_connection_that_is_open_is_refused(
    engine: sa.Engine, tmp_path: Path
) -> None:
    with (
        engine.connect() as connection,
        pytest.raises(ConfigError, match="emits DDL while it loads"),
        refusing_connections(tmp_path / "jobs.py"),
    ):
        table.metadata.create_all(connection)
