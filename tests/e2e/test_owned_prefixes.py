"""A row that owns a prefix goes with everything below it, and stays when anything below is not what was sealed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.e2e.world import ADMINISTRATOR, World, before_execute, outcomes, uploads

EACH = ("a.txt", "deep/er/b.txt")
"""What lies below each upload's prefix."""


def place(number: int) -> str:
    return f"up/{number:06}.bin"


def below(world: World, number: int) -> set[str]:
    start = place(number) + "/"
    there: set[str] = world.keys()
    return {key[len(start) :] for key in there if key.startswith(start)}


def ready(world: World, due: int = 3, nights: int = 2, owns: str = "", options: str = "") -> Path:
    world.seed(due, nights, objects=False)
    numbers = range(1, due * (nights + 1) + 1)
    world.put(*(f"{place(n)}/{name}" for n in numbers for name in EACH))
    jobs = world.jobs(options, owns=owns or f'S3Keys("{world.bucket}", prefix=uploads.c.s3_key)')
    world.cli("init", jobs, expect=0)
    return jobs


def test_everything_below_goes_with_the_row_and_a_longer_namesake_stays(world: World) -> None:
    jobs = ready(world)
    world.put(f"{place(1)}x/other", f"{place(1)}.bak", place(2))
    ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() == set(range(4, 10))
    assert [below(world, n) for n in (1, 2, 3)] == [set(), set(), set()]
    assert below(world, 4) == {"a.txt", "deep/er/b.txt"}
    assert {f"{place(1)}x/other", f"{place(1)}.bak", place(2)} <= world.keys()
    assert ran.document["outcomes"]["uploads"]["deleted"] == 3


def test_the_plan_counts_what_lies_below_with_its_bytes(sqlite_world: World) -> None:
    jobs = ready(sqlite_world)
    [plan] = sqlite_world.cli("plan", jobs, "--json", expect=0).document
    (target,) = plan["plan"]["targets"]
    assert (target["items"], target["objects"], target["bytes"], target["conditional"]) == (3, 6, 6, 6)


def test_what_was_sealed_is_listed_with_its_etag(sqlite_world: World, tmp_path: Path) -> None:
    import json

    jobs = ready(sqlite_world)
    path = tmp_path / "items"
    sqlite_world.cli("run", jobs, "--manifest", path, expect=0)
    first = json.loads(path.read_text().splitlines()[0])
    assert first["prefixes"] == [f"s3://{sqlite_world.bucket}/{place(1)}/"]
    assert [ref["key"] for ref in first["objects"]] == [f"{place(1)}/a.txt", f"{place(1)}/deep/er/b.txt"]
    assert all(ref["etag"] for ref in first["objects"])


def test_row_below_which_something_appears_after_the_seal_is_kept_with_all_of_it(world: World) -> None:
    jobs = ready(world)
    with before_execute(lambda: world.put(f"{place(2)}/new.txt")):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() & {1, 2, 3} == {2}
    assert below(world, 2) == {"a.txt", "deep/er/b.txt", "new.txt"}
    assert outcomes(world.shown(ran.run))[2] == ("changed", "appeared")
    world.cli("run", jobs, expect=0)
    assert (world.rows() & {2}, below(world, 2)) == (set(), set()), "the next run has sealed it too"


def test_row_with_nothing_below_is_kept_when_something_appears(sqlite_world: World) -> None:
    jobs = ready(sqlite_world, due=9)
    sqlite_world.s3.delete_object(Bucket=sqlite_world.bucket, Key=f"{place(2)}/a.txt")
    sqlite_world.s3.delete_object(Bucket=sqlite_world.bucket, Key=f"{place(2)}/deep/er/b.txt")
    with before_execute(lambda: sqlite_world.put(f"{place(2)}/first.txt")):
        ran = sqlite_world.cli("run", jobs, "--json", expect=0)
    assert (sqlite_world.rows() & {2}, below(sqlite_world, 2)) == ({2}, {"first.txt"})
    assert outcomes(sqlite_world.shown(ran.run))[2] == ("changed", "appeared")


def test_row_below_which_an_object_is_overwritten_is_kept_with_all_of_it(sqlite_world: World) -> None:
    world = sqlite_world
    jobs = ready(world)
    with before_execute(lambda: world.put(f"{place(2)}/a.txt", body=b"newer")):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() & {1, 2, 3} == {2}
    assert below(world, 2) == {"a.txt", "deep/er/b.txt"}
    assert outcomes(world.shown(ran.run))[2] == ("changed", "overwritten")


