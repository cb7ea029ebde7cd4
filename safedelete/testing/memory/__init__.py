"""The ports of safedelete over plain Python objects: stores, ledger, lock and clock that a test moves by hand.

They pass the same contract suites as the real adapters. One :class:`MemoryDatabase` holds rows, ledger and lease
together, so that what commits together there commits together here; :class:`Watch` stands between a run and its
ports, numbers every call, and can end the process at any of them.

Example:
    >>> from datetime import UTC, datetime, timedelta
    >>> from safedelete.core.item import ObjectRef, SealedRow
    >>> database, objects = MemoryDatabase(), MemoryObjects()
    >>> photo = ObjectRef("acme", "a.jpg")
    >>> objects.put(photo.bucket, photo.key)
    >>> table = MemoryTable(database, "uploads")
    >>> table.put(MemoryRow((1,), datetime(2026, 1, 1, tzinfo=UTC), (photo,)))
    >>> batch = MemoryRows(table).begin(datetime(2026, 2, 1, tzinfo=UTC))
    >>> batch.hold([SealedRow((1,), (photo,))]).rows
    (SealedRow(key=(1,), objects=(ObjectRef(bucket='acme', key='a.jpg', etag=None, version=None, size=None),)),)
    >>> batch.rollback()
    >>> sorted(table.rows)
    [(1,)]
"""

from safedelete.testing.memory.clock import ManualClock
from safedelete.testing.memory.database import MemoryDatabase, MemoryTransaction
from safedelete.testing.memory.ledger import MemoryLedger
from safedelete.testing.memory.lock import MemoryLease, MemoryLock
from safedelete.testing.memory.objects import MemoryObjects, MemoryPrefix, Policy, StoredObject
from safedelete.testing.memory.orphans import MemoryOrphans, MemoryReferences
from safedelete.testing.memory.probe import MemoryProber
from safedelete.testing.memory.rows import MemoryRow, MemoryRows, MemoryTable
from safedelete.testing.memory.watch import Call, Killed, Watch

__all__ = [
    "Call",
    "Killed",
    "ManualClock",
    "MemoryDatabase",
    "MemoryLease",
    "MemoryLedger",
    "MemoryLock",
    "MemoryObjects",
    "MemoryOrphans",
    "MemoryPrefix",
    "MemoryProber",
    "MemoryReferences",
    "MemoryRow",
    "MemoryRows",
    "MemoryTable",
    "MemoryTransaction",
    "Policy",
    "StoredObject",
    "Watch",
]
