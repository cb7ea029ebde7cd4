"""What each verb does with what it is asked, where the answer could be mistaken for another."""

from __future__ import annotations

import json

import pytest
import sqlalchemy as sa

import safedelete
from safedelete.errors import ExitCode, LedgerError
from safedelete.testing.servers import StubS3
from safedelete.testing.servers.faults import key_errors
from safedelete.wiring import verbs
from tests.cli.test_bad_input import SECOND
from tests.cli.test_exit_codes import told, untouched
from tests.e2e.world import World, before_execute


def test_a_function_has_no_plan(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text() + SECOND)
    told(world.cli("plan", jobs, "reminders"), ExitCode.USAGE, "reminders", "not a purge")
    assert "reminders: a function, not a purge" in world.cli("plan", jobs, expect=0).out


def test_a_manifest_is_refused_where_nothing_is_sealed(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text() + SECOND)
    path = world.folder / "manifest.jsonl"
    for arguments in (["expired-uploads", "--dry-run"], ["reminders"]):
        told(world.cli("run", jobs, *arguments, "--manifest", path), ExitCode.USAGE, "no manifest")
    assert not path.exists()
    untouched(world)


def test_the_manifest_of_a_saved_plan_is_what_was_sealed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = world.ready()
    real = verbs.runner.save

    def late(ctx: object) -> object:
        report = real(ctx)  # type: ignore[arg-type]
        world.sql("UPDATE uploads SET expires_at = '2020-01-01 00:00:00' WHERE id = 9")
        return report

    monkeypatch.setattr(verbs.runner, "save", late)
    path = world.folder / "manifest.jsonl"
    run = world.cli("plan", jobs, "--save", "--json", "--manifest", path, expect=0).document[0]["run"]
    listed = [json.loads(line)["key"] for line in path.read_text().splitlines()]
    assert listed == [item["key"] for item in world.shown(run)["items"]] == [[1], [2], [3]]


def test_an_approval_lasts_no_longer_than_what_is_sealed(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    run = world.cli("run", jobs, "--json", expect=3).run
    approve = ["approve", run, "--reason", "x", "--file", jobs, "--expires-in"]
    told(world.cli(*approve, "25"), ExitCode.USAGE, "at most 24 hours")
    world.cli(*approve, "24", expect=0)


def test_show_in_json_lists_what_the_tables_list(world: World) -> None:
    jobs = world.ready()
    run = world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    assert world.cli("show", run, "--json", expect=0).document["items"] == []
    assert len(world.cli("show", run, "--json", "--items", expect=0).document["items"]) == 3


def test_an_approver_without_a_name_is_told_by_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    run = world.cli("run", jobs, "--json", expect=3).run

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nameless)
    assert "by uid " in world.cli("approve", run, "--reason", "x", "--file", jobs, expect=0).out


def test_a_ledger_that_cannot_be_shown_does_not_change_how_a_run_ended(
    world: World, store: StubS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = world.ready()

    def fails(*_: object) -> object:
        raise LedgerError("The ledger could not read a run: gone away.")

    monkeypatch.setattr("safedelete.wiring.shown", fails)
    with before_execute(lambda: store.always(key_errors({"up/000002.bin": "AccessDenied"}))):
        ran = world.cli("run", jobs)
    assert ran.code == 7
    assert "cannot be shown" in ran.said
    assert "Nothing was deleted" not in ran.said


def test_a_ledger_that_cannot_be_shown_does_not_change_a_refusal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")

    def fails(*_: object) -> object:
        raise LedgerError("The ledger could not read a run: gone away.")

    monkeypatch.setattr("safedelete.wiring.story", fails)
    ran = world.cli("run", jobs)
    assert ran.code == 3
    assert "SD101" in ran.said
    assert "cannot be shown" in ran.said


def test_a_connection_at_import_is_refused_also_when_the_file_hides_it(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    hidden = f"""
from sqlalchemy import create_engine
try:
    create_engine({str(world.url)!r}).connect()
except Exception:
    pass
"""
    jobs.write_text(jobs.read_text() + hidden)
    told(world.cli("run", jobs), ExitCode.USAGE, "opens a database connection while it loads")
    untouched(world)


def test_a_function_may_import_a_neighbour_when_it_is_called(world: World) -> None:
    jobs = world.ready()
    (world.folder / "neighbour_of_jobs.py").write_text("ITEMS = 7\n")
    lazy = SECOND.replace("run.processed(1)", "import neighbour_of_jobs as n\n    run.processed(n.ITEMS)")
    jobs.write_text(jobs.read_text() + lazy)
    assert "7 processed" in world.cli("run", jobs, "reminders", expect=0).out


def test_check_proves_the_lease_table(world: World) -> None:
    jobs = world.ready()
    (document,) = world.cli("check", jobs, "--json", expect=0).document["permissions"]
    subjects = {proof["subject"] for proof in document["permissions"]}
    assert {f"{verb} on safedelete_lease" for verb in ("SELECT", "INSERT", "UPDATE")} <= subjects
    world.sql("DROP TABLE safedelete_lease")
    checked = world.cli("check", jobs)
    assert checked.code == 9
    assert "safedelete_lease" in checked.out


def test_proving_the_lease_table_leaves_nothing_there(world: World) -> None:
    world.cli("check", world.ready(), expect=0)
    with sa.create_engine(world.url).connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM safedelete_lease").scalar_one() == 0


def test_run_in_json_names_what_did_not_go(
    world: World, store: StubS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = world.ready()
    with before_execute(lambda: store.always(key_errors({"up/000002.bin": "AccessDenied"}))):
        document = world.cli("run", jobs, "--json", expect=7).document
    assert [(item["key"], item["outcome"], item["code"]) for item in document["items"]] == [
        ([2], "failed", "AccessDenied")
    ]
    store.behave()
    assert world.cli("run", jobs, "--json", expect=0).document["items"] == []


def test_everything_that_the_verbs_do_can_be_done_in_python(world: World) -> None:
    for name in safedelete.__all__:
        assert getattr(safedelete, name) is not None
    jobs = world.ready(options="grace=timedelta(hours=23),")
    with world.inside():
        job = world.job(jobs)
        assert isinstance(job, safedelete.Purge)
        checked = safedelete.check(job)
        assert {finding.code for finding in checked.lint} >= {"SD406"}
        ran = safedelete.run(job)
        assert ran.run is not None
        record = safedelete.show(job, ran.run)
    assert isinstance(record, safedelete.RunRecord)
    assert record.tally == ran.tally


def test_a_mistyped_database_is_not_created(world: World) -> None:
    jobs = world.ready()
    lost = world.folder / "acme-typo.db"
    told(world.cli("init", jobs, url=sa.make_url(f"sqlite:///{lost}")), ExitCode.STORE, "does not exist")
    assert not lost.exists()


def test_check_proves_deletion_on_a_day_on_which_nothing_is_eligible(world: World) -> None:
    jobs = world.ready()
    world.sql("UPDATE uploads SET expires_at = '2999-01-01 00:00:00'")
    (document,) = world.cli("check", jobs, "--json", expect=0).document["permissions"]
    assert document["plan"]["targets"][0]["items"] == 0
    assert any(p["subject"].startswith("s3:DeleteObject on s3://acme") for p in document["permissions"])
    untouched(world)
