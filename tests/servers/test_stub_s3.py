"""The stub store tells the truth unless told otherwise, and each of its lies is told as boto3 would meet it."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from safedelete.testing.servers import StubS3, faults
from safedelete.testing.servers.faults import LIES, RESET, SLOW_DOWN, TIMEOUT, Fault, Request, applied
from safedelete.testing.servers.script import ANY

ODD = [
    "plain",
    "/lead",
    "a//b",
    "é e",
    "+%?#&<>\"'",
    "new\nline",
    "cr\rreturn",
    "tab\t",
    "emoji-🪣",
    "a/../b",
]


def fill(store: StubS3, *keys: str) -> None:
    for key in keys:
        store.put("acme", key, b"x")


def delete(store: StubS3, *keys: str, **config: Any) -> Any:
    return store.client(**config).delete_objects(
        Bucket="acme", Delete={"Objects": [{"Key": key} for key in keys]}
    )


def deleted(answer: Any) -> list[str]:
    return [entry["Key"] for entry in answer.get("Deleted", [])]


def refused(answer: Any) -> dict[str, str]:
    return {entry["Key"]: entry["Code"] for entry in answer.get("Errors", [])}


# --- honest ---


def test_an_object_that_is_put_can_be_read_headed_listed_and_deleted(stub_s3: StubS3) -> None:
    client = stub_s3.client()
    client.create_bucket(Bucket="acme")
    etag = client.put_object(Bucket="acme", Key="k", Body=b"hello")["ETag"]
    assert client.get_object(Bucket="acme", Key="k")["Body"].read() == b"hello"
    head = client.head_object(Bucket="acme", Key="k")
    assert (head["ETag"], head["ContentLength"]) == (etag, 5)
    (entry,) = client.list_objects_v2(Bucket="acme")["Contents"]
    assert (entry["Key"], entry["ETag"], entry["Size"]) == ("k", etag, 5)
    client.delete_object(Bucket="acme", Key="k")
    with pytest.raises(ClientError, match="404"):
        client.head_object(Bucket="acme", Key="k")
    with pytest.raises(ClientError, match="NoSuchKey"):
        client.get_object(Bucket="acme", Key="k")


def test_odd_keys_survive_the_round_trip(stub_s3: StubS3) -> None:
    client = stub_s3.client()
    client.create_bucket(Bucket="acme")
    for key in ODD:
        client.put_object(Bucket="acme", Key=key, Body=b"x")
    assert stub_s3.keys("acme") == set(ODD)
    assert {entry["Key"] for entry in client.list_objects_v2(Bucket="acme")["Contents"]} == set(ODD)
    assert set(deleted(delete(stub_s3, *ODD))) == set(ODD)
    assert stub_s3.keys("acme") == set()


def test_a_control_character_loses_the_whole_batch_as_on_real_stores(stub_s3: StubS3) -> None:
    fill(stub_s3, "a", "b\x01")
    with pytest.raises(ClientError, match="MalformedXML"):
        delete(stub_s3, "a", "b\x01")
    assert stub_s3.keys("acme") == {"a", "b\x01"}
    stub_s3.client().delete_object(Bucket="acme", Key="b\x01")
    assert stub_s3.keys("acme") == {"a"}


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_paging_lists_every_key_once(stub_s3: StubS3, count: int) -> None:
    keys = [f"p/{n:03}&\n" for n in range(25)]
    fill(stub_s3, *keys, "o", "q")
    pages = stub_s3.client().get_paginator("list_objects_v2")
    found = [
        entry["Key"]
        for page in pages.paginate(Bucket="acme", Prefix="p/", PaginationConfig={"PageSize": count})
        for entry in page.get("Contents", [])
    ]
    assert found == keys


def test_a_listing_goes_on_where_it_was_while_objects_are_deleted(stub_s3: StubS3) -> None:
    fill(stub_s3, *(f"{n}" for n in range(10)))
    client = stub_s3.client()
    first = client.list_objects_v2(Bucket="acme", MaxKeys=4)
    delete(stub_s3, *(entry["Key"] for entry in first["Contents"]), "5")
    second = client.list_objects_v2(
        Bucket="acme", MaxKeys=1000, ContinuationToken=first["NextContinuationToken"]
    )
    assert [entry["Key"] for entry in second["Contents"]] == ["4", "6", "7", "8", "9"]


def test_a_delimiter_groups_over_page_ends(stub_s3: StubS3) -> None:
    fill(stub_s3, "a/1", "a/2", "b", "c/1", "c/2", "d")
    pages = stub_s3.client().get_paginator("list_objects_v2")
    found: list[str] = []
    for page in pages.paginate(Bucket="acme", Delimiter="/", PaginationConfig={"PageSize": 1}):
        found += [entry["Key"] for entry in page.get("Contents", [])]
        found += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
    assert found == ["a/", "b", "c/", "d"]


def test_a_wrong_etag_keeps_an_object_and_a_right_one_does_not(stub_s3: StubS3) -> None:
    etag = stub_s3.put("acme", "k", b"x").etag
    client = stub_s3.client()
    wrong = {"Objects": [{"Key": "k", "ETag": '"0"'}, {"Key": "absent", "ETag": '"0"'}]}
    answer = client.delete_objects(Bucket="acme", Delete=wrong)
    assert refused(answer) == {"k": "PreconditionFailed", "absent": "NoSuchKey"}
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.delete_object(Bucket="acme", Key="k", IfMatch='"0"')
    assert stub_s3.keys("acme") == {"k"}
    right = {"Objects": [{"Key": "k", "ETag": f'"{etag}"'}]}
    assert deleted(client.delete_objects(Bucket="acme", Delete=right)) == ["k"]


def test_quiet_and_the_limit_of_1000_are_honoured(stub_s3: StubS3) -> None:
    fill(stub_s3, "a")
    answer = stub_s3.client().delete_objects(Bucket="acme", Delete={"Objects": [{"Key": "a"}], "Quiet": True})
    assert deleted(answer) == []
    assert stub_s3.keys("acme") == set()
    with pytest.raises(ClientError, match="MalformedXML"):
        delete(stub_s3, *(str(n) for n in range(1001)))


def test_the_bucket_says_it_is_plain(stub_s3: StubS3) -> None:
    stub_s3.create_bucket("acme")
    client = stub_s3.client()
    assert "Status" not in client.get_bucket_versioning(Bucket="acme")
    with pytest.raises(ClientError, match="ObjectLockConfigurationNotFoundError"):
        client.get_object_lock_configuration(Bucket="acme")
    with pytest.raises(ClientError, match="ReplicationConfigurationNotFoundError"):
        client.get_bucket_replication(Bucket="acme")
    with pytest.raises(ClientError, match="NoSuchBucket"):
        client.get_bucket_versioning(Bucket="other")
    with pytest.raises(ClientError, match="NotImplemented"):
        client.get_bucket_acl(Bucket="acme")


def test_an_objects_age_can_be_set(stub_s3: StubS3) -> None:
    then = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    stub_s3.put("acme", "old", modified=then)
    client = stub_s3.client()
    assert client.head_object(Bucket="acme", Key="old")["LastModified"] == then
    assert client.list_objects_v2(Bucket="acme")["Contents"][0]["LastModified"] == then


# --- as told ---

SAID_AND_TRUE = {"200 transient key errors": ["a"]}
SAID_AND_FALSE = {
    "200 first key only": ["a"],
    "200 stranger key": ["a", "b", "a-key-nobody-asked-for"],
    "200 duplicate key": ["a", "b", "a"],
    "200 deleted and error": ["a", "b", "c"],
}
RAISES = {
    "200 whitespace",
    "200 JSON",
    "200 cut connection",
    "200 truncated XML",
    "200 Error SlowDown",
    "200 Error AccessDenied",
    "400 MalformedXML",
    "403 AccessDenied",
    "503 SlowDown",
    "500 InternalError",
    "reset",
    "timeout",
}


@pytest.mark.parametrize("name", LIES)
def test_each_lie_reaches_the_client_and_leaves_the_objects(stub_s3: StubS3, name: str) -> None:
    fill(stub_s3, "a", "b", "c")
    stub_s3.always(LIES[name])
    if name in RAISES:
        with pytest.raises(Exception) as caught:
            delete(stub_s3, "a", "b", "c", read_timeout=0.3)
        assert type(caught.value).__module__.startswith("botocore")
        assert stub_s3.keys("acme") == {"a", "b", "c"}
        return
    answer = delete(stub_s3, "a", "b", "c")
    assert deleted(answer) == SAID_AND_FALSE.get(name, SAID_AND_TRUE.get(name, []))
    assert stub_s3.keys("acme") == {"a", "b", "c"} - set(SAID_AND_TRUE.get(name, []))
    if name == "200 transient key errors":
        assert refused(answer) == {"b": "InternalError", "c": "SlowDown"}


@pytest.mark.parametrize(
    ("fault", "error"),
    [(RESET, (ConnectionClosedError)), (TIMEOUT, ReadTimeoutError)],
)
def test_an_applied_fault_deletes_and_loses_the_answer(
    stub_s3: StubS3, fault: Fault, error: type[Exception]
) -> None:
    fill(stub_s3, "a", "b")
    stub_s3.script(applied(fault))
    with pytest.raises(error):
        delete(stub_s3, "a", "b", read_timeout=0.3)
    assert stub_s3.keys("acme") == set()


def test_a_reset_is_a_reset_on_the_wire(stub_s3: StubS3) -> None:
    stub_s3.always(RESET, ANY)
    with socket.create_connection(("127.0.0.1", int(stub_s3.endpoint.rpartition(":")[2])), timeout=5) as raw:
        raw.sendall(b"GET /acme HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            raw.recv(1)


def test_a_script_is_used_up_one_request_at_a_time(stub_s3: StubS3) -> None:
    fill(stub_s3, "a")
    stub_s3.script(SLOW_DOWN, None, SLOW_DOWN)
    with pytest.raises(ClientError, match="SlowDown"):
        delete(stub_s3, "a")
    assert deleted(delete(stub_s3, "a")) == ["a"]
    with pytest.raises(ClientError, match="SlowDown"):
        delete(stub_s3, "a")
    assert deleted(delete(stub_s3, "a")) == ["a"]


def test_botocores_own_retry_turns_503_then_ok_into_a_success(stub_s3: StubS3) -> None:
    fill(stub_s3, "a")
    stub_s3.script(SLOW_DOWN)
    answer = delete(stub_s3, "a", retries={"mode": "standard", "total_max_attempts": 2})
    assert deleted(answer) == ["a"]
    assert stub_s3.counts["DeleteObjects"] == 2


def test_chosen_keys_are_refused_in_both_apis(stub_s3: StubS3) -> None:
    fill(stub_s3, "a", "b")
    denied = faults.key_errors({"a": "AccessDenied"})
    stub_s3.always(denied)
    stub_s3.always(denied, "DeleteObject")
    answer = delete(stub_s3, "a", "b")
    assert (deleted(answer), refused(answer)) == (["b"], {"a": "AccessDenied"})
    with pytest.raises(ClientError, match="AccessDenied"):
        stub_s3.client().delete_object(Bucket="acme", Key="a")
    assert stub_s3.keys("acme") == {"a"}
    stub_s3.behave()
    assert deleted(delete(stub_s3, "a")) == ["a"]


def test_a_program_sees_every_request_and_may_act_in_between(stub_s3: StubS3) -> None:
    fill(stub_s3, "a", "b")
    seen: list[Request] = []

    def overwrite_first(request: Request) -> None:
        seen.append(request)
        if request.operation == "DeleteObject":
            stub_s3.put("acme", "a", b"newer")

    stub_s3.program = overwrite_first
    etag = stub_s3.client().head_object(Bucket="acme", Key="a")["ETag"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        stub_s3.client().delete_object(Bucket="acme", Key="a", IfMatch=etag)
    assert [(r.operation, r.keys) for r in seen] == [("HeadObject", ("a",)), ("DeleteObject", ("a",))]


def test_requests_are_recorded_as_they_came(stub_s3: StubS3) -> None:
    fill(stub_s3, "a")
    stub_s3.client().delete_objects(
        Bucket="acme", Delete={"Objects": [{"Key": "a", "ETag": '"e"', "VersionId": "v"}]}
    )
    (request,) = stub_s3.requests
    assert (request.number, request.operation, request.method, request.path) == (
        1,
        "DeleteObjects",
        "POST",
        "/acme",
    )
    assert request.query == {"delete": ""}
    assert request.entries == (faults.Entry("a", "v", '"e"'),)
    assert b"<VersionId>v</VersionId>" in request.body
    assert "sdadmin" in request.headers["authorization"]


def test_stopping_ends_a_request_that_hangs() -> None:
    with StubS3() as store:
        fill(store, "a")
        store.always(TIMEOUT)
        with pytest.raises(ReadTimeoutError):
            delete(store, "a", read_timeout=0.2)
    assert not store.running
