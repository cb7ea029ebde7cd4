"""A web server that writes down what it is sent, and answers as it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Sent(NamedTuple):
    """One request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class Listener:
    """What was sent, and where to send it.

    Attributes:
        url: Its address.
        sent: Every request so far.
        status: What it answers with.
        hold: While this is not set, it does not answer.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: list[Sent] = []
        self.status = 200
        self.hold = threading.Event()
        self.hold.set()

    @property
    def paths(self) -> list[str]:
        return [sent.path for sent in self.sent]


@contextmanager
def listening() -> Iterator[Listener]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            listener.sent.append(Sent(self.command, self.path, body, dict(self.headers)))
            listener.hold.wait(30)
            self.send_response(listener.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_GET = do_POST

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    listener = Listener(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        listener.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()
