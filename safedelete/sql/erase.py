"""Delete exactly these rows inside an open transaction, and find the rows that the database refuses.

One statement takes the whole batch where nothing objects. Where something does, the batch is halved under savepoints
until each refused row stands alone, so that none takes another with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Connection, delete, select
from sqlalchemy.exc import DBAPIError

from safedelete.core.item import Key, KeyRows
from safedelete.core.outcome import LOCKED, REFERENCED, ItemOutcome, Outcome
from safedelete.errors import StoreError, UnreachedError
from safedelete.sql.failures import Cause, Failure, is_unreached, words
from safedelete.sql.keys import as_asked, looked_up
from safedelete.sql.owned import Named
from safedelete.sql.touched import Touched

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

ROUNDS: Final = 8
"""Most times that refused rows are tried again because others went in between."""

RANGE_FROM: Final = 100
"""Fewest keys that are worth trying as a range."""
DENSITY: Final = 4
"""Most keys of a range for each key asked for; a wider range reads too much that stays."""

KEPT: Final = ItemOutcome(
    Outcome.FAILED,
    "kept",
    "The database ran the DELETE without an error and kept the row: a BEFORE DELETE trigger that returns NULL, or a rule.",
)


@dataclass(slots=True)
class Erased:
    """What one call did.

    Attributes:
        deleted: Deleted by a statement that named them.
        absent: Not returned and not there any more: taken by a cascade of ours, or not there in the first place.
        named: What each deleted row named, where the server returned it.
        refused: Kept, and why.
        touched: Rows touched by table; None where the database cannot say.
    """

    deleted: set[Key] = field(default_factory=set)
    absent: set[Key] = field(default_factory=set)
    named: dict[Key, Named] = field(default_factory=dict)
    refused: dict[Key, ItemOutcome] = field(default_factory=dict)
    touched: Mapping[str, int] | None = None


class Eraser:
    """Deletes rows of one target in one transaction."""

    def __init__(self, connection: Connection, target: SqlRows) -> None:
        self.connection = connection
        self.target = target
        self._backend = target.database.backend
        self._returning = self._backend.returns(connection)
        self._touched = Touched(connection, target)

    def erase(
        self,
        keys: Sequence[Key],
        *,
        where: ColumnElement[bool],
        values: Mapping[str, Any],
        where_decides: bool = False,
    ) -> Erased:
        """Delete these rows as far as they match and nothing refuses. Deletes, uncommitted.

        Args:
            keys: Which rows.
            where: What they must match as well.
            values: The parameters of ``where``.
            where_decides: Whether ``where`` alone is likely to find just these rows within the range of their keys, so
                that the range may be tried first.

        Raises:
            DBAPIError: The failure is not a matter of single rows; nothing of this call stands.
        """
        self._touched.start()
        done = Erased()
        todo = sorted_keys(keys)
        if where_decides and self._as_range(todo, where, values, done):
            todo = []
        for _ in range(ROUNDS):
            before = len(done.deleted)
            refused = self._halve(todo, where, values, done)
            done.refused = {key: _outcome(failure) for key, failure in refused.items()}
            todo = [
                key for key, failure in refused.items() if failure.cause in {Cause.REFERENCED, Cause.REFUSED}
            ]
            if not todo or len(done.deleted) == before:
                break
        unseen = [k for k in keys if k not in done.deleted and k not in done.refused]
        if unseen:
            there = self._there(unseen)
            still = self._there(unseen, where, values) if there else set()
            done.absent = {k for k in unseen if k not in there}
            done.refused |= dict.fromkeys(still, KEPT)
            self._touched.vanished(len(done.absent))
        done.touched = self._touched.result()
        return done

    def erase_whole(
        self, keys: Sequence[Key] | KeyRows, *, where: ColumnElement[bool], values: Mapping[str, Any]
    ) -> Mapping[str, int] | None:
        """Delete just these rows by one statement, if every one of them matches. Deletes, uncommitted.

        The statement can take no row but these, so their number says that all of them went; what the database says was
        touched has to bear that out. Whoever calls this takes everything back where it was not so.

        Returns:
            Rows touched by table; None where not all went, something objected, or the database cannot say.

        Raises:
            DBAPIError: The failure is not a matter of single rows.
        """
        self._touched.start()
        try:
            self._touched.before(keys)
            statement = delete(self.target.table).where(self.target.keys.match(keys), where)
            gone = self.connection.execute(statement, values).rowcount
            self._backend.check_constraints(self.connection)
            objections = self._touched.violations()
            self._touched.check()
        except DBAPIError as error:
            self._survive(error)
            self._touched.failed()
            if self._backend.failure(error).cause is Cause.OTHER:
                raise
            return None
        self._touched.after(gone)
        touched = self._touched.result()
        self._touched.failed()
        whole = gone == len(keys) and not objections and touched is not None
        return touched if whole and touched is not None and touched.get(self.target.name) == gone else None

    def _as_range(
        self, keys: Sequence[Key], where: ColumnElement[bool], values: Mapping[str, Any], done: Erased
    ) -> bool:
        """Try the whole batch as one range of keys, which reads the index in order; say whether it stands.

        A range takes whatever matches within it, planned or not. Only when every returned key was asked for does it
        stand; a single stranger takes all of it back.
        """
        if not self._returning or len(keys) < RANGE_FROM or not _dense(keys):
            return False
        clause = self.target.keys.between(keys[0], keys[-1])
        return self._attempt(keys, where, values, done, clause=clause) is None

    def _halve(
        self, keys: Sequence[Key], where: ColumnElement[bool], values: Mapping[str, Any], done: Erased
    ) -> dict[Key, Failure]:
        refused: dict[Key, Failure] = {}
        # The later half first: children mostly have the greater keys, and go before their parents.
        stack = [list(keys)] if keys else []
        while stack:
            part = stack.pop()
            failure = self._attempt(part, where, values, done)
            if failure is None:
                continue
            if len(part) == 1 or failure.cause is Cause.EATEN:
                refused |= dict.fromkeys(part, failure)
                continue
            if failure.cause is Cause.LOCKED:
                self._backend.short_locks(self.connection, self.target.database.timeouts)
            middle = len(part) // 2
            stack += [part[:middle], part[middle:]]
        return refused

    def _attempt(
        self,
        keys: Sequence[Key],
        where: ColumnElement[bool],
        values: Mapping[str, Any],
        done: Erased,
        *,
        clause: ColumnElement[bool] | None = None,
    ) -> Failure | None:
        which = self.target.keys.match(keys) if clause is None else clause
        statement = delete(self.target.table).where(which, where)
        savepoint = self.connection.begin_nested()
        try:
            self._touched.before(keys)
            returned = self._run(statement, keys, values)
            if not returned.keys() <= set(keys):
                raise _RefusedError(
                    Failure(Cause.REFUSED, "range", "rows that were not planned match as well")
                )
            self._touched.check()
        except (DBAPIError, _RefusedError) as error:
            failure = error.failure if isinstance(error, _RefusedError) else self._backend.failure(error)
            self._survive(error)
            if failure.cause is Cause.OTHER:
                raise  # the savepoint may be gone as well: the whole batch is to be rolled back
            savepoint.rollback()
            self._touched.failed()
            return failure
        savepoint.commit()
        self._touched.after(len(returned))
        done.deleted |= returned.keys()
        done.named |= returned
        return None

    def _run(self, statement: Any, keys: Sequence[Key], values: Mapping[str, Any]) -> dict[Key, Named]:
        own_keys, owned = self.target.keys, self.target.owned
        if self._returning:
            rows = self.connection.execute(
                statement.returning(*own_keys.selected(), *owned.selected()), values
            ).all()
            returned = as_asked(
                {own_keys.read(row): owned.read(row[len(own_keys) :]) for row in rows}, frozenset(keys)
            )
        else:
            # Without RETURNING two looks settle it; the rows are held, so nobody else can come between.
            before = self._there(keys)
            self.connection.execute(statement, values)
            after = self._there(keys)
            returned = dict.fromkeys(before - after, Named(()))
        self._backend.check_constraints(self.connection)
        violated = self._touched.violations()
        if violated:
            raise _RefusedError(Failure(Cause.REFERENCED, "deferred", violated))
        return returned

    def _survive(self, error: BaseException) -> None:
        """Raise unless the transaction is still there to go back in."""
        if isinstance(error, DBAPIError) and (
            error.connection_invalidated or not self._backend.in_transaction(self.connection)
        ):
            kind = UnreachedError if is_unreached(error) else StoreError
            raise kind(
                f"The transaction on {self.target.name} ended while deleting: {words(error)}. Nothing of this batch was deleted.",
                hint="The connection was lost, or a trigger rolled the whole transaction back.",
            ) from error

    def _there(
        self,
        keys: Sequence[Key],
        where: ColumnElement[bool] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> set[Key]:
        own = self.target.keys
        statement = select(*own.selected())
        if where is not None:
            statement = statement.where(where)

        def ask(some: Sequence[Key]) -> Mapping[Key, None]:
            found = self.connection.execute(statement.where(own.match(some)), values or {})
            return dict.fromkeys(map(own.read, found))

        return set(looked_up(ask, keys))


class _RefusedError(Exception):
    """A check of our own refused the attempt."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.words)
        self.failure = failure


def sorted_keys(keys: Collection[Key]) -> list[Key]:
    """Return keys in ascending order where they can be compared, which keeps two deleters from a deadlock."""
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


def _dense(keys: Sequence[Key]) -> bool:
    first, last = keys[0], keys[-1]
    if len(first) != 1 or type(first[0]) is not int or type(last[0]) is not int:
        return False
    return 0 <= last[0] - first[0] < DENSITY * len(keys)


def _outcome(failure: Failure) -> ItemOutcome:
    said = f"{failure.words} [{failure.code}]" if failure.code else failure.words
    match failure.cause:
        case Cause.REFERENCED:
            return ItemOutcome(Outcome.BLOCKED, REFERENCED, said)
        case Cause.LOCKED:
            return ItemOutcome(Outcome.BLOCKED, LOCKED, said)
        case Cause.EATEN:
            return ItemOutcome(Outcome.FAILED, "kept", said)
    return ItemOutcome(Outcome.FAILED, "refused", said)
