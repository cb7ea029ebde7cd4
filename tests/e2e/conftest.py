"""Whole worlds: PostgreSQL or SQLite, beside a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import Moto, Postgres, SeaweedFS, StubS3
from tests.backends import GivenDatabase, GivenS3
from tests.e2e.world import World


@pytest.fixture
def pg_world(
    postgres: Postgres | GivenDatabase,
    pg_database: str,
    seaweed: SeaweedFS | GivenS3,
    bucket: str,
    tmp_path: Path,
) -> Iterator[World]:
    url = sa.make_url(pg_database)
    superuser = sa.make_url(postgres.superuser_url).set(database=url.database)
    world = World("postgresql", url, seaweed, bucket, tmp_path, superuser=superuser)
    world.sql(f'GRANT ALL ON SCHEMA public TO "{url.username}"')
    world.sql(f'ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO "{url.username}"')
    yield world
    world.clean_up()


@pytest.fixture
def sqlite_world(seaweed: SeaweedFS | GivenS3, bucket: str, tmp_path: Path) -> Iterator[World]:
    world = World("sqlite", sa.make_url(f"sqlite:///{tmp_path / 'app.db'}"), seaweed, bucket, tmp_path)
    yield world
    world.clean_up()


@pytest.fixture
def stub_world(stub_s3: StubS3, tmp_path: Path) -> Iterator[World]:
    """SQLite beside the store that lies as it is told."""
    yield from _beside(stub_s3, tmp_path)


@pytest.fixture
def moto_world(moto_s3: Moto, tmp_path: Path) -> Iterator[World]:
    """SQLite beside moto, which knows versions, locks and replication rules."""
    yield from _beside(moto_s3, tmp_path)


def _beside(store: StubS3 | Moto, folder: Path) -> Iterator[World]:
    store.create_bucket("acme-uploads")
    world = World("sqlite", sa.make_url(f"sqlite:///{folder / 'app.db'}"), store, "acme-uploads", folder)
    yield world
    world.clean_up()


@pytest.fixture(params=["postgresql", "sqlite"])
def world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue("pg_world" if request.param == "postgresql" else "sqlite_world")
    return found
