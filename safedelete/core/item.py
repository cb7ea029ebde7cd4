"""The things a plan names: rows by primary key, objects by bucket and key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

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


class KeyRows(Sequence[SealedRow]):
    """Rows that own nothing, kept as the columns of their keys; a row is made when it is asked for.

    Most purged rows own nothing, and a million objects made for nobody cost more than deleting the rows.
    """

    __hash__ = None  # type: ignore[assignment]  # its columns are lists
    __slots__ = ("columns",)

    def __init__(self, columns: Sequence[list[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    @overload
    def __getitem__(self, index: int) -> SealedRow: ...
    @overload
    def __getitem__(self, index: slice) -> KeyRows: ...
    def __getitem__(self, index: int | slice) -> SealedRow | KeyRows:
        if isinstance(index, slice):
            return KeyRows([column[index] for column in self.columns])
        return SealedRow(tuple(column[index] for column in self.columns))

    def __iter__(self) -> Iterator[SealedRow]:
        return map(SealedRow, zip(*self.columns, strict=True))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, KeyRows):
            return list(self.columns) == list(other.columns)
        return isinstance(other, tuple) and tuple(self) == other

    def __repr__(self) -> str:
        return repr(tuple(self))

    def keys(self) -> list[Key]:
        """Return every row's key, in order."""
        return list(zip(*self.columns, strict=True))


def within(ref: ObjectRef, prefixes: Sequence[Prefix]) -> bool:
    """Whether an object lies below one of these prefixes."""
    return any(ref.bucket == prefix.bucket and ref.key.startswith(prefix.text) for prefix in prefixes)
