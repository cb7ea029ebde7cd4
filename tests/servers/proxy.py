"""A wire that breaks on demand: a TCP proxy between a run and one of its stores."""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from enum import Enum
from typing import Self

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that has close() send a reset."""


class Mode(Enum):
    """What becomes of what is sent."""

    PASS = "pass"
    SLOW = "slow"
    """Every piece is held up for a moment."""
    HANG = "hang"
    """Half-open: connections stand and are accepted, and whatever is sent on them vanishes."""
    REFUSE = "refuse"
    """Nobody is let in; connections that stand are reset."""


class Proxy:
    """Passes connections on to a port of this machine, until it is told to do otherwise.

    Args:
        port: Where to.
        delay: Seconds by which ``SLOW`` holds up each piece.
    """

    def __init__(self, port: int, *, delay: float = 0.02) -> None:
        self._to = ("127.0.0.1", port)
        self._delay = delay
        self._mode = Mode.PASS
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that waits in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def be(self, mode: Mode) -> None:
        """Go over to a mode, at once, for the connections that stand too."""
        self._mode = mode
        if mode is Mode.REFUSE:
            self.cut()

    def cut(self) -> None:
        """Reset every connection that stands; new ones are let in as the mode says."""
        with self._lock:
            cut, self._open = self._open, set()
        for one in cut:
            _reset(one)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._mode is Mode.REFUSE:
                    raise ConnectionRefusedError
                far = socket.create_connection(self._to)
            except OSError:
                _reset(near)
                continue
            with self._lock:
                self._open |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), name="proxy", daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(65536):
                if self._mode is Mode.SLOW:
                    time.sleep(self._delay)
                if self._mode is not Mode.HANG:
                    other.sendall(piece)
            if self._mode is Mode.HANG:
                # Of a half-open connection not even the end arrives; cut() closes it.
                return
        # What was cut is being reset; an orderly end of ours must not come before that.
        with self._lock:
            mine = self._open & {one, other}
            self._open -= mine
        for end in mine:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _reset(one: socket.socket) -> None:
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        # Wakes the thread that reads from it; close() then sends the reset.
        one.shutdown(socket.SHUT_RD)
    with suppress(OSError):
        one.close()
