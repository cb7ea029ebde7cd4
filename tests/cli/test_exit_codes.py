"""Each way a command can end: its exit code, and what a person reads on standard error."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from safedelete.errors import ExitCode
from safedelete.testing.servers import StubS3
from safedelete.testing.servers.faults import Fault, Request, key_errors, refusing
from tests.e2e.world import Ended, World, before_execute
from tests.worlds import batches_of

ALL = set(range(1, 13))

GONE = """
from sqlalchemy import Column, DateTime, Integer, MetaData, Table

absent = Table(
    "nowhere", MetaData(), Column("id", Integer, primary_key=True), Column("expires_at", DateTime(timezone=True))
)
gone = Purge(
    "gone", Rows(absent, past(absent.c.expires_at)), schedule="cron(0 4 * * ? *)", timeout=timedelta(minutes=10)
)
"""


def told(ended: Ended, code: ExitCode, *words: str, deleted: str = "Nothing was deleted.") -> None:
    """Check an error: its code, its words, whether anything was deleted, what to do next, and no traceback."""
    assert ended.code == int(code), (ended.code, ended.out, ended.err)
    assert ended.said.startswith("safedelete: ")
    for word in words:
        assert word in ended.said
    assert deleted in ended.said
    assert "Hint: " in ended.said
    assert "Traceback" not in ended.err
    assert "sqlalche.me" not in ended.err
    assert "[SQL:" not in ended.err


def untouched(world: World) -> None:
    assert world.rows() == world.objects() == ALL


def test_0_done(world: World) -> None:
    jobs = world.ready()
    for verb in (["init", jobs], ["check", jobs], ["plan", jobs], ["run", jobs], ["history", jobs]):
        assert world.cli(*verb, expect=0).said == ""
    run = world.cli("history", jobs, "--json", expect=0).document[0]["run"]
    world.cli("show", run, expect=0)
    world.cli("show", run[:20].lower(), "--items", expect=0)
    assert world.rows() == world.objects() == ALL - {1, 2, 3}


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["no-such-verb"],
        ["run", "jobs.py", "--no-such-option"],
        ["history", "jobs.py", "--limit", "0"],
        ["approve", "R"],
    ],
)
def test_2_usage(world: World, arguments: list[str]) -> None:
    done = world.cli(*arguments)
    assert done.code == 2
    assert "Traceback" not in done.err
    assert done.err.strip()


def test_2_options_that_contradict(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    told(world.cli("approve", "R", "--reason", "x", "--one-off", "--usual", "--file", jobs), ExitCode.USAGE)
    told(world.cli("approve", "R", "--reason", "  ", "--file", jobs), ExitCode.USAGE)
    told(world.cli("execute", "R"), ExitCode.USAGE, "Which job file?")


def test_3_refused(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    planned = world.cli("plan", jobs)
    assert planned.code == 3
    assert "SD101" in planned.out
    assert "Nothing was deleted." in planned.out
    told(world.cli("run", jobs), ExitCode.REFUSED, "SD101", "max_items is 2", "safedelete approve ")
    dry = world.cli("run", jobs, "--dry-run")
    assert dry.code == 3
    untouched(world)


def test_3_a_run_that_cannot_be_executed(world: World) -> None:
    jobs = world.ready()
    run = world.cli("run", jobs, "--json", expect=0).run
    told(world.cli("execute", run, "--file", jobs), ExitCode.REFUSED, "succeeded")
    told(world.cli("approve", run, "--reason", "x", "--file", jobs), ExitCode.REFUSED, "succeeded")


def test_4_deadline(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text().replace("timedelta(minutes=10)", "timedelta(microseconds=1)"))
    told(world.cli("run", jobs), ExitCode.INCOMPLETE, "timeout")
    untouched(world)


def test_5_lock_held(world: World) -> None:
    jobs = world.ready()
    world.sql(
        "INSERT INTO safedelete_lease (job, owner, token, expires_ms, taken_at, host, pid) VALUES "
        "('expired-uploads', 'them', 7, 99999999999999, '2026-01-01T00:00:00+00:00', 'night-host', 4711)"
    )
    told(world.cli("run", jobs), ExitCode.SKIPPED, "night-host", "4711", "2026-01-01T00:00:00+00:00")
    told(world.cli("plan", jobs, "--save"), ExitCode.SKIPPED, "night-host")
    untouched(world)


def test_6_lock_lost(world: World) -> None:
    jobs = world.ready()
    with before_execute(lambda: world.sql("UPDATE safedelete_lease SET token = token + 1, owner = 'them'")):
        lost = world.cli("run", jobs)
    # The batch had been marked in doubt, and only the next run can look.
    told(lost, ExitCode.LOCK_LOST, "lost", deleted="could not be determined")
    untouched(world)


def test_7_store_refuses_everything(world: World, store: StubS3) -> None:
    jobs = world.ready()
    with before_execute(lambda: store.always(refusing(403, "AccessDenied"))):
        told(world.cli("run", jobs), ExitCode.STORE, "AccessDenied")
    untouched(world)


def test_7_one_object_refused(world: World, store: StubS3) -> None:
    jobs = world.ready()
    with before_execute(lambda: store.always(key_errors({"up/000002.bin": "AccessDenied"}))):
        ran = world.cli("run", jobs)
    assert ran.code == 7
    assert "up/000002.bin" in ran.out
    assert "AccessDenied" in ran.out
    assert "Traceback" not in ran.err


def test_7_says_how_many_were_deleted_before_a_batch_was_refused(world: World, store: StubS3) -> None:
    jobs = world.ready(due=6)
    seen = []

    def second(request: Request) -> Fault | None:
        if request.operation == "DeleteObjects":
            seen.append(request)
            return refusing(403, "AccessDenied") if len(seen) > 1 else None
        return None

    def arm() -> None:
        store.program = second

    with batches_of(4), before_execute(arm):
        ran = world.cli("run", jobs)
    told(ran, ExitCode.STORE, "AccessDenied", deleted="4 item(s) were deleted before this.")


def test_8_ledger_not_initialised(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    for verb in (["plan", jobs], ["run", jobs], ["check", jobs], ["history", jobs]):
        told(world.cli(*verb), ExitCode.LEDGER, "not initialised", "safedelete init")
    untouched(world)
    tables = world.value("SELECT count(*) FROM sqlite_master WHERE name LIKE 'safedelete%%'")
    assert tables == 0, "only init creates tables"


def test_2_no_such_run(world: World) -> None:
    jobs = world.ready()
    for verb in (["show", "01ZZ"], ["execute", "01ZZ"], ["approve", "01ZZ", "--reason", "x"]):
        told(world.cli(*verb, "--file", jobs), ExitCode.USAGE, "no run", "'01ZZ'")


def test_9_preflight_denied(world: World, store: StubS3) -> None:
    jobs = world.ready()
    store.always(refusing(403, "AccessDenied"), "DeleteObjects")
    told(world.cli("run", jobs), ExitCode.PREFLIGHT, "denied", "s3:DeleteObject", "acme/up/")
    told(world.cli("run", jobs, "--dry-run"), ExitCode.PREFLIGHT, "s3:DeleteObject")
    for verb in (["check", jobs], ["plan", jobs, "--preflight"]):
        done = world.cli(*verb)
        assert done.code == 9
        assert "DENIED" in done.out
        assert '"s3:DeleteObject"' in done.out
    untouched(world)


def test_9_preflight_unknown(world: World, store: StubS3) -> None:
    jobs = world.ready()
    store.always(refusing(503, "SlowDown"), "DeleteObjects")
    told(world.cli("run", jobs), ExitCode.PREFLIGHT, "could not be proven")
    untouched(world)


def test_debug_adds_the_traceback_and_keeps_the_exit_code(world: World) -> None:
    world.seed()
    done = world.cli("--debug", "run", world.jobs())
    assert done.code == 8
    assert "Traceback" in done.err
    assert "not initialised" in done.err


def test_the_process_itself_ends_with_the_code(world: World) -> None:
    world.seed()
    done = subprocess.run(
        [sys.executable, "-m", "safedelete", "run", str(world.jobs())],
        env=world.env(),
        capture_output=True,
        text=True,
        check=False,
    )
    told(Ended(done.returncode, done.stdout, done.stderr), ExitCode.LEDGER, "not initialised")


def test_version_is_the_installed_one(world: World) -> None:
    assert world.cli("version", expect=0).out.strip()[0].isdigit()


def test_times_in_messages_are_utc(world: World) -> None:
    jobs = world.ready()
    assert f"{datetime.now(UTC):%Y-%m-%d}" in world.cli("plan", jobs, expect=0).out


def test_with_json_an_error_is_one_document_too(world: World) -> None:
    jobs = world.ready()
    world.sql(
        "INSERT INTO safedelete_lease (job, owner, token, expires_ms, taken_at, host, pid) VALUES "
        "('expired-uploads', 'them', 7, 99999999999999, '2026-01-01T00:00:00+00:00', 'night-host', 4711)"
    )
    held = world.cli("run", jobs, "--json").document
    assert (held["error"], held["exit_code"], held["deleted"]) == ("LockHeldError", 5, 0)
    assert (held["holder"], held["since"]) == ("night-host:4711", "2026-01-01T00:00:00+00:00")
    missing = world.cli("show", "01ZZ", "--json", "--file", jobs).document
    assert (missing["error"], missing["exit_code"]) == ("NoSuchRunError", 2)
    world.sql("DELETE FROM safedelete_lease")
    # The refused run itself is the document, not its error.
    refused = world.cli("run", world.jobs(options="guard=Guard(max_items=2),"), "--json", expect=3)
    assert refused.document["state"] == "refused"


def test_a_job_that_cannot_be_checked_does_not_keep_the_others_from_it(world: World) -> None:
    jobs = world.ready()
    whole = jobs.read_text()
    jobs.write_text(whole + GONE)
    done = world.cli("check", jobs, "--json")
    assert done.code == 2
    assert [report["job"] for report in done.document["permissions"]] == ["expired-uploads"]
    assert [job["job"] for job in done.document["unchecked"]] == ["gone"]
    lines = world.cli("check", jobs)
    assert "1 of 2 job(s) checked and probed. Nothing was deleted." in lines.out
    assert lines.said.startswith("gone could not be checked:\nsafedelete: ")
