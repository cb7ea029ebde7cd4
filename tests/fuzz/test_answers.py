"""S3's answers, byte by byte: an object counts as gone only when a well-formed answer says so of it, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from botocore.awsrequest import AWSResponse, HeadersDict
from hypothesis import example, given
from hypothesis import strategies as st

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.errors import StoreError
from safedelete.s3.client import connect
from safedelete.s3.delete import delete_objects
from safedelete.s3.effort import Effort
from safedelete.s3.listing import list_objects, list_versions
from safedelete.testing.memory import ManualClock
from tests.fuzz import FUZZ
from tests.fuzz.edits import edited

KEYS = ("up/1.jpg", "up/2.jpg", "up/&.jpg")
DELETED = b"""<?xml version="1.0" encoding="UTF-8"?>
<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Deleted><Key>up/1.jpg</Key></Deleted><Deleted>\
<Key>up/2.jpg</Key></Deleted><Error><Key>up/&amp;.jpg</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>"""
LISTED = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>up/</Prefix><KeyCount>2</KeyCount>\
<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated><Contents><Key>up/1.jpg</Key><LastModified>2026-01-01T00:00:00.000Z\
</LastModified><ETag>&quot;e1&quot;</ETag><Size>3</Size></Contents><Contents><Key>up/2.jpg</Key>\
<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e2&quot;</ETag><Size>3</Size></Contents></ListBucketResult>"""
VERSIONS = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListVersionsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>up/</Prefix><IsTruncated>false\
</IsTruncated><Version><Key>up/1.jpg</Key><VersionId>v1</VersionId><IsLatest>true</IsLatest>\
<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e1&quot;</ETag><Size>3</Size></Version><DeleteMarker>\
<Key>up/2.jpg</Key><VersionId>v2</VersionId><IsLatest>true</IsLatest><LastModified>2026-01-01T00:00:00.000Z</LastModified>\
</DeleteMarker></ListVersionsResult>"""
WORDS = (
    b"<Deleted>", b"</Deleted>", b"<Error>", b"</Error>", b"<Key>up/1.jpg</Key>", b"<Key>up/3.jpg</Key>", b"<Key/>",
    b"<Code>SlowDown</Code>", b"<Code>NoSuchKey</Code>", b"<DeleteMarker>true</DeleteMarker>", b"<!--", b"-->",
    b"<![CDATA[", b"]]>", b"&#0;", b"&nope;", b"<!DOCTYPE x>", b"\xff", b"<IsTruncated>true</IsTruncated>", b"true", b"<html>",
)  # fmt: skip
HEAD, TAIL = DELETED[: DELETED.index(b"<Deleted>")], b"</DeleteResult>"
FIELD = st.sampled_from(
    [*(f"<Key>{key.replace('&', '&amp;')}</Key>".encode() for key in (*KEYS, "up/3.jpg")), *WORDS[6:10], b""]
)
RECORD = st.builds(
    lambda name, fields: b"<%b>%b</%b>" % (name, b"".join(fields), name),
    st.sampled_from([b"Deleted", b"Deleted", b"Error", b"Other"]),
    st.lists(FIELD, max_size=3),
)
WHOLE = st.lists(RECORD, max_size=4).map(lambda records: HEAD + b"".join(records) + TAIL)
"""Well-formed, and saying anything."""
# Not 301: the SDK then asks for the region in a circle, which tests/e2e has.
STATUSES = st.sampled_from([200, 200, 200, 200, 204, 206, 403, 404, 412, 500, 503])
CONNECTION = connect(endpoint_url="http://127.0.0.1:1", access_key="k", secret_key="s")


class Raw:
    """A response's body, as urllib3 would give it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        yield self._body


@contextmanager
def answered(client: Any, answer: Callable[[], tuple[int, bytes]]) -> Iterator[None]:
    """Have every request of a client answered without a wire."""

    def send(request: Any, **_: Any) -> AWSResponse:
        status, body = answer()
        headers = HeadersDict({"Content-Type": "application/xml", "Content-Length": str(len(body))})
        return AWSResponse(request.url, status, headers, Raw(body))

    client.meta.events.register_first("before-send.s3", send, unique_id="fuzz")
    try:
        yield
    finally:
        client.meta.events.unregister("before-send.s3", unique_id="fuzz")


def read(body: bytes) -> ElementTree.Element:
    """Read XML as S3 writes it, in UTF-8, whatever its first line claims."""
    return ElementTree.fromstring(body, ElementTree.XMLParser(encoding="utf-8"))


def said_gone(body: bytes) -> Counter[str]:
    """What a plain reader of XML finds to be gone, by key: the oracle."""
    try:
        root = read(body)
    except (ElementTree.ParseError, ValueError):
        return Counter()
    found: Counter[str] = Counter()
    for item in root.iter():
        name = item.tag.rpartition("}")[2]
        if name in ("Deleted", "Error"):
            fields = {child.tag.rpartition("}")[2]: child.text for child in item}
            if name == "Deleted" or fields.get("Code") in ("NoSuchKey", "NoSuchVersion"):
                found[fields.get("Key") or ""] += 1
    return found


# What has been found: an error with nothing in it or an element in its code, and an encoding that nobody knows.
@FUZZ
@example([(403, HEAD + b"<Error></Error>" + TAIL)])
@example([(403, HEAD + b"<Error><Code><Key>a</Key></Code></Error>" + TAIL)])
@example([(200, DELETED.replace(b"UTF-8", b"no-such-8"))])
@given(st.lists(st.tuples(STATUSES, st.one_of(WHOLE, edited(DELETED, WORDS))), min_size=1, max_size=3))
def test_only_what_a_whole_answer_names_counts_as_deleted(answers: list[tuple[int, bytes]]) -> None:
    turns = iter(answers * 20)
    asked = [ObjectRef("b", key) for key in KEYS]
    with answered(CONNECTION.deleter, lambda: next(turns)):
        outcomes = delete_objects(
            CONNECTION.deleter,
            "b",
            asked,
            gate=lambda: None,
            clock=ManualClock(),
            effort=Effort(attempts=2, jitter=lambda: 0.0),
        )
    assert list(outcomes) == asked
    believable = Counter[str]()
    for status, body in answers:
        # An error of a whole request for one key speaks of that key.
        if status < 300 or status == 404:
            believable += said_gone(body)
    missing = any(status == 404 for status, _ in answers)
    for ref, outcome in outcomes.items():
        if outcome.state in (Outcome.DELETED, Outcome.GONE):
            assert believable[ref.key] or missing, (ref.key, outcome, answers)
            assert outcome.state is Outcome.GONE or believable[ref.key]


@FUZZ
@given(STATUSES.filter(lambda status: status < 500), edited(LISTED, WORDS), edited(VERSIONS, WORDS))
def test_a_listing_is_read_whole_or_refused(status: int, listed: bytes, versions: bytes) -> None:
    for lister, body, tags in (
        (list_objects, listed, ("Contents",)),
        (list_versions, versions, ("Version", "DeleteMarker")),
    ):
        try:
            with answered(CONNECTION.reader, lambda body=body: (status, body)):
                found = [item.key for page in lister(CONNECTION.reader, "b", "up/") for item in page]
        except StoreError as error:
            assert error.hint
            continue
        assert status < 300
        root = read(body)
        named = [item.find("{*}Key") for item in root if item.tag.rpartition("}")[2] in tags]
        assert sorted(found) == sorted(key.text or "" for key in named if key is not None)
        assert all(key.startswith("up/") for key in found)
