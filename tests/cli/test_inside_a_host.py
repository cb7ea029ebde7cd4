"""Called from a thread or a worker, the library touches no signal and never ends the process."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import celery
import pytest

import safedelete
from safedelete.cli import main
from safedelete.declare import RunContext, job
from safedelete.errors import DeadlineExceededError, InterruptedRunError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGHUP)


@job("sweep", schedule="rate(1 day)", timeout=timedelta(minutes=5))
def sweep(run: RunContext) -> None:
    run.checkpoint()
    run.processed(3)


@job("endless", schedule="rate(1 day)", timeout=timedelta(seconds=0.3), grace=timedelta(seconds=0.2))
def endless(run: RunContext) -> None:
    # Well past timeout and grace, before it asks: only a command line may end the process then.
    time.sleep(1)
    run.checkpoint()


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> Iterator[None]:
    """Whatever a test calls, handlers and wakeup descriptor are the host's afterwards, and meanwhile."""
    monkeypatch.setenv("SAFEDELETE_DATABASE_URL", sqlite_url)
    monkeypatch.setenv("SAFEDELETE_ENVIRONMENT", "test")
    safedelete.init([])

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the host's process was touched")

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for module, name in (
        (signal, "signal"),
        (signal, "set_wakeup_fd"),
        (signal, "setitimer"),
        (signal, "alarm"),
        (os, "_exit"),
        (os, "kill"),
        (os, "abort"),
        (faulthandler, "dump_traceback_later"),
    ):
        monkeypatch.setattr(module, name, refused)
    yield
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def in_a_thread(call: Callable[[], Any]) -> Any:
    """Call it in a thread that is not the main one; returns or raises what it does."""
    found: list[Any] = []

    def body() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    (one,) = found
    if isinstance(one, BaseException):
        raise one
    return one


def test_a_job_runs_in_a_thread_and_touches_no_signal() -> None:
    report = in_a_thread(lambda: safedelete.run(sweep))
    assert (report.exit_code, report.total.deleted) == (0, 3)


def test_a_job_runs_in_the_main_thread_of_a_host_and_touches_no_signal() -> None:
    assert safedelete.run(sweep).exit_code == 0


def test_a_job_past_its_deadline_in_a_host_raises_and_the_process_goes_on() -> None:
    with pytest.raises(DeadlineExceededError):
        in_a_thread(lambda: safedelete.run(endless))
    (record,) = safedelete.history(endless)
    assert record.state.value == "interrupted"


def test_a_host_asks_for_a_stop_by_a_function() -> None:
    with pytest.raises(InterruptedRunError, match="the worker shuts down"):
        in_a_thread(lambda: safedelete.run(sweep, asked=lambda: "the worker shuts down"))


def test_the_command_line_itself_leaves_signals_alone_in_a_thread(tmp_path: Any) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(
        "from datetime import timedelta\nfrom safedelete import job\n"
        "@job('sweep', schedule='rate(1 day)', timeout=timedelta(minutes=5))\ndef sweep(run):\n    run.processed(1)\n"
    )

    def call() -> int:
        with suppress(SystemExit):
            main(["run", str(file)])
        return len(safedelete.history(sweep))

    assert in_a_thread(call) == 1


def test_a_celery_task_runs_a_job_and_touches_no_signal() -> None:
    app = celery.Celery("host", broker="memory://")
    app.conf.task_always_eager = True
    app.conf.task_eager_propagates = True

    @app.task
    def nightly() -> int:
        return int(safedelete.run(sweep).total.deleted)

    @app.task
    def late() -> None:
        safedelete.run(endless)

    assert nightly.delay().get() == 3
    with pytest.raises(DeadlineExceededError):
        late.delay().get()
