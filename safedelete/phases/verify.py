"""Phase 6: look again. What the stores still show wins over what their answers said. Reads the stores; records.

Also settles what a run left open: batches of a plan that is abandoned, and items that were never attempted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog

from safedelete.core.item import Key, ObjectRef
from safedelete.core.outcome import GONE, ItemOutcome, Outcome, Tally
from safedelete.core.run import BatchState
from safedelete.core.seal import ObjectBatch, RowBatch
from safedelete.phases.parts import ObjectPart, Part, Progress, Stop
from safedelete.phases.verdicts import proven
from safedelete.ports import Ledger, ObjectStore, Presence, StoredBatch

log = structlog.get_logger("safedelete.verify")

RESIDUE: Final = "residue"
"""Code of an item that was acknowledged as deleted and is there all the same."""

NOT_ATTEMPTED: Final = ItemOutcome(Outcome.BLOCKED, "not-attempted", "the run stopped before it")

_ABSENT: Final = frozenset({Outcome.DELETED, Outcome.GONE})


def verify(run: str, parts: Sequence[Part], ledger: Ledger, *, stop: Stop, progress: Progress) -> int:
    """Look for every item that was deleted or gone. Reads the stores; amends the ledger where they disagree.

    Args:
        run: The run.
        parts: Its targets, in order.
        ledger: Its ledger.
        stop: Checked between batches.
        progress: Told after each batch.

    Returns:
        How many items are still there, or could not be looked for.
    """
    residue = seen = 0
    total = sum(ledger.sealed(run).values())
    for stored in ledger.batches(run, {BatchState.DONE}):
        stop.between()
        found = _residue(stored, parts[stored.ref.target])
        if found:
            outcomes = dict(stored.outcomes) | found
            ledger.settle(stored.ref, _sum(stored, outcomes), outcomes, (), None)
            for index, outcome in found.items():
                log.error(
                    "residue",
                    item=index,
                    target=stored.ref.target,
                    outcome=outcome.state.value,
                    detail=outcome.detail,
                )
        residue += len(found)
        seen += len(stored.items)
        progress("verify", seen, total)
    return residue


def settle_open(run: str, parts: Sequence[Part] | None, ledger: Ledger, *, as_of: datetime | None) -> Tally:
    """Give every item that has no outcome yet one, so that the sums match. Deletes nothing.

    A sealed batch was never asked for anything: its items are kept. A batch in doubt is looked at key by key; a row
    that stays without its object is ``failed(dangling)``.

    Args:
        run: The run.
        parts: Its targets; None when they cannot be reached any more, which makes what is in doubt unknown.
        ledger: Its ledger.
        as_of: The plan's instant.

    Returns:
        The outcomes that were added.
    """
    added = Tally()
    for stored in ledger.batches(run, {BatchState.SEALED, BatchState.IN_DOUBT, BatchState.DEFERRED}):
        places = stored.pending if stored.state is BatchState.DEFERRED else tuple(range(len(stored.items)))
        if stored.state is BatchState.SEALED:
            found = dict.fromkeys(places, NOT_ATTEMPTED)
        elif parts is None or as_of is None:
            found = dict.fromkeys(
                places, ItemOutcome(Outcome.UNKNOWN, "unreachable", "its target is not declared any more")
            )
        else:
            found = _look(stored, places, parts[stored.ref.target], as_of)
        outcomes = dict(stored.outcomes) | found
        ledger.settle(stored.ref, _sum(stored, outcomes), outcomes, (), None)
        added += Tally.of(found.values())
        for outcome in found.values():
            if outcome.state in (Outcome.FAILED, Outcome.UNKNOWN):
                log.error("left by an earlier run", run=run, code=outcome.code, detail=outcome.detail)
    return added


def _sum(stored: StoredBatch, outcomes: Mapping[int, ItemOutcome]) -> Tally:
    return Tally.of(outcomes.values()) + Tally(deleted=len(stored.items) - len(outcomes))


def _residue(stored: StoredBatch, part: Part) -> dict[int, ItemOutcome]:
    gone = [
        i
        for i in range(len(stored.items))
        if (stored.outcomes[i].state if i in stored.outcomes else Outcome.DELETED) in _ABSENT
        and (i not in stored.outcomes or stored.outcomes[i].code != "orphan")
    ]
    if isinstance(part, ObjectPart):
        assert isinstance(stored.items, ObjectBatch)
        objects = {i: (stored.items.objects[i],) for i in gone}
        return _objects_left(objects, part.target.store, frozenset())
    assert isinstance(stored.items, RowBatch)
    rows = stored.items.rows
    there = set(part.target.present([rows[i].key for i in gone])) if gone else set[Key]()
    found = {
        i: ItemOutcome(Outcome.FAILED, RESIDUE, f"the row {rows[i].key} is there after it was deleted")
        for i in gone
        if rows[i].key in there
    }
    # A row that was gone before the run came is no reason to expect its objects gone.
    mine = {i: rows[i].objects for i in gone if i not in found and i not in stored.outcomes}
    if part.store is not None:
        refs = [ref for owned in mine.values() for ref in owned]
        spared = (
            frozenset(part.target.named(refs))
            if part.target.shares_objects and refs
            else frozenset[ObjectRef]()
        )
        found |= _objects_left(mine, part.store, spared)
    return found


def _objects_left(
    objects: Mapping[int, Sequence[ObjectRef]], store: ObjectStore, spared: Collection[ObjectRef]
) -> dict[int, ItemOutcome]:
    refs = [ref for owned in objects.values() for ref in owned if ref not in spared]
    left = store.remaining(refs) if refs else {}
    found = {}
    for index, owned in objects.items():
        for ref in owned:
            presence = left.get(ref)
            where = f"s3://{ref.bucket}/{ref.key}"
            if presence is Presence.PRESENT:
                found[index] = ItemOutcome(Outcome.FAILED, RESIDUE, f"{where} is there after it was deleted")
            elif presence is Presence.UNKNOWN:
                found.setdefault(
                    index, ItemOutcome(Outcome.UNKNOWN, "unseen", f"{where} could not be looked for")
                )
    return found


def _look(stored: StoredBatch, places: Sequence[int], part: Part, as_of: datetime) -> dict[int, ItemOutcome]:
    kept = ItemOutcome(Outcome.BLOCKED, "abandoned", "kept: the plan was abandoned")
    if isinstance(part, ObjectPart):
        assert isinstance(stored.items, ObjectBatch)
        objects = stored.items.objects
        there = part.target.store.presence([objects[i] for i in places])
        answer = {
            Presence.PRESENT: kept,
            Presence.ABSENT: GONE,
            Presence.UNKNOWN: ItemOutcome(Outcome.UNKNOWN, "unseen", "could not be asked for"),
        }
        return {i: answer[there[objects[i]]] for i in places}
    assert isinstance(stored.items, RowBatch)
    rows = {i: stored.items.rows[i] for i in places}
    transaction = part.target.begin(as_of)
    try:
        held = transaction.hold(list(rows.values()))
    finally:
        transaction.rollback()
    if part.store is None:
        return {i: held.missing.get(row.key, kept) for i, row in rows.items()}
    missing = {row.key: held.missing.get(row.key, kept) for row in rows.values()}
    found = proven(list(rows.values()), missing, held.named, part.store)
    return {i: found[row.key] for i, row in rows.items()}
