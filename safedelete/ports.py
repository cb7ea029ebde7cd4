"""What the phases need from the outside, as small Protocols.

Each method says whether it reads or deletes, whether calling it twice is safe (idempotent), and what is atomic. One
contract suite (``tests/contract``) runs on every adapter, the in-memory ones of ``safedelete.testing`` included.

Planning is given readers only: a ``RowReader`` or an ``ObjectReader`` has no method that could delete.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from safedelete.core.decision import Approval, Decision
from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.core.plan import PastRun, Plan, TargetPlan
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import ObjectBatch, RowBatch

# --- time -----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """The two clocks a run needs."""

    def now(self) -> datetime:
        """Return the current instant, aware, UTC."""

    def uptime(self) -> float:
        """Return seconds on a clock that never goes back and also counts while the machine or process is suspended."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


Gate = Callable[[], None]
"""Called immediately before each request that deletes; raises when no more may start (lease, deadline, stop)."""


# --- planning: reads only -------------------------------------------------------------------------------------------


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

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[SealedRow, ...]]:
        """Yield the eligible rows by primary key, ``batch`` at a time. Reads only.

        Pages by key, one short transaction a page: no snapshot stays open, and memory is one page. With a portion,
        yields the oldest that many rows.
        """


class ObjectReader(Protocol):
    """One prefix target, for planning. Reads only."""

    @property
    def name(self) -> str:
        """Stable name of the target."""

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """As :meth:`RowReader.survey`, by listing."""

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[ObjectRef, ...]]:
        """Yield the eligible objects in listing order, with ETag and size. Reads only."""


# --- deleting -------------------------------------------------------------------------------------------------------


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

    rows: tuple[SealedRow, ...]
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

    rows: tuple[SealedRow, ...]
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

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Return those that are not known to be absent, by listing or by HEAD, whichever is cheaper. Reads only.

        An object overwritten since it was sealed (another ETag) is not a residue and is left out.
        """


class ObjectTarget(ObjectReader, Protocol):
    """A prefix target together with the store that deletes its objects."""

    @property
    def store(self) -> ObjectStore:
        """The store."""


# --- preflight ------------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What a permission probe found; unknown stops a run as a denial does."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Proof:
    """One permission, probed.

    Attributes:
        subject: What it is about: ``DELETE on uploads``, ``s3:DeleteObject on s3://acme/tmp/``.
        verdict: Allowed, denied or unknown.
        detail: The store's own words.
        remedy: The GRANT or policy statement that is missing.
    """

    subject: str
    verdict: Verdict
    detail: str = ""
    remedy: str = ""


class Prober(Protocol):
    """Proves permissions by methods that change nothing. Writes no data; used by ``check``, ``run`` and ``--preflight``."""

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove each permission a target needs. Idempotent.

        Args:
            as_of: The frozen instant, for the real statements with their predicate.
            sample: Objects of the plan, at least one of each (bucket, parent, extension) group that was seen.
        """


# --- lock -----------------------------------------------------------------------------------------------------------


class Lease(Protocol):
    """A held lock with a fencing token."""

    @property
    def token(self) -> int:
        """Rises with every takeover."""

    def gate(self) -> None:
        """Raise LockLostError once the local lease deadline has passed. No I/O."""

    def fence(self, transaction: Transaction | None = None) -> None:
        """Read the lease and raise LockLostError unless it is still ours. In the given transaction where it is on the
        lease's own database, else on a connection of its own. Reads only.
        """

    def pin(self, transaction: Transaction) -> None:
        """Lock the lease row FOR SHARE in this transaction, so that no takeover can pass before its commit.

        Raises LockLostError when it is no longer ours. Where the lease is in another database, as :meth:`fence`.
        """

    def release(self) -> None:
        """Give it back. Idempotent; never raises, since an expired lease is released anyway."""


class Lock(Protocol):
    """Keeps two runs of one job apart."""

    def acquire(self, job: str, *, owner: str) -> Lease:
        """Take the lock, or take it over when it has expired, raising the token. Atomic.

        Raises:
            LockHeldError: Somebody else holds it; says who and since when.
        """


# --- ledger ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as the ledger knows it. Instants are aware UTC."""

    run: str
    job: str
    kind: Literal["purge", "job"]
    state: RunState
    started_at: datetime
    finished_at: datetime | None = None
    plan: Plan | None = None
    decision: Decision | None = None
    owner: str = ""
    tally: Mapping[str, Tally] = field(default_factory=dict)
    reason: str = ""
    exit_code: int | None = None
    sealed_bytes: int = 0
    teaches: Literal[0, 1, 2] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """Columns of a run to be set; None leaves one as it is."""

    plan: Plan | None = None
    decision: Decision | None = None
    finished_at: datetime | None = None
    tally: Mapping[str, Tally] | None = None
    reason: str | None = None
    exit_code: int | None = None
    sealed_bytes: int | None = None
    owner: str | None = None
    teaches: Literal[0, 1, 2] | None = None


