"""The things a plan names: rows by primary key, objects by bucket and key."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = tuple[Any, ...]
"""A primary key: one value a column, in the key's column order, as the driver gave them."""


class ObjectRef(NamedTuple):
    """One S3 object, as exactly as the plan knows it.

    Attributes:
        bucket: Bucket name.
        key: The key, byte for byte as listed or stored; never normalised.
        etag: With its quotes, as S3 returns it; None where the plan does not know it.
        version: VersionId; None for "whatever is current".
        size: Bytes; None where unknown.
    """

    bucket: str
    key: str
    etag: str | None = None
    version: str | None = None
    size: int | None = None


class SealedRow(NamedTuple):
    """One row as it was sealed: its primary key and the objects it named then."""

    key: Key
    objects: tuple[ObjectRef, ...] = ()
