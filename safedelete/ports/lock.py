"""The lock and the lease."""

from __future__ import annotations

from typing import Protocol

from safedelete.ports.stores import Transaction


class Hold(Protocol):
    """A lock that this process holds, of whatever kind."""

    def gate(self) -> None:
        """Raise LockLostError once it is known to be lost, or was not proven in time by a clock of our own. No I/O."""

    def fence(self, transaction: Transaction | None = None) -> None:
        """Ask whoever keeps the lock, and raise LockLostError unless it is still ours. Reads only.

        In the given transaction where that is on the lock's own database, else on a connection of its own.
        """

    def release(self) -> None:
        """Give it back. Idempotent; never raises, since a lock that is not proven again ends anyway."""


class Lease(Hold, Protocol):
    """A held lock with a fencing token, which a batch's own transaction can hold on to."""

    @property
    def token(self) -> int:
        """Rises with every takeover."""

    def pin(self, transaction: Transaction) -> None:
        """Lock the lease row FOR SHARE in this transaction, so that no takeover can pass before its commit.

        Raises LockLostError when it is no longer ours. Where the lease is in another database, as :meth:`fence`.
        """


class Lock(Protocol):
    """Keeps two runs of one job apart."""

    def acquire(self, job: str, *, owner: str) -> Lease:
        """Take the lock, or take it over when it has expired, raising the token. Atomic.

        Raises:
            LockHeldError: Somebody else holds it; says who and since when.
        """


class SecondLock(Protocol):
    """A lock that a job asks for beside the lease, on a server that knows no batch."""

    def acquire(self, job: str, *, owner: str) -> Hold:
        """Take it, without waiting. Atomic.

        Raises:
            LockHeldError: Somebody else holds it; says who and since when, as far as the server can tell.
            ConfigError: Its server refuses us, or cannot keep such a lock.
            StoreError: Its server does not answer.
        """
