"""Jobs that are no purge, and what people do beside running: every verb, for both kinds, as the command line has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent

import pytest
import sqlalchemy as sa

import safedelete
from safedelete.core.run import RunState
from safedelete.errors import ExitCode, SafeDeleteError
from safedelete.loader import load
from safedelete.runner import pause as pausing
from safedelete.testing.servers import Postgres
from tests.backends import GivenDatabase
from tests.e2e.world import World, before_execute, ended

HEAD = """
from datetime import timedelta
from pathlib import Path
from safedelete import RunContext, job

HERE = Path(__file__).parent
EVERY_DAY = {"schedule": "cron(0 3 * * ? *)", "timeout": timedelta(minutes=10), "grace": timedelta(seconds=4)}
"""

BOTH = (
    HEAD
    + """
@job("reminders", **EVERY_DAY)
def reminders(run: RunContext) -> None:
    for _ in range(3):
        run.checkpoint()
        run.processed(0 if run.dry_run else 2)
    run.log.info("sent", until=run.deadline.isoformat())

@job("sweep", **EVERY_DAY)
async def sweep(run: RunContext) -> None:
    run.checkpoint()
    run.processed(0 if run.dry_run else 6)
    run.log.info("sent", until=run.deadline.isoformat())
"""
)


def job_file(world: World, text: str) -> Path:
    path = world.folder / "functions.py"
    path.write_text(dedent(text))
    world.engine.connect().close()
    world.cli("init", path, expect=0)
    return path


def waited(condition: Callable[[], bool], seconds: float = 120) -> bool:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture
def both(world: World) -> Path:
    return job_file(world, BOTH)


# --- a job that is no purge


def test_a_function_that_calls_sys_exit_ends_the_command_with_1_and_says_so(world: World) -> None:
    jobs = job_file(
        world,
        HEAD
        + """
@job("reminders", **EVERY_DAY)
def reminders(run: RunContext) -> None:
    run.failed(3)
    raise SystemExit(0)
""",
    )
    ran = world.cli("run", jobs, expect=1)
    assert "reminders called sys.exit(0)" in ran.said
    assert "Traceback" not in ran.err
    assert world.cli("history", jobs, "--json", expect=0).document[0]["state"] == "failed"
    with world.inside(), pytest.raises(SafeDeleteError, match=r"sys\.exit\(0\)"):
        safedelete.run(world.job(jobs))


def test_a_functions_check_is_a_function_too(world: World, both: Path) -> None:
    reminders = load(both).one("reminders")
    with world.inside():
        assert safedelete.check(reminders).exit_code is ExitCode.DONE
    with world.inside(SAFEDELETE_LOCK="redis", SAFEDELETE_REDIS_URL="redis://127.0.0.1:9/0"):
        assert safedelete.check(reminders).exit_code is ExitCode.PREFLIGHT


@pytest.mark.parametrize("name", ["reminders", "sweep"])
def test_every_verb_treats_a_function_as_it_does_a_purge(world: World, both: Path, name: str) -> None:
    assert "1 job(s) checked" in world.cli("check", both, name, expect=0).out
    nobody = {"SAFEDELETE_LOCK": "redis", "SAFEDELETE_REDIS_URL": "redis://127.0.0.1:9/0"}
    assert "take the redis lock" in world.cli("check", both, name, **nobody, expect=9).out
    dry = world.cli("run", both, name, "--dry-run", "--json", expect=0)
    assert dry.document["outcomes"] == {name: {"processed": 0, "failed": 0}}
    assert world.cli("history", both, name, "--json", expect=0).document == []

    checked = world.cli("check", both, name, "--json", expect=0).document["permissions"]
    assert [(report["job"], report["kind"], report["plan"]) for report in checked] == [(name, "job", None)]
    assert {proof["verdict"] for proof in checked[0]["permissions"]} == {"allowed"}
    assert "UPDATE on safedelete_lease" in {proof["subject"] for proof in checked[0]["permissions"]}

    ran = world.cli("run", both, name, "--json", expect=0)
    assert ran.document["outcomes"] == {name: {"processed": 6, "failed": 0}}
    (sent,) = [line for line in ran.log if line["event"] == "sent"]
    assert (sent["job"], sent["run"]) == (name, ran.run)
    until = datetime.fromisoformat(sent["until"]) - datetime.now(UTC)
    assert timedelta(minutes=8) < until <= timedelta(minutes=10)

    (listed,) = world.cli("history", both, name, "--json", expect=0).document
    assert (listed["run"], listed["state"], listed["kind"]) == (ran.run, "succeeded", "job")
    assert "6" in world.cli("show", ran.run, "--file", both, expect=0).out
    (health,) = world.cli("status", both, name, "--json", expect=0).document
    assert (health["job"], health["health"], health["ok"]) == (name, "ok", True)


@pytest.mark.parametrize("name", ["reminders", "sweep"])
def test_a_function_runs_from_python_as_a_purge_does(world: World, both: Path, name: str) -> None:
    with world.inside():
        declared = load(both).one(name)
        report = safedelete.run(declared)
        assert (report.state, report.total.deleted) == (RunState.SUCCEEDED, 6)
        assert report.run is not None
        assert safedelete.show(declared, report.run).state is RunState.SUCCEEDED
        assert [record.run for record in safedelete.history(declared)] == [report.run]
        (health,) = safedelete.status([declared])
        assert (health.ok, health.word) == (True, "ok")


def test_a_program_that_fails_fails_the_run_and_is_shown_with_its_last_lines(world: World) -> None:
    path = job_file(
        world,
        HEAD
        + """
