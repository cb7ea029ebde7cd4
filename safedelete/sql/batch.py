"""One batch's transaction: hold the rows, delete them, take it back, commit.

Rows that own objects are held by a lock (``SELECT … FOR UPDATE``) and deleted by key. Where the role may not lock, or
where there are no objects that could come between, the rows are deleted uncommitted instead, which holds them as well;
taking that back gives the locks up for a moment, so a row that changed in that moment is found out and named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, NestedTransaction, case, select, true
from sqlalchemy.exc import SQLAlchemyError

from safedelete.core.item import Key, KeyRows, ObjectRef, SealedRow
from safedelete.core.outcome import DANGLING, GONE, LOCKED, ItemOutcome, Outcome
from safedelete.errors import StoreError, UnreachedError
from safedelete.ports import Deletion, Held
from safedelete.sql import predicate
from safedelete.sql.erase import Eraser
from safedelete.sql.failures import translated
from safedelete.sql.keys import looked_up
from safedelete.sql.owned import Named
from safedelete.sql.shared import named

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

_NO_MATCH = ItemOutcome(
    Outcome.CHANGED, "predicate", "The row no longer matches the purge's predicate; it was kept."
)
_RENAMED = ItemOutcome(
    Outcome.CHANGED, "objects", "The row names other objects than when it was sealed; it was kept."
)
_BUSY = ItemOutcome(Outcome.BLOCKED, LOCKED, "Another transaction holds the row.")


class SqlRowTransaction:
    """``RowTransaction`` on one SQL database; READ COMMITTED, with its own timeouts."""

    def __init__(self, target: SqlRows, as_of: datetime) -> None:
        self.target = target
        self._backend = target.database.backend
        self._values = predicate.parameters(target.rows, as_of)
        self._undo: NestedTransaction | None = None
        self._undone = False
        self._held: dict[Key, SealedRow] = {}
        self._whole: KeyRows | None = None
        """What :meth:`hold` deleted by one statement, all of it."""
        self._blocked: dict[Key, ItemOutcome] = {}
        self._deleted: set[Key] = set()
        self._touched: Mapping[str, int] | None = None
        self._fallback = False
        self._ended = False
        self._id: tuple[Any, ...] | None = None
        self.connection: Connection = target.database.connect(immediate=True)
        try:
            with translated(
                f"opening a batch on {target.name}", hint="The next run goes on where this one stopped."
            ):
                self.connection.begin()
                self._backend.begin_batch(self.connection, target.database.timeouts)
                self._eraser = Eraser(self.connection, target)
        except BaseException:
            self.rollback()
            raise

    @property
    def database(self) -> str:
        """Identity of the database it is open on."""
        return self.target.database.identity

    # --- hold -------------------------------------------------------------------------------------------------------

    def hold(self, rows: Sequence[SealedRow]) -> Held:
        """Lock the rows that still match the predicate and still carry the sealed objects.

        Deletes nothing for good: without the right to lock, the rows are deleted uncommitted, which holds them as well.
        """
        with translated(f"holding {len(rows):,} row(s) of {self.target.name}"):
            at_once = self._at_once()
            self._fallback = at_once or not self._backend.may_lock(self.connection, self.target.table)
            if self._fallback:
                self._backend.short_locks(self.connection, self.target.database.timeouts)
            if at_once and isinstance(rows, KeyRows) and self._delete_whole(rows):
                return Held(rows, {})
            # Whoever is not told which rows went looks before and after, and nobody may come between.
            self._fallback &= self._backend.returns(self.connection)
            sealed = {row.key: row for row in rows}
            found: Mapping[Key, Named | None] = (
                self._hold_deleting(sealed) if self._fallback else self._hold_locking(sealed)
            )
            missing: dict[Key, ItemOutcome] = {}
            names: dict[Key, frozenset[tuple[str, str]]] = {}
            held: list[SealedRow] = []
            for key, row in sealed.items():
                if key in self._blocked and self._blocked[key].code == LOCKED:
                    missing[key] = self._blocked[key]
                elif key in self._blocked:
                    held.append(row)  # refused already; delete() names it, before any object is touched
                elif key not in found:
                    continue
                elif (now := found[key]) is None or self.target.owned.same(row, now):
                    held.append(row)
                else:
                    missing[key], names[key] = _RENAMED, now.among(row.objects)
            rest = [row for key, row in sealed.items() if key not in found and key not in self._blocked]
            self._classify(rest, missing, names)
            self._held = {row.key: row for row in held}
            if not self._fallback:
                self._id = tuple(self._backend.alive(self.connection))
            return Held(tuple(held), missing, names)

    def _at_once(self) -> bool:
        """Whether one statement may hold and delete: nothing can come between, and nothing has to be looked at before.

        Where children are counted before they go, their parents are locked first, so that no child can come in between.
        """
        counted = self._backend.counts_first and self.target.schema.reachable(self.target.schema.table)
        return not self.target.owned and not counted

    def _hold_locking(self, sealed: Mapping[Key, SealedRow]) -> dict[Key, Named | None]:
        """Lock what still matches, and return what it names; None for just what was sealed."""
        statement = select(*self.target.keys.selected(), *self.target.owned.selected()).where(
            self.target.rows.predicate
        )
        if self._backend.locks_rows:
            of = self.target.table if self._backend.lock_of_table else None
            statement = statement.with_for_update(of=of, skip_locked=True)

        def ask(keys: Sequence[Key]) -> Mapping[Key, Any]:
            rows = self.connection.execute(statement.where(self.target.keys.match(keys)), self._values).all()
            return dict(zip(self.target.keys.read_all(rows), rows, strict=True))

        width, owned = len(self.target.keys), self.target.owned
        return {
            key: None if owned.plainly_same(sealed[key], row[width:]) else owned.read(row[width:])
            for key, row in looked_up(ask, list(sealed)).items()
        }

    def _hold_deleting(self, sealed: Mapping[Key, SealedRow]) -> dict[Key, Named]:
        """Delete what still matches, then put back what has been renamed, until only sealed rows are deleted."""
        found, renamed = self._delete_matching(sealed)
        return {**found, **renamed}

    def _delete_matching(self, sealed: Mapping[Key, SealedRow]) -> tuple[dict[Key, Named], dict[Key, Named]]:
        """Delete, uncommitted, the rows that match and name what was sealed; return those, and the renamed ones."""
        renamed: dict[Key, Named] = {}
        # A row may go by a cascade of the same batch before its own turn; what it named must be known by then.
        before = self._look(list(sealed)) if self.target.schema.cascades_into_itself else {}
        while True:
            self._undo = self.connection.begin_nested()
            asked = [key for key in sealed if key not in renamed]
            erased = self._eraser.erase(
                asked, where=self.target.rows.predicate, values=self._values, where_decides=not self._undone
            )
            for key in erased.absent:
                if key in before and before[key][0]:
                    erased.deleted.add(key)
                    erased.named[key] = before[key][1]
            fresh = {k: n for k, n in erased.named.items() if not self.target.owned.same(sealed[k], n)}
            if not fresh:
                self._blocked = dict(erased.refused)
                self._deleted = set(erased.deleted)
                self._touched = erased.touched
                return {k: erased.named[k] for k in erased.deleted}, renamed
            renamed |= fresh
            self._undo.rollback()

    def _delete_whole(self, rows: KeyRows) -> bool:
        """Delete, uncommitted, all of these rows by one statement, or none; say which."""
        self._undo = self.connection.begin_nested()
        touched = self._whole_or_nothing(rows, self.target.rows.predicate)
        if touched is None:
            self._undo.rollback()
            self._undo = None
            return False
        self._whole, self._touched = rows, touched
        return True

    def _whole_or_nothing(
        self, keys: Sequence[Key] | KeyRows, where: ColumnElement[bool] | None = None
    ) -> Mapping[str, int] | None:
        # A row that a cascade of the same statement takes is in nobody's count.
        if self.target.schema.cascades_into_itself:
            return None
        if where is None:
            return self._eraser.erase_whole(keys, where=true(), values={})
        return self._eraser.erase_whole(keys, where=where, values=self._values)

    def _look(self, keys: Sequence[Key]) -> dict[Key, tuple[bool, Named]]:
        """Return, for those that exist, whether they match and what they name: a plain look that holds nothing."""
        own, owned = self.target.keys, self.target.owned
        matches = case((self.target.rows.predicate, 1), else_=0).label("sd_matches")
        statement = select(*own.selected(), *owned.selected(), matches)

        def ask(some: Sequence[Key]) -> Mapping[Key, tuple[bool, Named]]:
            return {
                own.read(row): (bool(row[-1]), owned.read(row[len(own) : -1]))
                for row in self.connection.execute(statement.where(own.match(some)), self._values)
            }

        return looked_up(ask, keys)

    def _classify(
        self,
        rows: Sequence[SealedRow],
        missing: dict[Key, ItemOutcome],
        names: dict[Key, frozenset[tuple[str, str]]],
    ) -> None:
        """Say by a second, plain look why rows were not held."""
        if not rows:
            return
        there = self._look([row.key for row in rows])
        for row in rows:
            if row.key not in there:
                missing[row.key] = GONE
                continue
            still, named = there[row.key]
            names[row.key] = named.among(row.objects)
            if not still:
                missing[row.key] = _NO_MATCH
            elif not self.target.owned.same(row, named):
                missing[row.key] = _RENAMED
            else:
                missing[row.key] = _BUSY

    # --- delete -----------------------------------------------------------------------------------------------------

    def delete(self, rows: Sequence[SealedRow]) -> Deletion:
        """Delete held rows, constraints checked at once, without committing. Deletes.

        A row that the database refuses is kept and named, and takes no other row with it.
        """
        if rows is self._whole:
            return Deletion(rows, {}, self._touched)
        strangers = [row.key for row in rows if row.key not in self._held]
        if strangers:
            raise StoreError(
                f"{len(strangers):,} row(s) of {self.target.name} were to be deleted without being held; "
                "none of this batch was deleted.",
                hint="This is a defect in safedelete; please report it.",
            )
        with translated(f"deleting {len(rows):,} row(s) of {self.target.name}"):
            return self._delete_again(rows) if self._fallback else self._delete_held(rows)

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row of the table still names, as this transaction sees it. Reads only.

        A row that another transaction has deleted without committing still counts.
        """
        with translated(f"asking which objects {self.target.name} still names"):
            return named(self.connection, self.target.owned, refs)

    def _delete_held(self, rows: Sequence[SealedRow]) -> Deletion:
        if self._undo is None:
            self._undo = self.connection.begin_nested()
            touched = self._whole_or_nothing([row.key for row in rows]) if rows else None
            if touched is not None:
                return Deletion(rows, {}, touched)
            self._undo.rollback()
            self._undo = self.connection.begin_nested()
        erased = self._eraser.erase([row.key for row in rows], where=true(), values={})
        kept = dict(erased.refused)
        # Held rows can only have been taken by a cascade of this very batch.
        gone = erased.deleted | erased.absent
        deleted = tuple(row for row in rows if row.key in gone)
        return Deletion(deleted, kept, erased.touched)

    def _delete_again(self, rows: Sequence[SealedRow]) -> Deletion:
        """Without locks: what :meth:`hold` deleted stands unless it was taken back, or fewer rows are asked for now."""
        asked = {row.key: row for row in rows}
        if self._undo is not None:
            refused = {key: self._blocked[key] for key in asked.keys() & self._blocked.keys()}
            if asked.keys() == self._deleted | refused.keys():
                return Deletion(tuple(row for row in rows if row.key not in refused), refused, self._touched)
            self._undo.rollback()
        _, renamed = self._delete_matching(asked)
        there = self._look([key for key in asked if key not in self._deleted])
        kept: dict[Key, ItemOutcome] = {}
        for key, row in asked.items():
            if key in self._deleted:
                continue
            if key not in there:
                kept[key] = GONE
            else:
                kept[key] = self._left(
                    row, self._blocked.get(key) or (_RENAMED if key in renamed else _NO_MATCH)
                )
        return Deletion(tuple(row for row in rows if row.key in self._deleted), kept, self._touched)

    def _left(self, row: SealedRow, why: ItemOutcome) -> ItemOutcome:
        if self._undone and row.objects:
            return ItemOutcome(
                Outcome.FAILED,
                DANGLING,
                f"The row changed while it could not be held, and was kept after its object(s) went: {why.detail}",
            )
        return why

    def undo(self) -> None:
        """Take back every delete, to where :meth:`hold` ended.

        Raises:
            StoreError: The transaction is no longer open; then nothing of it was kept.
        """
        with translated(f"taking back a batch of {self.target.name}"):
            if self._undo is not None:
                self._undo.rollback()
            if self._whole is not None:
                self._held, self._whole = {row.key: row for row in self._whole}, None
            self._undo, self._undone = None, True
            self._deleted = set()

    # --- end --------------------------------------------------------------------------------------------------------

    def prove_alive(self) -> None:
        """Raise StoreError unless the transaction is still open on the server: a lost one holds nothing."""
        with translated(f"checking that the batch of {self.target.name} still holds its rows"):
            now = tuple(self._backend.alive(self.connection))
            open_ = self._backend.in_transaction(self.connection)
        if not open_ or (self._id is not None and now != self._id):
            raise UnreachedError(
                f"The transaction that held the rows of {self.target.name} is gone; nothing of this batch was deleted.",
                hint="The database restarted, or ended the transaction (idle_in_transaction_session_timeout).",
            )

    def commit(self) -> None:
        """Commit. Atomic; after an error the outcome is in doubt."""
        try:
            with translated(
                f"committing a batch of {self.target.name}",
                hint="Whether it was committed is in doubt; the next run looks and settles it.",
                deleted=None,
            ):
                if not self._backend.in_transaction(self.connection):
                    raise StoreError(
                        f"The transaction on {self.target.name} had ended before its commit; its deletes were rolled back.",
                        hint="A timeout, a restart or a trigger ended it; run again, which goes on from the ledger.",
                    )
                self.connection.commit()
        finally:
            self._close()

    def rollback(self) -> None:
        """Undo everything; never raises."""
        with suppress(SQLAlchemyError):
            self.connection.rollback()
        self._close()

    def _close(self) -> None:
        if not self._ended:
            self._ended = True
            self.target.database.close(self.connection)
