"""Hold the number of keys deleted a second below a rate that the store can bear."""

from __future__ import annotations

import threading
from typing import Final

from safedelete.ports import Clock

DEFAULT_RATE: Final = 2500.0
"""Keys a second; S3 bears 3,500 a partitioned prefix, and every key of a DeleteObjects request counts as one."""

FLOOR: Final = 25.0
"""Keys a second below which halving stops."""


class Pace:
    """A token bucket that holds one second's keys, shared by all threads that delete from one endpoint.

    Halved when the store asks for fewer requests; won back by a fiftieth of the full rate with each undisturbed request.

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

    def take(self, keys: int) -> None:
        """Wait until this many keys may be asked for."""
        with self._lock:
            now = self._clock.uptime()
            # A pause leaves at most one second's worth unused to be caught up with.
            start = max(self._free_at, now - 1.0)
            self._free_at = start + keys / self.rate
            wait = start - now
        if wait > 0:
            self._clock.sleep(wait)

    def halve(self) -> None:
        """Slow down, because the store said so."""
        with self._lock:
            self.rate = max(min(FLOOR, self.full), self.rate / 2)

    def recover(self) -> None:
        """Speed up again by a little."""
        with self._lock:
            self.rate = min(self.full, self.rate + self.full / 50)
