"""A clock that moves when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

START: Final = datetime(2026, 3, 1, 3, 15, tzinfo=UTC)


class ManualClock:
    """Both clocks of a run, moved by hand. Implements ``ports.Clock``.

    Args:
        now: The first instant, aware.

    Example:
        >>> clock = ManualClock()
        >>> before = clock.now()
        >>> clock.sleep(90)
        >>> (clock.now() - before).total_seconds(), clock.uptime()
        (90.0, 90.0)
    """

    def __init__(self, now: datetime = START) -> None:
        self._now = now.astimezone(UTC)
        self._uptime = 0.0
        self._beats: dict[Callable[[], None], float] = {}

    def now(self) -> datetime:
        """Return the current instant, aware, UTC."""
        return self._now

    def uptime(self) -> float:
        """Return the seconds this clock was moved; :meth:`shift` does not change it."""
        return self._uptime

    def sleep(self, seconds: float) -> None:
        """Move both clocks; does not wait."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks by seconds of ordinary life: heartbeats beat in between."""
        left = seconds
        while left > 0:
            step = min([left, *self._beats.values()])
            self.freeze(step)
            left -= step
            for beat in tuple(self._beats):
                beat()

    def freeze(self, seconds: float) -> None:
        """Move both clocks by seconds in which no heartbeat beats, as while every process is suspended."""
        self._uptime += seconds
        self._now += timedelta(seconds=seconds)

    def shift(self, delta: timedelta) -> None:
        """Set the wall clock forward or back, as an administrator would; the uptime goes on as it was."""
        self._now += delta

    def beat_every(self, seconds: float, beat: Callable[[], None]) -> None:
        """Call something regularly while :meth:`advance` moves the clock."""
        self._beats[beat] = seconds

    def stop_beating(self, beat: Callable[[], None]) -> None:
        """Stop calling it. Idempotent."""
        self._beats.pop(beat, None)
