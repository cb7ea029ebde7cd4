"""A sweep of orphans from the command line: what no row names goes, and nothing that is named by then; and both sides reported."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.declare import Purge, Rows, S3Keys, past
from safedelete.errors import RefusedError
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.testing.servers import StubS3
from safedelete.testing.servers.faults import answering, refusing
from safedelete.wiring.connect import context_of
from safedelete.wiring.places import reconcile
from safedelete.wiring.settings import SystemClock
from tests.e2e.world import ROOT, World, before_execute, before_verify, metadata, uploads

JOBS = """
from datetime import timedelta

from sqlalchemy import BigInteger, Column, DateTime, Integer, MetaData, String, Table

from safedelete import Guard, Purge, Rows, S3Keys, S3Orphans, past

uploads = Table(
    "uploads",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("s3_key", String(512), unique=True),
    Column("thumb_key", String(512), unique=True),
)
when = dict(schedule="rate(1 day)", timeout=timedelta(minutes=5), guard=Guard(max_items=100))
"""
SWEEP = (
    JOBS
    + """
purge = Purge(
    "orphans",
    S3Orphans(
        "BUCKET", "up/", referenced_by=[uploads.c.s3_key, uploads.c.thumb_key], older_than=timedelta(days=7)
    ),
    **when,
)
"""
)
OWNED = (
    JOBS
    + """
