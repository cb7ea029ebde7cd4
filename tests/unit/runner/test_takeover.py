"""What a run does with what an earlier one left: finish it where it fits, settle and abandon it where it does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from safedelete.core.decision import Acceptance, Approval, Approved
from safedelete.core.item import ObjectRef
from safedelete.core.limits import Guard
from safedelete.core.outcome import Outcome
from safedelete.core.run import BatchState, RunState
from safedelete.errors import (
    DeadlineExceededError,
    ExitCode,
    LedgerError,
    LockHeldError,
    LockLostError,
    PreflightError,
    RefusedError,
)
from safedelete.ports import Presence, Verdict
from safedelete.runner import purge
from safedelete.runner.review import approve, cancel
from safedelete.testing.memory import Killed, MemoryRows, MemoryTable, Policy
from safedelete.testing.memory.clock import START
from safedelete.wiring.connect import Buckets
from tests.worlds import BUCKET, JOB, Process, World, another_begins, batches_of, die, on, photo

S = RunState


def in_doubt(world: World) -> str:
    """Leave a run that died after its objects went and before its commit; return its id."""
    world.process(at=on("batch.commit", die)).run_killed()
    world.clock.advance(90)
    return world.last().run


def test_a_run_that_died_is_resumed_and_converges() -> None:
    world = World(expired=6)
    with batches_of(2):
        world.process(at=on("batch.commit", die, nth=2)).run_killed()
        run = world.last().run
        world.clock.advance(90)
        report = world.process("host:2").run()
    assert (report.run, report.resumed, report.exit_code) == (run, True, ExitCode.DONE)
    assert report.total.deleted == 6
    assert not any(world.has_row(n) or world.has_object(f"{n}.jpg") for n in range(6))


def test_a_run_that_is_resumed_does_not_look_ended() -> None:
    world = World(expired=6)
    seen: list[Any] = []
    process = world.process(
        timeout=timedelta(minutes=5), at=on("batch.commit", lambda: world.clock.advance(301), moment="after")
    )
    with batches_of(2):
        with suppress(DeadlineExceededError):
            process.run()
        assert world.last().exit_code == ExitCode.INCOMPLETE
        world.process("host:2", at=on("rows.begin", lambda: seen.append(world.last()))).run()
    assert (seen[0].state, seen[0].finished_at, seen[0].reason, seen[0].exit_code) == (
        S.RUNNING,
        None,
        "",
        None,
    )


@pytest.mark.parametrize("verb", ["run", "save", "execute", "cancel"])
def test_a_process_frozen_since_it_took_the_lock_calls_no_living_run_crashed(verb: str) -> None:
    world = World(expired=6)

    def frozen() -> None:
        world.clock.freeze(61)
        another_begins(world, JOB)

    process = world.process(at=on("ledger.probe", frozen))
    verbs: dict[str, Callable[[], object]] = {
        "run": process.run,
        "save": lambda: purge.save(process.ctx),
        "execute": lambda: purge.execute_sealed(process.ctx, "PAST0001"),
        "cancel": lambda: cancel(process.ctx, "PAST0001", reason="wrong", who="me"),
    }
    with pytest.raises(LockLostError):
        verbs[verb]()
    assert world.ledger.record("ANOTHER").state is S.RUNNING
    assert all(world.has_row(number) for number in range(6))


def test_nobody_takes_over_before_the_lease_has_ended() -> None:
    world = World(expired=2)
    world.process(at=on("batch.commit", die)).run_killed()
    world.clock.advance(59)
    with pytest.raises(LockHeldError, match="host:1"):
        world.process("host:2").run()
    world.clock.advance(1)
    assert world.process("host:2").run().resumed


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"fingerprint": "f2"}, "definition was 'f1', is 'f2'"),
        ({"caller": "other@main"}, "caller was 'role@main', is 'other@main'"),
        ({"database": "copy"}, "database was 'main', is 'copy'"),
        ({"environment": "staging"}, "environment was 'test', is 'staging'"),
        ({"resume_within": timedelta(seconds=30)}, "resume_within is 0:00:30"),
        ({"guard": Guard(max_items=1)}, "the limits refuse it now: SD101"),
    ],
)
def test_a_run_that_does_not_fit_any_more_is_abandoned(changed: dict[str, Any], why: str) -> None:
    world = World(expired=3)
    run = in_doubt(world)
    with suppress(RefusedError):
        world.process("host:2", **changed).run()
    record = world.ledger.record(run)
    assert record.state is S.ABANDONED
    assert why in record.reason
    assert world.total(run).total == 3


def test_the_reason_names_what_refuses_and_not_what_only_warns() -> None:
    world = World(expired=3)
    run = in_doubt(world)
    with suppress(RefusedError):
        world.process("host:2", guard=Guard(max_items=1)).run()
    assert "SD206" in {f.code for f in world.process().ctx.decide(world.ledger.record(run).plan).findings}  # type: ignore[arg-type]
    assert world.ledger.record(run).reason == "the limits refuse it now: SD101"


def test_a_run_begun_while_the_clock_was_ahead_is_abandoned_once_it_is_right() -> None:
    world = World(expired=3)
    world.clock.shift(timedelta(days=2))
    run = in_doubt(world)
    world.clock.shift(-timedelta(days=2))
    with suppress(RefusedError):
        world.process("host:2").run()
    record = world.ledger.record(run)
    assert record.state is S.ABANDONED
    assert "the host's clock was ahead then" in record.reason


def forged(world: World) -> str:
    """Leave a refused run whose own row says that it was approved and begun; return its id."""
    with pytest.raises(RefusedError):
        world.process(guard=Guard(max_items=2)).run()
    record = world.last()
    assert record.plan is not None
    claim = replace(CLAIM, run=record.run, digest=str(record.plan.digest))
    decision = Approved(plan=record.plan, approval=claim)
    world.ledger._runs[record.run] = replace(record, state=S.INTERRUPTED, decision=decision)
    return record.run


CLAIM = Approval(
    run="",
    digest="",
    accepts=(Acceptance(code="SD101", target="uploads", limit=2),),
    reason="forged",
    who="nobody",
    at=START,
    expires_at=START + timedelta(days=1),
)


def test_an_approval_that_only_the_runs_own_row_speaks_of_is_not_believed() -> None:
    """The role that runs may write runs, and no approvals."""
    world = World(expired=3)
    run = forged(world)
    with pytest.raises(RefusedError):
        world.process("host:2", guard=Guard(max_items=2)).run()
    record = world.ledger.record(run)
    assert (record.state, record.reason) == (S.ABANDONED, "it claims an approval that nobody has given")
    assert all(world.has_row(n) for n in range(3))


OTHERS: tuple[dict[str, Any], ...] = (
    {"digest": "another"},
    {"accepts": (*CLAIM.accepts, Acceptance(code="SD102", target="uploads"))},
    {"accepts": (Acceptance(code="SD101", target="uploads", limit=1),)},
)


@pytest.mark.parametrize("changed", OTHERS, ids=["another plan", "other codes", "another limit"])
def test_an_approval_for_less_is_not_stretched_by_the_runs_own_row(changed: dict[str, Any]) -> None:
    world = World(expired=3)
    run = forged(world)
    plan = world.ledger.record(run).plan
    assert plan is not None
    given = replace(CLAIM, run=run, digest=str(plan.digest), who="ann")
    world.ledger.approve(replace(given, **changed))
    with pytest.raises(RefusedError):
        world.process("host:2", guard=Guard(max_items=2)).run()
    assert world.ledger.record(run).reason == "it claims another approval than ann has given"
    assert all(world.has_row(n) for n in range(3))


def test_what_is_resumed_is_proven_again() -> None:
    world = World(expired=3)
    run = in_doubt(world)
    process = world.process("host:2")
    process.prober.verdicts = {"DELETE on uploads": Verdict.DENIED}
    with pytest.raises(PreflightError):
        process.run()
    assert world.ledger.record(run).state is S.CRASHED
    assert world.process("host:3").run().run == run


def test_a_run_that_had_sealed_nothing_complete_is_not_resumed() -> None:
    world = World(expired=4)
    with batches_of(2):
        world.process(at=on("ledger.seal", die, nth=2)).run_killed()
    half = world.last().run
    world.clock.advance(90)
    report = world.process("host:2").run()
    assert world.ledger.record(half).state is S.ABANDONED
    assert report.run != half
    assert report.total.deleted == 4


# --- what is in doubt when a plan is abandoned ---


def test_a_row_that_came_back_to_life_without_its_object_is_named() -> None:
    world = World(expired=3)
    run = in_doubt(world)
    world.table.update((1,), kept=True)
    report = world.process("host:2", caller="other").run()
    assert world.outcomes(run)[1][:2] == (Outcome.FAILED, "dangling")
    assert report.inherited.failed == 3  # the rows that still match have lost their objects just so
    assert report.exit_code is ExitCode.STORE
    assert "An earlier run left 3 failed" in report.message


def test_what_an_abandoned_run_left_is_named_by_every_refusal_until_a_run_has_told_of_it() -> None:
    world = World(expired=3)
    old = in_doubt(world)
    for night in range(2):
        with pytest.raises(RefusedError, match=rf"SD110.* \({old}\) left 3 failed and 0 unknown"):
            world.process(f"host:{night + 2}", fingerprint="f2").run()
    accepted = approve(world.ledger, world.clock, world.last().run, reason="renamed", who="ann")
    told = purge.execute_sealed(world.process("host:4", fingerprint="f2").ctx, accepted.run)
    assert told.exit_code is ExitCode.STORE


def test_a_batch_never_begun_is_called_not_attempted() -> None:
    world = World(expired=4)
    with batches_of(2):
        run = in_doubt(world)
    world.process("host:2", caller="other").run()
    assert [world.outcomes(run)[n].code for n in (2, 3)] == ["not-attempted"] * 2


def other_part(process: Process) -> list[Any]:
    rows = MemoryRows(MemoryTable(process.world.database, "invoices"))
    return [process.row_part(target=rows)]


def test_what_is_in_doubt_in_a_target_no_longer_declared_is_unknown() -> None:
    world = World(expired=3)
    run = in_doubt(world)
    report = world.process("host:2", fingerprint="f2", parts=other_part, guard=Guard())
    with pytest.raises(RefusedError):
        report.run()
    assert {o.code for o in world.outcomes(run).values()} == {"unreachable"}
    assert world.total(run).unknown == 3


def test_a_target_that_is_still_declared_beside_a_new_one_is_looked_at() -> None:
    world = World(expired=3)
    run = in_doubt(world)
    process = world.process("host:2", fingerprint="f2", parts=lambda p: [*other_part(p), p.row_part()])
    with pytest.raises(RefusedError):
        process.run()
    assert {o.code for o in world.outcomes(run).values()} == {"dangling"}


def test_rows_that_own_nothing_any_more_are_not_called_kept_unseen() -> None:
    world = World(expired=3)
    run = in_doubt(world)
    process = world.process("host:2", fingerprint="f2", parts=lambda p: [p.row_part(store=None)])
    with pytest.raises(RefusedError):
        process.run()
    assert world.total(run).unknown == 3


def test_after_a_redefinition_every_sealed_object_counts() -> None:
    """The new definition names fewer objects; the one that is lost was the row's all the same."""
    world = World(expired=2)
    world.add(7, objects=["7.jpg", "7.webp"])
    run = in_doubt(world)
    world.table.update((7,), objects=(photo("7.jpg"),))
    world.objects.put(BUCKET, "7.jpg")
    with pytest.raises(RefusedError):
        world.process("host:2", fingerprint="f2").run()
    assert world.outcomes(run)[7][:2] == (Outcome.FAILED, "dangling")


