"""Objects in memory that no row in memory names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from safedelete.core.item import ObjectRef
from safedelete.ports import Values
from safedelete.testing.memory.objects import MemoryObjects, MemoryPrefix
from safedelete.testing.memory.rows import MemoryTable


class MemoryReferences:
    """What the rows of some tables name under one prefix. Implements ``ports.References``.

    Args:
        tables: Whose rows name objects.
        bucket: Bucket.
        prefix: Leading characters of the keys.
    """

    def __init__(self, tables: Sequence[MemoryTable], bucket: str, prefix: str) -> None:
        self.tables = tuple(tables)
        self.bucket = bucket
        self.prefix = prefix

    def values(self) -> Values:
        """Name the tables without a row; rows in memory hold nothing but keys. Reads only."""
        return Values(empty=tuple(table.name for table in self.tables if not table.rows))

    def streams(self) -> Sequence[Iterator[str]]:
        """Return the keys under the prefix in byte order, one stream for each table. Reads only."""
        return [iter(sorted(self._keys(table))) for table in self.tables]

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row names now. Reads only."""
        keys = {key for table in self.tables for key in self._keys(table)}
        return [ref for ref in refs if ref.bucket == self.bucket and ref.key in keys]

    def _keys(self, table: MemoryTable) -> list[str]:
        every = (ref for row in table.rows.values() for ref in row.objects)
        return [ref.key for ref in every if ref.bucket == self.bucket and ref.key.startswith(self.prefix)]


class MemoryOrphans(MemoryPrefix):
    """The objects under a prefix that no row names and that are older than an age. Implements ``ports.ObjectTarget``.

    Args:
        objects: Where they are.
        references: What rows name.
        older_than: Age; an object exactly that old stays.
    """

    def __init__(
        self, objects: MemoryObjects, references: MemoryReferences, *, older_than: timedelta
    ) -> None:
        super().__init__(objects, references.bucket, references.prefix, older_than=older_than)
        self.references = references

    @property
    def name(self) -> str:
        """``orphans of s3://bucket/prefix``."""
        return f"orphans of {super().name}"

    def _eligible(self, as_of: datetime) -> list[str]:
        old = super()._eligible(as_of)
        named = {ref.key for ref in self.references.named([ObjectRef(self.bucket, key) for key in old])}
        return [key for key in old if key not in named]
