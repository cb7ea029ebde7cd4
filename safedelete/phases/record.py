"""Record outcomes in a transaction of the ledger's own, under the lease, and name what they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.core.seal import ObjectBatch, RowBatch
from safedelete.ports import BatchRef, Lease, Ledger, StoredBatch


def sums(stored: StoredBatch, outcomes: Mapping[int, ItemOutcome], pending: Sequence[int] = ()) -> Tally:
    """Add up a batch: what has no other outcome, and is not still owed, was deleted."""
    return Tally.of(outcomes.values()) + Tally(deleted=len(stored.items) - len(outcomes) - len(pending))


def record(
    ledger: Ledger,
    lease: Lease,
    stored: StoredBatch,
    outcomes: Mapping[int, ItemOutcome],
    pending: Sequence[int] = (),
    *,
    underway: bool = False,
) -> Tally:
    """Settle a batch in a transaction of its own. Deletes nothing.

    The lease is pinned before the commit: a process that was suspended must not overwrite what the run that took
    over has recorded since.

    Args:
        ledger: Where to.
        lease: Held by this run.
        stored: The batch.
        outcomes: By index, every outcome other than deleted that is final.
        pending: Indexes still owed or not tried.
        underway: Whether some were not tried.

    Returns:
        The batch's sums.

    Raises:
        LockLostError: The lease is gone; nothing was recorded.
    """
    tally = sums(stored, outcomes, pending)
    transaction = ledger.open()
    try:
        ledger.settle(stored.ref, tally, outcomes, pending, transaction, underway=underway)
        lease.pin(transaction)
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise
    return tally


def place(ref: BatchRef) -> dict[str, int]:
    """Return where a batch stands, for log lines."""
    return {"target": ref.target, "seq": ref.seq}


def name_of(items: RowBatch | ObjectBatch, index: int) -> str:
    """Return one item of a batch, rendered for a log line."""
    if isinstance(items, ObjectBatch):
        ref = items.objects[index]
        return f"s3://{ref.bucket}/{ref.key}"
    row = items.rows[index]
    names = "".join(f" s3://{ref.bucket}/{ref.key}" for ref in row.objects)
    return f"{', '.join(str(part) for part in row.key)}{names}"
