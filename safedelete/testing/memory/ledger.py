"""The ledger's tables as dictionaries; batches are kept encoded, as the real ledger keeps them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from safedelete.core.decision import Approval
from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.core.plan import PastRun
from safedelete.core.run import BatchState, RunState, settled, transition
from safedelete.core.seal import Blob, ObjectBatch, RowBatch, decode, encode
from safedelete.errors import BindingError, LedgerError
from safedelete.ledger.past import TAUGHT, past_runs
from safedelete.ports import (
    BatchRef,
    Binding,
    Notice,
    Proof,
    RunChange,
    RunRecord,
    StoredBatch,
    Transaction,
    Verdict,
)
from safedelete.testing.memory.database import MemoryDatabase, MemoryTransaction
from safedelete.testing.memory.notices import MemoryNotices


@dataclass(frozen=True, slots=True)
class _Batch:
    blob: Blob
    items: int
    state: BatchState = BatchState.SEALED
    tally: Tally | None = None
    outcomes: Mapping[int, ItemOutcome] = field(default_factory=dict)
    pending: tuple[int, ...] = ()


class MemoryLedger(MemoryNotices):
    """The ledger in one database. Implements ``ports.Ledger``.

    Args:
        database: Where it is; a batch's transaction on the same one is joined.
        binding: What it is bound to.
    """

    def __init__(self, database: MemoryDatabase, binding: Binding | None = None) -> None:
        self.database = database
        self.bound = binding or Binding("default", frozenset({database.identity}), frozenset())
        self.denied: frozenset[str] = frozenset()
        """Writes that the role may not make, for :meth:`probe`."""
        self._runs: dict[str, RunRecord] = {}
        self._batches: dict[tuple[str, int, int], _Batch] = {}
        self._approvals: list[Approval] = []
        self._notices: list[Notice] = []

    # --- reading

    def verify(self, binding: Binding) -> None:
        """Raise BindingError unless the ledger is bound to this. Reads only."""
        if binding.environment != self.bound.environment:
            raise BindingError(
                f"This ledger belongs to {self.bound.environment!r}, not to {binding.environment!r}."
            )
        strange = sorted((binding.databases - self.bound.databases) | (binding.buckets - self.bound.buckets))
        if strange:
            raise BindingError(f"This ledger is not bound to {', '.join(strange)}.")

    def history(self, job: str, *, limit: int) -> Sequence[PastRun]:
        """Return the newest successful purges of a job, and the newest others that deleted something. Reads only."""
        found = self.runs(job, limit=len(self._runs), states=TAUGHT)
        planned = [record for record in found if record.plan is not None]
        succeeded = [record for record in planned if record.state is RunState.SUCCEEDED][:limit]
        partial = [r for r in planned if r.state is not RunState.SUCCEEDED]
        partial = [r for r in partial if any(tally.deleted for tally in r.tally.values())][:limit]
        both = sorted([*succeeded, *partial], key=lambda r: (r.started_at, r.run), reverse=True)
        return past_runs(both)

    def runs(
        self, job: str | None, *, limit: int, states: Collection[RunState] | None = None
    ) -> Sequence[RunRecord]:
        """Return runs, newest first. Reads only."""
        found = [
            record
            for record in self._runs.values()
            if (job is None or record.job == job) and (states is None or record.state in states)
        ]
        return sorted(found, key=lambda record: (record.started_at, record.run), reverse=True)[:limit]

    def record(self, run: str) -> RunRecord:
        """Return one run by its id or a unique prefix of it. Reads only."""
        found = [record for id_, record in self._runs.items() if id_.startswith(run.upper())]
        if len(found) != 1:
            raise LedgerError(
                f"There is {'more than one' if found else 'no'} run whose id begins with {run!r}."
            )
        return found[0]

    def batches(self, run: str, states: Collection[BatchState] | None = None) -> Iterator[StoredBatch]:
        """Yield sealed batches in order. Reads only."""
        places = sorted(
            place
            for place, batch in self._batches.items()
            if place[0] == run and (states is None or batch.state in states)
        )
        for place in places:
            batch = self._batches[place]
            items = decode(batch.blob.data, batch.blob.sha256)
            yield StoredBatch(BatchRef(*place), batch.state, items, batch.outcomes, batch.pending)

    def approval(self, run: str) -> Approval | None:
        """Return the newest approval of a run. Reads only."""
        mine = [approval for approval in self._approvals if approval.run == run]
        return max(mine, key=lambda approval: approval.at, default=None)

    def tally(self, run: str) -> Mapping[int, Tally]:
        """Add up the settled batches by target index. Reads only."""
        sums: dict[int, Tally] = {}
        for (owner, target, _), batch in self._batches.items():
            if owner == run and batch.tally is not None:
                sums[target] = sums.get(target, Tally()) + batch.tally
        return sums

    def sealed(self, run: str) -> Mapping[int, int]:
        """Count the sealed items by target index. Reads only."""
        sums: dict[int, int] = {}
        for (owner, target, _), batch in self._batches.items():
            if owner == run:
                sums[target] = sums.get(target, 0) + batch.items
        return sums

    def checksums(self, run: str) -> Iterator[str]:
        """Yield the sealed batches' checksums in order. Reads only."""
        for place in sorted(place for place in self._batches if place[0] == run):
            yield self._batches[place].blob.sha256

    # --- writing

    def begin(self, record: RunRecord) -> None:
        """Insert a run."""
        if record.run in self._runs:
            raise LedgerError(f"There is a run {record.run} already.")
        self._runs[record.run] = record

    def move(
        self, run: str, to: RunState, *, change: RunChange | None = None, owner: str | None = None
    ) -> RunRecord:
        """Move a run along an edge of the state table."""
        now = self.record(run)
        if now.state is not to:
            transition(now.state, to)
        if owner is not None and now.owner != owner:
            raise LedgerError(f"Run {now.run} was changed by another process.", deleted=None)
        given = change or RunChange()
        new = {
            f.name: getattr(given, f.name)
            for f in fields(given)
            if f.name != "reopened" and getattr(given, f.name) is not None
        }
        if given.reopened:
            now = replace(now, finished_at=None, reason="", exit_code=None)
        self._runs[now.run] = replace(now, state=to, **new)
        return self._runs[now.run]

    def seal(self, ref: BatchRef, items: RowBatch | ObjectBatch) -> int:
        """Store a batch; returns its size in bytes."""
        place = (ref.run, ref.target, ref.seq)
        if place in self._batches:
            raise LedgerError(f"Batch {ref.target}/{ref.seq} of run {ref.run} is sealed already.")
        if ref.run not in self._runs or self._runs[ref.run].state is not RunState.PLANNING:
            raise LedgerError(
                f"Run {ref.run} is not being planned any more, so nothing can be sealed for it."
            )
        blob = encode(items)
        self._batches[place] = _Batch(blob, len(items))
        return len(blob.data)

    def drop_seal(self, run: str) -> None:
        """Forget a run's sealed batches."""
        self._batches = {place: batch for place, batch in self._batches.items() if place[0] != run}

    def doubt(self, ref: BatchRef, pending: Sequence[int] = ()) -> bool:
        """Mark a batch in doubt; False where it is settled already, or has got further than the caller knows."""
        batch = self._batch(ref)
        if batch.state is BatchState.DONE or batch.pending != tuple(pending):
            return False
        self._batches[ref.run, ref.target, ref.seq] = replace(batch, state=BatchState.IN_DOUBT)
        return True

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
        """Record a batch's outcomes, in the given transaction where that is on this database."""
        self._batch(ref)
        state = settled(pending, underway=underway)

        def write() -> None:
            if pending and self._batch(ref).state is BatchState.DONE:
                raise LedgerError(f"Batch {ref.target}/{ref.seq} of run {ref.run} is not open.")
            self._batches[ref.run, ref.target, ref.seq] = replace(
                self._batch(ref), state=state, tally=tally, outcomes=dict(outcomes), pending=tuple(pending)
            )

        if isinstance(transaction, MemoryTransaction) and self.joins(transaction):
            transaction.write(write)
        else:
            write()

    def joins(self, transaction: Transaction) -> bool:
        """Whether a transaction is on this ledger's own database."""
        return isinstance(transaction, MemoryTransaction) and transaction.database == self.database.identity

    def open(self) -> MemoryTransaction:
        """Open a transaction on the ledger's database."""
        return MemoryTransaction(self.database)

    def approve(self, approval: Approval) -> None:
        """Record an approval."""
        self._approvals.append(approval)

    def probe(self) -> Sequence[Proof]:
        """Say of each write whether it is permitted. Writes nothing."""
        return [
            Proof(subject, Verdict.DENIED if subject in self.denied else Verdict.ALLOWED)
            for subject in ("INSERT on runs", "UPDATE on runs", "INSERT on batches", "UPDATE on batches")
        ]

    def _batch(self, ref: BatchRef) -> _Batch:
        found = self._batches.get((ref.run, ref.target, ref.seq))
        if found is None:
            raise LedgerError(f"There is no sealed batch {ref.target}/{ref.seq} of run {ref.run}.")
        return found
