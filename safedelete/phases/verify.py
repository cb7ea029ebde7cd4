"""Phase 6: look again. What the stores still show wins over what their answers said. Reads the stores; records.

Also settles what a run left open: batches of a plan that is abandoned, and items that were never attempted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog

from safedelete.core.item import Key, KeyRows, ObjectRef, SealedRow
from safedelete.core.outcome import DANGLING, GONE, ItemOutcome, Outcome, Tally
from safedelete.core.run import BatchState
from safedelete.core.seal import ObjectBatch, RowBatch
from safedelete.errors import StoreError, UnfitKeysError
from safedelete.phases.below import MOST_BELOW, left_below
from safedelete.phases.parts import ObjectPart, Part, Progress, RowPart, Stop
from safedelete.phases.record import record
from safedelete.phases.verdicts import proven, taken
from safedelete.ports import Lease, Ledger, ObjectStore, Presence, StoredBatch

log = structlog.get_logger("safedelete.verify")

RESIDUE: Final = "residue"
"""Code of an item that was acknowledged as deleted and is there all the same."""

NOT_ATTEMPTED: Final = ItemOutcome(Outcome.BLOCKED, "not-attempted", "the run stopped before it")

_ABSENT: Final = frozenset({Outcome.DELETED, Outcome.GONE})


def verify(
    run: str, parts: Sequence[Part | None], ledger: Ledger, lease: Lease, *, stop: Stop, progress: Progress
) -> int:
    """Look for every item that was deleted or gone. Reads the stores; amends the ledger where they disagree.

    Args:
        run: The run.
        parts: Its targets, in order; what is None cannot be reached any more and is left as it was acknowledged.
        ledger: Its ledger.
        lease: Proven before anything is amended.
        stop: Checked between batches.
        progress: Told after each batch.

    Returns:
        How many items are still there, or could not be looked for.
    """
    residue = seen = 0
    total = sum(ledger.sealed(run).values())
    for stored in ledger.batches(run, {BatchState.DONE}):
        stop.between()
        part = parts[stored.ref.target] if stored.ref.target < len(parts) else None
        found = _residue(stored, part) if part is not None else {}
        if found:
            record(ledger, lease, stored, dict(stored.outcomes) | found)
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


def settle_open(
    run: str,
    parts: Sequence[Part | None],
    ledger: Ledger,
    lease: Lease,
    *,
    as_of: datetime | None,
    redefined: bool = False,
) -> Tally:
    """Give every item that has no outcome yet one, so that the sums match. Deletes nothing.

    A sealed batch was never asked for anything: its items are kept. A batch in doubt is looked at key by key; a row
    that stays without its object is ``failed(dangling)``.

    Args:
        run: The run.
        parts: Its targets by index; one that is None or left out cannot be reached any more, which makes what is
            in doubt there unknown.
        ledger: Its ledger.
        lease: Proven before each batch is recorded.
        as_of: The plan's instant.
        redefined: The targets are not defined as they were when the run was planned, so what a row names by the
            definition of today says nothing: every object it was sealed with counts.

    Returns:
        The outcomes that were added.
    """
    added = Tally()
    for stored in ledger.batches(run, {BatchState.SEALED, BatchState.IN_DOUBT, BatchState.DEFERRED}):
        places = stored.pending or tuple(range(len(stored.items)))
        part = parts[stored.ref.target] if stored.ref.target < len(parts) else None
        if stored.state is BatchState.SEALED:
            found = dict.fromkeys(places, NOT_ATTEMPTED)
        elif part is None or as_of is None:
            found = dict.fromkeys(places, _unreachable("its target"))
        else:
            try:
                found = _look(stored, places, part, as_of, redefined=redefined)
            except UnfitKeysError as error:
                # Nobody can ask for these rows any more, today or later; the run must not be owed for ever.
                found = dict.fromkeys(places, ItemOutcome(Outcome.UNKNOWN, "unreachable", str(error)))
        record(ledger, lease, stored, dict(stored.outcomes) | found)
        added += Tally.of(found.values())
        for outcome in found.values():
            if outcome.state in (Outcome.FAILED, Outcome.UNKNOWN):
                log.error("left by an earlier run", run=run, code=outcome.code, detail=outcome.detail)
    return added


def _unreachable(what: str) -> ItemOutcome:
    return ItemOutcome(Outcome.UNKNOWN, "unreachable", f"{what} is not declared any more, so nobody can look")


def _residue(stored: StoredBatch, part: Part) -> dict[int, ItemOutcome]:
    kept = {i for i, o in stored.outcomes.items() if o.state not in _ABSENT or o.code == "orphan"}
    gone = [i for i in range(len(stored.items)) if i not in kept]
    if isinstance(part, ObjectPart):
        assert isinstance(stored.items, ObjectBatch)
        objects = {i: (stored.items.objects[i],) for i in gone}
        left = part.target.store.remaining(_refs(objects)) if gone else {}
        if part.references is None or not gone:
            return _objects_left(objects, left)
        named = frozenset(part.references.named(_refs(objects)))
        # What a row names and is there was uploaded again; what it names and is not was named in the very moment it went.
        seen = part.target.store.presence(list(named)) if named else {}
        asked = {
            ref: i
            for i, (ref,) in objects.items()
            if i not in stored.outcomes and seen.get(ref) is Presence.ABSENT
        }
        known = {**dict.fromkeys(_refs(objects), Presence.ABSENT), **seen}
        said = taken(list(asked), stored.items.objects, known, part.target.store)
        lost = {asked[ref]: outcome for ref, outcome in said.items() if outcome.state is not Outcome.GONE}
        return _objects_left(objects, {ref: p for ref, p in left.items() if ref not in named}) | lost
    assert isinstance(stored.items, RowBatch)
    rows = stored.items.rows
    keys = rows.keys() if isinstance(rows, KeyRows) else [row.key for row in rows]
    there = set(part.target.present([keys[i] for i in gone])) if gone else set[Key]()
    found = {
        i: ItemOutcome(Outcome.FAILED, RESIDUE, f"the row {keys[i]} is there after it was deleted")
        for i in gone
        if keys[i] in there
    }
    if part.store is None:
        return found
    # A row that was gone before the run came is no reason to expect its objects gone.
    mine = {i: rows[i].objects for i in gone if i not in found and i not in stored.outcomes}
    found |= _owned_left(mine, part, part.store)
    return found | _below_left({i: rows[i] for i in mine if i not in found}, part)


def _owned_left(
    owned: Mapping[int, Sequence[ObjectRef]], part: RowPart, store: ObjectStore
) -> dict[int, ItemOutcome]:
    refs = _refs(owned)
    if not refs:
        return {}
    # What a row that stays names must be there, and what none names must not.
    named = frozenset(part.target.named(refs)) if part.target.shares_objects else frozenset[ObjectRef]()
    for other in part.sharing:
        named |= frozenset(other.named(refs))
    left = store.remaining([ref for ref in refs if ref not in named])
    if left and not part.target.shares_objects:
        # A key that has been used again, by a row and an object which came after.
        again = frozenset(part.target.named(list(left)))
        left = {ref: presence for ref, presence in left.items() if ref not in again}
    seen = store.presence([ref for ref in refs if ref in named]) if named else {}
    lost = {
        index: ItemOutcome(
            Outcome.FAILED, DANGLING, f"s3://{ref.bucket}/{ref.key} is gone, and a row that stays names it"
        )
        for index, mine in owned.items()
        for ref in mine
        if seen.get(ref) is Presence.ABSENT
    }
    return _objects_left(owned, left) | lost


def _below_left(rows: Mapping[int, SealedRow], part: RowPart) -> dict[int, ItemOutcome]:
    """Look below the prefixes of rows that are gone: what has come there since belongs to no row, unless another owns it."""
    if part.owned is None or not any(row.prefixes for row in rows.values()):
        return {}
    try:
        left = left_below(rows, part.owned)
    except StoreError as error:
        unseen = ItemOutcome(Outcome.UNKNOWN, "unseen", f"what is left below could not be listed: {error}")
        return {index: unseen for index, row in rows.items() if row.prefixes}
    refs = _refs({index: mine for index, mine in left.items() if mine is not None})
    named = frozenset(part.target.named(refs)) if refs else frozenset[ObjectRef]()
    for other in part.sharing if refs else ():
        named |= frozenset(other.named(refs))
    found: dict[int, ItemOutcome] = {}
    for index, mine in left.items():
        if mine is None:
            said = f"more than {MOST_BELOW:,} objects lie below the prefix of a row that is gone"
            found[index] = ItemOutcome(Outcome.FAILED, RESIDUE, said)
            continue
        alone = [f"s3://{ref.bucket}/{ref.key}" for ref in mine if ref not in named]
        if alone:
            said = f"{alone[0]} lies below the prefix of a row that is gone ({len(alone)} object(s) do)"
            found[index] = ItemOutcome(Outcome.FAILED, RESIDUE, said)
    return found


def _refs(objects: Mapping[int, Sequence[ObjectRef]]) -> list[ObjectRef]:
    return list(dict.fromkeys(ref for mine in objects.values() for ref in mine))


def _objects_left(
    objects: Mapping[int, Sequence[ObjectRef]], left: Mapping[ObjectRef, Presence]
) -> dict[int, ItemOutcome]:
    found: dict[int, ItemOutcome] = {}
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


def _look(
    stored: StoredBatch, places: Sequence[int], part: Part, as_of: datetime, *, redefined: bool
) -> dict[int, ItemOutcome]:
    kept = ItemOutcome(Outcome.BLOCKED, "abandoned", "kept: the plan was abandoned")
    if isinstance(part, ObjectPart) is not isinstance(stored.items, ObjectBatch):
        return dict.fromkeys(places, _unreachable("a target of its kind"))
    if isinstance(part, ObjectPart):
        assert isinstance(stored.items, ObjectBatch)
        objects = stored.items.objects
        there = part.target.store.presence([objects[i] for i in places])
        answer = {
            Presence.PRESENT: kept,
            Presence.ABSENT: GONE,
            Presence.UNKNOWN: ItemOutcome(Outcome.UNKNOWN, "unseen", "could not be asked for"),
        }
        gone = [objects[i] for i in places if there[objects[i]] is Presence.ABSENT]
        # An earlier attempt may have taken it in the very moment in which a row came to name it.
        named = (
            frozenset(part.references.named(gone)) if part.references is not None and gone else frozenset()
        )
        said = taken(list(named), objects, there, part.target.store) if named else {}
        return {i: said.get(objects[i], answer[there[objects[i]]]) for i in places}
    assert isinstance(stored.items, RowBatch)
    rows = {i: stored.items.rows[i] for i in places}
    transaction = part.target.begin(as_of)
    try:
        held = transaction.hold(list(rows.values()))
    finally:
        transaction.rollback()
    found = {row.key: held.missing.get(row.key, kept) for row in rows.values()}
    if part.store is not None:
        found = proven(list(rows.values()), found, {} if redefined else held.named, part.store)
    else:
        found |= {row.key: _unreachable("the store of its objects") for row in rows.values() if row.objects}
    return {i: found[row.key] for i, row in rows.items()}
