"""A permission probe that reads the policies of the store in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from safedelete.core.item import ObjectRef
from safedelete.ports import Proof, Verdict
from safedelete.testing.memory.objects import MemoryObjects, Policy


class MemoryProber:
    """Says of each sampled key whether it may be deleted. Implements ``ports.Prober``; changes nothing.

    Args:
        objects: Whose policies are read; None where only the verdicts below count.
        verdicts: Further permissions by subject, for a test to set.
    """

    def __init__(self, objects: MemoryObjects | None = None, **verdicts: Verdict) -> None:
        self.objects = objects
        self.verdicts = verdicts
        self.samples: list[tuple[ObjectRef, ...]] = []

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove each permission. Idempotent."""
        del as_of
        self.samples.append(tuple(sample))
        proofs = [
            Proof(subject, verdict, remedy=f"GRANT {subject}") for subject, verdict in self.verdicts.items()
        ]
        return proofs + [self._about(ref) for ref in sample if self.objects is not None]

    def _about(self, ref: ObjectRef) -> Proof:
        assert self.objects is not None
        denied = self.objects.policies.get((ref.bucket, ref.key)) is Policy.DENIED
        subject = f"s3:DeleteObject on s3://{ref.bucket}/{ref.key}"
        return Proof(subject, Verdict.DENIED if denied else Verdict.ALLOWED, remedy="Allow s3:DeleteObject")
