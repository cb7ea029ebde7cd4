"""What a run tells, and that telling never changes what it does."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from safedelete.core.event import RunEvent
from safedelete.core.run import RunState
from safedelete.declare import job
from safedelete.errors import LedgerError
from safedelete.metrics.fanout import send
from safedelete.metrics.ping import as_uuid
from safedelete.ports import RunRecord
from safedelete.runner.takeover import mark_crashed
from safedelete.testing.memory import ManualClock, MemoryDatabase, MemoryLock
from safedelete.testing.servers import StubS3
from safedelete.testing.servers.faults import refusing
from safedelete.wiring.settings import Settings, SystemClock
from safedelete.wiring.telling import Telling
from tests.e2e.world import World, before_execute, ended
from tests.metrics.conftest import AT
from tests.metrics.listening import Listener

JOB = """
import signal, time
from datetime import timedelta
from safedelete import job

@job("reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=5), grace=timedelta(seconds=5))
def reminders(run):
    run.processed(3)
    BODY
"""


@pytest.fixture
def world(tmp_path: object) -> Iterator[World]:
    with StubS3() as store:
        store.create_bucket("acme")
        url = sa.make_url(f"sqlite:///{tmp_path}/app.db")
        made = World("sqlite", url, store, "acme", tmp_path)  # type: ignore[arg-type]  # a stub has what is used here
        yield made
        made.clean_up()


def rid(listener: Listener) -> str:
    return listener.paths[0].partition("rid=")[2]


def pinged(listener: Listener) -> list[str]:
    """Return the pings' paths; every one is of the same run."""
    own = rid(listener)
    assert all(path.endswith(f"?rid={own}") for path in listener.paths)
    return [path.partition("?")[0] for path in listener.paths]


def test_a_success_pings_its_start_and_its_end(world: World, listener: Listener) -> None:
    jobs = world.ready()
    done = world.cli("run", jobs, "--json", SAFEDELETE_METRICS=f"log,ping:{listener.url}/c", expect=0)
    assert pinged(listener) == ["/c/start", "/c"]
    assert rid(listener) == as_uuid(done.run)
    assert b"3 of 3 are gone." in listener.sent[1].body
    assert b"finished" in listener.sent[1].body
    (line,) = [line for line in done.log if line["event"] == "run ended"]
    assert (line["job"], line["run"], line["state"], line["exit_code"]) == (
        "expired-uploads",
        done.run,
        "succeeded",
        0,
    )
    assert line["items"] == {"deleted": 3, "gone": 0, "changed": 0, "blocked": 0, "failed": 0, "unknown": 0}
    assert (line["planned_rows"], line["planned_objects"]) == (3, 3)
    assert line["limit"] > 3
    assert [line["event"] for line in done.log].count("run started") == 1


def test_a_refusal_pings_its_exit_code_and_calls_with_the_command(world: World, listener: Listener) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    done = world.cli(
        "run",
        jobs,
        "--json",
        SAFEDELETE_METRICS=f"ping:{listener.url}/c",
        SAFEDELETE_NOTIFY=f"{listener.url}/hook",
        SAFEDELETE_FILE=str(jobs),
        expect=3,
    )
    note = next(json.loads(sent.body) for sent in listener.sent if sent.path == "/hook")
    assert [path.partition("?")[0] for path in listener.paths if path != "/hook"] == ["/c/start", "/c/3"]
    assert note["codes"] == ["SD101"]
    assert "max_items is 2" in note["text"]
    assert "Nothing was deleted." in note["text"]
    assert note["approve"] == f"safedelete approve {done.run} --file {jobs} --reason '…'"
    # The command works as it is.
    run = note["approve"].split()[2]
    world.cli("approve", run, "--file", jobs, "--reason", "spring cleaning", expect=0)


def test_what_nobody_can_accept_comes_with_no_command(world: World, listener: Listener) -> None:
    jobs = world.ready(options="max_sealed=2,")
    world.cli("run", jobs, SAFEDELETE_METRICS="", SAFEDELETE_NOTIFY=f"{listener.url}/hook", expect=3)
    assert json.loads(listener.sent[0].body)["approve"] is None


def test_a_failure_pings_its_exit_code_with_what_is_left(world: World, listener: Listener) -> None:
    jobs = world.ready()
    store: StubS3 = world.store  # type: ignore[assignment]
    with before_execute(lambda: store.always(refusing(403, "AccessDenied"))):
        done = world.cli("run", jobs, SAFEDELETE_METRICS=f"ping:{listener.url}/c")
    assert done.code == 7
    assert pinged(listener) == ["/c/start", "/c/7"]


def test_a_run_whose_lock_is_held_only_leaves_a_note(world: World, listener: Listener) -> None:
    jobs = world.ready()
    metrics = f"ping:{listener.url}/c"
    with before_execute(lambda: world.cli("run", jobs, SAFEDELETE_METRICS=metrics, expect=5)):
        world.cli("run", jobs, SAFEDELETE_METRICS=metrics, expect=0)
    assert [path.partition("?")[0] for path in listener.paths] == ["/c/start", "/c/log", "/c"]
    assert "rid" not in listener.paths[1]


def test_a_database_that_is_not_there_is_told_of_too(world: World, listener: Listener) -> None:
    jobs = world.ready()
    world.cli(
        "run",
        jobs,
        SAFEDELETE_METRICS=f"ping:{listener.url}/c",
        SAFEDELETE_DATABASE_URL="sqlite:////no/such/place.db",
    )
    assert len(listener.paths) == 1
    assert listener.paths[0] in ("/c/7", "/c/8")


def test_a_stop_pings_the_exit_code_of_an_interrupted_run(world: World, listener: Listener) -> None:
    source = JOB.replace(
        "BODY", "print('working', flush=True)\n    while True: run.checkpoint(); time.sleep(0.05)"
    )
    jobs = world.jobs(source=source)
    world.cli("init", jobs, expect=0)
    process = world.start("run", jobs, SAFEDELETE_METRICS=f"ping:{listener.url}/c")
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.send_signal(signal.SIGTERM)
    assert ended(process).code == 4
    assert pinged(listener) == ["/c/start", "/c/4"]


def test_a_killed_run_is_told_of_by_the_next(world: World, listener: Listener) -> None:
    source = JOB.replace("BODY", "print('working', flush=True)\n    time.sleep(60 if not HURRY else 0)")
    world.extra["SAFEDELETE_LEASE_SECONDS"] = "1"
    jobs = world.jobs(source=source.replace("HURRY", "False"))
    world.cli("init", jobs, expect=0)
    process = world.start("run", jobs, SAFEDELETE_METRICS="")
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    process.kill()
    process.communicate()
    world.jobs(source=source.replace("HURRY", "True"))
    end = time.monotonic() + 30
    while world.cli("run", jobs, SAFEDELETE_METRICS=f"ping:{listener.url}/c").code == 5:
        assert time.monotonic() < end
        listener.sent.clear()
    assert [path.partition("?")[0] for path in listener.paths] == ["/c/fail", "/c/start", "/c"]


def test_a_function_that_raises_is_told_of_without_its_text(world: World, listener: Listener) -> None:
    jobs = world.jobs(source=JOB.replace("BODY", "raise ValueError('password=hunter2')"))
    world.cli("init", jobs, expect=0)
    failed = world.cli("run", jobs, SAFEDELETE_METRICS=f"ping:{listener.url}/c", expect=1)
    # Shown to whoever runs it, as far as it names no secret.
    assert "ValueError: password=***" in failed.err
    assert pinged(listener) == ["/c/start", "/c/1"]
    assert b"hunter2" not in listener.sent[1].body


def test_a_dry_run_and_a_plan_tell_nobody(world: World, listener: Listener) -> None:
    jobs = world.ready()
    metrics = f"ping:{listener.url}/c"
    world.cli("run", jobs, "--dry-run", SAFEDELETE_METRICS=metrics, expect=0)
    world.cli("plan", jobs, "--save", SAFEDELETE_METRICS=metrics, expect=0)
    assert listener.sent == []


@pytest.mark.parametrize("status", [200, 500])
def test_no_answer_and_a_wrong_answer_change_nothing(world: World, listener: Listener, status: int) -> None:
    jobs = world.ready()
    listener.status = status
    dead = "http://127.0.0.1:9/x"
    done = world.cli("run", jobs, SAFEDELETE_METRICS=f"ping:{dead},ping:{listener.url}", expect=0)
    assert world.rows() == world.objects() == set(range(4, 13))
    failed = [line["sink"] for line in done.log if line["event"].startswith("a metrics sink failed")]
    assert failed.count("ping:http://127.0.0.1:9/…") == 2
    assert len(failed) == (2 if status == 200 else 4)


class Hangs:
    name = "hangs"

    def __init__(self) -> None:
        self.released = threading.Event()

    def send(self, event: RunEvent) -> None:
        self.released.wait(30)


class Notes:
    name = "notes"

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def send(self, event: RunEvent) -> None:
        self.events.append(event)


def test_a_sink_that_hangs_holds_up_neither_the_run_nor_another_sink(start: RunEvent) -> None:
    hangs, notes = Hangs(), Notes()
    began = time.monotonic()
    send([hangs, notes], start, SystemClock(), seconds=0.2)
    assert time.monotonic() - began < 5
    assert notes.events == [start]
    hangs.released.set()


def test_an_error_of_a_sink_reaches_nobody(start: RunEvent) -> None:
    class Breaks:
        name = "breaks"

        def send(self, event: RunEvent) -> None:
            raise RuntimeError("no")

    notes = Notes()
    send([Breaks(), notes], start, ManualClock())
    assert notes.events == [start]


def test_metrics_that_are_wrongly_named_stop_the_run_before_it_begins(world: World) -> None:
    jobs = world.ready()
    done = world.cli("run", jobs, SAFEDELETE_METRICS="statsd", expect=2)
    assert "'statsd' is not a known sink" in done.said
    assert "Nothing was deleted." in done.said
    assert world.rows() == set(range(1, 13))


@pytest.mark.parametrize("wrong", [{"SAFEDELETE_METRICS": "statsd"}, {"SAFEDELETE_NOTIFY": "me@example.com"}])
def test_a_sink_that_is_wrongly_named_keeps_nobody_from_looking_or_cancelling(
    world: World, wrong: dict[str, str]
) -> None:
    jobs = world.ready()
    world.cli("plan", jobs, **wrong, expect=0)
    world.cli("run", jobs, "--dry-run", **wrong, expect=0)
    saved = world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    world.cli("cancel", saved, "--reason", "INC-1", "--file", jobs, **wrong, expect=0)
    checked = world.cli("check", jobs, **wrong, expect=9)
    assert next(iter(wrong)) in checked.out


def test_a_directory_that_is_gone_costs_the_metrics_and_not_the_run(world: World, listener: Listener) -> None:
    jobs = world.ready()
    gone = {"SAFEDELETE_METRICS": f"textfile:{world.folder}/unmounted,ping:{listener.url}/c"}
    checked = world.cli("check", jobs, **gone, expect=9)
    assert "unmounted is not a directory" in " ".join(checked.out.split())
    done = world.cli("run", jobs, **gone, expect=0)
    assert world.rows() == set(range(4, 13))
    failed = [line["sink"] for line in done.log if line["event"].startswith("a metrics sink failed")]
    assert failed == [f"textfile:{world.folder}/unmounted"] * 2
    assert pinged(listener) == ["/c/start", "/c"]


def crash(run: str) -> RunRecord:
    return RunRecord(
        run=run, job="purge", kind="purge", state=RunState.RUNNING, started_at=AT, owner="host:1"
    )


def test_crashes_are_told_together_so_that_a_sink_that_hangs_costs_its_time_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hangs, notes = Hangs(), Notes()
    monkeypatch.setattr("safedelete.wiring.telling.SECONDS", 0.3)
    declared = job("purge", schedule="rate(1 day)", timeout=timedelta(minutes=5))(lambda _run: None)
    telling = Telling(declared, Settings(environment="test"), SystemClock(), [hangs, notes])
    records = [crash(f"RUN{n}") for n in range(10)]

    class Books:
        def runs(self, *_: object, **__: object) -> list[RunRecord]:
            return records

        def move(self, run: str, *_: object, **__: object) -> None:
            if run == "RUN7":
                raise LedgerError("gone")

    lease = MemoryLock(MemoryDatabase("main"), ManualClock()).acquire("purge", owner="host:1")
    began = time.monotonic()
    with pytest.raises(LedgerError):
        mark_crashed(Books(), "purge", telling, lease)  # type: ignore[arg-type]
    assert time.monotonic() - began < 2
    hangs.released.set()
    assert [event.run for event in notes.events] == [f"RUN{n}" for n in range(7)]


def test_a_run_that_never_began_calls_somebody_too(world: World, listener: Listener) -> None:
    jobs = world.jobs(source=JOB.replace("BODY", "run.failed(FAILED)"))
    world.cli("init", jobs, expect=0)
    notify = {"SAFEDELETE_NOTIFY": f"{listener.url}/hook", "SAFEDELETE_METRICS": ""}
    world.cli("status", jobs, "--notify", **notify, expect=0)
    assert listener.sent == [], "nobody is called for a job that is well"
    with sa.create_engine(world.url).begin() as connection:
        connection.exec_driver_sql("UPDATE safedelete_notice SET since = '2020-01-01T00:00:00.000000+00:00'")
    world.cli("status", jobs, **notify, expect=1)
    assert listener.sent == [], "nor by status alone"
    assert "never ran" in world.cli("status", jobs, "--notify", **notify, expect=1).out
    (sent,) = listener.sent
    body = json.loads(sent.body)
    assert body["text"].splitlines()[0] == "safedelete: reminders (test) never ran"
    assert "1,000 runs or more should have succeeded by now" in body["text"]
    assert (body["job"], body["health"]) == ("reminders", "never ran")

    listener.status = 500
    failed = world.cli("status", jobs, "--notify", **notify, expect=1)
    assert any(line["event"] == "a message is not delivered: its receiver failed" for line in failed.log)
    listener.status = 200
    listener.sent.clear()
    world.cli("status", jobs, "--notify", **notify, SAFEDELETE_LEDGER_URL="sqlite:////no/such.db", expect=7)
    body = json.loads(listener.sent[0].body)
    assert body["text"].startswith("safedelete (test): it cannot be told how reminders stand")
    assert body["environment"] == "test"
    assert "names nobody" in world.cli("status", jobs, "--notify", expect=2).said

    nothing = jobs.with_name("no-such-file.py")
    before = len(listener.sent)
    world.cli("status", nothing, **notify, expect=2)
    assert len(listener.sent) == before, "only where it is asked for"
    world.cli("status", nothing, "--notify", **notify, expect=2)
    body = json.loads(listener.sent[-1].body)
    assert body["text"].startswith("safedelete (test): it cannot be told how the jobs of")
    # Two environments may call the same person.
    assert body["environment"] == "test"
    world.cli("status", nothing, "--notify", **notify, SAFEDELETE_ENVIRONMENT="", expect=2)
    body = json.loads(listener.sent[-1].body)
    assert body["text"].startswith("safedelete: it cannot be told how the jobs of")
    assert body["environment"] is None


def test_embedded_metrics_are_lines_of_standard_output(world: World) -> None:
    jobs = world.ready()
    done = world.cli("run", jobs, SAFEDELETE_METRICS="emf", expect=0)
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith('{"_aws"')]
    assert [line.get("state") for line in lines] == [None, "succeeded"]
    assert lines[1]["ItemsDeleted"] == 3
    assert sys.stdout is not None


def test_a_run_that_is_ended_by_force_is_told_of_first(world: World, listener: Listener) -> None:
    source = JOB.replace("BODY", "time.sleep(600)").replace(
        "timeout=timedelta(minutes=5)", "timeout=timedelta(seconds=1)"
    )
    source = source.replace("grace=timedelta(seconds=5)", "grace=timedelta(seconds=4)")
    jobs = world.jobs(source=source)
    world.cli("init", jobs, expect=0)
    process = world.start("run", jobs, SAFEDELETE_METRICS=f"ping:{listener.url}/c")
    assert ended(process).code == 4
    assert pinged(listener) == ["/c/start", "/c/4"]
    assert b"did not end within its grace period" in listener.sent[1].body
