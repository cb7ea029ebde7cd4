"""How hard a delete tries: how many keys a request has, how many requests go at once, and how often."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MOST_KEYS: Final = 1000
"""Most keys of one DeleteObjects request; the SDK sends more unchecked."""

KEYS_A_REQUEST: Final = 500
"""Keys of one request: with several under way, smaller ones end sooner and cost this process a twentieth more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard a delete tries.

    Attributes:
        chunk: Keys a request, 1 to 1,000; a quarter of it with each attempt.
        lanes: Requests under way at once.
        attempts: Requests for one key at most.
        pause: Seconds before the second attempt, doubled for each further one.
        longest: Most seconds of one pause.
        jitter: Gives a number in [0, 1) that a pause is shortened by, so that workers do not return together.
    """

    chunk: int = KEYS_A_REQUEST
    lanes: int = 4
    attempts: int = 5
    pause: float = 0.2
    longest: float = 5.0
    jitter: Callable[[], float] = random.SystemRandom().random

    def wait(self, attempt: int) -> float:
        """Return the seconds to wait before the attempt of this number, the first being 0."""
        whole = min(self.longest, self.pause * 2.0 ** (attempt - 1))
        return whole * (1 - self.jitter() / 2)
