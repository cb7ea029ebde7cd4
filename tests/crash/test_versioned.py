"""kill -9 where the bucket keeps versions, and the application writes, hides and shows objects again before the next run."""

from __future__ import annotations

import pytest

from tests.crash.conftest import Say
from tests.crash.matrix import EVERY_BOUNDARY, Start, die_write_resume, few, recorded, survive
from tests.crash.promises import (
    Names,
    no_named_object_went,
    nothing_but_the_sealed_went,
    nothing_is_gone_for_good,
)
from tests.crash.purges import KEEPING_VERSIONS
from tests.crash.world import HIDDEN, Claim, Kept, Lab, LedgerRun, Row, Stores

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("purge", KEEPING_VERSIONS)
@pytest.mark.parametrize("labs", ["sqlite", "postgres"], indirect=True)
def test_no_version_is_left_or_lost_and_none_comes_back_to_life(
    labs: list[Lab], purge: str, say: Say
) -> None:
    start = Start(purge)
    passed = recorded(labs[0], start)
    points = passed if EVERY_BOUNDARY else few(passed)
    survive(labs, purge, passed, points, lambda lab, point: die_write_resume(lab, start, point), say)


def test_the_writer_writes_hides_and_shows_objects_of_rows_that_stay_due(sqlite_labs: list[Lab]) -> None:
    lab, shows = sqlite_labs[0], 0
    for number in range(10):
        lab.seed()
        before = lab.look()
        written = lab.write_versions(number)
        after = lab.look()
        due = {("acme-versioned", row.s3_key) for row in after.rows.values() if row.due}
        hid = {p for p in due if after.objects[p] == HIDDEN != before.objects.get(p)}
        showed = {p for p in due if before.objects.get(p) == HIDDEN != after.objects[p]}
        anew = ("acme-versioned", str(written.overwritten))
        assert len(hid) == 1
        assert len(after.versions[anew]) == len(before.versions[anew]) + 1
        assert not after.versions[anew][-1].marker
        # The one key that was hidden may be taken for something else.
        assert len(showed) <= 1
        shows += len(showed)
    assert shows


PLACE = ("bucket", "a")
KEPT = (Kept("1", marker=False, old=True), Kept("2", marker=False, old=True))
MARKER = Kept("3", marker=True, old=False)


def test_a_version_that_goes_where_it_was_only_to_be_hidden_is_noticed() -> None:
    before = Stores({}, {PLACE: "etag"}, {PLACE: KEPT})
    after = Stores({}, {PLACE: HIDDEN}, {PLACE: (*KEPT, MARKER)})
    assert list(nothing_is_gone_for_good(before, after)) == []
    after = Stores({}, {PLACE: HIDDEN}, {PLACE: (KEPT[1], MARKER)})
    assert len(list(nothing_is_gone_for_good(before, after))) == 1


def test_a_row_that_goes_before_a_version_of_its_object_is_noticed_whether_a_marker_hides_it_or_not() -> None:
    names = Names.of("versioned objects")
    row = Row(due=True, s3_key="a", thumb_key=None)
    place = ("acme-versioned", "a")
    claims = (Claim(1, frozenset({place}), "gone", ""),)
    runs = [LedgerRun("r", "succeeded", 0, "", claims, ())]
    before = Stores({1: row}, {place: HIDDEN}, {place: (*KEPT, MARKER)})
    left = Stores({}, {place: HIDDEN}, {place: (*KEPT, MARKER)})
    assert "its object" in next(nothing_but_the_sealed_went(before, left, runs, names))
    assert list(nothing_but_the_sealed_went(before, Stores({}, {}), runs, names)) == []
    # Where it was to be hidden, hidden is gone.
    assert list(nothing_but_the_sealed_went(before.shown(), left.shown(), runs, names)) == []


def test_a_version_of_a_row_that_was_not_due_is_missed() -> None:
    names = Names.of("versioned objects")
    row = Row(due=False, s3_key="a", thumb_key=None)
    place = ("acme-versioned", "a")
    before = Stores({1: row}, {place: "etag"}, {place: KEPT})
    after = Stores({1: row}, {place: "etag"}, {place: KEPT[1:]})
    assert list(nothing_but_the_sealed_went(before, after, [], names)) == [
        f"1 version(s) of {place} are gone, though no row that was due named it"
    ]


FOLDER = ("acme-folders", "a/1")
FRESH = ("acme-folders", "a/2")


@pytest.mark.parametrize("purge", ["versioned folders", "hidden folders"])
def test_a_row_that_goes_with_what_came_below_its_prefix_since_it_was_sealed_is_noticed(purge: str) -> None:
    names = Names.of(purge)
    row = Row(due=True, s3_key="a", thumb_key=None)
    known = [(FOLDER, "1"), (FOLDER, "2")] if names.by_version else [(FOLDER, "etag")]
    claim = Claim(1, frozenset({FOLDER}), "deleted", "", exact=frozenset(known))
    runs = [LedgerRun("r", "succeeded", 0, "", (claim,), ())]
    sealed = Stores({1: row}, {FOLDER: "etag"}, {FOLDER: KEPT})
    empty = Stores({}, {})
    assert list(nothing_but_the_sealed_went(sealed, empty, runs, names)) == []
    assert "its object" in next(nothing_but_the_sealed_went(sealed, Stores({}, sealed.objects), runs, names))
    added = Stores({1: row}, {FOLDER: "etag", FRESH: "etag"}, {FOLDER: KEPT, FRESH: KEPT})
    anew = Stores({1: row}, {FOLDER: "another"}, {FOLDER: (*KEPT, Kept("3", marker=False, old=False))})
    for since in (added, anew):
        assert "row 1 is gone, though it was not sealed as it was" in [
            *nothing_but_the_sealed_went(since, empty, runs, names)
        ]
        kept = Stores({1: row}, {}, {})
        assert "was not sealed as it was" in next(nothing_but_the_sealed_went(since, kept, runs, names))


def test_an_orphan_that_a_row_names_is_missed_also_where_a_version_of_it_is_left() -> None:
    row = Row(due=False, s3_key="u/12.jpg", thumb_key="tmp/1.bin")
    place = ("acme-versioned", "tmp/1.bin")
    before = Stores({12: row}, {place: "etag"}, {place: KEPT})
    after = Stores({12: row}, {place: "etag"}, {place: KEPT[1:]})
    assert list(no_named_object_went(before, before, "acme-versioned")) == []
    assert len(list(no_named_object_went(before, after, "acme-versioned"))) == 1
    # Of one that was to be hidden no version goes, and it is gone all the same.
    hidden = Stores({12: row}, {place: HIDDEN}, {place: (*KEPT, MARKER)})
    assert len(list(no_named_object_went(before.shown(), hidden.shown(), "acme-versioned"))) == 1
