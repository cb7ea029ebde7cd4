"""Run a program as a part of a job, so that it cannot outlive the job.

The program leads a process group of its own. Whatever is left of that group goes when the program has ended, when the
job has to stop, and, by a guardian that listens to this process, when this process is killed or gives no sign of itself
for as long as its lock may last. What has left the group (a daemon) is found, on Linux, by a variable that it inherited.
"""

from __future__ import annotations

import os
import secrets as secrets_of
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from safedelete.core.redact import given_by_name, redact, without
from safedelete.errors import ConfigError, LockLostError, ProgramError

LAST_LINES: Final = 20
"""Lines of output that a failure repeats."""

LONGEST: Final = 8192
"""Characters of one log line; a longer one is split, so that a program without line ends needs no memory."""

PAUSE: Final = 0.1
"""Seconds between two looks at the deadline."""

MARK: Final = "SAFEDELETE_EXEC"
"""Variable that every process of one program inherits."""

PASSES: Final = 20
"""Most looks for what has left the program's group."""

TAKEN: Final = 1 << 16
"""In place of an exit status that nobody knows any more; a program's own is below 256."""

GUARDIAN: Final = """
import os, select, signal, sys
while True:
    ready, _, _ = select.select([0], [], [], float(sys.argv[2]))
    said = os.read(0, 4096) if ready else b""
    if b"x" in said:
        break
    if not said:
        try:
            os.killpg(int(sys.argv[1]), signal.SIGKILL)
        except OSError:
            pass
        break
"""
"""Kills a group once the pipe closes or stays silent: dots say that the job's process lives and holds its lock, an x
that all is over."""


