"""Object keys for made-up rows: odd ones, shared where the schema lets them be, and some where a target lists or a prefix is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import Column, Table, types

from safedelete.declare import S3Orphans, S3Prefix
from safedelete.testing.documents import Path, Read, read_by
from safedelete.testing.listed import key_below
from safedelete.testing.scene import Naming, Subject
from safedelete.testing.values import ODD, bare, is_unique


class Keys:
    """Makes the keys of one scene.

    Args:
        subject: The purge.
        made: The rows made so far, by table; grows.
    """

    def __init__(self, subject: Subject, made: Mapping[Table, Sequence[Mapping[str, Any]]]) -> None:
        self._made = made
        self._targets = {rows.table for rows in subject.rows}
        self._namings: dict[Read, list[Naming]] = {}
        for naming in subject.namings:
            for read in dict.fromkeys(read_by(naming.column)):
                self._namings.setdefault(read, []).append(naming)
        self._listed = subject.listed

    def is_key(self, column: Column[Any]) -> bool:
        """Whether a column holds a key, or a part of one, as text."""
        kind = bare(column.type)
        text = isinstance(kind, types.String) and not isinstance(kind, types.Enum)
        return text and (column, ()) in self._namings

    def paths(self, column: Column[Any]) -> list[Path]:
        """Return the paths at which a column's document holds keys."""
        return [path for named, path in self._namings if named is column and path]

    def strategy(
        self, column: Column[Any], number: int, *, path: Path = (), attempt: int = 0
    ) -> st.SearchStrategy[Any]:
        """Return keys for one row.

        Args:
            column: The column.
            number: Counts the rows of its table from 1.
            path: Where in the column's document.
            attempt: How many rows were made in vain, for which the unique columns left no room; after some the row's number
                is part of it, though the column alone need not be unique.
        """
        # Where a target lists, so that it is seen what becomes of an object that a row names; a sweep wants them all there.
        namings = self._namings[column, path]
        places = [t for t in self._listed for naming in namings if t.bucket == naming.bucket]
        sweeps = [t for t in places if isinstance(t, S3Orphans)]
        place_of: list[S3Prefix | S3Orphans | None] = [*sweeps] or [*places, *places, None]
        beneath = place_of[(number - 1) % len(place_of)]
        most = (getattr(bare(column.type), "length", None) if not path else None) or 1000
        unique = not path and (is_unique(column) or attempt > 5)
        # Five in turn, so that already the plainest scene has rows that share: due ones with ones that are not, and a row of
        # another table with one that is due.
        # Of a row's several columns none begins as another does: it owns as many objects.
        mine = [read for read in self._namings if read[0].table is column.table]
        place = (number + attempt + mine.index((column, path)) - (column.table not in self._targets)) % 5
        texts = [
            key_below(beneath, f"{number}-{odd}" if unique else odd) for odd in (*ODD[place:], *ODD[:place])
        ]
        near = None if path or attempt else self._near(column, number, namings, unique=unique)
        if near is not None and len(near) <= most:
            texts = [near]
        chosen = st.sampled_from([text[:most] for text in texts])
        # A sweep is refused where no row names anything.
        none = column.nullable and not path and not (sweeps and number == 1)
        return st.one_of(chosen, st.none()) if none else chosen

    def _near(
        self, column: Column[Any], number: int, namings: Sequence[Naming], *, unique: bool
    ) -> str | None:
        """Return a key that is another's neighbour, for every third row: who is careless with the one takes the other."""
        whole = any(naming.whole_prefix for naming in namings)
        if column.table not in self._targets:
            turn = number % 2 == 1
        else:
            # Those of the rows around the cutoff that are due own a place, and those that are not lie there.
            turn = number % 3 == (2 if whole else 1) and number > 1
        if turn:
            return self._beneath(column, namings, number, whole=whole)
        earlier = next((row.get(column.name) for row in self._made[column.table][-2:-1]), None)
        if number % 3 or not earlier:
            return None
        if whole and number % 2:
            return f"{earlier}/{number}"
        other = str(earlier).swapcase()
        if (
            unique
            and number % 2
            and other != earlier
            and not any(isinstance(n.column, Column) for n in namings)
        ):
            return other
        return f"{earlier}2" if unique else None

    def _beneath(
        self, column: Column[Any], namings: Sequence[Naming], number: int, *, whole: bool
    ) -> str | None:
        """Return a key below a prefix that an earlier row owns, or the prefix that an earlier row's key lies below."""
        buckets = {naming.bucket for naming in namings}
        for (other, path), theirs in self._namings.items():
            if (
                path
                or other is column
                or not any(isinstance(n.column, Column) and n.bucket in buckets for n in theirs)
            ):
                continue
            values = _texts(self._made.get(other.table, ()), other.name)
            if not whole and any(naming.whole_prefix for naming in theirs):
                # Where there is no row yet to own a folder, one that comes later finds this one.
                folder = values[number % len(values)].rstrip("/") if values else f"folder-{number}"
                return f"{folder}/{number}"
            folders = [value.rpartition("/")[0] for value in values if "/" in value]
            if whole and folders and not folders[number % len(folders)].startswith("/"):
                return folders[number % len(folders)] or None
        return None


def _texts(rows: Collection[Mapping[str, Any]], name: str) -> list[str]:
    return [row[name] for row in rows if isinstance(row.get(name), str) and row[name]]
