"""SIGTERM and SIGINT for the command line: a handler only sets a flag; a watchdog ends what does not end by itself.

An exception raised from a handler would be wrapped, or even retried, by whatever call it lands in, and a handler is not
even called while the main thread is inside a C function. So the interpreter writes each signal to a socket that the
watchdog reads, and the flag is read between batches. When a call blocks past the deadline, the watchdog cancels
the statements in flight; when even that does not help within the grace, it records the run as interrupted and ends the
process, which leaves a batch in doubt for the next run to settle. Should a C function keep the watchdog itself from
running, a timer that needs no interpreter ends the process a second after timeout and grace. And should the run have
ended, but not its process, since a thread of the job is still at work, it does so by timeout and grace all the same.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from safedelete.cli.common import chosen
from safedelete.errors import ExitCode
from safedelete.sql.boot import whole_process
from safedelete.wiring import cancel_statements, followed, record_unfinished

if TYPE_CHECKING:
    from safedelete.declare import Declared

CANCEL: Final = 0.5
"""Share of the grace after which the statements in flight are cancelled."""

GIVE_UP: Final = 0.75
"""Share of the grace after which the process is ended; the rest is for saying so in the ledger."""

LAST_WORD: Final = 0.3
"""Seconds that the last word may take."""

LAST_RESORT: Final = 1.0
"""Seconds after the grace at which the process ends although a C function keeps the watchdog from running."""


@contextmanager
def listening(job: Declared) -> Iterator[Callable[[], str | None]]:
    """Listen for SIGTERM and SIGINT while a job runs; yields the function that says whether one came.

    Elsewhere than in the main thread there is a host, whose signals and whose process these are: nothing is touched.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    with socket_pair() as (ours, interpreters), followed():
        watch = _Watch(ours, job.timeout.total_seconds(), job.grace.total_seconds())
        before = {s: signal.signal(s, watch.note) for s in (signal.SIGTERM, signal.SIGINT)}
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            # Inherited from whatever started us: no exit status of a program could be known.
            before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        wakeup = signal.set_wakeup_fd(interpreters.fileno(), warn_on_full_buffer=False)
        watch.start()
        # A collection looks at every object there is. Those of the imports stay for good, and looking at them again
        # and again was measured as a seventh of what a run computes.
        gc.freeze()
        try:
            with whole_process():
                yield lambda: watch.asked[0] if watch.asked else None
        finally:
            watch.end()
            if chosen.alone:
                _end_in_time(watch.ends)
            gc.unfreeze()
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected ends; the one that the interpreter writes to never blocks."""
    ours, interpreters = socket.socketpair()
    interpreters.settimeout(0)
    with ours, interpreters:
        yield ours, interpreters


def _end_in_time(ends: float) -> None:
    """End this process by the deadline of its run, whatever it waits for once the run is over.

    Python waits for threads and child processes of the job for ever, and a pipe that is full and that nobody reads takes
    no report, long after the run has given its lock back.

    Args:
        ends: When, on the monotonic clock.
    """

    def wait() -> None:
        time.sleep(max(LAST_RESORT, ends - time.monotonic()))
        main = threading.main_thread()
        left = ", ".join(t.name for t in threading.enumerate() if t is not main and not t.daemon)
        _say(
            f"safedelete: the run has ended, but the job has left {left} at work; the process ends now. What was left ran "
            "without the lock.\n"
            if left
            else "safedelete: the run has ended, but its process has not by its deadline, and does so now.\n"
        )
        os._exit(chosen.code or int(ExitCode.UNEXPECTED))

    threading.Thread(target=wait, name="last-watch", daemon=True).start()


def _say(text: str) -> None:
    """Say a last word, which keeps nobody: a pipe that is full, or whoever waits for it, may hold up the writing for ever."""

    def write() -> None:
        for stream, words in ((sys.stderr, text), (sys.stdout, "")):
            with suppress(Exception):
                stream.write(words)
                stream.flush()

    thread = threading.Thread(target=write, name="last-word", daemon=True)
    thread.start()
    thread.join(LAST_WORD)


@dataclass(eq=False)
class _Watch:
    """The watchdog of one run."""

    ours: socket.socket
    timeout: float
    grace: float
    asked: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    ends: float = 0.0

    def note(self, number: int, _frame: object = None) -> None:
        """Remember that a signal came."""
        self.asked.append(signal.Signals(number).name)

    def start(self) -> None:
        """Watch from another thread; the timer behind it needs no interpreter."""
        self.ends = time.monotonic() + self.timeout + self.grace
        self._end_by_force_after(self.timeout + self.grace)
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The run has ended by itself."""
        self.over.set()
        faulthandler.cancel_dump_traceback_later()
        self._thread.join()

    def _run(self) -> None:
        why = self._wait()
        if self.over.wait(self.grace * CANCEL):
            return
        # Of its own: a server that does not answer does not hear this either, and must not hold up the end.
        threading.Thread(target=cancel_statements, name="cancel", daemon=True).start()
        if self.over.wait(self.grace * (GIVE_UP - CANCEL)):
            return
        record_unfinished(
            f"{why}; the run did not end within its grace period, so its process was ended.",
            within=self.grace * (1 - GIVE_UP) * 0.6,
        )
        if self.over.is_set():
            return
        _say(
            f"safedelete: {why}; the run did not end within its grace period, and the process ends now. "
            "The batch in flight is rolled back and in doubt; the next run settles it.\n"
        )
        os._exit(int(ExitCode.INCOMPLETE))

    def _wait(self) -> str:
        """Wait for a signal or for the deadline; returns which it was."""
        ends = time.monotonic() + self.timeout
        while not self.over.is_set() and (left := ends - time.monotonic()) > 0:
            ready, _, _ = select.select([self.ours], [], [], min(0.1, left))
            if ready:
                for number in self.ours.recv(64):
                    if number in (signal.SIGTERM, signal.SIGINT) and not self.asked:
                        self.note(number)
            if self.asked:
                self.ends = min(self.ends, time.monotonic() + self.grace)
                self._end_by_force_after(self.grace)
                return f"{self.asked[0]} asked for a stop"
        return f"The timeout of {self.timeout:g} s passed"

    def _end_by_force_after(self, seconds: float) -> None:
        # Standard error may have no descriptor, as under a test runner.
        with suppress(io.UnsupportedOperation, AttributeError, ValueError):
            faulthandler.dump_traceback_later(seconds + LAST_RESORT, exit=True)
