"""How hard a delete tries: how many keys a request has, how many requests go at once, and how often."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_KEYS: Final = 1000
"""Most keys of one DeleteObjects request; the SDK sends more unchecked."""

KEYS_A_REQUEST: Final = 500
"""Keys of one request where there are several: smaller ones end sooner, and cost this process a twentieth more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard a delete tries.

    Attributes:
        chunk: Keys a request, 1 to 1,000, and a quarter of it with each attempt; None for what takes least time.
        lanes: Requests under way at once.
        attempts: Requests for one key at most.
        pause: Seconds before the second attempt, doubled for each further one.
        longest: Most seconds of one pause.
        jitter: Gives a number in [0, 1) that a pause is shortened by, so that workers do not return together.
    """

    chunk: int | None = None
    lanes: int = 8
    attempts: int = 5
    pause: float = 0.2
    longest: float = 5.0
    jitter: Callable[[], float] = random.SystemRandom().random

    def size(self, keys: int) -> int:
        """Return how many of these keys to ask for by one request: all, where they fit into it."""
        if self.chunk is not None:
            return min(self.chunk, MOST_KEYS)
        return MOST_KEYS if keys <= MOST_KEYS else KEYS_A_REQUEST

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait before the attempt of this number, the first being 0."""
        whole = min(self.longest, self.pause * 2.0 ** (attempt - 1))
        return whole * (1 - self.jitter() / 2)
