"""A lease in memory that expires when the test moves the clock."""

from __future__ import annotations

from dataclasses import replace

from safedelete.errors import LockHeldError, LockLostError
from safedelete.ports import Transaction
from safedelete.testing.memory.clock import ManualClock
from safedelete.testing.memory.database import LeaseRow, MemoryDatabase, MemoryTransaction

MARGIN = 0.1
"""Share of the lease's length by which the holder's own deadline comes earlier than the database's."""


class MemoryLock:
    """Takes leases in one database. Implements ``ports.Lock``.

    Args:
        database: Where the leases are.
        clock: Moves them towards their end.
        seconds: Length of a lease.
    """

    def __init__(self, database: MemoryDatabase, clock: ManualClock, *, seconds: float = 60.0) -> None:
        self.database = database
        self.clock = clock
        self.seconds = seconds

    def acquire(self, job: str, *, owner: str) -> MemoryLease:
        """Take the lease, or take it over when it has expired, raising the token."""
        found = self.database.leases.get(job)
        now = self.clock.uptime()
        if found is not None and (found.expires > now or self.database.pinned[job]):
            raise LockHeldError(
                f"{job} is locked: {found.owner} holds it since {found.since}.",
                holder=found.owner,
                since=found.since,
            )
        token = 1 if found is None else found.token + 1
        since = self.clock.now().isoformat(timespec="seconds")
        self.database.leases[job] = LeaseRow(owner, token, now + self.seconds, since)
        return MemoryLease(self, job, owner, token)


class MemoryLease:
    """A lease that is held. Implements ``ports.Lease``; the clock's heartbeats renew it."""

    def __init__(self, lock: MemoryLock, job: str, owner: str, token: int) -> None:
        self._lock = lock
        self._job = job
        self._owner = owner
        self._token = token
        self._deadline = 0.0
        self._lost = ""
        self._extend()
        lock.clock.beat_every(lock.seconds / 4, self.beat)

    @property
    def token(self) -> int:
        """The fencing token."""
        return self._token

    def gate(self) -> None:
        """Raise LockLostError once the local deadline has passed. No I/O."""
        if self._lost:
            raise self._gone(self._lost)
        if self._lock.clock.uptime() >= self._deadline:
            raise self._gone("it was not renewed in time")

    def fence(self, transaction: Transaction | None = None) -> None:
        """Read the lease and raise LockLostError unless it is still ours. Reads only."""
        self.gate()
        if self._joined(transaction):
            assert isinstance(transaction, MemoryTransaction)
            transaction.require_open()
        if not self._ours():
            self._lost = "another run took it over, or it expired"
            raise self._gone(self._lost)

    def pin(self, transaction: Transaction) -> None:
        """Lock the lease row until the transaction ends, so that no takeover passes before its commit."""
        self.fence(transaction)
        if self._joined(transaction):
            assert isinstance(transaction, MemoryTransaction)
            transaction.pin(self._job)

    def release(self) -> None:
        """Give it back. Idempotent; never raises."""
        row = self._lock.database.leases.get(self._job)
        if row is not None and (row.owner, row.token) == (self._owner, self._token):
            self._lock.database.leases[self._job] = replace(row, expires=float("-inf"))
        self._lost = self._lost or "it was given back"
        self.disconnect()

    def beat(self) -> None:
        """Renew it once, as the heartbeat does."""
        if not self._ours():
            self._lost = self._lost or "another run took it over, or it expired"
            return
        row = self._lock.database.leases[self._job]
        self._lock.database.leases[self._job] = replace(
            row, expires=self._lock.clock.uptime() + self._lock.seconds
        )
        self._extend()

    def disconnect(self) -> None:
        """Renew it no more, as when its process has died."""
        self._lock.clock.stop_beating(self.beat)

    def _extend(self) -> None:
        self._deadline = self._lock.clock.uptime() + self._lock.seconds * (1 - MARGIN)

    def _ours(self) -> bool:
        row = self._lock.database.leases.get(self._job)
        mine = row is not None and (row.owner, row.token) == (self._owner, self._token)
        return mine and row is not None and row.expires > self._lock.clock.uptime()

    def _joined(self, transaction: Transaction | None) -> bool:
        return (
            isinstance(transaction, MemoryTransaction)
            and transaction.database == self._lock.database.identity
        )

    def _gone(self, why: str) -> LockLostError:
        return LockLostError(f"The lock of {self._job} is lost: {why}.", deleted=None)
