"""A sealed batch comes back exactly as it was, or not at all."""

import hashlib
import json
import tracemalloc
import zlib
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safedelete.core import seal
from safedelete.core.item import ObjectRef, Prefix, SealedRow
from safedelete.core.seal import ObjectBatch, RowBatch, decode, digest, encode, unsealable
from safedelete.errors import LedgerError

TEXT = st.text(max_size=30)
ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=3))])
VALUES = {
    int: st.integers(-(2**63), 2**64),
    str: TEXT,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    UUID: st.uuids(),
    datetime: st.datetimes(timezones=ZONES).map(lambda d: d.replace(fold=0)),  # no database stores a fold
    date: st.dates(),
    time: st.times().map(lambda t: t.replace(fold=0)),
    timedelta: st.timedeltas(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False, places=4),
    bytes: st.binary(max_size=40),
}
REFS = st.builds(
    ObjectRef,
    st.sampled_from(["acme-a", "acme-b", "acme-c"]),
    st.text(min_size=1, max_size=40),
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | st.integers(0, 2**50),
)
PREFIXES = st.builds(
    Prefix, st.sampled_from(["acme-a", "acme-b"]), st.sampled_from(["up/1/", "é/", "a b/+/"])
)
MIXED = st.one_of(*VALUES.values())
COLUMN = st.one_of(*(st.just(strategy) for strategy in VALUES.values()), st.just(MIXED))


@st.composite
def row_batches(draw: st.DrawFn) -> RowBatch:
    """Rows under a composite key of one to four columns, each column of one type or of several."""
    columns = draw(st.lists(COLUMN, min_size=1, max_size=4))
    prefixes = st.lists(PREFIXES, max_size=2)
    row = st.tuples(st.tuples(*columns), st.lists(REFS, max_size=3), prefixes)
    rows = draw(st.lists(row, max_size=12))
    return RowBatch(tuple(SealedRow(key, tuple(objects), tuple(below)) for key, objects, below in rows))


def types(batch: RowBatch) -> list[list[type]]:
    return [[type(value) for value in row.key] for row in batch.rows]


@settings(max_examples=150, deadline=None)
@given(row_batches())
def test_rows_come_back_with_the_same_values_and_types(batch: RowBatch) -> None:
    blob = encode(batch)
    back = decode(blob.data, blob.sha256)
    assert back == batch
    assert isinstance(back, RowBatch)
    assert types(back) == types(batch)
    assert repr(back) == repr(batch)  # -0.0, Decimal scales and offsets are equal but not the same


@given(st.lists(REFS, max_size=30))
def test_objects_come_back_with_everything_the_plan_knew(refs: list[ObjectRef]) -> None:
    batch = ObjectBatch(tuple(refs))
    blob = encode(batch)
    assert decode(blob.data, blob.sha256) == batch


@pytest.mark.parametrize("kind", list(VALUES))
def test_every_key_type_survives_alone_and_beside_another(kind: type) -> None:
    @settings(max_examples=40)
    @given(st.lists(VALUES[kind], min_size=1, max_size=8))
    def holds(values: list[object]) -> None:
        for batch in (
            RowBatch(tuple(SealedRow((value,)) for value in values)),
            RowBatch(tuple(SealedRow((i, value)) for i, value in enumerate(values))),
            RowBatch((*(SealedRow((value,)) for value in values), SealedRow((2,)), SealedRow(("2",)))),
        ):
            blob = encode(batch)
            back = decode(blob.data, blob.sha256)
            assert repr(back) == repr(batch)

    holds()


@settings(max_examples=150)
@given(row_batches(), st.data())
def test_damaged_bytes_never_decode_to_something_else(batch: RowBatch, data: st.DataObject) -> None:
    blob = encode(batch)
    at = data.draw(st.integers(0, len(blob.data) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "add", "drop"]))
    flipped = bytes([blob.data[at] ^ data.draw(st.integers(1, 255))])
    damaged = {
        "flip": blob.data[:at] + flipped + blob.data[at + 1 :],
        "cut": blob.data[:at],
        "add": blob.data + b"\0",
        "drop": blob.data[:at] + blob.data[at + 1 :],
    }[how]
    if damaged == blob.data:
        return
    with pytest.raises(LedgerError, match="checksum"):
        decode(damaged, blob.sha256)


@given(st.binary(max_size=200))
def test_any_bytes_under_their_own_checksum_are_refused_as_unreadable(data: bytes) -> None:
    with pytest.raises(LedgerError):
        decode(data, hashlib.sha256(data).hexdigest())


def sealed(document: object) -> tuple[bytes, str]:
    data = zlib.compress(json.dumps(document).encode())
    return data, hashlib.sha256(data).hexdigest()


NONE = {"b": [], "k": []}
ONE = {"b": ["a"], "k": ["x"]}
INTS = {"t": "int", "v": [1, 1]}


