"""kill -9 at every I/O boundary, a writer before every resume: the next run converges, and no loss is quiet."""

from __future__ import annotations

import pytest

from tests.crash.conftest import Say
from tests.crash.matrix import (
    EVERY_BOUNDARY,
    Change,
    Start,
    chosen,
    die_and_be_refused,
    die_change_resume,
    die_twice,
    die_write_resume,
    few,
    pictures,
    recorded,
    recorded_second,
    survive,
)
from tests.crash.world import Lab

pytestmark = pytest.mark.timeout(3600)
TWO = Start("rows and two objects each")


FOLDER = "rows and a folder each"
PURGES = ("rows", "rows and one object each", TWO.purge, FOLDER, "prefix")
# Every purge on one lab; elsewhere the ones that differ there. `make crash` tries all of them everywhere.
EVERYWHERE = (
    [(lab, purge) for lab in ("sqlite", "postgres", "apart") for purge in PURGES]
    if EVERY_BOUNDARY
    else [
        # What one object for each row could show, two show.
        *(("sqlite", purge) for purge in PURGES if purge != "rows and one object each"),
        ("postgres", "rows"),
        ("postgres", TWO.purge),
        ("apart", TWO.purge),
    ]
)


@pytest.mark.parametrize(("labs", "purge"), EVERYWHERE, indirect=["labs"])
def test_the_next_run_converges_wherever_the_first_was_killed(labs: list[Lab], purge: str, say: Say) -> None:
    start = Start(purge)
    passed = recorded(labs[0], start)
    here = labs[0].url.startswith("sqlite") and labs[0].ledger_url is None
    # Its ways to be dead are those of two objects each, and of the listing that seals and asks again.
    some = purge == FOLDER and not EVERY_BOUNDARY
    points = few(passed) if some else chosen(passed, doubting=here and purge == TWO.purge)
    survive(labs, purge, passed, points, lambda lab, point: die_write_resume(lab, start, point), say)


def test_a_sweep_of_orphans_converges_and_spares_what_a_row_came_to_name(
    sqlite_labs: list[Lab], say: Say
) -> None:
    start = Start("orphans")
    passed = recorded(sqlite_labs[0], start)
    points = pictures(passed)
    survive(
        sqlite_labs, start.purge, passed, points, lambda lab, point: die_write_resume(lab, start, point), say
    )


@pytest.mark.parametrize(
    "start",
    [Start(TWO.purge, role="sd_cannot_lock"), Start(TWO.purge, locked=2), Start("rows", locked=2)],
    ids=str,
)
def test_it_converges_where_rows_are_locked_or_cannot_be(
    postgres_labs: list[Lab], start: Start, say: Say
) -> None:
    if start.role is not None and not postgres_labs[0].has_roles:
        pytest.skip("no roles can be made on the server that was given")
    passed = recorded(postgres_labs[0], start)
    points = few(passed)
    survive(
        postgres_labs, str(start), passed, points, lambda lab, point: die_write_resume(lab, start, point), say
    )


WHOLE = ("another predicate", "another access key")
"""Another definition, another caller: tried at every way to be dead. Of their variations a few ways are enough by default."""

CHANGES = {
    "another predicate": Change("another predicate"),
    "a stricter predicate": Change("a stricter predicate"),
    "a key column less": Change("one key column less"),
    "owns nothing": Change("owns nothing any more"),
    "another bucket": Change("another bucket"),
    "another access key": Change(TWO.purge, access_key="someone-else"),
    "another environment": Change(TWO.purge, environment="elsewhere"),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_run_of_something_else_is_abandoned_and_told_of(
    sqlite_labs: list[Lab], changed: str, say: Say
) -> None:
    change = CHANGES[changed]
    passed = recorded(sqlite_labs[0], TWO)
    points = pictures(passed) if changed in WHOLE else few(passed)
    survive(
        sqlite_labs,
        f"{TWO}, then {change}",
        passed,
        points,
        lambda lab, point: die_change_resume(lab, TWO, point, change),
        say,
    )


def test_a_run_of_another_role_is_abandoned_and_told_of(postgres_labs: list[Lab], say: Say) -> None:
    if not postgres_labs[0].has_roles:
        pytest.skip("no roles can be made on the server that was given")
    change = Change(TWO.purge, role="sd_other")
    passed = recorded(postgres_labs[0], TWO)
    points = few(passed)
    survive(
        postgres_labs,
        f"{TWO}, then {change}",
        passed,
        points,
        lambda lab, point: die_change_resume(lab, TWO, point, change),
        say,
    )


def test_a_run_that_the_limits_refuse_now_is_abandoned_and_told_of(sqlite_labs: list[Lab], say: Say) -> None:
    passed = recorded(sqlite_labs[0], TWO)
    points = pictures(passed)
    survive(
        sqlite_labs,
        f"{TWO}, then tighter limits",
        passed,
        points,
        lambda lab, point: die_and_be_refused(lab, TWO, point),
        say,
    )


@pytest.mark.parametrize(
    "change", [Change(TWO.purge), CHANGES["another predicate"]], ids=["resumed", "abandoned"]
)
def test_the_run_after_two_killed_ones_converges(sqlite_labs: list[Lab], change: Change, say: Say) -> None:
    # Killed first where the second batch's objects are gone and its rows are not.
    in_doubt = [b.number for b in recorded(sqlite_labs[0], TWO) if b.label == "after http DeleteObjects"][-2]
    passed = recorded_second(sqlite_labs[0], TWO, in_doubt, change)
    points = few(passed)
    survive(
        sqlite_labs,
        f"{TWO}, then {change}, killed twice",
        passed,
        points,
        lambda lab, point: die_twice(lab, TWO, in_doubt, point, change),
        say,
    )
