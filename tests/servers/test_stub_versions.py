"""A versioned bucket of the stub keeps, hides and brings back what moto's does, and answers alike."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from safedelete.testing.servers import Moto, StubS3
from safedelete.testing.servers.identity import ADMIN

BUCKET = "kept"


def stub_client(stub: StubS3) -> Any:
    stub.create_bucket(BUCKET, versioned=True)
    return stub.client()


def moto_client(moto: Moto) -> Any:
    client = moto.client(ADMIN)
    client.create_bucket(Bucket=BUCKET)
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    return client


@pytest.fixture
def both(stub_s3: StubS3, moto_s3: Moto) -> tuple[Any, Any]:
    return stub_client(stub_s3), moto_client(moto_s3)


def seen(client: Any, names: dict[str, str]) -> list[tuple[str, str, bool, bool]]:
    """Return every version: key, the name it was given here, whether it is a marker, whether it is the latest."""
    answer = client.list_object_versions(Bucket=BUCKET)
    found = [(v, False) for v in answer.get("Versions", ())]
    found += [(m, True) for m in answer.get("DeleteMarkers", ())]
    return sorted(
        (item["Key"], names.get(item["VersionId"], "?"), marker, item["IsLatest"]) for item, marker in found
    )


def shown(client: Any) -> list[str]:
    return [item["Key"] for item in client.list_objects_v2(Bucket=BUCKET).get("Contents", ())]


def lived(client: Any) -> list[Any]:
    """Go through a life of two keys, and return what is seen after each step."""
    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    seen_so_far: list[Any] = []

    def note(name: str, version: str) -> None:
        names[version], ids[name] = name, version

    def look() -> None:
        seen_so_far.append((shown(client), seen(client, names)))

    for name, body in (("first", b"1"), ("second", b"22")):
        client.put_object(Bucket=BUCKET, Key="a/x", Body=body)
        (newest,) = [v for v in client.list_object_versions(Bucket=BUCKET)["Versions"] if v["IsLatest"]]
        note(name, newest["VersionId"])
    look()
    hidden = client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "a/x"}]})["Deleted"]
    note("marker", hidden[0]["DeleteMarkerVersionId"])
    seen_so_far.append((hidden[0]["DeleteMarker"], sorted(hidden[0])))
    look()
    for version in (None, ids["marker"]):
        options = {} if version is None else {"VersionId": version}
        with pytest.raises(ClientError) as error:
            client.head_object(Bucket=BUCKET, Key="a/x", **options)
        seen_so_far.append(error.value.response["ResponseMetadata"]["HTTPStatusCode"])
    seen_so_far.append(client.head_object(Bucket=BUCKET, Key="a/x", VersionId=ids["first"])["ContentLength"])
    client.delete_object(Bucket=BUCKET, Key="a/x", VersionId=ids["marker"])
    look()
    several = [{"Key": "a/x", "VersionId": ids[name]} for name in ("first", "second")]
    gone = client.delete_objects(Bucket=BUCKET, Delete={"Objects": several})["Deleted"]
    seen_so_far.append(sorted((item["Key"], names[item["VersionId"]]) for item in gone))
    look()
    return seen_so_far


def test_it_lives_as_on_moto(both: tuple[Any, Any]) -> None:
    stub, moto = both
    assert lived(stub) == lived(moto)


def pages(client: Any, size: int, **options: Any) -> list[list[tuple[str, str]]]:
    """Return what each page of a listing holds: key and id, newest first for each key."""
    found: list[list[tuple[str, str]]] = []
    while True:
        page = client.list_object_versions(Bucket=BUCKET, MaxKeys=size, **options)
        # An answer has two lists; where both have the key, its marker was made last here.
        both = sorted((*page.get("DeleteMarkers", ()), *page.get("Versions", ())), key=lambda v: v["Key"])
        found.append([(v["Key"], v["VersionId"]) for v in both])
        if not page["IsTruncated"]:
            return found
        options |= {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}


def filled(client: Any) -> None:
    for key in ("a", "a", "a", "b&", "b&"):
        client.put_object(Bucket=BUCKET, Key=key)
    client.delete_object(Bucket=BUCKET, Key="a")


def test_pages_of_one_hold_every_version_once_newest_first(stub_s3: StubS3) -> None:
    client = stub_client(stub_s3)
    filled(client)
    assert [entry for page in pages(client, 1) for entry in page] == [
        ("a", "v000006"),
        ("a", "v000003"),
        ("a", "v000002"),
        ("a", "v000001"),
        ("b&", "v000005"),
        ("b&", "v000004"),
    ]
    after_a = client.list_object_versions(Bucket=BUCKET, KeyMarker="a")
    assert {v["Key"] for v in after_a["Versions"]} == {"b&"}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_pages_end_where_those_of_moto_do(both: tuple[Any, Any], size: int) -> None:
    stub, moto = both
    shapes: list[Any] = []
    for client in (stub, moto):
        filled(client)
        found = pages(client, size)
        assert len({entry for page in found for entry in page}) == 6
        shapes.append([[key for key, _ in page] for page in (*found, *pages(client, size, Prefix="b"))])
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("gone", ["a version", "its key"])
def test_a_page_goes_on_at_its_place_though_what_the_last_one_ended_with_is_gone_which_moto_does_not(
    both: tuple[Any, Any], gone: str
) -> None:
    stub, moto = both
    seen: list[list[str]] = []
    for client in (stub, moto):
        filled(client)
        first = client.list_object_versions(Bucket=BUCKET, MaxKeys=2)
        markers = {"KeyMarker": first["NextKeyMarker"], "VersionIdMarker": first["NextVersionIdMarker"]}
        whole = [version for page in pages(client, 100) for key, version in page if key == "a"]
        for version in [markers["VersionIdMarker"]] if gone == "a version" else whole:
            client.delete_object(Bucket=BUCKET, Key="a", VersionId=version)
        (rest,) = pages(client, 100, **markers)
        seen.append([key for key, _ in rest])
    assert seen == [["a", "a", "b&", "b&"] if gone == "a version" else ["b&", "b&"], []]


def test_a_place_that_cannot_be_one_is_refused(stub_s3: StubS3) -> None:
    client = stub_client(stub_s3)
    filled(client)
    for markers in ({"VersionIdMarker": "v000001"}, {"KeyMarker": "a", "VersionIdMarker": "no-such-name"}):
        with pytest.raises(ClientError) as error:
            client.list_object_versions(Bucket=BUCKET, **markers)
        assert error.value.response["Error"]["Code"] == "InvalidArgument"


def test_a_condition_is_held_against_the_current_version(stub_s3: StubS3) -> None:
    client = stub_client(stub_s3)
    client.put_object(Bucket=BUCKET, Key="a", Body=b"old")
    old = client.head_object(Bucket=BUCKET, Key="a")["ETag"]
    client.put_object(Bucket=BUCKET, Key="a", Body=b"new")
    answer = client.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "a", "ETag": old}]})
    assert answer["Errors"][0]["Code"] == "PreconditionFailed"
    assert shown(client) == ["a"]


def test_removing_a_marker_says_so_which_moto_does_not(stub_s3: StubS3) -> None:
    client = stub_client(stub_s3)
    made = client.delete_object(Bucket=BUCKET, Key="a")
    assert (made["DeleteMarker"], made["VersionId"]) == (True, "v000001")
    removed = client.delete_object(Bucket=BUCKET, Key="a", VersionId="v000001")
    assert removed["DeleteMarker"] is True
    assert "DeleteMarkers" not in client.list_object_versions(Bucket=BUCKET)
