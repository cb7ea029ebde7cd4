"""The things a plan names: rows by primary key, objects by bucket and key."""

from __future__ import annotations

from collections.abc import Sequence
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


class Prefix(NamedTuple):
    """Everything below a place in a bucket; the text ends with a slash, so that it means whole path segments."""

    bucket: str
    text: str


class SealedRow(NamedTuple):
    """One row as it was sealed.

    Attributes:
        key: Its primary key.
        objects: The objects it named then, and those found below its prefixes.
        prefixes: Its prefixes then. What lies below them now and is not among ``objects`` has appeared since.
    """

    key: Key
    objects: tuple[ObjectRef, ...] = ()
    prefixes: tuple[Prefix, ...] = ()

    def below(self) -> tuple[ObjectRef, ...]:
        """Return the objects that lie below its prefixes."""
        return tuple(ref for ref in self.objects if within(ref, self.prefixes))


def within(ref: ObjectRef, prefixes: Sequence[Prefix]) -> bool:
    """Whether an object lies below one of these prefixes."""
    return any(ref.bucket == prefix.bucket and ref.key.startswith(prefix.text) for prefix in prefixes)
