"""Keep a paused job from starting, and tell a working run that somebody wants it to end."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Final

import structlog

from safedelete.errors import PausedError
from safedelete.ports import Clock, NoticeReader, holding
from safedelete.runner.stop import Asked

log = structlog.get_logger("safedelete.run")

EVERY: Final = 1.0
"""Seconds between two looks at the ledger for a wish to end; a checkpoint may come a thousand times as often."""

PATIENCE: Final = 0.5
"""Seconds to wait for the ledger's answer; a later one is heard at a later look."""


def refuse_paused(ledger: NoticeReader, job: str) -> None:
    """Raise where a job is paused. Reads only.

    Raises:
        PausedError: Says who paused it, why, and since when.
        LedgerError: It cannot be read whether it is; that is no permission to start.
    """
    notice = holding(ledger.notices("pause", job))
    if notice is not None:
        raise PausedError(
            f"{job} is paused since {said_at(notice.since)} by {notice.who}: {notice.reason}.",
            holder=notice.who,
            since=notice.since.astimezone(UTC).isoformat(timespec="seconds"),
            hint=f"`safedelete unpause FILE {job}` lets it run again.",
        )


def cancellation(ledger: NoticeReader, job: str, owner: str, clock: Clock) -> Asked:
    """Return a function that says who wants the run of this owner to end, and why; asks the ledger once a second.

    A ledger that does not answer is asked again: the wish stays recorded, and the batch's own fence decides whether a
    run may go on without the database. One that hangs keeps a thread of its own waiting: a run whose lock is lost meanwhile
    has to notice.
    """
    asked_at: list[float] = []
    found: list[str] = []
    asking: list[threading.Thread] = []
    looking = threading.Lock()

    def ask() -> None:
        try:
            notice = ledger.cancelled(job, owner)
        except Exception as error:  # nobody else hears of what a thread raises
            log.warning("it cannot be read whether this run was cancelled", job=job, error=str(error))
            return
        if notice is not None:
            found.append(wish(notice.who, notice.reason))

    def asked() -> str | None:
        # Threads of a job, and the workers of a purge, come here at once: one of them asks for all.
        if not found and looking.acquire(blocking=False):
            try:
                look()
            finally:
                looking.release()
        return found[0] if found else None

    def look() -> None:
        now = clock.uptime()
        still = bool(asking) and asking[-1].is_alive()
        if not still and not (asked_at and now - asked_at[-1] < EVERY):
            asked_at[:] = [now]
            asking[:] = [threading.Thread(target=ask, name="cancelled", daemon=True)]
            asking[0].start()
            asking[0].join(PATIENCE)

    return asked


def wish(who: str, reason: str) -> str:
    """Say who cancelled a run, and why."""
    return f"cancelled by {who}: {reason}"


def said_at(instant: datetime) -> str:
    """Return an instant to the minute, in UTC."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
