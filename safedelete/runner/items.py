"""Sealed items with what became of each, read back from the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import Outcome, Tally
from safedelete.core.plan import Plan
from safedelete.core.run import BatchState
from safedelete.core.seal import ObjectBatch
from safedelete.errors import SafeDeleteError
from safedelete.ports import LedgerReader, StoredBatch

log = structlog.get_logger("safedelete.run")

SHOWN: Final = 20
"""Failed items that a report carries: enough to recognise what is wrong."""

SETTLED: Final = frozenset({BatchState.DONE, BatchState.DEFERRED})

BAD: Final = frozenset({Outcome.FAILED.value, Outcome.UNKNOWN.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One sealed item.

    Attributes:
        target: Its target's name.
        key: The row's primary key; an object's ``s3://bucket/key`` as the only part.
        objects: What a row owns, as ``s3://bucket/key``.
        outcome: An outcome's name, ``pending`` where it has none yet, ``in doubt`` where nobody knows.
        code: A short stable word, a store's error code where there is one.
        detail: One sentence for a person.
    """

    target: str
    key: Key
    objects: tuple[str, ...]
    outcome: str
    code: str
    detail: str


def items_of(plan: Plan | None, stored: StoredBatch) -> Iterator[Item]:
    """Yield every item of a batch, in order."""
    target = str(stored.ref.target) if plan is None else plan.targets[stored.ref.target].name
    things: Sequence[ObjectRef | SealedRow] = (
        stored.items.objects if isinstance(stored.items, ObjectBatch) else stored.items.rows
    )
    pending = frozenset(stored.pending)
    for index, thing in enumerate(things):
        outcome = stored.outcomes.get(index)
        if outcome is not None:
            state = outcome.state.value
        elif index in pending or (stored.state not in SETTLED and not pending):
            state = "in doubt" if stored.state is BatchState.IN_DOUBT else "pending"
        else:
            state = Outcome.DELETED.value
        yield Item(
            target=target,
            key=thing.key if isinstance(thing, SealedRow) else (_address(thing),),
            objects=tuple(_address(ref) for ref in thing.objects) if isinstance(thing, SealedRow) else (),
            outcome=state,
            code=outcome.code if outcome else "",
            detail=outcome.detail if outcome else "",
        )


def failed_items(ledger: LedgerReader, plan: Plan, run: str, total: Tally) -> tuple[Item, ...]:
    """Return the first items that failed or are unknown, at most :data:`SHOWN`. Reads only.

    The run is over by then and its record stands, so that a ledger which does not answer leaves the list empty.

    Args:
        ledger: Where the run is recorded.
        plan: Its plan.
        run: Its id.
        total: Its sums; nothing is read where they are clean.
    """
    found: list[Item] = []
    if total.clean:
        return ()
    try:
        for stored in ledger.batches(run, SETTLED):
            if stored.outcomes:
                found += (item for item in items_of(plan, stored) if item.outcome in BAD)
            if len(found) >= SHOWN:
                break
    except SafeDeleteError as error:
        log.warning("the failed items cannot be listed", run=run, error=str(error))
    return tuple(found[:SHOWN])


def _address(ref: ObjectRef) -> str:
    return f"s3://{ref.bucket}/{ref.key}"
