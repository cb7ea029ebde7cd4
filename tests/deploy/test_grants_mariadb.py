"""On MariaDB the rendered rights suffice for a run, and each of them is needed: as a real account on a real server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete.deploy.grants import FILE, render
from safedelete.deploy.spec import Grants
from safedelete.loader import load
from safedelete.testing.servers import MariaDB
from tests.backends import GivenDatabase
from tests.e2e.world import run_here

JOBS = """
from datetime import timedelta

from sqlalchemy import *
from sqlalchemy.dialects.mysql import DATETIME

from safedelete import Guard, Purge, Rows, past

m = MetaData()
uploads = Table(
    "uploads", m, Column("id", BigInteger, primary_key=True), Column("expires", DATETIME(fsp=6), index=True),
    Column("secret", String(99)),
)
thumbs = Table("thumbs", m, Column("id", Integer, primary_key=True),
               Column("upload_id", ForeignKey("uploads.id", ondelete="CASCADE"), index=True), Column("secret", String(99)))
Table("crops", m, Column("id", Integer, primary_key=True),
      Column("thumb_id", ForeignKey("thumbs.id", ondelete="CASCADE"), index=True), Column("secret", String(99)))
Table("notes", m, Column("id", Integer, primary_key=True),
      Column("upload_id", ForeignKey("uploads.id", ondelete="SET NULL"), index=True), Column("secret", String(99)))
Table("bills", m, Column("id", Integer, primary_key=True),
      Column("upload_id", ForeignKey("uploads.id"), index=True), Column("secret", String(99)))
kept = Table("kept", m, Column("id", Integer, primary_key=True), Column("upload_id", BigInteger), Column("secret", String(99)))
Table("audit", m, Column("id", BigInteger))
here = select(kept.c.id).where(kept.c.upload_id == uploads.c.id).exists()
purge = Purge("uploads", Rows(uploads, past(uploads.c.expires), ~here, may_touch=["audit"]),
              schedule="0 3 * * *", timeout=timedelta(minutes=9), guard=Guard(max_items=100))
