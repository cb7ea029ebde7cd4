"""Where a run's events go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from safedelete.core.event import RunEvent
from safedelete.ports.ledger import RunRecord


class Sink(Protocol):
    """One receiver of events. May block and may raise: whoever calls it bounds the one and logs the other.

    Not idempotent: each event is sent once, and one that was lost is lost; the ledger is the record, not this.
    """

    @property
    def name(self) -> str:
        """What it is called in the log, without credentials."""

    def send(self, event: RunEvent) -> None:
        """Send a run's start or its end."""


class Teller(Protocol):
    """Tells of one run as it goes. Never raises and never takes long: telling must not change what a run does."""

    def started(self, run: str) -> None:
        """Tell that a run has been recorded under this id, and works now. What was told before is not told again."""

    def crashed(self, records: Sequence[RunRecord]) -> None:
        """Tell of earlier runs whose processes died, of all of them in the time that one may take."""

    def cut_off(self, why: str) -> None:
        """Tell that this run's process is about to be ended by force."""


class Silence:
    """Tells nobody."""

    def started(self, run: str) -> None:
        """Do nothing."""

    def crashed(self, records: Sequence[RunRecord]) -> None:
        """Do nothing."""

    def cut_off(self, why: str) -> None:
        """Do nothing."""
