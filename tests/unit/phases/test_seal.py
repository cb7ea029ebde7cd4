"""Sealing: the exact keys, counted again, decided again."""

from __future__ import annotations

import pytest

from safedelete.core.limits import Guard
from safedelete.core.run import RunState
from safedelete.core.seal import digest
from safedelete.errors import ExitCode, InterruptedRunError, RefusedError
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
    with batches_of(2), pytest.raises(RefusedError, match="more than 4 items") as caught:
        world.process(max_sealed=4).run()
    assert caught.value.findings == ("SD104",)
    assert not list(world.ledger.batches(world.last().run))
    assert all(world.has_row(n) for n in range(5))


def test_exactly_max_sealed_passes() -> None:
    world = World(expired=5)
    with batches_of(2):
        assert world.process(max_sealed=5).run().exit_code is ExitCode.DONE


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
    assert "safedelete approve" in caught.value.hint
    record = world.last()
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

    with batches_of(2), pytest.raises(InterruptedRunError):
        world.process(asked=lambda: why[0] if why else None, at=at).run()
    assert world.last().state is RunState.INTERRUPTED
    assert not list(world.ledger.batches(world.last().run))
    assert all(world.has_row(n) for n in range(6))


def test_bytes_are_those_of_the_sealed_objects() -> None:
    world = World(expired=0)
    for number in range(3):
        world.objects.put(BUCKET, f"tmp/{number}", size=7)
    for number in range(30):
        world.objects.put(BUCKET, f"tmp/new/{number}", modified=world.clock.now())
    report = world.process(parts=lambda p: [p.prefix_part()]).run()
    assert report.plan is not None
    assert (report.plan.targets[0].bytes, report.plan.targets[0].conditional) == (21, 3)