def test_an_object_whose_bucket_is_not_declared_any_more_is_unknown() -> None:
    world = World(expired=1)
    there, elsewhere = photo("0.jpg"), ObjectRef("acme-old", "0.jpg")
    seen = Buckets({BUCKET: world.objects}).presence([there, elsewhere])
    assert seen == {there: Presence.PRESENT, elsewhere: Presence.UNKNOWN}


def test_objects_of_a_prefix_that_went_before_the_crash_are_not_called_unattempted() -> None:
    world = World(expired=0)
    for number in range(4):
        world.objects.put(BUCKET, f"tmp/{number}")
    for number in range(30):
        world.objects.put(BUCKET, f"tmp/new/{number}", modified=world.clock.now())

    def parts(process: Process) -> list[Any]:
        return [process.prefix_part()]

    world.process(parts=parts, at=on("objects.request", die, moment="after")).run_killed()
    run = world.last().run
    world.clock.advance(90)
    world.process("host:2", caller="other", parts=parts).run()
    assert world.ledger.record(run).state is S.ABANDONED
    found = world.outcomes(run)
    assert [found[f"tmp/{n}"].state for n in range(4)] == [Outcome.GONE] * 2 + [Outcome.BLOCKED] * 2


def test_what_was_deleted_stays_deleted_when_the_last_pass_is_abandoned() -> None:
    world = World(expired=3)
    world.table.lock((1,))
    world.process(at=on("batch.commit", die, nth=2)).run_killed()
    run = world.last().run
    world.clock.advance(90)
    world.process("host:2", caller="other").run()
    assert {n: o.state for n, o in world.outcomes(run).items()} == {
        0: Outcome.DELETED,
        1: Outcome.BLOCKED,
        2: Outcome.DELETED,
    }


