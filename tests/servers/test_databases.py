"""The database starters give what tests need: fresh databases, an ordinary role, a superuser."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from safedelete.testing.servers import MariaDB, Postgres
from tests.backends import GivenDatabase


def ask(url: str, statement: str) -> object:
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return result.scalar() if result.returns_rows else None


@pytest.mark.parametrize("fixture", ["pg_database", "mariadb_database"])
def test_a_fresh_database_is_empty_and_writable(fixture: str, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(fixture)
    ask(url, "CREATE TABLE t (a int)")
    assert ask(url, "SELECT count(*) FROM t") == 0


@pytest.mark.parametrize("fixture", ["postgres", "mariadb"])
def test_a_dropped_database_is_gone_even_while_it_is_in_use(
    fixture: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(fixture)
    url = server.create_database()
    name = make_url(url).database
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        connection.commit()
        server.drop_database(name)
        connection.detach()
    with pytest.raises(OperationalError):
        ask(url, "SELECT 1")


def test_the_ordinary_postgres_role_is_no_superuser(postgres: Postgres | GivenDatabase) -> None:
    if isinstance(postgres, GivenDatabase):
        pytest.skip("Not our server.")
    assert ask(postgres.url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    assert ask(postgres.superuser_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is True


def test_the_ordinary_mariadb_user_is_no_superuser(mariadb: MariaDB | GivenDatabase) -> None:
    if isinstance(mariadb, GivenDatabase):
        pytest.skip("Not our server.")
    with pytest.raises(OperationalError, match="command denied"):
        ask(mariadb.url, "SELECT count(*) FROM mysql.user")
    assert ask(mariadb.superuser_url, "SELECT count(*) > 0 FROM mysql.user")


def test_both_servers_run_in_utc(
    postgres: Postgres | GivenDatabase, mariadb: MariaDB | GivenDatabase
) -> None:
    assert ask(postgres.url, "SHOW timezone") == "UTC"
    assert ask(mariadb.url, "SELECT @@time_zone") == "+00:00"


@pytest.mark.parametrize("name", ["", "Upper", 'quo"te', "x" * 64, "semi;colon"])
def test_a_name_that_would_need_escaping_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no database name"):
        Postgres().drop_database(name)
    with pytest.raises(ValueError, match="no database name"):
        MariaDB().drop_database(name)
