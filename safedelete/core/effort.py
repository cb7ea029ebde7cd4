"""How often and after which pause a batch that failed is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounded tries with pauses that double.

    Attributes:
        attempts: Tries in all, the first one among them.
        first: Seconds before the second try.
        most: Longest pause, in seconds.
    """

    attempts: int
    first: float
    most: float

    def pause(self, failed: int, jitter: float) -> float:
        """Return the seconds to wait before the next try.

        Args:
            failed: Tries that have failed so far, at least 1.
            jitter: In [0, 1): shortens the pause by up to half, so that those who met do not meet again.
        """
        whole: float = min(self.most, self.first * 2 ** (failed - 1))
        return whole * (1 - jitter / 2)


CONTENDED: Final = Effort(attempts=6, first=0.25, most=8.0)
"""Another transaction was in the way (a deadlock, a lock timeout): it ends, usually within moments."""

UNREACHED: Final = Effort(attempts=7, first=0.5, most=8.0)
"""The connection was lost: a restart takes seconds; these tries wait 12 to 24 of them, within the usual lease."""

FAILED: Final = Effort(attempts=3, first=0.4, most=8.0)
"""Anything else that may pass by itself."""