purge = Purge(
    "owned", Rows(uploads, past(uploads.c.expires_at), owns=S3Keys("BUCKET", uploads.c.s3_key, uploads.c.thumb_key)), **when
)
"""
)
OLD = timedelta(days=7, hours=1)
VERSIONED = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"


@pytest.fixture
def store() -> Iterator[StubS3]:
    with StubS3() as stub:
        now = datetime.now(UTC)
        for number in range(1, 31):
            # Three orphans a day: 1 to 3 are old enough today, 4 to 6 tomorrow; 13 and on are named.
            days = (number - 1) // 3 if number < 13 else -30
            stub.put("acme", key(number), b"old", modified=now - OLD + timedelta(days=days))
        stub.put("acme", "up2/000001.bin", b"old", modified=now - timedelta(days=99))
        yield stub


def key(number: int) -> str:
    return f"up/{number:06}.bin"


@pytest.fixture
def world(store: StubS3, tmp_path: Path) -> Iterator[World]:
    url = sa.make_url(f"sqlite:///{tmp_path / 'app.db'}")
    made = World("sqlite", url, store, "acme", tmp_path)  # type: ignore[arg-type]  # a stub has what is used here
    metadata.create_all(made.engine)
    name(made, *(key(number) for number in range(13, 31)))
    yield made
    made.clean_up()


def name(world: World, *keys: str | None, column: str = "s3_key") -> None:
    with world.engine.begin() as connection:
        connection.execute(sa.insert(uploads), [{"hold": False, column: each} for each in keys])


def swept(world: World) -> Path:
    jobs = world.jobs(source=SWEEP)
    world.cli("init", jobs, expect=0)
    return jobs


def test_old_objects_that_no_row_names_go(world: World, store: StubS3) -> None:
    jobs = swept(world)
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["outcomes"]["orphans of s3://acme/up/"]["deleted"] == 3
    assert world.objects() == set(range(4, 31))
    assert "up2/000001.bin" in store.keys("acme")


def test_an_object_that_a_row_came_to_name_is_kept(world: World) -> None:
    jobs = swept(world)
    with before_execute(lambda: name(world, key(2), column="thumb_key")):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.objects() & {1, 2, 3} == {2}
    items = {item["key"][0]: (item["outcome"], item["code"]) for item in world.shown(ran.run)["items"]}
    assert items["s3://acme/up/000002.bin"] == ("changed", "named")


def test_an_overwritten_orphan_is_kept(world: World, store: StubS3) -> None:
    jobs = swept(world)
    with before_execute(lambda: store.put("acme", key(2), b"new")):
        world.cli("run", jobs, expect=0)
    assert world.objects() & {1, 2, 3} == {2}


@pytest.mark.parametrize("options", ["", 'mode="marker", ', "require_conditional=True, "])
def test_an_orphan_written_again_with_the_same_bytes_is_kept(
    world: World, store: StubS3, options: str
) -> None:
    """Its ETag is the sealed one; only its age tells that somebody has taken it up."""
    if "mode" in options:
        store.always(answering(200, VERSIONED), "GetBucketVersioning")
    jobs = world.jobs(source=SWEEP.replace('"up/", ', f'"up/", {options}'))
    world.cli("init", jobs, expect=0)
    with before_execute(lambda: store.put("acme", key(2), b"old", modified=datetime.now(UTC))):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.objects() & {1, 2, 3} == {2}
    items = {item["key"][0]: (item["outcome"], item["code"]) for item in world.shown(ran.run)["items"]}
    assert items[f"s3://acme/{key(2)}"] == ("changed", "rewritten")


def test_an_orphan_written_again_after_it_went_is_no_residue(world: World, store: StubS3) -> None:
    jobs = swept(world)
    with before_verify(lambda: store.put("acme", key(2), b"old", modified=datetime.now(UTC))):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["outcomes"]["orphans of s3://acme/up/"]["deleted"] == 3
    assert world.objects() & {1, 2, 3} == {2}


def test_an_empty_table_refuses_and_cannot_be_approved(world: World) -> None:
    jobs = swept(world)
    world.sql("DELETE FROM uploads")
    planned = world.cli("plan", jobs, expect=3)
    assert "SD115" in planned.out
    assert "uploads has no row" in planned.out
    world.cli("run", jobs, expect=3)
    assert world.objects() == set(range(1, 31))
    run = world.cli("history", jobs, "--json", expect=0).document[0]["run"]
    world.cli("approve", run, "--reason", "sure", "--file", jobs, expect=3)


def test_a_url_in_a_key_column_refuses(world: World) -> None:
    jobs = swept(world)
    name(world, "s3://acme/up/000001.bin")
    planned = world.cli("plan", jobs, expect=3)
    assert "SD115" in planned.out
    assert "s3://acme/up/000001.bin" in planned.out
    world.cli("run", jobs, expect=3)
    assert 1 in world.objects()


def test_a_missing_database_is_not_made_and_not_empty(world: World, tmp_path: Path) -> None:
    jobs = swept(world)
    away = sa.make_url(f"sqlite:///{tmp_path / 'mistyped.db'}")
    assert world.cli("run", jobs, url=away).code not in (0, 1)
    assert not (tmp_path / "mistyped.db").exists()
    assert world.objects() == set(range(1, 31))


def test_check_proves_reading_the_rows_and_deleting_the_objects(world: World) -> None:
    jobs = swept(world)
    checked = world.cli("check", jobs, "--json", expect=0).document
    subjects = [proof["subject"] for report in checked["permissions"] for proof in report["permissions"]]
    assert any(subject.startswith("SELECT on uploads") for subject in subjects)
    assert any("s3:DeleteObject" in subject for subject in subjects)


# --- reconcile


def places(world: World, *arguments: object, expect: int, source: str = OWNED) -> Any:
    jobs = world.jobs(source=source)
    return world.cli("reconcile", jobs, *arguments, "--json", expect=expect).document


def test_reconcile_reports_both_sides(world: World) -> None:
    name(world, "up/gone.bin", "up/lost.bin")
    (place,) = places(world, expect=1)
    assert place["place"] == "s3://acme/up/"
    assert (place["listed"], place["named"], place["young"]) == (30, 18, 0)
    assert place["without_rows"]["keys"] == 12
    assert place["without_rows"]["bytes"] == 36
    assert place["without_rows"]["sample"] == [key(number) for number in range(1, 11)]
    assert place["without_objects"] == {"keys": 2, "bytes": 0, "sample": ["up/gone.bin", "up/lost.bin"]}
    assert place["differs"] is True
    said = world.cli("reconcile", world.jobs(source=OWNED), expect=1).out
    assert "'up/gone.bin'" in said
    assert "and 2 more" in said
    assert "Nothing was deleted." in said


def test_reconcile_says_0_when_both_sides_agree(world: World) -> None:
    name(world, *(key(number) for number in range(1, 13)))
    (place,) = places(world, expect=0)
    assert (place["listed"], place["named"], place["differs"]) == (30, 30, False)


def test_reconcile_leaves_what_is_being_uploaded(world: World, store: StubS3) -> None:
    name(world, *(key(number) for number in range(1, 13)))
    store.put("acme", "up/uploading.bin", b"now", modified=datetime.now(UTC))
    (place,) = places(world, expect=0)
    assert place["young"] == 1


def test_reconcile_of_orphans_looks_where_the_sweep_does(world: World) -> None:
    (place,) = places(world, expect=1, source=SWEEP)
    assert (place["without_rows"]["keys"], place["young"]) == (3, 9)


def test_reconcile_needs_no_ledger_and_writes_nothing(world: World, store: StubS3) -> None:
    before = len(store.requests)
    places(world, expect=1)
    tables = sa.inspect(world.engine).get_table_names()
    assert tables == ["uploads"]
    assert {request.operation for request in store.requests[before:]} <= {
        "ListObjectsV2",
        "HeadObject",
        "HeadBucket",
    }


@pytest.mark.parametrize(
    ("row", "says"),
    [("https://cdn.example/up/000001.bin", "do not spell its key"), (None, "has no row")],
)
def test_what_cannot_be_checked_is_neither_0_nor_1(world: World, row: str | None, says: str) -> None:
    if row is None:
        world.sql("DELETE FROM uploads")
    else:
        name(world, row)
    (place,) = places(world, "--prefix", "up", expect=7)
    assert says in place["unchecked"]
    said = world.cli("reconcile", world.jobs(source=OWNED), "--prefix", "up", expect=7).out
    assert "Could not be checked" in said


def test_a_bucket_that_may_not_be_listed_is_not_checked(world: World, store: StubS3) -> None:
    store.always(refusing(403, "AccessDenied"), "ListObjectsV2")
    (place,) = places(world, expect=7)
    assert place["unchecked"]


@pytest.mark.parametrize(
    ("bucket", "database", "says"),
    [
        ("acme", "sqlite:///away.db", "were not asked"),
        ("arn:aws:s3:eu-west-1:123456789012:accesspoint/up", None, "cannot be told"),
        ("acme-other", "sqlite:///away.db", ""),
    ],
)
def test_objects_that_rows_elsewhere_may_name_are_not_called_orphans(
    world: World, bucket: str, database: str | None, says: str
) -> None:
    purge = world.job(world.jobs(source=OWNED))
    assert isinstance(purge, Purge)
    owns = S3Keys(bucket, uploads.c.s3_key)
    away = Purge(
        "away",
        Rows(uploads, past(uploads.c.expires_at), owns=owns),
        schedule="rate(1 day)",
        timeout=timedelta(minutes=5),
        database=database,
    )
    with world.inside():
        (place,) = reconcile(purge, [away])
    assert bool(place.unchecked) is bool(says)
    assert says in place.unchecked
    assert place.without_rows.keys == (0 if says else 12)


def test_keys_without_a_common_folder_want_a_prefix(world: World) -> None:
    name(world, "elsewhere/1.bin")
    jobs = world.jobs(source=OWNED)
    ended = world.cli("reconcile", jobs, expect=2)
    assert "--prefix" in ended.said
    found = places(world, "--prefix", "up", "--prefix", "up2", "--prefix", "up/", expect=1)
    assert [place["place"] for place in found] == ["s3://acme/up/", "s3://acme/up2/"]
    (whole,) = places(world, "--prefix", "", expect=1)
    assert (whole["place"], whole["listed"]) == ("s3://acme/", 31)
    world.cli("reconcile", jobs, "--prefix", "/up", expect=2)


def test_the_example_fails_when_a_row_has_lost_its_object(world: World, store: StubS3) -> None:
    example = ROOT / "examples" / "reconcile.py"
    old = datetime.now(UTC) - timedelta(days=30)
    world.sql("DELETE FROM uploads")
    for number in range(40):
        store.put("acme-uploads", f"u/{number:02}", b"x", modified=old)
    name(world, *(f"u/{number:02}" for number in range(1, 40)))
    world.cli("init", example, expect=0)
    world.cli("run", example, "reconcile-uploads", expect=0)
    name(world, "u/lost")
    assert world.cli("run", example, "reconcile-uploads").code == 7
    # One of forty is an orphan.
    planned = world.cli("plan", example, "orphaned-uploads", "--json").document
    assert planned[0]["plan"]["targets"][0]["items"] == 1


def test_reconcile_on_real_stores(world_: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world_.seed(due=3, nights=1)
    world_.put("up/orphan é.bin", "up/orphan\U0001f600.bin")
    world_.s3.delete_object(Bucket=world_.bucket, Key="up/000002.bin")
    jobs = world_.jobs(source=OWNED)
    (place,) = world_.cli("reconcile", jobs, "--json", expect=1).document
    assert (place["listed"], place["young"], place["without_rows"]["keys"]) == (7, 2, 0)
    assert place["without_objects"]["sample"] == ["up/000002.bin"]
    # Objects of a real store are of today.
    monkeypatch.setattr("safedelete.wiring.places.SLOWEST_UPLOAD", timedelta(hours=-1))
    (place,) = world_.cli("reconcile", jobs, "--json", expect=1).document
    assert place["without_rows"]["sample"] == ["up/orphan é.bin", "up/orphan\U0001f600.bin"]


class NextMonth(SystemClock):
    """A real store's objects are of today; the run is of a month later."""

    def now(self) -> datetime:
        return super().now() + timedelta(days=30)


