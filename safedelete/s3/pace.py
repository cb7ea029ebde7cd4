"""Hold the number of keys deleted a second below a rate that the store can bear."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

from safedelete.ports import Clock

DEFAULT_RATE: Final = 2500.0
"""Keys a second; S3 bears 3,500 a partitioned prefix, and every key of a DeleteObjects request counts as one."""

BREATH: Final = 0.5
"""Longest the gate is left unasked while waiting, in seconds."""

FLOOR: Final = 25.0
"""Keys a second below which halving stops."""


class Pace:
    """A token bucket that holds one second's keys, shared by all threads that delete from one endpoint.

    Halved when the store asks for fewer requests, once for those under way together; won back by a fiftieth of the full rate with each undisturbed request.

    Args:
        rate: Keys a second, above 0.
        clock: What waits.
    """

    def __init__(self, rate: float, clock: Clock) -> None:
        self.full = rate
        self.rate = rate
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._halved_at = -math.inf

    @property
    def most(self) -> int:
        """Most keys to ask for at once: a second's worth, so that no single wait is longer than that."""
        return max(1, int(self.rate))

    def take(self, keys: int, gate: Callable[[], None]) -> None:
        """Wait until this many keys may be asked for.

        Args:
            keys: How many.
            gate: Asked all along; raises when the run has to end, or the lease is gone.
        """
        with self._lock:
            now = self._clock.uptime()
            # A pause leaves at most one second's worth unused to be caught up with.
            start = max(self._free_at, now - 1.0)
            self._free_at = start + keys / self.rate
            wait = start - now
        wait_asking(wait, self._clock, gate)

    def halve(self, sent: float) -> None:
        """Slow down, because the store said so.

        Args:
            sent: The uptime at which the request was sent that was turned away. Of those that were under way together,
                the first one slows down for all.
        """
        with self._lock:
            if sent < self._halved_at:
                return
            self._halved_at = self._clock.uptime()
            self.rate = max(min(FLOOR, self.full), self.rate / 2)

    def recover(self, requests: int = 1) -> None:
        """Speed up again by a little for each undisturbed request."""
        with self._lock:
            self.rate = min(self.full, self.rate + requests * self.full / 50)


def wait_asking(seconds: float, clock: Clock, gate: Callable[[], None]) -> None:
    """Wait, asking the gate every half second; raises what it raises."""
    while seconds > 0:
        gate()
        clock.sleep(min(seconds, BREATH))
        seconds -= BREATH
