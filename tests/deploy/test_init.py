"""`init` by a role that may not: one message with what is missing, where, and who has to do what; on real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete.errors import ExitCode
from safedelete.ledger import tables as ledger
from safedelete.locks.lease import table as lease
from safedelete.testing.servers import MariaDB, Postgres
from tests.backends import GivenDatabase
from tests.e2e.world import Ended, run_here

JOBS = """
from datetime import timedelta
from safedelete import job

@job("reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=15))
def reminders(run):
    pass
"""

TABLES = [lease.name, *sorted(ledger.metadata.tables)]


class Place:
    """A database, a role of it without a right, and a job file."""

    def __init__(self, kind: str, url: sa.URL, folder: Path) -> None:
        self.kind, self.url = kind, url
        self.engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        self.role = f"deployer_{os.urandom(4).hex()}"
        self.whom = f'"{self.role}"' if kind == "postgresql" else f"'{self.role}'@'%'"
        self.path = folder / "jobs.py"
        self.path.write_text(JOBS)
        if kind == "postgresql":
            self.sql(f"CREATE ROLE {self.whom} LOGIN")
        else:
            self.sql(f"CREATE USER {self.whom} IDENTIFIED BY '{url.password}'")
            # The least that lets it connect to the database.
            self.sql("CREATE TABLE theirs (id int)", f"GRANT SELECT ON theirs TO {self.whom}")

    def sql(self, *statements: str) -> None:
        with self.engine.connect() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    def init(self, *options: str, role: bool = False) -> Ended:
        return init(self.url.set(username=self.role) if role else self.url, self.path, *options)

    def close(self) -> None:
        if self.kind == "postgresql":
            self.sql(f"DROP OWNED BY {self.whom}", f"DROP ROLE {self.whom}")
        else:
            self.sql(f"DROP USER {self.whom}")
        self.engine.dispose()


def init(url: sa.URL, path: Path, *options: str) -> Ended:
    env = {
        "SAFEDELETE_DATABASE_URL": url.render_as_string(hide_password=False),
        "SAFEDELETE_ENVIRONMENT": "test",
    }
    return run_here(["init", str(path), *options], env)


@pytest.fixture(params=["postgresql", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    of = {"postgresql": ("postgres", "pg_database"), "mariadb": ("mariadb", "mariadb_database")}
    server_name, database_name = of[request.param]
    server: Postgres | MariaDB | GivenDatabase = request.getfixturevalue(server_name)
    name = sa.make_url(request.getfixturevalue(database_name)).database
    place = Place(request.param, sa.make_url(server.superuser_url).set(database=name), tmp_path)
    yield place
    place.close()


def refused(ended: Ended, *said: str) -> None:
    assert ended.code == ExitCode.LEDGER, (ended.code, ended.out, ended.err)
    assert "Traceback" not in ended.err
    assert "Nothing was deleted." in ended.said
    for words in said:
        assert words in ended.said, (words, ended.said)


def test_a_role_that_may_create_no_table_is_told_which_are_missing_and_who_makes_them(place: Place) -> None:
    refused(
        place.init(role=True),
        f"{lease.name}: missing",
        f"could not be created in {place.url.database} as {place.role}",
        "a role that may CREATE TABLE",
        "safedelete init FILE --sql",
        "safedelete render grants FILE",
    )
    assert set(sa.inspect(place.engine).get_table_names()) <= {"theirs"}


@pytest.mark.parametrize("missing", TABLES)
def test_whichever_table_is_missing_is_named(place: Place, missing: str) -> None:
    assert place.init().code == 0
    # Everything but to make one: on MariaDB ALL on a table would be that, too.
    rights = [f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {place.whom}" for name in TABLES]
    place.sql(*rights, f"DROP TABLE {missing}")
    refused(
        place.init(role=True), f"{missing}: missing", "could not be created", "a role that may CREATE TABLE"
    )


def test_tables_that_somebody_else_made_are_bound_once_the_named_rights_are_given(place: Place) -> None:
    made = place.init("--sql")
    assert made.code == 0
    place.sql(*(statement for statement in made.out.split(";\n") if statement.strip()))
    # On MariaDB a table is seen by whoever has a right on it.
    place.sql(*(f"GRANT SELECT ON {name} TO {place.whom}" for name in TABLES))
    ended = place.init(role=True)
    refused(ended, "could not be bound", place.role)
    rights = ("GRANT SELECT, INSERT, UPDATE ON safedelete_meta", "GRANT SELECT, INSERT ON safedelete_notice")
    for right in rights:
        assert right in ended.said
    place.sql(f"{rights[0]} TO {place.whom}")
    refused(place.init(role=True), "safedelete_notice", "safedelete render grants FILE")
    place.sql(f"{rights[1]} TO {place.whom}")
    done = place.init(role=True)
    assert done.code == 0, (done.out, done.err)
    assert "Nothing to create." in done.out


@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_a_statement_that_fails_for_another_reason_asks_for_no_other_role(place: Place) -> None:
    # As where another `init` has made it in the meantime: it is not listed, and cannot be made.
    place.sql(f"CREATE TYPE {lease.name} AS (job text)")
    ended = place.init()
    refused(ended, f"{lease.name}: missing", "already exists", "Run it again.", "safedelete init FILE --sql")
    assert "a role that may" not in ended.said


def test_new_tables_come_with_the_command_that_gives_the_roles_their_rights(place: Place) -> None:
    first, again = place.init(), place.init()
    assert f"safedelete render grants {place.path}" in first.out
    # There the right to make a table is none to grant on it, and PROCESS is the whole server's.
    assert "on MariaDB and MySQL as an administrator" in first.out
    # Every deploy runs it: where nothing was made there is nothing to give.
    assert "render grants" not in again.out


def test_a_database_without_roles_gets_no_word_of_them(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    ended = init(sa.make_url(f"sqlite:///{tmp_path / 'db.sqlite3'}"), tmp_path / "jobs.py")
    assert ended.code == 0, (ended.out, ended.err)
    assert "Created" in ended.out
    assert "render grants" not in ended.out


@pytest.mark.parametrize("missing", [*TABLES, None])
def test_a_file_that_cannot_be_written_is_told_as_such(tmp_path: Path, missing: str | None) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    file = tmp_path / "db.sqlite3"
    writable: Any = sa.make_url(f"sqlite:///{file}")
    assert init(writable, tmp_path / "jobs.py").code == 0
    if missing is not None:
        engine = sa.create_engine(writable, poolclass=NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE {missing}")
    ended = init(sa.make_url(f"sqlite:///file:{file}?mode=ro&uri=true"), tmp_path / "jobs.py")
    what = f"{missing}: missing, and could not be created" if missing else "The ledger could not be bound"
    refused(ended, what, str(file), "cannot be written")