@dataclass(frozen=True, slots=True)
class BatchRef:
    """Where a sealed batch lives: target index within the plan, and its place within the target."""

    run: str
    target: int
    seq: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A sealed batch read back, with what is known of it so far.

    Attributes:
        ref: Where it lives.
        state: Where it stands.
        items: The sealed rows or objects.
        outcomes: By index into the items, every outcome other than deleted that is final.
        pending: Indexes still owed (locked rows), for a deferred batch.
    """

    ref: BatchRef
    state: BatchState
    items: RowBatch | ObjectBatch
    outcomes: Mapping[int, ItemOutcome] = field(default_factory=dict)
    pending: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """What a ledger belongs to."""

    environment: str
    databases: frozenset[str]
    buckets: frozenset[str]


class LedgerReader(Protocol):
    """The durable tables of runs, batches and approvals, for planning. Reads only."""

    def verify(self, binding: Binding) -> None:
        """Raise LedgerError unless the ledger is there, of this version, and bound to exactly this."""

    def history(self, job: str, *, limit: int) -> Sequence[PastRun]:
        """Return the newest finished purges of a job, newest first."""

    def runs(
        self, job: str | None, *, limit: int, states: Collection[RunState] | None = None
    ) -> Sequence[RunRecord]:
        """Return runs, newest first."""

    def record(self, run: str) -> RunRecord:
        """Return one run; a unique prefix of the id will do. Raises LedgerError when there is none."""

    def batches(self, run: str, states: Collection[BatchState] | None = None) -> Iterator[StoredBatch]:
        """Yield sealed batches in order, decoded and checked, one in memory at a time."""

    def approval(self, run: str) -> Approval | None:
        """Return the newest approval of a run."""

    def tally(self, run: str) -> Mapping[int, Tally]:
        """Add up the settled batches by target index."""

    def sealed(self, run: str) -> Mapping[int, int]:
        """Count the sealed items by target index."""

    def checksums(self, run: str) -> Iterator[str]:
        """Yield the sealed batches' checksums in order; the plan's digest is made of them."""


class Ledger(LedgerReader, Protocol):
    """The ledger, for runs. Every method commits by itself unless it is given a transaction."""

    def begin(self, record: RunRecord) -> None:
        """Insert a run. Atomic; raises LedgerError when the id exists."""

    def move(
        self, run: str, to: RunState, *, change: RunChange | None = None, owner: str | None = None
    ) -> RunRecord:
        """Move a run along an edge of the state table, with other columns in the same statement.

        Atomic: compares the old state (and the owner, where given), so that two processes cannot both make the move.
        Moving to the state it is in changes the columns alone.
        """

    def seal(self, ref: BatchRef, items: RowBatch | ObjectBatch) -> int:
        """Store a batch; returns the bytes it costs. Not idempotent."""

    def drop_seal(self, run: str) -> None:
        """Forget a run's sealed batches. Idempotent."""

    def doubt(self, ref: BatchRef) -> bool:
        """Mark a batch in doubt, committed before its first request. Idempotent.

        Returns False, and changes nothing, where the batch is settled already: by a commit whose answer was lost, or by
        whoever took the lease over. Raises LedgerError when there is no such batch.
        """

    def settle(
        self,
        ref: BatchRef,
        tally: Tally,
        outcomes: Mapping[int, ItemOutcome],
        pending: Sequence[int],
        transaction: Transaction | None,
    ) -> None:
        """Record a batch's outcomes. In the given transaction where it is on the ledger's own database, so that rows
        and record commit together; else by itself, after the caller's commit. Idempotent; the last one given counts.
        Raises LedgerError when there is no such batch.
        """

    def joins(self, transaction: Transaction) -> bool:
        """Whether :meth:`settle` can join this transaction."""

    def open(self) -> Transaction:
        """Open a transaction on the ledger's database, for batches without rows."""

    def approve(self, approval: Approval) -> None:
        """Record an approval; in a table that the runner's own role need not be able to write. Atomic."""

    def probe(self) -> Sequence[Proof]:
        """Prove that every write a run makes is permitted, in transactions that are rolled back. Idempotent."""
