"""A difference is told only when a second look agrees, and a place that could not be read is not free of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.orphans import Listed
from safedelete.errors import InterruptedRunError, StoreError
from safedelete.phases.parts import quiet
from safedelete.phases.reconcile import CHUNK, SAMPLE, Place, Reconciled, Seen, reconcile
from safedelete.ports import Presence, Values
from safedelete.testing.memory import MemoryDatabase, MemoryObjects, MemoryReferences, MemoryRow, MemoryTable

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OLD = NOW - timedelta(days=9)


class Sides:
    def __init__(self) -> None:
        self.table = MemoryTable(MemoryDatabase(), "uploads")
        self.objects = MemoryObjects()
        self.references = MemoryReferences([self.table], "acme", "u/")
        self.listed: Callable[[], None] | None = None
        """Done when the listing has come to its end."""

    def name(self, *keys: str) -> None:
        for key in keys:
            self.table.put(MemoryRow((key,), None, (ObjectRef("acme", key),)))

    def put(self, *keys: str, modified: datetime = OLD) -> None:
        for key in keys:
            self.objects.put("acme", key, modified=modified)

    def listing(self) -> Iterator[Listed[Seen]]:
        for _, key in sorted(self.objects.stored):
            ref = self.objects.ref("acme", key)
            yield Listed(key, Seen(ref, self.objects.stored["acme", key].modified))
        if self.listed is not None:
            self.listed()

    def compare(self, **changes: Any) -> Reconciled:
        progress = changes.pop("progress", quiet)
        options: dict[str, Any] = {
            "references": self.references,
            "listing": self.listing,
            "remaining": self.objects.remaining,
        }
        place = Place(
            "job", "acme", "u/", ("uploads.s3_key",), young=NOW - timedelta(days=1), **options | changes
        )
        return reconcile(place, progress)


@pytest.fixture
def sides() -> Sides:
    made = Sides()
    made.put("u/1", "u/2", "u/3")
    made.name("u/1", "u/2", "u/lost")
    return made


def test_both_sides_are_reported(sides: Sides) -> None:
    found = sides.compare()
    assert (found.listed, found.named, found.unchecked, found.differs) == (3, 2, "", True)
    assert (found.without_rows.keys, found.without_rows.sample) == (1, ["u/3"])
    assert (found.without_objects.keys, found.without_objects.sample) == (1, ["u/lost"])


def test_what_came_while_the_other_side_was_read_is_no_difference(sides: Sides) -> None:
    def meanwhile() -> None:
        sides.name("u/3")
        sides.put("u/lost")

    sides.listed = meanwhile
    found = sides.compare()
    assert not found.differs
    assert found.named == 3


def test_a_row_that_went_meanwhile_lost_nothing(sides: Sides) -> None:
    sides.listed = lambda: sides.table.remove(("u/lost",))
    assert sides.compare().without_objects.keys == 0


def test_more_differences_than_one_look_holds_are_all_counted_and_few_are_shown(sides: Sides) -> None:
    sides.put(*(f"u/x{number:05}" for number in range(1_500)))
    sides.name(*(f"u/y{number:05}" for number in range(1_500)))
    found = sides.compare()
    assert (found.without_rows.keys, found.without_objects.keys) == (1_501, 1_501)
    assert len(found.without_rows.sample) == len(found.without_objects.sample) == SAMPLE


def test_a_young_object_is_counted_apart(sides: Sides) -> None:
    sides.put("u/4", modified=NOW)
    found = sides.compare()
    assert (found.young, found.without_rows.keys) == (1, 1)


def unknown(refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
    return dict.fromkeys(refs, Presence.UNKNOWN)


def broken() -> Iterator[Listed[Seen]]:
    raise StoreError("the listing was cut short")
    yield


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"remaining": unknown}, "could not be asked for"),
        ({"listing": broken}, "cut short"),
        ({"listing": lambda: iter([Listed("u/2", None), Listed("u/1", None)])}, "order of their bytes"),
    ],
)
def test_a_side_that_cannot_be_read_leaves_the_place_unchecked(
    sides: Sides, changes: dict[str, Any], says: str
) -> None:
    assert says in sides.compare(**changes).unchecked


def test_an_empty_table_and_values_that_are_no_keys_leave_the_place_unchecked(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sides.references, "values", lambda: Values(unmatched=2, example="'https://x' in s3_key")
    )
    assert "2 value(s) may mean an object" in sides.compare().unchecked
    monkeypatch.undo()
    for key in list(sides.table.rows):
        sides.table.remove(key)
    assert "uploads has no row" in sides.compare().unchecked


@pytest.mark.parametrize("side", ["objects", "rows"])
def test_what_the_listener_raises_ends_the_comparison_within_a_place(sides: Sides, side: str) -> None:
    keys = [f"u/{number:04}" for number in range(2 * CHUNK)]
    sides.put(*keys) if side == "objects" else sides.name(*keys)
    told: list[int] = []

    def stop(_what: str, done: int, _total: int) -> None:
        told.append(done)
        raise InterruptedRunError("asked to stop")

    with pytest.raises(InterruptedRunError):
        sides.compare(progress=stop)
    assert len(told) == 1
    assert told[0] < CHUNK + 3
