"""The S3 starters: who may delete what, key by key, and how that is changed while they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from safedelete.testing.servers import ADMIN, NOBODY, READER, RUNNER, UPLOADER, Identity, Moto, SeaweedFS
from safedelete.testing.servers.policies import Buckets
from tests.backends import GivenS3

KEYS = ("a/1", "a/2", "b/1", "c.txt")


@pytest.fixture
def private(seaweed: SeaweedFS | GivenS3) -> SeaweedFS:
    if isinstance(seaweed, GivenS3):
        pytest.skip("Identities are known on our own server only.")
    return seaweed


@pytest.fixture(params=["seaweed", "moto_s3"])
def store(request: pytest.FixtureRequest) -> Buckets:
    server = request.getfixturevalue(request.param)
    if isinstance(server, GivenS3):
        pytest.skip("Identities are known on our own server only.")
    return server


@pytest.fixture
def filled(store: Buckets) -> Iterator[str]:
    name = "sd-filled"
    store.create_bucket(name)
    fill(store, name)
    yield name
    store.lift(name)
    for key in KEYS:
        store.client().delete_object(Bucket=name, Key=key)
    store.client().delete_bucket(Bucket=name)


def fill(store: Buckets, bucket: str) -> None:
    for key in KEYS:
        store.client().put_object(Bucket=bucket, Key=key, Body=b"x")


def delete_all(client: Any, bucket: str) -> tuple[set[str], set[str]]:
    """Keys deleted and keys denied by one DeleteObjects."""
    answer = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in KEYS]})
    codes = {error["Code"] for error in answer.get("Errors", [])}
    assert codes <= {"AccessDenied"}
    return {d["Key"] for d in answer.get("Deleted", [])}, {e["Key"] for e in answer.get("Errors", [])}


def listed(store: Buckets, bucket: str) -> set[str]:
    return {entry["Key"] for entry in store.client().list_objects_v2(Bucket=bucket).get("Contents", [])}


def test_a_denial_holds_key_by_key_and_is_lifted(store: Buckets, filled: str) -> None:
    runner = store.client(RUNNER)
    store.deny(filled, ["a/*", "c.*"])
    assert delete_all(runner, filled) == ({"b/1"}, {"a/1", "a/2", "c.txt"})
    assert listed(store, filled) == {"a/1", "a/2", "c.txt"}
    with pytest.raises(ClientError):
        runner.delete_object(Bucket=filled, Key="a/1")
    store.lift(filled)
    assert delete_all(runner, filled) == (set(KEYS), set())


def test_denials_add_up(store: Buckets, filled: str) -> None:
    store.deny(filled, ["a/1"])
    store.deny(filled, ["b/1"])
    assert delete_all(store.client(RUNNER), filled)[1] == {"a/1", "b/1"}


@pytest.mark.parametrize(
    ("who", "deleted"),
    [(RUNNER, set(KEYS)), (UPLOADER, set()), (READER, set()), (NOBODY, set())],
    ids=lambda value: getattr(value, "name", ""),
)
def test_only_who_may_delete_can(private: SeaweedFS, bucket: str, who: Identity, deleted: set[str]) -> None:
    fill(private, bucket)
    assert delete_all(private.client(who), bucket) == (deleted, set(KEYS) - deleted)
    assert listed(private, bucket) == set(KEYS) - deleted


def test_the_uploader_may_write_and_the_reader_may_not(private: SeaweedFS, bucket: str) -> None:
    private.client(UPLOADER).put_object(Bucket=bucket, Key="new", Body=b"x")
    with pytest.raises(ClientError, match="AccessDenied"):
        private.client(READER).put_object(Bucket=bucket, Key="new", Body=b"x")
    with pytest.raises(ClientError, match="AccessDenied"):
        private.client(NOBODY).list_objects_v2(Bucket=bucket)


def test_a_denial_can_be_meant_for_one_identity(private: SeaweedFS, bucket: str) -> None:
    fill(private, bucket)
    private.deny(bucket, ["a/1"], identity=READER)
    assert delete_all(private.client(RUNNER), bucket)[1] == set()


def test_a_reader_can_be_allowed_to_delete(private: SeaweedFS, bucket: str) -> None:
    fill(private, bucket)
    private.allow(bucket, ["a/*"], identity=READER)
    assert delete_all(private.client(READER), bucket)[0] == {"a/1", "a/2"}


def test_listing_can_be_denied_too(private: SeaweedFS, bucket: str) -> None:
    private.client(RUNNER).list_objects_v2(Bucket=bucket)
    private.deny(bucket, actions=["s3:ListBucket"])
    with pytest.raises(ClientError, match="AccessDenied"):
        private.client(RUNNER).list_objects_v2(Bucket=bucket)
    assert listed(private, bucket) == set()


def test_a_wrong_secret_is_refused(private: SeaweedFS, bucket: str) -> None:
    forged = Identity("admin", ADMIN.access_key, "wrong", ADMIN.actions)
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        private.client(forged).list_objects_v2(Bucket=bucket)


def test_a_wrong_etag_keeps_an_object_in_both_apis(private: SeaweedFS, bucket: str) -> None:
    fill(private, bucket)
    runner = private.client(RUNNER)
    entry = {"Key": "a/1", "ETag": '"00000000000000000000000000000000"'}
    answer = runner.delete_objects(Bucket=bucket, Delete={"Objects": [entry]})
    assert [error["Code"] for error in answer["Errors"]] == ["PreconditionFailed"]
    with pytest.raises(ClientError, match="PreconditionFailed"):
        runner.delete_object(Bucket=bucket, Key="a/1", IfMatch=entry["ETag"])
    assert listed(private, bucket) == set(KEYS)


def test_a_versioned_bucket_keeps_the_data_behind_a_marker(private: SeaweedFS) -> None:
    private.create_bucket("sd-versioned", versioned=True)
    runner = private.client(RUNNER)
    version = runner.put_object(Bucket="sd-versioned", Key="k", Body=b"x")["VersionId"]
    runner.delete_object(Bucket="sd-versioned", Key="k")
    assert listed(private, "sd-versioned") == set()
    assert runner.get_object(Bucket="sd-versioned", Key="k", VersionId=version)["Body"].read() == b"x"


def test_moto_forgets_everything_when_it_stops() -> None:
    with Moto() as first:
        first.create_bucket("sd-once")
    with Moto() as second:
        assert second.client().list_buckets()["Buckets"] == []
