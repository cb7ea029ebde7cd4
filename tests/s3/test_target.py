"""A prefix target plans exactly the old objects of whole path segments, and an unknown is never a zero."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safedelete.core.plan import TargetPlan, Unknown
from safedelete.declare import S3Prefix
from safedelete.errors import ConfigError, StoreError
from safedelete.ports import ObjectTarget
from safedelete.s3.client import connect
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.testing.servers import NOBODY, READER, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import LIES, answering, refusing
from tests.s3.support import FakeClock, reach

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
WEEK = timedelta(days=7)


def target_on(connection: Any, declared: S3Prefix, **options: Any) -> PrefixTarget:
    target = PrefixTarget(declared, connection, S3ObjectStore(connection, clock=FakeClock()), **options)
    as_port: ObjectTarget = target
    assert as_port is target
    return target


def on(stub: StubS3, prefix: str = "p", **options: Any) -> PrefixTarget:
    return target_on(reach(stub), S3Prefix("bkt", prefix, older_than=WEEK), **options)


def survey(target: PrefixTarget, as_of: datetime = NOW, **options: Any) -> TargetPlan:
    return target.survey(as_of, portion=options.get("portion"), since=options.get("since"))


def scanned(
    target: PrefixTarget, as_of: datetime = NOW, *, batch: int = 1000, portion: int | None = None
) -> list[str]:
    return [ref.key for refs in target.scan(as_of, batch=batch, portion=portion) for ref in refs]


def test_a_prefix_spares_its_longer_namesake(stub: StubS3) -> None:
    for key in ("site/a/1", "site/a/2", "site/ab/1", "site/a", "site/a.txt"):
        stub.put("bkt", key, modified=NOW - 2 * WEEK)
    assert scanned(on(stub, "site/a")) == ["site/a/1", "site/a/2"]
    plan = survey(on(stub, "site/a"))
    assert (plan.items, plan.total, plan.name) == (2, 2, "s3://bkt/site/a/")


def test_an_object_exactly_as_old_as_the_age_stays(stub: StubS3) -> None:
    stub.put("bkt", "p/exact", modified=NOW - WEEK)
    stub.put("bkt", "p/older", modified=NOW - WEEK - timedelta(seconds=1))
    stub.put("bkt", "p/newer", modified=NOW - WEEK + timedelta(seconds=1))
    assert scanned(on(stub)) == ["p/older"]
    plan = survey(on(stub))
    assert (plan.items, plan.eligible, plan.total) == (1, 1, 3)
    assert plan.cutoff == NOW - WEEK


def test_the_survey_counts_bytes_ages_and_what_is_known(stub: StubS3) -> None:
    for days, name in ((100, "a"), (8, "b"), (7.5, "c"), (6.5, "d"), (1, "e"), (-60, "f")):
        stub.put("bkt", f"p/{name}", b"12345", modified=NOW - timedelta(days=days))
    plan = survey(on(stub))
    assert (plan.items, plan.objects, plan.bytes, plan.conditional) == (3, 3, 15, 3)
    assert plan.total == plan.ageless == 6
    assert plan.ages is not None
    assert not isinstance(plan.ages, Unknown)
    assert plan.ages.older == 1
    assert dict(plan.ages.days) == {-1: 2, 0: 1, 6: 1}
    assert (plan.first, plan.last, plan.sample) == ("p/a", "p/c", ("p/a", "p/b", "p/c"))
    assert plan.late is None
    assert plan.kind == "objects"


def test_what_an_earlier_run_should_have_taken_is_late(stub: StubS3) -> None:
    for days in (7.5, 8.5, 30):
        stub.put("bkt", f"p/{days}", modified=NOW - timedelta(days=days))
    assert survey(on(stub), since=NOW - timedelta(days=1)).late == 2


def test_nothing_old_is_zero_not_unknown(stub: StubS3) -> None:
    stub.create_bucket("bkt")
    plan = survey(on(stub))
    assert (plan.items, plan.total, plan.bytes, plan.first) == (0, 0, 0, "")
    assert scanned(on(stub)) == []


def test_a_portion_is_the_oldest(stub: StubS3) -> None:
    ages = [9, 30, 8, 30, 20, 10]
    for number, days in enumerate(ages):
        stub.put("bkt", f"p/{number}", b"x" * days, modified=NOW - timedelta(days=days))
    assert scanned(on(stub), portion=3) == ["p/1", "p/3", "p/4"]
    plan = survey(on(stub), portion=3)
    assert (plan.items, plan.eligible, plan.bytes, plan.conditional) == (3, 6, 80, 3)
    assert scanned(on(stub), portion=1) == ["p/1"]
    assert len(scanned(on(stub), portion=99)) == 6


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 14 * 24), max_size=40), st.integers(1, 45), st.integers(1, 7))
def test_survey_and_scan_agree(stub: StubS3, hours: list[int], portion: int, page: int) -> None:
    stub._buckets.clear()
    stub._sorted.clear()
    stub.create_bucket("bkt")
    for number, age in enumerate(hours):
        stub.put("bkt", f"p/{number:02}", b"x" * age, modified=NOW - timedelta(hours=age))
    target = PrefixTarget(
        S3Prefix("bkt", "p", older_than=WEEK),
        reach(stub),
        S3ObjectStore(reach(stub), clock=FakeClock()),
        page_size=page,
    )
    plan = target.survey(NOW, portion=portion, since=None)
    refs = [ref for batch in target.scan(NOW, batch=3, portion=portion) for ref in batch]
    old = sorted((age for age in hours if age > 7 * 24), reverse=True)
    assert plan.eligible == len(old)
    assert plan.items == len(refs) == min(portion, len(old))
    assert plan.bytes == sum(ref.size or 0 for ref in refs) == sum(old[:portion])
    assert all(len(batch) <= 3 for batch in target.scan(NOW, batch=3, portion=None))


@pytest.mark.parametrize(
    "fault",
    [
        refusing(403, "AccessDenied"),
        refusing(404, "NoSuchBucket"),
        answering(200, b"<html></html>"),
        LIES["200 empty body"],
    ],
)
def test_a_listing_that_fails_makes_every_count_unknown(stub: StubS3, fault: Any) -> None:
    stub.put("bkt", "p/a", modified=NOW - 2 * WEEK)
    stub.always(fault, "ListObjectsV2")
    plan = survey(on(stub))
    for count in (
        plan.items,
        plan.eligible,
        plan.total,
        plan.objects,
        plan.bytes,
        plan.ages,
        plan.conditional,
    ):
        assert isinstance(count, Unknown)
    with pytest.raises(StoreError):
        scanned(on(stub))


def test_a_listing_that_fails_on_its_second_page_makes_every_count_unknown(stub: StubS3) -> None:
    for number in range(3):
        stub.put("bkt", f"p/{number}", modified=NOW - 2 * WEEK)
    stub.script(None, refusing(403, "AccessDenied"), operation="ListObjectsV2")
    plan = survey(on(stub, page_size=2))
    assert isinstance(plan.items, Unknown)
    assert "AccessDenied" in plan.items.why


def test_a_versioning_state_that_cannot_be_read_is_unknown(stub: StubS3) -> None:
    stub.put("bkt", "p/a", modified=NOW - 2 * WEEK)
    stub.always(refusing(403, "AccessDenied"), "GetBucketVersioning")
    plan = survey(on(stub))
    assert isinstance(plan.items, Unknown)
    assert "GetBucketVersioning" in plan.items.why
    with pytest.raises(StoreError):
        scanned(on(stub))


def test_planning_sends_no_request_that_writes(stub: StubS3) -> None:
    stub.put("bkt", "p/a", modified=NOW - 2 * WEEK)
    survey(on(stub), portion=1)
    scanned(on(stub), portion=1)
    assert {r.method for r in stub.requests} == {"GET"}


def test_keys_that_cannot_be_deleted_are_counted_and_left_out(stub: StubS3) -> None:
    for key in ("p/good", "p/a\x01/../b"):
        stub.put("bkt", key, modified=NOW - 2 * WEEK)
    plan = survey(on(stub))
    assert (plan.items, plan.total) == (1, 2)
    assert any("1 eligible key(s) cannot be deleted safely" in note for note in plan.notes)
    assert scanned(on(stub)) == ["p/good"]


def test_the_sample_is_small_and_spread(stub: StubS3) -> None:
    for number in range(500):
        stub.put("bkt", f"p/{number:03}", modified=NOW - 2 * WEEK)
    plan = survey(on(stub))
    assert 5 <= len(plan.sample) <= 20
    assert plan.sample[-1] > "p/400"
    assert (plan.first, plan.last) == ("p/000", "p/499")


def test_a_whole_prefix_is_planned_and_deleted_on_a_store(server: SeaweedFS | Moto, bucket: str) -> None:
    from tests.s3.support import Gate

    server.create_bucket(bucket)
    for key in ("tmp/a", "tmp/b/c", "tmp2/x"):
        server.client().put_object(Bucket=bucket, Key=key, Body=b"x")
    target = target_on(reach(server), S3Prefix(bucket, "tmp", older_than=timedelta(minutes=1)), page_size=1)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert survey(target, later).items == 2
    for batch in target.scan(later, batch=1, portion=None):
        target.store.delete(batch, gate=Gate())
    assert survey(target, later).total == 0
    assert [o["Key"] for o in server.client().list_objects_v2(Bucket=bucket)["Contents"]] == ["tmp2/x"]


def test_a_reader_can_plan(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    weed.client().put_object(Bucket=bucket, Key="tmp/a", Body=b"x")
    declared = S3Prefix(bucket, "tmp", older_than=timedelta(minutes=1))
    later = datetime.now(UTC) + timedelta(hours=1)
    assert survey(target_on(reach(weed, READER), declared), later).items == 1
    assert isinstance(survey(target_on(reach(weed, NOBODY), declared), later).items, Unknown)


def test_missing_bucket_wrong_secret_and_no_store_are_unknown_with_a_reason(weed: SeaweedFS) -> None:
    missing = survey(target_on(reach(weed), S3Prefix("no-such-bucket-here", "p", older_than=WEEK)))
    assert isinstance(missing.items, Unknown)
    assert "NoSuchBucket" in missing.items.why
    wrong = connect(endpoint_url=weed.endpoint, access_key="sdadmin", secret_key="wrong")
    plan = survey(target_on(wrong, S3Prefix("no-such-bucket-here", "p", older_than=WEEK)))
    assert isinstance(plan.items, Unknown)
    assert "SignatureDoesNotMatch" in plan.items.why
    away = connect(endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s", connect_timeout=0.3)
    plan = survey(target_on(away, S3Prefix("bkt", "p", older_than=WEEK)))
    assert isinstance(plan.items, Unknown)
    assert "did not reach" in plan.items.why


def test_no_credentials_at_all_is_unknown(stub: StubS3) -> None:
    stub.create_bucket("bkt")
    plan = survey(target_on(connect(endpoint_url=stub.endpoint), S3Prefix("bkt", "p", older_than=WEEK)))
    assert isinstance(plan.items, Unknown)
    assert "NoCredentialsError" in plan.items.why


# --- versioned buckets ---


def test_a_versioned_bucket_needs_a_mode(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket, versioned=True)
    target = target_on(reach(server), S3Prefix(bucket, "p", older_than=WEEK))
    with pytest.raises(ConfigError, match="versioning enabled") as caught:
        survey(target)
    assert 'mode="marker"' in caught.value.hint
    with pytest.raises(ConfigError):
        scanned(target)


def test_marker_mode_hides_and_keeps_the_data(server: SeaweedFS | Moto, bucket: str) -> None:
    from tests.s3.support import Gate

    server.create_bucket(bucket, versioned=True)
    server.client().put_object(Bucket=bucket, Key="p/a", Body=b"x")
    connection = reach(server)
    declared = S3Prefix(bucket, "p", older_than=timedelta(minutes=1), mode="marker")
    store = S3ObjectStore(connection, clock=FakeClock(), modes={bucket: "marker"})
    target = PrefixTarget(declared, connection, store)
    later = datetime.now(UTC) + timedelta(hours=1)
    (batch,) = target.scan(later, batch=10, portion=None)
    (outcome,) = store.delete(batch, gate=Gate()).values()
    assert (outcome.state.value, outcome.code) == ("deleted", "marker")
    assert survey(target, later).items == 0
    assert not store.remaining(batch)
    versions = server.client().list_object_versions(Bucket=bucket)
    assert len(versions["Versions"]) == 1
    assert any("data stays" in note for note in survey(target, later).notes)


def test_purge_mode_removes_every_version_and_marker_and_nothing_newer(
    server: SeaweedFS | Moto, bucket: str
) -> None:
    from tests.s3.support import Gate

    server.create_bucket(bucket, versioned=True)
    client = server.client()
    for body in (b"1", b"2"):
        client.put_object(Bucket=bucket, Key="p/a", Body=body)
    client.put_object(Bucket=bucket, Key="p/hidden", Body=b"1")
    client.delete_object(Bucket=bucket, Key="p/hidden")
    client.put_object(Bucket=bucket, Key="q/other", Body=b"1")
    connection = reach(server)
    store = S3ObjectStore(connection, clock=FakeClock(), modes={bucket: "purge"})
    target = PrefixTarget(
        S3Prefix(bucket, "p", older_than=timedelta(minutes=1), mode="purge"), connection, store
    )
    later = datetime.now(UTC) + timedelta(hours=1)
    plan = survey(target, later)
    assert (plan.items, plan.total, plan.conditional) == (4, 4, 4)
    batches = list(target.scan(later, batch=1, portion=None))
    assert [len(batch) for batch in batches] == [2, 2], "the versions of a key stay together"
    newer = client.put_object(Bucket=bucket, Key="p/a", Body=b"after the plan")["VersionId"]
    for batch in batches:
        assert {o.state.value for o in store.delete(batch, gate=Gate()).values()} == {"deleted"}
        assert not store.remaining(batch)
    left = client.list_object_versions(Bucket=bucket)
    assert [(v["Key"], v["VersionId"]) for v in left["Versions"] if v["Key"] != "q/other"] == [("p/a", newer)]
    assert "DeleteMarkers" not in left
