"""How many rows of a sealed batch one transaction takes, so that it ends after about a set time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

TARGET: Final = 0.5
"""Seconds a transaction should take: what the application's own statements wait behind it, and replicas apply as one."""

FIRST: Final = 1_000
"""Rows of a run's first transaction, while nothing is known: under a second on every server measured."""

SHARPEST: Final = 0.5
"""Least of the last size that the next one may be: one slow answer is no reason to crawl."""

GENTLEST: Final = 1.25
"""Most of the last size that the next one may be: what was too much is not tried again at once."""

REMEMBERED: Final = 3
"""Transactions whose time decides: a checkpoint that one of them met must not decide alone."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The next transaction's size, and what it was learned from.

    Attributes:
        size: Rows the next transaction may take.
        recent: Rows and seconds of the last few transactions of this pace, newest last.
    """

    size: int = field(default_factory=lambda: FIRST)
    recent: tuple[tuple[int, float], ...] = ()

    def take(self, left: int) -> int:
        """Return how many of the rows left to take, at least one: equal parts, so that no crumb remains."""
        return math.ceil(left / math.ceil(left / self.size))

    def after(self, rows: int, seconds: float) -> Pace:
        """Return the pace after a transaction that was committed.

        Args:
            rows: How many it took, at least 1.
            seconds: How long it was open, waiting for the object store included.
        """
        recent = (*self.recent, (rows, seconds))[-REMEMBERED:]
        each = sum(s for _, s in recent) / sum(r for r, _ in recent)
        wanted = TARGET / each if each > 0 else math.inf
        # Growth counts from what was really taken: a short last part says nothing about a size never tried.
        most = max(self.size, math.ceil(rows * GENTLEST))
        return replace(self, size=int(max(1, self.size * SHARPEST, min(wanted, most))), recent=recent)

    def halved(self) -> Pace:
        """Return the pace after a transaction that failed: it met a lock, a conflict or a timeout."""
        return Pace(max(1, self.size // 2))
