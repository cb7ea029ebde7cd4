"""One batch's transaction on a table in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import GONE, LOCKED, ItemOutcome, Outcome
from safedelete.errors import StoreError
from safedelete.ports import Deletion, Held
from safedelete.testing.memory.database import MemoryTransaction

if TYPE_CHECKING:
    from safedelete.testing.memory.rows import MemoryRow, MemoryRows

NO_MATCH = ItemOutcome(Outcome.CHANGED, "predicate", "the row no longer matches")
RENAMED = ItemOutcome(Outcome.CHANGED, "objects", "the row names other objects than were sealed")
BUSY = ItemOutcome(Outcome.BLOCKED, LOCKED, "another transaction holds the row")


class MemoryRowTransaction(MemoryTransaction):
    """A READ COMMITTED transaction that skips rows others have locked. Implements ``ports.RowTransaction``."""

    def __init__(self, target: MemoryRows, as_of: datetime) -> None:
        super().__init__(target.table.database)
        self._target = target
        self._table = target.table
        self._as_of = as_of
        self._held: dict[Key, SealedRow] = {}
        self._deleted: set[Key] = set()
        self._undone = False

    def hold(self, rows: Sequence[SealedRow]) -> Held:
        """Lock the rows that still match and still name what was sealed."""
        self.require_open()
        missing: dict[Key, ItemOutcome] = {}
        names: dict[Key, frozenset[tuple[str, str]]] = {}
        for row in rows:
            now = self._table.rows.get(row.key)
            why = self._why_not(row, now)
            if why is None and not self._target.may_lock and row.key in self._table.refusals:
                why = self._table.refusals[row.key]
            if why is None:
                self._table.locks[row.key] = self
                self._held[row.key] = row
                continue
            missing[row.key] = why
            if now is not None:
                names[row.key] = _pairs(now.objects)
        if not self._target.may_lock:
            self._deleted = set(self._held)
        return Held(tuple(self._held.values()), missing, names)

    def delete(self, rows: Sequence[SealedRow]) -> Deletion:
        """Delete held rows without committing. Deletes."""
        self.require_open()
        strangers = [row.key for row in rows if row.key not in self._held]
        if strangers:
            raise StoreError(f"{len(strangers)} row(s) were to be deleted without being held.")
        kept = self._hold_again(rows) if self._undone and not self._target.may_lock else {}
        kept |= {row.key: self._table.refusals[row.key] for row in rows if row.key in self._table.refusals}
        gone = tuple(row for row in rows if row.key not in kept)
        self._deleted = {row.key for row in gone}
        touched: Counter[str] = Counter({self._table.name: len(gone)})
        for row in gone:
            touched.update(self._table.cascades.get(row.key, {}))
        return Deletion(gone, kept, dict(touched))

    def undo(self) -> None:
        """Take back every delete; without the right to lock, the rows are free again for a moment."""
        self.require_open()
        self._deleted.clear()
        self._undone = True
        if not self._target.may_lock:
            self._let_go(self._held)
            if self._target.before_again is not None:
                self._target.before_again()

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row still names, as this transaction sees the table. Reads only."""
        from safedelete.testing.memory.rows import named_by

        self.require_open()
        return named_by([row for key, row in self._table.rows.items() if key not in self._deleted], refs)

    def prove_alive(self) -> None:
        """Raise StoreError unless the transaction is still open."""
        self.require_open()

    def commit(self) -> None:
        """Remove the deleted rows and make every other change, or nothing."""
        self.require_open()
        for key in self._deleted:
            self._table.rows.pop(key, None)
        super().commit()

    def _end(self) -> None:
        self._let_go(list(self._table.locks))
        super()._end()

    def _let_go(self, keys: Iterable[Key]) -> None:
        for key in keys:
            if self._table.locks.get(key) is self:
                del self._table.locks[key]

    def _why_not(self, row: SealedRow, now: MemoryRow | None) -> ItemOutcome | None:
        if now is None:
            return GONE
        if not now.eligible(self._as_of):
            return NO_MATCH
        if _pairs(now.objects) != _pairs(row.objects):
            return RENAMED
        if self._table.locks.get(row.key, self) is not self:
            return BUSY
        return None

    def _hold_again(self, rows: Sequence[SealedRow]) -> dict[Key, ItemOutcome]:
        kept = {}
        for row in rows:
            why = self._why_not(row, self._table.rows.get(row.key))
            if why is None:
                self._table.locks[row.key] = self
            else:
                kept[row.key] = why
        return kept


def _pairs(refs: Iterable[ObjectRef]) -> frozenset[tuple[str, str]]:
    return frozenset((ref.bucket, ref.key) for ref in refs)
