"""A listing is whole or it is an error."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from safedelete.errors import StoreError
from safedelete.s3.client import connect
from safedelete.s3.listing import by_key, instant, list_objects, list_versions, written
from safedelete.testing.servers import NOBODY, Moto, SeaweedFS, StubS3
from safedelete.testing.servers.faults import answering, error_body, refusing
from tests.s3.support import reach


class Pages:
    """A client whose listings are given."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    def list_objects_v2(self, **options: Any) -> Any:
        self.asked.append(options)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]

    list_object_versions = list_objects_v2


def page(*keys: str, more: bool = False, token: str | None = None) -> dict[str, Any]:
    contents = [{"Key": k, "ETag": '"e"', "Size": 1, "LastModified": "2026-01-01T00:00:00Z"} for k in keys]
    answer: dict[str, Any] = {"IsTruncated": more, "Contents": contents}
    return answer | ({"NextContinuationToken": token} if token else {})


def keys(client: Any, prefix: str = "") -> list[str]:
    return [item.key for found in list_objects(client, "b", prefix) for item in found]


def test_pages_are_joined_by_their_tokens() -> None:
    client = Pages(page("a", "b", more=True, token="1"), page("c"))
    assert keys(client) == ["a", "b", "c"]
    assert client.asked[1]["ContinuationToken"] == "1"


def test_an_empty_page_that_goes_on_is_followed() -> None:
    assert keys(Pages(page(more=True, token="1"), page("c"))) == ["c"]


@pytest.mark.parametrize(
    ("answers", "prefix", "word"),
    [
        ([page("a", more=True)], "", "no continuation token"),
        ([page("a", more=True, token="1"), page("b", more=True, token="1")], "", "given before"),
        ([{}], "", "whether it is complete"),
        ([{"Contents": page("a")["Contents"]}], "", "whether it is complete"),
        ([page("p/a", "other/a")], "p/", "not under that prefix"),
        ([{"IsTruncated": False, "Contents": [{"Key": "p/a"}]}], "p/", "Size"),
        ([page("a", "b", more=True, token="1"), page("b", "c")], "", "'b' more than once"),
        ([page("a", "c", "a")], "", "'a' more than once"),
        ([page("p/a") | {"Name": "other"}], "p/", "another bucket, 'other'"),
        ([page("p/a") | {"Prefix": "p/q/"}], "p/", "another prefix, 'p/q/'"),
        ([page() | {"KeyCount": 3}], "", "counts 3 keys and names 0"),
    ],
)
def test_what_cannot_be_a_whole_listing_is_an_error(answers: list[Any], prefix: str, word: str) -> None:
    with pytest.raises(StoreError, match=word):
        keys(Pages(*answers), prefix)


def test_a_listing_that_turns_in_a_circle_is_an_error_however_wide_it_is() -> None:
    class Circle:
        turns = 0

        def list_objects_v2(self, **_: Any) -> Any:
            self.turns += 1
            assert self.turns < 300
            token = str(self.turns if self.turns < 30 else 30 + self.turns % 50)
            return page(f"{self.turns:04}", more=True, token=token)

    with pytest.raises(StoreError, match="given before"):
        keys(Circle())


@pytest.mark.parametrize("named", [("a", "b"), ()], ids=["the same page", "empty pages"])
def test_a_listing_whose_tokens_are_ever_new_ends_all_the_same(named: tuple[str, ...]) -> None:
    class Endless:
        turns = 0

        def list_objects_v2(self, **_: Any) -> Any:
            self.turns += 1
            assert self.turns <= 1000
            return page(*named, more=True, token=str(self.turns))

    with pytest.raises(StoreError, match="more than once" if named else "1,000 empty pages"):
        keys(Endless())


def test_of_a_long_listing_one_token_is_kept_and_not_all() -> None:
    import tracemalloc

    class Endless:
        turns = 0

        def list_objects_v2(self, **_: Any) -> Any:
            self.turns += 1
            return page(f"{self.turns:06}", more=self.turns < 20_000, token=f"{self.turns:1000}")

    found = list_objects(Endless(), "b", "")  # type: ignore[arg-type]
    next(found)
    tracemalloc.start()
    for _ in found:
        pass
    assert tracemalloc.get_traced_memory()[1] < 1_000_000, "20,000 tokens have 20 MB"
    tracemalloc.stop()


ENTRY = (
    "<Key>p/a</Key><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>&quot;e&quot;</ETag><Size>1</Size>"
    "<VersionId>v</VersionId><IsLatest>true</IsLatest>"
)


