"""The boundaries are found, not listed."""

from __future__ import annotations

import pytest

from tests.crash.matrix import Start, recorded
from tests.crash.world import Lab

KINDS = {
    "the lease taken": "INSERT INTO safedelete_lease",
    "the fence": "SELECT safedelete_lease.token",
    "the hold": "SELECT uploads.id",
    "a savepoint": "SAVEPOINT",
    "the rows deleted": "DELETE FROM uploads",
    "the objects deleted": "http DeleteObjects",
    "an object looked for": "http HeadObject",
    "a run recorded": "INSERT INTO safedelete_run",
    "a batch sealed": "INSERT INTO safedelete_batch",
    "outcomes recorded": "UPDATE safedelete_batch",
    "a commit": "COMMIT",
    "a connection opened": "connect",
    "a connection closed": "close",
}


def test_every_kind_of_io_of_a_run_is_a_boundary(labs: list[Lab]) -> None:
    passed = recorded(labs[0], Start("rows and two objects each"))
    missing = [
        f"{when} {kind}"
        for kind, words in KINDS.items()
        for when in ("before", "after")
        if not any(b.label.startswith(when) and words in b.label for b in passed)
    ]
    assert not missing
    assert len(passed) % 2 == 0


def test_a_call_that_nobody_listed_is_a_boundary(labs: list[Lab]) -> None:
    lab, passed = labs[0], list[str]()
    lab.seed()
    lab.run("rows", verb="stray", at_each=passed.append)
    wanted = [
        "sqlite CREATE TABLE stray (n INTEGER)",
        "sqlite INSERT INTO stray VALUES (?)",
        "http PutObject",
    ]
    if lab.url.startswith("postgresql"):
        wanted += ["psycopg connect", "psycopg LISTEN stray", "psycopg round trip", "psycopg close"]
    assert [
        label for label in wanted for when in ("before", "after") if f"{when} {label}" not in passed
    ] == []


def test_a_killed_run_leaves_what_was_seen_at_its_boundary(sqlite_labs: list[Lab]) -> None:
    lab, start = sqlite_labs[0], Start("rows and two objects each")
    deleting = [point for point in recorded(lab, start) if point.label == "after http DeleteObjects"]
    lab.seed()
    before = lab.look()
    ended = lab.run(start.purge, kill_at=deleting[-1].number)
    assert (ended.status, ended.at) == (-9, deleting[-1].label)
    after = lab.look()
    # In doubt: the objects of the last batch are gone, its row is not.
    assert len(before.rows) - len(after.rows) == 6
    assert ("acme-uploads", "u/7.jpg") not in after.objects
    assert 7 in after.rows


@pytest.mark.parametrize("purge", ["rows", "prefix"])
def test_the_same_run_passes_the_same_boundaries_twice(sqlite_labs: list[Lab], purge: str) -> None:
    first, second = (recorded(lab, Start(purge)) for lab in sqlite_labs)
    assert len(first) == len(second)
