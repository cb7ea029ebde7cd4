"""An orphan goes only while no row names it, whatever the rows do between the plan and each single request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from safedelete.core.guard import decide
from safedelete.core.limits import Guard
from safedelete.core.outcome import Outcome
from safedelete.core.plan import Plan, TargetPlan
from safedelete.core.run import RunState
from safedelete.errors import ExitCode, StoreError
from safedelete.runner import review
from safedelete.testing.memory import Call, MemoryRow
from tests.worlds import BUCKET, Process, World, batches_of, die, on, photo

TOTAL = 40

STEPS = [
    "ledger.doubt",
    "lease.fence",
    "references.named",
    "references.named",
    "lease.gate",
    "objects.request",
]
"""Asked for the whole batch, and again for each request, the lease last."""


def world_of(orphans: int = 5) -> World:
    world = World(expired=1, fresh=3)
    for number in range(TOTAL):
        key = f"tmp/{number:02}"
        world.objects.put(BUCKET, key)
        if number >= orphans:
            world.table.put(MemoryRow((5_000 + number,), None, (photo(key),)))
    return world


def sweep(world: World, at: Callable[[Call], None] | None = None, **changes: Any) -> Process:
    return world.process(parts=lambda process: [process.orphan_part()], at=at, **changes)


def name_now(world: World, key: str) -> None:
    world.table.put(MemoryRow((9_000,), None, (photo(key),)))


def test_what_no_row_names_goes_and_nothing_else() -> None:
    world = world_of()
    report = sweep(world).run()
    assert report.state is RunState.SUCCEEDED
    assert report.total.deleted == 5
    assert [world.has_object(f"tmp/{n:02}") for n in range(TOTAL)] == [False] * 5 + [True] * 35


def test_the_fence_comes_first_then_the_rows_are_asked_then_the_request_goes() -> None:
    process = sweep(world_of(orphans=2))
    process.run()
    calls = process.watch.calls
    first = calls.index("ledger.doubt")
    assert [name for name in calls[first:] if name in STEPS][: len(STEPS)] == STEPS


@pytest.mark.parametrize("moment", ["ledger.doubt", "lease.fence"])
def test_object_that_a_row_came_to_name_is_kept(moment: str) -> None:
    world = world_of()
    report = sweep(world, on(moment, lambda: name_now(world, "tmp/02"))).run()
    assert world.has_object("tmp/02")
    assert report.state is RunState.SUCCEEDED
    assert (report.total.deleted, report.total.changed) == (4, 1)
    assert world.outcomes(report.run or "")["tmp/02"][:2] == (Outcome.CHANGED, "named")


def test_object_named_between_two_requests_of_one_batch_is_kept() -> None:
    world = world_of()
    # Two keys a request: the first has gone when the row appears.
    report = sweep(world, on("objects.request", lambda: name_now(world, "tmp/03"), moment="after")).run()
    assert world.has_object("tmp/03")
    outcomes = world.outcomes(report.run or "")
    assert outcomes["tmp/03"][:2] == (Outcome.CHANGED, "named")
    assert report.total.deleted + report.total.gone == 4


def test_a_row_that_names_what_has_just_gone_is_told_of() -> None:
    world = world_of()
    report = sweep(world, on("objects.request", lambda: name_now(world, "tmp/00"))).run()
    assert not world.has_object("tmp/00")
    assert report.state is RunState.FAILED
    assert world.outcomes(report.run or "")["tmp/00"][:2] == (Outcome.FAILED, "dangling")


def test_an_object_that_came_back_with_its_row_is_no_residue() -> None:
    world = world_of()
    same = world.objects.stored[BUCKET, "tmp/00"]

    def again() -> None:
        # Byte for byte, and so under the same ETag.
        world.objects.stored[BUCKET, "tmp/00"] = same
        name_now(world, "tmp/00")

    report = sweep(world, on("ledger.settle", again, moment="after")).run()
    assert report.state is RunState.SUCCEEDED
    assert world.has_object("tmp/00")


def test_nothing_goes_while_the_rows_cannot_be_asked() -> None:
    world = world_of()

    def silent(call: Call) -> None:
        if call.name == "references.named" and call.moment == "before":
            raise StoreError("the database does not answer")

    with pytest.raises(StoreError):
        sweep(world, silent).run()
    assert all(world.has_object(f"tmp/{number:02}") for number in range(TOTAL))


def test_a_killed_sweep_keeps_what_was_named_before_it_was_resumed() -> None:
    world = world_of()
    with batches_of(2):
        sweep(world, on("objects.request", die, nth=2, moment="after")).run_killed()
        name_now(world, "tmp/04")
        world.clock.advance(120)
        report = sweep(world).run()
    assert world.has_object("tmp/04")
    assert not any(world.has_object(f"tmp/{number:02}") for number in range(4))
    assert world.outcomes(report.run or "")["tmp/04"][:2] == (Outcome.CHANGED, "named")


def test_a_row_that_names_what_a_crashed_attempt_took_is_dangling() -> None:
    world = world_of(orphans=2)
    sweep(world, on("objects.request", die, moment="after")).run_killed()
    name_now(world, "tmp/00")
    world.clock.advance(120)
    report = sweep(world).run()
    assert world.outcomes(report.run or "")["tmp/00"][:2] == (Outcome.FAILED, "dangling")


def killed_after_a_delete() -> tuple[World, str]:
    """Two orphans have gone and nothing of it is recorded; a row has come to name one of them."""
    world = world_of(orphans=2)
    sweep(world, on("objects.request", die, moment="after")).run_killed()
    name_now(world, "tmp/00")
    world.clock.advance(120)
    return world, world.last().run


def test_a_cancelled_sweep_tells_of_the_row_that_lost_its_object() -> None:
    world, run = killed_after_a_delete()
    report = review.cancel(sweep(world).ctx, run, reason="not now", who="me")
    assert world.outcomes(run)["tmp/00"][:2] == (Outcome.FAILED, "dangling")
    assert world.outcomes(run)["tmp/01"][0] is Outcome.GONE
    assert report.exit_code is ExitCode.STORE


def test_an_abandoned_sweep_tells_of_the_row_that_lost_its_object() -> None:
    world, run = killed_after_a_delete()
    report = sweep(world, caller="another").run()
    assert report.run != run
    assert world.outcomes(run)["tmp/00"][:2] == (Outcome.FAILED, "dangling")
    assert report.exit_code is ExitCode.STORE


def test_a_plan_with_an_objection_is_refused_whatever_its_numbers_are() -> None:
    world = World(expired=0)
    target = TargetPlan(
        name="orphans of s3://acme/u/",
        kind="objects",
        items=0,
        eligible=0,
        total=9,
        objections=("the table is empty",),
    )
    plan = Plan(job="j", as_of=world.clock.now(), fingerprint="f1", targets=(target,))
    decision = decide(plan, Guard(), [])
    (found,) = [finding for finding in decision.findings if finding.code == "SD115"]
    assert "the table is empty" in found.message
    assert found.severity == "refuse"
