"""Stores for these tests: a real server, moto's, and one that lies; each private and started once."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from safedelete.testing.servers import Moto, SeaweedFS, StubS3
from tests.backends import started
from tests.s3.support import FakeClock


@pytest.fixture(scope="session")
def weed(seaweed: object) -> Iterator[SeaweedFS]:
    """The suite's SeaweedFS; one that was given from outside lacks the identities, so a private one is started then."""
    if isinstance(seaweed, SeaweedFS):
        yield seaweed
        return
    with started(SeaweedFS) as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    with started(Moto) as server:
        yield server


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
