"""A program that a job runs ends with the job, whatever it started, and its failure is the job's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from structlog.testing import capture_logs

from safedelete.core.run import RunState
from safedelete.declare import RunContext
from safedelete.errors import (
    ConfigError,
    DeadlineExceededError,
    ExitCode,
    InterruptedRunError,
    LockLostError,
    ProgramError,
)
from safedelete.runner import program as running
from tests.unit.runner.test_function import NAME, Host

PYTHON = sys.executable


def script(folder: Path, text: str) -> list[str]:
    path = folder / "program.py"
    path.write_text(dedent(text))
    return [PYTHON, "-S", str(path), str(folder)]


FAMILY = """
    import os, signal, sys, time
    folder = sys.argv[1]
    DEAF
    if os.fork() == 0:
        DAEMON
        if os.fork() == 0:
            open(f"{folder}/grandchild", "w").write(str(os.getpid()))
            os.rename(f"{folder}/grandchild", f"{folder}/grandchild.pid")
            time.sleep(600)
        time.sleep(600)
    while not os.path.exists(f"{folder}/grandchild.pid"):
        time.sleep(0.01)
    open(f"{folder}/ready", "w").close()
    LAST
"""


def family(
    folder: Path, *, deaf: bool = False, daemon: bool = False, last: str = "time.sleep(600)"
) -> list[str]:
    """A program that forks a child that forks a grandchild."""
    return script(
        folder,
        FAMILY.replace("DEAF", "signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else "")
        .replace("DAEMON", "os.setsid()" if daemon else "")
        .replace("LAST", last),
    )


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def waited(condition: Callable[[], bool], seconds: float = 10) -> bool:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def grandchild(folder: Path) -> int:
    return int((folder / "grandchild.pid").read_text())


def act(*arguments: str, **options: Any) -> Callable[[RunContext], object]:
    return lambda run: run.exec(arguments, **options)


def test_its_output_goes_to_the_log_line_by_line_with_the_job_and_the_run(tmp_path: Path) -> None:
    program = script(
        tmp_path,
        """
        import sys
        print("one", flush=True)
        print("two", file=sys.stderr, flush=True)
        sys.stdout.buffer.write(b"\\xff three, without an end")
        """,
    )
    host = Host(act(*program))
    with capture_logs() as lines:
        report = host.run()
    said = [line for line in lines if line["event"] == "output"]
    assert [line["line"] for line in said] == ["one", "two", "\ufffd three, without an end"]
    assert {(line["job"], line["run"]) for line in said} == {(NAME, report.run)}
    assert report.state is RunState.SUCCEEDED


def test_a_secret_among_its_arguments_reaches_neither_log_nor_ledger(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys; print('got', sys.argv[2]); sys.exit(3)")
    host = Host(act(*program, "postgresql://app:hunter22@db/app"))
    with capture_logs() as lines, pytest.raises(ProgramError) as raised:
        host.run()
    everything = f"{lines} {raised.value} {raised.value.hint} {host.records()}"
    assert "postgresql://app:***@db/app" in everything
    assert "hunter22" not in everything


def test_its_exit_status_fails_the_run_with_program_status_and_last_lines(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys; print(*range(50), sep='\\n'); print('disk full'); sys.exit(28)")
    host = Host(act(*program))
    with pytest.raises(ProgramError) as raised:
        host.run()
    (record,) = host.records()
    assert (record.state, record.exit_code) == (RunState.FAILED, ExitCode.STORE)
    assert (raised.value.program, raised.value.status) == (Path(PYTHON).name, 28)
    for word in ("status 28", "disk full", "\n  49"):
        assert word in record.reason
    assert "\n  29\n" not in record.reason


def test_a_program_that_a_signal_ended_is_a_failure(tmp_path: Path) -> None:
    program = script(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(ProgramError, match="signal SIGSEGV"):
        Host(act(*program)).run()


def test_a_signal_that_has_no_name_is_told_by_its_number(tmp_path: Path) -> None:
    number = signal.SIGRTMIN + 1
    with pytest.raises(ProgramError, match=rf"ended with signal {number} after"):
        Host(act(*script(tmp_path, f"import os; os.kill(os.getpid(), {number})"))).run()


@pytest.fixture(params=["SIGCHLD is ignored", "the host reaps every child"])
def reaping(request: pytest.FixtureRequest) -> Iterator[None]:
    def reap(*_: object) -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN if "ignored" in request.param else reap)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("reaping")
@pytest.mark.parametrize("status", [0, 3])
def test_a_program_whose_exit_status_was_taken_away_has_not_succeeded(tmp_path: Path, status: int) -> None:
    host = Host(act(*script(tmp_path, f"import sys; print('the end'); sys.exit({status})")))
    with pytest.raises(ProgramError, match="an exit status that is not known") as raised:
        host.run()
    assert "the end" in str(raised.value)
    assert host.records()[0].state is RunState.FAILED


@pytest.mark.usefixtures("reaping")
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="found by /proc, which is Linux's")
def test_what_a_program_left_is_ended_though_its_exit_status_was_taken_away(tmp_path: Path) -> None:
    with pytest.raises(ProgramError):
        Host(act(*family(tmp_path, last="sys.exit(0)")), grace=0.5).run()
    assert waited(lambda: not alive(grandchild(tmp_path)))


def test_a_status_that_is_said_to_be_no_failure_is_returned(tmp_path: Path) -> None:
    seen = []
    program = script(tmp_path, "import sys; sys.exit(24)")
    Host(lambda run: seen.append(run.exec(program, ok=(0, 24)))).run()
    assert seen == [24]


def test_no_shell_reads_its_arguments_and_variables_are_added(tmp_path: Path) -> None:
    program = script(tmp_path, "import os, sys; print(sys.argv[2], os.environ['COLOUR'], os.getcwd())")
    with capture_logs() as lines:
        Host(act(*program, "$HOME; echo x | cat", env={"COLOUR": "red"}, cwd=tmp_path)).run()
    said = [line["line"] for line in lines if line["event"] == "output"]
    assert said == [f"$HOME; echo x | cat red {tmp_path}"]


@pytest.mark.parametrize("arguments", ["ls -l", [], ["ls", 3]])
def test_what_is_no_list_of_texts_is_refused(arguments: Any) -> None:
    with pytest.raises((ConfigError, TypeError)):
        Host(lambda run: run.exec(arguments)).run()


def test_a_program_that_is_not_there_is_said_so() -> None:
    host = Host(act("no-such-program-anywhere"))
    with pytest.raises(ConfigError, match="no program 'no-such-program-anywhere'"):
        host.run()
    assert host.records()[0].state is RunState.FAILED


def test_a_path_to_a_program_counts_from_where_it_is_to_run(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "sync.sh"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 24\n")
    program.chmod(0o755)
    seen = []
    Host(lambda run: seen.append(run.exec(["bin/sync.sh"], cwd=tmp_path, ok=(24,)))).run()
    assert seen == [24]
    with pytest.raises(ConfigError, match=r"no program 'bin/other\.sh'"):
        Host(act("bin/other.sh", cwd=tmp_path)).run()


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("exit 0", {}, "cannot be started: Exec format error"),
        ("#!/bin/sh", {"cwd": "/no/such/folder"}, "no folder '/no/such/folder'"),
        ("#!/bin/sh", {"env": {"COLOUR": 3}}, "'COLOUR' must be a text"),
        ("#!/no/such/shell", {}, "cannot be started: No such file"),
        ("#!/bin/sh", {"more": ["x\0y"]}, "cannot be started: embedded null byte"),
    ],
)
def test_a_program_that_cannot_be_started_says_why(
    text: str, options: dict[str, Any], says: str, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text(f"{text}\n")
    program.chmod(0o755)
    host = Host(act(str(program), *options.pop("more", []), **options))
    with pytest.raises(ConfigError, match=says):
        host.run()
    assert host.records()[0].state is RunState.FAILED


def test_a_dry_run_starts_no_program(tmp_path: Path) -> None:
    program = script(tmp_path, f"open({str(tmp_path / 'started')!r}, 'w')")
    with capture_logs() as lines:
        Host(act(*program)).run(dry_run=True)
    assert not (tmp_path / "started").exists()
    assert any("dry run" in line["event"] and line["argv"] == program for line in lines)


@pytest.mark.parametrize("deaf", [False, True], ids=["heeds TERM", "ignores TERM"])
@pytest.mark.parametrize("why", ["deadline", "stop", "lock"])
def test_it_ends_with_all_it_started_when_the_job_must(tmp_path: Path, why: str, deaf: bool) -> None:
    host = Host(act(*family(tmp_path, deaf=deaf)), grace=0.5)
    done: list[float] = []

    def asked() -> str | None:
        if (tmp_path / "ready").exists() and not done:
            done.append(time.monotonic())
            if why == "deadline":
                host.world.clock.advance(301)
            elif why == "lock":
                host.world.clock.freeze(61)
        return "SIGTERM" if done and why == "stop" else None

    expected = {"deadline": DeadlineExceededError, "stop": InterruptedRunError, "lock": LockLostError}[why]
    with pytest.raises(expected):
        host.run(asked=asked)
    assert waited(lambda: not alive(grandchild(tmp_path)))
    assert time.monotonic() - done[0] < 5
    assert host.records()[0].state is RunState.INTERRUPTED


def test_what_it_leaves_behind_when_it_ends_well_is_ended_too(tmp_path: Path) -> None:
    host = Host(act(*family(tmp_path, last="sys.exit(0)")), grace=0.5)
    assert host.run().state is RunState.SUCCEEDED
    assert waited(lambda: not alive(grandchild(tmp_path)))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="found by /proc, which is Linux's")
def test_a_daemon_that_left_the_group_is_ended_too(tmp_path: Path) -> None:
    host = Host(act(*family(tmp_path, daemon=True, last="sys.exit(0)")), grace=0.5)
    host.run()
    assert waited(lambda: not alive(grandchild(tmp_path)))


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="found by /proc, which is Linux's")
def test_a_daemon_that_was_just_forking_when_it_was_looked_for_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, real = list[str](), running._strays

    def strays(mark: str) -> Iterator[int]:
        looks.append(mark)
        return iter(()) if len(looks) == 1 else real(mark)

    monkeypatch.setattr(running, "_strays", strays)
    Host(act(*family(tmp_path, daemon=True, last="sys.exit(0)")), grace=0.5).run()
    assert waited(lambda: not alive(grandchild(tmp_path)))


ALONE = """
import sys
from structlog import get_logger
from safedelete.runner.program import run_program
run_program(sys.argv[1:], check=lambda: None, gate=lambda: None, log=get_logger(), grace=1, silence=1)
"""


def test_it_does_not_outlive_a_job_that_is_killed(tmp_path: Path) -> None:
    program = family(tmp_path)
    parent = subprocess.Popen(
        [
            PYTHON,
            "-c",
            ALONE,
            *program,
        ],
        stdout=subprocess.DEVNULL,
    )
    assert waited((tmp_path / "ready").exists)
    pid = grandchild(tmp_path)
    assert alive(pid)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert waited(lambda: not alive(pid))


def test_a_line_without_an_end_is_logged_in_pieces(tmp_path: Path) -> None:
    program = script(tmp_path, "print('x' * 20_000)")
    with capture_logs() as lines:
        Host(act(*program)).run()
    assert [len(line["line"]) for line in lines if line["event"] == "output"] == [8192, 8192, 3616]


def test_the_guardian_is_gone_when_the_program_is() -> None:
    # The servers of other tests are children of this process, too.
    before = _children()
    Host(act("true")).run()
    assert not _children() - before


def _children() -> set[str]:
    return {entry.name for entry in Path("/proc").glob("[0-9]*") if _parent(entry) == os.getpid()}


def _parent(entry: Path) -> int:
    with suppress(OSError):
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def test_it_does_not_outlive_the_lock_of_a_job_that_is_suspended(tmp_path: Path) -> None:
    program = family(tmp_path)
    parent = subprocess.Popen([PYTHON, "-c", ALONE, *program], stdout=subprocess.DEVNULL)
    try:
        assert waited((tmp_path / "ready").exists)
        pid = grandchild(tmp_path)
        time.sleep(1.5)
        assert alive(pid), "while the job lives, nothing is killed"
        parent.send_signal(signal.SIGSTOP)
        assert waited(lambda: not alive(pid))
    finally:
        parent.kill()
        parent.wait()


POLITE = """
    import os, signal, sys, time
    folder = sys.argv[1]
    def leave(*_):
        open(f"{folder}/asked", "w").close()
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    open(f"{folder}/ready", "w").close()
    time.sleep(600)
