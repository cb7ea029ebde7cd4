"""Phase 5: delete exactly what was sealed. The only module that calls a store's ``delete``.

It takes an ``Approved`` and a ``Cleared``, which only the guard and the preflight make. Each batch is one short
transaction that holds its rows from first to last, and its steps stand in this order because the one after each
cannot be undone:

1. intent: a batch with objects is marked in doubt in the ledger, committed;
2. fence, then hold the sealed rows that still match and still name the sealed objects; a prefix is listed again;
3. delete the rows behind a savepoint, and hold what that touched against the plan: whatever the database refuses
   shows here, before any object is touched;
4. the objects, each request gated by the lease's local deadline and a proof that the transaction still lives;
5. all acknowledged: outcomes to the ledger, the lease pinned, commit;
6. some not: back to the savepoint, and only the rows whose objects are acknowledged go.

A crash at any point leaves rows in place and a batch in doubt, which the next run asks about key by key.

A transaction takes a slice of a sealed batch, as large as the last ones' times allow (``core/pace.py``); what is left of
the batch is recorded with it (``phases/slices.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Protocol

import structlog

from safedelete.core.decision import Approved
from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import DANGLING, OWED, ItemOutcome, Outcome, Tally
from safedelete.core.pace import Pace
from safedelete.core.run import BatchState
from safedelete.core.seal import ObjectBatch, RowBatch
from safedelete.errors import BlastRadiusError, BusyError, StoreError
from safedelete.phases.below import appeared
from safedelete.phases.halt import require_match, stop_after_failure, stop_when_denied
from safedelete.phases.parts import ObjectPart, Part, Radius, RowPart, Tools
from safedelete.phases.pause import Holdback
from safedelete.phases.perseverance import batches, persevere
from safedelete.phases.preflight import Cleared
from safedelete.phases.record import name_of, place, record, sums
from safedelete.phases.slices import Left, some
from safedelete.phases.verdicts import (
    ACKNOWLEDGED,
    acknowledged,
    kept_for_objects,
    proven,
    spared,
    stayed_after_all,
)
from safedelete.ports import BatchRef, Deletion, ObjectStore, RowTransaction, StoredBatch

log = structlog.get_logger("safedelete.execute")

OPEN: Final = frozenset({BatchState.SEALED, BatchState.IN_DOUBT})


def execute(approved: Approved, cleared: Cleared, run: str, parts: Sequence[Part], tools: Tools) -> None:
    """Delete what was sealed for a run, batch by batch. Deletes.

    Also goes on where an interrupted run ended: settled batches are left alone, batches in doubt are asked about.

    Args:
        approved: The guard's approval, on the sealed counts.
        cleared: The preflight's proof, for the same plan.
        run: Whose sealed batches.
        parts: The plan's targets, in order.
        tools: Ledger, lease, clock, stop and progress.

    Raises:
        StalePlanError: Approval, proof and seal are not of one plan; nothing was deleted.
        IncompleteError: Stopped between batches; resumable.
        LockLostError: The lease is gone; nothing more was deleted.
        StoreError: A database or object store failed for good; resumable.
        PartialDeleteError: A batch was denied as a whole; the rest was not attempted.
        BlastRadiusError: A delete touched more than was planned; that batch was rolled back.
    """
    plan = approved.plan
    require_match(plan, cleared, run, tools.ledger)
    sealed = tools.ledger.sealed(run)
    work = _Work(plan.as_of, tools, done=0, total=sum(sealed.values()))
    holdback = Holdback(tools)
    for index, (part, target) in enumerate(zip(parts, plan.targets, strict=True)):
        if isinstance(part, RowPart):
            radius = Radius.planned(target, free=part.may_touch)
            todo: _Batch = _RowBatches(work, part, radius)
        else:
            todo = _ObjectBatches(work, part)
        for wanted in (OPEN, {BatchState.DEFERRED}):
            for stored in batches(run, wanted, tools):
                left = Left.of(stored) if stored.ref.target == index else None
                while left is not None and not left.over:
                    tools.stop.between()
                    tools.lease.gate()
                    holdback.pass_or_wait()
                    left = persevere(
                        partial(todo.delete_some, left), tools, doubt=left.doubt, place=place(stored.ref)
                    )
        stop_after_failure(run, target.name, index, len(parts), tools.ledger)


class _Batch(Protocol):
    """How one kind of batch is deleted."""

    def delete_some(self, left: Left, doubt: bool) -> Left | None:
        """Delete what one transaction takes of a batch, and record it. Deletes.

        Returns what is left of it; None where another process has settled it.
        """


@dataclass(slots=True)
class _Work:
    as_of: datetime
    tools: Tools
    done: int
    total: int

    def settle(self, left: Left, transaction: RowTransaction) -> Tally:
        stored = left.stored
        tally = sums(stored, stored.outcomes, stored.pending)
        self.tools.ledger.settle(
            stored.ref, tally, stored.outcomes, stored.pending, transaction, underway=not left.over
        )
        return tally

    def report(
        self, stored: StoredBatch, tried: int, outcomes: Mapping[int, ItemOutcome], tally: Tally
    ) -> None:
        self.done += tried
        for index, outcome in outcomes.items():
            log.warning(
                "not deleted",
                item=name_of(stored.items, index),
                outcome=outcome.state.value,
                code=outcome.code,
                detail=outcome.detail,
            )
        log.debug(
            "batch",
            target=stored.ref.target,
            seq=stored.ref.seq,
            deleted=tally.deleted,
            tried=tried,
            items=len(stored.items),
        )
        self.tools.progress("execute", min(self.done, self.total), self.total)


@dataclass(frozen=True, slots=True)
class _Landed:
    """What a transaction did, where that is not taken off the radius yet, and what it left of its batch."""

    deletion: Deletion | None
    left: Left


class _RowBatches:
    def __init__(self, work: _Work, part: RowPart, radius: Radius) -> None:
        self._work = work
        self._part = part
        self._radius = radius
        self._pace = Pace()
        self._unsure: dict[BatchRef, _Landed] = {}
        """What a batch has come to, if its commit happened; whether it did is not known."""

    def delete_some(self, left: Left, doubt: bool) -> Left | None:
        stored = left.stored
        assert isinstance(stored.items, RowBatch)
        tools, store = self._work.tools, self._part.store
        # Before every attempt: whoever lost the lock must not touch the record of who has it now either.
        tools.lease.gate()
        if (store is not None or doubt) and not self._intend(stored):
            return self._landed(stored)
        began = tools.clock.uptime()
        tried = left.todo[: self._pace.take(len(left.todo))]
        wanted = some(stored.items.rows, tried)
        try:
            transaction = self._part.target.begin(self._work.as_of)
            try:
                joined = tools.ledger.joins(transaction)
                # Rows and record that commit apart: without intent, a crash in between would look like "not attempted".
                if store is None and not joined and not self._intend(stored):
                    transaction.rollback()
                    return self._landed(stored)
                kept, deletion, lost = self._delete(transaction, wanted, store, doubt=doubt, last=left.last)
                places = {row.key: i for i, row in zip(tried, wanted, strict=True)} if kept else {}
                found = {places[key]: outcome for key, outcome in kept.items()}
                after = left.after(len(tried), found, doubt=doubt, lost=[places[key] for key in lost])
                tally = self._work.settle(after, transaction) if joined else None
                tools.lease.pin(transaction)
                self._unsure[stored.ref] = _Landed(deletion, after)
                transaction.commit()
            except BaseException:
                transaction.rollback()
                raise
        except StoreError:
            self._pace = self._pace.halved()
            raise
        self._pace = self._pace.after(len(tried), tools.clock.uptime() - began)
        self._spend(deletion)
        if tally is None:
            self._unsure[stored.ref] = _Landed(None, after)
            now = after.stored
            tally = record(tools.ledger, tools.lease, now, now.outcomes, now.pending, underway=not after.over)
        # Sure from here on; kept for every batch, these would be the whole purge in memory.
        del self._unsure[stored.ref]
        new = {i: o for i, o in after.stored.outcomes.items() if i not in stored.outcomes}
        self._work.report(stored, len(tried), new, tally)
        if store is not None:
            stop_when_denied(after.stored.outcomes, after.lost, tried=after.tried, over=after.over)
        return after

    def _intend(self, stored: StoredBatch) -> bool:
        """Mark a batch in doubt; False where it has got further, by a commit whose answer was lost."""
        return self._work.tools.ledger.doubt(stored.ref, stored.pending)

    def _landed(self, stored: StoredBatch) -> Left | None:
        """Go on from a commit whose answer was lost; from nothing where it was not ours."""
        done = self._unsure.pop(stored.ref, None)
        if done is None:
            return None
        if done.deletion is not None:
            self._spend(done.deletion)
        return done.left

    def _spend(self, deletion: Deletion) -> None:
        self._radius.spend(deletion.touched or {}, named=len(deletion.rows))

    def _delete(
        self,
        transaction: RowTransaction,
        wanted: Sequence[SealedRow],
        store: ObjectStore | None,
        *,
        doubt: bool,
        last: bool,
    ) -> tuple[dict[Key, ItemOutcome], Deletion, Collection[Key]]:
        """Return what is kept, what was deleted, and the rows whose objects an earlier attempt had taken."""
        tools = self._work.tools
        tools.lease.fence(transaction)
        held = transaction.hold(wanted)
        kept = dict(held.missing)
        if self._part.owned is not None:
            kept |= appeared(held.rows, self._part.owned)
        fit = [row for row in held.rows if row.key not in kept] if kept else held.rows
        deletion = self._within_radius(transaction.delete(fit))
        kept |= deletion.kept
        if store is None:
            return kept, deletion, ()
        lost: Collection[Key] = ()
        if doubt or last:
            # A row that is owed is not judged before its last pass: it may still go, after its objects.
            settled = {key: o for key, o in kept.items() if last or o.code not in OWED}
            found = proven(wanted, settled, held.named, store)
            lost = {key for key, o in found.items() if o.code == DANGLING}
            kept |= found
        refs = list(dict.fromkeys(ref for row in deletion.rows for ref in row.objects))
        shared = self._part.target.shares_objects
        spared = frozenset(transaction.named(refs)) if shared and refs else frozenset[ObjectRef]()
        for other in self._part.sharing if refs else ():
            spared |= frozenset(other.named(refs))
        asked = [ref for ref in refs if ref not in spared] if spared else refs
        answers = store.delete(asked, gate=self._gate(transaction))
        if len(answers) == len(asked) and {answer.state for answer in answers.values()} <= ACKNOWLEDGED:
            return kept, deletion, lost
        good = [row for row in deletion.rows if acknowledged(row, answers, spared)]
        if len(good) == len(deletion.rows):
            return kept, deletion, lost
        bad = {row.key for row in deletion.rows} - {row.key for row in good}
        kept |= {row.key: kept_for_objects(row, answers, spared) for row in deletion.rows if row.key in bad}
        transaction.undo()
        again = self._within_radius(transaction.delete(good))
        kept |= {
            row.key: stayed_after_all(row, again.kept[row.key], answers, spared)
            for row in good
            if row.key in again.kept
        }
        return kept, again, lost

    def _within_radius(self, deletion: Deletion) -> Deletion:
        if deletion.touched is not None:
            broken = self._radius.broken_by(deletion.touched, named=len(deletion.rows))
            if broken:
                raise BlastRadiusError(
                    f"{self._part.target.name}: {broken}. The batch was rolled back and the run stopped.",
                    hint="Plan again: the plan counts cascades as they are now. A table that a trigger writes to is "
                    "named with Rows(..., may_touch=[...]).",
                    deleted=None,
                )
        return deletion

    def _gate(self, transaction: RowTransaction) -> Callable[[], None]:
        tools = self._work.tools

        def gate() -> None:
            tools.stop.within()
            transaction.prove_alive()
            # Last, since it is what makes the next request safe: nothing slow stands between it and the request.
            tools.lease.gate()

        return gate


class _ObjectBatches:
    def __init__(self, work: _Work, part: ObjectPart) -> None:
        self._work = work
        self._part = part

    def delete_some(self, left: Left, doubt: bool) -> Left | None:
        # No row is held, so the whole batch is one slice. Deleting the same objects again gives the same end, so doubt changes nothing but an outcome's name.
        stored = left.stored
        assert isinstance(stored.items, ObjectBatch)
        tools = self._work.tools
        refs = stored.items.objects
        # As for rows: before every attempt, and before the first word to the ledger.
        tools.lease.gate()
        if not tools.ledger.doubt(stored.ref, stored.pending):
            return None
        tools.lease.fence()
        named = self._named(refs)
        orphans = [ref for ref in refs if ref not in named]

        def gate() -> None:
            tools.stop.within()
            # Looking for what was overwritten, and waiting after a SlowDown, take their time.
            if self._named(orphans):
                raise BusyError(
                    f"Rows have come to name objects of {self._part.target.name} while a batch was being deleted.",
                    hint="Nothing has to be repaired: the batch is tried again without them.",
                    deleted=None,
                )
            tools.lease.gate()

        answers = {
            **spared(named, refs, self._part.target.store, doubt=doubt),
            **self._part.target.store.delete(orphans, gate=gate),
        }
        outcomes = {
            i: answers[ref] for i, ref in enumerate(refs) if answers[ref].state is not Outcome.DELETED
        }
        tally = record(tools.ledger, tools.lease, stored, outcomes)
        self._work.report(stored, len(refs), outcomes, tally)
        stop_when_denied(outcomes, tried=len(refs), over=True)
        return None

    def _named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return the orphans that are none any more."""
        references = self._part.references
        return frozenset(references.named(refs)) if references is not None and refs else ()
