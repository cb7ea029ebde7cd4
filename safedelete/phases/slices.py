"""What is left of a sealed batch: it is worked off a slice at a time, each slice a transaction of its own.

A slice that is committed leaves in the ledger, in the same transaction, what is pending from then on: what it owes (locked
and referenced rows), and what was not tried yet. While anything was not tried the batch is in doubt, so whoever goes on
after a crash asks about exactly those rows, and nobody takes them for untouched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from safedelete.core.item import SealedRow
from safedelete.core.outcome import OWED, ItemOutcome
from safedelete.core.run import BatchState
from safedelete.ports import StoredBatch


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of one batch in this pass over it.

    Attributes:
        stored: The batch with what is recorded of it so far.
        todo: Indexes not tried in this pass.
        owed: Indexes tried in this pass that a last one shall try again.
        last: Whether this is the last pass.
        doubt: Whether an earlier try may have got halfway with any of them.
        lost: Indexes of rows whose objects an earlier try had taken.
    """

    stored: StoredBatch
    todo: Sequence[int]
    owed: tuple[int, ...] = ()
    last: bool = False
    doubt: bool = False
    lost: frozenset[int] = frozenset()

    @classmethod
    def of(cls, stored: StoredBatch) -> Left:
        """Begin a pass over a batch as it was read from the ledger.

        A last pass that was interrupted is begun as a first one, and followed by another last one: what is owed is
        judged by a pass that got to its end.
        """
        return cls(
            stored,
            stored.pending or range(len(stored.items)),
            last=stored.state is BatchState.DEFERRED,
            doubt=stored.state is BatchState.IN_DOUBT,
        )

    @property
    def over(self) -> bool:
        """Whether this pass has tried everything."""
        return not self.todo

    @property
    def tried(self) -> int:
        """How many of the batch have been tried, in whatever pass."""
        return len(self.stored.items) - len(self.todo)

    def after(
        self, tried: int, found: Mapping[int, ItemOutcome], *, doubt: bool, lost: Collection[int] = ()
    ) -> Left:
        """Return what is left once the first so many were tried.

        Args:
            tried: How many, from the front of ``todo``.
            found: By index, every outcome other than deleted.
            doubt: Whether a failed try came before: it may have got further than this one.
            lost: Indexes whose objects an earlier try had taken.
        """
        owed = () if self.last else tuple(i for i, outcome in found.items() if outcome.code in OWED)
        final = {i: outcome for i, outcome in found.items() if i not in owed}
        todo, owed = self.todo[tried:], (*self.owed, *owed)
        stored = replace(
            self.stored, outcomes=dict(self.stored.outcomes) | final, pending=tuple(sorted((*todo, *owed)))
        )
        return replace(
            self, stored=stored, todo=todo, owed=owed, doubt=doubt, lost=self.lost | frozenset(lost)
        )


def some(rows: Sequence[SealedRow], places: Sequence[int]) -> Sequence[SealedRow]:
    """Return the rows at these places, in the form they are kept in where the places lie side by side."""
    first, last = places[0], places[-1]
    return rows[first : last + 1] if last - first == len(places) - 1 else [rows[i] for i in places]
