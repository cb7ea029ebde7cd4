"""The rendered rights suffice for a run, and each of them is needed: as a real role on a real server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete.declare import Purge, Rows, past
from safedelete.deploy.grants import FILE, render
from safedelete.deploy.spec import Grants
from safedelete.loader import load
from safedelete.testing.servers import Postgres
from tests.backends import GivenDatabase
from tests.deploy.conftest import Rendering
from tests.e2e.world import ROOT, run_here

JOBS = """
from datetime import timedelta

from sqlalchemy import *

from safedelete import Guard, Purge, Rows, S3Orphans, older_than, past

m = MetaData()
uploads = Table(
    "uploads", m, Column("id", BigInteger, primary_key=True), Column("Expires", DateTime(timezone=True), index=True),
    Column("hold", Boolean), Column("secret", String(99)),
)
Table("thumbs", m, Column("id", Integer, primary_key=True),
      Column("upload_id", ForeignKey("uploads.id", ondelete="CASCADE"), index=True), Column("secret", String(99)))
Table("notes", m, Column("id", Integer, primary_key=True),
      Column("upload_id", ForeignKey("uploads.id", ondelete="SET NULL"), index=True), Column("secret", String(99)))
Table("audit", m, Column("id", BigInteger), Column("secret", String(99)))
kept = Table("kept", m, Column("id", Integer, primary_key=True), Column("upload_id", BigInteger), Column("secret", String(99)))
here = select(kept.c.id).where(kept.c.upload_id == uploads.c.id).exists()
purge = Purge("uploads", Rows(uploads, past(uploads.c.Expires), uploads.c.hold.is_(False), ~here, may_touch=["audit"]),
              schedule="0 3 * * *", timeout=timedelta(minutes=9), guard=Guard(max_items=100))
