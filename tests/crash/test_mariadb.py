"""The same on MariaDB: every single boundary by `make crash`; by default a few, where a transaction or a request has ended."""

from __future__ import annotations

import pytest

from tests.crash.conftest import Say
from tests.crash.evidence import Told, hold
from tests.crash.matrix import EVERY_BOUNDARY, Boundary, Start, die_write_resume, listed, tried
from tests.crash.test_boundaries import KINDS
from tests.crash.world import Lab

pytestmark = pytest.mark.timeout(3600)
TWO = Start("rows and two objects each")


def sample(passed: list[Boundary]) -> list[Boundary]:
    """Return two ends of transactions and two of deleting requests, after the seal: there the servers differ."""
    sealed = next(point.number for point in passed if "INSERT INTO safedelete_batch" in point.label)
    found: list[Boundary] = []
    for label in ("after pymysql COMMIT", "after http DeleteObjects"):
        ends = [point for point in passed if point.label == label and point.number > sealed]
        found += [ends[len(ends) // 3], ends[2 * len(ends) // 3]]
    return found


@pytest.mark.parametrize("start", [TWO, *([Start("rows")] if EVERY_BOUNDARY else [])], ids=str)
def test_the_next_run_converges_wherever_the_first_was_killed(
    mariadb_labs: list[Lab], start: Start, say: Say
) -> None:
    passed = listed(mariadb_labs[0], start)
    if start == TWO:
        assert not [kind for kind, io in KINDS.items() if not any(io in point.label for point in passed)]
    points = passed if EVERY_BOUNDARY else sample(passed)
    seen = tried(mariadb_labs, points, lambda lab, point: die_write_resume(lab, start, point))
    say(f"{mariadb_labs[0].where} | {start}: {len(passed):,} boundaries; {seen}")
    assert seen.broken == []
    if not EVERY_BOUNDARY:
        hold(mariadb_labs[0].where, str(start), Told(len(passed), len(points)))


def test_a_call_that_nobody_listed_is_a_boundary(mariadb_labs: list[Lab]) -> None:
    passed: list[str] = []
    mariadb_labs[0].seed()
    mariadb_labs[0].run("rows", verb="stray", at_each=passed.append)
    wanted = ["connect", "SELECT 'stray'", "command", "close"]
    assert {f"{when} pymysql {call}" for call in wanted for when in ("before", "after")} <= set(passed)
