"""What rows name, for a purge of the objects that none names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from safedelete.core.item import ObjectRef


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """What one referencing column holds.

    Attributes:
        name: The column.
        values: Values that are neither NULL nor empty and name no object of another bucket.
        under: Of those, that begin with the prefix.
    """

    name: str
    values: int
    under: int


@dataclass(frozen=True, slots=True)
class Values:
    """What the referencing columns hold, beside plain keys.

    Attributes:
        empty: Tables without a single row.
        blank: NULL and empty values, which name nothing.
        elsewhere: Values that clearly name an object of another bucket.
        unmatched: Values that may mean an object under the prefix and do not spell its key.
        example: One of those, with its column.
        columns: What each column holds, in the order of the streams; empty where that is not known.
    """

    empty: tuple[str, ...] = ()
    blank: int = 0
    elsewhere: int = 0
    unmatched: int = 0
    example: str = ""
    columns: tuple[ColumnValues, ...] = ()


class References(Protocol):
    """The columns whose values are keys under one prefix of one bucket. Reads only."""

    def values(self) -> Values:
        """Count what the columns hold beside plain keys. Reads only; idempotent.

        Raises:
            StoreError: The database did not answer.
        """

    def streams(self) -> Sequence[Iterator[str]]:
        """Return the keys under the prefix, one stream for each column, in the order of their UTF-8 bytes. Reads only.

        Pages, a short transaction each: no snapshot stays open, and memory is one page a column.
        """

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row names now, byte for byte. Reads only.

        Raises:
            StoreError: The database did not answer; that is never "no row".
        """
