"""Runs that this process has begun, so that whoever ends the process by force can first say why in the ledger."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from safedelete.core.run import UNFINISHED, RunState
from safedelete.errors import ExitCode, SafeDeleteError
from safedelete.ports import Clock, Ledger, RunChange, Teller


@dataclass(frozen=True, slots=True)
class _Work:
    job: str
    owner: str
    ledger: Ledger
    clock: Clock
    teller: Teller


_working: Final[set[_Work]] = set()


@contextmanager
def working(job: str, owner: str, ledger: Ledger, clock: Clock, teller: Teller) -> Iterator[None]:
    """Remember where the runs of this block are recorded, and as whose."""
    work = _Work(job, owner, ledger, clock, teller)
    _working.add(work)
    try:
        yield
    finally:
        _working.discard(work)


def record_unfinished(why: str, *, within: float) -> None:
    """Record every run of this process that has no end yet as interrupted, and tell of it. Writes to the ledger.

    Deletes nothing.

    Gives up after ``within`` seconds and never raises: what is not recorded here, the next run finds and calls crashed.
    """
    tries = [threading.Thread(target=_record, args=(work, why), daemon=True) for work in tuple(_working)]
    for one in tries:
        one.start()
    for one in tries:
        one.join(within / len(tries))


def _record(work: _Work, why: str) -> None:
    try:
        for record in work.ledger.runs(work.job, limit=10, states=UNFINISHED):
            if record.owner == work.owner:
                work.ledger.move(
                    record.run,
                    RunState.INTERRUPTED,
                    owner=work.owner,
                    change=RunChange(finished_at=work.clock.now(), reason=why, exit_code=ExitCode.INCOMPLETE),
                )
                work.teller.cut_off(why)
    except SafeDeleteError:
        return
