"""What is said of an orphan that went, and that a row has come to name, is what is true of the row's object."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import DANGLING, GONE, NAMED, ItemOutcome, Outcome
from safedelete.phases.verdicts import spared, taken
from safedelete.ports import Gate, Presence


def version(name: str) -> ObjectRef:
    return ObjectRef("acme-uploads", "a.jpg", f'"{name}"', name, 1)


OLDER, CURRENT = version("v1"), version("v2")
SEALED = (OLDER, CURRENT)


class Versions:
    """A store with some versions of one key, of which the last is what it shows."""

    def __init__(self, *there: str, shown: Presence | None = None) -> None:
        self._there = there
        self._shown = shown or (Presence.PRESENT if there else Presence.ABSENT)

    def delete(self, refs: Sequence[ObjectRef], *, gate: Gate) -> Mapping[ObjectRef, ItemOutcome]:
        raise AssertionError("nothing is to be deleted")

    def presence(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        return {r: Presence.PRESENT if r.version in self._there else Presence.ABSENT for r in refs}

    def shown(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        return dict.fromkeys(refs, self._shown)

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        return {r: found for r, found in self.presence(refs).items() if found is not Presence.ABSENT}


def states(store: Versions, *, named: Collection[ObjectRef] = SEALED, doubt: bool = True) -> list[str]:
    found = spared(named, SEALED, store, doubt=doubt)
    return [found[ref].code or found[ref].state.value for ref in SEALED if ref in found]


def test_an_older_version_that_went_is_no_loss_to_a_row_whose_object_is_there() -> None:
    store = Versions("v2")
    assert spared(SEALED, SEALED, store, doubt=True)[CURRENT] == NAMED
    told = spared(SEALED, SEALED, store, doubt=True)[OLDER]
    assert told.state is Outcome.GONE
    assert (
        told.detail == "version v1 is gone; s3://acme-uploads/a.jpg is there, and a row has come to name it"
    )


def test_a_key_that_was_written_anew_since_its_versions_went_is_no_loss_either() -> None:
    assert states(Versions("v3")) == ["gone", "gone"]


def test_an_object_that_went_with_all_of_its_versions_is_lost_to_the_row() -> None:
    assert states(Versions()) == [DANGLING, DANGLING]


def test_an_older_version_that_came_back_is_not_what_the_row_names() -> None:
    found = spared(SEALED, SEALED, Versions("v1"), doubt=True)
    assert found[OLDER] == NAMED
    assert (found[CURRENT].state, found[CURRENT].code) == (Outcome.FAILED, DANGLING)
    assert "version v2 of s3://acme-uploads/a.jpg is gone" in found[CURRENT].detail


def test_what_a_marker_hides_is_not_there_for_a_row() -> None:
    assert states(Versions(shown=Presence.ABSENT)) == [DANGLING, DANGLING]


def test_an_object_that_cannot_be_asked_for_is_neither_there_nor_lost() -> None:
    assert states(Versions(shown=Presence.UNKNOWN)) == ["unseen", "unseen"]


def test_a_version_that_was_gone_before_anybody_tried_is_gone() -> None:
    assert spared(SEALED, SEALED, Versions("v2"), doubt=False) == {OLDER: GONE, CURRENT: NAMED}


@pytest.mark.parametrize("there", [{}, {CURRENT: Presence.PRESENT}], ids=["not asked for", "seen"])
def test_of_a_batch_that_is_looked_at_in_part_the_rest_stayed(there: Mapping[ObjectRef, Presence]) -> None:
    store = Versions("v2")
    found = taken([OLDER], SEALED, {OLDER: Presence.ABSENT, **there}, store)
    assert found[OLDER].state is Outcome.GONE
