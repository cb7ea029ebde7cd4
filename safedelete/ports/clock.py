"""The clocks, and the gate that every deleting request passes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

MOST_SKEW: Final = timedelta(minutes=1)
"""Most that two clocks may differ: a host's and a database's, or a host's of now and that of whoever wrote a plan down."""


class Clock(Protocol):
    """The two clocks a run needs."""

    def now(self) -> datetime:
        """Return the current instant, aware, UTC."""

    def uptime(self) -> float:
        """Return seconds on a clock that never goes back and also counts while the machine or process is suspended."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


Gate = Callable[[], None]
"""Called immediately before each request that deletes; raises when no more may start (lease, deadline, stop)."""
