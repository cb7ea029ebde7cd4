"""What became of each sealed item, and how those outcomes add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """How a sealed item ended; every item ends in exactly one of these."""

    DELETED = "deleted"
    GONE = "gone"
    """Known to have been absent already."""
    CHANGED = "changed"
    """Kept, with its objects, because it no longer is what was sealed."""
    BLOCKED = "blocked"
    """Kept, because something holds it: a lock, a legal hold, a row that references it."""
    FAILED = "failed"
    """Still there, though it should be gone; or a row that stayed while its object went (code ``dangling``)."""
    UNKNOWN = "unknown"
    """The store's answer does not say."""


class ItemOutcome(NamedTuple):
    """One item's outcome with its reason.

    Attributes:
        state: How it ended.
        code: A short stable word, a store's error code where there is one (``AccessDenied``, ``locked``).
        detail: One sentence for a person; empty where the code says it all.
    """

    state: Outcome
    code: str = ""
    detail: str = ""


DELETED = ItemOutcome(Outcome.DELETED)
GONE = ItemOutcome(Outcome.GONE)

NAMED = ItemOutcome(Outcome.CHANGED, "named", "kept: a row names it now")
"""An orphan that is none any more."""

LOCKED = "locked"
"""Code of a row that another transaction held until the end of the run."""

REFERENCED = "referenced"
"""Code of a row that another row references, by a foreign key that does not cascade."""

OWED = frozenset({LOCKED, REFERENCED})
"""Codes of rows that a last pass tries again: the lock may be gone by then, and so may the row that references."""

DANGLING = "dangling"
"""Code of a row that stayed while an object it names went."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Numbers of items by outcome; adding two tallies adds each number."""

    deleted: int = 0
    gone: int = 0
    changed: int = 0
    blocked: int = 0
    failed: int = 0
    unknown: int = 0
    locked: int = 0
    """How many of ``blocked`` were only locked: they are still owed, so the run is incomplete."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(a + b for a, b in zip(self.as_tuple(), other.as_tuple(), strict=True)))

    def as_tuple(self) -> tuple[int, ...]:
        """Return the numbers in declaration order, ``locked`` last."""
        return (self.deleted, self.gone, self.changed, self.blocked, self.failed, self.unknown, self.locked)

    @property
    def total(self) -> int:
        """Number of items that have an outcome (``locked`` is part of ``blocked``)."""
        return self.deleted + self.gone + self.changed + self.blocked + self.failed + self.unknown

    @property
    def clean(self) -> bool:
        """Whether nothing failed and nothing is unknown."""
        return self.failed == 0 and self.unknown == 0

    @classmethod
    def of(cls, outcomes: Iterable[ItemOutcome]) -> Tally:
        """Count outcomes."""
        numbers = dict.fromkeys(Outcome, 0)
        locked = 0
        for outcome in outcomes:
            numbers[outcome.state] += 1
            locked += outcome.state is Outcome.BLOCKED and outcome.code == LOCKED
        return cls(**{state.value: number for state, number in numbers.items()}, locked=locked)
