"""Stores for these tests: a real server, moto's, and one that lies; each private and started once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from safedelete.testing.servers import Moto, SeaweedFS, ServerUnavailableError, StubS3
from tests.s3.support import FakeClock


def _or_skip(start: type[SeaweedFS | Moto]) -> SeaweedFS | Moto:
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


@pytest.fixture(scope="session")
def _one_stub() -> Iterator[StubS3]:
    with StubS3() as server:
        yield server


@pytest.fixture
def stub(_one_stub: StubS3) -> StubS3:
    """The stub store, empty and honest."""
    _one_stub.behave()
    _one_stub.requests.clear()
    _one_stub.counts.clear()
    _one_stub._buckets.clear()
    _one_stub._sorted.clear()
    return _one_stub


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
