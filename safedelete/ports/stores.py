"""Row and object stores: readers for planning, targets for deleting."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from safedelete.core.item import Key, ObjectRef, Prefix, SealedRow
from safedelete.core.outcome import ItemOutcome
from safedelete.core.plan import TargetPlan
from safedelete.ports.clock import Gate


class RowReader(Protocol):
    """One table target, for planning. Reads only."""

    @property
    def name(self) -> str:
        """Stable name of the target."""

    @property
    def owns_objects(self) -> bool:
        """Whether its rows name objects."""

    @property
    def shares_objects(self) -> bool:
        """Whether several rows may name one object, so that it goes only with its last row."""

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Count what is eligible and what goes along with it. Reads only; idempotent.

        A count that fails becomes ``Unknown`` in the plan; it never becomes 0 and is never left out.

        Args:
            as_of: The frozen instant.
            portion: Most items this run takes, oldest first; None for all.
            since: ``as_of`` of the last successful run, for counting rows that became eligible out of time.
        """

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[Sequence[SealedRow]]:
        """Yield the eligible rows by primary key, ``batch`` at a time. Reads only.

        Pages by key, one short transaction a page: no snapshot stays open, and memory is one page. With a portion,
        yields the oldest that many rows.
        """


class OwnedReader(Protocol):
    """The buckets that rows own objects in, for planning and for a last look. Reads only."""

    @property
    def lists(self) -> bool:
        """Whether rows own prefixes, so that their objects are found by listing."""

    def below(
        self, prefixes: Sequence[Prefix], *, most: int
    ) -> Mapping[Prefix, tuple[ObjectRef, ...] | None]:
        """List what lies below each prefix now, with ETag or version and size; None where that is more than ``most``.

        All versions of one key stand together, oldest first. A listing that fails raises StoreError: it is never an
        empty one.
        """

    def notes(self) -> Sequence[str]:
        """Return what a plan should say about the buckets."""


class ObjectReader(Protocol):
    """One prefix target, for planning. Reads only."""

    @property
    def name(self) -> str:
        """Stable name of the target."""

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """As :meth:`RowReader.survey`, by listing."""

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[ObjectRef, ...]]:
        """Yield the eligible objects in listing order, with ETag and size. Reads only."""


class Transaction(Protocol):
    """An open database transaction that the ledger or the lease may join where they live in the same database."""

    @property
    def database(self) -> str:
        """Identity of the database it is open on."""

    def commit(self) -> None:
        """Commit. Atomic; after an error the outcome is in doubt."""

    def rollback(self) -> None:
        """Undo everything; never raises."""


@dataclass(frozen=True, slots=True)
class Held:
    """What :meth:`RowTransaction.hold` found.

    Attributes:
        rows: Held until the transaction ends; they still match and still name the sealed objects.
        missing: Every other sealed row, by key: gone, changed, or blocked with code ``locked``.
        named: For a missing row that still exists, the (bucket, key) pairs it names now.
    """

    rows: Sequence[SealedRow]
    missing: Mapping[Key, ItemOutcome]
    named: Mapping[Key, frozenset[tuple[str, str]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deletion:
    """What :meth:`RowTransaction.delete` did, not yet committed.

    Attributes:
        rows: Deleted in this transaction.
        kept: Every other row asked for, with the reason (a foreign key, a trigger, a lost hold).
        touched: Rows touched by table name as far as the database says, the target's own included; None where the
            database cannot say.
    """

    rows: Sequence[SealedRow]
    kept: Mapping[Key, ItemOutcome]
    touched: Mapping[str, int] | None


class RowTransaction(Transaction, Protocol):
    """One short READ COMMITTED transaction that holds a batch's rows from first to last."""

    def hold(self, rows: Sequence[SealedRow]) -> Held:
        """Lock the rows that still match the predicate and still carry the sealed objects. Deletes nothing for good.

        Where the role may not lock rows, they are deleted uncommitted instead, which holds them as well.
        """

    def delete(self, rows: Sequence[SealedRow]) -> Deletion:
        """Delete held rows, constraints checked at once, without committing. Deletes.

        A row that the database refuses (foreign key, deferred constraint, trigger) is kept and named, and takes no
        other row with it. May be called again after :meth:`undo`.
        """

    def undo(self) -> None:
        """Take back every :meth:`delete`, to where :meth:`hold` ended."""

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row of the table still names, as this transaction sees it. Reads only.

        After :meth:`delete` that leaves exactly the objects shared with rows that stay.
        """

    def prove_alive(self) -> None:
        """Raise StoreError unless the transaction is still open on the server: a lost one holds nothing."""


class RowTarget(RowReader, Protocol):
    """A table target that can delete. Given to ``phases/execute.py`` only."""

    def begin(self, as_of: datetime) -> RowTransaction:
        """Open a batch's transaction, with its own statement, lock and idle timeouts."""

    def present(self, keys: Sequence[Key]) -> Collection[Key]:
        """Return which of these keys still exist, whatever they look like now. Reads only."""

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row of the table names now. Reads only."""

    def cancel(self) -> None:
        """Cancel the statement in flight, from another thread. Idempotent; never raises."""


class Presence(StrEnum):
    """Whether an object is there."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class ObjectStore(Protocol):
    """Deletes objects and says, key by key, what became of each. Given to ``phases/execute.py`` and ``verify.py`` only."""

    def delete(self, refs: Sequence[ObjectRef], *, gate: Gate) -> Mapping[ObjectRef, ItemOutcome]:
        """Delete exactly these objects. Deletes; idempotent; not atomic, hence one outcome for each.

        Every ref given is a key of the answer. ``deleted`` and ``gone`` are acknowledgements by the store;
        ``changed`` means overwritten since it was sealed and kept. ``gate`` is called before each request and what
        it raises passes through, with the outcomes known so far left to the caller as in doubt.
        """

    def presence(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Ask for each object (HEAD). Reads only."""

    def shown(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Ask of each key whether there is an object to be read now, whatever version of it was sealed. Reads only."""

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Return those that are not known to be absent, by listing or by HEAD, whichever is cheaper. Reads only.

        An object overwritten since it was sealed (another ETag) is not a residue and is left out.
        """


class ObjectTarget(ObjectReader, Protocol):
    """A prefix target together with the store that deletes its objects."""

    @property
    def store(self) -> ObjectStore:
        """The store."""