"""


class Site:
    """A database with the tables and a trigger, rows that are due, a ledger, and an account without a right."""

    def __init__(self, url: sa.URL, folder: Path) -> None:
        self.url = url
        self.engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        self.path = folder / "jobs.py"
        self.path.write_text(JOBS)
        self.spec = Grants(
            dialect="mysql", runner=f"r_{os.urandom(4).hex()}@%", reader=f"q_{os.urandom(4).hex()}@%"
        )
        jobs = load(self.path)
        jobs.one(None).targets[0].table.metadata.create_all(self.engine)  # type: ignore[union-attr]
        self.sql(
            "INSERT INTO uploads SELECT seq, utc_timestamp(6) - interval 1 hour + interval ((seq - 1) DIV 10) day, 'x' FROM seq_1_to_60",
            "INSERT INTO thumbs SELECT seq, seq, 'x' FROM seq_1_to_60",
            "INSERT INTO crops SELECT seq, seq, 'x' FROM seq_1_to_60",
            "INSERT INTO notes SELECT seq, seq, 'x' FROM seq_1_to_60",
            "CREATE TRIGGER t AFTER DELETE ON uploads FOR EACH ROW INSERT INTO audit VALUES (OLD.id)",
            *(f"CREATE USER {self.account(role)} IDENTIFIED BY '{url.password}'" for role in self.roles),
        )
        done = self.cli("init", self.path)
        assert done.code == 0, (done.out, done.err)
        text = render(list(jobs.jobs.values()), self.spec)[FILE]
        self.grants = [line.removesuffix(";") for line in text.splitlines() if line.startswith("GRANT")]

    @property
    def roles(self) -> list[str]:
        return [self.spec.runner, self.spec.reader]

    def account(self, role: str) -> str:
        user, _, host = role.partition("@")
        return f"'{user}'@'{host}'"

    def of(self, role: str) -> list[str]:
        return [grant for grant in self.grants if grant.endswith(f" TO {self.account(role)}")]

    def sql(self, *statements: str) -> None:
        with self.engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", "%%"))

    def cli(self, *arguments: Any, role: str | None = None) -> Any:
        url = self.url.set(username=role.partition("@")[0]) if role else self.url
        env = {
            "SAFEDELETE_DATABASE_URL": url.render_as_string(hide_password=False),
            "SAFEDELETE_ENVIRONMENT": "test",
        }
        return run_here([str(a) for a in arguments], env)

    def counts(self) -> list[int]:
        tables = ("uploads", "thumbs", "crops", "notes", "audit")
        with self.engine.connect() as connection:
            return [connection.exec_driver_sql(f"SELECT count(*) FROM {t}").scalar_one() for t in tables]

    def close(self) -> None:
        self.sql(*(f"DROP USER {self.account(role)}" for role in self.roles))
        self.engine.dispose()


@pytest.fixture
def site(mariadb: MariaDB | GivenDatabase, mariadb_database: str, tmp_path: Path) -> Iterator[Site]:
    name = sa.make_url(mariadb_database).database
    site = Site(sa.make_url(mariadb.superuser_url).set(database=name), tmp_path)
    yield site
    site.close()


def pieces(grant: str) -> Iterator[tuple[str, str]]:
    """Split a statement into single rights on single columns, each as it is granted and as it is revoked."""
    match = re.fullmatch(r"GRANT (.+) ON (\S+) TO (\S+)", grant)
    assert match, grant
    rights, table, role = match.groups()
    by_column = re.fullmatch(r"(\w+) \((.+)\)", rights)
    each = [f"{by_column[1]} ({c})" for c in by_column[2].split(", ")] if by_column else rights.split(", ")
    for right in each:
        yield f"GRANT {right} ON {table} TO {role}", f"REVOKE {right} ON {table} FROM {role}"


def test_a_run_succeeds_with_the_rendered_rights_and_each_of_them_is_needed(site: Site) -> None:
    runner = site.spec.runner
    site.sql(*site.of(runner))
    assert "GRANT PROCESS ON *.* TO " + site.account(runner) in site.grants
    for grant in site.of(runner):
        for given, taken in pieces(grant):
            site.sql(taken)
            ended = site.cli("run", site.path, role=runner)
            assert ended.code in (3, 7, 8, 9), (given, ended.code, ended.out, ended.err)
            site.sql(given)
    assert site.counts() == [60, 60, 60, 60, 0]
    proven = site.cli("check", site.path, role=runner)
    assert proven.code == 0, (proven.out, proven.err)
    done = site.cli("run", site.path, role=runner)
    assert done.code == 0, (done.out, done.err)
    assert site.counts() == [50, 50, 50, 60, 10]


def test_nobody_can_read_what_no_rule_names(site: Site) -> None:
    site.sql(*site.of(site.spec.runner), *site.of(site.spec.reader))
    for role in site.roles:
        engine = sa.create_engine(site.url.set(username=role.partition("@")[0]), poolclass=NullPool)
        for table in ("uploads", "thumbs", "crops", "notes", "bills", "kept"):
            with (
                engine.connect() as connection,
                pytest.raises(sa.exc.OperationalError, match="denied"),
            ):
                connection.exec_driver_sql(f"SELECT secret FROM {table}")
        engine.dispose()


def test_a_reader_plans_and_cannot_run(site: Site) -> None:
    reader = site.spec.reader
    site.sql(*site.of(reader))
    planned = site.cli("plan", site.path, role=reader)
    assert planned.code == 0, (planned.out, planned.err)
    assert not [grant for grant in site.of(reader) if "TRIGGER" in grant or "PROCESS" in grant]
    assert site.cli("run", site.path, role=reader).code in (7, 8, 9)
    assert site.counts() == [60, 60, 60, 60, 0]


def test_who_accepts_what_is_unseen_is_granted_less_and_runs(site: Site) -> None:
    runner = site.spec.runner
    site.path.write_text(JOBS.replace('may_touch=["audit"]', 'may_touch=["audit"], allow_unseen=True'))
    text = render(list(load(site.path).jobs.values()), site.spec)[FILE]
    grants = [line.removesuffix(";") for line in text.splitlines() if line.startswith("GRANT")]
    given = [grant for grant in grants if grant.endswith(f" TO {site.account(runner)}")]
    assert not [grant for grant in given if "TRIGGER" in grant or "PROCESS" in grant]
    site.sql(*given)
    done = site.cli("run", site.path, role=runner)
    assert done.code == 0, (done.out, done.err)
    assert site.counts() == [50, 50, 50, 60, 10]