"""


@pytest.mark.parametrize("why", ["deadline", "lock"])
def test_a_program_has_its_grace_at_a_deadline_and_none_when_the_lock_is_lost(
    tmp_path: Path, why: str
) -> None:
    host = Host(act(*script(tmp_path, POLITE)), grace=20)
    done: list[float] = []

    def asked() -> None:
        if (tmp_path / "ready").exists() and not done:
            done.append(time.monotonic())
            if why == "deadline":
                host.world.clock.advance(301)
            else:
                host.world.clock.freeze(61)

    with pytest.raises(DeadlineExceededError if why == "deadline" else LockLostError):
        host.run(asked=asked)
    assert (tmp_path / "asked").exists() is (why == "deadline")
    assert time.monotonic() - done[0] < 5


def test_a_program_goes_when_the_lock_is_lost_though_the_job_waits_for_its_ledger(tmp_path: Path) -> None:
    host = Host(act(*script(tmp_path, POLITE)), grace=20)
    ended: list[bool] = []

    def cancelled() -> None:
        if not (tmp_path / "ready").exists() or ended:
            return
        (leader,) = (int(p.name) for p in Path("/proc").glob("[0-9]*") if _runs(p, str(tmp_path)))
        host.world.clock.freeze(61)
        ended.append(waited(lambda: not alive(leader)))

    with pytest.raises(LockLostError):
        host.run(cancelled=cancelled)
    assert ended == [True]


def _runs(entry: Path, word: str) -> bool:
    with suppress(OSError):
        return word.encode() in (entry / "cmdline").read_bytes() and alive(int(entry.name))
    return False


def test_a_program_is_ended_when_nothing_can_guard_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    begin = subprocess.Popen

    def one_only(*arguments: Any, **options: Any) -> Any:
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        process = begin(*arguments, **options)
        started.append(process.pid)
        return process

    monkeypatch.setattr("safedelete.runner.program.subprocess.Popen", one_only)
    with pytest.raises(BlockingIOError):
        Host(act("sleep", "600"), grace=1).run()
    assert not alive(started[0])


def test_a_log_that_fails_does_not_hold_the_program_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed:
        def bind(self, **_: object) -> Closed:
            return self

        def info(self, event: str, **_: object) -> None:
            if event == "output":
                raise ValueError("I/O operation on closed file")

        warning = info

    monkeypatch.setattr("safedelete.runner.function.log", Closed())
    program = script(tmp_path, "for n in range(20_000): print('x' * 40)")
    assert Host(act(*program)).run().state is RunState.SUCCEEDED
