"""Which environment, and which ledger: the name is asked for, and nothing is bound by guessing."""

from __future__ import annotations

import shutil
from pathlib import Path

import sqlalchemy as sa

from safedelete.errors import ExitCode
from tests.cli.test_exit_codes import told
from tests.e2e.world import World


def test_init_wants_a_name_for_the_environment(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    for name in ("", "  "):
        refused = world.cli("init", jobs, SAFEDELETE_ENVIRONMENT=name, expect=2)
        assert "SAFEDELETE_ENVIRONMENT" in refused.said
        assert "--environment" in refused.said
    world.cli("init", jobs, "--environment", "test", SAFEDELETE_ENVIRONMENT="", expect=0)
    world.cli("run", jobs, expect=0)


def test_run_without_a_name_for_the_environment_is_refused(world: World) -> None:
    # A snapshot restored elsewhere has the identity of its original: the name alone tells them apart.
    jobs = world.ready()
    for verb in (["plan", jobs], ["run", jobs], ["run", jobs, "--dry-run"], ["check", jobs]):
        refused = world.cli(*verb, SAFEDELETE_ENVIRONMENT="", expect=8)
        assert "names none" in refused.said
        assert "SAFEDELETE_ENVIRONMENT=test" in refused.said
    assert world.rows() == world.objects() == set(range(1, 13))


# --- several databases, each with its own ledger

SECOND = """


other = Purge(
    "other-uploads",
    Rows(uploads, past(uploads.c.expires_at)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=10),
    guard=Guard(max_items=2),
    database="sqlite:///OTHER",
)
"""


def two_databases(world: World) -> tuple[Path, sa.URL]:
    world.seed()
    other = world.folder / "other.db"
    shutil.copyfile(str(world.url.database), other)
    jobs = world.jobs()
    jobs.write_text(jobs.read_text() + SECOND.replace("OTHER", str(other)))
    return jobs, world.url.set(database=str(other))


def test_each_database_gets_its_own_ledger(world: World) -> None:
    jobs, _ = two_databases(world)
    world.cli("init", jobs, expect=0)
    world.cli("plan", jobs, "expired-uploads", expect=0)
    world.cli("plan", jobs, "other-uploads", expect=3)


def test_a_run_is_found_in_whichever_ledger_it_is(world: World) -> None:
    jobs, _ = two_databases(world)
    world.cli("init", jobs, expect=0)
    run = world.cli("run", jobs, "other-uploads", "--json", expect=3).run
    assert world.cli("show", run, "--json", "--file", jobs, expect=0).document["job"] == "other-uploads"
    world.cli("approve", run, "--reason", "looked at", "--file", jobs, expect=0)
    world.cli("execute", run, "--file", jobs, expect=0)
    first = world.cli("run", jobs, "expired-uploads", "--json", expect=0).run
    assert world.cli("show", first, "--json", "--file", jobs, expect=0).document["state"] == "succeeded"
    told(world.cli("show", "01", "--file", jobs), ExitCode.USAGE, "more than one run")
    told(world.cli("show", "7ZZ", "--file", jobs), ExitCode.USAGE, "no run", "'7ZZ'")


def test_a_ledger_that_does_not_answer_hides_no_run_of_another(world: World) -> None:
    jobs, other = two_databases(world)
    world.cli("init", jobs, expect=0)
    run = world.cli("run", jobs, "expired-uploads", "--json", expect=0).run
    Path(str(other.database)).unlink()
    assert world.cli("show", run, "--json", "--file", jobs, expect=0).document["run"] == run
    # The beginning of an id may also be that of a run which cannot be looked at.
    told(world.cli("show", run[:20], "--file", jobs), ExitCode.STORE, "other.db")


def test_the_ddl_is_printed_for_each_database_and_nothing_is_created(world: World) -> None:
    jobs = world.jobs()
    absent = world.url.set(database=str(world.folder / "absent.db"))
    sql = world.cli("init", jobs, "--sql", url=absent, SAFEDELETE_ENVIRONMENT="", expect=0).out
    assert not (world.folder / "absent.db").exists()
    assert sql.count("CREATE TABLE safedelete_lease") == sql.count("CREATE TABLE safedelete_run") == 1
    ledger = "mysql+pymysql://nobody@127.0.0.1:1/ledger"
    both = world.cli("init", jobs, "--sql", url=absent, SAFEDELETE_LEDGER_URL=ledger, expect=0).out
    assert both.count("CREATE TABLE safedelete_lease") == 2
    assert both.count("CREATE TABLE safedelete_run") == 1
    assert "-- mysql+pymysql://127.0.0.1:1/ledger\n" in both
    assert "LONGBLOB" in both.split("-- sqlite")[0]
