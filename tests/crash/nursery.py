"""A process that has imported everything and forks a child for each run: a run costs what it does, not its imports.

It never starts a thread, so forking it is safe. Reads one task a line from standard input, as JSON, and answers each
with one line: how the child ended and what it said.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sqlite3
import sys
import time
import traceback
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import psycopg
import pymysql
import structlog
from sqlalchemy import make_url

import safedelete.core.pace
import safedelete.phases.below
import safedelete.phases.seal
import safedelete.runner.context
import safedelete.runner.pause
import safedelete.sql.survey
import safedelete.wiring.connect
from safedelete.cli.signals import listening
from safedelete.core.decision import Approved, Decision
from safedelete.core.guard import decide
from safedelete.core.plan import AgeProfile
from safedelete.errors import SafeDeleteError
from safedelete.runner.stop import nobody
from safedelete.s3.client import Connection, connect
from safedelete.wiring import init, run
from safedelete.wiring.settings import SystemClock
from tests.crash.boundaries import Watch
from tests.crash.purges import BUCKET, PURGES

BATCH = 3
DECLARED = {"SD100", "SD101", "SD102", "SD103", "SD104"}
KILLED = -signal.SIGKILL


class Task(NamedTuple):
    """One run in a child of its own.

    Attributes:
        purge: A name in ``PURGES``.
        env: Its environment variables.
        verb: ``run``, ``watched`` for a run that the command line's watchdog ends, ``init``, ``adopt``, or ``stray`` for
            calls that safedelete never makes.
        kill_at: Number of the boundary, from 0, at which the child kills itself.
        record: Whether to stop at each boundary, print it, and wait for a line before going on: ``on``, or ``off`` for
            not stopping any more.
        record_from: Number of the first boundary to stop at.
    """

    purge: str
    env: dict[str, str]
    verb: str = "run"
    kill_at: int | None = None
    record: bool = False
    record_from: int = 0


class Ended(NamedTuple):
    """How a child ended.

    Attributes:
        status: Its exit code, or the negative number of the signal.
        said: Its message, or the traceback of what nobody expected.
        at: The boundary where it was killed.
    """

    status: int
    said: str
    at: str


class Boundaries:
    """Counts boundaries, tells of them where asked to, and kills the process at one of them."""

    def __init__(self, tell: int, go_on: int, task: Task) -> None:
        self._tell, self._go_on = tell, go_on
        self._kill_at, self._record, self._from = task.kill_at, task.record, task.record_from
        self._number = 0

    def __call__(self, label: str) -> None:
        mine = self._number == self._kill_at
        stops = self._record and self._number >= self._from
        if stops or mine:
            os.write(self._tell, f"b{label}\n".encode())
        if stops:
            # Whoever records looks at the stores now, while nothing moves.
            self._record = os.read(self._go_on, 1) == b"."
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        self._number += 1


def in_child(task: Task, pipe: int, go_on: int) -> int:
    if task.verb in ("run", "watched", "stray"):
        Watch(Boundaries(pipe, go_on, task)).install()
    try:
        purge = PURGES[task.purge]()
        if task.verb == "stray":
            stray_calls()
            return 0
        if task.verb not in ("run", "watched"):
            init([purge], adopt=task.verb == "adopt")
            return 0
        with listening(purge) if task.verb == "watched" else nullcontext(nobody) as asked:
            report = run(purge, asked=asked)
        code, said = int(report.exit_code), report.message
    except SafeDeleteError as error:
        code, said = int(error.exit_code), f"{type(error).__name__}: {error}"
    except BaseException:
        code, said = 1, traceback.format_exc()
    os.write(pipe, f"s{json.dumps(said)}\n".encode())
    return code


def stray_calls() -> None:
    """Do what nobody has listed: statements, a commit and a request that no run makes."""
    connection = sqlite3.connect(":memory:")
    connection.executescript("CREATE TABLE stray (n INTEGER)")
    connection.executemany("INSERT INTO stray VALUES (?)", [(1,), (2,)])
    connection.commit()
    connection.close()
    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).put_object(
        Bucket=BUCKET, Key="stray", Body=b""
    )
    url = make_url(os.environ["SAFEDELETE_DATABASE_URL"])
    if url.get_backend_name() == "postgresql":
        with psycopg.connect(host=url.host, port=url.port, user=url.username, dbname=url.database) as other:
            other.execute("LISTEN stray")
            list(other.notifies(timeout=0.01))
    if url.get_backend_name() == "mysql":
        assert url.host is not None
        with pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, password=url.password or ""
        ) as maria:
            maria.cursor().execute("SELECT 'stray'")
            maria.ping()


def serve() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    # Asked at the first batch only: each second's question would be a boundary at a moment of its own.
    safedelete.runner.pause.EVERY = float("inf")  # type: ignore[misc]
    for kind in ("ROWS", "OWNERS", "OBJECTS"):
        setattr(safedelete.phases.seal, f"{kind}_A_BATCH", BATCH)
    safedelete.phases.below.ROWS_A_BATCH = BATCH  # type: ignore[misc]
    safedelete.core.pace.FIRST = BATCH - 1  # type: ignore[misc]
    # Sizes by what was taken alone: a run that is being recorded is slow, and would have more slices than the killed ones.
    safedelete.core.pace.TARGET = float("inf")  # type: ignore[misc]
    safedelete.runner.context.decide = declared_limits_only  # type: ignore[attr-defined]
    # A hundred and twenty counts of coming days are all one to a crash.
    safedelete.sql.survey.AgeProfile = lambda *numbers: (  # type: ignore[assignment,misc]
        AgeProfile(*numbers) if numbers else AgeProfile(back=1, ahead=1)
    )
    SystemClock.now = moved_clock  # type: ignore[method-assign]
    # A store that is away is asked again and again; how long in between is another test's.
    SystemClock.sleep = lambda _, seconds: time.sleep(min(seconds, 0.02))  # type: ignore[method-assign]
    clients = safedelete.wiring.connect.connect = Clients()  # type: ignore[assignment]
    print("ready", flush=True)
    while line := sys.stdin.readline():
        task = Task(*json.loads(line))
        os.environ.update(task.env)
        clients()
        print(json.dumps(fork(task)), flush=True)


def moved_clock(_: SystemClock) -> datetime:
    """The host's clock, as far away from what it says as a file has it that a test may write at any moment."""
    path = os.environ.get("CRASH_CLOCK")
    seconds = float(Path(path).read_text() or 0) if path else 0.0
    return datetime.now(UTC) + timedelta(seconds=seconds)


