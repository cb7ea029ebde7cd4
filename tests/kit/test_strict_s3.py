"""What moto lets pass and S3 does not, StrictS3 does not either; and it can be told to answer badly."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from safedelete.testing import StrictS3
from safedelete.testing.servers.faults import LIES, RESET, applied, delayed, key_errors, refusing

B = "acme-uploads"


@pytest.fixture(scope="module")
def _one() -> Iterator[StrictS3]:
    with StrictS3() as store:
        yield store


@pytest.fixture
def store(_one: StrictS3) -> StrictS3:
    _one.behave()
    _one.empty()
    _one.requests.clear()
    _one.create_bucket(B)
    return _one


@pytest.fixture
def client(store: StrictS3) -> Any:
    return store.client()


def batch(client: Any, *objects: Any, **more: Any) -> Any:
    named = [{"Key": entry} if isinstance(entry, str) else entry for entry in objects]
    return client.delete_objects(Bucket=B, Delete={"Objects": named, **more})


def code(call: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(*arguments, **named)
    return str(caught.value.response["Error"]["Code"])


# --- what moto gets wrong ---


def test_more_than_a_thousand_keys_are_refused_and_none_goes(store: StrictS3, client: Any) -> None:
    store.put(B, "0")
    assert code(batch, client, *map(str, range(1001))) == "MalformedXML"
    assert store.keys(B) == {"0"}
    assert len(batch(client, *map(str, range(1000)))["Deleted"]) == 1000


def test_an_etag_in_a_batch_is_held_against_the_object(store: StrictS3, client: Any) -> None:
    right = store.put(B, "right", b"x")
    store.put(B, "wrong", b"y")
    answer = batch(
        client,
        {"Key": "right", "ETag": f'"{right}"'},
        {"Key": "wrong", "ETag": right},
        {"Key": "absent", "ETag": right},
    )
    assert [deleted["Key"] for deleted in answer["Deleted"]] == ["right"]
    assert {e["Key"]: e["Code"] for e in answer["Errors"]} == {
        "wrong": "PreconditionFailed",
        "absent": "NoSuchKey",
    }
    assert store.keys(B) == {"wrong"}


def test_one_delete_holds_an_etag_likewise(store: StrictS3, client: Any) -> None:
    store.put(B, "a", b"x")
    assert code(client.delete_object, Bucket=B, Key="a", IfMatch="other") == "PreconditionFailed"
    assert code(client.delete_object, Bucket=B, Key="absent", IfMatch="*") == "NoSuchKey"
    assert store.keys(B) == {"a"}


def test_quiet_is_quiet(store: StrictS3, client: Any) -> None:
    store.put(B, "a")
    assert "Deleted" not in batch(client, "a", Quiet=True)
    assert store.keys(B) == set()


def test_a_key_that_xml_cannot_say_loses_the_whole_batch(store: StrictS3, client: Any) -> None:
    for key in ("a", "b\x01"):
        store.put(B, key)
    assert code(batch, client, "a", "b\x01") == "MalformedXML"
    assert store.keys(B) == {"a", "b\x01"}
    client.delete_object(Bucket=B, Key="b\x01")
    assert store.keys(B) == {"a"}


@pytest.mark.parametrize("key", ["a\rb", "a\nb", "a&b<c>", "é+%?#", " a ", "//a", "..", "a/../b"])
def test_an_odd_key_is_answered_as_it_was_asked_for(store: StrictS3, client: Any, key: str) -> None:
    store.put(B, key)
    assert [d["Key"] for d in batch(client, key)["Deleted"]] == [key]
    assert store.keys(B) == set()


def test_a_key_of_more_than_1024_bytes_is_refused(store: StrictS3, client: Any) -> None:
    store.put(B, "a")
    long = "é" * 513
    assert code(client.put_object, Bucket=B, Key=long, Body=b"") == "KeyTooLongError"
    assert code(batch, client, "a", long) == "KeyTooLongError"
    assert store.keys(B) == {"a"}
    client.put_object(Bucket=B, Key=long[:-1], Body=b"")


def test_an_absent_key_of_a_versioned_bucket_gets_a_marker(store: StrictS3, client: Any) -> None:
    store.create_bucket("acme-versioned", versioned=True)
    made = client.delete_object(Bucket="acme-versioned", Key="never")
    assert made["DeleteMarker"] is True
    assert store.versions("acme-versioned", "never") == 1
    marker = client.list_object_versions(Bucket="acme-versioned")["DeleteMarkers"][0]
    assert marker["VersionId"] == made["VersionId"]
    client.delete_object(Bucket="acme-versioned", Key="never", VersionId=made["VersionId"])
    assert store.versions("acme-versioned", "never") == 0


def test_a_version_that_cannot_be_one_deletes_nothing(store: StrictS3, client: Any) -> None:
    store.put(B, "a")
    answer = batch(client, {"Key": "a", "VersionId": "bogus"})
    assert answer["Errors"][0]["Code"] == "NoSuchVersion"
    assert code(client.delete_object, Bucket=B, Key="a", VersionId="bogus") == "InvalidArgument"
    assert store.keys(B) == {"a"}


def test_a_condition_beside_a_version_is_not_implemented(store: StrictS3, client: Any) -> None:
    store.put(B, "a")
    answer = batch(client, {"Key": "a", "VersionId": "null", "ETag": "x"})
    assert answer["Errors"][0]["Code"] == "NotImplemented"


def test_a_bucket_of_another_account_is_denied(store: StrictS3, client: Any) -> None:
    store.put(B, "a")
    assert code(client.delete_object, Bucket=B, Key="a", ExpectedBucketOwner="999999999999") == "AccessDenied"
    assert store.keys(B) == {"a"}


def test_a_batch_without_a_checksum_is_refused(store: StrictS3) -> None:
    bare = store.client()

    def strip(request: Any, **_: Any) -> None:
        for name in [n for n in request.headers if "checksum" in n.lower()]:
            del request.headers[name]

    bare.meta.events.register("before-sign.s3.DeleteObjects", strip)
    assert code(batch, bare, "a") == "InvalidRequest"


# --- listings ---

V = "acme-versioned"
ODD = ("a\x01b", "a\rb", "a b+c%20?#", "&<>\"'", "é ü", "x//y", "z\nz")


@pytest.mark.parametrize("call", ["list_objects", "list_objects_v2", "list_object_versions"])
def test_no_page_has_more_than_a_thousand_entries_whatever_was_asked_for(
    store: StrictS3, client: Any, call: str
) -> None:
    for number in range(1001):
        store.put(B, f"{number:04}")
    answer = getattr(client, call)(Bucket=B, MaxKeys=5000)
    assert (answer["MaxKeys"], answer["IsTruncated"]) == (1000, True)
    assert len(answer["Versions" if call == "list_object_versions" else "Contents"]) == 1000


def listed(client: Any, **options: Any) -> list[tuple[str, str]]:
    pages = client.get_paginator("list_object_versions").paginate(Bucket=V, **options)
    return [
        (item["Key"], item["VersionId"])
        for page in pages
        for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
    ]


def test_keys_are_listed_by_their_bytes_and_exactly_as_they_are(store: StrictS3, client: Any) -> None:
    store.create_bucket(V, versioned=True)
    keys = [*ODD, "Z", "a", "é", "\U0001f600", "\uffee"]
    for key in keys:
        store.put(V, key)
    in_order = sorted(keys, key=str.encode)
    assert [item["Key"] for item in client.list_objects_v2(Bucket=V)["Contents"]] == in_order
    assert [key for key, _ in listed(client)] == in_order


@pytest.mark.parametrize("size", [1, 2, 3, 4, 1000])
def test_pages_of_versions_may_end_within_a_key_and_lose_none(
    store: StrictS3, client: Any, size: int
) -> None:
    store.create_bucket(V, versioned=True)
    for key in "abc":
        for _ in range(3):
            store.put(V, key)
    client.delete_object(Bucket=V, Key="b")
    whole = listed(client)
    assert sorted(key for key, _ in whole) == [*"aaabbbbccc"]
    assert sorted(listed(client, PaginationConfig={"PageSize": size})) == sorted(whole)


def test_versions_that_are_deleted_while_they_are_listed_cut_no_listing_short(
    store: StrictS3, client: Any
) -> None:
    store.create_bucket(V, versioned=True)
    for key in "ab":
        for _ in range(3):
            store.put(V, key)
    seen: list[tuple[str, str]] = []
    for page in client.get_paginator("list_object_versions").paginate(
        Bucket=V, PaginationConfig={"PageSize": 2}
    ):
        for item in page["Versions"]:
            seen.append((item["Key"], item["VersionId"]))
            client.delete_object(Bucket=V, Key=item["Key"], VersionId=item["VersionId"])
    assert [key for key, _ in seen] == [*"aaabbb"]
    assert listed(client) == []


def test_a_listing_of_versions_goes_on_after_a_key_that_is_not_there(store: StrictS3, client: Any) -> None:
    store.create_bucket(V, versioned=True)
    for key in ("a", "c", "c", "d"):
        store.put(V, key)
    after = client.list_object_versions(Bucket=V, KeyMarker="b")["Versions"]
    assert [(item["Key"], item["IsLatest"]) for item in after] == [("c", True), ("c", False), ("d", True)]
    assert [v["Key"] for v in client.list_object_versions(Bucket=V, KeyMarker="c")["Versions"]] == ["d"]
    assert code(client.list_object_versions, Bucket=V, VersionIdMarker="x") == "InvalidArgument"
    assert (
        code(client.list_object_versions, Bucket=V, KeyMarker="c", VersionIdMarker="x") == "InvalidArgument"
    )


def test_versions_are_grouped_by_a_delimiter_over_a_page_s_end(store: StrictS3, client: Any) -> None:
    store.create_bucket(V, versioned=True)
    for key in ("a/1", "a/2", "b", "c/1", "c/2"):
        store.put(V, key)
    pages = list(
        client.get_paginator("list_object_versions").paginate(
            Bucket=V, Delimiter="/", PaginationConfig={"PageSize": 1}
        )
    )
    told = [
        *(group["Prefix"] for page in pages for group in page.get("CommonPrefixes", ())),
        *(item["Key"] for page in pages for item in page.get("Versions", ())),
    ]
    assert told == ["a/", "c/", "b"], "each once"


def test_what_was_written_last_is_the_latest_whatever_its_date(store: StrictS3, client: Any) -> None:
    store.create_bucket(V, versioned=True)
    for year, body in ((2026, b"new"), (2020, b"old")):
        store.put(V, "a", body, modified=datetime(year, 1, 1, tzinfo=UTC))
    first, second = client.list_object_versions(Bucket=V)["Versions"]
    assert (first["IsLatest"], first["LastModified"].year, second["IsLatest"]) == (True, 2020, False)
    assert client.get_object(Bucket=V, Key="a")["Body"].read() == b"old"


# --- what it does not pretend to know ---


def test_a_suspended_bucket_is_not_pretended_to_be_understood(store: StrictS3, client: Any) -> None:
    store.create_bucket("acme-suspended", versioned=True)
    store.put("acme-suspended", "a")
    client.put_bucket_versioning(Bucket="acme-suspended", VersioningConfiguration={"Status": "Suspended"})
    assert code(client.delete_object, Bucket="acme-suspended", Key="a") == "NotImplemented"
    assert store.versions("acme-suspended", "a") == 1


# --- faults ---


def test_a_denial_keeps_one_key_and_lets_the_others_go(store: StrictS3, client: Any) -> None:
    for key in ("a", "b"):
        store.put(B, key)
    store.deny(B, ["a"])
    answer = batch(client, "a", "b")
    assert {e["Key"]: e["Code"] for e in answer["Errors"]} == {"a": "AccessDenied"}
    assert code(client.delete_object, Bucket=B, Key="a") == "AccessDenied"
    assert store.keys(B) == {"a"}
    store.lift(B)
    client.delete_object(Bucket=B, Key="a")
    assert store.keys(B) == set()


def test_a_bucket_policy_denies_key_by_key(store: StrictS3, client: Any) -> None:
    for key in ("keep/a", "b"):
        store.put(B, key)
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:DeleteObject",
        "Resource": f"arn:aws:s3:::{B}/keep/*",
    }
    import json

    client.put_bucket_policy(Bucket=B, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    try:
        assert batch(client, "keep/a", "b")["Errors"][0]["Code"] == "AccessDenied"
    finally:
        client.delete_bucket_policy(Bucket=B)
    assert store.keys(B) == {"keep/a"}


def test_faults_come_in_the_order_of_the_script_and_then_the_truth(store: StrictS3, client: Any) -> None:
    for key in ("a", "b"):
        store.put(B, key)
    store.script(refusing(503, "SlowDown"), key_errors({"a": "InternalError"}), applied(RESET), None)
    assert code(batch, client, "a", "b") == "SlowDown"
    assert batch(client, "a", "b")["Errors"][0]["Code"] == "InternalError"
    assert store.keys(B) == {"a"}
    with pytest.raises(ConnectionClosedError):
        batch(client, "a")
    assert store.keys(B) == set()
    assert batch(client, "a")["Deleted"]
    assert store.counts["DeleteObjects"] >= 4


@pytest.mark.parametrize("name", sorted(LIES))
def test_every_known_lie_can_be_told(store: StrictS3, client: Any, name: str) -> None:
    for key in ("a", "b"):
        store.put(B, key)
    store.script(LIES[name])
    try:
        answer = batch(client, "a", "b")
    except (ClientError, ConnectionClosedError, ReadTimeoutError, ResponseParserError):
        answer = {}
    told = {d["Key"] for d in answer.get("Deleted", ())}
    assert store.keys(B) == ({"b"} if name == "200 transient key errors" else {"a", "b"})
    assert told != {"a", "b"} or answer.get("Errors") or "truncated" in name


def test_latency_passes_on_the_clock_it_is_given() -> None:
    slept: list[float] = []
    with StrictS3(latency=2.0, patience=10.0, sleep=slept.append) as store:
        store.create_bucket(B)
        client = store.client()
        client.head_bucket(Bucket=B)
        assert slept == [2.0]
        store.always(delayed(9.0), operation="HeadBucket")
        with pytest.raises(ReadTimeoutError):
            client.head_bucket(Bucket=B)
        assert slept == [2.0]


# --- whom it stands for ---


def test_a_client_that_knows_nothing_of_it_is_its_client_too(store: StrictS3) -> None:
    theirs = boto3.session.Session().client("s3", region_name="us-east-1")
    theirs.put_object(Bucket=B, Key="mine", Body=b"x")
    assert store.keys(B) == {"mine"}
    assert theirs.list_objects_v2(Bucket=B)["KeyCount"] == 1
    virtual = boto3.session.Session().client(
        "s3",
        endpoint_url="https://store.example",
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "virtual"}),
    )
    virtual.delete_object(Bucket=B, Key="mine")
    assert store.keys(B) == set()


def test_a_client_made_before_is_adopted_and_let_go() -> None:
    early = boto3.session.Session().client("s3", region_name="us-east-1")
    with StrictS3() as store:
        store.create_bucket(B)
        store.adopt(early)
        early.put_object(Bucket=B, Key="a", Body=b"")
        assert store.keys(B) == {"a"}
    assert not store.running


def test_objects_are_as_old_as_a_test_says(store: StrictS3) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    store.put(B, "old", modified=when)
    client = store.client()
    assert client.head_object(Bucket=B, Key="old")["LastModified"] == when
    assert client.list_objects_v2(Bucket=B)["Contents"][0]["LastModified"] == when


def test_what_is_written_is_dated_by_the_clock_it_is_given() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with StrictS3(now=lambda: when) as store:
        store.create_bucket(B)
        client = store.client()
        client.put_object(Bucket=B, Key="a", Body=b"x")
        assert client.head_object(Bucket=B, Key="a")["LastModified"] == when


def test_a_delete_marker_is_dated_by_the_clock_it_is_given_and_of_one_instant_the_last_is_the_latest() -> (
    None
):
    instant, dated = datetime(2026, 3, 1, 3, 15, tzinfo=UTC), "acme-dated"
    with StrictS3(now=lambda: instant) as store:
        store.create_bucket(dated, versioned=True)
        client = store.client()
        ids = [client.put_object(Bucket=dated, Key="a", Body=body)["VersionId"] for body in (b"1", b"2")]
        for key in ("a", "never"):
            client.delete_object(Bucket=dated, Key=key)
        client.delete_objects(Bucket=dated, Delete={"Objects": [{"Key": "a"}]})
        listed = client.list_object_versions(Bucket=dated)
        assert {item["LastModified"] for item in (*listed["DeleteMarkers"], *listed["Versions"])} == {instant}
        assert [(m["Key"], m["IsLatest"]) for m in listed["DeleteMarkers"]] == [
            ("a", True),
            ("a", False),
            ("never", True),
        ]
        assert [v["VersionId"] for v in listed["Versions"]] == ids[::-1]


def test_a_delete_that_is_denied_dates_nothing() -> None:
    instant, dated = datetime(2026, 3, 1, 3, 15, tzinfo=UTC), "acme-denied"
    with StrictS3(now=lambda: instant) as store:
        store.create_bucket(dated, versioned=True)
        store.put(dated, "a", b"x", modified=datetime(2024, 1, 1, tzinfo=UTC))
        store.deny(dated, ["a"])
        store.client().delete_objects(Bucket=dated, Delete={"Objects": [{"Key": "a"}]})
        (listed,) = store.client().list_object_versions(Bucket=dated)["Versions"]
        assert listed["LastModified"].year == 2024
