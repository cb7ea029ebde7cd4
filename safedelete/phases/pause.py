"""Hold a run back between batches while somebody says so: replicas that lag, or a reason of the user's own."""

from __future__ import annotations

from typing import Final

import structlog

from safedelete.errors import DeadlineExceededError, IncompleteError, LockLostError, SafeDeleteError
from safedelete.phases.parts import Tools
from safedelete.phases.perseverance import wait

log = structlog.get_logger("safedelete.execute")

EVERY: Final = 1.0
"""Seconds between two questions, and how long an answer holds while batches go on."""

UNASKED: Final = 60.0
"""Seconds for which a run waits for a question that cannot be answered, before it stops."""

SAID_EVERY: Final = 60.0
"""Seconds after which a pause that goes on is logged again."""


class Holdback:
    """Asks every brake before a batch, at most once a second.

    Args:
        tools: The brakes, and what has to go on meanwhile: the lease is renewed beside, stop and deadline are asked.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._asked: float | None = None

    def pass_or_wait(self) -> None:
        """Return once nothing holds the run back.

        Raises:
            IncompleteError: The deadline passed, a stop was asked for, or a question stayed unanswered; resumable.
            LockLostError: The lease is gone.
        """
        if not self._tools.brakes or self._fresh():
            return
        clock = self._tools.clock
        began = clock.uptime()
        unanswered: float | None = None
        said: float | None = None
        why = ""
        try:
            while True:
                reason, failed = self._ask()
                now = clock.uptime()
                if reason is None:
                    break
                why = reason
                unanswered = (now if unanswered is None else unanswered) if failed else None
                if unanswered is not None and now - unanswered >= UNASKED:
                    raise IncompleteError(
                        f"{reason} for {now - unanswered:.0f} s, and a run that cannot tell does not go on.",
                        hint="Repair the check; the next run goes on where this one ended.",
                        deleted=None,
                    )
                if said is None or now - said >= SAID_EVERY:
                    log.warning("paused", reason=reason, seconds=round(now - began, 1))
                    said = now
                wait(self._tools, EVERY)
        except DeadlineExceededError as error:
            raise DeadlineExceededError(
                f"{error} It had been paused for {clock.uptime() - began:.0f} s: {why}.",
                hint=error.hint,
                deleted=None,
            ) from error
        if said is not None:
            log.info("going on", seconds=round(clock.uptime() - began, 1))
        self._asked = clock.uptime()

    def _fresh(self) -> bool:
        return self._asked is not None and self._tools.clock.uptime() - self._asked < EVERY

    def _ask(self) -> tuple[str | None, bool]:
        """Return the first reason, if any, and whether it is that a question could not be answered."""
        for brake in self._tools.brakes:
            try:
                reason: object = brake()
            except (LockLostError, IncompleteError):
                raise
            except SafeDeleteError as error:
                return f"It could not be checked whether to pause ({str(error).rstrip('.')})", True
            except (
                Exception
            ) as error:  # the user's own code may raise anything, which says neither yes nor no
                said = f"{type(error).__name__}: {error}"
                return f"It could not be checked whether to pause ({said.rstrip('.')})", True
            if reason is None or reason is False or reason == "":
                continue
            if not isinstance(reason, str):
                return (
                    f"It could not be checked whether to pause (the answer was {reason!r}, not a text)",
                    True,
                )
            return reason, False
        return None, False