def test_row_whose_prefix_is_moved_after_the_seal_is_kept_with_both_places(sqlite_world: World) -> None:
    world = sqlite_world
    jobs = ready(world)
    world.put("up/elsewhere/a.txt")
    with before_execute(lambda: world.sql("UPDATE uploads SET s3_key = 'up/elsewhere' WHERE id = 2")):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() & {1, 2, 3} == {2}
    assert below(world, 2) == {"a.txt", "deep/er/b.txt"}
    assert {"up/elsewhere/a.txt"} <= world.keys()
    assert outcomes(world.shown(ran.run))[2] == ("changed", "objects")


def test_row_below_which_one_object_is_denied_is_dangling_and_stays(sqlite_world: World) -> None:
    jobs = ready(sqlite_world)
    with before_execute(lambda: sqlite_world.store.deny(sqlite_world.bucket, [f"{place(2)}/a.txt"])):
        ran = sqlite_world.cli("run", jobs, "--json", expect=7)
    assert (sqlite_world.rows() & {1, 2, 3}, below(sqlite_world, 2)) == ({2}, {"a.txt"})
    assert outcomes(sqlite_world.shown(ran.run))[2] == ("failed", "dangling")


STRANGE = ("", " ", "/", "/up/000001.bin", "s3://other/up", "https://s3.example.com/BUCKET/up")


def test_what_is_no_prefix_keeps_its_row_and_is_counted(sqlite_world: World) -> None:
    world = sqlite_world
    jobs = ready(world, due=8, nights=1)
    with world.engine.begin() as connection:
        for number, value in enumerate(STRANGE, 1):
            named = value.replace("BUCKET", world.bucket)
            connection.execute(sa.update(uploads).where(uploads.c.id == number).values(s3_key=named))
    before = set(world.keys())
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    (target,) = plan["plan"]["targets"]
    assert target["items"] == 2
    assert [note for note in target["notes"] if note.split(" ", 1)[1].startswith("matching")] == [
        "2 matching row(s) are kept, for s3_key is empty.",
        f"1 matching row(s) are kept, for s3_key is a URL into {world.bucket}, not a key of it.",
        f"1 matching row(s) are kept, for s3_key is a URL that names another bucket or place than {world.bucket}.",
        "2 matching row(s) are kept, for s3_key can name no prefix that can be deleted safely.",
    ]
    world.cli("run", jobs, expect=0)
    assert world.rows() & set(range(1, 9)) == set(range(1, 7))
    assert world.keys() == {key for key in before if not key.startswith((place(7), place(8)))}


def test_row_without_a_prefix_owns_nothing_and_goes_and_is_counted(world: World) -> None:
    jobs = ready(world)
    world.sql("UPDATE uploads SET s3_key = NULL WHERE id = 2")
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    assert "1 matching row(s) name no prefix by s3_key, which is NULL." in plan["plan"]["targets"][0]["notes"]
    world.cli("run", jobs, expect=0)
    assert world.rows() & {1, 2, 3} == set()
    assert below(world, 2) == {"a.txt", "deep/er/b.txt"}, "nobody's prefix reaches it"


def test_objects_that_a_row_which_stays_owns_by_an_outer_or_inner_prefix_stay(world: World) -> None:
    jobs = ready(world)
    # 1 lies within 4's, which stays; 5's, which stays, lies within 2's.
    world.sql(
        "UPDATE uploads SET s3_key = 'tree/x' WHERE id = 4",
        "UPDATE uploads SET s3_key = 'tree/x/inner/' WHERE id = 1",
        f"UPDATE uploads SET s3_key = '{place(2)}/deep' WHERE id = 5",
    )
    world.put("tree/x/inner/1", "tree/x/2", "tree/xy/3")
    ran = world.cli("run", jobs, "--json", expect=0)
    assert world.rows() == set(range(4, 10))
    assert {"tree/x/inner/1", "tree/x/2", "tree/xy/3"} <= world.keys()
    assert below(world, 2) == {"deep/er/b.txt"}
    assert ran.document["outcomes"]["uploads"]["deleted"] == 3


def test_the_last_row_of_an_equal_prefix_takes_what_lies_below(sqlite_world: World) -> None:
    world = sqlite_world
    jobs = ready(world)
    world.sql(f"UPDATE uploads SET s3_key = '{place(1)}/' WHERE id = 4")
    world.cli("run", jobs, expect=0)
    assert below(world, 1) == {"a.txt", "deep/er/b.txt"}, "row 4 owns it too"
    world.sql("UPDATE uploads SET expires_at = '2020-01-01 00:00:00' WHERE id = 4")
    world.cli("run", jobs, expect=0)
    assert (world.rows() & {1, 4}, below(world, 1)) == (set(), set())


