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
"""Driver connections that execute something, by their id."""

_lock: Final = threading.Lock()


@contextmanager
def followed() -> Iterator[None]:
    """Follow every statement of this process while the block runs. Changes nothing about any of them."""

    def begins(connection: Connection, *_: Any) -> None:
        driver = connection.connection.dbapi_connection
        with _lock:
            _flying[id(driver)] = (driver, connection.engine)

    def ends(connection: Connection, *_: Any) -> None:
        driver = connection.connection.dbapi_connection
        with _lock:
            _flying.pop(id(driver), None)

    def fails(context: Any) -> None:
        if context.connection is not None:
            with suppress(Exception):
                ends(context.connection)

    events: tuple[tuple[str, Any], ...] = (
        ("before_cursor_execute", begins),
        ("after_cursor_execute", ends),
        ("handle_error", fails),
    )
    for name, listener in events:
        event.listen(Engine, name, listener)
    try:
        yield
    finally:
        for name, listener in events:
            event.remove(Engine, name, listener)
        with _lock:
            _flying.clear()


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
