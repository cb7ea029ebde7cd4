"""Which objects rows still name: an object that several rows may name goes only with the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from safedelete.core.item import ObjectRef
from safedelete.sql.keys import matching
from safedelete.sql.owned import OwnedObjects

CHUNK: Final = 1_000
"""Keys a query: below every database's limit of parameters."""


def named(connection: Connection, owned: OwnedObjects, refs: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Return those objects that any row names, as this connection sees the table. Reads only.

    Args:
        connection: Within the batch's transaction, rows it has deleted no longer name anything.
        owned: The target's key expressions; each needs an index to be found quickly.
        refs: The objects asked about.
    """
    found: set[tuple[str, str]] = set()
    for spot in owned.spots:
        keys = sorted({ref.key for ref in refs if ref.bucket == spot.keys.bucket})
        for start in range(0, len(keys), CHUNK):
            wanted = matching(spot.expression, keys[start : start + CHUNK], connection.dialect)
            answer = connection.execute(select(spot.expression).where(wanted).distinct())
            found.update((spot.keys.bucket, key) for key in answer.scalars())
    return [ref for ref in refs if (ref.bucket, ref.key) in found]