def test_a_key_that_another_row_names_stays_below_a_prefix_that_goes(sqlite_world: World) -> None:
    world = sqlite_world
    owns = f'S3Keys("{world.bucket}", uploads.c.thumb_key, prefix=uploads.c.s3_key)'
    jobs = ready(world, owns=owns)
    world.sql(f"UPDATE uploads SET thumb_key = '{place(2)}/a.txt' WHERE id = 4")
    world.cli("run", jobs, expect=0)
    assert (world.rows() & {1, 2, 3}, below(world, 2)) == (set(), {"a.txt"})


def test_a_prefix_in_a_bucket_where_nothing_lies_below_most_is_refused_as_a_wrong_place(
    sqlite_world: World,
) -> None:
    world = sqlite_world
    jobs = ready(world, due=6)
    for key in tuple(world.keys()):
        world.s3.delete_object(Bucket=world.bucket, Key=key)
    ran = world.cli("run", jobs, expect=9)
    assert "0 of 6 sampled prefixes" in ran.said
    assert len(world.rows()) == 18


def test_a_listing_that_fails_while_planning_refuses_the_run(sqlite_world: World) -> None:
    jobs = ready(sqlite_world)
    sqlite_world.store.deny(sqlite_world.bucket, actions=("s3:ListBucket",))
    ran = sqlite_world.cli("run", jobs)
    assert ran.code == 3, ran.err
    assert "SD100" in ran.said
    assert len(sqlite_world.rows()) == 9


@pytest.mark.parametrize("mode", ["purge", "marker"])
def test_a_versioned_bucket(sqlite_world: World, mode: str) -> None:
    world: Any = sqlite_world
    world.s3.put_bucket_versioning(Bucket=world.bucket, VersioningConfiguration={"Status": "Enabled"})
    jobs = ready(world, owns=f'S3Keys("{world.bucket}", prefix=uploads.c.s3_key, mode="{mode}")')
    world.put(f"{place(1)}/a.txt", body=b"second")
    world.s3.delete_object(Bucket=world.bucket, Key=f"{place(1)}/deep/er/b.txt")
    ran = world.cli("run", jobs, "--json", expect=0, identity=ADMINISTRATOR)
    assert world.rows() == set(range(4, 10))
    assert ran.document["outcomes"]["uploads"]["deleted"] == 3
    listing = world.s3.list_object_versions(Bucket=world.bucket, Prefix=f"{place(1)}/")
    data = [v["Key"] for v in listing.get("Versions", ())]
    if mode == "purge":
        assert (data, listing.get("DeleteMarkers", [])) == ([], [])
    else:
        assert len(data) == 3
        assert below(world, 1) == set()


def test_a_version_that_appears_after_the_seal_keeps_the_row_and_every_version(sqlite_world: World) -> None:
    world = sqlite_world
    world.s3.put_bucket_versioning(Bucket=world.bucket, VersioningConfiguration={"Status": "Enabled"})
    jobs = ready(world, owns=f'S3Keys("{world.bucket}", prefix=uploads.c.s3_key, mode="purge")')
    with before_execute(lambda: world.put(f"{place(2)}/a.txt", body=b"newer")):
        world.cli("run", jobs, expect=0, identity=ADMINISTRATOR)
    versions = world.s3.list_object_versions(Bucket=world.bucket, Prefix=f"{place(2)}/")["Versions"]
    assert (world.rows() & {1, 2, 3}, len(versions)) == ({2}, 3)


def test_what_comes_below_while_the_row_goes_is_reported_by_key(sqlite_world: World) -> None:
    from unittest import mock

    from safedelete.phases import execute

    world = sqlite_world
    jobs = ready(world)
    real = execute.appeared

    def late(*arguments: Any) -> Any:
        found = real(*arguments)
        world.put(f"{place(2)}/late.txt")
        return found

    with mock.patch.object(execute, "appeared", late):
        ran = world.cli("run", jobs, "--json", expect=7)
    assert below(world, 2) == {"late.txt"}
    assert outcomes(world.shown(ran.run))[2] == ("failed", "residue")
    assert "late.txt" in world.cli("show", ran.run).out


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_run_that_dies_among_the_objects_below_is_finished_by_the_next(
    sqlite_world: World, moment: str
) -> None:
    from unittest import mock

    from safedelete.s3.store import S3ObjectStore

    class DiedError(BaseException):
        pass

    world = sqlite_world
    jobs = ready(world)
    real = S3ObjectStore.delete

    def die(store: Any, refs: Any, *, gate: Any) -> Any:
        if moment == "after":
            real(store, refs[:3], gate=gate)
        raise DiedError

    with mock.patch.object(S3ObjectStore, "delete", die), pytest.raises(DiedError):
        world.cli("run", jobs)
    assert world.rows() & {1, 2, 3} == {1, 2, 3}
    world.cli("run", jobs)
    assert world.rows() & {1, 2, 3} == set()
    assert [below(world, n) for n in (1, 2, 3)] == [set(), set(), set()]
