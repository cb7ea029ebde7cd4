"""Record and read what people have said of a job or a run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Engine, Row, insert, select, update
from sqlalchemy.exc import DBAPIError

from safedelete.core.run import UNFINISHED
from safedelete.errors import LedgerError
from safedelete.ledger import codec, tables
from safedelete.ledger.failures import instant, missing_table, storable, told
from safedelete.ports import Notice, NoticeKind

WHO: Final = 255
"""Letters that the column of a name holds."""


class SqlNoticeReader:
    """The table of notices. Implements ``ports.NoticeReader``. Reads only."""

    engine: Engine

    def notices(self, kind: NoticeKind, subject: str) -> Sequence[Notice]:
        """Return what was said of a job or run, newest first. Reads only."""
        t = tables.notice.c
        return self._read(
            select(tables.notice).where(t.kind == kind, t.subject == subject).order_by(t.since.desc())
        )

    def cancelled(self, job: str, owner: str) -> Notice | None:
        """Return the wish to end the run that this owner is working on. Reads only."""
        n, r = tables.notice.c, tables.run.c
        found = self._read(
            select(tables.notice)
            .join(tables.run, n.subject == r.run)
            .where(n.kind == "cancel", n.ended_at.is_(None), r.job == job, r.owner == owner)
            .where(r.state.in_([state.value for state in UNFINISHED]))
        )
        return found[0] if found else None

    def _read(self, query: Any) -> Sequence[Notice]:
        with told("read who paused or cancelled what"), self.engine.connect() as connection:
            try:
                rows = connection.execute(query).all()
            except DBAPIError as error:
                if missing_table(error):
                    raise LedgerError(
                        "The ledger has no table safedelete_notice: it was made by an earlier safedelete.",
                        hint="Run `safedelete init FILE` as a deploy step; it adds what is missing.",
                    ) from error
                raise
        return [_notice(row) for row in rows]


class SqlNotices(SqlNoticeReader):
    """Implements ``ports.Notices``."""

    def say(self, notice: Notice) -> bool:
        """Record a notice, unless one of its kind and subject holds already."""
        t = tables.notice.c
        holds = select(t.since).where(
            t.kind == notice.kind, t.subject == notice.subject, t.ended_at.is_(None)
        )
        values = {
            "kind": notice.kind,
            "subject": notice.subject,
            "since": instant(notice.since),
            "who": storable(notice.who)[:WHO],
            "reason": storable(notice.reason),
        }
        with told("record who said what"), self.engine.begin() as connection:
            if connection.execute(holds).first() is not None:
                return False
            connection.execute(insert(tables.notice).values(values))
        return True

    def take_back(self, kind: NoticeKind, subject: str, *, at: datetime, who: str) -> Sequence[Notice]:
        """End every notice that holds."""
        t = tables.notice.c
        held = [notice for notice in self.notices(kind, subject) if notice.ended_at is None]
        if held:
            ending = update(tables.notice).where(t.kind == kind, t.subject == subject, t.ended_at.is_(None))
            with told("record who said what"), self.engine.begin() as connection:
                connection.execute(ending.values(ended_at=instant(at), ended_by=storable(who)[:WHO]))
        return held


def _notice(row: Row[Any]) -> Notice:
    where = f"notice {row.kind} of {row.subject}"
    return Notice(
        kind=row.kind,
        subject=row.subject,
        since=codec.load_instant(row.since, where),
        who=row.who,
        reason=row.reason,
        ended_at=None if row.ended_at is None else codec.load_instant(row.ended_at, where),
        ended_by=row.ended_by or "",
    )
