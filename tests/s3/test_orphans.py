"""A plan of orphans holds the listing against real rows, and refuses where the two cannot be about one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from safedelete.core.keys import refusal
from safedelete.core.plan import TargetPlan, Unknown
from safedelete.core.spelling import spoken
from safedelete.declare import S3Orphans
from safedelete.errors import ConfigError, StoreError
from safedelete.ports import ObjectTarget
from safedelete.s3.orphans import OrphanTarget
from safedelete.s3.store import S3ObjectStore
from safedelete.sql import Database
from safedelete.sql.referenced import SqlReferences
from safedelete.testing.servers import Moto, SeaweedFS, StubS3
from tests.s3.support import FakeClock, reach

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
OLD = NOW - timedelta(days=30)
WEEK = timedelta(days=7)

metadata = sa.MetaData()
uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("s3_key", sa.String(1024)),
    sa.Column("thumb_key", sa.String(1024)),
)
avatars = sa.Table(
    "avatars", metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("s3_key", sa.String(1024))
)


class Rows:
    """The rows of a database; made anew for each test."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self.engine = sa.create_engine(url)
        metadata.create_all(self.engine)

    def put(self, *keys: str | None, table: sa.Table = uploads, column: str = "s3_key") -> None:
        with self.engine.begin() as connection:
            connection.execute(table.insert(), [{column: key} for key in keys])

    def empty(self, *tables: sa.Table) -> None:
        with self.engine.begin() as connection:
            for table in tables or (uploads, avatars):
                connection.execute(table.delete())


