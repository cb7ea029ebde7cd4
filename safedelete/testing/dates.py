"""A lab's date: it stands still until it is moved, and the scratch database goes by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from safedelete.errors import ConfigError
from safedelete.sql.engine import Database
from safedelete.testing.memory.clock import START
from safedelete.wiring.settings import SystemClock


class LabClock(SystemClock):
    """The clock of a lab: the date stands still until it is moved, and nothing waits.

    Args:
        now: The first instant, aware.

    Raises:
        ConfigError: It has no zone.
    """

    def __init__(self, now: datetime = START) -> None:
        if now.tzinfo is None:
            raise ConfigError(
                f"now={now!r} has no time zone, so it is no instant.", hint="datetime(..., tzinfo=UTC)."
            )
        self.instant = now.astimezone(UTC)
        self._slept = 0.0

    def now(self) -> datetime:
        """Return the date as it was set, aware, UTC."""
        return self.instant

    def uptime(self) -> float:
        """Return seconds since boot, and what was slept: deadlines and leases go by it."""
        return super().uptime() + self._slept

    def sleep(self, seconds: float) -> None:
        """Move the uptime; does not wait."""
        self._slept += seconds

    def advance(self, **parts: float) -> None:
        """Move the date, by the parts of a timedelta: ``clock.advance(days=91)``."""
        self.instant += timedelta(**parts)


class Dated(Database):
    """A database of the lab's date: a server's own clock would be found to be months away from it."""

    def __init__(self, url: str, clock: LabClock) -> None:
        super().__init__(url)
        self._clock = clock

    def now(self) -> datetime:
        """Return the lab's date."""
        return self._clock.now()
