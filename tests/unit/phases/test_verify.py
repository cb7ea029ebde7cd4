"""Looking again: what the stores still show wins over what their answers said."""

from __future__ import annotations

from datetime import timedelta

import pytest

from safedelete.core.outcome import Outcome
from safedelete.core.run import RunState
from safedelete.errors import ExitCode, InterruptedRunError, LockLostError
from safedelete.testing.memory import Policy
from tests.worlds import BUCKET, World, die, on, photo


def lying(world: World, key: str) -> None:
    world.objects.policies[BUCKET, key] = Policy.LYING


def test_an_object_that_was_acknowledged_and_is_there_is_a_residue() -> None:
    world = World(expired=3)
    lying(world, "1.jpg")
    report = world.process().run()
    assert world.outcomes(str(report.run))[1][:2] == (Outcome.FAILED, "residue")
    assert (report.state, report.exit_code) == (RunState.FAILED, ExitCode.STORE)
    assert report.total.deleted == 2


def test_an_object_that_cannot_be_looked_for_is_unknown() -> None:
    world = World(expired=3)
    world.objects.policies[BUCKET, "1.jpg"] = Policy.HIDDEN
    report = world.process().run()
    assert world.outcomes(str(report.run))[1].state is Outcome.UNKNOWN
    assert report.exit_code is ExitCode.STORE


def test_a_row_that_is_there_again_is_a_residue() -> None:
    world = World(expired=3)
    report = world.process(at=on("rows.present", lambda: world.add(1) and None)).run()
    assert world.outcomes(str(report.run))[1][:2] == (Outcome.FAILED, "residue")


def test_a_key_used_again_by_a_later_row_is_no_residue() -> None:
    world = World(expired=3)
    report = world.process(at=on("rows.present", lambda: world.add(70, objects=["1.jpg"]) and None)).run()
    assert report.exit_code is ExitCode.DONE
    assert world.has_object("1.jpg")


def test_an_object_spared_for_another_row_is_no_residue() -> None:
    world = World(expired=1, shares=True)
    world.add(7, objects=["shared.jpg"])
    world.add(8, objects=["shared.jpg"], expired=False)
    assert world.process().run().exit_code is ExitCode.DONE


def test_a_row_that_came_to_name_an_object_while_it_went_is_reported() -> None:
    """Another row took the object up between the question who names it and its deletion: nobody can fence that."""
    world = World(expired=2, shares=True)
    world.add(9, objects=["9.jpg"], expired=False)
    report = world.process(
        at=on("objects.delete", lambda: world.table.update((9,), objects=(photo("1.jpg"),)))
    ).run()
    assert world.outcomes(str(report.run))[1][:2] == (Outcome.FAILED, "dangling")
    assert report.exit_code is ExitCode.STORE


def test_an_object_of_a_row_that_was_gone_before_is_not_expected_gone() -> None:
    world = World(expired=3)
    report = world.process(at=on("rows.begin", lambda: world.table.remove((1,)))).run()
    assert world.has_object("1.jpg")
    assert report.exit_code is ExitCode.DONE


def test_an_object_of_a_prefix_written_anew_is_no_residue() -> None:
    world = World(expired=0)
    world.objects.put(BUCKET, "tmp/a")
    for number in range(30):
        world.objects.put(BUCKET, f"tmp/new/{number}", modified=world.clock.now())
    process = world.process(
        parts=lambda p: [p.prefix_part()],
        at=on("ledger.batches", lambda: world.objects.put(BUCKET, "tmp/a"), nth=3),
    )
    report = process.run()
    assert report.total.deleted == 1
    assert world.has_object("tmp/a")


def test_a_stop_while_looking_leaves_a_run_that_is_looked_at_again() -> None:
    world = World(expired=2)
    lying(world, "1.jpg")
    why: list[str] = []
    process = world.process(
        asked=lambda: why[0] if why else None,
        at=on("batch.commit", lambda: why.append("SIGTERM"), moment="after"),
    )
    with pytest.raises(InterruptedRunError):
        process.run()
    report = world.process("host:2").run()
    assert report.resumed
    assert world.outcomes(str(report.run))[1].code == "residue"


def test_a_holder_that_lost_its_lease_amends_nothing() -> None:
    world = World(expired=2)
    lying(world, "1.jpg")
    process = world.process(at=on("ledger.open", lambda: world.clock.freeze(61)))
    with pytest.raises(LockLostError):
        process.run()
    assert world.outcomes(world.last().run)[1].state is Outcome.DELETED
    assert world.process("host:2").run().total.failed == 1


def test_a_process_killed_while_looking_is_made_up_for() -> None:
    world = World(expired=2)
    lying(world, "1.jpg")
    world.process(at=on("objects.remaining", die)).run_killed()
    world.clock.advance(timedelta(minutes=2).total_seconds())
    assert world.process("host:2").run().total.failed == 1
