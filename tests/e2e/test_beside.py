"""What the rows of one purge own is no other purge's to take, as far as both are of one file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import StubS3
from tests.e2e.world import World

FILE = """
from datetime import timedelta

from sqlalchemy import Boolean, Column, DateTime, ForeignKey, Integer, MetaData, String, Table

from safedelete import Guard, Purge, Rows, S3Keys, S3Prefix, past

metadata = MetaData()
uploads = Table(
    "uploads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("expires_at", DateTime(timezone=True)),
    Column("s3_key", String(512)),
    Column("thumb_key", String(512)),
)
copies = Table(
    "copies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("upload", Integer, ForeignKey("uploads.id", ondelete="ACTION"), index=True),
    Column("expires_at", DateTime(timezone=True)),
    Column("s3_key", String(512)),
)
when = dict(schedule="rate(1 day)", timeout=timedelta(minutes=5), guard=Guard(max_items=100))
first = Purge("first", Rows(uploads, past(uploads.c.expires_at), FIRST), **when)
second = Purge("second", SECOND, **when)
"""
OWNS = 'owns=S3Keys("BUCKET", uploads.c.s3_key)'
COPIES = 'Rows(copies, past(copies.c.expires_at), owns=S3Keys("BUCKET", copies.c.s3_key))'


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with StubS3() as store:
        url = sa.make_url(f"sqlite:///{tmp_path / 'app.db'}")
        made = World("sqlite", url, store, "acme", tmp_path)  # type: ignore[arg-type]  # a stub has what is used here
        yield made
        made.clean_up()


def ready(world: World, first: str = OWNS, second: str = COPIES, action: str = "SET NULL") -> Path:
    """Make two uploads that are due and three for each of the coming nights, with their objects."""
    source = FILE.replace("ACTION", action).replace("FIRST", first).replace("SECOND", second)
    jobs = world.jobs(source=source)
    space: dict[str, sa.MetaData] = {}
    exec(jobs.read_text(), space)
    space["metadata"].create_all(world.engine)
    now = datetime.now(UTC).replace(tzinfo=None)
    with world.engine.begin() as connection:
        for number in range(1, 9):
            due = now + timedelta(days=(number - 1) // 2, hours=-1)
            connection.exec_driver_sql(
                "INSERT INTO uploads VALUES (?, ?, ?, NULL)", (number, str(due), f"up/{number}.bin")
            )
    for number in range(1, 9):
        world.store.put("acme", f"up/{number}.bin", b"x", modified=datetime.now(UTC) - timedelta(days=9))
    world.cli("init", jobs, expect=0)
    return jobs


def test_an_object_that_a_row_of_another_purge_names_stays(world: World) -> None:
    jobs = ready(world)
    world.sql("INSERT INTO copies VALUES (1, NULL, '2099-01-01', 'up/1.bin')")
    ran = world.cli("run", jobs, "first", "--json", expect=0)
    assert ran.document["outcomes"]["uploads"]["deleted"] == 2
    assert world.objects() == {1, 3, 4, 5, 6, 7, 8}


def test_two_purges_of_one_table_take_the_objects_of_their_rows(world: World) -> None:
    """A look from outside the transaction would still see the deleted rows, and spare every object."""
    again = 'Rows(uploads, uploads.c.id > 1000, owns=S3Keys("BUCKET", uploads.c.s3_key, uploads.c.thumb_key), anytime=True)'
    jobs = ready(world, second=again)
    world.sql("UPDATE uploads SET thumb_key = 'up/2.bin' WHERE id = 8")
    world.cli("run", jobs, "first", expect=0)
    # The one is gone; the other is the thumbnail of a row that stays.
    assert world.objects() == {2, 3, 4, 5, 6, 7, 8}


def test_a_cascade_into_rows_that_own_objects_in_another_purge_is_refused(world: World) -> None:
    jobs = ready(world, action="CASCADE")
    ended = world.cli("run", jobs, "first", expect=2)
    assert "takes rows whose objects would stay behind" in ended.said
    assert world.objects() == set(range(1, 9))


def test_a_cascade_into_rows_of_another_purge_without_objects_is_counted_as_ever(world: World) -> None:
    jobs = ready(world, second="Rows(copies, past(copies.c.expires_at))", action="CASCADE")
    world.sql("INSERT INTO copies VALUES (1, 1, '2099-01-01', NULL)")
    world.cli("run", jobs, "first", expect=0)
    assert world.value("SELECT count(*) FROM copies") == 0


def test_the_plan_of_a_prefix_names_the_rows_that_own_objects_of_its_bucket(world: World) -> None:
    jobs = ready(world, second='S3Prefix("BUCKET", "up/", older_than=timedelta(days=99))')
    planned = world.cli("plan", jobs, "second", "--json")
    assert "rows of uploads (purge first) own objects of this bucket" in planned.out


def test_check_proves_that_the_rows_of_the_other_purge_can_be_asked(world: World) -> None:
    jobs = ready(world)
    checked = world.cli("check", jobs, "first", "--json").document
    subjects = [proof["subject"] for report in checked["permissions"] for proof in report["permissions"]]
    assert "SELECT on copies (copies.s3_key)" in subjects
