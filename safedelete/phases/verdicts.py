"""From acknowledgements to outcomes: what a row's objects say about the row. Pure, but for one question to the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import DANGLING, GONE, NAMED, ItemOutcome, Outcome
from safedelete.ports import ObjectStore, Presence

ACKNOWLEDGED = frozenset({Outcome.DELETED, Outcome.GONE})
"""Answers after which an object is known not to be there."""

_WORST = (Outcome.UNKNOWN, Outcome.FAILED, Outcome.BLOCKED, Outcome.CHANGED)


def acknowledged(
    row: SealedRow, answers: Mapping[ObjectRef, ItemOutcome], spared: frozenset[ObjectRef]
) -> bool:
    """Whether every object of a row is known to be gone, those shared with rows that stay apart."""
    return all(ref in spared or answers[ref].state in ACKNOWLEDGED for ref in row.objects)


def kept_for_objects(
    row: SealedRow, answers: Mapping[ObjectRef, ItemOutcome], spared: frozenset[ObjectRef]
) -> ItemOutcome:
    """Say what becomes of a row that stays because not all of its objects went."""
    asked = [(ref, answers[ref]) for ref in row.objects if ref not in spared]
    stayed = [(ref, answer) for ref, answer in asked if answer.state not in ACKNOWLEDGED]
    ref, answer = min(stayed, key=lambda pair: _WORST.index(pair[1].state))
    where = f"s3://{ref.bucket}/{ref.key}"
    said = f"{where}: {answer.code or answer.state.value}" + (f" ({answer.detail})" if answer.detail else "")
    lost = _lost(row, answers, spared)
    if lost:
        return ItemOutcome(Outcome.FAILED, DANGLING, f"{lost} is gone; {said}")
    return ItemOutcome(answer.state, answer.code, said)


def stayed_after_all(
    row: SealedRow,
    why: ItemOutcome,
    answers: Mapping[ObjectRef, ItemOutcome],
    spared: frozenset[ObjectRef],
) -> ItemOutcome:
    """Say what becomes of a row whose objects all went, and which then could not be deleted."""
    lost = _lost(row, answers, spared)
    if why.state is Outcome.GONE or not lost:
        return why
    return ItemOutcome(
        Outcome.FAILED, DANGLING, f"{lost} is gone; then the row stayed: {why.detail or why.code}"
    )


def _lost(row: SealedRow, answers: Mapping[ObjectRef, ItemOutcome], spared: frozenset[ObjectRef]) -> str:
    # One that was gone already may have gone in an earlier attempt at this very row.
    gone = [ref for ref in row.objects if ref not in spared and answers[ref].state in ACKNOWLEDGED]
    return ", ".join(f"s3://{ref.bucket}/{ref.key}" for ref in gone)


def proven(
    rows: Sequence[SealedRow],
    kept: Mapping[Key, ItemOutcome],
    named: Mapping[Key, frozenset[tuple[str, str]]],
    store: ObjectStore,
) -> dict[Key, ItemOutcome]:
    """Ask for the objects of rows that stay, where an earlier attempt may have deleted some. Reads only.

    A batch in doubt may have lost objects already. Its rows are not called kept before their objects are seen.

    Args:
        rows: The sealed rows that were asked for.
        kept: Those that are gone, changed, locked or refused by the database.
        named: For a row whose objects changed, what it names now; any other names what was sealed.
        store: Where the objects are.

    Returns:
        For each row in ``kept``, its outcome with that taken into account.
    """
    staying = [row for row in rows if row.key in kept]
    refs = [ref for row in staying for ref in row.objects]
    there = store.presence(refs) if refs else {}
    return {row.key: _proven(row, kept[row.key], _names(row, named), there) for row in staying}


def spared(
    named: Collection[ObjectRef], sealed: Sequence[ObjectRef], store: ObjectStore, *, doubt: bool
) -> dict[ObjectRef, ItemOutcome]:
    """Say what becomes of sealed orphans that a row names by now: kept, if they are there. Reads only.

    Args:
        named: The orphans that are none any more.
        sealed: All of their batch, of one key the oldest version first.
        store: Where they are.
        doubt: Whether an earlier attempt at their batch may have deleted some.
    """
    there = store.presence(list(named)) if named else {}
    absent = [ref for ref in named if there[ref] is Presence.ABSENT]
    said = {ref: _unseen(ref) if there[ref] is Presence.UNKNOWN else NAMED for ref in named}
    gone = taken(absent, sealed, there, store) if doubt else dict.fromkeys(absent, GONE)
    return said | gone


def _unseen(ref: ObjectRef) -> ItemOutcome:
    where = f"s3://{ref.bucket}/{ref.key}"
    return ItemOutcome(Outcome.UNKNOWN, "unseen", f"a row names {where} now, and it could not be asked for")


def taken(
    absent: Sequence[ObjectRef],
    sealed: Sequence[ObjectRef],
    there: Mapping[ObjectRef, Presence],
    store: ObjectStore,
) -> dict[ObjectRef, ItemOutcome]:
    """Say of orphans that were deleted, and that a row has come to name, whether the row has lost its object. Reads only.

    Of a key that keeps versions a row names whatever is current. What went from beneath it, or before somebody wrote the
    key anew, is as gone as it was meant to be; the row lacks nothing.

    Args:
        absent: Those that are gone.
        sealed: All of their batch, of one key the oldest version first.
        there: What is known of others of the batch; one that is not named here stayed.
        store: Where they are.
    """
    versions = [ref for ref in absent if ref.version is not None]
    shown = store.shown(versions) if versions else {}
    return {ref: _taken(ref, sealed, there, shown) for ref in absent}


def _taken(
    ref: ObjectRef,
    sealed: Sequence[ObjectRef],
    there: Mapping[ObjectRef, Presence],
    shown: Mapping[ObjectRef, Presence],
) -> ItemOutcome:
    if ref.version is None or shown[ref] is Presence.ABSENT:
        return lost_to_a_row(ref)
    if shown[ref] is Presence.UNKNOWN:
        return _unseen(ref)
    mine = [other for other in sealed if (other.bucket, other.key) == (ref.bucket, ref.key)]
    place = mine.index(ref)
    stayed = [n for n, other in enumerate(mine) if there.get(other, Presence.PRESENT) is not Presence.ABSENT]
    # Only an older one is left of what was sealed, so that what shows may be that one come back.
    if stayed and stayed[-1] < place:
        return lost_to_a_row(ref)
    return ItemOutcome(
        Outcome.GONE,
        "",
        f"version {ref.version} is gone; s3://{ref.bucket}/{ref.key} is there, and a row has come to name it",
    )


def lost_to_a_row(ref: ObjectRef) -> ItemOutcome:
    """Say that an orphan was deleted, and that a row has come to name it."""
    which = "" if ref.version is None else f"version {ref.version} of "
    return ItemOutcome(
        Outcome.FAILED,
        DANGLING,
        f"{which}s3://{ref.bucket}/{ref.key} is gone, and a row has come to name it",
    )


def dangling(
    row: SealedRow, named: frozenset[tuple[str, str]], there: Mapping[ObjectRef, Presence]
) -> ItemOutcome | None:
    """Say that a row which stays has lost an object it names, or that nobody knows; None when its objects are there."""
    mine = [ref for ref in row.objects if (ref.bucket, ref.key) in named]
    lost = [f"s3://{ref.bucket}/{ref.key}" for ref in mine if there[ref] is Presence.ABSENT]
    if lost:
        return ItemOutcome(Outcome.FAILED, DANGLING, f"the row stays, but {', '.join(lost)} is gone")
    unseen = [f"s3://{ref.bucket}/{ref.key}" for ref in mine if there[ref] is Presence.UNKNOWN]
    if unseen:
        return ItemOutcome(Outcome.UNKNOWN, "unseen", f"could not be asked for: {', '.join(unseen)}")
    return None


def _names(row: SealedRow, named: Mapping[Key, frozenset[tuple[str, str]]]) -> frozenset[tuple[str, str]]:
    return named.get(row.key, frozenset((ref.bucket, ref.key) for ref in row.objects))


def _proven(
    row: SealedRow, found: ItemOutcome, names: frozenset[tuple[str, str]], there: Mapping[ObjectRef, Presence]
) -> ItemOutcome:
    if found.state is Outcome.GONE:
        left = [f"s3://{ref.bucket}/{ref.key}" for ref in row.objects if there[ref] is not Presence.ABSENT]
        return (
            ItemOutcome(Outcome.GONE, "orphan", f"the row is gone; {', '.join(left)} may remain")
            if left
            else GONE
        )
    return dangling(row, names, there) or found
