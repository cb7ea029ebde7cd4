"""Every branch of the batch protocol, on the stores in memory, through a whole run."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from datetime import timedelta

import pytest

from safedelete.core.decision import Approved
from safedelete.core.effort import CONTENDED, FAILED, UNREACHED, Effort
from safedelete.core.outcome import REFERENCED, ItemOutcome, Outcome
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import encode
from safedelete.errors import (
    BlastRadiusError,
    BusyError,
    ExitCode,
    IncompleteError,
    InterruptedRunError,
    LedgerError,
    LockLostError,
    NoSpaceError,
    PartialDeleteError,
    SchemaChangedError,
    StalePlanError,
    StoreError,
    UnreachedError,
)
from safedelete.phases.execute import execute
from safedelete.phases.parts import Tools, quiet
from safedelete.phases.preflight import preflight
from safedelete.phases.slices import Left
from safedelete.ports import Deletion
from safedelete.runner import purge
from safedelete.testing.memory import Call, MemoryRow, Policy
from tests.worlds import BUCKET, World, batches_of, die, on, photo

S = RunState


def steps(calls: list[str]) -> list[str]:
    """The calls of the first batch."""
    first = next(i for i, name in enumerate(calls) if name in ("ledger.doubt", "rows.begin"))
    return calls[first : calls.index("batch.commit", first) + 2]


# --- the order ---


def test_the_six_steps_stand_in_their_order() -> None:
    world = World(expired=2)
    process = world.process()
    process.run()
    assert steps(process.watch.calls) == [
        "ledger.doubt",  # 1 intent
        "rows.begin",
        "ledger.joins",
        "lease.fence",  # 2 fence, hold
        "batch.hold",
        "batch.delete",  # 3 delete behind a savepoint
        "objects.delete",
        "batch.prove_alive",  # 4 each request is gated, the lease last
        "lease.gate",
        "objects.request",
        "ledger.settle",  # 5 outcomes, pin, commit
        "lease.pin",
        "batch.commit",
        "ledger.batches",
    ]


def test_each_request_is_gated_by_itself() -> None:
    world = World(expired=6)
    process = world.process()
    process.run()
    calls = process.watch.calls
    requests = [i for i, name in enumerate(calls) if name == "objects.request"]
    assert len(requests) == 3
    assert all(calls[i - 2 : i] == ["batch.prove_alive", "lease.gate"] for i in requests)


def test_rows_without_objects_need_no_intent() -> None:
    world = World(expired=2, owns=False)
    process = world.process()
    assert process.run().exit_code is ExitCode.DONE
    assert "ledger.doubt" not in process.watch.calls
    assert steps(process.watch.calls)[-4:-1] == ["ledger.settle", "lease.pin", "batch.commit"]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("owns", [True, False])
def test_no_batch_stays_in_memory_once_it_is_settled(owns: bool, apart: bool) -> None:
    world = World(expired=40, fresh=200, owns=owns, apart=apart)
    alive = []

    def count(call: Call) -> None:
        if call.name == "rows.begin" and call.moment == "before":
            alive.append(sum(isinstance(found, (Deletion, Left)) for found in gc.get_objects()))

    with batches_of(2):
        assert world.process(at=count).run().total.deleted == 40
    assert len(alive) == 20
    assert max(alive) == min(alive)


@pytest.mark.parametrize("owns", [True, False])
def test_a_ledger_elsewhere_knows_of_the_batch_before_and_is_told_after(owns: bool) -> None:
    world = World(expired=2, owns=owns, apart=True)
    process = world.process()
    assert process.run().exit_code is ExitCode.DONE
    order = [name for name in steps(process.watch.calls) if name.startswith(("ledger", "batch"))]
    assert order.index("ledger.doubt") < order.index("batch.hold")
    assert order[-2:] == ["batch.commit", "ledger.open"]
    assert "ledger.settle" not in order


def test_a_holder_that_thaws_after_its_commit_does_not_overwrite_a_ledger_elsewhere() -> None:
    world = World(expired=2, apart=True)
    taken = []

    def other() -> None:
        world.clock.freeze(61)
        taken.append(world.process("host:2").run())

    with pytest.raises(LockLostError):
        world.process(at=on("batch.commit", other, moment="after")).run()
    # The successor found rows and objects gone already; that, not the first process's view, is the record.
    assert (world.total("RUN00001").gone, world.total("RUN00001").deleted) == (2, 0)
    assert world.last().state is taken[0].state


def test_a_frozen_holder_of_a_prefix_reopens_no_batch() -> None:
    world = World(expired=0)
    scratch(world)

    def freeze() -> None:
        world.clock.freeze(61)
        raise StoreError("the store does not answer")

    process = world.process(parts=prefix_only, at=on("objects.delete", freeze))  # type: ignore[arg-type]
    with pytest.raises(LockLostError):
        process.run()
    assert process.watch.calls.count("ledger.doubt") == 1


def test_a_prefix_batch_asks_the_lease_before_it_speaks_to_the_ledger() -> None:
    world = World(expired=0)
    scratch(world)
    process = world.process(parts=prefix_only)  # type: ignore[arg-type]
    process.run()
    calls = process.watch.calls
    first = calls.index("ledger.doubt")
    assert calls[first - 2 : first] == ["lease.gate", "lease.gate"]


# --- rows that are not what was sealed ---


def between_seal_and_hold(act: Callable[[], None]) -> Callable[[Call], None]:
    return on("rows.begin", act)


def test_a_row_that_no_longer_matches_is_kept_with_its_object() -> None:
    world = World(expired=3)
    report = world.process(at=between_seal_and_hold(lambda: world.table.update((1,), kept=True))).run()
    assert world.outcomes(str(report.run))[1].state is Outcome.CHANGED
    assert world.has_row(1)
    assert world.has_object("1.jpg")
    assert not world.has_object("0.jpg")
    assert report.total.deleted == 2


def test_a_row_that_names_another_object_is_kept_with_both() -> None:
    world = World(expired=3)
    world.objects.put(BUCKET, "new.jpg")
    report = world.process(
        at=between_seal_and_hold(lambda: world.table.update((1,), objects=(photo("new.jpg"),)))
    ).run()
    assert world.outcomes(str(report.run))[1] == (
        Outcome.CHANGED,
        "objects",
        world.outcomes(str(report.run))[1].detail,
    )
    assert world.has_row(1)
    assert world.has_object("1.jpg")
    assert world.has_object("new.jpg")


def test_a_row_that_somebody_deleted_is_gone_and_its_object_left_alone() -> None:
    world = World(expired=3)
    report = world.process(at=between_seal_and_hold(lambda: world.table.remove((1,)))).run()
    assert world.outcomes(str(report.run))[1].state is Outcome.GONE
    assert world.has_object("1.jpg")


def test_a_row_the_database_refuses_keeps_its_object() -> None:
    world = World(expired=3)
    world.table.refusals[1,] = ItemOutcome(Outcome.BLOCKED, "referenced", "orders names it")
    report = world.process().run()
    assert world.outcomes(str(report.run))[1].code == "referenced"
    assert world.has_row(1)
    assert world.has_object("1.jpg")
    assert (report.state, report.exit_code) == (S.SUCCEEDED, ExitCode.DONE)


# --- locked rows ---


def test_a_locked_row_is_taken_in_the_last_pass() -> None:
    world = World(expired=4)
    world.table.lock((1,))
    process = world.process(at=on("ledger.settle", lambda: world.table.unlock((1,)), moment="after"))
    report = process.run()
    assert report.total.deleted == 4
    assert not world.has_row(1)
    assert not world.has_object("1.jpg")


def test_a_row_locked_to_the_end_makes_the_run_incomplete() -> None:
    world = World(expired=4)
    world.table.lock((1,))
    report = world.process().run()
    assert (report.state, report.exit_code) == (S.INCOMPLETE, ExitCode.INCOMPLETE)
    assert report.total.locked == 1
    assert world.has_row(1)
    assert world.has_object("1.jpg")


def test_a_last_pass_that_died_owes_only_what_was_locked() -> None:
    world = World(expired=4)
    world.table.lock((1,))
    world.table.refusals[2,] = ItemOutcome(Outcome.BLOCKED, "held", "a rule of the database keeps it")
    # The second commit is that of the last pass.
    world.process(at=on("batch.commit", die, nth=2)).run_killed()
    world.table.unlock((1,))
    world.clock.advance(90)
    del world.table.refusals[2,]
    report = world.process("host:2").run()
    assert report.resumed
    found = world.outcomes(str(report.run))
    assert {n: o.state for n, o in found.items()} == {
        0: Outcome.DELETED,
        1: Outcome.DELETED,
        2: Outcome.BLOCKED,
        3: Outcome.DELETED,
    }
    assert world.has_row(2)
    assert world.has_object("2.jpg")


def test_a_row_goes_in_the_last_pass_once_the_row_of_a_later_batch_that_references_it_has_gone() -> None:
    world = World(expired=4)
    world.table.refusals[0,] = ItemOutcome(Outcome.BLOCKED, REFERENCED, "row 3 names it as its parent")
    with batches_of(2):
        report = world.process(
            at=on("batch.commit", lambda: world.table.refusals.pop((0,), None), nth=2, moment="after")
        ).run()
    assert report.exit_code is ExitCode.DONE
    assert report.total.deleted == 4
    assert not world.has_row(0)
    assert not world.has_object("0.jpg")


def test_a_row_that_is_still_referenced_in_the_last_pass_is_blocked_with_its_object() -> None:
    world = World(expired=4)
    world.table.refusals[0,] = ItemOutcome(Outcome.BLOCKED, REFERENCED, "orders names it")
    report = world.process().run()
    assert report.exit_code is ExitCode.DONE
    assert (report.total.deleted, report.total.blocked) == (3, 1)
    assert world.has_row(0)
    assert world.has_object("0.jpg")


def test_a_row_locked_while_its_batch_is_in_doubt_waits_for_the_last_pass() -> None:
    world = World(expired=2)
    world.process(at=on("batch.commit", die)).run_killed()
    assert not world.has_object("1.jpg")
    world.table.lock((1,))
    world.clock.advance(90)
    report = world.process("host:2", at=on("batch.commit", lambda: world.table.unlock((1,)))).run()
    assert report.exit_code is ExitCode.DONE
    assert not world.has_row(1)


# --- objects that do not go ---


@pytest.mark.parametrize(
    ("policy", "state", "code"),
    [
        (Policy.DENIED, Outcome.FAILED, "AccessDenied"),
        (Policy.SILENT, Outcome.UNKNOWN, "NotAnswered"),
        (Policy.LOST, Outcome.UNKNOWN, "NotAnswered"),
        (Policy.BLOCKED, Outcome.BLOCKED, "object-lock"),
    ],
)
def test_a_row_stays_when_its_object_is_not_acknowledged(policy: Policy, state: Outcome, code: str) -> None:
    world = World(expired=3)
    process = world.process(at=on("objects.delete", lambda: _policy(world, "1.jpg", policy)))
    report = process.run()
    assert world.outcomes(str(report.run))[1][:2] == (state, code)
    assert world.has_row(1)
    assert [world.has_row(0), world.has_row(2)] == [False, False]
    failed = state in (Outcome.FAILED, Outcome.UNKNOWN)
    assert report.exit_code is (ExitCode.STORE if failed else ExitCode.DONE)


def _policy(world: World, key: str, policy: Policy) -> None:
    world.objects.policies[BUCKET, key] = policy


def test_an_object_overwritten_since_keeps_its_row() -> None:
    world = World(expired=0)
    world.objects.put(BUCKET, "a.jpg")
    for number in (1, 2):
        world.add(number)
    row = MemoryRow((3,), world.clock.now() - timedelta(hours=1), (world.objects.ref(BUCKET, "a.jpg"),))
    world.table.put(row)
    report = world.process(at=between_seal_and_hold(lambda: world.objects.put(BUCKET, "a.jpg"))).run()
    assert world.outcomes(str(report.run))[3][:2] == (Outcome.CHANGED, "overwritten")
    assert world.has_row(3)
    assert world.has_object("a.jpg")


@pytest.mark.parametrize("there", [True, False])
def test_a_row_that_stays_with_one_object_of_two_is_dangling(there: bool) -> None:
    """Also when the lost one was gone before: an earlier attempt at this row may have taken it."""
    world = World(expired=2)
    world.add(7, objects=["7.jpg", "7.webp"])
    if not there:
        del world.objects.stored[BUCKET, "7.webp"]
    report = world.process(at=on("objects.delete", lambda: _policy(world, "7.jpg", Policy.BLOCKED))).run()
    assert world.outcomes(str(report.run))[7][:2] == (Outcome.FAILED, "dangling")
    assert world.has_row(7)
    assert report.exit_code is ExitCode.STORE


def test_a_batch_denied_as_a_whole_stops_the_run() -> None:
    world = World(expired=6)

    def deny() -> None:
        for number in range(6):
            _policy(world, f"{number}.jpg", Policy.DENIED)

    with batches_of(2), pytest.raises(PartialDeleteError) as caught:
        world.process(at=on("objects.delete", deny)).run()
    assert caught.value.deleted == 0
    run = world.last()
    assert run.state is S.FAILED
    found = world.outcomes(run.run)
    assert [found[n].code for n in range(6)] == ["AccessDenied"] * 2 + ["not-attempted"] * 4
    assert world.total(run.run).total == 6


# --- shared objects ---


def test_an_object_that_a_row_which_stays_names_is_spared() -> None:
    world = World(expired=1, shares=True)
    world.add(7, objects=["shared.jpg"])
    world.add(8, objects=["shared.jpg"], expired=False)
    report = world.process().run()
    assert report.exit_code is ExitCode.DONE
    assert not world.has_row(7)
    assert world.has_row(8)
    assert world.has_object("shared.jpg")


def test_a_shared_object_goes_with_its_last_row() -> None:
    world = World(expired=0, shares=True)
    for number in (1, 2, 3):
        world.add(number, objects=["shared.jpg"])
    with batches_of(1):
        report = world.process().run()
    assert report.total.deleted == 3
    assert not world.has_object("shared.jpg")
    assert sum("shared.jpg" in keys for keys in world.objects.requests) == 1


# --- the lease, the stop and the transaction ---


def test_a_holder_frozen_before_its_first_request_deletes_nothing() -> None:
    world = World(expired=4)
    process = world.process(at=on("objects.delete", lambda: world.clock.freeze(61)))
    with pytest.raises(LockLostError):
        process.run()
    assert all(world.has_row(n) and world.has_object(f"{n}.jpg") for n in range(4))
    assert world.objects.requests == []
    assert world.last().state is S.INTERRUPTED


def test_a_holder_frozen_between_two_requests_sends_no_other() -> None:
    world = World(expired=4)
    process = world.process(at=on("objects.request", lambda: world.clock.freeze(61), moment="after"))
    with pytest.raises(LockLostError):
        process.run()
    assert len(world.objects.requests) == 1
    assert all(world.has_row(n) for n in range(4))


def test_a_holder_frozen_before_its_commit_keeps_its_rows() -> None:
    world = World(expired=4)
    process = world.process(at=on("ledger.settle", lambda: world.clock.freeze(61), moment="after"))
    with pytest.raises(LockLostError):
        process.run()
    assert all(world.has_row(n) for n in range(4))
    report = world.process("host:2").run()
    assert report.resumed
    assert report.exit_code is ExitCode.DONE
    assert not any(world.has_row(n) for n in range(4))


def test_no_takeover_passes_between_pin_and_commit() -> None:
    world = World(expired=2)
    refused = []

    def rival() -> None:
        world.clock.freeze(61)
        with pytest.raises(Exception, match="locked"):
            world.process("host:2").run()
        refused.append(True)

    world.process(at=on("batch.commit", rival)).run()
    assert refused


def test_a_stop_in_its_last_moment_leaves_the_batch_in_doubt_and_resumable() -> None:
    world = World(expired=4)
    why: list[str] = []

    def ask() -> None:
        why.append("SIGTERM")
        process.ctx.stop.within()  # the batch in flight may go on
        world.clock.advance(25)

    process = world.process(asked=lambda: why[0] if why else None, at=on("objects.delete", ask))
    with pytest.raises(InterruptedRunError):
        process.run()
    assert world.last().state is S.INTERRUPTED
    assert [b.state for b in world.ledger.batches(world.last().run)] == [BatchState.IN_DOUBT]
    assert all(world.has_row(n) for n in range(4))


def test_a_transaction_that_was_lost_is_noticed_before_the_first_request() -> None:
    world = World(expired=2)
    calls: list[int] = []

    def lose() -> None:
        calls.append(len(world.objects.requests))
        raise StoreError("the server ended the transaction")

    report = world.process(at=on("batch.prove_alive", lose)).run()
    assert calls == [0]
    assert report.total.deleted == 2


# --- failures of the stores ---


def failing(name: str, times: int, *, moment: str = "before") -> Callable[[Call], None]:
    left = [times]

    def at(call: Call) -> None:
        if call.name == name and call.moment == moment and left[0]:
            left[0] -= 1
            raise StoreError(f"{name} failed")

    return at


@pytest.mark.parametrize(
    "name", ["rows.begin", "batch.hold", "batch.delete", "objects.delete", "batch.commit"]
)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("apart", [False, True])
def test_a_batch_is_tried_again_after_a_store_failed_once(name: str, moment: str, apart: bool) -> None:
    world = World(expired=3, apart=apart)
    report = world.process(at=failing(name, 1, moment=moment)).run()
    assert report.exit_code is ExitCode.DONE
    assert not any(world.has_row(n) or world.has_object(f"{n}.jpg") for n in range(3))
    assert report.total.deleted + report.total.gone == 3


def test_a_commit_whose_answer_was_lost_counts_as_deleted() -> None:
    world = World(expired=3)
    report = world.process(at=failing("batch.commit", 1, moment="after")).run()
    assert report.total.deleted == 3


def test_a_store_that_keeps_failing_interrupts_the_run() -> None:
    world = World(expired=3)
    process = world.process(at=failing("batch.hold", 99))
    with pytest.raises(StoreError, match="hold failed"):
        process.run()
    assert process.watch.calls.count("rows.begin") == FAILED.attempts
    assert world.last().state is S.INTERRUPTED
    assert world.process("host:2").run().resumed


@pytest.mark.parametrize(
    ("error", "effort"), [(BusyError, CONTENDED), (UnreachedError, UNREACHED), (StoreError, FAILED)]
)
def test_how_often_a_batch_is_tried_depends_on_what_failed(error: type[StoreError], effort: Effort) -> None:
    world = World(expired=3)

    def fail(call: Call) -> None:
        if (call.name, call.moment) == ("batch.hold", "before"):
            raise error("made up")

    process = world.process(at=fail)
    with pytest.raises(error, match="made up"):
        process.run()
    assert process.watch.calls.count("rows.begin") == effort.attempts
    assert world.last().state is S.INTERRUPTED


@pytest.mark.parametrize("error", [NoSpaceError, SchemaChangedError])
def test_what_the_next_try_would_meet_again_is_not_tried_again(error: type[StoreError]) -> None:
    world = World(expired=3)

    def fail() -> None:
        raise error("made up")

    process = world.process(at=on("batch.hold", fail))
    with pytest.raises(error):
        process.run()
    assert process.watch.calls.count("rows.begin") == 1
    assert world.last().state is S.INTERRUPTED
    assert world.process("host:2").run().total.deleted == 3


def test_a_stop_during_a_pause_is_heard_before_the_pause_ends() -> None:
    world = World(expired=3)
    asked: list[str] = []

    def fail(call: Call) -> None:
        if (call.name, call.moment) == ("batch.hold", "before"):
            asked.append("SIGTERM")
            raise BusyError("made up")

    process = world.process(at=fail, asked=lambda: asked[0] if asked else None)
    before = world.clock.uptime()
    with pytest.raises(IncompleteError):
        process.run()
    assert world.clock.uptime() - before < 0.5
    assert process.watch.calls.count("rows.begin") == 1


def test_a_lease_that_ends_during_a_pause_ends_the_run() -> None:
    world = World(expired=3)

    def fail() -> None:
        world.clock.freeze(120)
        raise UnreachedError("made up")

    process = world.process(at=on("batch.hold", fail))
    with pytest.raises(LockLostError):
        process.run()
    assert process.watch.calls.count("rows.begin") == 1
    assert world.has_row(0)


@pytest.mark.parametrize("late", [True, False])
def test_a_batch_that_was_cancelled_is_not_tried_again_after_a_stop(late: bool) -> None:
    world = World(expired=3)
    asked: list[str] = []

    def cancel() -> None:
        if late:
            world.clock.advance(3601)
        else:
            asked.append("SIGTERM")
        raise StoreError("canceling statement due to user request")

    process = world.process(at=on("batch.hold", cancel), asked=lambda: asked[0] if asked else None)
    with pytest.raises(IncompleteError):
        process.run()
    assert process.watch.calls.count("rows.begin") == 1
    assert world.last().state is S.INTERRUPTED
    assert world.process("host:2").run().total.deleted == 3


def test_a_retry_asks_what_the_first_attempt_left() -> None:
    """Its objects went, then the connection broke, then the row came back to life: it is dangling, not changed."""
    world = World(expired=2)

    def lose() -> None:
        world.table.locks.clear()
        world.table.update((1,), kept=True)
        raise StoreError("connection lost")

    report = world.process(at=on("lease.pin", lose)).run()
    assert world.outcomes(str(report.run))[1][:2] == (Outcome.FAILED, "dangling")
    assert report.exit_code is ExitCode.STORE


# --- the blast radius ---


def test_a_delete_that_touches_an_unplanned_table_is_rolled_back() -> None:
    world = World(expired=3)
    world.table.cascades[1,] = {"invoices": 40}
    with pytest.raises(BlastRadiusError, match="40 row"):
        world.process().run()
    assert all(world.has_row(n) and world.has_object(f"{n}.jpg") for n in range(3))
    assert world.last().state is S.FAILED
    assert world.total(world.last().run).total == 3


def test_a_table_that_triggers_may_write_to_is_not_counted() -> None:
    world = World(expired=3)
    world.table.cascades[1,] = {"audit": 40}
    process = world.process(parts=lambda p: [p.row_part(may_touch=frozenset({"audit"}))])
    assert process.run().exit_code is ExitCode.DONE


def cascading(world: World, rows: int) -> Callable[..., object]:
    from safedelete.core.plan import Cascade

    def parts(process: object) -> list[object]:
        process.rows.cascade = (Cascade("thumbs", "delete", rows, "fk"),)  # type: ignore[attr-defined]
        return [process.row_part()]  # type: ignore[attr-defined]

    return parts


def test_the_radius_adds_up_over_batches() -> None:
    world = World(expired=4)
    for number in range(4):
        world.table.cascades[number,] = {"thumbs": 2}
    with batches_of(2), pytest.raises(BlastRadiusError, match=r"8 row.* allows 6"):
        world.process(parts=cascading(world, 6)).run()  # type: ignore[arg-type]
    assert [world.has_row(n) for n in range(4)] == [False, False, True, True]


def test_an_attempt_that_was_rolled_back_spends_nothing_of_the_radius() -> None:
    world = World(expired=4)
    for number in range(4):
        world.table.cascades[number,] = {"thumbs": 2}
    process = world.process(parts=cascading(world, 8), at=failing("batch.commit", 2))  # type: ignore[arg-type]
    assert process.run().exit_code is ExitCode.DONE


def test_a_commit_whose_answer_was_lost_is_taken_off_the_radius() -> None:
    world = World(expired=4)
    for number in range(4):
        world.table.cascades[number,] = {"thumbs": 2}
    with batches_of(2), pytest.raises(BlastRadiusError, match=r"8 row.* allows 6"):
        world.process(parts=cascading(world, 6), at=failing("batch.commit", 1, moment="after")).run()  # type: ignore[arg-type]


# --- what execute is given ---


def test_a_damaged_seal_deletes_nothing() -> None:
    world = World(expired=4)

    def tamper() -> None:
        place, batch = next(iter(world.ledger._batches.items()))
        items = next(world.ledger.batches(place[0])).items
        other = encode(dataclasses.replace(items, rows=items.rows[:3]))  # type: ignore[union-attr,type-var]
        world.ledger._batches[place] = dataclasses.replace(batch, blob=other)

    with pytest.raises(LedgerError, match="not those that were approved"):
        world.process(at=on("ledger.move", tamper, moment="after")).run()
    assert all(world.has_row(n) for n in range(4))


def test_a_proof_for_another_plan_deletes_nothing() -> None:
    world = World(expired=2)
    process = world.process()
    saved = purge.save(process.ctx)
    assert saved.plan is not None
    other = dataclasses.replace(saved.plan, as_of=saved.plan.as_of + timedelta(seconds=1))
    cleared = preflight(other, (), ())
    lease = process.ctx.lock.acquire("by hand", owner="test")
    tools = Tools(world.ledger, lease, world.clock, process.ctx.stop, quiet)
    assert isinstance(saved.decision, Approved)
    with pytest.raises(StalePlanError, match="another plan"):
        execute(saved.decision, cleared, str(saved.run), process.ctx.parts, tools)
    assert world.has_row(0)


# --- several targets, and prefixes ---


def with_prefix(process: object) -> list[object]:
    return [process.row_part(), process.prefix_part()]  # type: ignore[attr-defined]


def test_a_target_that_failed_keeps_the_later_ones_from_being_attempted() -> None:
    world = World(expired=3)
    scratch(world)
    process = world.process(
        parts=with_prefix,  # type: ignore[arg-type]
        at=on("objects.delete", lambda: _policy(world, "1.jpg", Policy.DENIED)),
    )
    with pytest.raises(PartialDeleteError, match=r"uploads ended with .* the 1 target") as caught:
        process.run()
    assert f"safedelete show {world.last().run} --items" in caught.value.hint
    assert world.has_object("tmp/0")
    assert world.outcomes(world.last().run)["tmp/0"].code == "not-attempted"


def prefix_only(process: object) -> list[object]:
    return [process.prefix_part()]  # type: ignore[attr-defined]


def scratch(world: World, objects: int = 6) -> list[str]:
    keys = [f"tmp/{number}" for number in range(objects)]
    for key in keys:
        world.objects.put(BUCKET, key)
    for number in range(30):
        world.objects.put(BUCKET, f"tmp/new/{number}", modified=world.clock.now())
    return keys


def test_a_prefix_is_deleted_object_by_object() -> None:
    world = World(expired=0)
    keys = scratch(world)
    process = world.process(
        parts=prefix_only, at=on("objects.delete", lambda: _policy(world, keys[2], Policy.DENIED))
    )  # type: ignore[arg-type]
    report = process.run()
    assert [key for key in keys if world.has_object(key)] == [keys[2]]
    assert world.outcomes(str(report.run))[keys[2]].code == "AccessDenied"
    assert report.exit_code is ExitCode.STORE


def test_an_object_overwritten_since_it_was_listed_is_kept() -> None:
    world = World(expired=0)
    keys = scratch(world)
    process = world.process(
        parts=prefix_only, at=on("objects.delete", lambda: world.objects.put(BUCKET, keys[0]))
    )  # type: ignore[arg-type]
    report = process.run()
    assert world.has_object(keys[0])
    assert report.total.changed == 1


def test_a_frozen_holder_of_a_prefix_sends_no_other_request() -> None:
    world = World(expired=0)
    keys = scratch(world)
    process = world.process(
        parts=prefix_only,  # type: ignore[arg-type]
        at=on("objects.request", lambda: world.clock.freeze(61), moment="after"),
    )
    with pytest.raises(LockLostError):
        process.run()
    assert sum(world.has_object(key) for key in keys) == 4


# --- a role that may not lock rows ---


def test_without_the_right_to_lock_the_same_rows_go() -> None:
    world = World(expired=3, may_lock=False)
    report = world.process(at=on("objects.delete", lambda: _policy(world, "1.jpg", Policy.DENIED))).run()
    assert [world.has_row(n) for n in range(3)] == [False, True, False]
    assert report.total.deleted == 2


def test_a_row_that_comes_back_to_life_while_it_could_not_be_held_is_dangling() -> None:
    world = World(expired=3, may_lock=False)
    process = world.process(at=on("objects.delete", lambda: _policy(world, "1.jpg", Policy.DENIED)))
    process.rows.before_again = lambda: world.table.update((2,), kept=True)
    report = process.run()
    found = world.outcomes(str(report.run))
    assert found[2][:2] == (Outcome.FAILED, "dangling")
    assert found[0].state is Outcome.DELETED


def test_a_row_that_goes_while_it_could_not_be_held_is_gone() -> None:
    world = World(expired=3, may_lock=False)
    process = world.process(at=on("objects.delete", lambda: _policy(world, "1.jpg", Policy.DENIED)))
    process.rows.before_again = lambda: world.table.remove((2,))
    report = process.run()
    assert world.outcomes(str(report.run))[2].state is Outcome.GONE