@job("backup", **EVERY_DAY)
def backup(run):
    run.exec(["sh", "-c", "echo copying; echo no space left >&2; exit 28", "postgresql://app:hunter22@db/app"])
""",
    )
    done = world.cli("run", path, expect=7)
    assert "sh ended with status 28" in done.said
    assert "no space left" in done.said
    assert [line["line"] for line in done.log if line["event"] == "output"] == ["copying", "no space left"]
    (record,) = world.cli("history", path, "--json", expect=0).document
    assert (record["state"], record["exit_code"]) == ("failed", 7)
    assert "no space left" in record["reason"]
    shown = world.cli("show", record["run"], "--file", path, expect=0)
    assert "hunter22" not in f"{done.out}{done.err}{shown.out}{record}"
    health = world.cli("status", path, expect=1)
    assert "FAILED" in health.out
    assert "no space left" in health.out


FAILS_BINARY = """
@job("backup", **EVERY_DAY)
def backup(run):
    run.exec(["sh", "-c", r"printf 'PK\\000\\377\\001 end'; exit 3"])
"""
RAISES_ODD = """
@job("backup", **EVERY_DAY)
def backup(run):
    raise FileNotFoundError("no file a\\0b \\udcff")
"""


@pytest.mark.parametrize(("source", "code", "said"), [(FAILS_BINARY, 7, "PK"), (RAISES_ODD, 1, "no file a")])
def test_a_run_that_fails_with_what_is_no_text_is_recorded_as_failed(
    pg_world: World, source: str, code: int, said: str
) -> None:
    path = job_file(pg_world, HEAD + source)
    pg_world.cli("run", path, expect=code)
    (record,) = pg_world.cli("history", path, "--json", expect=0).document
    assert (record["state"], record["exit_code"]) == ("failed", code)
    assert said in record["reason"]


@pytest.mark.parametrize(("status", "code"), [(0, 0), (28, 7)])
def test_a_programs_exit_status_is_known_also_where_sigchld_is_ignored(
    world: World, status: int, code: int
) -> None:
    path = job_file(
        world,
        HEAD
        + f"""
@job("backup", **EVERY_DAY)
def backup(run):
    run.exec(["sh", "-c", "exit {status}"])
""",
    )
    ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", ignoring, sys.executable, "-m", "safedelete", "run", str(path)],
        cwd=world.folder,
        env=world.env(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if code:
        assert "sh ended with status 28" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_is_a_flag_that_the_next_checkpoint_reads_and_the_run_can_be_resumed(
    world: World, number: signal.Signals
) -> None:
    path = job_file(
        world,
        HEAD
        + """
import time

@job("sweep", **EVERY_DAY)
def sweep(run):
    (HERE / "ready").touch()
    while True:
        run.checkpoint()
        run.processed(1)
        time.sleep(0.02)
""",
    )
    process = world.start("run", path)
    assert waited((world.folder / "ready").exists)
    for _ in range(3):  # whoever is impatient ends it no sooner, and no worse
        process.send_signal(number)
    done = ended(process, 30)
    assert done.code == int(ExitCode.INCOMPLETE), done.err
    assert f"asked to stop ({number.name})" in done.said
    assert "Traceback" not in done.err
    (record,) = world.cli("history", path, "--json").document
    assert (record["state"], record["exit_code"]) == ("interrupted", 4)
    assert number.name in record["reason"]


def test_sigterm_ends_a_program_and_what_it_started_and_the_run_is_told_as_interrupted(world: World) -> None:
    path = job_file(
        world,
        HEAD
        + """
