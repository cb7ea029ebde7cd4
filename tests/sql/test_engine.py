"""Connections are set up for deleting, identities tell copies apart, and no message holds a secret."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete import Rows, S3Keys, older_than, past
from safedelete.core.plan import Unknown
from safedelete.errors import BusyError, ConfigError, InterruptedRunError, StoreError
from safedelete.sql import Database, SqlRows, Timeouts, definition
from safedelete.sql.permissions import SqlProber
from safedelete.sql.survey import Survey
from tests.sql.conftest import AS_OF, Server, aged


def test_database_comes_from_the_environment_in_order(sqlite: Server) -> None:
    url = str(sqlite.url)
    assert Database(environ={"DATABASE_URL": url}).name == url
    assert (
        Database(environ={"DATABASE_URL": "sqlite:////no/where", "SAFEDELETE_DATABASE_URL": url}).name == url
    )
    with pytest.raises(ConfigError, match="SAFEDELETE_DATABASE_URL"):
        Database(environ={})


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("postgres://u:pw@h/d", "postgresql+psycopg"),
        ("postgresql://u:pw@h/d", "postgresql+psycopg"),
        ("mysql://u:pw@h/d", "mysql+pymysql"),
        ("mariadb://u:pw@h/d", "mariadb+pymysql"),
    ],
)
def test_plain_url_gets_the_supported_driver_and_shows_no_secret(given: str, driver: str) -> None:
    database = Database(given)
    assert database.name == f"{driver}://h/d"
    assert "pw" not in repr(database)


@pytest.mark.parametrize("given", ["nonsense:pw", "oracle://u:pw@h/d", "sqlite://", "sqlite:///:memory:"])
def test_url_that_cannot_be_used_is_a_config_error_without_its_secret(given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Database(given)
    assert "pw" not in str(caught.value)


@pytest.mark.parametrize("variable", ["SAFEDELETE_DATABASE_URL", "DATABASE_URL"])
def test_the_variable_whose_url_cannot_be_read_is_named(variable: str) -> None:
    with pytest.raises(ConfigError, match=rf"\${variable} cannot be read") as caught:
        Database(environ={variable: "nonsense:pw"})
    assert "pw" not in str(caught.value)


def test_database_that_does_not_answer_is_named_without_its_secret() -> None:
    database = Database("postgresql://u:s3cret@127.0.0.1:1/d?connect_timeout=2")
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/d does not answer") as caught:
        _ = database.identity
    assert "s3cret" not in str(caught.value)


def test_missing_sqlite_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "none.db"
    with pytest.raises(StoreError, match="does not exist"):
        _ = Database(f"sqlite:///{file}").identity
    assert not file.exists()
    with Database(f"sqlite:///{file}", may_create=True).reading():
        pass


def test_a_copy_is_another_database(sqlite: Server, tmp_path: Path) -> None:
    sqlite.sql("CREATE TABLE t (id int)")
    shutil.copy(str(sqlite.url.database), tmp_path / "copy.db")
    first, copy = sqlite.open(), Database(f"sqlite:///{tmp_path / 'copy.db'}")
    (tmp_path / "link.db").symlink_to(str(sqlite.url.database))
    assert first.identity != copy.identity
    assert Database(f"sqlite:///{tmp_path / 'link.db'}").identity == first.identity


def test_postgres_identity_is_the_same_for_every_role_and_differs_by_database(pg: Server) -> None:
    role = pg.role()
    assert pg.open().identity == pg.open(role).identity
    assert pg.open(role).caller == role
    other = Database(pg.url.set(database="postgres"))
    assert other.identity != pg.open().identity
    other.dispose()


def test_mariadb_identity_is_the_same_for_every_user_and_differs_by_schema(maria: Server) -> None:
    user = maria.role()
    maria.sql(f"GRANT SELECT ON *.* TO '{user}'@'%'")
    assert maria.open().identity == maria.open(user).identity
    other = Database(maria.url.set(database="mysql"))
    assert other.identity != maria.open().identity
    other.dispose()


def test_databases_clock_is_read_in_utc(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    assert abs(server.open().now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_sqlite_foreign_keys_are_on_and_the_journal_stays(sqlite: Server) -> None:
    before = sqlite.rows("PRAGMA journal_mode")
    with sqlite.open().reading() as connection:
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    assert sqlite.rows("PRAGMA journal_mode") == before


def test_batch_on_sqlite_takes_the_write_lock_at_once(sqlite: Server, uploads: sa.Table) -> None:
    sqlite.create(uploads)
    rows = SqlRows(Rows(uploads, past(uploads.c.expires_at)), sqlite.open())
    first = rows.begin(AS_OF)
    with pytest.raises(BusyError, match="opening a batch"):
        rows.begin(AS_OF)
    first.rollback()
    rows.begin(AS_OF).rollback()


def test_applications_engine_lends_its_way_of_connecting_and_keeps_its_settings(pg: Server) -> None:
    engine = sa.create_engine(pg.url, pool_size=1)
    tokens: list[str] = []

    @sa.event.listens_for(engine, "do_connect")
    def token(_dialect: Any, _record: Any, _args: Any, params: dict[str, Any]) -> None:
        tokens.append("asked")
        params["application_name"] = "with-token"

    database = Database(engine)
    with database.reading() as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar() == "with-token"
        assert connection.connection.driver_connection.prepare_threshold is None
    assert tokens
    with engine.connect() as theirs:
        assert theirs.connection.driver_connection.prepare_threshold is not None
    database.dispose()
    engine.dispose()


def test_batches_are_read_committed_even_where_the_database_defaults_to_more(
    pg: Server, uploads: sa.Table
) -> None:
    pg.create(uploads)
    pg.sql(f"ALTER DATABASE {pg.url.database} SET default_transaction_isolation = 'serializable'")
    rows = SqlRows(Rows(uploads, past(uploads.c.expires_at)), pg.open())
    batch = rows.begin(AS_OF)
    shown = {
        name: batch.connection.exec_driver_sql(f"SHOW {name}").scalar()
        for name in ("transaction_isolation", "lock_timeout", "statement_timeout", "row_security")
    }
    assert shown == {
        "transaction_isolation": "read committed",
        "lock_timeout": "300ms",
        "statement_timeout": "10s",
        "row_security": "off",
    }
    assert batch.connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "20s"
    batch.rollback()


def test_no_statement_is_prepared_however_often_it_runs(pg: Server, uploads: sa.Table) -> None:
    pg.create(uploads)
    pg.insert(uploads, *({"id": i, "expires_at": aged(1)} for i in range(60)))
    rows = SqlRows(Rows(uploads, past(uploads.c.expires_at)), pg.open())
    for page in rows.scan(AS_OF, batch=4, portion=None):
        batch = rows.begin(AS_OF)
        batch.delete(batch.hold(page).rows)
        assert batch.connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements").scalar() == 0
        batch.commit()
    assert pg.rows("SELECT count(*) FROM uploads") == [(0,)]


def test_idle_batch_is_ended_by_the_server_and_noticed(pg: Server, uploads: sa.Table) -> None:
    pg.create(uploads)
    pg.insert(uploads, {"id": 1, "expires_at": aged(1)})
    database = Database(pg.url, timeouts=Timeouts(idle=timedelta(seconds=2)))
    rows = SqlRows(Rows(uploads, past(uploads.c.expires_at)), database)
    (page,) = rows.scan(AS_OF, batch=4, portion=None)
    batch = rows.begin(AS_OF)
    batch.delete(batch.hold(page).rows)
    pid = batch.connection.connection.driver_connection.info.backend_pid
    waited = threading.Event()
    while pg.rows(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"):
        waited.wait(0.02)
    with pytest.raises(StoreError):
        batch.prove_alive()
    batch.rollback()
    assert pg.rows("SELECT id FROM uploads") == [(1,)]
    database.dispose()


SLEEP = {
    "mariadb": sa.text("SELECT sleep(60)"),
    "postgresql": sa.text("SELECT pg_sleep(60)"),
    "sqlite": sa.text(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    ),
}


@pytest.fixture
def busy(server: Server, uploads: sa.Table) -> SqlRows:
    server.create(uploads)
    return SqlRows(Rows(uploads, past(uploads.c.expires_at)), server.open())


def test_statement_in_flight_can_be_cancelled_from_another_thread(server: Server, busy: SqlRows) -> None:
    batch = busy.begin(AS_OF)
    started, errors = threading.Event(), list[BaseException]()

    def work() -> None:
        started.set()
        try:
            batch.connection.execute(SLEEP[server.kind])
        except sa.exc.DBAPIError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    while thread.is_alive():  # the statement may not have reached the server yet
        busy.cancel()
        thread.join(0.05)
    assert len(errors) == 1
    batch.rollback()
    busy.cancel()


def test_a_count_that_a_stop_cancels_is_a_stop_and_not_unknown(server: Server, busy: SqlRows) -> None:
    started, found = threading.Event(), list[object]()

    def work() -> None:
        try:
            with busy.database.connected() as connection:
                started.set()
                found.append(Survey(busy, connection, AS_OF).scalar(SLEEP[server.kind]))  # type: ignore[arg-type]
        except InterruptedRunError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    while thread.is_alive():
        busy.database.cancel()
        thread.join(0.05)
    assert [type(f) for f in found] == [InterruptedRunError]
    assert "stop" in str(found[0])


def test_a_permission_whose_proof_a_stop_cancels_is_not_unknown(
    sqlite: Server, uploads: sa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite.create(uploads)
    target = SqlRows(Rows(uploads, past(uploads.c.expires_at)), sqlite.open())
    prober = SqlProber(target)

    def select(connection: sa.Connection, as_of: Any) -> None:
        timer = threading.Timer(0.1, target.database.cancel)
        timer.start()
        try:
            connection.execute(SLEEP["sqlite"])
        finally:
            timer.join()

    monkeypatch.setattr(prober, "_select", select)
    with pytest.raises(InterruptedRunError):
        prober.probe(AS_OF, [])


@pytest.mark.parametrize("kind", ["pg", "maria"])
def test_a_count_may_not_take_for_ever(kind: str, request: pytest.FixtureRequest, uploads: sa.Table) -> None:
    server: Server = request.getfixturevalue(kind)
    server.create(uploads)
    database = Database(
        server.url, timeouts=Timeouts(read=timedelta(seconds=1), statement=timedelta(seconds=9))
    )
    server.opened.append(database)
    rows = SqlRows(Rows(uploads, past(uploads.c.expires_at)), database)
    rows.begin(AS_OF).rollback()
    with database.connected() as connection:
        found = Survey(rows, connection, AS_OF).scalar(SLEEP[server.kind])  # type: ignore[arg-type]
    assert isinstance(found, Unknown)


class Colour(Enum):
    RED = "red"


def rows(uploads: sa.Table, days: int = 3, bucket: str = "acme-uploads", **more: Any) -> Rows:
    return Rows(
        uploads,
        older_than(uploads.c.expires_at, days=days),
        uploads.c.id.in_(more.get("ids", [1, 2, 3])),
        uploads.c.size > Decimal("1.50"),
        owns=S3Keys(bucket, uploads.c.s3_key),
    )


def test_definition_changes_with_what_it_selects(uploads: sa.Table) -> None:
    same = definition(rows(uploads))
    assert definition(rows(uploads)) == same
    others = [rows(uploads, days=4), rows(uploads, bucket="acme-other"), rows(uploads, ids=[1, 2])]
    assert len({same, *(definition(r) for r in others)}) == 4


def test_definition_is_the_same_in_another_process() -> None:
    program = (
        "import sqlalchemy as sa; from safedelete import Rows, past; from safedelete.sql import definition\n"
        "t = sa.Table('t', sa.MetaData(), sa.Column('id', sa.Integer, primary_key=True), sa.Column('at', sa.DateTime), "
        "sa.Column('k', sa.String))\n"
        "print(definition(Rows(t, past(t.c.at), t.c.k.in_({'a', 'b', 'c', 'd'}))))"
    )
    seen = set()
    for seed in ("1", "2", "3"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(run.stdout)
    assert len(seen) == 1
    assert "cutoff" in seen.pop()


def test_definition_refuses_a_value_without_a_stable_text(uploads: sa.Table) -> None:
    odd = Rows(
        uploads,
        past(uploads.c.expires_at),
        sa.bindparam("x", object(), type_=sa.types.NullType()) == uploads.c.id,
    )
    with pytest.raises(ConfigError, match="differs from process to process"):
        definition(odd)


def test_unused_pool_class_is_not_needed(sqlite: Server) -> None:
    assert isinstance(sqlite.open().engine.pool, NullPool)
