"""Runs one server as its child and ends it when asked, or when the process that started it is gone.

Run as a script, never imported: ``python -I -S _guardian.py '<json>'``. It holds the read end of a pipe whose only
writer is the starting process. The end of that pipe, by an orderly stop or by ``kill -9``, is the order to stop: an
``atexit`` hook alone would leave a database running behind every killed test run. Being the server's parent, it
signals an unreaped child, so the pid cannot have been given to somebody else meanwhile.

Standard library only, single-threaded: ``preexec_fn`` is safe here and nowhere near the user's threads.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def _die_with_parent(signum: int) -> Callable[[], None] | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signum) and None


def _exited(child: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while child.poll() is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def main(order: str) -> int:
    """Start the server, tell its pid on stdout, stop it when stdin ends; return its exit status (negative: signal)."""
    told = json.loads(order)
    signals = [signal.Signals[name] for name in told["signals"]]
    # Neither Ctrl-C nor a hang-up of the terminal may end the guardian before its server.
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    account = {}
    if told["uid"] is not None:
        account = {"user": told["uid"], "group": told["gid"], "extra_groups": []}
    with open(told["log"], "ab", buffering=0) as log:
        child = subprocess.Popen(  # noqa: S603 - from our own starter
            told["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=told["cwd"],
            env=told["env"],
            # Ignored signals are inherited through exec; a server that ignores SIGTERM could not be stopped.
            restore_signals=True,
            preexec_fn=_prepared(_die_with_parent(signals[1])),  # noqa: PLW1509 - there is one thread
            start_new_session=True,
            **account,
        )
    sys.stdout.write(f"{child.pid}\n")
    sys.stdout.flush()
    told_to_stop = False
    while child.poll() is None and not told_to_stop:
        told_to_stop = bool(select.select([0], [], [], 0.1)[0]) and not os.read(0, 4096)
    for signum in signals:
        if child.poll() is not None:
            break
        child.send_signal(signum)
        # A stopped process (SIGSTOP) acts on nothing but SIGKILL until it is continued.
        child.send_signal(signal.SIGCONT)
        _exited(child, told["grace"])
    child.wait()
    if told_to_stop:
        # A server that ended by itself leaves its log, for its starter to read.
        shutil.rmtree(told["cwd"], ignore_errors=True)
    return child.returncode


def _prepared(last: Callable[[], None] | None) -> Callable[[], None]:
    def prepare() -> None:
        for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        if last is not None:
            last()

    return prepare


if __name__ == "__main__":
    status = main(sys.argv[1])
    os._exit(status if status >= 0 else 128 - status)
