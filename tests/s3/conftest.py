"""Stores for these tests: a real server, moto's, and one that lies; each private and started once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.s3.client import Connection, connect
from safedelete.s3.delete import Effort
from safedelete.testing.servers import ADMIN, Identity, Moto, SeaweedFS, ServerUnavailableError, StubS3


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
    return connect(
        endpoint_url=server.endpoint,
        access_key=identity.access_key,
        secret_key=identity.secret_key,
        read_timeout=read_timeout,
    )


def _or_skip(start: type[SeaweedFS] | type[Moto]) -> SeaweedFS | Moto:
    try:
        return start().start()
    except ServerUnavailableError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def weed() -> Iterator[SeaweedFS]:
    server = _or_skip(SeaweedFS)
    assert isinstance(server, SeaweedFS)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    server = _or_skip(Moto)
    assert isinstance(server, Moto)
    yield server
    server.stop()


@pytest.fixture
def stub() -> Iterator[StubS3]:
    with StubS3() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bucket() -> str:
    return f"sd-{uuid.uuid4().hex[:16]}"


@pytest.fixture(params=["weed", "moto"])
def server(request: pytest.FixtureRequest) -> SeaweedFS | Moto:
    found: SeaweedFS | Moto = request.getfixturevalue(request.param)
    return found


@pytest.fixture(autouse=True)
def _no_ambient_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
