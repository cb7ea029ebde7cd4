"""The lock and the lease."""

from __future__ import annotations

from typing import Protocol

from safedelete.ports.stores import Transaction


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
