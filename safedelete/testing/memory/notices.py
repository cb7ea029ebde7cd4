"""What people have said, in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from safedelete.core.run import UNFINISHED
from safedelete.ports import Notice, NoticeKind, RunRecord


class MemoryNotices:
    """Implements ``ports.Notices``."""

    _runs: dict[str, RunRecord]
    _notices: list[Notice]

    def notices(self, kind: NoticeKind, subject: str) -> Sequence[Notice]:
        """Return what was said of a job or run, newest first. Reads only."""
        found = [notice for notice in self._notices if (notice.kind, notice.subject) == (kind, subject)]
        return sorted(found, key=lambda notice: notice.since, reverse=True)

    def cancelled(self, job: str, owner: str) -> Notice | None:
        """Return the wish to end the run that this owner is working on. Reads only."""
        for record in self._runs.values():
            if record.job == job and record.owner == owner and record.state in UNFINISHED:
                for notice in self.notices("cancel", record.run):
                    if notice.ended_at is None:
                        return notice
        return None

    def say(self, notice: Notice) -> bool:
        """Record a notice, unless one of its kind and subject holds already."""
        if any(n.ended_at is None for n in self.notices(notice.kind, notice.subject)):
            return False
        self._notices.append(notice)
        return True

    def take_back(self, kind: NoticeKind, subject: str, *, at: datetime, who: str) -> Sequence[Notice]:
        """End every notice that holds."""
        held = [n for n in self.notices(kind, subject) if n.ended_at is None]
        for notice in held:
            self._notices.remove(notice)
            self._notices.append(replace(notice, ended_at=at, ended_by=who))
        return held