def test_an_object_that_cannot_be_asked_for_makes_its_row_unknown() -> None:
    world = World(expired=2)
    run = in_doubt(world)
    world.objects.policies[BUCKET, "1.jpg"] = Policy.HIDDEN
    world.process("host:2", caller="other").run()
    assert world.outcomes(run)[1].state is Outcome.UNKNOWN


# --- several runs, several processes ---


def test_what_an_abandoned_run_left_is_told_by_the_run_that_is_resumed() -> None:
    world = World(expired=2)
    old = in_doubt(world)
    world.table.update((1,), kept=True)
    world.add(7)
    saved = purge.save(world.process("host:2").ctx)
    assert saved.run is not None
    assert world.ledger.record(old).state is S.CRASHED
    process = world.process("host:3", at=on("batch.commit", die))
    with pytest.raises(Killed):
        purge.execute_sealed(process.ctx, saved.run)
    world.clock.advance(90)
    report = world.process("host:4").run()
    assert (report.run, report.resumed) == (saved.run, True)
    assert world.ledger.record(old).state is S.ABANDONED
    assert report.inherited.failed
    assert report.exit_code is ExitCode.STORE


def test_a_holder_that_thaws_does_not_overwrite_what_was_recorded_since() -> None:
    """It was about to give up on a batch denied as a whole; the other run has finished all of it by then."""
    world = World(expired=4)

    def deny() -> None:
        for number in range(4):
            world.objects.policies[BUCKET, f"{number}.jpg"] = Policy.DENIED

    reports = []

    def other() -> None:
        world.objects.policies.clear()
        world.clock.freeze(61)
        reports.append(world.process("host:2").run())

    def at(call: Any) -> None:
        first(call)
        second(call)

    first = on("objects.delete", deny)
    # The commit of the batch that was denied; what follows is the verdict, and settling the rest.
    second = on("batch.commit", other, moment="after")
    with batches_of(2), pytest.raises(Exception, match="Not one of the 2"):
        world.process(at=at).run()
    run = str(reports[0].run)
    assert world.ledger.record(run).state is reports[0].state
    found = world.outcomes(run)
    assert [found[n].state for n in (2, 3)] == [Outcome.DELETED] * 2


def test_a_holder_that_thaws_while_sealing_cannot_bring_its_run_back() -> None:
    world = World(expired=4)

    def other() -> None:
        world.clock.freeze(61)
        purge.save(world.process("host:2").ctx)

    process = world.process(at=on("rows.scan", other, nth=2, moment="after"))
    with pytest.raises((LedgerError, LockLostError)):
        process.run()
    mine = world.ledger.record("RUN00001")
    assert mine.state is S.CRASHED
    assert not list(world.ledger.batches(mine.run))


def test_a_batch_that_another_run_settled_is_not_reopened() -> None:
    world = World(expired=4)

    def other() -> None:
        world.clock.freeze(61)
        world.process("host:2").run()

    with batches_of(2), pytest.raises(LockLostError):
        world.process(at=on("ledger.doubt", other)).run()
    assert {b.state for b in world.ledger.batches("RUN00001")} == {BatchState.DONE}
    assert world.total("RUN00001").deleted == 4
