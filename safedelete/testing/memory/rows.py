"""A table whose rows own objects, and a target that deletes from it under locks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import ItemOutcome
from safedelete.core.plan import Cascade, TargetPlan
from safedelete.errors import BusyError
from safedelete.testing.memory.batch import MemoryRowTransaction
from safedelete.testing.memory.database import MemoryDatabase


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One row.

    Attributes:
        key: Its primary key.
        expires_at: When it becomes eligible, exclusive; None never.
        objects: What it names.
        kept: Whether something else than its age keeps it (a legal hold).
    """

    key: Key
    expires_at: datetime | None
    objects: tuple[ObjectRef, ...] = ()
    kept: bool = False

    def eligible(self, as_of: datetime) -> bool:
        """Whether it matches the purge's predicate at an instant."""
        return not self.kept and self.expires_at is not None and self.expires_at < as_of

    @property
    def sealed(self) -> SealedRow:
        """The row as a plan seals it."""
        return SealedRow(self.key, self.objects)


class MemoryTable:
    """The committed rows of one table, and who has locked which.

    The methods that write are the application's: each is a transaction of its own, and raises BusyError on a row that a
    batch holds, where a real database would wait.

    Args:
        database: Where it is.
        name: Its name.
    """

    def __init__(self, database: MemoryDatabase, name: str) -> None:
        self.database = database
        self.name = name
        self.rows: dict[Key, MemoryRow] = {}
        self.locks: dict[Key, object] = {}
        self.refusals: dict[Key, ItemOutcome] = {}
        """Rows whose deletion the database refuses (a foreign key, a trigger), and how that is told."""
        self.cascades: dict[Key, Mapping[str, int]] = {}
        """Rows of other tables that are touched when a row goes, by table name."""

    def put(self, *rows: MemoryRow) -> None:
        """Insert rows, or replace those of the same key."""
        for row in rows:
            self._free(row.key)
        self.rows |= {row.key: row for row in rows}

    def update(
        self,
        key: Key,
        *,
        expires_at: datetime | None = None,
        objects: tuple[ObjectRef, ...] | None = None,
        kept: bool | None = None,
    ) -> None:
        """Change what is given of one row."""
        self._free(key)
        row = self.rows[key]
        self.rows[key] = replace(
            row,
            expires_at=row.expires_at if expires_at is None else expires_at,
            objects=row.objects if objects is None else objects,
            kept=row.kept if kept is None else kept,
        )

    def remove(self, key: Key) -> None:
        """Delete one row, if it is there."""
        self._free(key)
        self.rows.pop(key, None)

    def lock(self, key: Key) -> None:
        """Lock a row, as a transaction of the application that stays open."""
        self._free(key)
        self.locks[key] = self

    def unlock(self, key: Key) -> None:
        """Let go of it again. Idempotent."""
        if self.locks.get(key) is self:
            del self.locks[key]

    def _free(self, key: Key) -> None:
        if key in self.locks:
            raise BusyError(f"The row {key} of {self.name} is locked by another transaction.")


class MemoryRows:
    """A purge's target over one table. Implements ``ports.RowTarget``.

    Args:
        table: The table.
        may_lock: Whether the role may lock rows; else a batch deletes them uncommitted, which holds them as well.
        shares: Whether several rows may name one object.
        owns: Whether rows name objects at all.
        cascade: The cascades that a plan tells of.
    """

    def __init__(
        self,
        table: MemoryTable,
        *,
        may_lock: bool = True,
        shares: bool = False,
        owns: bool = True,
        cascade: Sequence[Cascade] = (),
    ) -> None:
        self.table = table
        self.may_lock = may_lock
        self.cascade = tuple(cascade)
        self.cancelled = 0
        self.before_again: Callable[[], None] | None = None
        """Called when a batch without locks has taken its deletes back: the moment in which others may write."""
        self._shares = shares
        self._owns = owns

    @property
    def name(self) -> str:
        """The table's name."""
        return self.table.name

    @property
    def owns_objects(self) -> bool:
        """Whether its rows name objects."""
        return self._owns

    @property
    def shares_objects(self) -> bool:
        """Whether several rows may name one object."""
        return self._shares

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Count what is eligible. Reads only; idempotent."""
        eligible = self._eligible(as_of)
        taken = eligible if portion is None else eligible[:portion]
        refs = {(ref.bucket, ref.key): ref.size for row in taken for ref in row.objects}
        sizes = [size for size in refs.values() if size is not None]
        keys = sorted(row.key for row in taken)
        return TargetPlan(
            name=self.name,
            kind="rows",
            items=len(taken),
            eligible=len(eligible),
            total=len(self.table.rows),
            objects=len(refs),
            bytes=sum(sizes) if refs and len(sizes) == len(refs) else None,
            nulls=sum(row.expires_at is None for row in self.table.rows.values()),
            late=None if since is None else len(self._eligible(since)),
            cutoff=as_of,
            period=timedelta(0),
            cascades=self.cascade,
            statement="expires_at < :cutoff AND NOT kept",
            parameters={"cutoff": as_of.isoformat()},
            first=str(keys[0]) if keys else "",
            last=str(keys[-1]) if keys else "",
        )

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[SealedRow, ...]]:
        """Yield the eligible rows by key, ``batch`` at a time; each page reads anew. Reads only."""
        oldest = None if portion is None else {row.key for row in self._eligible(as_of)[:portion]}
        last: Key | None = None
        while True:
            page = sorted(
                row.key
                for row in self._eligible(as_of)
                if (last is None or row.key > last) and (oldest is None or row.key in oldest)
            )[:batch]
            if not page:
                return
            last = page[-1]
            yield tuple(self.table.rows[key].sealed for key in page)

    def begin(self, as_of: datetime) -> MemoryRowTransaction:
        """Open a batch's transaction."""
        return MemoryRowTransaction(self, as_of)

    def present(self, keys: Sequence[Key]) -> Collection[Key]:
        """Return which of these keys still exist. Reads only."""
        return {key for key in keys if key in self.table.rows}

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row names now. Reads only."""
        return named_by(self.table.rows.values(), refs)

    def cancel(self) -> None:
        """Count that a cancellation was asked for; nothing here takes long enough to be cancelled."""
        self.cancelled += 1

    def _eligible(self, as_of: datetime) -> list[MemoryRow]:
        found = [row for row in self.table.rows.values() if row.eligible(as_of)]
        return sorted(found, key=lambda row: (row.expires_at, row.key))


def named_by(rows: Collection[MemoryRow], refs: Sequence[ObjectRef]) -> list[ObjectRef]:
    """Return those objects that any of these rows names."""
    names = {(ref.bucket, ref.key) for row in rows for ref in row.objects}
    return [ref for ref in refs if (ref.bucket, ref.key) in names]
