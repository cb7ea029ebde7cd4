"""What one pass over a listing adds up to, and which of its objects are the oldest; memory does not grow with it."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from safedelete.core.item import ObjectRef
from safedelete.core.plan import AgeProfile
from safedelete.s3.keys import refusal

SAMPLE: Final = 10
_DAY: Final = 86_400.0


class Found(NamedTuple):
    """One key of the listing.

    Attributes:
        refs: What would be deleted for it.
        written: When it was last written, in Unix seconds.
        chosen: Whether pattern, size and storage class hold; its age is another matter.
    """

    refs: tuple[ObjectRef, ...]
    written: float
    chosen: bool = True


class Oldest:
    """Finds how old an object must be to belong to the oldest N, in one pass, and picks those in another.

    A key's versions are taken whole, so the portion may end a little early; a key with more versions than the portion is
    taken alone.
    """

    def __init__(self, portion: int) -> None:
        self._portion = portion
        # The youngest of the oldest so far is on top; ties go to what the listing names first.
        self._heap: list[tuple[float, int, int, int]] = []
        self._held = 0
        self._order = 0
        self.bytes = 0

    @property
    def items(self) -> int:
        """Items held now, at most the portion unless one key alone has more."""
        return self._held

    def add(self, found: Found) -> None:
        """Take one more key in, and let go of the youngest that are too many."""
        size = sum(ref.size or 0 for ref in found.refs)
        entry = (-found.written, -self._order, len(found.refs), size)
        self._order += 1
        heapq.heappush(self._heap, entry)
        self._held += len(found.refs)
        self.bytes += size
        while self._held > self._portion and len(self._heap) > 1:
            _, _, refs, gone = heapq.heappop(self._heap)
            self._held -= refs
            self.bytes -= gone

    def taker(self) -> Callable[[Found], bool]:
        """Return what picks them from a second pass; what was written since is younger and does not get in."""
        if not self._heap:
            return lambda _: False
        youngest = -self._heap[0][0]
        older = sum(entry[2] for entry in self._heap if -entry[0] < youngest)
        room = self._held - older

        def take(found: Found) -> bool:
            nonlocal room
            if found.written == youngest and len(found.refs) <= room:
                room -= len(found.refs)
                return True
            return found.written < youngest

        return take


@dataclass(slots=True)
class Count:
    """What one pass over the listing adds up to."""

    cutoff: datetime
    previous: datetime | None
    portion: int | None
    back: int = 60
    ahead: int = 60
    total: int = 0
    eligible: int = 0
    all_bytes: int = 0
    unconditional: int = 0
    not_chosen: int = 0
    refused_keys: int = 0
    refused_refs: int = 0
    refused_example: str = ""
    older: int = 0
    first: str = ""
    last: str = ""
    _sample: list[str] = field(default_factory=list)
    _late: int = 0
    _days: Counter[int] = field(default_factory=Counter)
    _oldest: Oldest | None = None
    _edge: float = 0.0
    _previous_edge: float | None = None
    _stride: int = 1

    def __post_init__(self) -> None:
        self._edge = self.cutoff.timestamp()
        self._previous_edge = None if self.previous is None else self.previous.timestamp()
        self._oldest = None if self.portion is None else Oldest(self.portion)

    def add(self, found: Found) -> None:
        """Count one key."""
        refs = len(found.refs)
        self.total += refs
        if not found.chosen:
            self.not_chosen += refs
            return
        key = found.refs[0].key
        written = found.written
        if refusal(key) is not None:
            self.refused_refs += refs
            if written < self._edge:
                self.refused_keys += 1
                self.refused_example = self.refused_example or key
            return
        day = int((written - self._edge) // _DAY)
        if day < -self.back:
            self.older += refs
        elif day < self.ahead:
            self._days[day] += refs
        if written >= self._edge:
            return
        self.eligible += refs
        self.all_bytes += sum(ref.size or 0 for ref in found.refs)
        self.unconditional += sum(ref.etag is None and ref.version is None for ref in found.refs)
        if self._previous_edge is not None and written < self._previous_edge:
            self._late += refs
        if self._oldest is not None:
            self._oldest.add(found)
        if key < self.first or not self.first:
            self.first = key
        self.last = max(self.last, key)
        self._picture(key)

    def _picture(self, key: str) -> None:
        """Keep a few keys spread over the whole listing."""
        if self.eligible % self._stride == 0:
            self._sample.append(key)
        if len(self._sample) > 2 * SAMPLE:
            self._sample = self._sample[::2]
            self._stride *= 2

    @property
    def sample(self) -> tuple[str, ...]:
        """A few eligible keys, spread over the listing, in key order."""
        return tuple(sorted(self._sample))

    @property
    def items(self) -> int:
        """Items that the run would take."""
        return self.eligible if self._oldest is None else self._oldest.items

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self.all_bytes if self._oldest is None else self._oldest.bytes

    @property
    def late(self) -> int | None:
        """Items that the last run should have taken; None where there is none."""
        return None if self.previous is None else self._late

    def profile(self) -> AgeProfile:
        """Return the day-by-day picture."""
        return AgeProfile(tuple(sorted(self._days.items())), self.older, self.back, self.ahead)