@pytest.fixture(params=["sqlite", "postgresql"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    if request.param == "sqlite":
        (tmp_path / "app.db").touch()
        url = f"sqlite:///{tmp_path / 'app.db'}"
    else:
        url = request.getfixturevalue("pg_database")
    made = Rows(url)
    yield made
    made.database.dispose()
    made.engine.dispose()


@pytest.fixture
def sqlite_rows(tmp_path: Path) -> Iterator[Rows]:
    (tmp_path / "app.db").touch()
    made = Rows(f"sqlite:///{tmp_path / 'app.db'}")
    yield made
    made.database.dispose()


def target_on(
    connection: Any, rows: Rows, bucket: str = "bkt", prefix: str = "u", **options: Any
) -> OrphanTarget:
    columns: Sequence[Any] = options.pop("referenced_by", [uploads.c.s3_key, uploads.c.thumb_key])
    declared = S3Orphans(bucket, prefix, referenced_by=columns, older_than=WEEK, **options)
    references = SqlReferences(declared.columns, rows.database, bucket, declared.prefix, page=3)
    store = S3ObjectStore(connection, clock=FakeClock(), modes={bucket: declared.mode})
    target = OrphanTarget(declared, references, connection, store, page_size=3)
    as_port: ObjectTarget = target
    assert as_port is target
    return target


def on(stub: StubS3, rows: Rows, **options: Any) -> OrphanTarget:
    return target_on(reach(stub), rows, **options)


def survey(target: OrphanTarget, **options: Any) -> TargetPlan:
    return target.survey(NOW, portion=options.get("portion"), since=options.get("since"))


def scanned(target: OrphanTarget, *, as_of: datetime = NOW, portion: int | None = None) -> list[str]:
    return [ref.key for refs in target.scan(as_of, batch=2, portion=portion) for ref in refs]


def fill(stub: StubS3, *keys: str, modified: datetime = OLD) -> None:
    for key in keys:
        stub.put("bkt", key, b"body", modified=modified)


def test_what_neither_column_names_is_planned(stub: StubS3, rows: Rows) -> None:
    fill(stub, *(f"u/{number}" for number in range(10)), "u2/1", "v/1")
    rows.put("u/0", "u/2", "u/4", "v/1", None, "")
    rows.put("u/1", "u/9", "u/9", column="thumb_key")
    plan = survey(on(stub, rows))
    assert (plan.name, plan.kind) == ("orphans of s3://bkt/u/", "objects")
    assert (plan.items, plan.eligible, plan.total, plan.objects, plan.ageless) == (5, 5, 10, 5, None)
    assert (plan.bytes, plan.conditional, plan.objections) == (20, 5, ())
    assert (plan.first, plan.last) == ("u/3", "u/8")
    assert "no row names" in plan.statement
    assert any("5 of 10 listed keys are named" in note for note in plan.notes)
    assert scanned(on(stub, rows)) == ["u/3", "u/5", "u/6", "u/7", "u/8"]
    assert all(
        ref.etag and ref.size for refs in on(stub, rows).scan(NOW, batch=9, portion=None) for ref in refs
    )


def test_an_orphan_as_young_as_an_upload_stays(stub: StubS3, rows: Rows) -> None:
    fill(stub, "u/named", "u/old")
    fill(stub, "u/exact", modified=NOW - WEEK)
    fill(stub, "u/uploading", modified=NOW - timedelta(hours=2))
    rows.put("u/named")
    assert scanned(on(stub, rows)) == ["u/old"]
    plan = survey(on(stub, rows))
    assert (plan.items, plan.total) == (1, 4)


def test_a_portion_takes_the_oldest(stub: StubS3, rows: Rows) -> None:
    for number in range(6):
        fill(stub, f"u/{number}", modified=OLD - timedelta(days=number))
    rows.put("u/5")
    assert scanned(on(stub, rows), portion=2) == ["u/3", "u/4"]
    assert survey(on(stub, rows), portion=2).items == 2


def test_a_table_without_a_row_is_an_objection_and_nothing_is_sealed(stub: StubS3, rows: Rows) -> None:
    fill(stub, "u/1", "u/2")
    rows.put("u/1")
    target = on(stub, rows, referenced_by=[uploads.c.s3_key, avatars.c.s3_key])
    (objection,) = survey(target).objections
    assert "avatars has no row" in objection
    with pytest.raises(StoreError, match="avatars has no row"):
        scanned(target)


def test_a_prefix_that_rows_do_not_name_is_an_objection(stub: StubS3, rows: Rows) -> None:
    fill(stub, "u/1", "u/2")
    rows.put("w/1", "w/2")
    for missing_ok in (False, True):
        objection, outside = survey(on(stub, rows, missing_ok=missing_ok)).objections
        assert "not one of 2 listed keys is named" in objection
        assert "none begins with 'u/'" in outside


def test_rows_that_name_mostly_what_is_not_there_are_an_objection(stub: StubS3, rows: Rows) -> None:
    fill(stub, "u/1", "u/2")
    rows.put("u/1", "u/7", "u/8")
    (objection,) = survey(on(stub, rows)).objections
    assert "only 1 of the 3 keys" in objection
    assert survey(on(stub, rows, missing_ok=True)).objections == ()


def test_a_column_whose_values_name_nothing_here_is_named(stub: StubS3, rows: Rows) -> None:
    """The other column's keys are all there: added together, the two would pass."""
    fill(stub, *(f"u/{number}" for number in range(20)), *(f"u/avatars/{n}.png" for n in range(5)))
    rows.put(*(f"u/{number}" for number in range(20)))
    rows.put(*(f"{number}.png" for number in range(5)), table=avatars)
    both = [uploads.c.s3_key, avatars.c.s3_key]
    for missing_ok in (False, True):
        (objection,) = survey(on(stub, rows, referenced_by=both, missing_ok=missing_ok)).objections
        assert "avatars.s3_key holds 5 value(s) and none begins with 'u/'" in objection
    accepted = on(stub, rows, referenced_by=both, outside_ok=[avatars.c.s3_key])
    assert survey(accepted).objections == ()


def test_each_column_is_held_against_the_listing_by_itself(stub: StubS3, rows: Rows) -> None:
    fill(stub, *(f"u/{number}" for number in range(20)), "u/avatars/1.png", "u/avatars/2.png")
    rows.put(*(f"u/{number}" for number in range(20)))
    rows.put("u/1.png", "u/2.png", table=avatars)
    target = on(stub, rows, referenced_by=[uploads.c.s3_key, avatars.c.s3_key])
    (objection,) = survey(target).objections
    assert "only 0 of the 2 keys that avatars.s3_key holds" in objection


def test_more_than_a_few_missing_keys_beside_orphans_are_an_objection(
    stub: StubS3, sqlite_rows: Rows
) -> None:
    names = [f"u/{number:03}" for number in range(300)]
    fill(stub, *names)
    sqlite_rows.put(*names, *(f"u/gone{number}" for number in range(6)))
    # Nothing is without a row, so there is nothing that the missing keys could mean.
    assert survey(on(stub, sqlite_rows)).objections == ()
    fill(stub, "u/orphan")
    (objection,) = survey(on(stub, sqlite_rows)).objections
    assert "only 300 of the 306 keys that uploads.s3_key holds" in objection
    assert survey(on(stub, sqlite_rows, missing_ok=True)).objections == ()
    with sqlite_rows.engine.begin() as connection:
        connection.execute(uploads.delete().where(uploads.c.s3_key == "u/gone5"))
    assert survey(on(stub, sqlite_rows)).objections == ()


@pytest.mark.parametrize(
    ("stored", "listed"),
    [
        ("u/a%200.pdf", "u/a 0.pdf"),
        ("u/a+0.pdf", "u/a 0.pdf"),
        ("u/%E2%82%AC.pdf", "u/\u20ac.pdf"),
        ("u/e\u0301.pdf", "u/\u00e9.pdf"),
        ("u/\u00e9.pdf", "u/e\u0301.pdf"),
        ("u/a.pdf ", "u/a.pdf"),
        ("u/a b.pdf", "u/a%20b.pdf"),
    ],
)
def test_one_key_in_another_spelling_is_an_objection(
    stub: StubS3, sqlite_rows: Rows, stored: str, listed: str
) -> None:
    names = [f"u/{number:03}" for number in range(300)]
    fill(stub, *names, listed)
    sqlite_rows.put(*names, stored)
    target = on(stub, sqlite_rows, missing_ok=True)
    (objection,) = survey(target).objections
    assert "another way" in objection
    with pytest.raises(StoreError, match="another way"):
        scanned(target)


def test_a_whole_key_that_is_encoded_does_not_spell_its_object(stub: StubS3, sqlite_rows: Rows) -> None:
    fill(stub, "u/1", "u/2")
    sqlite_rows.put("u/1", "u%2F2")
    assert any("'u%2F2'" in objection for objection in survey(on(stub, sqlite_rows)).objections)


@pytest.mark.parametrize(
    ("value", "refused"),
    [
        ("s3://bkt/u/2", True),
        ("https://cdn.example/u/2", True),
        ("/u/2", True),
        ("bkt/u/2", True),
        ("s3://another-bucket/u/2", False),
    ],
)
def test_a_value_that_may_mean_an_object_is_an_objection(
    stub: StubS3, sqlite_rows: Rows, value: str, refused: bool
) -> None:
    fill(stub, "u/1", "u/2", "u/3")
    sqlite_rows.put("u/1", "u/3", value)
    plan = survey(on(stub, sqlite_rows))
    assert bool(plan.objections) is refused
    assert (value in "".join(plan.objections)) is refused
    assert any("another bucket" in note for note in plan.notes) is not refused


def test_a_table_emptied_after_the_plan_stops_the_seal(stub: StubS3, sqlite_rows: Rows) -> None:
    fill(stub, "u/1", "u/2")
    sqlite_rows.put("u/1")
    target = on(stub, sqlite_rows)
    assert survey(target).items == 1
    sqlite_rows.empty()
    with pytest.raises(StoreError, match="uploads has no row"):
        scanned(target)


def test_a_table_that_cannot_be_read_makes_the_counts_unknown(stub: StubS3, rows: Rows) -> None:
    fill(stub, "u/1")
    metadata.drop_all(rows.engine)
    plan = survey(on(stub, rows))
    for count in (plan.items, plan.eligible, plan.total, plan.objects):
        assert isinstance(count, Unknown)
        assert "uploads" in count.why
    with pytest.raises(StoreError):
        scanned(on(stub, rows))


def test_a_listing_out_of_byte_order_makes_the_counts_unknown(
    weed: SeaweedFS, bucket: str, sqlite_rows: Rows
) -> None:
    """SeaweedFS lists folder by folder: ``u/a/b`` before ``u/a.txt``, though ``.`` comes before ``/``."""
    weed.create_bucket(bucket)
    connection = reach(weed)
    for key in ("u/a.txt", "u/a/b", "u/c"):
        connection.deleter.put_object(Bucket=bucket, Key=key, Body=b"x")
    sqlite_rows.put("u/a.txt", "u/a/b")
    target = target_on(connection, sqlite_rows, bucket)
    items = survey(target).items
    assert isinstance(items, Unknown)
    assert "order of their bytes" in items.why
    with pytest.raises(StoreError, match="order of their bytes"):
        scanned(target, as_of=datetime.now(UTC) + 2 * WEEK)


def test_on_a_real_server_orphans_are_found_and_deleted_and_overwritten_ones_kept(
    weed: SeaweedFS, bucket: str, rows: Rows
) -> None:
    weed.create_bucket(bucket)
    connection = reach(weed)
    names = ["u/1", "u/2", "u/a b", "u/a+b", "u/e\u0301", "u/\u00e9", "u/\uffff", "u/\U0001f600"]
    # Control characters and the like have a test of their own; here they must only not be taken for another key.
    for key in names:
        connection.deleter.put_object(Bucket=bucket, Key=key, Body=key.encode())
    rows.put("u/1", "u/a b", "u/e\u0301", "u/\U0001f600")
    target = target_on(connection, rows, bucket)
    later = datetime.now(UTC) + 2 * WEEK
    refs = [ref for page in target.scan(later, batch=100, portion=None) for ref in page]
    assert {ref.key for ref in refs} == {"u/2", "u/a+b", "u/\u00e9", "u/\uffff"}
    connection.deleter.put_object(Bucket=bucket, Key="u/2", Body=b"written again")
    outcomes = target.store.delete(refs, gate=lambda: None)
    assert {ref.key: outcome.state.value for ref, outcome in outcomes.items()} == {
        "u/2": "changed",
        "u/a+b": "deleted",
        "u/\u00e9": "deleted",
        "u/\uffff": "deleted",
    }
    left = {item["Key"] for item in connection.reader.list_objects_v2(Bucket=bucket)["Contents"]}
    assert left == {"u/1", "u/2", "u/a b", "u/e\u0301", "u/\U0001f600"}


def test_a_versioned_bucket_wants_a_mode_and_a_purge_takes_every_version(
    server: SeaweedFS | Moto, bucket: str, sqlite_rows: Rows
) -> None:
    server.create_bucket(bucket)
    connection = reach(server)
    connection.deleter.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for key in ("u/1", "u/2", "u/2"):
        connection.deleter.put_object(Bucket=bucket, Key=key, Body=b"x")
    sqlite_rows.put("u/1")
    with pytest.raises(ConfigError, match="mode="):
        survey(target_on(connection, sqlite_rows, bucket))
    target = target_on(connection, sqlite_rows, bucket, mode="purge")
    later = datetime.now(UTC) + 2 * WEEK
    plan = target.survey(later, portion=None, since=None)
    assert (plan.items, plan.total) == (2, 3)
    refs = [ref for page in target.scan(later, batch=100, portion=None) for ref in page]
    assert [ref.key for ref in refs] == ["u/2", "u/2"]
    assert all(ref.version for ref in refs)


KEYS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(KEYS, min_size=1, max_size=9), st.sets(KEYS, max_size=9), st.data())
def test_orphans_are_the_listing_less_the_rows_for_any_keys(
    stub: StubS3, sqlite_rows: Rows, listed: set[str], also: set[str], data: st.DataObject
) -> None:
    shared = data.draw(st.sets(st.sampled_from(sorted(listed)), min_size=1))
    assume(not {spoken(f"u/{k}") for k in also - listed} & {spoken(f"u/{k}") for k in listed - also - shared})
    stub._buckets.clear()
    stub._sorted.clear()
    sqlite_rows.empty()
    fill(stub, *(f"u/{key}" for key in listed))
    names = shared | also
    sqlite_rows.put(*(f"u/{key}" for key in names))
    found = scanned(on(stub, sqlite_rows, missing_ok=True))
    # What no request could delete safely is planned by no target.
    wanted = {f"u/{key}" for key in listed - names if refusal(f"u/{key}") is None}
    assert sorted(found) == sorted(wanted)
