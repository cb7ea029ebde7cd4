"""Record outcomes in a transaction of the ledger's own, under the lease."""

from __future__ import annotations

from collections.abc import Mapping

from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.ports import Lease, Ledger, StoredBatch


def record(ledger: Ledger, lease: Lease, stored: StoredBatch, outcomes: Mapping[int, ItemOutcome]) -> Tally:
    """Settle a batch whose items are all accounted for. Deletes nothing.

    The lease is pinned before the commit: a process that was suspended must not overwrite what the run that took
    over has recorded since.

    Args:
        ledger: Where to.
        lease: Held by this run.
        stored: The batch.
        outcomes: By index, every outcome other than deleted.

    Returns:
        The batch's sums.

    Raises:
        LockLostError: The lease is gone; nothing was recorded.
    """
    tally = Tally.of(outcomes.values()) + Tally(deleted=len(stored.items) - len(outcomes))
    transaction = ledger.open()
    try:
        ledger.settle(stored.ref, tally, outcomes, (), transaction)
        lease.pin(transaction)
        transaction.commit()
    except BaseException:
        transaction.rollback()
        raise
    return tally
