"""Each odd key is deleted alone, and its neighbours that look like it survive."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.s3.delete import delete_objects
from safedelete.s3.listing import list_objects
from safedelete.testing.servers import Moto, SeaweedFS, StubS3
from tests.s3.support import FakeClock, Gate, reach

ODD = [
    "plain",
    "with space",
    " leading space",
    "trailing space ",
    "plus+plus",
    "per%cent",
    "per%20cent",
    "question?mark",
    "hash#mark",
    "amp&amp",
    "less<than",
    "greater>than",
    'quo"te',
    "apos'trophe",
    "back\\slash",
    "semi;colon",
    "co:lon",
    "st*r",
    "pi|pe",
    "til~de",
    "/leading/slash",
    "trailing/slash/",
    "double//slash",
    "dot/./segment",
    "dots/../segment",
    "...",
    "tab\there",
    "new\nline",
    "carriage\rreturn",
    "control\x01char",
    "escape\x1bchar",
    "del\x7fete",
    "nel\x85here",
    "ls\u2028here",
    "caf\u00e9",
    "cafe\u0301",
    "emoji\U0001f600",
    "noncharacter\uffff",
    "x" * 1024,
]


def test_there_are_39_of_them() -> None:
    assert len(set(ODD)) == 39


def listed(client: Any, bucket: str) -> set[str]:
    return {item.key for page in list_objects(client, bucket, "") for item in page}


def lookalikes(key: str) -> set[str]:
    """Return keys that a careless normalisation would take this one for."""
    found = {
        key.strip(),
        key.replace("\\", "/"),
        key.replace("//", "/"),
        key.lstrip("/"),
        key.rstrip("/"),
        key.replace("+", " "),
        key.replace(" ", "+"),
        key.replace("%20", " "),
        key.replace("\r", "\n"),
        key.replace("/./", "/"),
        key.replace("dots/../", ""),
        key[:-1],
        "neighbour",
    }
    return {k for k in found if k and k != key}


@pytest.mark.parametrize("key", ODD, ids=ascii)
def test_an_odd_key_goes_alone_on_a_faithful_store(stub: StubS3, key: str) -> None:
    others = (lookalikes(key) | set(ODD)) - {key}
    for name in [*others, key]:
        stub.put("odd", name)
    outcomes = delete_objects(
        reach(stub).deleter, "odd", [ObjectRef("odd", key)], gate=Gate(), clock=FakeClock()
    )
    assert [o.state for o in outcomes.values()] == [Outcome.DELETED]
    assert stub.keys("odd") == others


def test_all_odd_keys_are_listed_as_they_are(stub: StubS3) -> None:
    for key in ODD:
        stub.put("odd", key)
    connection = reach(stub)
    assert listed(connection.reader, "odd") == set(ODD)
    assert listed(connection.deleter, "odd") == set(ODD), "the SDK's own parser sees the same"


@pytest.mark.parametrize("kind", ["moto", "weed"])
def test_odd_keys_on_a_real_store(kind: str, request: pytest.FixtureRequest, bucket: str) -> None:
    """What the store keeps as it was given is deleted alone; what it alters is left out, and said so."""
    server: Moto | SeaweedFS = request.getfixturevalue(kind)
    server.create_bucket(bucket)
    connection = reach(server)
    put = server.client()
    every = dict.fromkeys([*ODD, *(like for odd in ODD for like in sorted(lookalikes(odd)))])
    for key in every:
        try:
            put.put_object(Bucket=bucket, Key=key, Body=b"x")
        except ClientError:
            continue  # the store refuses such a key, so nobody can have one there
    there = listed(connection.reader, bucket)
    faithful = [key for key in ODD if key in there]
    assert len(faithful) >= 28
    for key in faithful:
        outcomes = delete_objects(
            connection.deleter, bucket, [ObjectRef(bucket, key)], gate=Gate(), clock=FakeClock()
        )
        assert [o.state for o in outcomes.values()] == [Outcome.DELETED], key
        there.discard(key)
        assert listed(connection.reader, bucket) == there, key
