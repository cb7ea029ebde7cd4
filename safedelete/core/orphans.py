"""Hold a bucket's listing against the keys that rows name, in one pass and in constant memory. Pure.

Both sides come in the order of their UTF-8 bytes, which is the order of their code points and so of Python's own
comparison. The order is never assumed: two sorted streams that disagree about it would make orphans of named objects, so
the first key out of place stops the comparison.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from safedelete.core.spelling import spellings
from safedelete.errors import StoreError

T = TypeVar("T")

HALF: Final = 0.5
"""Share of the keys that a column names which must be in the listing, for the two to be about one another."""

FEW: Final = 5
SMALL: Final = 0.01
"""Keys of a column, and share of them, that may be missing while there are objects that no row names. Missing and unnamed
together is what keys in another spelling look like."""


class Listed(NamedTuple, Generic[T]):
    """One key of the listing, with whatever the caller wants back."""

    key: str
    thing: T


class Verdict(StrEnum):
    """What one key is."""

    NAMED = "named"
    """Listed, and a row names it."""
    UNNAMED = "unnamed"
    """Listed, and no row names it."""
    MISSING = "missing"
    """A row names it, and it is not listed."""


class Found(NamedTuple, Generic[T]):
    """One key of either side; ``thing`` is the listing's, None for a key that is missing from it."""

    verdict: Verdict
    key: str
    thing: T | None
    columns: tuple[int, ...] = ()
    """Places of the columns that name it, ascending."""


def compare(listed: Iterable[Listed[T]], named: Sequence[Iterable[str]]) -> Iterator[Found[T]]:
    """Yield every key of both sides once, in order.

    Args:
        listed: The listing, each key once, ascending.
        named: The keys that rows name, one stream for each column, each ascending; a key may be named often.

    Raises:
        StoreError: A stream is not in order; what was yielded so far is not to be used.
    """
    names = _once(merge(*(_ascending(stream, i) for i, stream in enumerate(named))))
    name, columns = next(names, _END)
    last: str | None = None
    for entry in listed:
        if last is not None and entry.key <= last:
            raise _out_of_order("the bucket's listing", last, entry.key)
        last = entry.key
        while name is not None and name < entry.key:
            yield Found(Verdict.MISSING, name, None, columns)
            name, columns = next(names, _END)
        if name == entry.key:
            yield Found(Verdict.NAMED, entry.key, entry.thing, columns)
            name, columns = next(names, _END)
        else:
            yield Found(Verdict.UNNAMED, entry.key, entry.thing)
    while name is not None:
        yield Found(Verdict.MISSING, name, None, columns)
        name, columns = next(names, _END)


_END: Final[tuple[str | None, tuple[int, ...]]] = (None, ())


def _ascending(keys: Iterable[str], column: int) -> Iterator[tuple[str, int]]:
    last: str | None = None
    for key in keys:
        if last is not None and key < last:
            raise _out_of_order(f"referencing column {column + 1}", last, key)
        last = key
        yield key, column


def _once(keys: Iterable[tuple[str, int]]) -> Iterator[tuple[str | None, tuple[int, ...]]]:
    for key, same in groupby(keys, itemgetter(0)):
        yield key, tuple(dict.fromkeys(column for _, column in same))


def _out_of_order(what: str, last: str, key: str) -> StoreError:
    return StoreError(
        f"Keys in the order of their bytes are needed, and {what} gives {key[:200]!r} after {last[:200]!r}; which objects "
        "are named cannot be told from it.",
        hint="A store that lists folder by folder, and a database that sorts by a language's rules, cannot be compared in "
        "one pass. Nothing of the comparison was used.",
    )


class Value(StrEnum):
    """What a value in a key column that is no plain key may mean."""

    KEY = "a key"
    ELSEWHERE = "an object of another bucket"
    UNMATCHED = "an object that cannot be matched"


_S3: Final = re.compile(r"s3://([^/]+)/.", re.IGNORECASE | re.DOTALL)
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]")
_URL: Final = re.compile(r"[a-z][a-z0-9+.\-]*://", re.IGNORECASE)


def meaning(value: object, bucket: str, prefix: str) -> Value:
    """Say what a column's value means to a comparison with one bucket's listing.

    A URL in place of a key names an object all the same, and one that is not understood would be called an orphan. So only
    what clearly lies in another bucket may be left aside.

    Args:
        value: Not NULL and not empty.
        bucket: The bucket compared with: a name, or an access point's ARN.
        prefix: The prefix compared with.
    """
    if not isinstance(value, str):
        return Value.UNMATCHED
    if _URL.match(value):
        s3 = _S3.match(value)
        # An access point (ARN or alias) hides which bucket it is of.
        plain = _BUCKET.fullmatch(bucket) is not None and not bucket.endswith("-s3alias")
        if s3 is None or not plain or not _BUCKET.fullmatch(s3[1]):
            return Value.UNMATCHED
        return Value.ELSEWHERE if s3[1] != bucket and not s3[1].endswith("-s3alias") else Value.UNMATCHED
    return Value.UNMATCHED if value.startswith(mistaken(bucket, prefix)) else Value.KEY


def mistaken(bucket: str, prefix: str) -> tuple[str, ...]:
    """Return beginnings of values that mean a key under the prefix and do not spell it."""
    wrong = (f"/{prefix}", f"{bucket}/{prefix}", f"/{bucket}/{prefix}", *sorted(spellings(prefix)))
    # Of a whole bucket every text is a key; and a folder may have the bucket's name.
    return tuple(text for text in wrong if prefix and not text.startswith(prefix))


def after_all(prefix: str) -> str | None:
    """Return the least text above everything that begins with a prefix; None where there is none."""
    for place in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[place])
        if point < 0x10FFFF:
            # Lone surrogates are no text to a database.
            return prefix[:place] + chr(0xE000 if point == 0xD7FF else point + 1)
    return None
