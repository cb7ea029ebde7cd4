"""When a run has to end: its own timeout, and a stop asked for from outside.

Nothing here installs a signal handler or ends a process: inside a worker or a scheduler those belong to the host. The
command line passes a function that says whether a signal came.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeAlias

from safedelete.errors import CancelledRunError, DeadlineExceededError, InterruptedRunError
from safedelete.phases.parts import Stop
from safedelete.ports import Clock

Asked: TypeAlias = Callable[[], str | None]
"""Returns why a stop was asked for (``SIGTERM``), or None."""

LAST_MOMENT: Final = 0.8
"""Share of the grace that a batch in flight may use before its next request is refused."""


def nobody() -> str | None:
    """Nobody asked for a stop."""
    return None


def deadline(
    clock: Clock, timeout: timedelta, grace: timedelta, asked: Asked, cancelled: Asked = nobody
) -> Stop:
    """Return the stop of one run that starts now.

    Args:
        clock: Its clock.
        timeout: The job's own deadline, from now.
        grace: How long a stop may take.
        asked: Whether somebody asked for a stop.
        cancelled: Whether somebody cancelled the run. Asked between batches only: it reads the ledger.
    """
    started = clock.uptime()
    ends = started + timeout.total_seconds()
    spare = grace.total_seconds() * LAST_MOMENT
    seen: list[float] = []

    def between() -> None:
        why = asked()
        if why is not None:
            raise InterruptedRunError(
                f"The run was asked to stop ({why}) and ended between two batches.",
                hint="The next run goes on where this one ended.",
                deleted=None,
            )
        by = cancelled()
        if by is not None:
            raise CancelledRunError(
                f"The run was {by}. It ended between two batches.",
                hint="What it had not got to is kept; nothing goes on with it. The next run plans anew.",
                deleted=None,
            )
        if clock.uptime() >= ends:
            raise DeadlineExceededError(
                f"The timeout of {timeout} has passed; the run ended between two batches.",
                hint="The next run goes on where this one ended. If this happens every night, raise the timeout "
                "or drain with per_run=N.",
                deleted=None,
            )

    def before() -> None:
        why = asked()
        if why is not None:
            raise InterruptedRunError(
                f"The run was asked to stop ({why}) before it had deleted anything.",
                hint="The next run plans anew.",
            )
        by = cancelled()
        if by is not None:
            raise CancelledRunError(
                f"The run was {by}. It had not deleted anything.", hint="The next run plans anew."
            )
        if clock.uptime() >= ends:
            raise DeadlineExceededError(
                f"The timeout of {timeout} passed before anything was deleted: it went into counting and sealing.",
                hint="The next run plans anew, and takes as long: raise the timeout, look at the plan's queries, or "
                "drain with per_run=N.",
            )

    def within() -> None:
        now = clock.uptime()
        if asked() is not None and not seen:
            seen.append(now)
        last = min([ends, *seen]) + spare
        if now >= last:
            raise InterruptedRunError(
                "The grace period ended while a batch was in flight; it was rolled back and is in doubt.",
                hint="The next run asks for each of its objects before it calls any row kept or gone.",
                deleted=None,
            )

    return Stop(between, within, before)
