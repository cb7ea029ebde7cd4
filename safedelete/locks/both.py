"""The lease and a second lock, held together."""

from __future__ import annotations

from dataclasses import dataclass

from safedelete.ports import Hold, Lease, Lock, SecondLock, Transaction


class LeaseAnd:
    """Takes the lease, then a second lock. Implements ``ports.Lock``.

    The lease always comes first: it is what a batch can prove inside its own transaction, what names the holder, and
    what keeps two runs apart while one of them was started with another lock.

    Args:
        lease: Takes leases.
        second: Takes the other lock.
    """

    def __init__(self, lease: Lock, second: SecondLock) -> None:
        self._lease = lease
        self._second = second

    def acquire(self, job: str, *, owner: str) -> HeldTogether:
        """Take both or neither."""
        lease = self._lease.acquire(job, owner=owner)
        try:
            return HeldTogether(lease, self._second.acquire(job, owner=owner))
        except BaseException:
            lease.release()
            raise


@dataclass(frozen=True, slots=True)
class HeldTogether:
    """Both, held; losing either is losing the lock. Implements ``ports.Lease``."""

    lease: Lease
    second: Hold

    @property
    def token(self) -> int:
        """The lease's fencing token."""
        return self.lease.token

    def gate(self) -> None:
        """Raise once either is lost, or was not proven in time. No I/O."""
        self.second.gate()
        self.lease.gate()

    def fence(self, transaction: Transaction | None = None) -> None:
        """Ask for both: the second lock first, since it may wait, and the lease is read in the batch's transaction."""
        self.second.fence()
        self.lease.fence(transaction)

    def pin(self, transaction: Transaction) -> None:
        """Pin the lease. Of the second lock only our own deadline counts here: its server cannot hold up a takeover."""
        self.second.gate()
        self.lease.pin(transaction)
        self.second.gate()

    def release(self) -> None:
        """Give both back, the lease last."""
        self.second.release()
        self.lease.release()
