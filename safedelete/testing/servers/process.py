"""Start, watch and stop a server process that belongs to nobody else.

Every starter here obeys the same rules: loopback only, free ports, a data folder and a log of its own, readiness by
asking the server and not by waiting, and no signal to a process that it did not start.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from safedelete.testing.servers.machine import Account, ServerFailedError, new_folder, server_environment

_LOG_TAIL_LINES = 30
_GUARDIAN = Path(__file__).with_name("_guardian.py")


class Server(ABC):
    """One server process: a context manager, stopped at the latest when the interpreter exits.

    If this process is killed without a chance to clean up, the server still ends, and its folder goes with it.

    Args:
        start_timeout: Seconds to wait for the server's first answer.
    """

    name = "server"
    signals: tuple[str, str, *tuple[str, ...]] = ("SIGTERM", "SIGKILL")
    grace = 10.0
    """Seconds between one of :attr:`signals` and the next."""

    def __init__(self, *, start_timeout: float = 60.0) -> None:
        self.start_timeout = start_timeout
        self.pid: int | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._folder: Path | None = None

    # --- what each server says about itself ---

    @abstractmethod
    def _account(self) -> Account:
        """Return the account to run as."""

    @abstractmethod
    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """Choose ports, fill the data folder; return the command and what to add to its environment."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether the server serves; any OSError counts as not yet."""

    # --- life ---

    @property
    def folder(self) -> Path:
        """The server's own folder; exists while the server is started."""
        if self._folder is None:
            raise ServerFailedError(
                f"{self.name} is not started.", hint="Call start(), or use it in a with statement."
            )
        return self._folder

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.folder / "server.log"

    @property
    def running(self) -> bool:
        """Whether the server process is alive."""
        return self._guardian is not None and self._guardian.poll() is None

    def start(self) -> Self:
        """Start the server and return when it answers.

        Raises:
            ServerUnavailableError: Its program is not here.
            ServerFailedError: It ended, or did not answer within ``start_timeout`` seconds.
        """
        if self._guardian is not None:
            return self
        # A port that was free may be taken before the server binds it: then others are chosen.
        for last in (False, False, True):
            try:
                self._start()
            except ServerFailedError as error:
                self.stop()
                if last or "in use" not in str(error).lower():
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return self
        raise AssertionError("unreachable")

    def _start(self) -> None:
        account = self._account()
        self._owner = os.getpid()
        self._folder = new_folder(self.name, account)
        atexit.register(self.stop)
        command, extra = self._prepare()
        self._spawn(command, extra, account)
        self.wait_until(self._answers, f"{self.name} to answer")

    def _spawn(self, command: Sequence[str], extra: Mapping[str, str], account: Account) -> None:
        order = {
            "command": list(command),
            "signals": self.signals,
            "grace": self.grace,
            "uid": account.uid,
            "gid": account.gid,
            "log": str(self.log),
            "cwd": str(self.folder),
            "env": server_environment(self.folder) | dict(extra),
        }
        with self.log.open("ab") as log:
            self._guardian = subprocess.Popen(  # noqa: S603 - our own script
                [sys.executable, "-I", "-S", str(_GUARDIAN), json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._guardian.stdout is not None
        line = self._guardian.stdout.readline()
        if not line:
            self._fail(f"{self.name} could not be run as {account.name}: {command[0]}")
        self.pid = int(line)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Poll until a condition holds; fail as soon as the server has ended, or after ``start_timeout`` seconds."""
        deadline = time.monotonic() + self.start_timeout
        pause = 0.01
        while True:
            with contextlib.suppress(OSError):
                if condition():
                    return
            if not self.running:
                self._fail(f"{self.name} ended while waiting for {what}")
            if time.monotonic() > deadline:
                self._fail(f"Waited {self.start_timeout:g} s for {what}, in vain")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)

    def _fail(self, message: str) -> None:
        tail = (
            "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])
            if self.log.exists()
            else ""
        )
        raise ServerFailedError(
            f"{message}. The end of its log:\n{tail}", hint="The log's last lines usually say why."
        )

    def run_tool(self, command: Sequence[str], account: Account, *, timeout: float = 120.0) -> None:
        """Run one of the server's own tools to its end, as the server's account.

        Raises:
            ServerFailedError: It failed; with its output.
        """
        done = subprocess.run(  # noqa: S603 - the program was found by its name, its arguments are ours
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            env=server_environment(self.folder),
            timeout=timeout,
            check=False,
            user=account.uid,
            group=account.gid,
            extra_groups=None if account.uid is None else [],
        )
        if done.returncode:
            output = done.stdout.decode(errors="replace")[-3000:]
            raise ServerFailedError(
                f"{Path(command[0]).name} ended with status {done.returncode} as {account.name}:\n{output}",
                hint="Its output usually says why.",
            )

    def stop(self) -> None:
        """End the server, politely and then by force, and remove its folder. Idempotent.

        Does nothing in a process forked from the one that started it: the server is not the child's to stop.
        """
        if self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            self._end(guardian)
        self.pid = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _end(self, guardian: subprocess.Popen[bytes]) -> None:
        assert guardian.stdin is not None
        assert guardian.stdout is not None
        guardian.stdin.close()
        try:
            guardian.wait(self.grace * len(self.signals) + 5)
        except subprocess.TimeoutExpired:
            # Its death ends the server too: the kernel sends the second signal.
            guardian.kill()
            guardian.wait()
        guardian.stdout.close()

    def freeze(self) -> None:
        """Stop the server's main process from running (SIGSTOP), to see what a silent server does to its clients."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, signum: signal.Signals) -> None:
        if self.pid is None or not self.running:
            raise ServerFailedError(f"{self.name} is not running.", hint="Call start() first.")
        os.kill(self.pid, signum)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
