"""Try again what failed and may pass: bounded, with growing pauses, asking stop and lease all along."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeVar

import structlog

from safedelete.core.effort import CONTENDED, FAILED, UNREACHED, Effort
from safedelete.core.run import BatchState
from safedelete.errors import (
    BlastRadiusError,
    BusyError,
    LedgerUnreachedError,
    NoSpaceError,
    PartialDeleteError,
    SafeDeleteError,
    SchemaChangedError,
    StoreError,
    UnreachedError,
)
from safedelete.phases.parts import Tools
from safedelete.ports import StoredBatch

log = structlog.get_logger("safedelete.execute")

BREATH: Final = 0.5
"""Longest the stop and the lease are left unasked while waiting, in seconds."""

HOPELESS: Final = (BlastRadiusError, PartialDeleteError, NoSpaceError, SchemaChangedError)
"""What the next try would meet again."""


Done = TypeVar("Done")


def persevere(act: Callable[[bool], Done], tools: Tools, *, doubt: bool, place: Mapping[str, int]) -> Done:
    """Do something until it succeeds or its tries are used up.

    Args:
        act: What to do; told whether an earlier try may have got halfway.
        tools: Clock, stop and lease, which are asked in every pause, and the jitter.
        doubt: Whether a try before these may have got halfway.
        place: What it is about, for the log.

    Returns:
        What it returned.

    Raises:
        SafeDeleteError: The last failure, or one that trying again cannot help.
        IncompleteError: A stop was asked for, or the time is over.
        LockLostError: The lease is gone.
    """
    failed = 0
    while True:
        try:
            return act(doubt)
        except HOPELESS:
            raise
        except (StoreError, LedgerUnreachedError) as error:
            failed += 1
            effort = effort_for(error)
            if failed >= effort.attempts:
                raise
            pause = effort.pause(failed, tools.jitter())
            log.warning("batch failed, trying again", attempt=failed, error=str(error), pause=pause, **place)
            doubt = True
            # What failed may have been cancelled because a stop was asked for, or may have taken the rest of the time.
            wait(tools, pause)


def batches(run: str, wanted: Collection[BatchState], tools: Tools) -> Iterator[StoredBatch]:
    """Yield a run's batches in these states, whatever becomes of the ledger's connection in between. Reads only."""
    failed = 0
    while True:
        try:
            for stored in tools.ledger.batches(run, wanted):
                failed = 0
                yield stored
        except LedgerUnreachedError as error:
            failed += 1
            if failed >= UNREACHED.attempts:
                raise
            log.warning("the ledger does not answer, asking again", attempt=failed, error=str(error))
            wait(tools, UNREACHED.pause(failed, tools.jitter()))
        else:
            return


def wait(tools: Tools, seconds: float) -> None:
    """Wait, asking stop and lease before, in between and after. Raises what they raise."""
    tools.stop.between()
    tools.lease.gate()
    while seconds > 0:
        tools.clock.sleep(min(seconds, BREATH))
        seconds -= BREATH
        tools.stop.between()
        tools.lease.gate()


def effort_for(error: SafeDeleteError) -> Effort:
    """Return how hard to try after this failure."""
    if isinstance(error, BusyError):
        return CONTENDED
    return UNREACHED if isinstance(error, (UnreachedError, LedgerUnreachedError)) else FAILED
