"""What these tests share: a clock, a gate, and the way to a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache

from safedelete.s3.client import Connection, connect
from safedelete.s3.effort import Effort
from safedelete.testing.servers import ADMIN, Identity, Moto, SeaweedFS, StubS3


class FakeClock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.time = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 29, tzinfo=UTC) + timedelta(seconds=self.time)

    def uptime(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class Stopped(Exception):
    """What a gate raises in these tests."""


class Gate:
    """Counts how often it is asked, and stops after a number of times."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked = 0
        self.stop_after = stop_after

    def __call__(self) -> None:
        if self.stop_after is not None and self.asked >= self.stop_after:
            raise Stopped
        self.asked += 1


QUICK = Effort(attempts=3, pause=0.01, jitter=lambda: 0.0)


def reach(
    server: SeaweedFS | Moto | StubS3, identity: Identity = ADMIN, *, read_timeout: float = 20
) -> Connection:
    """Return a connection to a server; making one takes a while, so they are kept."""
    return _reach(server.endpoint, identity.access_key, identity.secret_key, read_timeout)


@cache
def _reach(endpoint: str, access_key: str, secret_key: str, read_timeout: float) -> Connection:
    return connect(
        endpoint_url=endpoint, access_key=access_key, secret_key=secret_key, read_timeout=read_timeout
    )
