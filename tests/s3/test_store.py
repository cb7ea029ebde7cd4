"""The store deletes what is still what was sealed, and what it calls absent is absent."""

from __future__ import annotations

from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome, Tally
from safedelete.ports import ObjectStore, Presence
from safedelete.s3.client import Connection
from safedelete.s3.store import LOCKED, S3ObjectStore
from safedelete.testing.servers import RUNNER, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import LIES, Answer, answering, delete_result, refusing
from tests.s3.support import QUICK, FakeClock, Gate, reach


def store_on(connection: Connection, **options: Any) -> S3ObjectStore:
    store = S3ObjectStore(connection, clock=FakeClock(), effort=QUICK, **options)
    as_port: ObjectStore = store
    assert as_port is store
    return store


def fill(server: SeaweedFS | Moto | StubS3, bucket: str, *keys: str, body: bytes = b"x") -> list[ObjectRef]:
    if isinstance(server, StubS3):
        return [
            ObjectRef(bucket, key, f'"{server.put(bucket, key, body).etag}"', None, len(body)) for key in keys
        ]
    client = server.client()
    return [
        ObjectRef(bucket, key, client.put_object(Bucket=bucket, Key=key, Body=body)["ETag"], None, len(body))
        for key in keys
    ]


# --- delete ---


@pytest.mark.parametrize("conditional", [False, True])
def test_an_object_overwritten_between_scan_and_delete_is_kept(
    weed: SeaweedFS, bucket: str, *, conditional: bool
) -> None:
    weed.create_bucket(bucket)
    refs = fill(weed, bucket, "d/a", "d/b")
    fill(weed, bucket, "d/b", body=b"newer")
    store = store_on(reach(weed), conditional=[bucket] if conditional else [])
    outcomes = store.delete(refs, gate=Gate())
    assert [o.state for o in outcomes.values()] == [Outcome.DELETED, Outcome.CHANGED]
    assert weed.client().get_object(Bucket=bucket, Key="d/b")["Body"].read() == b"newer"
    assert not store.remaining(refs), "an object written since is not a residue"


def test_a_store_that_ignores_conditions_keeps_an_overwritten_object_too(moto: Moto, bucket: str) -> None:
    moto.create_bucket(bucket)
    refs = fill(moto, bucket, *[f"d/{n}" for n in range(20)])
    fill(moto, bucket, "d/7", "d/0", body=b"newer")
    outcomes = store_on(reach(moto)).delete(refs, gate=Gate())
    assert {r.key for r, o in outcomes.items() if o.state is Outcome.CHANGED} == {"d/7", "d/0"}
    assert Tally.of(outcomes.values()).deleted == 18
    assert {o["Key"] for o in moto.client().list_objects_v2(Bucket=bucket)["Contents"]} == {"d/7", "d/0"}


def test_an_object_that_cannot_be_looked_at_again_is_kept(stub: StubS3) -> None:
    refs = fill(stub, "b", "a")
    stub.always(refusing(403, "AccessDenied"), "HeadObject")
    (outcome,) = store_on(reach(stub)).delete(refs, gate=Gate()).values()
    assert (outcome.state, outcome.code) == (Outcome.FAILED, "unverified")
    assert stub.keys("b") == {"a"}
    assert not stub.counts["DeleteObjects"]


def test_looking_again_at_a_thousand_objects_takes_a_few_requests(stub: StubS3) -> None:
    refs = fill(stub, "b", *[f"p/{n % 40:02}/{n:04}" for n in range(1000)], "p/zz")
    refs.sort(key=lambda ref: ref.key)
    outcomes = store_on(reach(stub)).delete(refs, gate=Gate())
    assert Tally.of(outcomes.values()).deleted == 1001
    assert stub.counts["HeadObject"] <= 2
    assert stub.counts["ListObjectsV2"] <= 2


