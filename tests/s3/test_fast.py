"""The fast way on the wire says and reads exactly what the SDK's own way does."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree
from xml.parsers.expat import ExpatError
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedelete.s3 import fastdelete
from safedelete.s3.client import connect
from safedelete.s3.fastdelete import _take_records, send_delete
from safedelete.s3.fastxml import _by_element, _cut_out, read_flat
from safedelete.s3.keys import Lane, lane, refusal
from safedelete.testing.servers import SeaweedFS, StubS3
from tests.s3.support import reach

FIELDS = frozenset({"Key", "Size", "ETag"})
RECORDS = ("Contents",)
HEAD = "<?xml version='1.0' encoding='UTF-8'?>\n<R xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"

words = st.text("ab<>&\"'=/ \r\n\u2028é💥]-!", max_size=6)


@st.composite
def documents(draw: st.DrawFn) -> str:
    def written(text: str) -> str:
        kind = draw(st.integers(0, 9))
        if kind == 0:
            return f"<![CDATA[{text.replace(']]>', '')}]]>"
        if kind == 1:
            return "".join(f"&#{ord(c)};" if c not in "\x00" else c for c in text)
        return escape(text, {'"': "&quot;" if kind < 3 else "&#34;"} if kind < 5 else {}).replace(
            "\r", "&#xD;" if kind < 7 else "\r"
        )

    def element(name: str) -> str:
        extra = draw(st.sampled_from(["", "", "", "", "", "", " ", ' a="b"']))
        return f"<{name}{extra}>{written(draw(words))}</{name}>"

    parts = [HEAD]
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(
            st.sampled_from(["record", "record", "alike", "scalar", "gap", "comment", "nested", "empty"])
        )
        if kind in ("record", "alike"):
            names = draw(st.lists(st.sampled_from(["Key", "Size", "ETag", "Owner", "Keys"]), max_size=4))
            times = 1 if kind == "record" else 3
            parts += [f"<Contents>{''.join(map(element, names))}</Contents>" for _ in range(times)]
        elif kind == "scalar":
            parts.append(element("IsTruncated"))
        elif kind == "nested":
            parts.append(f"<Contents><Owner>{element('Key')}</Owner>{element('Size')}</Contents>")
        else:
            parts.append({"gap": "\n  ", "comment": "<!-- <Contents> -->", "empty": "<Contents/>"}[kind])
    return "".join(parts) + "</R>"


@settings(max_examples=300)
@given(documents())
def test_cutting_out_reads_what_element_by_element_reads(document: str) -> None:
    body = document.encode()
    try:
        slow = _by_element(body, RECORDS, FIELDS)
    except ValueError:
        with pytest.raises(ValueError, match="more than once"):
            read_flat(body, RECORDS, FIELDS)
        return
    found = _cut_out(body, RECORDS, FIELDS)
    if found is None:
        return
    if "<Owner><Key" not in document:
        assert found.records == slow.records
    assert (found.root, found.scalars) == (slow.root, slow.scalars)


def test_records_that_are_not_like_the_first_are_read_as_they_are() -> None:
    first, second = "<Key>a</Key><Size>1</Size>", "<Size>2</Size><Key>b&amp;quot;&#34;</Key>"
    third, fourth = "<Key>c</Key>", "<Key>d</Key><Size>4</Size>stray"
    fifth = "<Key>&lt;&#34;&amp;lt;</Key><Size>5</Size>"
    body = (
        HEAD
        + "".join(f"<Contents>{inside}</Contents>" for inside in (first, second, third, fourth, fifth, third))
        + "</R>"
    )
    found = _cut_out(body.encode(), RECORDS, FIELDS)
    assert found is not None
    assert found.records["Contents"] == [
        {"Key": "a", "Size": "1"},
        {"Size": "2", "Key": 'b&quot;"'},
        {"Key": "c"},
        {"Key": "d", "Size": "4"},
        {"Key": '<"&lt;', "Size": "5"},
        {"Key": "c"},
    ]


def test_a_plain_answer_is_cut_out() -> None:
    body = f"{HEAD}<Contents><Key>a&amp;b</Key><ETag>&quot;e&quot;</ETag></Contents><X>1</X></R>".encode()
    found = _cut_out(body, RECORDS, FIELDS)
    assert found is not None
    assert found.records == {"Contents": [{"Key": "a&b", "ETag": '"e"'}]}
    assert (found.root, found.scalars) == ("R", {"X": "1"})
    for end in (' encoding="utf-8" standalone="yes"?>', " ?>", "?>"):
        assert _cut_out(f'<?xml version="1.0"{end}<R></R>'.encode(), RECORDS, FIELDS) is not None


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "iso-8859-1", "US-ASCII"])
def test_an_answer_in_another_encoding_is_read_in_that(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><R><Contents><Key>Ã©</Key></Contents></R>'
    body = text.encode("latin-1")
    assert _cut_out(body, RECORDS, FIELDS) is None
    if "8859" in encoding:
        assert read_flat(body, RECORDS, FIELDS).records == {"Contents": [{"Key": "Ã©"}]}


@pytest.mark.parametrize(
    "document",
    [
        f"{HEAD}<Contents><Key>a</Key></Contents>",
        f"{HEAD}<Contents><Key>a</Contents></Key></R>",
        f"{HEAD}<Contents><Key>&nope;</Key></Contents></R>",
        f"{HEAD}<Contents><Key>&#1;</Key></Contents></R>",
        "<R><Contents></Contents></R><R/>",
        "",
        "<html><br></html>",
    ],
)
def test_what_is_not_well_formed_is_an_error_either_way(document: str) -> None:
    with pytest.raises(ExpatError):
        read_flat(document.encode(), RECORDS, FIELDS)


def test_a_document_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="document type"):
        read_flat(
            b"<!DOCTYPE R [<!ENTITY k 'x'>]><R><Contents><Key>&k;</Key></Contents></R>", RECORDS, FIELDS
        )


def body_of(client: Any, objects: list[dict[str, str]], *, fast: bool) -> bytes:
    """Return what would go on the wire."""
    bodies: list[bytes] = []

    def stop(request: Any, **_: Any) -> Any:
        bodies.append(bytes(request.body))
        raise ConnectionError

    client.meta.events.register_first("before-send.s3.DeleteObjects", stop, unique_id="stop")
    try:
        with pytest.raises(ConnectionError):
            if fast:
                send_delete(client, "bkt", objects)  # type: ignore[arg-type]
            else:
                client.delete_objects(Bucket="bkt", Delete={"Objects": objects, "Quiet": False})
    finally:
        client.meta.events.unregister("before-send.s3.DeleteObjects", unique_id="stop")
    return bodies[0]


marked = st.sampled_from("&<>\"'\x7f\x85\u2028 ]é+%/.")
keys = st.text(marked | st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(
    lambda k: refusal(k) is None and lane(k) is Lane.BATCH
)
CLIENT = connect(endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s").deleter


def meant(body: bytes) -> list[tuple[str, list[tuple[str, str | None]]]]:
    root = ElementTree.fromstring(body)
    return [(child.tag, [(c.tag, c.text) for c in child] or [("", child.text)]) for child in root]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(keys, st.none() | keys, st.none() | keys), min_size=1, max_size=5))
def test_a_delete_is_written_as_the_sdk_writes_it(entries: list[tuple[str, str | None, str | None]]) -> None:
    objects = [
        {"Key": key} | ({"VersionId": version} if version else {}) | ({"ETag": etag} if etag else {})
        for key, version, etag in entries
    ]
    assert meant(body_of(CLIENT, objects, fast=True)) == meant(body_of(CLIENT, objects, fast=False))


def test_a_delete_whose_body_is_not_put_in_names_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s").deleter
    client.meta.events.unregister("before-call.s3.DeleteObjects", unique_id="safedelete-fast-delete")
    body = body_of(client, [{"Key": "a"}, {"Key": "b"}], fast=True)
    assert b"Key" not in body
    assert b"Object" not in body


def test_a_declared_client_is_asked_the_usual_way(stub: StubS3) -> None:
    stub.put("bkt", "a")
    answer = send_delete(stub.client(), "bkt", [{"Key": "a"}])
    assert [item["Key"] for item in answer["Deleted"]] == ["a"]


def test_a_body_is_put_into_no_request_but_its_own(stub: StubS3) -> None:
    for key in "ab":
        stub.put("bkt", key)
    client = reach(stub).deleter
    send_delete(client, "bkt", [{"Key": "a"}])
    client.delete_objects(Bucket="bkt", Delete={"Objects": [{"Key": "b"}]})
    assert [[e.key for e in r.entries] for r in stub.requests] == [["a"], ["b"]]
    assert fastdelete._body.get() is None


ANSWER = (
    "<DeleteResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'><Deleted><Key>a&amp;b</Key><VersionId>v</VersionId>"
    "<DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>m</DeleteMarkerVersionId></Deleted>"
    "<Error><Key>c</Key><Code>AccessDenied</Code><Message>no &lt;way&gt;</Message></Error><Deleted><Key>d</Key></Deleted>"
    "</DeleteResult>"
)


def test_an_answer_is_read_as_the_sdk_reads_it() -> None:
    found: dict[str, Any] = {}
    response: dict[str, Any] = {"status_code": 200, "body": ANSWER.encode()}
    _take_records(response, found)
    assert found == {
        "Deleted": [
            {"Key": "a&b", "VersionId": "v", "DeleteMarker": True, "DeleteMarkerVersionId": "m"},
            {"Key": "d"},
        ],
        "Errors": [{"Key": "c", "Code": "AccessDenied", "Message": "no <way>"}],
    }


@pytest.mark.parametrize(
    "body",
    [
        "<Error><Code>SlowDown</Code></Error>",
        "<DeleteResult><Deleted><Key>a</Key></Deleted>",
        "<DeleteResult><Other>1</Other></DeleteResult>",
        "<DeleteResult><Deleted><Key>a</Key><DeleteMarker>maybe</DeleteMarker></Deleted></DeleteResult>",
        "<html></html>",
        "",
    ],
)
def test_an_answer_that_is_not_plain_is_left_to_the_sdk(body: str) -> None:
    found: dict[str, Any] = {}
    response: dict[str, Any] = {"status_code": 200, "body": body.encode()}
    _take_records(response, found)
    assert response["body"] == body.encode()
    assert not found


def test_every_page_of_a_listing_goes_the_fast_way(
    weed: SeaweedFS, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.parsers import RestXMLParser

    weed.create_bucket(bucket)
    for name in "abcde":
        weed.client().put_object(Bucket=bucket, Key=f"p/{name}", Body=b"")
    reader = reach(weed).reader
    parsed: list[bytes] = []
    whole = RestXMLParser._parse_xml_string_to_dom

    def spy(self: Any, text: Any) -> Any:
        parsed.append(text)
        return whole(self, text)

    monkeypatch.setattr(RestXMLParser, "_parse_xml_string_to_dom", spy)
    token: dict[str, Any] = {}
    for _ in range(3):
        answer = reader.list_objects_v2(Bucket=bucket, Prefix="p/", MaxKeys=2, **token)
        token = {"ContinuationToken": answer.get("NextContinuationToken", "")}
    assert parsed
    assert not [text for text in parsed if b"<Contents>" in text]
