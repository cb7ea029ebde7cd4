"""The example that backs a database up does, and says so when it does not."""

from __future__ import annotations

import runpy
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa

from tests.e2e.world import ADMINISTRATOR, ROOT, World

EXAMPLE = ROOT / "examples" / "backup.py"
KEY_END = ".dump"


def fetched(world: World, folder: Path) -> Path:
    (key,) = world.keys()
    assert key.endswith(KEY_END)
    path = folder / "fetched.dump"
    world.s3.download_file(world.bucket, key, str(path))
    return path


def test_a_database_is_dumped_uploaded_and_the_run_recorded(world: World, tmp_path: Path) -> None:
    if world.kind == "postgresql" and shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    more = {"BACKUP_BUCKET": world.bucket}
    world.seed(due=3, nights=1, objects=False)
    if world.kind == "postgresql":
        world.sql(f'GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO "{world.url.username}"')
    world.cli("init", EXAMPLE, expect=0)
    world.cli("run", EXAMPLE, "--dry-run", expect=0, identity=ADMINISTRATOR, **more)
    assert world.keys() == set()

    done = world.cli("run", EXAMPLE, "--json", expect=0, identity=ADMINISTRATOR, **more)
    assert done.document["outcomes"] == {"database-backup": {"processed": 1, "failed": 0}}
    dump = fetched(world, tmp_path)
    if world.kind == "sqlite":
        copy = sqlite3.connect(dump)
        assert copy.execute("SELECT count(*) FROM uploads").fetchone() == (6,)
        copy.close()
    else:
        listed = subprocess.run(["pg_restore", "--list", dump], capture_output=True, text=True, check=True)
        assert "TABLE DATA public uploads" in listed.stdout
    assert world.cli("status", EXAMPLE, expect=0).out.count("ok") == 1


@pytest.fixture
def example() -> Any:
    return runpy.run_path(str(EXAMPLE))


def test_what_the_url_asks_of_tls_holds_for_the_dump_and_the_password_is_no_argument(
    example: Any, tmp_path: Path
) -> None:
    run = mock.Mock()
    url = "postgresql+psycopg://app:hunter22@db.internal:6432/app?sslmode=verify-full"
    example["dump"](run, sa.make_url(url), tmp_path / "dump")
    (program,), options = run.exec.call_args
    assert "--dbname=postgresql://app@db.internal:6432/app?sslmode=verify-full" in program
    assert "hunter22" not in str(program)
    assert options["env"] == {"PGPASSWORD": "hunter22"}


def test_a_database_that_it_cannot_dump_is_refused(example: Any, tmp_path: Path) -> None:
    run = mock.Mock()
    with pytest.raises(RuntimeError, match="not mysql"):
        example["dump"](run, sa.make_url("mysql+pymysql://app@db/app"), tmp_path / "dump")
    assert not run.exec.called


def test_a_file_whose_name_a_uri_would_read_otherwise_is_copied(example: Any, tmp_path: Path) -> None:
    source, copy = tmp_path / "100%?#.db", tmp_path / "dump"
    with sqlite3.connect(source) as old:
        old.execute("CREATE TABLE uploads (id INTEGER)")
    old.close()
    example["copy_sqlite"](mock.Mock(dry_run=False), source, copy)
    new = sqlite3.connect(copy)
    assert new.execute("SELECT count(*) FROM uploads").fetchone() == (0,)
    new.close()


def test_a_backup_without_a_bucket_fails_and_status_says_so(sqlite_world: World) -> None:
    world = sqlite_world
    world.seed(due=1, nights=1, objects=False)
    world.cli("init", EXAMPLE, expect=0)
    failed = world.cli("run", EXAMPLE, identity=ADMINISTRATOR, BACKUP_BUCKET=f"{world.bucket}-none", expect=1)
    assert "NoSuchBucket" in failed.err
    assert "Traceback" in failed.err
    assert "FAILED" in world.cli("status", EXAMPLE, expect=1).out
