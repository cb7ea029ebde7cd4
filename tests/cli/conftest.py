"""A small world for the command line: an SQLite file beside a store in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import StubS3
from tests.e2e.world import World


@pytest.fixture
def store() -> Iterator[StubS3]:
    with StubS3() as stub:
        stub.create_bucket("acme")
        yield stub


@pytest.fixture
def world(store: StubS3, tmp_path: Path) -> Iterator[World]:
    url = sa.make_url(f"sqlite:///{tmp_path / 'app.db'}")
    made = World("sqlite", url, store, "acme", tmp_path)  # type: ignore[arg-type]  # a stub has what is used here
    yield made
    made.clean_up()
