"""What a bucket does with deleted objects is read, or the plan stops."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from safedelete.core.plan import Unknown
from safedelete.errors import ConfigError, StoreError
from safedelete.s3.versioning import BucketState, check_mode, notes, read_bucket, versions_of
from safedelete.testing.servers import RUNNER, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import answering
from tests.s3.support import reach


class Bucket:
    """A client for one bucket whose settings are given, as answers or as error codes."""

    def __init__(self, versioning: Any = None, lock: Any = None, replication: Any = None) -> None:
        self.settings = {
            "versioning": {} if versioning is None else versioning,
            "lock": lock,
            "replication": replication,
        }

    def _get(self, name: str, absent: str) -> Any:
        value = self.settings[name]
        if value is None:
            value = absent
        if isinstance(value, str):
            raise ClientError({"Error": {"Code": value, "Message": "m"}}, name)
        return value

    def get_bucket_versioning(self, **_: Any) -> Any:
        return self._get("versioning", "")

    def get_object_lock_configuration(self, **_: Any) -> Any:
        return self._get("lock", "ObjectLockConfigurationNotFoundError")

    def get_bucket_replication(self, **_: Any) -> Any:
        return self._get("replication", "ReplicationConfigurationNotFoundError")


ON = {"Status": "Enabled"}


def read(bucket: Bucket) -> BucketState | Unknown:
    client: Any = bucket
    return read_bucket(client, "acme")


def test_states_are_read() -> None:
    assert read(Bucket()) == BucketState("acme", "off")
    assert read(Bucket(ON)) == BucketState("acme", "enabled")
    assert read(Bucket({"Status": "Suspended"})) == BucketState("acme", "suspended")
    assert read(Bucket(ON | {"MFADelete": "Enabled"})) == BucketState("acme", "enabled", mfa_delete=True)
    assert read(Bucket("NotImplemented")) == BucketState("acme", "off"), "a store that has no versioning"


@pytest.mark.parametrize(
    "bucket",
    [Bucket("AccessDenied"), Bucket(ON, lock="AccessDenied"), Bucket(ON, replication="AccessDenied")],
)
def test_what_may_not_be_read_is_unknown(bucket: Bucket) -> None:
    state = read(bucket)
    assert isinstance(state, Unknown)
    assert "denied" in state.why


@pytest.mark.parametrize(
    "bucket",
    [
        Bucket("NoSuchBucket"),
        Bucket("InternalError"),
        Bucket("MethodNotAllowed"),
        Bucket(ON, lock="InternalError"),
    ],
)
def test_what_fails_is_an_error(bucket: Bucket) -> None:
    with pytest.raises(StoreError):
        read(bucket)


def test_a_lock_and_a_replica_are_noted() -> None:
    lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 30}}}
    state = read(
        Bucket(
            ON,
            {"ObjectLockConfiguration": lock},
            {"ReplicationConfiguration": {"Rules": [{"Status": "Enabled"}]}},
        )
    )
    assert isinstance(state, BucketState)
    text = " ".join(notes(state, "purge"))
    assert "COMPLIANCE for 30 days" in text
    assert "copies in other buckets survive" in text
    assert "null version" in " ".join(notes(BucketState("acme", "suspended"), "purge"))


@pytest.mark.parametrize("versioning", ["enabled", "suspended"])
def test_a_versioned_bucket_needs_a_mode(versioning: Any) -> None:
    state = BucketState("acme", versioning)
    with pytest.raises(ConfigError, match="no mode= is declared"):
        check_mode(state, None, "s3://acme/p/")
    assert check_mode(state, "marker", "x") == "marker"
    assert check_mode(state, "purge", "x") == "purge"


def test_modes_of_an_unversioned_bucket() -> None:
    state = BucketState("acme", "off")
    assert check_mode(state, None, "x") is None
    assert check_mode(state, "purge", "x") is None
    with pytest.raises(ConfigError, match="gone for good"):
        check_mode(state, "marker", "x")


def test_mfa_delete_refuses_a_purge() -> None:
    state = BucketState("acme", "enabled", mfa_delete=True)
    with pytest.raises(ConfigError, match="one-time token"):
        check_mode(state, "purge", "x")
    assert check_mode(state, "marker", "x") == "marker"


def test_versions_of_exactly_these_keys(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket, versioned=True)
    client = server.client()
    made = [client.put_object(Bucket=bucket, Key="a", Body=body)["VersionId"] for body in (b"1", b"22")]
    client.put_object(Bucket=bucket, Key="ab", Body=b"x")
    marker = client.delete_object(Bucket=bucket, Key="a")["VersionId"]
    found = versions_of(reach(server).reader, bucket, ["a", "absent", "a"])
    assert {key: [ref.version for ref in refs] for key, refs in found.items()} == {
        "a": [*made, marker],
        "absent": [],
    }
    assert [ref.size for ref in found["a"]] == [1, 2, 0]
    assert {ref.key for ref in found["a"]} == {"a"}


def test_an_empty_key_is_never_a_prefix(moto: Moto, bucket: str) -> None:
    moto.create_bucket(bucket, versioned=True)
    with pytest.raises(StoreError, match="every object"):
        versions_of(reach(moto).reader, bucket, [""])


def test_on_a_real_store_a_runner_without_the_permission_learns_nothing(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket, versioned=True)
    state = read_bucket(reach(weed, RUNNER).reader, bucket)
    assert isinstance(state, Unknown)
    assert "s3:GetBucketObjectLockConfiguration" in state.why
    assert read_bucket(reach(weed).reader, bucket) == BucketState(bucket, "enabled")


@pytest.mark.parametrize("status", ["enabled", "On", "Disabled", ["Enabled", "Suspended"]])
def test_a_word_that_is_none_of_s3s_is_not_taken_for_unversioned(status: Any) -> None:
    with pytest.raises(StoreError, match="none of S3's words"):
        read(Bucket({"Status": status}))


@pytest.mark.parametrize(
    "operation", ["GetBucketVersioning", "GetObjectLockConfiguration", "GetBucketReplication"]
)
@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b""), (204, b""), (200, b"<html><body/></html>"), (200, b"<a><VersioningConfiguration/></a>")],
    ids=["empty", "no content", "a proxy's page", "something else"],
)
def test_an_answer_that_says_nothing_is_not_taken_for_unversioned_or_unlocked(
    stub: StubS3, operation: str, status: int, body: bytes
) -> None:
    on = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    stub.create_bucket("acme")
    stub.always(answering(200, on), operation="GetBucketVersioning")
    stub.always(answering(status, body), operation=operation)
    with pytest.raises(StoreError, match="was answered where a"):
        read_bucket(reach(stub).reader, "acme")
