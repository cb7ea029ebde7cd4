"""SIGTERM and SIGINT for the command line: a handler only sets a flag; a watchdog ends what does not end by itself.

An exception raised from a handler would be wrapped, or even retried, by whatever call it lands in. So the flag is read
between batches. When a call blocks past the deadline, the watchdog cancels the statements in flight; when even that does
not help within the grace, it ends the process, which leaves a batch in doubt for the next run to settle.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from safedelete.errors import ExitCode
from safedelete.sql.boot import whole_process
from safedelete.wiring import cancel_statements

if TYPE_CHECKING:
    from safedelete.declare import Declared


@contextmanager
def listening(job: Declared) -> Iterator[Callable[[], str | None]]:
    """Listen for SIGTERM and SIGINT while a job runs; yields the function that says whether one came."""
    asked: list[str] = []
    came = threading.Event()
    over = threading.Event()

    def handle(number: int, _frame: object) -> None:
        asked.append(signal.Signals(number).name)
        came.set()

    before = {s: signal.signal(s, handle) for s in (signal.SIGTERM, signal.SIGINT)}
    timeout, grace = job.timeout.total_seconds(), job.grace.total_seconds()
    threading.Thread(target=_watch, args=(came, over, timeout, grace), name="watchdog", daemon=True).start()
    try:
        with whole_process():
            yield lambda: asked[0] if asked else None
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(came: threading.Event, over: threading.Event, timeout: float, grace: float) -> None:
    ends = time.monotonic() + timeout
    while not came.is_set() and not over.is_set() and time.monotonic() < ends:
        over.wait(0.1)
    if over.wait(grace * 0.5):
        return
    cancel_statements()
    if over.wait(grace * 0.5):
        return
    sys.stderr.write(
        "safedelete: the run did not end within its grace period; the process ends now. "
        "The batch in flight is rolled back and in doubt; the next run settles it.\n"
    )
    sys.stderr.flush()
    os._exit(int(ExitCode.INCOMPLETE))