@job("backup", **EVERY_DAY)
def backup(run):
    run.exec(["sh", "-c", f"sleep 600 & echo $! > {HERE}/child.new; mv {HERE}/child.new {HERE}/child; wait"])
""",
    )
    process = world.start("run", path)
    assert waited((world.folder / "child").exists)
    child = int((world.folder / "child").read_text())
    assert alive(child)
    process.send_signal(signal.SIGTERM)
    done = ended(process, 30)
    assert done.code == int(ExitCode.INCOMPLETE), done.err
    assert waited(lambda: not alive(child), 5)
    assert world.cli("history", path, "--json").document[0]["state"] == "interrupted"


# --- no boot-time work

MIGRATES = (
    HEAD
    + """
import os
import threading
from sqlalchemy import Column, Integer, MetaData, Table, create_engine

made = MetaData()
Table("made_at_boot", made, Column("id", Integer, primary_key=True))

def migrate() -> None:
    made.create_all(create_engine(os.environ["SAFEDELETE_DATABASE_URL"]))

@job("plain", **EVERY_DAY)
def plain(run):
    migrate()

@job("quiet", **EVERY_DAY)
def quiet(run):
    try:
        migrate()
    except Exception:
        pass

@job("aside", **EVERY_DAY)
def aside(run):
    thread = threading.Thread(target=quiet, args=(run,))
    thread.start()
    thread.join()

@job("allowed", **EVERY_DAY, allow_ddl=True)
def allowed(run):
    migrate()
"""
)


@pytest.mark.parametrize("name", ["plain", "quiet", "aside"])
def test_a_job_that_makes_tables_fails_with_the_line_that_did(world: World, name: str) -> None:
    path = job_file(world, MIGRATES)
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "create_all(" in text)
    done = world.cli("run", path, name, expect=2)
    assert f"{name} emits DDL while it runs (CREATE) ({path}:{line})" in done.said
    assert "allow_ddl=True" in done.said
    assert "made_at_boot" not in sa.inspect(world.engine).get_table_names()
    assert world.cli("history", path, name, "--json").document[0]["state"] == "failed"


def test_a_job_that_must_make_tables_says_so(world: World) -> None:
    world.cli("run", job_file(world, MIGRATES), "allowed", expect=0)
    assert "made_at_boot" in sa.inspect(world.engine).get_table_names()


# --- paused


@pytest.mark.parametrize("kind", ["purge", "function"])
def test_a_paused_job_exits_5_says_who_why_and_since_when_and_deletes_nothing(
    world: World, kind: str
) -> None:
    path = world.ready() if kind == "purge" else job_file(world, BOTH)
    name = "expired-uploads" if kind == "purge" else "sweep"
    before = world.rows() if kind == "purge" else set()
    said = world.cli("pause", path, name, "--reason", "moving the database", expect=0).out
    assert "moving the database" in said

    done = world.cli("run", path, name, expect=5)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    for word in (f"{name} is paused since {today}", "moving the database", os.uname().nodename, "unpause"):
        assert word in done.said
    assert "Nothing was deleted." in done.said
    if kind == "purge":
        assert world.rows() == world.objects() == before

    status = world.cli("status", path, name, expect=0)
    assert "paused" in status.out
    assert "moving the database" in status.out
    (health,) = world.cli("status", path, name, "--json", expect=0).document
    assert health["paused"]["reason"] == "moving the database"
    assert "moving the database" in world.cli("history", path, name, expect=0).out

    again = world.cli("pause", path, name, "--reason", "another", expect=0).out
    assert "Already" in again
    assert "moving the database" in again
    assert "Ended: " in world.cli("unpause", path, name, expect=0).out
    assert "was not paused" in world.cli("unpause", path, name, expect=0).out
    assert "paused" not in world.cli("history", path, name, expect=0).out
    assert world.cli("run", path, name).code != 5


def test_pausing_a_file_pauses_every_job_of_it(world: World, both: Path) -> None:
    made = world.cli("pause", both, "--reason", "freeze", "--json", expect=0).document
    assert [one["job"] for one in made] == ["reminders", "sweep"]
    assert [world.cli("run", both, name).code for name in ("reminders", "sweep")] == [5, 5]


def test_a_pause_needs_a_reason(world: World, both: Path) -> None:
    world.cli("pause", both, expect=2)
    world.cli("pause", both, "--reason", "  ", expect=2)
    assert world.cli("run", both, "sweep").code == 0


# --- cancelled


def test_a_function_at_work_is_cancelled_from_another_process(world: World) -> None:
    path = job_file(
        world,
        HEAD
        + """
