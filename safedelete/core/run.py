"""The life of a run and of a batch: every state, every transition, and when each one happens.

Whatever changes a run's state asks :func:`transition`; a pair that is not in the table is refused, and nothing
is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from safedelete.errors import LedgerError


class RunState(StrEnum):
    """Where a run stands."""

    PLANNING = "planning"
    PENDING = "pending"
    REFUSED = "refused"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    SUCCEEDED = "succeeded"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CRASHED = "crashed"
    ABANDONED = "abandoned"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


S = RunState

TRANSITIONS: Final[dict[RunState, frozenset[RunState]]] = {
    S.PLANNING: frozenset({
        S.PENDING,      # plan --save sealed it for review; nobody has executed it
        S.REFUSED,      # the guard refused it; its exact keys stay sealed for an approval
        S.RUNNING,      # approved and cleared: the first batch may start
        S.SUCCEEDED,    # nothing was eligible, which is a success
        S.FAILED,       # a store or the ledger failed before anything was sealed
        S.INTERRUPTED,  # deadline or stop while planning or sealing: nothing deleted, nothing to resume
        S.CANCELLED,    # cancel RUN, seen while it planned: nothing deleted
        S.CRASHED,      # found later: its process died before it could say how it ended
    }),
    S.PENDING: frozenset({
        S.RUNNING,      # execute RUN
        S.CANCELLED,    # cancel RUN
        S.EXPIRED,      # older than its window; its seal is dropped
    }),
    S.REFUSED: frozenset({
        S.RUNNING,      # execute RUN under an approval of this very digest
        S.CANCELLED,    # cancel RUN
        S.EXPIRED,      # the approval window ended; its seal is dropped
    }),
    S.RUNNING: frozenset({
        S.SUCCEEDED,    # failed = unknown = 0, recount agrees, something was done where something was sealed
        S.INCOMPLETE,   # rows left locked, or no progress: nothing wrong, but not all done
        S.FAILED,       # an item failed or is unknown, a store failed, or the lease was lost
        S.INTERRUPTED,  # deadline, signal or lost lease between batches: resumable
        S.CANCELLED,    # cancel RUN, seen at the next batch
        S.CRASHED,      # found by the next run: its process died
    }),
    S.INTERRUPTED: frozenset({
        S.RUNNING,      # resumed under the conditions of the design
        S.ABANDONED,    # definition, caller, environment or age changed: in-doubt batches settled, a new plan made
        S.CANCELLED,    # cancel RUN
    }),
    S.CRASHED: frozenset({
        S.RUNNING,      # as for interrupted
        S.ABANDONED,    # as for interrupted
        S.CANCELLED,    # as for interrupted
    }),
    S.SUCCEEDED: frozenset(),
    S.INCOMPLETE: frozenset(),
    S.FAILED: frozenset(),
    S.ABANDONED: frozenset(),
    S.CANCELLED: frozenset(),
    S.EXPIRED: frozenset(),
}  # fmt: skip

UNFINISHED: Final = frozenset({S.PLANNING, S.RUNNING})
"""States of a live process; when its lease is free, the process is dead."""

RESUMABLE: Final = frozenset({S.INTERRUPTED, S.CRASHED})
"""States from which the next run goes on, or which it abandons."""

EXECUTABLE: Final = frozenset({S.PENDING, S.REFUSED})
"""States that ``execute RUN`` accepts, a refused one only with its approval."""


class BatchState(StrEnum):
    """Where a sealed batch stands.

    sealed → in_doubt (its objects may have been asked for, or a part of it was not tried yet) → done | deferred;
    sealed → done where no object is owned; deferred (some rows were locked) → done in the last pass.
    """

    SEALED = "sealed"
    IN_DOUBT = "in_doubt"
    DEFERRED = "deferred"
    DONE = "done"


def settled(pending: Sequence[int], *, underway: bool) -> BatchState:
    """Return the state of a batch of which these items are pending, some of them not tried where it is underway."""
    if underway:
        return BatchState.IN_DOUBT
    return BatchState.DEFERRED if pending else BatchState.DONE


def transition(now: RunState, to: RunState) -> RunState:
    """Return the new state.

    Raises:
        LedgerError: The table has no such edge; nothing was changed.
    """
    if to not in TRANSITIONS[now]:
        raise LedgerError(
            f"A run that is {now.value} cannot become {to.value}.",
            hint="The ledger and this process disagree; look at the run with `safedelete show RUN`.",
            deleted=None,
        )
    return to