def test_at_a_slow_rate_each_object_is_looked_at_within_seconds_of_its_delete(stub: StubS3) -> None:
    from safedelete.testing.servers.faults import Answer, delete_result

    refs = fill(stub, "b", *[f"{n:02}" for n in range(40)])
    clock = FakeClock()
    store = S3ObjectStore(reach(stub), clock=clock, effort=QUICK, max_delete_rate=4)

    def gate() -> None:
        # Written over while the first ones are deleted, in a store that ignores conditions.
        if clock.time >= 2 and stub.keys("b") & {"39"}:
            stub.put("b", "39", b"written since")

    def ignoring(request: Any, _: Any) -> Any:
        for key in request.keys:
            stub._buckets["b"].pop(key, None)
        return Answer(200, delete_result(deleted=request.keys))

    stub.always(ignoring)
    outcomes = store.delete(refs, gate=gate)
    assert {r.key for r, o in outcomes.items() if o.state is Outcome.CHANGED} == {"39"}
    assert stub.keys("b") == {"39"}


def test_several_buckets_are_told_apart(stub: StubS3) -> None:
    refs = fill(stub, "one", "a") + fill(stub, "two", "b")
    fill(stub, "one", "b")
    outcomes = store_on(reach(stub)).delete(refs, gate=Gate())
    assert list(outcomes) == refs
    assert stub.keys("one") == {"b"}
    assert not stub.keys("two")


def test_what_is_gone_already_is_gone(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket)
    outcomes = store_on(reach(server)).delete([ObjectRef(bucket, "never", '"e"')], gate=Gate())
    assert [o.state for o in outcomes.values()] == [Outcome.GONE]


def test_throttling_halves_the_rate(stub: StubS3) -> None:
    refs = [ref._replace(etag=None) for ref in fill(stub, "b", "a", "b")]
    clock = FakeClock()
    stub.script(LIES["503 SlowDown"])
    store = S3ObjectStore(reach(stub), clock=clock, effort=QUICK, max_delete_rate=100.0)
    store.delete(refs, gate=Gate())
    assert 50 <= store._pace.rate < 60


def test_the_rate_is_held(stub: StubS3) -> None:
    refs = [ref._replace(etag=None) for ref in fill(stub, "b", *map(str, range(100)))]
    clock = FakeClock()
    S3ObjectStore(reach(stub), clock=clock, max_delete_rate=10.0, effort=QUICK).delete(refs, gate=Gate())
    store = S3ObjectStore(reach(stub), clock=clock, max_delete_rate=10.0, effort=QUICK)
    for ref in refs:
        store.delete([ref], gate=Gate())
    assert sum(clock.slept) == pytest.approx(18.0, abs=1.0), "a hundred at once take as long as one by one"


# --- presence ---


