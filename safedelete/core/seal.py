"""The sealed form of a batch: exact keys, compact, checked when read back.

A batch is one JSON document of columns, compressed with zlib. Integer columns are stored as differences, so a dense
bigint key costs well under 2 bytes; text costs what it compresses to. Object keys are stored in full rather than as
hashes: the row that names an object is about to go, and S3's own audit log omits the keys of a bulk delete, so
the ledger is the only place that can say later what was removed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate, islice, pairwise
from typing import Any, Final
from uuid import UUID

from safedelete.core.item import KeyRows, ObjectRef, Prefix, SealedRow
from safedelete.core.keys import no_prefix
from safedelete.errors import LedgerError

FORMAT: Final = 1
LEVEL: Final = 6
OTHER_KEY: Final = (
    "Sealed are numbers, text, bytes, UUIDs, booleans, dates, times, intervals and network addresses. Declare another unique key "
    "of the table as the model's primary key."
)
LARGEST: Final = 256 * 1024 * 1024
"""Bytes of one batch before compression: a page of zeros can say that it unpacks to a thousand times what it takes."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Sealed rows of one target, in key order."""

    rows: Sequence[SealedRow]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class ObjectBatch:
    """Sealed objects of one prefix target, in listing order."""

    objects: tuple[ObjectRef, ...]

    def __len__(self) -> int:
        return len(self.objects)


@dataclass(frozen=True, slots=True)
class Blob:
    """An encoded batch and the SHA-256 of its bytes."""

    data: bytes
    sha256: str


def encode(batch: RowBatch | ObjectBatch) -> Blob:
    """Turn a batch into its sealed form.

    Raises:
        LedgerError: A key is of a type that would not come back exactly, or of another width than its neighbours'; or the
            batch is larger than what is read back.
    """
    text = json.dumps(_document(batch), separators=(",", ":"), ensure_ascii=True)
    if len(text) > LARGEST:
        raise LedgerError(
            f"A batch of {len(batch):,} items takes {len(text):,} bytes, and at most {LARGEST:,} are sealed. Nothing was deleted.",
            hint="Its keys are very long. Seal fewer items at a time (`Purge(..., per_run=N)`).",
        )
    data = zlib.compress(text.encode("ascii"), LEVEL)
    return Blob(data, hashlib.sha256(data).hexdigest())


def _document(batch: RowBatch | ObjectBatch) -> dict[str, Any]:
    if isinstance(batch, ObjectBatch):
        return {"v": FORMAT, "kind": "objects", "objects": _pack_objects(batch.objects)}
    if isinstance(batch.rows, KeyRows):
        return {
            "v": FORMAT,
            "kind": "rows",
            "key": [_pack(column) for column in batch.rows.columns],
            "counts": [0] * len(batch.rows),
            "objects": _pack_objects(()),
        }
    widths = {len(row.key) for row in batch.rows}
    if len(widths) > 1:
        raise LedgerError(
            f"The keys of one batch have {sorted(widths)} columns; a primary key has one width.",
            hint="Nothing was sealed. This is a defect: report it with the definition of the table.",
        )
    document = {
        "v": FORMAT,
        "kind": "rows",
        "key": [_pack([row.key[i] for row in batch.rows]) for i in range(max(widths, default=0))],
        "counts": [len(row.objects) for row in batch.rows],
        "objects": _pack_objects([ref for row in batch.rows for ref in row.objects]),
    }
    if any(row.prefixes for row in batch.rows):
        document["prefixes"] = [[list(prefix) for prefix in row.prefixes] for row in batch.rows]
    return document