def test_a_sweep_of_real_stores_takes_exactly_the_orphans(world_: World) -> None:
    world_.seed(due=10, nights=1, thumbs=True)
    orphans = ["up/orphan é.bin", "up/orphan e\u0301.bin", "up/orphan\U0001f600.bin", "up/orphan\uffff.bin"]
    world_.put(*orphans, "up2/orphan.bin")
    with world_.engine.begin() as connection:
        connection.execute(sa.update(uploads).where(uploads.c.id == 1).values(s3_key=orphans[1]))
    kept = world_.keys() - {*orphans, "up/000001.bin"} | {orphans[1]}
    # Thumbnails are kept under another prefix.
    jobs = world_.jobs(source=SWEEP.replace("older_than=", "outside_ok=uploads.c.thumb_key, older_than="))
    world_.cli("init", jobs, expect=0)
    purge = world_.job(jobs)
    assert isinstance(purge, Purge)
    with world_.inside(), context_of(purge, clock=NextMonth()) as ctx:
        with pytest.raises(RefusedError) as refused:
            runner.run(ctx)
        # The first sweep is a person's to accept; there is nothing else to say against it.
        assert set(refused.value.findings) <= {"SD200", "SD205"}
        run = str(refused.value.run)
        review.approve(
            ctx.ledger, ctx.clock, run, reason="looked at", who="me", expires_in=timedelta(hours=1), teaches=1
        )
        report = runner.execute_sealed(ctx, run)
    assert report.total.deleted == 4
    assert world_.keys() == kept


@pytest.fixture(params=["pg_world", "sqlite_world"])
def world_(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(request.param)
    return found
