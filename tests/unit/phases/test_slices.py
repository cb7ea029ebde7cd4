"""A sealed batch is worked off a slice a transaction; a crash between two of them, or in one, loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from safedelete.core.outcome import LOCKED, ItemOutcome, Outcome
from safedelete.core.run import BatchState, RunState
from safedelete.errors import BlastRadiusError, BusyError, ExitCode, PartialDeleteError, StoreError
from safedelete.phases import halt
from safedelete.runner.items import items_of
from safedelete.testing.memory import Call, Policy
from tests.unit.phases.test_execute import cascading, failing
from tests.worlds import BUCKET, World, die, on, slices_of


@pytest.fixture(autouse=True)
def _slices_of_two() -> Iterator[None]:
    with slices_of(2):
        yield


def commits(calls: list[str]) -> int:
    return calls[calls.index("rows.begin") :].count("batch.commit")


def sizes(at: list[int]) -> Callable[[Call], None]:
    """Note how many rows each transaction holds."""

    def note(call: Call) -> None:
        if call.name == "batch.hold" and call.moment == "before":
            at.append(len(call.arguments[0]))

    return note


def test_a_batch_goes_in_slices_with_a_transaction_each() -> None:
    world = World(expired=7)
    held: list[int] = []
    process = world.process(at=sizes(held))
    assert process.run().total.deleted == 7
    assert sum(held) == 7
    assert held[0] == 2
    assert commits(process.watch.calls) == len(held) > 2


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("owns", [False, True])
def test_a_run_killed_between_two_slices_goes_on_with_the_rest(owns: bool, apart: bool) -> None:
    world = World(expired=6, owns=owns, apart=apart)
    world.process(at=on("batch.hold", die, nth=2)).run_killed()
    (partly,) = world.ledger.batches("RUN00001")
    assert (partly.state, partly.pending) == (BatchState.IN_DOUBT, (2, 3, 4, 5))
    assert [world.has_row(n) for n in range(6)] == [False, False, True, True, True, True]
    world.clock.advance(90)
    held: list[int] = []
    report = world.process("host:2", at=sizes(held)).run()
    assert report.resumed
    assert sum(held) == 4
    assert (report.total.deleted, report.total.gone) == (6, 0)


def test_a_run_killed_in_its_second_slice_asks_for_those_rows_alone() -> None:
    world = World(expired=6)
    world.process(at=on("batch.commit", die, nth=2)).run_killed()
    assert [world.has_object(f"{n}.jpg") for n in range(6)] == [False, False, False, False, True, True]
    world.table.update((2,), kept=True)
    world.clock.advance(90)
    report = world.process("host:2").run()
    found = world.outcomes(str(report.run))
    assert found[2][:2] == (Outcome.FAILED, "dangling")
    assert {n: found[n].state for n in (0, 1, 3, 4, 5)} == dict.fromkeys((0, 1, 3, 4, 5), Outcome.DELETED)


def test_what_a_failed_slice_had_reached_is_asked_for_though_the_next_slice_is_smaller() -> None:
    """The objects of all four went, then the connection broke; the halved slice leaves two of them to the one after."""
    world = World(expired=4)

    def lose() -> None:
        world.table.locks.clear()
        world.table.update((3,), kept=True)
        raise StoreError("connection lost")

    held: list[int] = []
    noted = sizes(held)
    lost = on("lease.pin", lose)

    def at(call: Call) -> None:
        noted(call)
        lost(call)

    with slices_of(4):
        report = world.process(at=at).run()
    assert held == [4, 2, 2]
    assert world.outcomes(str(report.run))[3][:2] == (Outcome.FAILED, "dangling")


def test_items_of_a_batch_in_doubt_are_shown_as_far_as_they_are_settled() -> None:
    world = World(expired=6)
    world.process(at=on("batch.hold", die, nth=2)).run_killed()
    (partly,) = world.ledger.batches("RUN00001")
    assert [item.outcome for item in items_of(None, partly)] == ["deleted"] * 2 + ["in doubt"] * 4


def test_an_abandoned_run_says_what_became_of_each_row_of_a_batch_it_had_begun() -> None:
    world = World(expired=6)
    world.process(at=on("batch.commit", die, nth=2)).run_killed()
    world.clock.advance(25 * 3600)
    world.process("host:2", caller="another").run()
    assert world.ledger.record("RUN00001").state is RunState.ABANDONED
    found = world.outcomes("RUN00001")
    assert [found[n].state for n in (0, 1)] == [Outcome.DELETED] * 2
    assert [found[n].code for n in (2, 3)] == ["dangling"] * 2
    assert [found[n].code for n in (4, 5)] == ["abandoned"] * 2
    assert world.total("RUN00001").total == 6


def test_a_row_locked_in_an_early_slice_is_taken_after_the_later_ones() -> None:
    world = World(expired=6)
    world.table.lock((1,))
    process = world.process(at=on("batch.commit", lambda: world.table.unlock((1,)), nth=3, moment="after"))
    assert process.run().total.deleted == 6


def test_rows_locked_to_the_end_are_named_whatever_slice_they_were_in() -> None:
    world = World(expired=6)
    for number in (1, 3, 4):
        world.table.lock((number,))
    report = world.process().run()
    assert report.exit_code is ExitCode.INCOMPLETE
    assert (report.total.deleted, report.total.locked) == (3, 3)


def test_a_last_pass_killed_between_two_slices_still_takes_every_row() -> None:
    world = World(expired=6)
    for number in range(5):
        world.table.lock((number,))

    def unlock() -> None:
        for number in range(5):
            world.table.unlock((number,))

    seen: list[object] = []

    def at(call: Call) -> None:
        if call.name == "batch.hold" and call.moment == "before":
            seen.append(call)
            if len(seen) == 4:
                unlock()
            if len(seen) == 5:
                die()

    world.process(at=at).run_killed()
    world.clock.advance(90)
    assert world.process("host:2").run().total.deleted == 6


@pytest.mark.parametrize("apart", [False, True])
def test_a_slice_whose_commit_was_not_answered_counts_as_deleted_once(apart: bool) -> None:
    world = World(expired=6, owns=False, apart=apart)
    report = world.process(at=failing("batch.commit", 1, moment="after")).run()
    assert report.exit_code is ExitCode.DONE
    assert report.total.deleted + report.total.gone == 6
    assert apart or report.total.deleted == 6


def test_a_slice_whose_commit_was_not_answered_is_taken_off_the_radius_once() -> None:
    for allowed, fits in ((12, True), (11, False)):
        world = World(expired=6)
        for number in range(6):
            world.table.cascades[number,] = {"thumbs": 2}
        process = world.process(
            parts=cascading(world, allowed),  # type: ignore[arg-type]
            at=failing("batch.commit", 1, moment="after"),
        )
        if fits:
            assert process.run().exit_code is ExitCode.DONE
        else:
            with pytest.raises(BlastRadiusError, match=r"12 row.* allows 11"):
                process.run()


def test_a_batch_denied_as_a_whole_stops_the_run_after_its_last_slice() -> None:
    world = World(expired=6)

    def deny() -> None:
        for number in range(6):
            world.objects.policies[BUCKET, f"{number}.jpg"] = Policy.DENIED

    with pytest.raises(PartialDeleteError, match="Not one of the 6 items"):
        world.process(at=on("batch.hold", deny)).run()
    assert all(world.has_row(n) for n in range(6))


def test_a_stop_is_heard_between_two_slices() -> None:
    world = World(expired=6)
    asked = [None]
    process = world.process(
        at=on("batch.commit", lambda: asked.__setitem__(0, "told to"), moment="after"),  # type: ignore[call-overload]
        asked=lambda: asked[0],
    )
    with pytest.raises(Exception, match="told to"):
        process.run()
    assert [world.has_row(n) for n in range(6)] == [False, False, True, True, True, True]


# --- how large a slice is ---


def test_slow_transactions_get_smaller_and_quick_ones_larger() -> None:
    world = World(expired=60, fresh=400)
    held: list[int] = []
    noted = sizes(held)
    seconds = [0.4]

    def at(call: Call) -> None:
        noted(call)
        if call.name == "batch.delete" and call.moment == "after":
            if sum(held) > 40:
                seconds[0] = 0.001
            world.clock.advance(seconds[0] * held[-1])

    with slices_of(16):
        world.process(at=at).run()
    slow = held[: next(i for i in range(len(held)) if sum(held[:i]) > 40)]
    assert slow[0] > 8
    assert slow[-1] == 1
    assert held[-1] > 1
    assert sum(held) == 60


def test_a_conflict_halves_the_slice() -> None:
    world = World(expired=8)
    held: list[int] = []
    noted = sizes(held)
    left = [2]

    def at(call: Call) -> None:
        noted(call)
        if call.name == "batch.delete" and call.moment == "before" and left[0]:
            left[0] -= 1
            raise BusyError("deadlock")

    with slices_of(8):
        assert world.process(at=at).run().total.deleted == 8
    assert held[:3] == [8, 4, 2]


def test_a_slice_is_never_larger_than_its_batch() -> None:
    world = World(expired=6)
    held: list[int] = []
    with slices_of(1_000_000):
        world.process(at=sizes(held)).run()
    assert held == [6]


def test_owed_rows_alone_leave_a_batch_deferred_with_what_they_are() -> None:
    world = World(expired=6)
    world.table.lock((1,))
    world.table.refusals[4,] = ItemOutcome(Outcome.BLOCKED, "referenced", "an order names it")
    states: list[tuple[BatchState, tuple[int, ...]]] = []

    def note() -> None:
        (batch,) = world.ledger.batches("RUN00001")
        states.append((batch.state, batch.pending))

    world.process(
        at=lambda call: note() if (call.name, call.moment) == ("batch.commit", "after") else None
    ).run()
    assert states[0] == (BatchState.IN_DOUBT, (1, 2, 3, 4, 5))
    assert (BatchState.DEFERRED, (1, 4)) in states
    assert states[-1] == (BatchState.DONE, ())
    assert world.outcomes("RUN00001")[1].code == LOCKED


def test_a_request_of_rows_that_are_all_denied_stops_the_run_before_its_batch_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(halt, "ENOUGH", 3)
    world = World(expired=9)

    def deny() -> None:
        for number in range(9):
            world.objects.policies[BUCKET, f"{number}.jpg"] = Policy.DENIED

    process = world.process(at=on("batch.hold", deny))
    with pytest.raises(PartialDeleteError, match="Not one of the 5 items"):
        process.run()
    assert process.watch.calls.count("objects.delete") == 2
