"""A key that stands for all of its versions goes whole, or stays."""

from __future__ import annotations

from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.ports import Presence
from safedelete.s3.store import S3ObjectStore
from safedelete.testing.servers import Moto, SeaweedFS, StubS3
from tests.s3.support import QUICK, FakeClock, Gate, reach


def purging(server: Any, bucket: str) -> S3ObjectStore:
    return S3ObjectStore(reach(server), clock=FakeClock(), effort=QUICK, modes={bucket: "purge"})


def versions(server: Any, bucket: str) -> list[tuple[str, str]]:
    found = server.client().list_object_versions(Bucket=bucket)
    return [(v["Key"], v["VersionId"]) for v in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]]


def test_every_version_and_marker_of_an_owned_key_goes(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket, versioned=True)
    client = server.client()
    for body in (b"1", b"2"):
        client.put_object(Bucket=bucket, Key="a", Body=body)
    client.delete_object(Bucket=bucket, Key="a")
    client.put_object(Bucket=bucket, Key="ab", Body=b"3")
    store = purging(server, bucket)
    here, never = ObjectRef(bucket, "a"), ObjectRef(bucket, "never")
    assert store.presence([here, never]) == {here: Presence.PRESENT, never: Presence.ABSENT}, (
        "what a marker hides is still there"
    )
    outcomes = store.delete([here, never], gate=Gate())
    assert {ref.key: outcome.state for ref, outcome in outcomes.items()} == {
        "a": Outcome.DELETED,
        "never": Outcome.GONE,
    }
    assert [key for key, _ in versions(server, bucket)] == ["ab"]
    assert not store.remaining([here, never])


def test_an_owned_key_overwritten_since_keeps_all_its_versions(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket, versioned=True)
    client = server.client()
    etag = client.put_object(Bucket=bucket, Key="a", Body=b"1")["ETag"]
    client.put_object(Bucket=bucket, Key="a", Body=b"2")
    store = purging(server, bucket)
    (outcome,) = store.delete([ObjectRef(bucket, "a", etag)], gate=Gate()).values()
    assert outcome.state is Outcome.CHANGED
    assert len(versions(server, bucket)) == 2
    assert not store.remaining([ObjectRef(bucket, "a", etag)])


def test_an_owned_key_overwritten_since_is_kept_from_those_who_do_not_know_its_etag_too(
    moto: Moto, bucket: str
) -> None:
    moto.create_bucket(bucket, versioned=True)
    client = moto.client()
    etag = client.put_object(Bucket=bucket, Key="a", Body=b"1")["ETag"]
    client.put_object(Bucket=bucket, Key="a", Body=b"2")
    refs = [ObjectRef(bucket, "a", None), ObjectRef(bucket, "a", etag)]
    outcomes = purging(moto, bucket).delete(refs, gate=Gate())
    assert {o.state for o in outcomes.values()} == {Outcome.CHANGED}
    assert len(versions(moto, bucket)) == 2


def test_an_owned_key_with_a_held_version_is_blocked_and_still_current(
    server: SeaweedFS | Moto, bucket: str
) -> None:
    server.create_bucket(bucket, object_lock=True)
    client = server.client()
    held = client.put_object(Bucket=bucket, Key="a", Body=b"1")["VersionId"]
    client.put_object_legal_hold(Bucket=bucket, Key="a", VersionId=held, LegalHold={"Status": "ON"})
    client.put_object(Bucket=bucket, Key="a", Body=b"2")
    (outcome,) = purging(server, bucket).delete([ObjectRef(bucket, "a")], gate=Gate()).values()
    assert outcome.state is Outcome.BLOCKED
    assert "2 of 2 version(s) stayed" in outcome.detail
    assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"2"
    client.put_object_legal_hold(Bucket=bucket, Key="a", VersionId=held, LegalHold={"Status": "OFF"})


def test_on_an_unversioned_bucket_a_purge_is_a_plain_delete(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket)
    server.client().put_object(Bucket=bucket, Key="a", Body=b"1")
    store = purging(server, bucket)
    (outcome,) = store.delete([ObjectRef(bucket, "a")], gate=Gate()).values()
    assert outcome.state is Outcome.DELETED
    assert not versions(server, bucket)


def test_what_a_key_shows_is_its_current_version_and_nothing_where_a_marker_is(
    server: SeaweedFS | Moto, bucket: str
) -> None:
    server.create_bucket(bucket, versioned=True)
    client = server.client()
    first = client.put_object(Bucket=bucket, Key="a", Body=b"1")["VersionId"]
    client.put_object(Bucket=bucket, Key="a", Body=b"2")
    client.delete_object(Bucket=bucket, Key="a", VersionId=first)
    store, ref = purging(server, bucket), ObjectRef(bucket, "a", version=first)
    assert store.presence([ref]) == {ref: Presence.ABSENT}
    assert store.shown([ref]) == {ref: Presence.PRESENT}
    client.delete_object(Bucket=bucket, Key="a")
    assert store.shown([ref]) == {ref: Presence.ABSENT}


def test_versions_that_cannot_be_listed_are_kept(server: SeaweedFS | Moto, bucket: str) -> None:
    from safedelete.testing.servers import RUNNER

    if isinstance(server, Moto):
        pytest.skip("moto lets everybody list")
    server.create_bucket(bucket, versioned=True)
    server.client().put_object(Bucket=bucket, Key="a", Body=b"1")
    server.deny(bucket, actions=["s3:ListBucketVersions", "s3:ListBucket"])
    store = S3ObjectStore(reach(server, RUNNER), clock=FakeClock(), effort=QUICK, modes={bucket: "purge"})
    ref = ObjectRef(bucket, "a")
    (outcome,) = store.delete([ref], gate=Gate()).values()
    assert (outcome.state, outcome.code) == (Outcome.FAILED, "unlisted")
    assert len(versions(server, bucket)) == 1
    assert store.presence([ref])[ref] is Presence.UNKNOWN


def test_the_versions_of_many_keys_are_listed_several_at_a_time_and_of_each_key_once(stub: StubS3) -> None:
    import threading

    stub.create_bucket("v", versioned=True)
    refs = []
    for number in range(24):
        stub.put("v", str(number))
        refs += [ObjectRef("v", str(number)), ObjectRef("v", str(number), size=1)]
    together = threading.Barrier(8, timeout=20)

    def meeting(_: Any, honest: Any) -> Any:
        together.wait()
        return honest()

    stub.always(meeting, "ListObjectVersions")
    outcomes = purging(stub, "v").delete(refs, gate=Gate())
    assert {o.state for o in outcomes.values()} == {Outcome.DELETED}
    assert stub.counts["ListObjectVersions"] == 24
    assert not list(stub.versions("v").all())
