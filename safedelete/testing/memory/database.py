"""What rows, ledger and leases share when they live in one database: transactions that commit all of it or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from safedelete.errors import StoreError


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One row of the lease table.

    Attributes:
        owner: Who holds it.
        token: Its fencing token.
        expires: When it ends, on the clock's ``uptime``.
        since: When it was taken, ISO 8601.
    """

    owner: str
    token: int
    expires: float
    since: str


class MemoryDatabase:
    """One database: an identity, the leases in it, and which of them an open transaction has locked.

    Args:
        identity: What tells it from a copy.
    """

    def __init__(self, identity: str = "memory") -> None:
        self.identity = identity
        self.leases: dict[str, LeaseRow] = {}
        self.pinned: Counter[str] = Counter()


class MemoryTransaction:
    """A transaction: what is written in it shows when it commits. Implements ``ports.Transaction``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._writes: list[Callable[[], None]] = []
        self._pins: list[str] = []
        self.open = True

    @property
    def database(self) -> str:
        """Identity of the database it is open on."""
        return self._database.identity

    def write(self, change: Callable[[], None]) -> None:
        """Make a change when the transaction commits, and never if it does not."""
        self.require_open()
        self._writes.append(change)

    def pin(self, job: str) -> None:
        """Lock a lease row until the transaction ends."""
        self.require_open()
        self._pins.append(job)
        self._database.pinned[job] += 1

    def commit(self) -> None:
        """Make every change, and end.

        Raises:
            StoreError: The transaction had ended; nothing of it was kept.
        """
        self.require_open()
        for change in self._writes:
            change()
        self._end()

    def rollback(self) -> None:
        """Undo everything; never raises."""
        self._end()

    def disconnect(self) -> None:
        """End as the server ends it when its client is gone: rolled back."""
        self._end()

    def require_open(self) -> None:
        """Raise StoreError once the transaction has ended."""
        if not self.open:
            raise StoreError("The transaction has ended; nothing of it was kept.", deleted=None)

    def _end(self) -> None:
        self.open = False
        self._writes.clear()
        while self._pins:
            self._database.pinned[self._pins.pop()] -= 1
