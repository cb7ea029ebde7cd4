"""Permission probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from safedelete.core.item import ObjectRef


class Verdict(StrEnum):
    """What a permission probe found; unknown stops a run as a denial does."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"
    ADVICE = "advice"
    """Said beside the proofs; stops nothing and permits nothing."""


@dataclass(frozen=True, slots=True)
class Proof:
    """One permission, probed.

    Attributes:
        subject: What it is about: ``DELETE on uploads``, ``s3:DeleteObject on s3://acme/tmp/``.
        verdict: Allowed, denied or unknown; or advice, which is no proof.
        detail: The store's own words.
        remedy: The GRANT or policy statement that is missing.
    """

    subject: str
    verdict: Verdict
    detail: str = ""
    remedy: str = ""

    @property
    def stops(self) -> bool:
        """Whether a run stops for it."""
        return self.verdict in (Verdict.DENIED, Verdict.UNKNOWN)


class Prober(Protocol):
    """Proves permissions by methods that change nothing. Writes no data; used by ``check``, ``run`` and ``--preflight``."""

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove each permission a target needs. Idempotent.

        Args:
            as_of: The frozen instant, for the real statements with their predicate.
            sample: Objects of the plan, at least one of each (bucket, parent, extension) group that was seen.
        """