"""


class Site:
    """A database with the tables, rows that are due, a ledger, and roles without a right."""

    def __init__(self, url: sa.URL, folder: Path) -> None:
        self.url = url
        self.engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        self.path = folder / "jobs.py"
        self.path.write_text(JOBS)
        self.jobs = load(self.path)
        self.tag = os.urandom(4).hex()
        self.spec = Grants(
            **{name: f"{name}_{self.tag}" for name in ("runner", "reader", "approver", "operator")}
        )
        rows = self.jobs.one(None).targets[0]  # type: ignore[union-attr]
        rows.table.metadata.create_all(self.engine)  # type: ignore[union-attr]
        self.sql(
            """INSERT INTO uploads SELECT n, now() - interval '1 hour' + (n / 10) * interval '1 day', false, 'x'
               FROM generate_series(0, 59) AS n""",
            "INSERT INTO thumbs SELECT n, n, 'x' FROM generate_series(0, 59) AS n",
            "INSERT INTO notes SELECT n, n, 'x' FROM generate_series(0, 59) AS n",
            "CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
            " $$ BEGIN INSERT INTO audit VALUES (OLD.id); RETURN NULL; END $$",
            "CREATE TRIGGER log AFTER DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION log()",
            *(f'CREATE ROLE "{role}" LOGIN' for role in self.roles),
        )
        done = self.cli("init", self.path)
        assert done.code == 0, (done.out, done.err)
        text = render(list(self.jobs.jobs.values()), self.spec)[FILE]
        self.grants = [line.removesuffix(";") for line in text.splitlines() if line.startswith("GRANT")]

    @property
    def roles(self) -> list[str]:
        return [self.spec.runner, self.spec.reader, self.spec.approver, self.spec.operator]

    def of(self, role: str) -> list[str]:
        return [grant for grant in self.grants if grant.endswith(f" TO {role}")]

    def sql(self, *statements: str) -> None:
        with self.engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def cli(self, *arguments: Any, role: str | None = None) -> Any:
        url = self.url.set(username=role) if role else self.url
        env = {
            "SAFEDELETE_DATABASE_URL": url.render_as_string(hide_password=False),
            "SAFEDELETE_ENVIRONMENT": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        return run_here([str(a) for a in arguments], env)

    def close(self) -> None:
        for role in self.roles:
            self.sql(f'DROP OWNED BY "{role}"', f'DROP ROLE "{role}"')
        self.engine.dispose()


@pytest.fixture
def site(postgres: Postgres | GivenDatabase, pg_database: str, tmp_path: Path) -> Iterator[Site]:
    name = sa.make_url(pg_database).database
    site = Site(sa.make_url(postgres.superuser_url).set(database=name), tmp_path)
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
    for grant in site.of(runner):
        for given, taken in pieces(grant):
            site.sql(taken)
            ended = site.cli("run", site.path, role=runner)
            # Refused where a count is unknown, denied by the preflight, or without its ledger: never done.
            assert ended.code in (3, 7, 8, 9), (given, ended.code, ended.out, ended.err)
            site.sql(given)
    done = site.cli("run", site.path, role=runner)
    assert done.code == 0, (done.out, done.err)
    with site.engine.connect() as connection:
        left = "SELECT (SELECT count(*) FROM uploads), (SELECT count(*) FROM thumbs), (SELECT count(upload_id) FROM notes)"
        assert tuple(connection.exec_driver_sql(left).one()) == (50, 50, 50)


def test_nobody_can_read_what_no_rule_names(site: Site) -> None:
    site.sql(*site.grants)
    for role in (site.spec.runner, site.spec.reader):
        engine = sa.create_engine(site.url.set(username=role), poolclass=NullPool)
        for table in ("uploads", "thumbs", "notes", "audit", "kept"):
            with (
                engine.connect() as connection,
                pytest.raises(sa.exc.ProgrammingError, match="permission denied"),
            ):
                connection.exec_driver_sql(f"SELECT secret FROM {table}")
        engine.dispose()


def test_a_reader_plans_and_looks_and_cannot_run(site: Site) -> None:
    reader = site.spec.reader
    site.sql(*site.of(reader))
    for verb in ("plan", "history"):
        ended = site.cli(verb, site.path, role=reader)
        assert ended.code == 0, (ended.out, ended.err)
    assert site.cli("run", site.path, role=reader).code in (7, 8, 9)


def test_an_approver_approves_and_a_runner_cannot(site: Site) -> None:
    site.sql(*site.grants)
    site.path.write_text(JOBS.replace("max_items=100", "max_items=5"))
    ended = site.cli("run", site.path, "--json", role=site.spec.runner)
    assert ended.code == 3, (ended.out, ended.err)
    approve = ("approve", ended.run, "--file", site.path, "--reason", "ticket 4711")
    denied = site.cli(*approve, role=site.spec.runner)
    assert denied.code == 8
    assert "Do not give this right to the role that runs purges" in denied.said
    assert "writes what each role needs" not in denied.said
    assert site.cli(*approve, role=site.spec.operator).code == 8
    done = site.cli(*approve, role=site.spec.approver)
    assert done.code == 0, (done.out, done.err)


def test_an_approver_sees_all_that_it_decides_by_and_needs_each_of_its_rights(site: Site) -> None:
    approver = site.spec.approver
    site.sql(*site.grants)
    site.path.write_text(JOBS.replace("max_items=100", "max_items=5"))
    run = site.cli("run", site.path, "--json", role=site.spec.runner).run
    approve = ("approve", run, "--file", site.path, "--reason", "ticket 4711")
    show = ("show", run, "--file", site.path)
    looks = [
        show, (*show, "--items"), (*show, "--json"), ("history", site.path), ("history", site.path, "--json"),
        ("history", site.path, "--html", site.path.with_suffix(".html")), ("status", site.path),
    ]  # fmt: skip
    for grant in site.of(approver):
        for given, taken in pieces(grant):
            site.sql(taken)
            codes = [site.cli(*verb, role=approver).code for verb in (*looks, approve)]
            assert 8 in codes, (given, codes)
            site.sql(given)
            # With a right taken, one of the last rounds may have approved it all the same.
            site.sql("DELETE FROM safedelete_approval")
    for verb in (*looks, approve):
        ended = site.cli(*verb, role=approver)
        assert ended.code == 0 or (verb[0] == "status" and ended.code == 1), (verb, ended.out, ended.err)
        assert "could not" not in ended.err, (verb, ended.err)
    # It approves, and nothing else: what it accepted, the runner executes.
    assert site.cli("run", site.path, role=approver).code == 8
    executed = site.cli("execute", run, "--file", site.path, role=site.spec.runner)
    assert executed.code == 0, (executed.out, executed.err)


SAID = re.compile(r"GRANT ([A-Z, ]+) ON ([a-z_, ]+) TO (\w+);")


@pytest.mark.parametrize(
    ("heading", "role"),
    [
        ("The database role of the runner", "runner"),
        ("The role of an approver", "approver"),
        ("The role of an operator", "operator"),
    ],
)
def test_the_page_on_permissions_grants_a_role_what_is_rendered_for_it(heading: str, role: str) -> None:
    page = (ROOT / "docs" / "how-to" / "permissions.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]

    def rights(text: str) -> set[tuple[str, str]]:
        return {
            (table, right)
            for rights, tables, _ in SAID.findall(text)
            for table in tables.split(", ")
            for right in rights.split(", ")
            if table.startswith("safedelete_")
        }

    rendered = [line for line in render([], Grants())[FILE].splitlines() if line.endswith(f"_{role};")]
    assert rights(section) == rights("\n".join(rendered))
    assert rights(section)


def test_a_watcher_needs_three_tables_and_nothing_of_the_purged_ones(site: Site) -> None:
    watcher, tables = site.spec.reader, ("safedelete_meta", "safedelete_run", "safedelete_notice")
    site.sql(*(f"GRANT SELECT ON {table} TO {watcher}" for table in tables))
    ended = site.cli("status", site.path, role=watcher)
    assert ended.code == 0, (ended.out, ended.err)
    for table in tables:
        site.sql(f"REVOKE SELECT ON {table} FROM {watcher}")
        refused = site.cli("status", site.path, role=watcher)
        assert refused.code == 8, (table, refused.out, refused.err)
        assert "safedelete render grants FILE" in refused.said
        site.sql(f"GRANT SELECT ON {table} TO {watcher}")


def test_an_operator_pauses_and_a_runner_cannot(site: Site) -> None:
    site.sql(*site.grants)
    pause = ("pause", site.path, "--reason", "moving")
    assert site.cli(*pause, role=site.spec.runner).code == 8
    done = site.cli(*pause, role=site.spec.operator)
    assert done.code == 0, (done.out, done.err)
    assert site.cli("run", site.path, role=site.spec.runner).code == 5


def test_what_a_text_hides_is_granted_whole_and_mysql_is_spelled_its_own_way(
    project: Path, render: Rendering
) -> None:
    (project / "jobs.py").write_text(JOBS.replace("~here,", 'literal_column("length(secret) > 1", Boolean),'))
    with (project / "safedelete.toml").open("a") as file:
        file.write('\n[grants]\ndialect = "mysql"\nrunner = "purger@10.0.%"\n')
    render("grants")
    text = (project / "deploy" / FILE).read_text()
    assert "GRANT SELECT ON uploads TO 'purger'@'10.0.%';" in text
    assert "GRANT DELETE ON uploads TO 'purger'@'10.0.%';" in text
    assert "UPDATE (" not in text


def test_rows_that_own_objects_may_be_locked(project: Path, render: Rendering) -> None:
    from tests.deploy.aws import JOBS as WITH_OBJECTS

    (project / "jobs.py").write_text(WITH_OBJECTS)
    render("grants")
    text = (project / "deploy" / FILE).read_text()
    assert "GRANT SELECT (expires_at, id, s3_key) ON uploads TO safedelete_runner;" in text
    assert "GRANT UPDATE (id) ON uploads TO safedelete_runner;" in text


def test_what_a_trigger_writes_is_said_to_need_rights_of_its_own() -> None:
    uploads = sa.Table(
        "uploads",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.DateTime),
    )
    purge = Purge(
        "uploads",
        Rows(uploads, past(uploads.c.at), may_touch=["audit_log"]),
        schedule="0 3 * * *",
        timeout=timedelta(minutes=9),
    )
    [said] = [line for line in render([purge], Grants())[FILE].splitlines() if "audit_log" in line]
    assert said.startswith(
        "-- audit_log (may_touch of uploads): a trigger writes to it with the runner's own rights"
    )