def declared_limits_only(*arguments: Any, **named: Any) -> Decision:
    """Decide by the limits a purge declares: a dozen rows and no history are no case for the statistics."""
    decision = decide(*arguments, **named)
    broken = {finding.code for finding in decision.findings if finding.severity == "refuse"}
    if broken & DECLARED:
        return decision
    return Approved(plan=decision.plan, measures=decision.measures)


def fork(task: Task) -> Ended:
    reading, writing = os.pipe()
    waiting, waking = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.close(waking)
        os._exit(in_child(task, writing, waiting))
    os.close(writing)
    os.close(waiting)
    said = at = ""
    with os.fdopen(reading, encoding="utf-8") as answer:
        for line in answer:
            if line[0] == "s":
                said = json.loads(line[1:])
                continue
            at = line[1:].rstrip("\n")
            if task.record:
                print(json.dumps(at), flush=True)
                os.write(waking, b"." if sys.stdin.readline() == "on\n" else b"x")
    os.close(waking)
    _, status = os.waitpid(child, 0)
    return Ended(os.waitstatus_to_exitcode(status), said, at)


class Clients:
    """Makes each client once, in this process: that takes longer than a whole run, and sends nothing."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], Connection] = {}

    def __call__(self, declared: Any = None) -> Connection:
        assert declared is None
        where = (os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_ACCESS_KEY_ID"])
        if where not in self._made:
            made = self._made[where] = connect()
            assert made.session is not None
            asking = made.session.client("sts")
            made.session.client = lambda *_, **__: asking  # type: ignore[method-assign]
        return self._made[where]


if __name__ == "__main__":
    serve()
