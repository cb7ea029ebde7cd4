"""What people have said of a job or a run: that it is there, that it shall pause, that it shall end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

NoticeKind: TypeAlias = Literal["declared", "pause", "cancel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that was said, by whom, and why.

    Attributes:
        kind: ``declared`` by ``init``, ``pause`` of a job, ``cancel`` of a run.
        subject: The job's name or the run's id.
        since: When it was said, aware UTC.
        who: Login, host and, where known, the database's role.
        reason: Why, in their words.
        ended_at: When it was taken back, aware UTC; None while it holds.
        ended_by: Who took it back.
    """

    kind: NoticeKind
    subject: str
    since: datetime
    who: str
    reason: str = ""
    ended_at: datetime | None = None
    ended_by: str = ""


class NoticeReader(Protocol):
    """What was said. Reads only."""

    def notices(self, kind: NoticeKind, subject: str) -> Sequence[Notice]:
        """Return what was said of a job or run, newest first. Raises LedgerError when that cannot be read."""

    def cancelled(self, job: str, owner: str) -> Notice | None:
        """Return the wish to end the run of this job that this owner is working on, if somebody has uttered it."""


class Notices(NoticeReader, Protocol):
    """What was said, and saying it. Every method commits by itself."""

    def say(self, notice: Notice) -> bool:
        """Record a notice; False, and nothing is changed, where one of its kind and subject holds already.

        Two that are said at the same instant may both come to hold; :meth:`take_back` ends both.
        """

    def take_back(self, kind: NoticeKind, subject: str, *, at: datetime, who: str) -> Sequence[Notice]:
        """End every notice that holds; returns those it ended. Idempotent."""


def holding(notices: Sequence[Notice]) -> Notice | None:
    """Return the notice that holds, if one does."""
    return next((notice for notice in notices if notice.ended_at is None), None)
