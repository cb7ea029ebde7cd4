"""What the matrix has found, each at the point where it was found."""

from __future__ import annotations

from sqlalchemy import update

from tests.crash.matrix import Change, Start, recorded
from tests.crash.purges import FAR_AHEAD, uploads
from tests.crash.world import ELIGIBLE, Lab

TWO = Start("rows and two objects each")


def killed_in_doubt(lab: Lab, rows: range) -> None:
    """Kill a run where the first two rows' objects are gone and the rows are not; then un-expire these rows."""
    # Four slices, a request each, the first of two rows; the ones before are the preflight's probes.
    point = [b for b in recorded(lab, TWO) if b.label == "after http DeleteObjects"][-4]
    lab.seed()
    lab.run(TWO.purge, kill_at=point.number)
    with lab.engine.begin() as connection:
        connection.execute(update(uploads).where(uploads.c.id.in_(rows)).values(expires_at=FAR_AHEAD))
    lab.let_time_pass()


def test_a_batch_of_rows_that_lost_their_objects_does_not_stop_the_later_batches(
    sqlite_labs: list[Lab],
) -> None:
    lab = sqlite_labs[0]
    killed_in_doubt(lab, range(1, 3))
    ended = lab.run(TWO.purge)
    assert (ended.status, "denied" in ended.said, "could be deleted" in ended.said) == (7, False, False)
    assert set(lab.look().rows) & set(ELIGIBLE) == {1, 2}
    (run,) = lab.sealed_and_said()
    assert {c.item for c in run.claims if c.code == "dangling"} == {1, 2}


def test_rows_left_dangling_are_told_of_though_the_run_that_found_them_was_killed_too(
    sqlite_labs: list[Lab],
) -> None:
    lab = sqlite_labs[0]
    killed_in_doubt(lab, range(1, 2))
    change = Change("another predicate")
    found: list[str] = []
    lab.run(change.purge, at_each=found.append)
    point = max(number for number, label in enumerate(found) if label == "before http DeleteObjects")
    killed_in_doubt(lab, range(1, 2))
    assert lab.run(change.purge, kill_at=point).status == -9
    lab.let_time_pass()
    statuses = [lab.run(change.purge).status for _ in range(2)]
    assert statuses == [7, 0]
    abandoned = lab.sealed_and_said()[0]
    assert abandoned.state == "abandoned"
    assert 1 in {c.item for c in abandoned.claims if c.code == "dangling"}
