"""What no row names is exactly the listing less the rows, in one pass over both, and never by an order that was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.orphans import Listed, Value, Verdict, after_all, compare, meaning
from safedelete.errors import StoreError

ODD = [
    "a",
    "a/",
    "a b",
    "a+b",
    "a%20b",
    "A",
    "a\tb",
    "a\x01",
    "\u00e9",
    "e\u0301",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\uffff/x",
    "\U00010000",
    "\U0001f600",
    "\U0010ffff",
    "z/\u4e2d",
]
KEYS = st.one_of(
    st.sampled_from(ODD), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
)


def in_bytes(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=str.encode)


def listing(keys: Iterable[str]) -> Iterator[Listed[str]]:
    return (Listed(key, key.upper()) for key in in_bytes(set(keys)))


@given(st.sets(KEYS), st.lists(st.lists(KEYS), max_size=4))
def test_orphans_are_the_listing_less_the_rows_exactly(listed: set[str], columns: list[list[str]]) -> None:
    found = list(compare(listing(listed), [iter(in_bytes(column)) for column in columns]))
    named = {key for column in columns for key in column}
    by = {verdict: [f.key for f in found if f.verdict is verdict] for verdict in Verdict}
    assert by[Verdict.UNNAMED] == in_bytes(listed - named)
    assert by[Verdict.NAMED] == in_bytes(listed & named)
    assert by[Verdict.MISSING] == in_bytes(named - listed)
    assert [f.key for f in found] == in_bytes(listed | named)
    assert all(f.thing == (None if f.verdict is Verdict.MISSING else f.key.upper()) for f in found)


@given(st.lists(KEYS, unique=True, min_size=2), st.data())
def test_a_listing_out_of_byte_order_stops_the_comparison(keys: list[str], data: st.DataObject) -> None:
    wrong = data.draw(st.permutations(keys))
    if wrong == in_bytes(keys):
        wrong = wrong[::-1]
    with pytest.raises(StoreError, match="order of their bytes"):
        list(compare((Listed(key, None) for key in wrong), []))


@given(st.lists(KEYS, unique=True, min_size=2), st.data())
def test_a_column_out_of_byte_order_stops_the_comparison(keys: list[str], data: st.DataObject) -> None:
    wrong = data.draw(st.permutations(keys))
    if wrong == in_bytes(keys):
        wrong = wrong[::-1]
    with pytest.raises(StoreError, match="referencing column 2"):
        list(compare(listing(keys), [iter(()), iter(wrong)]))


def test_utf16_order_is_not_byte_order() -> None:
    # What a database with UTF-16 inside gives, and what a store that sorts by it would list.
    wrong = ["\U00010000", "\uffff"]
    with pytest.raises(StoreError, match="byte"):
        list(compare((Listed(key, None) for key in wrong), []))


def test_a_listing_that_names_a_key_twice_is_none() -> None:
    with pytest.raises(StoreError, match="order of their bytes"):
        list(compare([Listed("a", 1), Listed("a", 2)], []))


def test_both_sides_are_read_as_they_are_needed() -> None:
    endless = (Listed(f"{number:09}", None) for number in count())
    names = (f"{number:09}" for number in count(0, 2))
    found = list(islice(compare(endless, [names]), 100_000))
    assert sum(f.verdict is Verdict.UNNAMED for f in found) == 50_000


@pytest.mark.parametrize(
    ("value", "bucket", "expected"),
    [
        ("u/1.jpg", "acme", Value.KEY),
        ("u/a://b", "acme", Value.KEY),
        ("s3://other/u/1.jpg", "acme", Value.ELSEWHERE),
        ("S3://other/u/1.jpg", "acme", Value.ELSEWHERE),
        ("s3://acme/u/1.jpg", "acme", Value.UNMATCHED),
        ("s3://ACME/u/1.jpg", "acme", Value.UNMATCHED),
        ("s3:///u/1.jpg", "acme", Value.UNMATCHED),
        ("s3://other", "acme", Value.UNMATCHED),
        ("s3://other/", "acme", Value.UNMATCHED),
        ("s3://${BUCKET}/u/1.jpg", "acme", Value.UNMATCHED),
        ("s3://alias-abc-s3alias/u/1.jpg", "acme", Value.UNMATCHED),
        ("s3://other/u/1.jpg", "arn:aws:s3:eu-west-1:1:accesspoint/ap", Value.UNMATCHED),
        ("s3://other/u/1.jpg", "ap-abc-s3alias", Value.UNMATCHED),
        ("https://other.s3.amazonaws.com/u/1.jpg", "acme", Value.UNMATCHED),
        ("HTTP://cdn.example/u/1.jpg", "acme", Value.UNMATCHED),
        ("/u/1.jpg", "acme", Value.UNMATCHED),
        ("acme/u/1.jpg", "acme", Value.UNMATCHED),
        ("/acme/u/1.jpg", "acme", Value.UNMATCHED),
        ("/v/1.jpg", "acme", Value.KEY),
        ("u/u/1.jpg", "u-u", Value.KEY),
        (b"u/1.jpg", "acme", Value.UNMATCHED),
        (17, "acme", Value.UNMATCHED),
    ],
)
def test_only_what_clearly_lies_elsewhere_is_left_aside(value: object, bucket: str, expected: Value) -> None:
    assert meaning(value, bucket, "u/") is expected


def test_a_folder_may_have_the_name_of_its_bucket() -> None:
    assert meaning("uploads/uploads/1", "uploads", "uploads/") is Value.KEY
    assert meaning("uploads/1", "uploads", "") is Value.KEY


@given(KEYS, KEYS)
def test_what_begins_with_a_prefix_lies_below_its_end(prefix: str, rest: str) -> None:
    above = after_all(prefix)
    assert above is None or prefix.encode() <= (prefix + rest).encode() < above.encode()


@given(KEYS, KEYS)
def test_what_lies_between_begins_with_the_prefix(prefix: str, key: str) -> None:
    above = after_all(prefix)
    if prefix.encode() <= key.encode() and (above is None or key.encode() < above.encode()):
        assert key.startswith(prefix)
