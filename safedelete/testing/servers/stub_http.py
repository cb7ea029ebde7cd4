"""The stub store's HTTP half: bytes in, :class:`Request` out, :class:`Answer` in, bytes out."""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.etree import ElementTree

from safedelete.testing.servers.faults import Answer, Entry, Request

_ABORT = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing sends a reset, not an orderly end."""

_OF_A_KEY = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}
_OF_A_BUCKET = {
    ("POST", "delete"): "DeleteObjects",
    ("GET", "versioning"): "GetBucketVersioning",
    ("GET", "versions"): "ListObjectVersions",
    ("GET", "object-lock"): "GetObjectLockConfiguration",
    ("GET", "replication"): "GetBucketReplication",
    ("GET", "location"): "GetBucketLocation",
    ("GET", "list-type"): "ListObjectsV2",
}
_SUBRESOURCES = frozenset({"acl", "tagging", "retention", "legal-hold", "uploads", "uploadId", "partNumber"})


class StubHTTPServer(ThreadingHTTPServer):
    """Listens on a free loopback port, one thread a connection.

    Args:
        answer: Called once for each request, from many threads.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._to_reset: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="stub-s3", daemon=True)

    def start(self) -> None:
        """Serve from a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and hang up on everybody."""
        self.stopping.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in tuple(self._open):
            # Its thread waits for the next request of a client that keeps the connection.
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, and remember it for :meth:`stop`."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._open.discard(request)
        if request in self._to_reset:
            self._to_reset.discard(request)
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def reset(self, request: socket.socket) -> None:
        """Let a connection end in a reset, without the orderly end that the base class begins with."""
        request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self._to_reset.add(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hung up: tests make them do so."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "stub"
    sys_version = ""
    disable_nagle_algorithm = True
    wbufsize = -1
    server: StubHTTPServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing: a test reads ``stub.requests``."""

    def handle_expect_100(self) -> bool:
        """Send "100 Continue" at once: left in the buffer, it would cost each PUT the client's second of patience."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def serve(self) -> None:
        """Answer one request."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.answer(parse(self.command, self.path, dict(self.headers.items()), body))
        if answer.delay:
            self.server.stopping.wait(answer.delay)
        if not answer.status:
            self.server.reset(self.connection)
            raise ConnectionAbortedError
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header(
                "Content-Length", str(len(answer.body) if answer.announced is None else answer.announced)
            )
        self.end_headers()
        if self.command != "HEAD":
            self._send(answer)
            if answer.announced is not None:
                self.close_connection = True
        self.wfile.flush()

    def _send(self, answer: Answer) -> None:
        if not answer.drip:
            self.wfile.write(answer.body)
            return
        for byte in answer.body:
            self.wfile.flush()
            if self.server.stopping.wait(answer.drip):
                return
            self.wfile.write(bytes((byte,)))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve  # noqa: N815 - names the base class looks up


def parse(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
    """Return a request as the store understands it; its number is set by the store."""
    path, _, query_string = target.partition("?")
    bucket, _, key = path.removeprefix("/").partition("/")
    query = dict(parse_qsl(query_string, keep_blank_values=True))
    request = Request(
        number=0,
        operation=operation_of(method, bucket, key, query),
        method=method,
        path=path,
        query=query,
        headers={name.lower(): value for name, value in headers.items()},
        body=body,
        bucket=unquote(bucket),
        key=unquote(key),
    )
    if request.operation != "DeleteObjects":
        return request
    try:
        return replace(request, entries=delete_entries(body))
    except ElementTree.ParseError:
        # As real stores do with a control character in a key: the whole batch is lost.
        return replace(request, malformed=True)


def operation_of(method: str, bucket: str, key: str, query: Mapping[str, str]) -> str:
    """Return the API's name for a request, ``Unknown`` for what the stub does not do."""
    if key:
        return "Unknown" if query.keys() & _SUBRESOURCES else _OF_A_KEY.get(method, "Unknown")
    if not bucket:
        return "Unknown"
    for (verb, name), operation in _OF_A_BUCKET.items():
        if verb == method and name in query:
            return operation
    return "Unknown" if query else {"PUT": "CreateBucket", "HEAD": "HeadBucket"}.get(method, "Unknown")


def delete_entries(body: bytes) -> tuple[Entry, ...]:
    """Return what a DeleteObjects body names.

    Raises:
        ElementTree.ParseError: It is no XML.
    """
    entries = []
    for element in ElementTree.fromstring(body):  # noqa: S314 - from a test's own client
        if element.tag.endswith("Object"):
            values = {child.tag.rpartition("}")[2]: child.text or "" for child in element}
            entries.append(Entry(values.get("Key", ""), values.get("VersionId"), values.get("ETag")))
    return tuple(entries)
