"""Sealing: the exact keys, counted again, decided again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.limits import Guard
from safedelete.core.run import RunState
from safedelete.core.seal import digest
from safedelete.errors import DeadlineExceededError, ExitCode, InterruptedRunError, RefusedError
from safedelete.runner import purge
from safedelete.runner.context import PurgeContext
from safedelete.runner.report import Report
from safedelete.testing.memory import Call
from tests.worlds import BUCKET, World, batches_of, on


def test_the_plan_carries_the_counts_and_the_digest_of_what_was_sealed() -> None:
    world = World(expired=5)
    # One row appears between counting and sealing.
    with batches_of(2):
        report = world.process(at=on("rows.scan", lambda: world.add(5) and None, nth=2)).run()
    plan = report.plan
    assert plan is not None
    assert plan.targets[0].items == 6
    assert plan.targets[0].objects == 6
    assert plan.digest == digest(plan.fingerprint, plan.as_of, world.ledger.checksums(str(report.run)))
    assert world.ledger.sealed(str(report.run)) == {0: 6}


def test_more_than_max_sealed_is_refused_and_nothing_stays_sealed() -> None:
    world = World(expired=5)
    with (
        batches_of(2),
        pytest.raises(RefusedError, match="5 items would be sealed; max_sealed is 4") as caught,
    ):
        world.process(max_sealed=4).run()
    assert caught.value.findings == ("SD104",)
    assert_refused_unsealed(world)
    assert all(world.has_row(n) for n in range(5))


def assert_refused_unsealed(world: World) -> None:
    record = world.last()
    assert not list(world.ledger.batches(record.run))
    assert (record.state, record.exit_code) == (RunState.REFUSED, ExitCode.REFUSED)
    assert record.plan is not None
    assert record.decision is not None
    assert "SD104" in {f.code for f in record.decision.findings}


def test_a_plan_that_a_run_would_refuse_for_its_size_is_refused_when_it_is_planned() -> None:
    world = World(expired=5)
    for report in (
        purge.plan(world.process(max_sealed=4).ctx),
        purge.dry_run(world.process(max_sealed=4).ctx),
        purge.save(world.process(max_sealed=4).ctx),
    ):
        assert report.exit_code is ExitCode.REFUSED
    assert_refused_unsealed(world)
    assert purge.plan(world.process(max_sealed=5).ctx).exit_code is ExitCode.DONE


@pytest.mark.parametrize("verb", [purge.run, purge.save])
def test_a_plan_that_grows_beyond_max_sealed_while_it_is_sealed_is_recorded_as_refused(
    verb: Callable[[PurgeContext], Report],
) -> None:
    world = World(expired=4)
    process = world.process(max_sealed=4, at=on("ledger.seal", lambda: world.add(5) and None))
    with batches_of(2), suppress(RefusedError):
        assert verb(process.ctx).exit_code is ExitCode.REFUSED
    assert_refused_unsealed(world)
    assert all(world.has_row(n) for n in range(4))


def test_what_the_guard_refused_is_recorded_also_when_it_is_too_big_to_be_sealed() -> None:
    world = World(expired=5)
    with pytest.raises(RefusedError) as caught:
        world.process(max_sealed=4, guard=Guard(max_items=3)).run()
    assert set(caught.value.findings) == {"SD101", "SD104"}
    assert_refused_unsealed(world)


def test_a_seal_is_not_refused_when_max_sealed_is_lowered_after_it() -> None:
    world = World(expired=5)
    saved = purge.save(world.process().ctx)
    assert purge.execute_sealed(world.process(max_sealed=4).ctx, str(saved.run)).total.deleted == 5


def test_exactly_max_sealed_passes() -> None:
    world = World(expired=5)
    with batches_of(2):
        assert world.process(max_sealed=5).run().exit_code is ExitCode.DONE


def test_an_object_that_several_sealed_rows_name_is_weighed_once() -> None:
    world = World(expired=0, shares=True)
    world.objects.put(BUCKET, "shared.jpg")
    for number in range(3):
        row = world.add(number, objects=())
        world.table.put(replace(row, objects=(ObjectRef(BUCKET, "shared.jpg", size=400),)))
    saved = purge.save(world.process(guard=Guard(max_bytes=1_000)).ctx)
    assert saved.plan is not None
    assert (saved.plan.targets[0].items, saved.plan.targets[0].objects, saved.plan.targets[0].bytes) == (
        3,
        1,
        400,
    )
    assert saved.exit_code is ExitCode.DONE


def test_what_was_sealed_is_decided_again() -> None:
    world = World(expired=3)

    def more() -> None:
        for number in range(10, 13):
            world.add(number)

    process = world.process(guard=Guard(max_items=4), at=on("rows.scan", more, nth=2))
    with pytest.raises(RefusedError, match="SD101"):
        process.run()
    assert world.last().state is RunState.REFUSED
    assert world.last().plan.targets[0].items == 6  # type: ignore[union-attr]
    assert all(world.has_row(n) and world.has_object(f"{n}.jpg") for n in range(3))


def test_a_refused_plan_is_sealed_so_that_its_exact_keys_can_be_approved() -> None:
    world = World(expired=5)
    with pytest.raises(RefusedError) as caught:
        world.process(guard=Guard(max_items=4)).run()
    record = world.last()
    assert caught.value.run == record.run
    assert record.state is RunState.REFUSED
    assert record.plan is not None
    assert record.plan.digest is not None
    assert world.ledger.sealed(record.run) == {0: 5}


def test_a_stop_while_sealing_deletes_nothing_and_leaves_nothing_to_resume() -> None:
    world = World(expired=6)
    why: list[str] = []

    def at(call: Call) -> None:
        if call.name == "ledger.seal":
            why.append("SIGTERM")

    with batches_of(2), pytest.raises(InterruptedRunError, match="before it had deleted anything") as caught:
        world.process(asked=lambda: why[0] if why else None, at=at).run()
    assert (caught.value.deleted, caught.value.hint) == (0, "The next run plans anew.")
    assert world.last().state is RunState.INTERRUPTED
    assert not list(world.ledger.batches(world.last().run))
    assert all(world.has_row(n) for n in range(6))


def test_a_deadline_that_passes_while_sealing_does_not_promise_to_go_on() -> None:
    world = World(expired=6)
    process = world.process(
        timeout=timedelta(minutes=5), at=on("ledger.seal", lambda: world.clock.advance(301))
    )
    with (
        batches_of(2),
        pytest.raises(DeadlineExceededError, match="passed before anything was deleted") as caught,
    ):
        process.run()
    assert "plans anew" in caught.value.hint
    again = world.process("host:2").run()
    assert not again.resumed


def test_bytes_are_those_of_the_sealed_objects() -> None:
    world = World(expired=0)
    for number in range(3):
        world.objects.put(BUCKET, f"tmp/{number}", size=7)
    for number in range(30):
        world.objects.put(BUCKET, f"tmp/new/{number}", modified=world.clock.now())
    report = world.process(parts=lambda p: [p.prefix_part()]).run()
    assert report.plan is not None
    assert (report.plan.targets[0].bytes, report.plan.targets[0].conditional) == (21, 3)
