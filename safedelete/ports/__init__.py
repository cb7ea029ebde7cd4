"""What the phases need from the outside, as small Protocols.

Each method says whether it reads or deletes, whether calling it twice is safe (idempotent), and what is atomic. One
contract suite (``tests/contract``) runs on every adapter, the in-memory ones of ``safedelete.testing`` included.

Planning is given readers only: a ``RowReader`` or an ``ObjectReader`` has no method that could delete.
"""

from safedelete.ports.clock import MOST_SKEW, Clock, Gate
from safedelete.ports.ledger import BatchRef, Binding, Ledger, LedgerReader, RunChange, RunRecord, StoredBatch
from safedelete.ports.lock import Hold, Lease, Lock, SecondLock
from safedelete.ports.notices import Notice, NoticeKind, NoticeReader, holding
from safedelete.ports.preflight import Prober, Proof, Verdict
from safedelete.ports.references import ColumnValues, References, Values
from safedelete.ports.sink import Silence, Sink, Teller
from safedelete.ports.stores import (
    Deletion,
    Held,
    ObjectReader,
    ObjectStore,
    ObjectTarget,
    OwnedReader,
    Presence,
    RowReader,
    RowTarget,
    RowTransaction,
    Transaction,
)

__all__ = [
    "MOST_SKEW",
    "BatchRef",
    "Binding",
    "Clock",
    "ColumnValues",
    "Deletion",
    "Gate",
    "Held",
    "Hold",
    "Lease",
    "Ledger",
    "LedgerReader",
    "Lock",
    "Notice",
    "NoticeKind",
    "NoticeReader",
    "ObjectReader",
    "ObjectStore",
    "ObjectTarget",
    "OwnedReader",
    "Presence",
    "Prober",
    "Proof",
    "References",
    "RowReader",
    "RowTarget",
    "RowTransaction",
    "RunChange",
    "RunRecord",
    "SecondLock",
    "Silence",
    "Sink",
    "StoredBatch",
    "Teller",
    "Transaction",
    "Values",
    "Verdict",
    "holding",
]
