"""A copy of production is not production: a restored dump, a copied file, another environment."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import Postgres
from tests.backends import GivenDatabase
from tests.e2e.world import World


@pytest.fixture
def copied(world: World, postgres: Postgres | GivenDatabase, tmp_path: Path) -> sa.URL:
    """The world's database once more, under another name, with the same bucket."""
    world.ready()
    if world.kind == "sqlite":
        copy = tmp_path / "copy.db"
        shutil.copyfile(str(world.url.database), copy)
        return world.url.set(database=str(copy))
    name = f"{world.url.database}_copy"
    engine = sa.create_engine(postgres.superuser_url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{world.url.database}"')
    engine.dispose()
    return world.url.set(database=name)


def test_run_on_a_copy_is_refused_until_it_is_adopted(
    world: World, copied: sa.URL, postgres: Postgres | GivenDatabase
) -> None:
    jobs = world.folder / "jobs.py"
    for verb in (["plan", jobs], ["run", jobs], ["run", jobs, "--dry-run"]):
        refused = world.cli(*verb, url=copied, expect=8)
        assert "belongs to" in refused.said
        assert "--adopt" in refused.said
        assert "Nothing was deleted." in refused.said
    refused = world.cli("init", jobs, url=copied, expect=8)
    assert "--adopt" in refused.said
    assert world.objects() == set(range(1, 13))
    world.cli("init", jobs, "--adopt", url=copied, expect=0)
    world.cli("run", jobs, url=copied, expect=0)
    assert world.objects() == set(range(4, 13))
    if world.kind == "postgresql":
        postgres.drop_database(str(copied.database))


def test_run_in_another_environment_is_refused_until_it_is_adopted(world: World) -> None:
    jobs = world.ready()
    refused = world.cli("run", jobs, SAFEDELETE_ENVIRONMENT="staging", expect=8)
    assert "'test'" in refused.said
    assert "'staging'" in refused.said
    assert world.rows() == world.objects() == set(range(1, 13))
    world.cli("init", jobs, SAFEDELETE_ENVIRONMENT="staging", expect=8)
    world.cli("init", jobs, "--adopt", SAFEDELETE_ENVIRONMENT="staging", expect=0)
    world.cli("run", jobs, SAFEDELETE_ENVIRONMENT="staging", expect=0)
    assert world.objects() == set(range(4, 13))


def test_run_on_a_bucket_that_the_ledger_does_not_know_is_refused(world: World) -> None:
    world.ready()
    other = world.jobs(owns='S3Keys("another-bucket", uploads.c.s3_key)')
    refused = world.cli("run", other, expect=8)
    assert "another-bucket" in refused.said
    assert world.rows() == set(range(1, 13))