import time

@job("sweep", **EVERY_DAY)
def sweep(run):
    (HERE / "ready").touch()
    while True:
        run.checkpoint()
        time.sleep(0.05)
""",
    )
    process = world.start("run", path)
    assert waited((world.folder / "ready").exists)
    run = world.cli("history", path, "--json").document[0]["run"]
    told = world.cli("cancel", run, "--reason", "wrong table", "--file", path, expect=0).out
    assert "was asked to end" in told
    done = ended(process, 30)
    assert done.code == int(ExitCode.INCOMPLETE), done.err
    assert "wrong table" in done.err
    (record,) = world.cli("history", path, "--json").document
    assert record["state"] == "cancelled"
    assert "wrong table" in record["reason"]
    world.cli("cancel", run, "--reason", "again", "--file", path, expect=3)


def test_a_purge_at_work_is_cancelled_at_its_next_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pausing, "EVERY", 0)
    path = world.ready()
    before = world.rows()

    def cancel() -> None:
        run = world.cli("history", path, "--json").document[0]["run"]
        told = world.cli("cancel", run, "--reason", "wrong table", "--file", path, expect=0)
        assert "was asked to end" in told.out

    with before_execute(cancel):
        done = world.cli("run", path, expect=4)
    assert "wrong table" in done.said
    assert world.rows() == world.objects() == before
    record = world.cli("history", path, "--json").document[0]
    assert record["state"] == "cancelled"
    assert world.cli("run", path, "--json", expect=0).run != record["run"]


# --- from another host, with what it may read


@pytest.fixture
def pg_world(pg_database: str, postgres: Postgres | GivenDatabase, tmp_path: Path) -> Iterator[World]:
    url = sa.make_url(pg_database)
    superuser = sa.make_url(postgres.superuser_url).set(database=url.database)
    store = _NoStore()
    made = World("postgresql", url, store, "acme", tmp_path, superuser=superuser)  # type: ignore[arg-type]  # no S3
    made.sql(f'GRANT ALL ON SCHEMA public TO "{url.username}"')
    made.sql(f'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO "{url.username}"')
    yield made
    made.clean_up()


class _NoStore:
    endpoint = "http://127.0.0.1:9"

    def client(self, **_: object) -> None:
        return None


def test_status_needs_to_read_the_ledger_and_nothing_else(pg_world: World) -> None:
    path = job_file(pg_world, BOTH)
    reader = pg_world.role("GRANT SELECT ON safedelete_run, safedelete_notice, safedelete_meta")
    elsewhere = {
        "SAFEDELETE_LEDGER_URL": reader.render_as_string(hide_password=False),
        "SAFEDELETE_DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1:9/nowhere",
    }
    new = pg_world.cli("status", path, "--json", expect=0, **elsewhere).document
    assert [one["health"] for one in new] == ["not due yet", "not due yet"]
    pg_world.cli("run", path, "reminders", expect=0)
    assert "ok" in pg_world.cli("status", path, "reminders", expect=0, **elsewhere).out

    pg_world.sql("UPDATE safedelete_run SET started_at = '2026-01-01T03:00:10.000000+00:00'")
    late = pg_world.cli("status", path, "reminders", expect=1, **elsewhere)
    assert "OVERDUE" in late.out
    assert "the last success began 2026-01-01 03:00 UTC" in late.out
    pg_world.sql("UPDATE safedelete_notice SET since = '2026-01-01T00:00:00.000000+00:00'")
    never = pg_world.cli("status", path, "sweep", expect=1, **elsewhere)
    assert "NEVER RAN" in never.out

    # Who may only read cannot pause; who may write notices needs no more for it.
    pg_world.cli("pause", path, "sweep", "--reason", "freeze", expect=8, **elsewhere)
    operator = pg_world.role(
        "GRANT SELECT ON safedelete_run, safedelete_meta", "GRANT SELECT, INSERT, UPDATE ON safedelete_notice"
    )
    elsewhere["SAFEDELETE_LEDGER_URL"] = operator.render_as_string(hide_password=False)
    pg_world.cli("pause", path, "sweep", "--reason", "freeze", expect=0, **elsewhere)
    done = pg_world.cli("run", path, "sweep", expect=5)
    assert f"@{os.uname().nodename} {operator.username}" in done.said


@pytest.mark.parametrize("missed", [0, 1, 200, None])
def test_status_counts_what_did_not_run_in_one_report_and_one_success_makes_up_for_all_of_it(
    world: World, missed: int | None
) -> None:
    """A scheduler that dropped a run (rfsbraz/deleterr#292), or gave up after a hundred (kubernetes/website#9296), and a
    job that nothing ever started (bensheldon/good_job#1484)."""
    path = job_file(world, BOTH)
    name, now = "reminders", datetime.now(UTC)
    # Of a job that is to run every day at 03:00 the last one that was due may still be within its ten minutes.
    night = (now - timedelta(hours=3, minutes=11)).replace(hour=3, minute=0, second=5, microsecond=0)
    if missed is None:
        since = f"{night - timedelta(days=3):%Y-%m-%dT%H:%M:%S}.000000+00:00"
        world.sql(f"UPDATE safedelete_notice SET since = '{since}' WHERE kind = 'declared'")
    else:
        world.cli("run", path, name, expect=0)
        began = f"{night - timedelta(days=missed):%Y-%m-%dT%H:%M:%S}.000000+00:00"
        world.sql(f"UPDATE safedelete_run SET started_at = '{began}'")

    stands = world.cli("status", path, name, "--json")
    (health,) = stands.document
    if missed == 0:
        assert (stands.code, health["health"]) == (0, "ok")
        return
    assert stands.code == 1
    (problem,) = health["problems"]
    assert health["health"] == ("never ran" if missed is None else "overdue")
    assert f"{missed or 3} run{'' if missed == 1 else 's'} should have succeeded by now" in str(problem)
    assert f"{name}: " in world.cli("status", path, expect=1).out

    world.cli("run", path, name, expect=0)
    assert "ok" in world.cli("status", path, name, expect=0).out
    assert len(world.cli("history", path, name, "--json").document) == (1 if missed is None else 2)


@pytest.mark.parametrize("state", ["pending", "expired", "cancelled"])
def test_a_failure_is_told_however_many_plans_were_saved_since(world: World, state: str) -> None:
    path = job_file(world, BOTH.replace("run.processed(0 if run.dry_run else 6)", "run.failed(1)"))
    world.cli("run", path, "reminders", expect=0)
    world.cli("run", path, "sweep", expect=7)
    now = datetime.now(UTC)
    for number in range(25):
        at = (now + timedelta(milliseconds=number)).isoformat(timespec="microseconds")
        world.sql(
            "INSERT INTO safedelete_run (run, job, kind, state, started_at, owner, sealed_bytes, teaches)"
            f" VALUES ('ZZ{number:02}', 'sweep', 'job', '{state}', '{at}', 'host:1', 0, 1)"
        )
    found = {one["job"]: one["health"] for one in world.cli("status", path, "--json", expect=1).document}
    assert found == {"reminders": "ok", "sweep": "failed"}


def test_a_job_whose_years_are_over_loads_is_refused_by_check_and_told_by_status(world: World) -> None:
    past = 'schedule="cron(0 3 1 1 ? 2020)", timeout=timedelta(minutes=10)'
    path = job_file(world, BOTH.replace('@job("sweep", **EVERY_DAY)', f'@job("sweep", {past})'))
    checked = world.cli("check", path, expect=2)
    assert "SD411" in checked.out
    assert "had its last run 2020-01-01 03:00 UTC, and never runs again" in checked.out
    told = world.cli("status", path, expect=1)
    assert "sweep: ended: its schedule 'cron(0 3 1 1 ? 2020)' had its last run 2020-01-01" in told.out
    assert "reminders: " not in told.out
    world.cli("run", path, "sweep", expect=0)
    assert "ENDED" in world.cli("status", path, expect=1).out
    world.cli("pause", path, "sweep", "--reason", "it is done", expect=0)
    world.cli("status", path, expect=0)


def test_a_reason_that_is_no_text_is_kept_legibly(world: World, both: Path) -> None:
    world.cli("pause", both, "sweep", "--reason", "disk \udcff full", expect=0)
    assert r"disk \udcff full" in world.cli("status", both).out


def test_status_of_a_ledger_that_is_not_there_is_no_health(world: World, both: Path) -> None:
    world.sql("DROP TABLE safedelete_notice")
    done = world.cli("status", both, expect=8)
    assert "safedelete init FILE" in done.said
    assert world.cli("run", both, "sweep").code == 8
