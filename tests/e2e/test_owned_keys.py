"""Rows that name several objects, share one, or hold what is no key at all: each object goes once, with its last row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.e2e.world import World, before_execute, outcomes, uploads
from tests.s3.test_odd_keys import ODD, lookalikes
from tests.worlds import batches_of

SHARED = "shared/one.bin"
WRONG = ("failed", "two-etags")


def sharing(world: World, *numbers: int) -> Path:
    """Rows 1 to 3 are due; the given ones name one object by a column that is not unique."""
    world.seed(objects=False)
    with world.engine.begin() as connection:
        connection.execute(sa.update(uploads).values(etag=sa.func.coalesce(uploads.c.s3_key, "")))
        connection.execute(sa.update(uploads).where(uploads.c.id.in_(numbers)).values(etag=SHARED))
    own = [f"up/{n:06}.bin" for n in range(1, 13) if n not in numbers]
    world.put(*own, SHARED)
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", uploads.c.etag)')
    world.cli("init", jobs, expect=0)
    return jobs


@pytest.mark.parametrize("size", [1000, 1], ids=["one-batch", "different-batches"])
def test_an_object_of_two_rows_that_both_go_goes_once(world: World, size: int) -> None:
    jobs = sharing(world, 1, 3)
    with batches_of(size):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() == set(range(4, 13))
    assert SHARED not in set(world.keys())
    assert ran.document["outcomes"]["uploads"]["deleted"] == 3


@pytest.mark.parametrize("size", [1000, 1], ids=["one-batch", "different-batches"])
def test_an_object_stays_with_the_row_that_stays(world: World, size: int) -> None:
    jobs = sharing(world, 1, 4)
    with batches_of(size):
        world.cli("run", jobs, expect=0)
    assert world.rows() == set(range(4, 13))
    assert SHARED in set(world.keys())


def test_an_object_stays_when_the_second_of_its_rows_is_kept_after_all(sqlite_world: World) -> None:
    world = sqlite_world
    jobs = sharing(world, 1, 3)
    with batches_of(1), before_execute(lambda: world.sql("UPDATE uploads SET hold = 1 WHERE id = 3")):
        world.cli("run", jobs, expect=0)
    assert world.rows() & {1, 2, 3} == {3}
    assert SHARED in set(world.keys())


def test_two_etags_for_one_key_delete_neither_it_nor_its_rows(sqlite_world: World) -> None:
    world = sqlite_world
    world.seed()
    with world.engine.begin() as connection:
        for number in (1, 2, 3):
            etag = f"{number:032}"
            if number != 2:
                etag = world.s3.head_object(Bucket=world.bucket, Key=f"up/{number:06}.bin")["ETag"]
            connection.execute(sa.update(uploads).where(uploads.c.id == number).values(etag=etag))
    # Rows 1 and 2 name one object, and disagree about its content.
    key = '__import__("sqlalchemy").func.replace(uploads.c.s3_key, "000002", "000001")'
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", {key}, etag=uploads.c.etag)')
    world.cli("init", jobs, expect=0)
    ran = world.cli("run", jobs, "--json")
    assert world.rows() & {1, 2, 3} == {1, 2}, ran.err
    assert world.objects() & {1, 3} == {1}
    found = outcomes(world.shown(ran.run))
    assert (found[1], found[2], found[3]) == (WRONG, WRONG, ("deleted", ""))


def test_several_columns_and_an_expression_name_several_objects_of_a_row(world: World) -> None:
    world.seed(thumbs=True)
    world.put(*(f"up/{n:06}.bin.meta" for n in range(1, 13)))
    owns = f'S3Keys("{world.bucket}", uploads.c.s3_key, uploads.c.thumb_key, uploads.c.s3_key + ".meta")'
    jobs = world.jobs(owns=owns)
    world.cli("init", jobs, expect=0)
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    assert plan["plan"]["targets"][0]["objects"] == 9
    world.cli("run", jobs, expect=0)
    assert world.rows() == set(range(4, 13))
    assert world.keys() == {
        key for n in range(4, 13) for key in (f"up/{n:06}.bin", f"up/{n:06}.bin.meta", f"th/{n:06}.png")
    }


@pytest.mark.parametrize("place", ["postgresql", "sqlite"])
def test_odd_keys_go_from_the_column_to_the_wire_as_they_are(
    stub_world: World, request: pytest.FixtureRequest, place: str
) -> None:
    """Each of them stands among those that a careless normalisation would take it for, and all of those stay."""
    store: Any = stub_world.store
    world: World = stub_world if place == "sqlite" else request.getfixturevalue("pg_world")
    world.store, world.s3, world.bucket = store, stub_world.s3, stub_world.bucket
    # The column is narrower than the longest one.
    odd = [key for key in ODD if len(key) < 512]
    world.seed(due=len(odd), objects=False)
    with world.engine.begin() as connection:
        for number, key in enumerate(odd, 1):
            connection.execute(sa.update(uploads).where(uploads.c.id == number).values(s3_key=key))
    neighbours = {like for key in odd for like in lookalikes(key)} - set(odd)
    later = {f"up/{n:06}.bin" for n in range(len(odd) + 1, 4 * len(odd) + 1)}
    for key in {*odd, *neighbours, *later}:
        store.put(world.bucket, key)
    jobs = world.jobs()
    world.cli("init", jobs, expect=0)
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["outcomes"]["uploads"]["deleted"] == len(odd)
    assert store.keys(world.bucket) == neighbours | later
    assert world.rows() == set(range(len(odd) + 1, 4 * len(odd) + 1))


def test_what_is_no_key_keeps_its_row_and_is_counted_by_kind(world: World) -> None:
    world.seed(due=6)
    jobs = world.jobs()
    world.cli("init", jobs, expect=0)
    values = {
        1: None,
        2: "",
        3: f"s3://{world.bucket}/up/000003.bin",
        4: "S3://acme-other/up/4",
        5: "a\x01/../b",
    }
    with world.engine.begin() as connection:
        for number, value in values.items():
            connection.execute(sa.update(uploads).where(uploads.c.id == number).values(s3_key=value))
    before = set(world.keys())
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    (target,) = plan["plan"]["targets"]
    assert target["items"] == 2
    assert [note for note in target["notes"] if "matching row(s)" in note] == [
        "1 matching row(s) name no object by s3_key, which is NULL.",
        "1 matching row(s) are kept, for s3_key is empty.",
        f"1 matching row(s) are kept, for s3_key is a URL into {world.bucket}, not a key of it.",
        f"1 matching row(s) are kept, for s3_key is a URL that names another bucket or place than {world.bucket}.",
        "1 matching row(s) are kept, for s3_key can name no object that can be deleted safely.",
    ]
    ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() & set(range(1, 7)) == {2, 3, 4, 5}, "what names no object owns none, and goes"
    assert world.keys() == before - {"up/000006.bin"}
    assert outcomes(world.shown(ran.run)) == {1: ("deleted", ""), 6: ("deleted", "")}
