"""Whatever is wrong with what it is given: one clear message, what to do, the right code, nothing deleted."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.errors import ExitCode
from safedelete.ledger.tables import VERSION
from tests.cli.test_exit_codes import told, untouched
from tests.e2e.world import JOBS, World, run_here

VERBS = ("plan", "run", "check", "init", "history")


@pytest.fixture
def closed_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


# --- the job file


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_file_that_does_not_exist(world: World, verb: str) -> None:
    told(world.cli(verb, "nowhere.py"), ExitCode.USAGE, "nowhere.py", "no job file")


def test_a_folder_for_a_job_file(world: World) -> None:
    told(world.cli("plan", world.folder), ExitCode.USAGE, "no job file")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def broken(:\n", ("jobs.py:1", "does not parse")),
        ("x = 1\n", ("declares no job",)),
        ("", ("declares no job",)),
        ("import no_such_module_anywhere\n", ("jobs.py:1", "ModuleNotFoundError", "no_such_module_anywhere")),
        ("x = 1\nraise RuntimeError('boom')\n", ("jobs.py:2", "RuntimeError", "boom")),
        ("import sys\nsys.exit(3)\n", ("jobs.py:2", "SystemExit")),
        ("x = '\x00'\n", ("jobs.py",)),
        (
            "from safedelete import Purge\n\np = Purge('BAD NAME', schedule='rate(1 day)', timeout=1)\n",
            ("jobs.py:3", "BAD NAME"),
        ),
        ("from safedelete import Guard\ng = Guard(max_items=0)\n", ("jobs.py:2", "max_items=0")),
    ],
    ids=["syntax", "no job", "empty", "import", "raises", "exits", "null byte", "bad name", "bad limit"],
)
def test_a_job_file_that_cannot_be_used(world: World, text: str, words: tuple[str, ...]) -> None:
    world.seed()
    jobs = world.folder / "jobs.py"
    jobs.write_text(text)
    for verb in ("plan", "run"):
        told(world.cli(verb, jobs), ExitCode.USAGE, *words)
    untouched(world)


def test_a_job_file_in_another_encoding(world: World) -> None:
    jobs = world.folder / "jobs.py"
    jobs.write_bytes(b"name = '\xff\xfe'\n")
    told(world.cli("plan", jobs), ExitCode.USAGE, "jobs.py")


def test_two_jobs_of_one_name(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    text = jobs.read_text()
    jobs.write_text(text + text[text.index("purge = ") :].replace("purge = ", "again = "))
    told(world.cli("run", jobs), ExitCode.USAGE, "two jobs are named 'expired-uploads'")
    untouched(world)


def test_one_job_under_two_names_is_one_job(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text() + "\nalias = purge\nALL = [purge]\n")
    world.cli("plan", jobs, expect=0)


def test_a_job_file_that_connects_while_it_loads(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    text = jobs.read_text()
    jobs.write_text(
        text
        + f"\nfrom sqlalchemy import create_engine\nengine = create_engine({str(world.url)!r})\nengine.connect()\n"
    )
    line = len(text.splitlines()) + 4
    told(world.cli("run", jobs), ExitCode.USAGE, "opens a database connection while it loads", f"line {line}")
    untouched(world)


def test_a_job_file_that_creates_tables_while_it_loads(world: World) -> None:
    world.seed()
    jobs = world.jobs()
    jobs.write_text(
        jobs.read_text()
        + f"\nfrom sqlalchemy import create_engine\nuploads.metadata.create_all(create_engine({str(world.url)!r}))\n"
    )
    told(world.cli("run", jobs), ExitCode.USAGE, "opens a database connection while it loads")


def test_an_engine_that_is_only_declared_is_fine(world: World) -> None:
    world.ready()
    jobs = world.jobs(options="database=ENGINE,")
    jobs.write_text(
        f"from sqlalchemy import create_engine\nENGINE = create_engine({str(world.url)!r})\n"
        + jobs.read_text()
    )
    world.cli("plan", jobs, expect=0)


@pytest.mark.parametrize("verb", ["plan", "run", "check", "history"])
def test_an_unknown_job_name(world: World, verb: str) -> None:
    jobs = world.ready()
    told(world.cli(verb, jobs, "no-such-job"), ExitCode.USAGE, "'no-such-job'", "expired-uploads")
    untouched(world)


def test_a_run_of_several_jobs_must_name_one(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text() + SECOND)
    told(world.cli("run", jobs), ExitCode.USAGE, "2 jobs", "expired-uploads", "reminders")
    untouched(world)


# --- tables, columns, buckets


def test_a_table_that_does_not_exist(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text().replace('"uploads",', '"uplaods",', 1))
    for verb in ("plan", "run", "check"):
        told(world.cli(verb, jobs), ExitCode.USAGE, "uplaods")
    untouched(world)


def test_a_column_that_does_not_exist(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text().replace("expires_at", "expiry"))
    for verb in ("plan", "run"):
        told(world.cli(verb, jobs), ExitCode.USAGE, "expiry")
    untouched(world)


def test_a_bucket_that_does_not_exist(world: World) -> None:
    world.seed()
    jobs = world.jobs(owns='S3Keys("no-such-bucket", uploads.c.s3_key)')
    world.cli("init", jobs, expect=0)
    told(world.cli("run", jobs), ExitCode.PREFLIGHT, "no-such-bucket")
    assert world.cli("check", jobs).code == 9
    untouched(world)


def test_a_bucket_of_a_prefix_that_does_not_exist(world: World) -> None:
    world.seed()
    jobs = world.folder / "jobs.py"
    jobs.write_text(PREFIX)
    world.cli("init", jobs, expect=0)
    planned = world.cli("plan", jobs)
    assert planned.code == 3
    assert "NoSuchBucket" in planned.out
    told(world.cli("run", jobs), ExitCode.REFUSED, "SD100", "no-such-bucket", "NoSuchBucket")


# --- stores that do not answer


def test_no_database_at_all(world: World) -> None:
    jobs = world.ready()
    env = world.env()
    del env["SAFEDELETE_DATABASE_URL"]
    told(run_here(["run", str(jobs)], env), ExitCode.USAGE, "SAFEDELETE_DATABASE_URL")


@pytest.mark.parametrize(
    "url", ["hunter2-no-url", "postgresql://user:hunter2@host:port/db", "oracle://user:hunter2@host/db"]
)
def test_a_database_url_that_cannot_be_read(world: World, url: str) -> None:
    jobs = world.ready()
    done = run_here(["run", str(jobs)], world.env() | {"SAFEDELETE_DATABASE_URL": url})
    told(done, ExitCode.USAGE)
    assert "hunter2" not in done.err


def test_a_database_that_does_not_answer(world: World, closed_port: int) -> None:
    jobs = world.ready()
    url = sa.make_url(f"postgresql+psycopg://user:hunter2@127.0.0.1:{closed_port}/db")
    for verb in ("plan", "run", "check", "init", "history"):
        done = world.cli(verb, jobs, url=url)
        told(done, ExitCode.STORE, f"127.0.0.1:{closed_port}", "does not answer")
        assert "hunter2" not in done.err
    untouched(world)


def test_a_database_file_that_is_not_there(world: World) -> None:
    jobs = world.ready()
    gone = world.url.set(database=str(world.folder / "elsewhere.db"))
    told(world.cli("run", jobs, url=gone), ExitCode.STORE, "elsewhere.db", "does not exist")
    assert not (world.folder / "elsewhere.db").exists()


def test_a_ledger_elsewhere_that_does_not_answer(world: World, closed_port: int) -> None:
    jobs = world.ready()
    url = f"postgresql+psycopg://user:hunter2@127.0.0.1:{closed_port}/ledger"
    for verb in ("plan", "run"):
        done = world.cli(verb, jobs, SAFEDELETE_LEDGER_URL=url)
        assert done.code in (7, 8)
        told(done, ExitCode(done.code), str(closed_port))
        assert "hunter2" not in done.err
    untouched(world)


def test_a_store_that_does_not_answer(world: World, closed_port: int) -> None:
    jobs = world.ready()
    done = world.cli("run", jobs, AWS_ENDPOINT_URL=f"http://127.0.0.1:{closed_port}")
    told(done, ExitCode.PREFLIGHT, str(closed_port), "could not be proven")
    untouched(world)


@pytest.mark.parametrize("value", ["0", "soon", "1e9"])
def test_a_lease_that_is_out_of_range(world: World, value: str) -> None:
    jobs = world.ready()
    told(
        world.cli("run", jobs, SAFEDELETE_LEASE_SECONDS=value),
        ExitCode.USAGE,
        "SAFEDELETE_LEASE_SECONDS",
        value,
    )
    untouched(world)


# --- the ledger


def test_a_ledger_of_a_newer_version(world: World) -> None:
    jobs = world.ready()
    world.sql("UPDATE safedelete_meta SET value = '99' WHERE name = 'version'")
    for verb in ("plan", "run", "init", "history", "check"):
        told(world.cli(verb, jobs), ExitCode.LEDGER, "version 99", f"version {VERSION}")
    untouched(world)


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("UPDATE safedelete_meta SET value = '{' WHERE name = 'databases'", ExitCode.LEDGER),
        ("DELETE FROM safedelete_meta WHERE name = 'buckets'", ExitCode.LEDGER),
        ("UPDATE safedelete_run SET state = 'sleeping'", ExitCode.LEDGER),
        # A history that cannot be read is unknown to the guard, and unknown is refused.
        ("UPDATE safedelete_run SET plan = '{\"job\": 1}'", ExitCode.REFUSED),
        ("UPDATE safedelete_run SET decision = 'no'", ExitCode.REFUSED),
        ("UPDATE safedelete_run SET tally = '[]'", ExitCode.REFUSED),
        ("UPDATE safedelete_run SET started_at = 'yesterday'", ExitCode.REFUSED),
        # Well formed, and nothing to reckon with all the same.
        ("UPDATE safedelete_run SET started_at = '2026-11-01T00:00:00'", ExitCode.REFUSED),
        (
            "UPDATE safedelete_run SET plan = json_set(plan, '$.as_of', '2026-11-01T00:00:00')",
            ExitCode.REFUSED,
        ),
        (
            "UPDATE safedelete_run SET plan = json_set(plan, '$.targets[0].cutoff', '0001-01-01T00:00:00Z')",
            ExitCode.REFUSED,
        ),
    ],
)
def test_a_corrupt_ledger_row_stops_the_next_run(world: World, damage: str, code: ExitCode) -> None:
    jobs = world.ready()
    world.cli("run", jobs, expect=0)
    world.sql(damage, "UPDATE uploads SET expires_at = '2020-01-01 00:00:00' WHERE id IN (4, 5)")
    stopped = world.cli("run", jobs)
    told(stopped, code, "cannot be read")
    assert code is ExitCode.LEDGER or "[SD100]" in stopped.said
    assert {4, 5} <= world.rows()
    assert {4, 5} <= world.objects()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE safedelete_batch SET data = x'00'",
        "UPDATE safedelete_batch SET sha256 = '0'",
        "UPDATE safedelete_batch SET state = 'lost'",
        "DELETE FROM safedelete_batch",
    ],
)
def test_a_corrupt_seal_is_not_executed(world: World, damage: str) -> None:
    jobs = world.ready()
    saved = world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    world.sql(damage)
    done = world.cli("execute", saved, "--file", jobs)
    told(done, ExitCode.LEDGER)
    untouched(world)


def test_a_manifest_for_two_purges(world: World) -> None:
    jobs = world.ready()
    jobs.write_text(
        jobs.read_text()
        + JOBS[JOBS.index("purge = ") :]
        .replace("purge = ", "two = ")
        .replace("expired-", "other-")
        .replace("owns=OWNS", "")
        .replace("OPTIONS", "")
    )
    told(world.cli("plan", jobs, "--manifest", Path("m.jsonl")), ExitCode.USAGE, "--manifest")


SECOND = """
from safedelete import job


@job("reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=5))
def reminders(run):
    run.processed(1)
"""

PREFIX = """
from datetime import timedelta

from safedelete import Purge, S3Prefix

purge = Purge(
    "scratch",
    S3Prefix("no-such-bucket", "tmp/", older_than=timedelta(days=1)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=5),
)
"""
