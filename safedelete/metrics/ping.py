"""A dead man's switch that is pinged at a run's start and end, by the protocol of Healthchecks.

https://healthchecks.io/docs/http_api/: ``/start`` begins to measure, the bare address says success, ``/<exit status>``
success or failure, ``/fail`` failure, ``/log`` neither; ``rid`` joins a start to its end. Others speak it, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from safedelete.core.event import Ending, RunEvent
from safedelete.metrics.addresses import post, web_address, without_password

MOST: Final = 10_000
"""Bytes of log sent along, the last ones. Healthchecks keeps that much on its smallest plan."""

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class PingSink:
    """Pings an address.

    Args:
        url: The check's address. A ``{job}`` in it stands for the job's name.
        tail: Returns the last log lines.
    """

    def __init__(self, url: str, tail: Callable[[], str] = str) -> None:
        self._url = web_address(url, "SAFEDELETE_METRICS")
        self._tail = tail
        self.name = f"ping:{without_password(url)}"

    def send(self, event: RunEvent) -> None:
        """Ping."""
        body = "" if event.ending is None else f"{event.message}\n{self._tail()}"
        post(self.address(event), body.encode()[-MOST:], "text/plain; charset=utf-8")

    def address(self, event: RunEvent) -> str:
        """Return what to ping for an event."""
        parts = urlsplit(self._url.replace("{job}", event.job))
        query = parts.query
        if event.run is not None:
            query = f"{query}&rid={as_uuid(event.run)}".lstrip("&")
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + _signal(event), query=query))


def _signal(event: RunEvent) -> str:
    match event.ending:
        case None:
            return "/start"
        case Ending.SUCCEEDED:
            return ""
        case Ending.SKIPPED:
            # The run that holds the lock pings for itself; a paused job is to be noticed as one that does not run.
            return "/log"
        case Ending.CRASHED:
            return "/fail"
    return f"/{1 if event.exit_code is None else int(event.exit_code)}"


def as_uuid(run: str) -> str:
    """Return a run's id, 26 letters of Crockford's base 32, in the form of a UUID, which the protocol asks for."""
    number = 0
    for letter in run.upper():
        number = number * 32 + _CROCKFORD.index(letter)
    return str(UUID(int=number % 2**128))