def given(stub: StubS3, entry: str, *, versions: bool, head: str = "<EncodingType>url</EncodingType>") -> Any:
    """Have a listing hold this entry, and return what lists it."""
    root, record = ("ListVersionsResult", "Version") if versions else ("ListBucketResult", "Contents")
    body = f"<{root}><IsTruncated>false</IsTruncated>{head}<{record}>{entry}</{record}></{root}>"
    stub.always(answering(200, body.encode()), operation="*")
    connection = reach(stub)
    lister = list_versions if versions else list_objects
    return lambda client: [found for page in lister(getattr(connection, client), "b", "p/") for found in page]


@pytest.mark.parametrize("client", ["reader", "deleter"], ids=["fast", "sdk"])
@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("p/a", "p/%FF", "not UTF-8"),
        ("p/a", "p/%ED%A0%80", "not UTF-8"),
        ("<Key>p/a", "<Key>p/a</Key><Key>p/b", "S3"),
        (">1<", ">-5<", "names no object"),
        (">1<", f">{1 << 63}<", "names no object"),
        ("<Size>1", "<Size>1</Size><Size>2", "S3"),
        ("<ETag>", "<ETag>1</ETag><ETag>", "S3"),
    ],
    ids=["not text", "surrogate", "two keys", "size below 0", "size beyond all", "two sizes", "two ETags"],
)
def test_an_entry_that_names_no_one_object_is_an_error(
    stub: StubS3, client: str, old: str, new: str, word: str, *, versions: bool
) -> None:
    assert old in ENTRY
    with pytest.raises(StoreError) as caught:
        given(stub, ENTRY.replace(old, new), versions=versions)(client)
    assert word in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("client", ["reader", "deleter"], ids=["fast", "sdk"])
@pytest.mark.parametrize("versions", [False, True])
def test_an_encoding_that_is_not_known_is_an_error(stub: StubS3, client: str, *, versions: bool) -> None:
    head = "<EncodingType>URL</EncodingType>"
    with pytest.raises(StoreError, match="encoded as 'URL'"):
        given(stub, ENTRY, versions=versions, head=head)(client)


@pytest.mark.parametrize("client", ["reader", "deleter"], ids=["fast", "sdk"])
def test_an_end_that_is_said_both_ways_is_an_error(stub: StubS3, client: str) -> None:
    with pytest.raises(StoreError, match="more than once"):
        given(stub, ENTRY, versions=False, head="<IsTruncated>true</IsTruncated>")(client)


@pytest.mark.parametrize("versions", [False, True])
def test_an_empty_etag_is_none(stub: StubS3, *, versions: bool) -> None:
    (found,) = given(stub, ENTRY.replace("&quot;e&quot;", ""), versions=versions)("reader")
    assert found.etag is None


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [("<VersionId>v", "<VersionId>", "names no object"), ("<IsLatest>true", "<IsLatest>maybe", "'maybe'")],
    ids=["no id", "current or not"],
)
def test_a_version_that_is_not_told_from_the_current_one_is_an_error(
    stub: StubS3, old: str, new: str, word: str
) -> None:
    with pytest.raises(StoreError, match=word):
        given(stub, ENTRY.replace(old, new), versions=True)("reader")


@pytest.mark.parametrize("bucket", ["arn:aws:s3:eu-west-1:123456789012:accesspoint/a", "a-b-s3alias"])
def test_an_access_point_answers_by_its_buckets_name(bucket: str) -> None:
    assert [i.key for p in list_objects(Pages(page("a") | {"Name": "b"}), bucket, "") for i in p] == ["a"]  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["True", "TRUE", "1", "yes", " true", "", None])
@pytest.mark.parametrize("versions", [False, True])
def test_whether_a_listing_goes_on_is_not_guessed(stub: StubS3, word: str | None, *, versions: bool) -> None:
    name = "ListVersionsResult" if versions else "ListBucketResult"
    said = "<IsTruncated/>" if word is None else f"<IsTruncated>{word}</IsTruncated>"
    body = f"<{name}>{said}</{name}>".encode()
    stub.always(answering(200, body), "ListObjectVersions" if versions else "ListObjectsV2")
    listing = list_versions if versions else list_objects
    for client in (reach(stub).reader, connect(stub.client()).reader):
        with pytest.raises(StoreError, match="neither true nor false"):
            list(listing(client, "b", ""))


@pytest.mark.parametrize(
    "entry",
    [
        "<Contents><Key>a</Key><Size>abc</Size></Contents>",
        "<Contents><Key>a</Key><Size/></Contents>",
        "<EncodingType>url</EncodingType><Contents><Size>1</Size></Contents>",
    ],
)
def test_an_entry_that_the_sdk_stumbles_over_is_an_error_of_the_store(stub: StubS3, entry: str) -> None:
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>".encode()
    stub.always(answering(200, body), "ListObjectsV2")
    for client in (reach(stub).reader, reach(stub).deleter):
        with pytest.raises(StoreError, match="Listing s3://b/") as caught:
            list(list_objects(client, "b", ""))
        assert caught.value.hint


