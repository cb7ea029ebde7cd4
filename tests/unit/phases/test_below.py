"""What lies below a row's prefix: sealed with the row, bounded, and looked at once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from safedelete.core.item import ObjectRef, Prefix, SealedRow
from safedelete.core.outcome import Outcome
from safedelete.core.plan import Unknown
from safedelete.errors import StoreError
from safedelete.phases import below
from safedelete.phases.below import Filling, OwningRows, appeared, left_below
from tests.worlds import World

BUCKET = "acme"


def ref(key: str, etag: str | None = '"e"', version: str | None = None) -> ObjectRef:
    return ObjectRef(BUCKET, key, etag, version, 7)


def row(number: int, *objects: ObjectRef, prefix: str | None = None) -> SealedRow:
    place = f"up/{number}/" if prefix is None else prefix
    return SealedRow((number,), objects, (Prefix(BUCKET, place),) if place else ())


class Bucket:
    """A listing from a dictionary. Implements ``ports.OwnedReader``."""

    lists = True

    def __init__(self, *refs: ObjectRef, broken: bool = False) -> None:
        self.refs = refs
        self.broken = broken
        self.asked = 0

    def below(
        self, prefixes: Sequence[Prefix], *, most: int
    ) -> Mapping[Prefix, tuple[ObjectRef, ...] | None]:
        if self.broken:
            raise StoreError("no listing")
        self.asked += len(prefixes)
        found = {p: tuple(r for r in self.refs if r.key.startswith(p.text)) for p in prefixes}
        return {p: None if len(refs) > most else refs for p, refs in found.items()}

    def notes(self) -> Sequence[str]:
        return ("a note",)


def filled(bucket: Bucket, *rows: SealedRow) -> list[tuple[SealedRow, ...]]:
    return list(Filling(bucket).batches([rows]))


def test_a_row_is_filled_with_what_lies_below_in_whole_segments() -> None:
    bucket = Bucket(ref("up/1/a"), ref("up/1/b/c"), ref("up/10/a"), ref("up/1"))
    [(one, none)] = filled(bucket, row(1), row(2))
    assert [r.key for r in one.objects] == ["up/1/a", "up/1/b/c"]
    assert (none.objects, none.prefixes) == ((), (Prefix(BUCKET, "up/2/"),))


def test_a_row_without_a_prefix_asks_nothing() -> None:
    bucket = Bucket()
    [(one,)] = filled(bucket, row(1, ref("k"), prefix=""))
    assert (one.objects, bucket.asked) == ((ref("k"),), 0)


def test_batches_are_cut_by_rows_and_by_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below, "ROWS_A_BATCH", 3)
    monkeypatch.setattr(below, "OBJECTS_A_BATCH", 4)
    bucket = Bucket(*(ref(f"up/{n}/{i}") for n, i in [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]))
    found = filled(bucket, *(row(n) for n in range(1, 7)))
    assert [[r.key[0] for r in batch] for batch in found] == [[1], [2, 3, 4], [5, 6]]


def test_a_row_with_too_much_below_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below, "MOST_BELOW", 2)
    bucket = Bucket(ref("up/1/a"), ref("up/1/b"), ref("up/1/c"), ref("up/2/a"), ref("up/2/b"))
    filling = Filling(bucket)
    [(one,)] = filling.batches([[row(1), row(2)]])
    assert one.key == (2,)
    assert filling.left_out == {"more than 2 objects lie below their prefix": 1}


def test_a_row_below_which_no_request_can_delete_is_left_out_and_counted() -> None:
    filling = Filling(Bucket(ref("up/1/\x01/../b"), ref("up/2/a")))
    [(one,)] = filling.batches([[row(1), row(2)]])
    assert (one.key, sum(filling.left_out.values())) == ((2,), 1)


def test_an_object_named_by_a_column_and_found_below_is_one_unless_the_etags_differ() -> None:
    bucket = Bucket(ref("up/1/a"), ref("up/1/b"))
    named = [ref("up/1/a", None), ref("up/1/b", '"other"'), ref("elsewhere")]
    [(one,)] = filled(bucket, row(1, *named))
    assert one.objects == (ref("up/1/b", '"other"'), ref("elsewhere"), ref("up/1/a"), ref("up/1/b"))


@pytest.mark.parametrize(
    ("now", "code"),
    [
        ([ref("up/1/a")], None),
        ([], None),
        ([ref("up/1/a"), ref("up/1/b")], "appeared"),
        ([ref("up/1/a", '"newer"')], "overwritten"),
        ([ref("up/1/a", version="v2")], "appeared"),
        ([ref("up/1/a"), ref("up/1x/b")], None),
    ],
)
def test_what_is_below_now_is_held_against_what_was_sealed(now: list[ObjectRef], code: str | None) -> None:
    kept = appeared([row(1, ref("up/1/a"))], Bucket(*now))
    assert [(o.state, o.code) for o in kept.values()] == ([(Outcome.CHANGED, code)] if code else [])


def test_a_listing_that_fails_is_never_nothing_new() -> None:
    with pytest.raises(StoreError):
        appeared([row(1)], Bucket(broken=True))
    with pytest.raises(StoreError):
        filled(Bucket(broken=True), row(1))


def test_a_row_below_which_too_much_has_appeared_is_kept_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(below, "MOST_BELOW", 1)
    bucket = Bucket(ref("up/1/a"), ref("up/1/b"), ref("up/2/a"))
    kept = appeared([row(1, ref("up/1/a")), row(2, ref("up/2/a"))], bucket)
    assert {key: (o.state, o.code) for key, o in kept.items()} == {(1,): (Outcome.CHANGED, "appeared")}
    assert left_below({4: row(1), 7: row(2)}, bucket) == {4: None, 7: (ref("up/2/a"),)}


def test_what_is_left_below_is_told_by_row() -> None:
    left = left_below({4: row(1), 7: row(2)}, Bucket(ref("up/2/late")))
    assert left == {7: (ref("up/2/late"),)}


def survey(bucket: Any) -> Any:
    world = World(expired=0, fresh=0, owns=False)
    rows = world.process().rows
    rows.scan = lambda *_, **__: iter([(row(1), row(2))])  # type: ignore[method-assign]
    return OwningRows(rows, bucket).survey(world.clock.now(), portion=None, since=None)


def test_the_survey_counts_objects_and_bytes_and_a_failed_listing_makes_them_unknown() -> None:
    found = survey(Bucket(ref("up/1/a"), ref("up/2/a"), ref("up/2/b")))
    assert (found.objects, found.bytes, found.conditional) == (3, 21, 3)
    assert found.notes[-1] == "a note"
    failed = survey(Bucket(broken=True))
    assert all(isinstance(n, Unknown) for n in (failed.objects, failed.bytes, failed.conditional))