def run_program(
    arguments: Sequence[str],
    *,
    check: Callable[[], None],
    gate: Callable[[], None],
    log: Any,
    grace: float,
    silence: float,
    ok: Collection[int] = (0,),
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> int:
    """Run a program to its end; returns its exit status.

    Args:
        arguments: The program and its arguments; no shell reads them.
        check: Raises when the job has to end; asked ten times a second.
        gate: Raises when the job's lock is lost, without I/O: then there is no grace, since another run may be at work.
        log: Each line of output goes there, standard error's too.
        grace: Seconds between SIGTERM and SIGKILL when it has to end.
        silence: Seconds without a sign of this process (it is suspended) after which the program is killed.
        ok: Exit statuses that are no failure.
        env: Variables to add to the environment.
        cwd: Where to run it.

    Raises:
        ConfigError: There is no such program.
        ProgramError: Its exit status is not one of ``ok``, or is not known; has the last lines of its output.
    """
    given = [os.fspath(argument) for argument in arguments]
    if isinstance(arguments, str) or not given or not all(isinstance(a, str) for a in given):
        raise ConfigError(
            f"run.exec({arguments!r}): give a list of texts, the program first.",
            hint='No shell reads it. For example run.exec(["pg_dump", "--file", path, url]).',
        )
    wrong = [
        name for name, value in (env or {}).items() if not (isinstance(name, str) and isinstance(value, str))
    ]
    if wrong:
        raise ConfigError(
            f"run.exec(..., env=...): {', '.join(map(repr, wrong))} must be a text, and so must be what it is set to.",
            hint='For example env={"PGPASSWORD": password}.',
        )
    shown, secrets = redact(given)
    secrets |= given_by_name(env or {})
    program = Path(given[0]).name
    tail: deque[str] = deque(maxlen=LAST_LINES)
    log.info("program started", program=program, argv=shown)
    began = time.monotonic()
    mark = f"{MARK}={secrets_of.token_hex(16)}"
    process = _start(given, env, mark, cwd)
    reader = threading.Thread(target=_read, args=(process.stdout, program, secrets, tail, log), daemon=True)
    guardian: _Guardian | None = None
    try:
        guardian = _Guardian(process.pid, gate, silence)
        reader.start()
        while not _over(process):
            check()
            time.sleep(PAUSE)
        # A guardian that ended it did so because the lock was lost, and that is what to tell.
        gate()
    except BaseException as error:
        _end(process, 0 if isinstance(error, LockLostError) else grace, mark)
        log.warning("program stopped", program=program, status=process.returncode)
        raise
    finally:
        _end(process, grace, mark)
        if guardian is not None:
            guardian.dismiss()
        if reader.ident is not None:
            reader.join(timeout=2)
        elif process.stdout is not None:
            process.stdout.close()
    status = process.returncode
    seconds = round(time.monotonic() - began, 3)
    log.info("program ended", program=program, status=status, seconds=seconds)
    if status not in ok or status == TAKEN:
        said = _said(status)
        lines = "".join(f"\n  {line}" for line in tail)
        raise ProgramError(
            f"{program} ended with {said} after {seconds:.1f} s."
            + (f" Its last lines:{lines}" if lines else " It printed nothing."),
            program=program,
            status=status,
            hint=f"It was started as: {' '.join(shown)}",
        )
    return status


def _start(
    arguments: list[str], env: Mapping[str, str] | None, mark: str, cwd: str | os.PathLike[str] | None
) -> subprocess.Popen[str]:
    environment = {**os.environ, **(env or {}), MARK: mark.partition("=")[2]}
    if cwd is not None and not Path(cwd).is_dir():
        raise ConfigError(
            f"There is no folder {os.fspath(cwd)!r} to run {arguments[0]!r} in.",
            hint="Make it before the job runs, or give another cwd=.",
        )
    # A path that has a folder in it counts from there; a bare name is looked for in $PATH.
    named = os.path.join(cwd, arguments[0]) if cwd is not None and os.sep in arguments[0] else arguments[0]
    if shutil.which(named, path=environment.get("PATH")) is None:
        raise ConfigError(
            f"There is no program {arguments[0]!r} that can be run.",
            hint="Install it where the job runs, or give its whole path. No shell is asked, so no alias is known.",
        )
    try:
        return subprocess.Popen(  # noqa: S603  # what the job's author wrote down; no shell reads it
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
            cwd=cwd,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"{arguments[0]!r} cannot be started: {said}.",
            hint="A script needs a first line such as #!/bin/sh; arguments and variables are texts without a NUL, and "
            "together no longer than the system allows.",
        ) from error


class _Guardian:
    """A process that kills a group unless this one goes on saying that it lives and holds the job's lock.

    Args:
        group: The group.
        gate: Raises when the lock is lost.
        silence: Seconds without a word after which it kills.
    """

    def __init__(self, group: int, gate: Callable[[], None], silence: float) -> None:
        self._gate = gate
        self._every = min(PAUSE, silence / 10)
        self._over = threading.Event()
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter and the lines above
            [sys.executable, "-I", "-S", "-c", GUARDIAN, str(group), str(silence)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        # Not from the loop that watches the program: what that one asks may have to wait for a database.
        self._voice = threading.Thread(target=self._speak, name="program-guard", daemon=True)
        self._voice.start()

    def dismiss(self) -> None:
        """End it; the program is over."""
        self._over.set()
        self._voice.join()
        with suppress(OSError, ValueError):
            self._process.communicate(b"x")
        self._process.wait()

    def _speak(self) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        while not self._over.wait(self._every):
            try:
                self._gate()
                pipe.write(b".")
            except (
                Exception
            ):  # the lock is lost, or nothing can be known of it: a closed pipe is the order to kill
                with suppress(OSError):
                    pipe.close()
                return


def _over(process: subprocess.Popen[str]) -> bool:
    """Whether the program has ended; leaves it unreaped where it can, so that its group's number stays taken."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return _reap(process, os.WNOHANG)
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return _reap(process)


def _reap(process: subprocess.Popen[str], options: int = 0) -> bool:
    """Take the program's exit status; returns whether it has ended.

    Popen itself says 0 of a child whose status is gone: one that a host reaped which reaps every child, or that the
    system did, since SIGCHLD is ignored (a process inherits that from whatever started it).
    """
    try:
        ended, status = os.waitpid(process.pid, options)
    except ChildProcessError:
        process.returncode = TAKEN
        return True
    if ended:
        process.returncode = os.waitstatus_to_exitcode(status)
    return bool(ended)


def _said(status: int) -> str:
    if status == TAKEN:
        return (
            "an exit status that is not known, since SIGCHLD is ignored or something else in this process reaps every "
            "child,"
        )
    if status >= 0:
        return f"status {status}"
    return f"signal {next((known.name for known in signal.Signals if known == -status), -status)}"


def _end(process: subprocess.Popen[str], grace: float, mark: str) -> None:
    """End whatever is left of the program: SIGTERM to its group, after the grace SIGKILL to all of it.

    Without a grace SIGKILL at once.
    """
    if process.returncode is None:
        _end_group(process, grace)
    # One that forks while it is looked for is not among those seen: only two looks that find nothing are an answer.
    found = [True]
    while any(found[-2:]) and len(found) < PASSES:
        left = list(_strays(mark))
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        found.append(bool(left))
        time.sleep(PAUSE / 10)


def _end_group(process: subprocess.Popen[str], grace: float) -> None:
    if grace and (not _over(process) or _others(process.pid)):
        _signal(process.pid, signal.SIGTERM)
        ends = time.monotonic() + grace
        while time.monotonic() < ends and (not _over(process) or _others(process.pid)):
            time.sleep(PAUSE / 4)
    # While the leader, though it be dead, is not reaped, the number cannot mean a stranger's group.
    if process.returncode is None:
        _signal(process.pid, signal.SIGKILL)
        _reap(process)


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _others(group: int) -> bool:
    """Whether the group has live members beside its leader; True where the platform does not tell."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        return True
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) == group:
            continue
        with suppress(OSError, ValueError, IndexError):
            state, _, its_group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _strays(mark: str) -> Iterator[int]:
    """Yield processes that inherited the mark, wherever they put themselves; none where there is no ``/proc``."""
    wanted = mark.encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _read(stream: IO[str] | None, program: str, secrets: frozenset[str], tail: deque[str], log: Any) -> None:
    if stream is None:
        return
    with suppress(ValueError), stream:
        while line := stream.readline(LONGEST):
            text = without(line.rstrip("\r\n"), secrets)
            tail.append(text)
            # A log that fails must not keep the program from writing: it would wait for us for ever.
            with suppress(Exception):
                log.info("output", program=program, line=text)
