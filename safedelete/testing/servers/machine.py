"""What a starter needs from the machine: an account, a port, a program, a folder."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import socket
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from safedelete.errors import SafeDeleteError

_GIVEN_OUT: set[int] = set()


class ServerUnavailableError(SafeDeleteError):
    """A server's program is not on this machine, or cannot be run by the account that must run it."""


class ServerFailedError(SafeDeleteError):
    """A server did not start, or did not answer in time; the message ends with the tail of its log."""


@dataclass(frozen=True, slots=True)
class Account:
    """The operating-system account a server runs as.

    Attributes:
        name: Login name.
        uid: User id, None for the account that is running now.
        gid: Group id, None likewise.
    """

    name: str
    uid: int | None = None
    gid: int | None = None


def unprivileged_account(*preferred: str) -> Account:
    """Return the account for servers that refuse root: the current one, or as root the first of these that exists.

    Args:
        preferred: Login names to try as root; ``nobody`` is tried last.
    """
    if os.geteuid() != 0:
        return Account(str(os.geteuid()))
    for name in (*preferred, "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise ServerUnavailableError(
        f"Running as root, and none of the accounts {(*preferred, 'nobody')} exists to run the server as.",
        hint="Start it as an ordinary user, or add one of these accounts.",
    )


def free_port() -> int:
    """Return a loopback TCP port that was free just now, and that no other call in this process was given.

    From below the ephemeral range: a port from within it may be taken by any outgoing connection before the server
    binds it.
    """
    for _ in range(200):
        port = random.randint(15_000, 22_500)  # noqa: S311 - spreads concurrent test runs, guards nothing
        if port in _GIVEN_OUT:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _GIVEN_OUT.add(port)
            return port
    raise ServerFailedError(
        "No free loopback port among 200 tried between 15,000 and 22,500.",
        hint="Is something listening on them all?",
    )


def find_program(name: str, *folders: str | Path) -> Path | None:
    """Return the path of a program: in these folders first, then beside this interpreter, in $PATH and in the sbins.

    The folder of the interpreter comes before $PATH, so that a virtual environment need not be activated.
    """
    path = os.pathsep.join(
        [
            *map(str, folders),
            str(Path(sys.executable).parent),
            os.environ.get("PATH", ""),
            "/usr/sbin",
            "/usr/local/sbin",
        ]
    )
    found = shutil.which(name, path=path)
    return Path(found) if found else None


def reachable(path: Path, account: Account) -> bool:
    """Return whether an account can enter every folder on the way to a path.

    A program or a folder below root's private home is of no use to the account a server runs as.
    """
    if account.uid is None:
        return True
    for folder in path.resolve().parents:
        mode = folder.stat()
        need = stat.S_IXUSR if mode.st_uid == account.uid else stat.S_IXOTH
        if not mode.st_mode & need:
            return False
    return True


def server_environment(folder: Path) -> dict[str, str]:
    """Return a small environment for a server: nothing of the host's own databases, clouds or proxies leaks in."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"HOME": str(folder), "TMPDIR": str(folder), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def new_folder(name: str, account: Account) -> Path:
    """Return a fresh private folder of the account's."""
    # Under $TMPDIR where the server's account can enter it, else under the system's own; short, since a Unix socket's
    # path may have 107 bytes only.
    parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]  # noqa: S108 - mkdtemp makes it private
    for parent in parents:
        if parent.is_dir() and os.access(parent, os.W_OK) and reachable(parent / "x", account):
            folder = Path(tempfile.mkdtemp(prefix=f"sd-{name}-", dir=parent))
            if account.uid is not None and account.gid is not None:
                os.chown(folder, account.uid, account.gid)
            return folder
    raise ServerUnavailableError(
        f"No temporary folder that the account {account.name} can enter, among {[str(p) for p in parents]}.",
        hint="Set TMPDIR to one.",
    )