@pytest.mark.parametrize(
    "document",
    [
        [],
        "rows",
        7,
        None,
        {},
        {"v": 2, "kind": "rows"},
        {"v": 1},
        {"v": 1, "kind": "rows", "objects": NONE},
        {"v": 1, "kind": "surprise", "key": [INTS], "counts": [0, 0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [INTS], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [INTS, {"t": "int", "v": [1]}], "counts": [0, 0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [INTS], "counts": [0, 0], "objects": ONE},
        {"v": 1, "kind": "rows", "key": [INTS], "counts": [1, 1], "objects": ONE},
        {"v": 1, "kind": "rows", "key": [INTS], "counts": [2, -1], "objects": ONE},
        {"v": 1, "kind": "rows", "key": [{"t": "int", "v": [1, "2"]}], "counts": [0, 0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "int", "v": ["1"]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "int", "v": [1.5]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "str", "v": [1]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "bool", "v": ["no"]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "what", "v": [1]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "uuid", "v": ["xyz"]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "dec", "v": ["x"]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "bytes", "v": ["é"]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "rows", "key": [{"t": "mixed", "v": [["i", "7"]]}], "counts": [0], "objects": NONE},
        {"v": 1, "kind": "objects", "objects": {"b": ["a"], "k": [3]}},
        {"v": 1, "kind": "objects", "objects": {"b": [], "k": ["x"]}},
        {"v": 1, "kind": "objects", "objects": {"b": ["a"], "k": ["x"], "i": [-1]}},
        {"v": 1, "kind": "objects", "objects": {"b": ["a"], "k": ["x", "y"], "e": ["only one"]}},
        {"v": 1, "kind": "objects", "objects": {"b": ["a"], "k": ["x"], "s": ["big"]}},
    ],
)
def test_a_document_of_the_wrong_shape_is_refused(document: object) -> None:
    with pytest.raises(LedgerError) as caught:
        decode(*sealed(document))
    assert caught.value.hint


def test_a_newer_format_names_both_versions() -> None:
    with pytest.raises(LedgerError, match=r"format 2; this version reads 1"):
        decode(*sealed({"v": 2, "kind": "rows"}))


@pytest.mark.parametrize(
    "value", [None, 1j, (1, 2), float("nan"), Decimal("NaN"), Decimal("sNaN"), time(1, tzinfo=UTC)]
)
def test_a_key_that_cannot_be_compared_exactly_is_not_sealed(value: object) -> None:
    with pytest.raises(LedgerError, match="cannot be sealed"):
        encode(RowBatch((SealedRow((value,)),)))
    with pytest.raises(LedgerError, match="cannot be sealed"):
        encode(RowBatch((SealedRow((value,)), SealedRow((1,)))))


def test_what_cannot_be_sealed_is_known_by_its_type_before_anything_is() -> None:
    assert (
        unsealable([1, "a", True, 1.5, time(1), timedelta(1), b"", UUID(int=1), Decimal(1), date.min]) == []
    )
    assert unsealable([1, [2], {}, time(1, tzinfo=UTC), None]) == ["NoneType", "dict", "list", "time"]


def test_rows_with_keys_of_different_widths_are_not_sealed() -> None:
    with pytest.raises(LedgerError, match="columns"):
        encode(RowBatch((SealedRow((1,)), SealedRow((2, 3)))))


def test_a_thousand_dense_keys_cost_less_than_200_bytes() -> None:
    start = 9_000_000_000_000
    dense = encode(RowBatch(tuple(SealedRow((start + i,)) for i in range(1000))))
    assert len(dense.data) < 200


def test_the_digest_changes_with_definition_instant_batch_and_order() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    base = digest("f", at, ["a", "b"])
    assert base == digest("f", at, iter(["a", "b"]))
    others = [
        digest("g", at, ["a", "b"]),
        digest("f", at + timedelta(microseconds=1), ["a", "b"]),
        digest("f", at, ["b", "a"]),
        digest("f", at, ["a"]),
    ]
    assert len({base, *others}) == 5


@pytest.mark.parametrize("text", ["", " ", "/", "/up/", 3, None])
def test_what_is_no_prefix_is_not_read_back_as_one(text: object) -> None:
    blob = encode(RowBatch((SealedRow((1,), (), (Prefix("acme", "up/1/"),)),)))
    document = json.loads(zlib.decompress(blob.data))
    document["prefixes"] = [[["acme", text]]]
    data = zlib.compress(json.dumps(document).encode())
    with pytest.raises(LedgerError):
        decode(data, hashlib.sha256(data).hexdigest())


def test_a_batch_without_prefixes_is_written_as_before() -> None:
    blob = encode(RowBatch((SealedRow((1,), (ObjectRef("acme", "k"),)),)))
    assert "prefixes" not in json.loads(zlib.decompress(blob.data))


def test_a_batch_that_unpacks_to_more_than_is_sealed_is_refused_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = zlib.compress(bytes(64 * 1024 * 1024), 9)
    monkeypatch.setattr(seal, "LARGEST", 1024 * 1024)
    tracemalloc.start()
    try:
        with pytest.raises(LedgerError, match="unpack to more than the 1,048,576 that are sealed"):
            decode(data, hashlib.sha256(data).hexdigest())
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_batch_that_would_not_be_read_back_is_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "LARGEST", 100)
    with pytest.raises(LedgerError, match="at most 100 are sealed"):
        encode(RowBatch(tuple(SealedRow(("x" * 50,)) for _ in range(3))))


@pytest.mark.parametrize(
    "data", [zlib.compress(b"[" * 100_000), zlib.compress(b"{}")[:-1], zlib.compress(b"{}") + b"more"]
)
def test_what_nobody_sealed_is_refused_in_so_many_words(data: bytes) -> None:
    with pytest.raises(LedgerError, match="cannot be read"):
        decode(data, hashlib.sha256(data).hexdigest())
