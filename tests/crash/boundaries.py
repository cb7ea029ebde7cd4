"""Every place where a process touches a database or an object store, found by watching the drivers themselves.

Nothing here knows safedelete. A statement, commit or request that somebody adds tomorrow goes through the same few
entry points of the drivers, and so is a boundary without being listed anywhere.
"""

from __future__ import annotations

import re
import sqlite3.dbapi2
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import botocore.httpsession
import psycopg
import pymysql.connections

OnBoundary = Callable[[str], None]
"""Called with ``before …`` and ``after …`` of each call."""

_OF_A_QUERY = {"delete": "DeleteObjects", "list-type": "ListObjectsV2"}
_OF_A_METHOD = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject"}


class Watch:
    """Tells of each call to a driver, immediately before it and immediately after it.

    Calls inside calls are one: psycopg sends a BEGIN of its own before a statement, and tells of both as one round trip.
    """

    def __init__(self, tell: OnBoundary) -> None:
        self._tell = tell
        self._inside = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def call(self, label: str) -> Iterator[None]:
        """Tell of one call."""
        if getattr(self._inside, "depth", 0):
            yield
            return
        self._inside.depth = 1
        try:
            with self._lock:
                self._tell(f"before {label}")
            yield
        finally:
            self._inside.depth = 0
            with self._lock:
                self._tell(f"after {label}")

    def install(self) -> None:
        """Watch the drivers of this process, for as long as it lives."""
        self._watch_sqlite()
        self._watch_psycopg()
        self._watch_pymysql()
        self._watch_http()

    def _watch_sqlite(self) -> None:
        watch = self

        class Cursor(sqlite3.Cursor):
            def execute(self, sql: str, *arguments: Any) -> Any:
                with watch.call(f"sqlite {statement(sql)}"):
                    return super().execute(sql, *arguments)

            def executemany(self, sql: str, *arguments: Any) -> Any:
                with watch.call(f"sqlite {statement(sql)}"):
                    return super().executemany(sql, *arguments)

            def executescript(self, sql: str) -> Any:
                with watch.call(f"sqlite {statement(sql)}"):
                    return super().executescript(sql)

        class Connection(sqlite3.Connection):
            def cursor(self, *arguments: Any, **named: Any) -> Any:
                return super().cursor(Cursor)

            def execute(self, *arguments: Any) -> Any:
                return self.cursor().execute(*arguments)

            def executemany(self, *arguments: Any) -> Any:
                return self.cursor().executemany(*arguments)

            def executescript(self, *arguments: Any) -> Any:
                return self.cursor().executescript(*arguments)

            def commit(self) -> None:
                with watch.call("sqlite COMMIT"):
                    super().commit()

            def rollback(self) -> None:
                with watch.call("sqlite ROLLBACK"):
                    super().rollback()

            def close(self) -> None:
                with watch.call("sqlite close"):
                    super().close()

        plain = sqlite3.dbapi2.connect

        def connect(*arguments: Any, **named: Any) -> Any:
            with watch.call("sqlite connect"):
                return plain(*arguments, **{"factory": Connection} | named)

        sqlite3.dbapi2.connect = sqlite3.connect = connect

    def _watch_psycopg(self) -> None:
        """Name what is called where it has a name; whatever else waits for the server is told of as a round trip."""
        for name in ("execute", "executemany", "stream", "copy"):
            self._wrap(psycopg.Cursor, name, lambda _self, query, *_: f"psycopg {statement(query)}")
        for name, label in {"commit": "COMMIT", "rollback": "ROLLBACK", "close": "close"}.items():
            self._wrap(psycopg.Connection, name, lambda *_, label=label: f"psycopg {label}")
        self._wrap(psycopg.Connection, "wait", lambda *_: "psycopg round trip")
        self._wrap(psycopg, "connect", lambda *_: "psycopg connect")

    def _watch_pymysql(self) -> None:
        """As above; every command of the protocol passes one method, whoever sends it."""
        connection = pymysql.connections.Connection
        self._wrap(connection, "query", lambda _self, sql, *_: f"pymysql {statement(sql)}")
        for name, label in {"commit": "COMMIT", "rollback": "ROLLBACK"}.items():
            self._wrap(connection, name, lambda *_, label=label: f"pymysql {label}")
        for name in ("connect", "close"):
            self._wrap(connection, name, lambda *_, name=name: f"pymysql {name}")
        self._wrap(connection, "_execute_command", lambda *_: "pymysql command")

    def _watch_http(self) -> None:
        session = botocore.httpsession.URLLib3Session
        self._wrap(session, "send", lambda _self, request: f"http {operation(request.method, request.url)}")

    def _wrap(self, owner: Any, name: str, label: Callable[..., str]) -> None:
        plain = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            with self.call(label(*arguments)):
                return plain(*arguments, **named)

        setattr(owner, name, watched)


def statement(sql: Any) -> str:
    """Return a statement in one line, its generated names and long lists cut."""
    text = sql.decode() if isinstance(sql, bytes) else str(sql)
    text = re.sub(r"sa_savepoint_\d+", "sa_savepoint", " ".join(text.split()))
    return text if len(text) <= 160 else f"{text[:110]} … {text[-45:]}"


def operation(method: str, url: str) -> str:
    """Return which S3 operation a request is, as far as method and URL tell."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, found in _OF_A_QUERY.items():
        if name in query:
            return found
    has_key = "/" in parts.path.strip("/")
    return (
        _OF_A_METHOD[method]
        if has_key and not query
        else f"{method} {'?' + '&'.join(query) if query else ''}".strip()
    )
