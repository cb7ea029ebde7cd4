"""A declared job as a deployment sees it: its name, its times, and what derives from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from safedelete.core.schedule import Schedule, parse
from safedelete.declare import Declared
from safedelete.errors import ConfigError

_REFERENCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""From where gaps are measured: fixed, so that what is rendered does not change by itself."""

SLOW: Final = 0.8
"""Part of the timeout that a run may take before it is called slow."""


@dataclass(frozen=True, slots=True)
class Deployed:
    """One job to deploy.

    Attributes:
        name: The job's.
        schedule: When it runs.
        timeout: Its own deadline.
        grace: How long a stop may take.
        longest: The longest gap between two runs, over two years, DST included.
    """

    name: str
    schedule: Schedule
    timeout: timedelta
    grace: timedelta
    longest: timedelta

    @property
    def missed_after(self) -> timedelta:
        """How long after a success the next one is overdue: the longest gap, and all the time a run may take."""
        return self.longest + self.timeout + self.grace


def deployed(jobs: Sequence[Declared]) -> list[Deployed]:
    """Return jobs as a deployment sees them.

    Raises:
        ConfigError: One runs once or never again, so that nothing can tell when it is overdue.
    """
    found = []
    for job in jobs:
        schedule = parse(job.schedule, job.tz)
        longest = schedule.gaps(_REFERENCE).longest
        if longest is None:
            raise ConfigError(
                f"{job.name}: {job.schedule!r} has fewer than two runs; nothing could tell when one was missed.",
                hint="Give it a schedule that comes round.",
            )
        found.append(Deployed(job.name, schedule, job.timeout, job.grace, longest))
    return found
