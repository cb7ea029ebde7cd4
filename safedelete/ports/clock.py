"""The clocks, and the gate that every deleting request passes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol


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
