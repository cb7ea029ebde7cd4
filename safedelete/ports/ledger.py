"""The durable record of runs, batches and approvals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from safedelete.core.decision import Approval, Decision
from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.core.plan import PastRun, Plan
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import ObjectBatch, RowBatch
from safedelete.ports.notices import NoticeReader, Notices
from safedelete.ports.preflight import Proof
from safedelete.ports.stores import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run as the ledger knows it. Instants are aware UTC.

    Of ``task`` it knows what the platform said of the task that works on it, or did last: family, revision and image;
    empty where it runs elsewhere.
    """

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
    resumed_at: datetime | None = None
    task: str = ""

    @property
    def began_at(self) -> datetime:
        """When the process began that works on it, or did last: its deadline counts from here."""
        return self.resumed_at or self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """Columns of a run to be set; None leaves one as it is.

    With ``reopened`` how the run ended before is forgotten first: its end, reason and exit code become empty.
    """

    plan: Plan | None = None
    decision: Decision | None = None
    finished_at: datetime | None = None
    tally: Mapping[str, Tally] | None = None
    reason: str | None = None
    exit_code: int | None = None
    sealed_bytes: int | None = None
    owner: str | None = None
    task: str | None = None
    teaches: Literal[0, 1, 2] | None = None
    resumed_at: datetime | None = None
    reopened: bool = False


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
        pending: Indexes still owed (locked rows) or not tried yet; every other item is settled. Empty before the first.
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


class LedgerReader(NoticeReader, Protocol):
    """The durable tables of runs, batches and approvals, for planning. Reads only."""

    def verify(self, binding: Binding) -> None:
        """Raise LedgerError unless the ledger is there, of this version, and bound to exactly this."""

    def history(self, job: str, *, limit: int) -> Sequence[PastRun]:
        """Return a job's newest successful purges, and its newest other ones that deleted something, newest first.

        Args:
            job: The purge's name.
            limit: Most of each of the two.
        """

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


class Ledger(LedgerReader, Notices, Protocol):
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
        """Store a batch; returns the bytes it costs.

        Not idempotent: raises LedgerError when it is there already, or when the run is not being planned (any more).
        """

    def drop_seal(self, run: str) -> None:
        """Forget a run's sealed batches. Idempotent."""

    def doubt(self, ref: BatchRef, pending: Sequence[int] = ()) -> bool:
        """Mark a batch in doubt, committed before its first request. Idempotent.

        Returns False, and changes nothing, where the batch is settled already or other items are pending than the
        caller knows of: by a commit whose answer was lost, or by whoever took the lease over. Raises LedgerError when
        there is no such batch.
        """

    def settle(
        self,
        ref: BatchRef,
        tally: Tally,
        outcomes: Mapping[int, ItemOutcome],
        pending: Sequence[int],
        transaction: Transaction | None,
        *,
        underway: bool = False,
    ) -> None:
        """Record a batch's outcomes. With nothing pending it is done; else deferred to a last pass, or, ``underway``,
        still in doubt, since some of what is pending was not tried. In the given transaction where it is on the ledger's own database, so that rows
        and record commit together; else by itself, after the caller's commit. Idempotent; the last one given counts.
        Raises LedgerError when there is no such batch, and where something is pending of one that was done already.
        """

    def joins(self, transaction: Transaction) -> bool:
        """Whether :meth:`settle` can join this transaction."""

    def open(self) -> Transaction:
        """Open a transaction on the ledger's database, for batches without rows."""

    def approve(self, approval: Approval) -> None:
        """Record an approval; in a table that the runner's own role need not be able to write. Atomic."""

    def probe(self) -> Sequence[Proof]:
        """Prove that every write a run makes is permitted, in transactions that are rolled back. Idempotent."""