def test_presence_is_present_absent_or_unknown(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    (there,) = fill(weed, bucket, "a")
    gone = ObjectRef(bucket, "b")
    assert store_on(reach(weed, RUNNER)).presence([there, gone]) == {
        there: Presence.PRESENT,
        gone: Presence.ABSENT,
    }
    weed.deny(bucket, actions=("s3:GetObject",))
    assert store_on(reach(weed, RUNNER)).presence([there])[there] is Presence.UNKNOWN


def test_no_key_of_a_missing_bucket_is_called_absent(server: SeaweedFS | Moto) -> None:
    refs = [ObjectRef("no-such-bucket-here", str(n)) for n in range(40)]
    store = store_on(reach(server))
    assert set(store.presence(refs).values()) == {Presence.UNKNOWN}
    assert set(store.remaining(refs).values()) == {Presence.UNKNOWN}
    assert len(store.remaining(refs)) == 40


@pytest.mark.parametrize("header", [{"x-amz-missing-meta": "abc"}, {"x-amz-mp-parts-count": "many"}])
def test_an_answer_that_the_sdk_stumbles_over_is_unknown(stub: StubS3, header: dict[str, str]) -> None:
    from safedelete.testing.servers.faults import Answer

    (ref,) = fill(stub, "b", "a")
    stub.always(lambda *_: Answer(200, b"", header), "HeadObject")
    assert store_on(reach(stub)).presence([ref]) == {ref: Presence.UNKNOWN}


def test_an_unreachable_store_knows_nothing() -> None:
    from safedelete.s3.client import connect

    connection = connect(
        endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s", connect_timeout=0.3
    )
    ref = ObjectRef("b", "a")
    assert store_on(connection).remaining([ref]) == {ref: Presence.UNKNOWN}


# --- remaining ---


@pytest.mark.parametrize("keep", [[], [0], [999], [3, 500, 501]])
def test_what_is_left_is_found_by_listing(stub: StubS3, keep: list[int]) -> None:
    refs = fill(stub, "b", *[f"p/{n:04}" for n in range(1000)])
    fill(stub, "b", *[f"p/{n:04}-other" for n in range(0, 1000, 7)], "q/1")
    store = store_on(reach(stub))
    kept = [refs[n] for n in keep]
    store.delete([ref for ref in refs if ref not in kept], gate=Gate())
    stub.counts.clear()
    assert store.remaining(refs) == dict.fromkeys(kept, Presence.PRESENT)
    assert stub.counts["HeadObject"] <= 2
    assert stub.counts["ListObjectsV2"] <= 2


def test_few_keys_among_a_crowd_are_asked_for_one_by_one(stub: StubS3) -> None:
    fill(stub, "b", *[f"p/{n:05}" for n in range(6000)])
    refs = [ObjectRef("b", f"p/{n:05}x") for n in range(0, 6000, 100)]
    stub.counts.clear()
    assert store_on(reach(stub)).remaining(refs) == {}
    assert stub.counts["ListObjectsV2"] <= 6
    assert stub.counts["HeadObject"] >= 45


def test_the_order_of_a_listing_is_not_relied_on(weed: SeaweedFS, bucket: str) -> None:
    """This store lists a/b before a-b, though the bytes say otherwise."""
    weed.create_bucket(bucket)
    names = [f"d/{n:02}{tail}" for n in range(15) for tail in ("-x", "/y", ".z")]
    refs = fill(weed, bucket, *names)
    missing = [
        ObjectRef(bucket, f"d/{n:02}{tail}") for n in range(15) for tail in ("-gone", "/gone", ".gone")
    ]
    left = store_on(reach(weed)).remaining(sorted(refs + missing, key=lambda ref: ref.key.encode()))
    assert set(left) == set(refs)


class OutOfOrder:
    """A store that lists its last key on the first page, and answers a HEAD for every key."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def list_objects_v2(self, **options: Any) -> Any:
        if "Delimiter" not in options:
            # A crowd elsewhere keeps the whole subtree from being listed.
            return {"IsTruncated": True, "NextContinuationToken": str(id(object())), "Contents": []}
        first = "ContinuationToken" not in options
        shown = [self.names[-1], *self.names[1:30]] if first else self.names[30:-1]
        contents = [
            {"Key": k, "Size": 1, "ETag": '"e"', "LastModified": "2026-01-01T00:00:00Z"} for k in shown
        ]
        return {"IsTruncated": first, "NextContinuationToken": "2", "Contents": contents}

    def head_object(self, **_: Any) -> Any:
        return {"ETag": '"e"'}


def test_a_listing_in_another_order_is_not_believed() -> None:
    from safedelete.s3.lookup import Lookup

    names = [f"p/{n:03}" for n in range(60)]
    client: Any = OutOfOrder(names)
    sights = Lookup(client).find("b", names, likely=Presence.ABSENT)
    assert {sight.presence for sight in sights.values()} == {Presence.PRESENT}


def test_without_permission_to_list_each_key_is_asked_for(stub: StubS3) -> None:
    refs = fill(stub, "b", *[f"p/{n:04}" for n in range(30)])
    stub.always(refusing(403, "AccessDenied"), "ListObjectsV2")
    assert len(store_on(reach(stub)).remaining(refs)) == 30
    assert stub.counts["HeadObject"] == 30


def test_the_listing_wins_over_a_store_that_only_says_deleted(stub: StubS3) -> None:
    from safedelete.testing.servers.faults import Answer, delete_result

    refs = fill(stub, "b", "a", "b")
    stub.always(lambda request, _: Answer(200, delete_result(deleted=request.keys)))
    store = store_on(reach(stub))
    outcomes = store.delete(refs, gate=Gate())
    assert Tally.of(outcomes.values()).deleted == 2
    assert store.remaining(refs) == dict.fromkeys(refs, Presence.PRESENT)


def test_versions_that_are_left_are_found_by_listing_them(stub: StubS3) -> None:
    stub.create_bucket("v", versioned=True)
    for number in range(2000):
        stub.put("v", f"p/{number:04}")
    made = {key: version.name for key, version in stub.versions("v").all()}
    refs = [ObjectRef("v", key, None, made[key]) for key in sorted(made)]
    store = store_on(reach(stub), modes={"v": "purge"})
    for ref in refs:
        if ref.key not in ("p/0007", "p/1999"):
            stub.versions("v").remove(ref.key, str(ref.version))
    assert {r.key: p for r, p in store.remaining(refs).items()} == {
        "p/0007": Presence.PRESENT,
        "p/1999": Presence.PRESENT,
    }
    assert dict(stub.counts) == {"ListObjectVersions": 1}


def test_versions_in_a_crowd_are_asked_for_one_by_one(stub: StubS3) -> None:
    stub.create_bucket("v", versioned=True)
    refs = []
    for number in range(20):
        stub.put("v", f"p/{number:04}-old")
        refs.append(
            ObjectRef("v", f"p/{number:04}-old", None, stub.versions("v").of(f"p/{number:04}-old")[0].name)
        )
    for number in range(4000):
        stub.put("v", f"p/0001-{number:04}")
    for ref in refs[5:]:
        stub.versions("v").remove(ref.key, str(ref.version))
    store = store_on(reach(stub), modes={"v": "purge"})
    assert list(store.remaining(refs)) == refs[:5]
    assert stub.counts["HeadObject"] >= 10


def test_versions_are_asked_for_one_by_one_where_they_may_not_be_listed(stub: StubS3) -> None:
    stub.create_bucket("v", versioned=True)
    refs = []
    for number in range(20):
        stub.put("v", f"p/{number:04}")
        refs.append(ObjectRef("v", f"p/{number:04}", None, stub.versions("v").of(f"p/{number:04}")[0].name))
    stub.always(refusing(403, "AccessDenied"), "ListObjectVersions")
    assert list(store_on(reach(stub), modes={"v": "purge"}).remaining(refs)) == refs


# --- suspended versioning ---


def test_a_null_version_written_over_while_versioning_is_suspended_is_kept(
    weed: SeaweedFS, bucket: str
) -> None:
    weed.create_bucket(bucket)
    client = weed.client()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    first = client.put_object(Bucket=bucket, Key="a", Body=b"1")
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    refs = [ObjectRef(bucket, "a", first["ETag"], first["VersionId"])]
    refs += [
        ObjectRef(bucket, key, client.put_object(Bucket=bucket, Key=key, Body=b"2")["ETag"], "null")
        for key in ("a", "b")
    ]
    client.put_object(Bucket=bucket, Key="a", Body=b"written since")
    store = store_on(reach(weed), modes={bucket: "purge"}, conditional=[bucket])
    outcomes = store.delete(refs, gate=Gate())
    assert [(o.state, o.code) for o in outcomes.values()] == [
        (Outcome.DELETED, ""),
        (Outcome.CHANGED, "overwritten"),
        (Outcome.DELETED, ""),
    ]
    assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"written since"
    assert not store.remaining(refs), "what was written since is not a residue"


class Suspended:
    """A suspended bucket whose versions cannot be looked at."""

    def __init__(self, status: str = "Suspended") -> None:
        self.status = status
        self.deleted: list[Any] = []

    def get_bucket_versioning(self, **_: Any) -> Any:
        return {"Status": self.status}

    def get_object_lock_configuration(self, **_: Any) -> Any:
        return {}

    def get_bucket_replication(self, **_: Any) -> Any:
        return {}

    def head_object(self, **_: Any) -> Any:
        raise OSError("no answer")

    def delete_objects(self, *, Delete: Any, **_: Any) -> Any:  # boto3's name
        self.deleted += Delete["Objects"]
        return {"Deleted": Delete["Objects"]}


def test_a_key_whose_null_version_cannot_be_looked_at_stays_whole() -> None:
    client: Any = Suspended()
    refs = [
        ObjectRef("b", "a", '"1"', "null"),
        ObjectRef("b", "a", '"2"', "v2"),
        ObjectRef("b", "c", '"3"', "v3"),
    ]
    store = store_on(Connection(client, client, "http://127.0.0.1", ""), modes={"b": "purge"})
    outcomes = store.delete(refs, gate=Gate())
    assert [(o.state, o.code) for o in outcomes.values()] == [
        (Outcome.FAILED, "unverified"),
        (Outcome.FAILED, "unverified"),
        (Outcome.DELETED, ""),
    ]
    assert [entry["Key"] for entry in client.deleted] == ["c"]


def test_a_null_version_from_before_versioning_costs_no_look() -> None:
    client: Any = Suspended("Enabled")
    store = store_on(Connection(client, client, "http://127.0.0.1", ""), modes={"b": "purge"})
    (outcome,) = store.delete([ObjectRef("b", "a", '"1"', "null")], gate=Gate()).values()
    assert outcome.state is Outcome.DELETED


# --- locks ---


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidRequest"])
@pytest.mark.parametrize("held", [True, False])
def test_a_refused_version_is_blocked_where_a_lock_is_seen_and_failed_where_none_is(
    code: str, *, held: bool
) -> None:
    """MinIO refuses a locked version as an invalid request."""

    class Refusing(Suspended):
        def head_object(self, **_: Any) -> Any:
            return {"ObjectLockLegalHoldStatus": "ON"} if held else {}

        def delete_objects(self, *, Delete: Any, **_: Any) -> Any:  # boto3's name
            return {"Errors": [{**entry, "Code": code} for entry in Delete["Objects"]]}

    client: Any = Refusing("Enabled")
    store = store_on(Connection(client, client, "http://127.0.0.1", ""), modes={"b": "purge"})
    (outcome,) = store.delete([ObjectRef("b", "a", '"1"', "v1")], gate=Gate()).values()
    assert (outcome.state, outcome.code) == ((Outcome.BLOCKED, LOCKED) if held else (Outcome.FAILED, code))


@pytest.mark.parametrize("hold", ["COMPLIANCE", "GOVERNANCE", "legal hold"])
def test_a_locked_version_is_blocked_and_its_newer_one_stays_with_it(
    server: SeaweedFS | Moto, bucket: str, hold: str
) -> None:
    from datetime import UTC, datetime, timedelta

    server.create_bucket(bucket, object_lock=True)
    client = server.client()
    locked = client.put_object(Bucket=bucket, Key="a", Body=b"1")["VersionId"]
    if hold == "legal hold":
        client.put_object_legal_hold(Bucket=bucket, Key="a", VersionId=locked, LegalHold={"Status": "ON"})
    else:
        until = datetime.now(UTC) + timedelta(days=1)
        mode: Any = hold
        client.put_object_retention(
            Bucket=bucket, Key="a", VersionId=locked, Retention={"Mode": mode, "RetainUntilDate": until}
        )
    free = client.put_object(Bucket=bucket, Key="a", Body=b"2")["VersionId"]
    other = client.put_object(Bucket=bucket, Key="b", Body=b"3")["VersionId"]
    refs = [
        ObjectRef(bucket, "a", version=locked),
        ObjectRef(bucket, "a", version=free),
        ObjectRef(bucket, "b", version=other),
    ]
    outcomes = store_on(reach(server), modes={bucket: "purge"}).delete(refs, gate=Gate())
    assert [(o.state, o.code) for o in outcomes.values()] == [
        (Outcome.BLOCKED, LOCKED),
        (Outcome.BLOCKED, "older-version-kept"),
        (Outcome.DELETED, ""),
    ]
    assert client.get_object(Bucket=bucket, Key="a")["Body"].read() == b"2"
    if hold == "legal hold":
        client.put_object_legal_hold(Bucket=bucket, Key="a", VersionId=locked, LegalHold={"Status": "OFF"})


def test_an_etag_without_its_quotes_is_the_same_etag(stub: StubS3) -> None:
    (ref,) = fill(stub, "b", "a")
    assert ref.etag is not None
    bare = ref._replace(etag=ref.etag.strip('"'))
    assert list(store_on(reach(stub)).remaining([bare])) == [bare]
    assert [o.state for o in store_on(reach(stub)).delete([bare], gate=Gate()).values()] == [Outcome.DELETED]


def test_a_key_with_dot_segments_is_never_asked_for_by_its_path(stub: StubS3) -> None:
    refs = fill(stub, "b", "a/../b", "./c", "..")
    store = store_on(reach(stub))
    gone = ObjectRef("b", "a/../z")
    assert store.presence([*refs, gone]) == dict.fromkeys(refs, Presence.PRESENT) | {gone: Presence.ABSENT}
    assert not stub.counts["HeadObject"]
    store.delete(refs, gate=Gate())
    assert not store.remaining(refs)
    assert not stub.counts["HeadObject"]


def test_an_overwritten_object_is_kept_from_those_who_do_not_know_its_etag_too(stub: StubS3) -> None:
    stub.put("b", "k", b"newer")
    refs = [ObjectRef("b", "k", None), ObjectRef("b", "k", '"old"')]
    store = S3ObjectStore(reach(stub), clock=FakeClock())
    assert {o.code for o in store.delete(refs, gate=Gate()).values()} == {"overwritten"}
    assert stub.keys("b") == {"k"}


def test_one_object_under_two_etags_is_kept_whichever_holds(stub: StubS3) -> None:
    stored = stub.put("b", "k", b"x")
    refs = [ObjectRef("b", "k", f'"{stored.etag}"'), ObjectRef("b", "k", '"old"'), ObjectRef("b", "k", None)]
    store = S3ObjectStore(reach(stub), clock=FakeClock())
    assert {o.code for o in store.delete(refs, gate=Gate()).values()} == {"two-etags"}
    assert stub.keys("b") == {"k"}


# --- what is seen is not more than what was said ---


def test_what_is_seen_without_an_etag_is_a_residue_and_not_another_object(stub: StubS3) -> None:
    refs = fill(stub, "b", "a", "b")
    stub.always(lambda request, _: Answer(200, delete_result(deleted=request.keys)))
    stub.always(answering(200), operation="HeadObject")
    store = store_on(reach(stub), conditional=["b"])
    assert Tally.of(store.delete(refs, gate=Gate()).values()).deleted == 2
    assert stub.keys("b") == {"a", "b"}
    assert set(store.remaining(refs)) == set(refs), "both are there, and nothing says that they are others"


def test_an_object_whose_etag_is_not_told_is_not_called_overwritten(stub: StubS3) -> None:
    refs = fill(stub, "b", "a")
    stub.always(answering(200), operation="HeadObject")
    (outcome,) = store_on(reach(stub)).delete(refs, gate=Gate()).values()
    assert stub.keys("b") == {"a"}
    assert (outcome.state, outcome.code) == (Outcome.FAILED, "unverified")


def test_a_key_with_dot_segments_is_looked_for_past_an_empty_page(stub: StubS3) -> None:
    refs = fill(stub, "b", "a/../b")
    more = b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken></ListBucketResult>"
    stub.script(answering(200, more), operation="ListObjectsV2")
    assert store_on(reach(stub)).presence(refs) == dict.fromkeys(refs, Presence.PRESENT)


def test_what_a_head_says_is_not_there_is_asked_to_be_deleted_all_the_same(stub: StubS3) -> None:
    refs = fill(stub, "b", "a", "b")
    stub.always(refusing(404, "NoSuchKey"), operation="HeadObject")
    outcomes = store_on(reach(stub)).delete(refs, gate=Gate())
    gone = {ref.key for ref, outcome in outcomes.items() if outcome.state in (Outcome.DELETED, Outcome.GONE)}
    assert not gone & stub.keys("b"), "their rows would go, and they would stay"


def test_what_a_head_does_not_find_and_the_listing_names_is_kept_where_a_delete_would_only_hide_it(
    stub: StubS3,
) -> None:
    refs = fill(stub, "b", "a", "b")
    stub.always(refusing(404, "NoSuchKey"), operation="HeadObject")
    outcomes = store_on(reach(stub), modes={"b": "marker"}).delete(refs, gate=Gate())
    assert {(o.state, o.code) for o in outcomes.values()} == {(Outcome.FAILED, "unverified")}
    absent = [ObjectRef("b", "gone", '"e"')]
    outcomes = store_on(reach(stub), modes={"b": "marker"}).delete(absent, gate=Gate())
    assert [o.state for o in outcomes.values()] == [Outcome.GONE]
    assert "DeleteObjects" not in stub.counts