def decode(data: bytes, sha256: str) -> RowBatch | ObjectBatch:
    """Read a sealed batch back.

    Raises:
        LedgerError: The bytes are not those that were sealed, of a newer format, or unpack to more than is ever sealed.
            Nothing can be deleted from a batch that cannot be read.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise LedgerError(
            "A sealed batch in the ledger does not match its checksum.",
            hint="The ledger was damaged or edited. Cancel the run (`safedelete cancel RUN --reason ...`) and plan again.",
        )
    try:
        document = json.loads(_unpacked(data))
        if document["v"] != FORMAT:
            raise LedgerError(
                f"A sealed batch has format {document['v']}; this version reads {FORMAT}.",
                hint="Run the version of safedelete that sealed it, or cancel the run and plan again.",
            )
        batch = _batch(document)
        # Whatever does not lead back to the same document was never written by encode().
        if _document(batch) != document:
            raise ValueError("its parts contradict each other")
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        zlib.error,
    ) as error:
        raise LedgerError(
            f"A sealed batch in the ledger cannot be read: {error!r}.",
            hint="The ledger was damaged or edited. Cancel the run (`safedelete cancel RUN --reason ...`) and plan again.",
        ) from error
    return batch


def _unpacked(data: bytes) -> bytes:
    unpacking = zlib.decompressobj()
    text = unpacking.decompress(data, LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(
            f"its {len(data):,} bytes unpack to more than the {LARGEST:,} that are sealed at most"
        )
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("it does not end where its compressed data end")
    return text


def _batch(document: dict[str, Any]) -> RowBatch | ObjectBatch:
    objects = _unpack_objects(document["objects"])
    if document["kind"] == "objects":
        return ObjectBatch(tuple(objects))
    columns = [_unpack(column) for column in document["key"]]
    keys = list(zip(*columns, strict=True))
    if keys and not objects and "prefixes" not in document:
        if len(document["counts"]) != len(keys):
            raise ValueError("it counts the objects of other rows than it names")
        return RowBatch(KeyRows(columns))
    counts, prefixes = document["counts"], document.get("prefixes")
    if prefixes is None and set(counts) == {1}:
        _alike(keys, counts, objects)
        return RowBatch(tuple(map(SealedRow, keys, zip(objects))))
    ends = list(accumulate(counts, initial=0))
    prefixes = prefixes or [()] * len(keys)
    return RowBatch(
        tuple(
            SealedRow(key, tuple(objects[a:b]), tuple(_prefix(*prefix) for prefix in mine))
            for key, (a, b), mine in zip(keys, pairwise(ends), prefixes, strict=True)
        )
    )


def _prefix(bucket: object, text: object) -> Prefix:
    if not isinstance(bucket, str) or not isinstance(text, str) or no_prefix(text) is not None:
        raise TypeError(f"{text!r} is no prefix")
    return Prefix(bucket, text)


def digest(fingerprint: str, as_of: datetime, checksums: Iterable[str]) -> str:
    """Hash what an approval is bound to: the definition, the instant, and every sealed batch in order."""
    whole = hashlib.sha256(f"{fingerprint}\n{as_of.isoformat()}\n".encode())
    for checksum in checksums:
        whole.update(checksum.encode())
    return whole.hexdigest()


def _pack_objects(refs: Sequence[ObjectRef]) -> dict[str, Any]:
    names, keys, *rest = zip(*refs, strict=True) if refs else ((),) * 5
    buckets = sorted(set(names))
    index = {bucket: i for i, bucket in enumerate(buckets)}
    packed: dict[str, Any] = {"b": buckets, "k": list(keys)}
    if len(buckets) > 1:
        packed["i"] = [index[name] for name in names]
    columns = zip(("e", "r", "s"), rest, strict=True)
    return packed | {name: list(column) for name, column in columns if not set(column) <= {None}}


def _unpack_objects(packed: dict[str, Any]) -> list[ObjectRef]:
    keys, buckets = packed["k"], packed["b"]
    which = packed.get("i")
    names = [buckets[i] for i in which] if which else buckets[:1] * len(keys)
    nothing = [None] * len(keys)
    etags, versions, sizes = (packed.get(name) or nothing for name in ("e", "r", "s"))
    for column, kinds in (
        (names, {str}),
        (keys, {str}),
        (etags, {str, type(None)}),
        (versions, {str, type(None)}),
        (sizes, {int, type(None)}),
    ):
        if not set(map(type, column)) <= kinds:
            raise TypeError("a part of an object reference has a type that none has")
    return list(map(ObjectRef, *_alike(names, keys, etags, versions, sizes)))


def _alike(*columns: list[Any]) -> tuple[list[Any], ...]:
    if len(set(map(len, columns))) > 1:
        raise ValueError("its columns are of several lengths")
    return columns


def unsealable(values: Iterable[Any]) -> list[str]:
    """Return the types, by name, of those values that no key can be sealed with."""
    known = {int, *(cls for cls, _, _ in _CODECS.values())}
    return sorted(
        {type(v).__name__ for v in values if type(v) not in known or (type(v) is time and v.tzinfo)}
    )


def _pack(values: list[Any]) -> dict[str, Any]:
    kinds = {type(value) for value in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is int:
        return {
            "t": "int",
            "v": [values[0], *map(operator.sub, islice(values, 1, None), values)] if values else [],
        }
    for code, (cls, write, _) in _CODECS.items():
        if kind is cls:
            return {"t": code, "v": [write(value) for value in values]}
    codes = {cls: code for code, (cls, _, _) in _CODECS.items()} | {int: "i"}
    if kind is not None or not kinds <= codes.keys():
        raise LedgerError(
            f"A primary key holds values of a type that cannot be sealed: {', '.join(unsealable(values))}. Nothing was deleted.",
            hint=OTHER_KEY,
        )
    mixed = [[codes[type(v)], v if type(v) is int else _CODECS[codes[type(v)]][1](v)] for v in values]
    return {"t": "mixed", "v": mixed}


def _unpack(column: dict[str, Any]) -> list[Any]:
    kind, values = column["t"], column["v"]
    if kind == "int":
        return list(accumulate(values))
    if kind == "mixed":
        return [v if code == "i" else _CODECS[code][2](v) for code, v in values]
    read = _CODECS[kind][2]
    return [read(value) for value in values]


def _same(value: Any) -> Any:
    return value


def _number(value: float | Decimal) -> str:
    if value.is_nan() if isinstance(value, Decimal) else math.isnan(value):
        raise LedgerError(
            "A primary key holds NaN, which equals nothing and cannot be sealed. Nothing was deleted.",
            hint="Give those rows another key, or leave them out of the predicate.",
        )
    return value.hex() if isinstance(value, float) else str(value)


def _clock(value: time) -> str:
    if value.tzinfo is not None:
        # Two of them that are one moment of the day are equal here, and two rows in the database.
        raise LedgerError(
            "A primary key holds times of day with a zone, which cannot be sealed. Nothing was deleted.",
            hint=OTHER_KEY,
        )
    return value.isoformat()


def _span(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


_Codec = tuple[type, Callable[[Any], Any], Callable[[Any], Any]]
_CODECS: Final[dict[str, _Codec]] = {
    "str": (str, _same, _same),
    "bool": (bool, _same, bool),
    "float": (float, _number, float.fromhex),
    "uuid": (UUID, lambda v: v.hex, UUID),
    "dt": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, _clock, time.fromisoformat),
    "span": (timedelta, _span, lambda v: timedelta(*map(operator.index, v))),
    "dec": (Decimal, _number, Decimal),
    "bytes": (bytes, lambda v: base64.b64encode(v).decode("ascii"), base64.b64decode),
}