@pytest.mark.parametrize(
    "fault",
    [
        answering(200, b""),
        answering(200, b"<html><body>sign in</body></html>", content="text/html"),
        answering(200, b'{"ok":true}'),
        answering(200, b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>"),
        answering(200, b"<ListBucketResult></ListBucketResult>"),
        answering(200, error_body("SlowDown")),
        answering(204),
        refusing(403, "AccessDenied"),
        refusing(500, "InternalError"),
    ],
)
def test_no_wrong_answer_is_an_empty_listing(stub: StubS3, fault: Any) -> None:
    stub.put("b", "a")
    stub.always(fault, "ListObjectsV2")
    with pytest.raises(StoreError) as caught:
        keys(reach(stub).deleter)
    assert caught.value.hint
    with pytest.raises(StoreError):
        next(list_objects(reach(stub).reader, "b", ""))


def test_page_size_two_with_five_objects(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket)
    for name in "abcde":
        server.client().put_object(Bucket=bucket, Key=f"p/{name}", Body=b"x")
    pages = list(list_objects(reach(server).reader, bucket, "p/", page_size=2))
    assert [len(found) for found in pages] == [2, 2, 1]
    assert [item.key for found in pages for item in found] == [f"p/{name}" for name in "abcde"]


def test_the_fast_way_reads_what_the_sdk_reads(server: SeaweedFS | Moto, bucket: str) -> None:
    server.create_bucket(bucket)
    put = server.client()
    for name in ("a b", "c+d", "e%f", "g&<>h", "i\u00e9", "j/k"):
        put.put_object(Bucket=bucket, Key=name, Body=b"xyz")
    connection = reach(server)
    (fast,) = list_objects(connection.reader, bucket, "")
    (slow,) = list_objects(connection.deleter, bucket, "")
    declared = connect(put)
    (parsed,) = list_objects(declared.reader, bucket, "")
    assert fast == slow
    assert [(i.key, i.etag, i.size, instant(i.modified)) for i in fast] == [
        (i.key, i.etag, i.size, instant(i.modified)) for i in parsed
    ]
    assert len(fast) == 6


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.000Z",
        "Fri, 02 Jan 2026 03:04:05 GMT",
        "2026-01-02T04:04:05+01:00",
    ],
)
def test_times_are_read_whatever_the_store_writes(text: str) -> None:
    assert instant(text) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert instant(text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        None,
        object(),
        "Mon",
        "10:30",
        "2020-01-01",
        "2020-W01",
        "0",
        "5",
        "nan",
        "inf",
        "1e400",
    ],
)
def test_what_is_no_time_is_an_error(text: Any) -> None:
    for read in (instant, written):
        with pytest.raises(StoreError, match="LastModified"):
            read(text)


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        datetime(1, 1, 1, tzinfo=UTC),
    ],
)
def test_a_time_that_the_store_does_not_know_is_not_an_old_one(text: Any) -> None:
    for read in (instant, written):
        with pytest.raises(StoreError, match="LastModified"):
            read(text)


def test_a_missing_bucket_says_what_to_check(server: SeaweedFS | Moto) -> None:
    with pytest.raises(StoreError, match="NoSuchBucket") as caught:
        next(list_objects(reach(server).reader, "no-such-bucket-here", "p/"))
    assert "s3://no-such-bucket-here/p/" in str(caught.value)
    assert "bucket's name" in caught.value.hint


