"""Nothing beside what was sealed goes, and nothing goes in a place that is not the one the rows mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.core.run import RunState
from safedelete.errors import BlastRadiusError, ExitCode, LedgerError, PreflightError
from safedelete.ports import RunChange
from safedelete.runner import purge
from safedelete.testing.memory import Policy
from tests.worlds import BUCKET, World, batches_of, die, on, photo


def test_rows_of_its_own_table_beside_the_sealed_ones_stop_the_run_before_any_object_goes() -> None:
    world = World(expired=4)
    world.table.cascades[0,] = {"uploads": 2}
    with pytest.raises(BlastRadiusError, match=r"2 row\(s\) beside the sealed ones of uploads"):
        world.process().run()
    assert all(world.has_row(n) and world.has_object(f"{n}.jpg") for n in range(4))


def test_one_batch_cannot_spend_what_the_others_seal() -> None:
    world = World(expired=6)
    world.table.cascades[0,] = {"uploads": 1}
    with batches_of(2), pytest.raises(BlastRadiusError):
        world.process().run()
    assert [world.has_row(n) for n in range(6)] == [True] * 6


def test_a_plan_whose_counts_were_edited_is_not_executed() -> None:
    world = World(expired=4)
    saved = purge.save(world.process().ctx)
    assert saved.plan is not None
    assert saved.run is not None
    fewer = tuple(replace(target, items=1) for target in saved.plan.targets)
    world.ledger.move(saved.run, RunState.PENDING, change=RunChange(plan=replace(saved.plan, targets=fewer)))
    with pytest.raises(LedgerError, match="different numbers of items of uploads"):
        purge.execute_sealed(world.process().ctx, saved.run)
    assert all(world.has_row(n) for n in range(4))


def test_a_run_whose_objects_are_not_there_is_stopped_before_a_row_goes() -> None:
    world = World(expired=6)
    world.objects.stored.clear()
    with pytest.raises(PreflightError, match="only 0 of 6 sampled objects") as caught:
        world.process().run()
    assert caught.value.deleted == 0
    assert "missing_ok" in caught.value.hint
    assert all(world.has_row(n) for n in range(6))


def test_a_run_of_which_one_of_two_buckets_is_wrong_is_stopped_before_a_row_goes() -> None:
    world = World(expired=6)
    for number in range(6):
        row = world.add(number)
        world.table.put(replace(row, objects=(*row.objects, row.objects[0]._replace(bucket="another"))))
    with pytest.raises(PreflightError, match=r"only 0 of 6 sampled objects .* in bucket another"):
        world.process().run()
    assert all(world.has_row(n) and world.has_object(f"{n}.jpg") for n in range(6))


def test_a_wrong_bucket_is_noticed_also_where_each_batch_names_a_few_objects_only() -> None:
    world = World(expired=6)
    world.objects.stored.clear()
    with batches_of(2), pytest.raises(PreflightError, match="only 0 of 6 sampled objects"):
        world.process().run()
    assert all(world.has_row(n) for n in range(6))


def test_an_object_that_many_rows_share_is_there_once_and_that_is_all_of_it() -> None:
    world = World(expired=0, shares=True)
    for number in range(6):
        world.add(number, objects=["shared.jpg"])
    report = world.process().run()
    assert report.exit_code is ExitCode.DONE
    assert not any(world.has_row(n) for n in range(6))
    assert not world.has_object("shared.jpg")


def test_objects_that_cannot_be_asked_for_are_not_taken_to_be_there() -> None:
    world = World(expired=6)
    for number in range(6):
        world.objects.policies[BUCKET, f"{number}.jpg"] = Policy.HIDDEN
    with pytest.raises(PreflightError, match="6 could not be asked for") as caught:
        world.process().run()
    assert caught.value.unknown


def test_rows_whose_objects_went_on_purpose_go_where_that_was_said() -> None:
    world = World(expired=6)
    world.objects.stored.clear()
    report = world.process(parts=lambda p: [p.row_part(missing_ok=True)]).run()
    assert report.exit_code is ExitCode.DONE
    assert not any(world.has_row(n) for n in range(6))


def test_objects_that_a_crashed_run_took_are_no_sign_of_a_wrong_bucket() -> None:
    world = World(expired=6)
    world.process(at=on("batch.commit", die)).run_killed()
    world.clock.advance(90)
    report = world.process("host:2", caller="another").run()
    assert report.exit_code is ExitCode.STORE  # what the abandoned run left is told
    assert not any(world.has_row(n) for n in range(6))


class Other:
    """Another table of the purge, one of whose rows names the same object."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def named(self, refs: Sequence[ObjectRef]) -> list[ObjectRef]:
        return [ref for ref in refs if ref.key in self.keys]


def test_an_object_that_a_row_of_another_table_of_the_purge_names_stays() -> None:
    world = World(expired=3)
    other: Any = Other("1.jpg")
    report = world.process(parts=lambda p: [p.row_part(sharing=(other,))]).run()
    assert report.exit_code is ExitCode.DONE
    assert not world.has_row(1)
    assert world.has_object("1.jpg")
    assert not world.has_object("2.jpg")


def test_what_an_abandoned_run_had_deleted_is_looked_for() -> None:
    world = World(expired=4)
    world.objects.policies[BUCKET, "0.jpg"] = Policy.LYING
    with batches_of(2):
        world.process(at=on("batch.commit", die, nth=2)).run_killed()
    first = world.last().run
    world.clock.advance(90)
    report = world.process("host:2", caller="another").run()
    assert report.exit_code is ExitCode.STORE
    assert world.outcomes(first)[0].state is Outcome.FAILED
    assert world.objects.holds(photo("0.jpg"))


def test_what_a_run_had_deleted_before_it_was_stopped_is_looked_for() -> None:
    world = World(expired=4)
    world.objects.policies[BUCKET, "0.jpg"] = Policy.LYING
    for number in (2, 3):
        world.objects.policies[BUCKET, f"{number}.jpg"] = Policy.DENIED
    with batches_of(2), pytest.raises(Exception, match="Not one of the 2 items"):
        world.process().run()
    assert world.outcomes(world.last().run)[0].code == "residue"
