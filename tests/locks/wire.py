"""What stands between a run and its servers: a wire that can be held or cut, and a pooler that shares sessions."""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Listener(ABC):
    """Accepts connections on loopback, each served by a thread of its own."""

    def __init__(self) -> None:
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]

    @abstractmethod
    def serve(self, client: socket.socket) -> None:
        """Serve one connection."""

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        for thread in self._threads:
            thread.join(10)

    def close(self) -> None:
        """End every connection, and accept no more."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in tuple(self._sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def keep(self, one: socket.socket) -> socket.socket:
        self._sockets.add(one)
        return one

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                self._start(self._served, self.keep(client))

    def _served(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            self.serve(client)
        client.close()


class Wire(Listener):
    """Passes bytes on to a server, until it is held."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._to = port
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        """Let nothing pass from now on; connections stay open, as to a server that is frozen."""
        self._open.clear()

    def close(self) -> None:
        self._open.set()
        super().close()

    def serve(self, client: socket.socket) -> None:
        server = self.keep(socket.create_connection(("127.0.0.1", self._to)))
        self._start(self._passed, server, client)
        self._passed(client, server)

    def _passed(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._open.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


class TransactionPooler(Listener):
    """Hands each transaction on PostgreSQL's protocol to whichever of a few server sessions is free.

    Args:
        port: PostgreSQL's.
        user: Logs in without a password.
        database: The one all clients get.
        sessions: How many there are.
    """

    def __init__(self, port: int, user: str, database: str, *, sessions: int = 2) -> None:
        super().__init__()
        self._free: queue.Queue[socket.socket] = queue.Queue()
        for _ in range(sessions):
            server = self.keep(socket.create_connection(("127.0.0.1", port)))
            body = b"user\0" + user.encode() + b"\0database\0" + database.encode() + b"\0\0"
            server.sendall(struct.pack("!ii", len(body) + 8, 196608) + body)
            self._greeting = b"".join(
                # The key of a server session is none of a client's business: it gets one of the pooler's.
                struct.pack("!ciii", b"K", 12, 4242, 1) if kind == b"K" else message
                for kind, message in self._answers(server)
            )
            self._free.put(server)

    def serve(self, client: socket.socket) -> None:
        while True:
            length, code = struct.unpack("!ii", _exactly(client, 8))
            _exactly(client, length - 8)
            if code == 196608:
                break
            client.sendall(b"N")
        client.sendall(self._greeting)
        while True:
            asked = b""
            while not asked.startswith(b"X"):
                kind, message = _message(client)
                asked += message
                if kind in (b"Q", b"S"):
                    break
            else:
                return
            self._transaction(client, asked)

    def _transaction(self, client: socket.socket, asked: bytes) -> None:
        server = self._free.get()
        try:
            while True:
                server.sendall(asked)
                answers = list(self._answers(server))
                client.sendall(b"".join(message for _, message in answers))
                if answers[-1][1][-1:] == b"I":
                    return
                asked, kind = b"", b""
                while kind not in (b"Q", b"S"):
                    kind, message = _message(client)
                    asked += message
        finally:
            self._free.put(server)

    def _answers(self, server: socket.socket) -> list[tuple[bytes, bytes]]:
        found = [_message(server)]
        while found[-1][0] != b"Z":
            found.append(_message(server))
        return found


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = source.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found