def test_a_wrong_secret_says_so(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    wrong = connect(endpoint_url=weed.endpoint, access_key="sdadmin", secret_key="wrong")
    with pytest.raises(StoreError, match="SignatureDoesNotMatch"):
        next(list_objects(wrong.reader, bucket, ""))
    with pytest.raises(StoreError, match="AccessDenied"):
        next(list_objects(reach(weed, NOBODY).reader, bucket, ""))


def test_an_unreachable_endpoint_says_so() -> None:
    client = connect(
        endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s", connect_timeout=0.5
    ).reader
    with pytest.raises(StoreError, match="did not reach the store") as caught:
        next(list_objects(client, "b", ""))
    assert "AWS_ENDPOINT_URL" in caught.value.hint


def version(key: str, number: int, *, latest: bool = False) -> dict[str, Any]:
    when = f"2026-01-01T00:00:{number:02}Z"
    return {
        "Key": key,
        "VersionId": f"v{number}",
        "IsLatest": latest,
        "Size": 1,
        "ETag": '"e"',
        "LastModified": when,
    }


def test_versions_of_a_key_come_together_oldest_first_over_pages() -> None:
    client: Any = Pages(
        {
            "IsTruncated": True,
            "NextKeyMarker": "b",
            "NextVersionIdMarker": "v5",
            "Versions": [version("a", 3), version("a", 1), version("b", 5, latest=True)],
            "DeleteMarkers": [version("a", 4, latest=True)],
        },
        {"IsTruncated": False, "Versions": [version("b", 2), version("c", 9, latest=True)]},
    )
    found = list(by_key(list_versions(client, "b", "")))
    assert [(v[0].key, [e.version for e in v]) for v in found] == [
        ("a", ["v1", "v3", "v4"]),
        ("b", ["v2", "v5"]),
        ("c", ["v9"]),
    ]
    assert client.asked[1]["VersionIdMarker"] == "v5"


@pytest.mark.parametrize("empty", [False, True])
def test_a_key_that_a_page_ends_within_stays_one_key_whatever_order_the_store_lists_in(
    *, empty: bool
) -> None:
    """Folder by folder, ``d/x`` comes before ``d-x``, whose bytes come first."""
    following = {"IsTruncated": True, "NextKeyMarker": "d-x", "NextVersionIdMarker": "v0"}
    client: Any = Pages(
        {
            "IsTruncated": True,
            "NextKeyMarker": "d-x",
            "NextVersionIdMarker": "v8",
            "Versions": [version("d/x", 5, latest=True), version("d-x", 9, latest=True), version("d-x", 8)],
            "DeleteMarkers": [version("d/y", 7, latest=True)],
        },
        *([following] if empty else []),
        {"IsTruncated": False, "Versions": [version("d-x", 2)], "DeleteMarkers": [version("d-x", 3)]},
    )
    found = {v[0].key: [e.version for e in v] for v in by_key(list_versions(client, "b", ""))}
    assert found == {"d/x": ["v5"], "d/y": ["v7"], "d-x": ["v2", "v3", "v8", "v9"]}


@pytest.mark.parametrize("more", [False, True])
def test_keys_come_in_the_order_of_their_listing_wherever_the_markers_end(*, more: bool) -> None:
    following = {"IsTruncated": more, "NextKeyMarker": "d", "NextVersionIdMarker": "v4"}
    page: dict[str, Any] = {
        "Versions": [version(key, number) for number, key in enumerate("abcd", 1)],
        "DeleteMarkers": [version("b", 9)],
    }
    rest: dict[str, Any] = {"IsTruncated": False, "Versions": [version("d", 0), version("e", 5)]}
    client: Any = Pages(page | following, *([rest] if more else []))
    found = [[*{v.key for v in key}] for key in by_key(list_versions(client, "b", ""))]
    assert found == [[key] for key in ("abcde" if more else "abcd")]


def test_a_version_listing_without_a_key_marker_is_an_error() -> None:
    client: Any = Pages({"IsTruncated": True, "Versions": [version("a", 1)]})
    with pytest.raises(StoreError, match="no key marker"):
        list(list_versions(client, "b", ""))


def test_keys_are_decoded_as_aws_encodes_them() -> None:
    """AWS writes a space as a plus sign, and a plus sign as %2B."""
    from safedelete.s3.fastlist import _take_contents

    body = (
        b"<ListBucketResult><IsTruncated>false</IsTruncated><EncodingType>url</EncodingType><Contents>"
        b"<Key>a+b%2Bc%01d</Key><Size>7</Size><ETag>&quot;e&quot;</ETag><Owner><ID>x</ID></Owner>"
        b"<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
    )
    response: dict[str, Any] = {"status_code": 200, "body": body}
    found: dict[str, Any] = {}
    _take_contents(response, found)
    assert found["Contents"] == [
        {"Key": "a b+c\x01d", "Size": 7, "ETag": '"e"', "LastModified": "2026-01-01T00:00:00.000Z"}
    ]
    assert b"EncodingType" not in response["body"]


@pytest.mark.parametrize(
    "body",
    [
        b"<ListBucketResult><Contents><Key>a</Key>",
        b"<!DOCTYPE x><ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        b"<Error><Code>SlowDown</Code></Error>",
        b"<ListBucketResult><CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes></ListBucketResult>",
        b"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
    ],
)
def test_what_the_fast_way_does_not_understand_it_leaves_alone(body: bytes) -> None:
    from safedelete.s3.fastlist import _take_contents

    response: dict[str, Any] = {"status_code": 200, "body": body}
    found: dict[str, Any] = {}
    _take_contents(response, found)
    assert response["body"] == body
    assert not found
