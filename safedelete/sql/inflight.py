"""Statements in flight on any SQLAlchemy engine of this process, a job's own engines included, so that they can be cancelled.

No database driver can be left by an exception from a signal handler in a way that holds for all of them; cancelling the
statement from another thread is what works.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import structlog
from sqlalchemy import Connection, Engine, event

from safedelete.errors import ConfigError
from safedelete.sql.backends import backend_for

log = structlog.get_logger("safedelete.run")

_flying: Final[dict[int, tuple[Any, Engine]]] = {}
"""Driver connections that execute something, by their id; empty while nobody follows."""

_lock: Final = threading.Lock()
_followers = 0
_listening = False


@contextmanager
def followed() -> Iterator[None]:
    """Follow every statement of this process while the block runs. Changes nothing about any of them.

    The listeners are added once and stay, since other threads may be going through the same list of listeners at that
    moment; while nobody follows they look at one variable and return.
    """
    global _followers, _listening  # noqa: PLW0603  # listeners of a class are the process's
    with _lock:
        if not _listening:
            event.listen(Engine, "before_cursor_execute", _begins)
            event.listen(Engine, "after_cursor_execute", _ends)
            event.listen(Engine, "handle_error", _fails)
            _listening = True
        _followers += 1
    try:
        yield
    finally:
        with _lock:
            _followers -= 1
            if not _followers:
                _flying.clear()


def _begins(connection: Connection, *_: Any) -> None:
    if not _followers:
        return
    driver = connection.connection.dbapi_connection
    with _lock:
        if _followers:
            _flying[id(driver)] = (driver, connection.engine)


def _ends(connection: Connection, *_: Any) -> None:
    if not _flying:
        return
    driver = connection.connection.dbapi_connection
    with _lock:
        _flying.pop(id(driver), None)


def _fails(context: Any) -> None:
    if context.connection is not None:
        with suppress(Exception):
            _ends(context.connection)


def cancel() -> None:
    """Cancel what is in flight, from another thread. Never raises."""
    with _lock:
        flying = list(_flying.values())
    for driver, engine in flying:
        try:
            backend_for(engine.dialect.name).cancel(driver, engine)
        except ConfigError:
            continue
        except Exception as error:  # any driver's own; the process ends without it, only later
            log.warning("a statement could not be cancelled", database=engine.dialect.name, error=str(error))
