"""Which objects rows still name: an object that several rows may name goes only with the last of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, select

from safedelete.core.item import ObjectRef, Prefix
from safedelete.core.keys import ancestors, as_prefix
from safedelete.sql.keys import matching
from safedelete.sql.owned import OwnedObjects, Spot
from safedelete.sql.referenced import Column

CHUNK: Final = 1_000
"""Keys a query: below every database's limit of parameters."""


def named(connection: Connection, owned: OwnedObjects, refs: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Return those objects that any row names, as this connection sees the table. Reads only.

    Args:
        connection: Within the batch's transaction, rows it has deleted no longer name anything.
        owned: The target's key and prefix expressions; each needs an index to be found quickly.
        refs: The objects asked about.
    """
    found: set[tuple[str, str]] = set()
    prefixes: set[Prefix] = set()
    for spot in owned.spots:
        bucket = spot.keys.bucket
        keys = {ref.key for ref in refs if ref.bucket == bucket}
        if spot.prefix:
            answers = _stored(connection, spot, _spellings(keys))
            prefixes.update(Prefix(bucket, as_prefix(text)) for text in answers)
        else:
            found.update((bucket, key) for key in _stored(connection, spot, keys))
    return [
        ref
        for ref in refs
        if (ref.bucket, ref.key) in found
        or any(Prefix(ref.bucket, above) in prefixes for above in (ancestors(ref.key) if prefixes else ()))
    ]


def _stored(connection: Connection, spot: Spot, values: Collection[str]) -> Iterator[str]:
    ordered = sorted(values)
    # Distinct by bytes as well: a collation that is blind to case would otherwise answer with one spelling of two, and
    # the other object would seem to be named by nobody.
    columns = (spot.expression, Column(spot.expression, connection.dialect).bytes)
    for start in range(0, len(ordered), CHUNK):
        wanted = matching(spot.expression, ordered[start : start + CHUNK], connection.dialect)
        yield from connection.execute(select(*columns).where(wanted).distinct()).scalars()


def _spellings(keys: Iterable[str]) -> set[str]:
    """Return every way in which a prefix above one of these keys may be stored: with its slash and without."""
    found: set[str] = set()
    for key in keys:
        for above in ancestors(key):
            found |= {above, above[:-1]} if above[:-1] else {above}
    return found
