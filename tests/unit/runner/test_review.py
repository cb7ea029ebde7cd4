"""A refused plan is accepted once, for its very keys, within its window."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from safedelete.core.limits import Guard
from safedelete.core.plan import Plan, TargetPlan, Unknown
from safedelete.core.run import RunState
from safedelete.errors import (
    ConfigError,
    ExitCode,
    LedgerError,
    LockHeldError,
    PreflightError,
    RefusedError,
    StalePlanError,
)
from safedelete.phases.seal import Sealed
from safedelete.ports import Proof, Verdict
from safedelete.runner import purge
from safedelete.runner.context import APPROVAL_WINDOW, PurgeContext
from safedelete.runner.report import Report
from safedelete.runner.review import approve, cancel
from safedelete.testing.memory import Killed
from tests.worlds import World, die, on

S = RunState
LIMITS = {"guard": Guard(max_items=2)}


def refused(world: World) -> str:
    with pytest.raises(RefusedError):
        world.process(**LIMITS).run()
    return world.last().run


def accept(world: World, run: str, **more: object) -> object:
    return approve(world.ledger, world.clock, run, reason="looked at it", who="ann", **more)  # type: ignore[arg-type]


def test_an_approved_plan_is_executed_as_it_was_sealed() -> None:
    world = World(expired=3)
    run = refused(world)
    world.add(7)
    accept(world, run)
    report = purge.execute_sealed(world.process(**LIMITS).ctx, run)
    assert report.exit_code is ExitCode.DONE
    assert [world.has_row(n) for n in (0, 1, 2, 7)] == [False, False, False, True]


def test_a_refused_plan_that_nobody_approved_is_not_executed() -> None:
    world = World(expired=3)
    run = refused(world)
    with pytest.raises(RefusedError, match="nobody has approved"):
        purge.execute_sealed(world.process(**LIMITS).ctx, run)
    assert world.has_row(0)


def test_a_plan_is_executed_once() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    purge.execute_sealed(world.process(**LIMITS).ctx, run)
    with pytest.raises(StalePlanError, match="succeeded"):
        purge.execute_sealed(world.process(**LIMITS).ctx, run)
    with pytest.raises(StalePlanError, match="succeeded"):
        accept(world, run)


def test_a_saved_plan_that_a_newer_run_has_overtaken_is_not_executed() -> None:
    world = World(expired=3)
    saved = purge.save(world.process().ctx).run
    world.clock.advance(60)
    world.process().run()
    world.add(7)
    with pytest.raises(StalePlanError, match="has succeeded since") as stale:
        purge.execute_sealed(world.process().ctx, saved)
    assert "Plan again" in stale.value.hint
    assert world.has_row(7)


def test_a_refused_plan_that_a_newer_run_has_overtaken_is_not_executed_though_it_was_approved() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    world.clock.advance(60)
    world.process().run()
    with pytest.raises(StalePlanError, match="has succeeded since"):
        purge.execute_sealed(world.process(**LIMITS).ctx, run)


def test_an_approval_does_not_hold_against_a_limit_that_was_lowered_since() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    with pytest.raises(RefusedError, match="max_items is 1"):
        purge.execute_sealed(world.process(guard=Guard(max_items=1)).ctx, run)
    assert world.has_row(0)


def test_a_plan_that_shrank_below_its_limit_while_it_was_sealed_stays_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(expired=3)
    seal = PurgeContext.seal

    def after_one_went_away(ctx: PurgeContext, run: str, plan: Plan) -> Sealed:
        world.table.rows.pop((0,))
        return seal(ctx, run, plan)

    monkeypatch.setattr(PurgeContext, "seal", after_one_went_away)
    run = refused(world)
    record = world.ledger.record(run)
    assert record.plan is not None
    assert record.decision is not None
    assert record.plan.targets[0].items == 2
    assert [f.code for f in record.decision.findings if f.severity == "refuse"] == ["SD101"]
    assert world.has_row(1)


def test_two_executions_at_once_delete_once() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    refusals = []

    def rival() -> None:
        with pytest.raises(LockHeldError):
            purge.execute_sealed(world.process("host:2", **LIMITS).ctx, run)
        refusals.append(True)

    process = world.process(at=on("ledger.move", rival), **LIMITS)
    assert purge.execute_sealed(process.ctx, run).total.deleted == 3
    assert refusals


def test_a_second_approval_does_not_undo_the_first() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run, teaches=0)
    world.clock.advance(1)
    with pytest.raises(StalePlanError, match="is approved already, by"):
        accept(world, run, teaches=1)
    purge.execute_sealed(world.process(**LIMITS).ctx, run)
    assert world.ledger.record(run).teaches == 0


def test_after_an_approval_has_ended_another_may_be_given() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run, expires_in=timedelta(hours=1))
    world.clock.advance(3601)
    accept(world, run, teaches=0)
    purge.execute_sealed(world.process(**LIMITS).ctx, run)
    assert world.ledger.record(run).teaches == 0


def test_an_approval_given_while_it_is_executed_changes_nothing() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    told = []

    def late() -> None:
        with pytest.raises(StalePlanError, match="running"):
            accept(world, run)
        told.append(True)

    purge.execute_sealed(world.process(at=on("rows.begin", late), **LIMITS).ctx, run)
    assert told


def test_an_approval_ends() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run, expires_in=timedelta(hours=1))
    world.clock.advance(3600)
    with pytest.raises(StalePlanError, match="expired"):
        purge.execute_sealed(world.process(**LIMITS).ctx, run)
    assert world.has_row(0)


def test_the_guard_holds_an_approval_against_the_time_of_its_decision() -> None:
    world = World(expired=3)
    run = refused(world)
    approval = accept(world, run, expires_in=timedelta(hours=1))
    world.clock.advance(3600)
    process = world.process(**LIMITS)
    decision = process.ctx.decide(world.ledger.record(run).plan, approval)  # type: ignore[arg-type]
    assert "SD307" in {f.code for f in decision.findings}


def test_an_approval_promises_no_more_than_the_sealed_plan_waits() -> None:
    world = World(expired=3)
    run = refused(world)
    world.clock.advance(3600)
    approval = accept(world, run, expires_in=timedelta(days=7))
    assert approval.expires_at == world.ledger.record(run).started_at + APPROVAL_WINDOW  # type: ignore[attr-defined]


@pytest.mark.parametrize("expires_in", [timedelta(0), timedelta(hours=-1)])
def test_an_approval_that_would_have_ended_is_no_approval(expires_in: timedelta) -> None:
    world = World(expired=3)
    run = refused(world)
    with pytest.raises(StalePlanError):
        accept(world, run, expires_in=expires_in)
    assert world.ledger.approval(run) is None


@pytest.mark.parametrize("reason", ["", " \n"])
def test_an_approval_has_a_reason(reason: str) -> None:
    world = World(expired=3)
    run = refused(world)
    with pytest.raises(ConfigError, match="reason is empty"):
        approve(world.ledger, world.clock, run, reason=reason, who="ann")
    assert world.ledger.approval(run) is None


def test_a_plan_that_waited_too_long_is_neither_approved_nor_executed() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    world.clock.advance(APPROVAL_WINDOW.total_seconds())
    with pytest.raises(StalePlanError):
        accept(world, run)
    with pytest.raises(StalePlanError, match="waits at most"):
        purge.execute_sealed(world.process(**LIMITS).ctx, run)
    assert world.has_row(0)


@pytest.mark.parametrize("by", [timedelta(minutes=2), timedelta(hours=20), timedelta(days=44)])
def test_a_plan_made_while_the_clock_was_ahead_is_neither_approved_nor_executed(by: timedelta) -> None:
    """What is due in 44 days is not due now, and the guard that allowed it saw 44 nights to make up for."""
    world = World(expired=3)
    world.clock.shift(by)
    run, saved = refused(world), str(purge.save(world.process().ctx).run)
    world.clock.shift(-by)
    with pytest.raises(StalePlanError, match="clock was ahead"):
        accept(world, run)
    with pytest.raises(StalePlanError, match="clock was ahead"):
        purge.execute_sealed(world.process().ctx, saved)
    assert all(world.has_row(n) for n in range(3))


def test_clocks_of_two_hosts_may_differ_by_a_minute() -> None:
    world = World(expired=3)
    world.clock.shift(timedelta(seconds=60))
    saved = str(purge.save(world.process().ctx).run)
    world.clock.shift(-timedelta(seconds=60))
    assert purge.execute_sealed(world.process().ctx, saved).total.deleted == 3


def test_nothing_is_sealed_for_later_by_a_clock_that_is_not_the_databases() -> None:
    world = World(expired=3)
    before = world.last().run
    off = Proof("clock of the database", Verdict.DENIED, "3,600 s behind this host's")
    with pytest.raises(PreflightError, match="3,600 s behind"):
        purge.save(world.process(clocks=(lambda: off,)).ctx)
    assert world.last().run == before
    right = Proof("clock of the database", Verdict.ALLOWED)
    assert purge.save(world.process(clocks=(lambda: right,)).ctx).state is S.PENDING


def test_a_seal_whose_window_ended_is_dropped_by_the_next_run() -> None:
    world = World(expired=3)
    run = refused(world)
    world.clock.advance(APPROVAL_WINDOW.total_seconds() + 1)
    world.process().run()
    assert world.ledger.record(run).state is S.EXPIRED
    assert not list(world.ledger.batches(run))


def test_a_sealed_plan_waits_longer_than_an_interrupted_run() -> None:
    """``resume_within`` is about what was interrupted; a plan that a person looked at has its own window."""
    world = World(expired=3)
    run = refused(world)
    world.clock.advance(2 * 3600)
    accept(world, run)
    process = world.process(resume_within=timedelta(hours=1), **LIMITS)
    assert purge.execute_sealed(process.ctx, run).exit_code is ExitCode.DONE


@pytest.mark.parametrize(
    "changed", [{"fingerprint": "f2"}, {"caller": "x"}, {"database": "y"}, {"environment": "z"}]
)
def test_a_plan_made_elsewhere_or_otherwise_is_not_executed(changed: dict[str, str]) -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    with pytest.raises(StalePlanError, match="no longer fits"):
        purge.execute_sealed(world.process(**LIMITS, **changed).ctx, run)
    assert world.has_row(0)


def test_who_executes_as_somebody_else_is_told_as_whom() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    with pytest.raises(StalePlanError) as stale:
        purge.execute_sealed(world.process(**LIMITS, caller="x").ctx, run)
    assert "as whoever sealed it" in stale.value.hint
    assert world.has_row(0)


def test_an_approval_for_other_keys_is_no_approval() -> None:
    world = World(expired=3)
    run = refused(world)
    approval = accept(world, run)
    world.clock.advance(1)
    world.ledger.approve(dataclasses.replace(approval, digest="another", at=world.clock.now()))  # type: ignore[type-var]
    with pytest.raises(StalePlanError, match="other keys"):
        purge.execute_sealed(world.process(**LIMITS).ctx, run)


def test_a_plan_that_shows_less_than_was_sealed_is_not_approved() -> None:
    """Whoever may write the run may make it look small to the approver."""
    world = World(expired=3)
    run = refused(world)
    record = world.ledger.record(run)
    assert record.plan is not None
    small = dataclasses.replace(record.plan.targets[0], items=1, eligible=1)
    plan = dataclasses.replace(record.plan, targets=(small,))
    world.ledger._runs[run] = dataclasses.replace(record, plan=plan)
    with pytest.raises(LedgerError, match="different numbers of items of uploads"):
        accept(world, run)
    world.ledger._runs[run] = dataclasses.replace(record, plan=dataclasses.replace(record.plan, digest="x"))
    with pytest.raises(LedgerError, match="not those that were approved"):
        accept(world, run)
    assert world.ledger.approval(run) is None


def test_an_approval_covers_the_findings_it_was_given_for_and_no_other() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    stricter = Guard(max_items=2, max_bytes=1)
    with pytest.raises(RefusedError, match="does not cover"):
        purge.execute_sealed(world.process(guard=stricter).ctx, run)
    assert world.has_row(0)


def test_what_could_not_be_counted_cannot_be_approved() -> None:
    world = World(expired=3)
    process = world.process()
    why = Unknown("statement timeout")
    process.rows.survey = lambda *a, **k: TargetPlan(  # type: ignore[method-assign]
        name="uploads", kind="rows", items=why, eligible=why, total=why
    )
    with pytest.raises(RefusedError, match="SD100"):
        process.run()
    with pytest.raises(RefusedError, match="cannot be approved"):
        accept(world, world.last().run)


def test_a_saved_plan_needs_no_approval() -> None:
    world = World(expired=3)
    saved = purge.save(world.process().ctx)
    assert saved.state is S.PENDING
    assert world.has_row(0)
    assert purge.execute_sealed(world.process().ctx, str(saved.run)).total.deleted == 3


def test_an_approved_run_that_died_is_resumed_under_its_approval() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run)
    process = world.process(at=on("batch.commit", die), **LIMITS)
    with pytest.raises(BaseException):  # noqa: B017  # the process dies here
        purge.execute_sealed(process.ctx, run)
    world.clock.advance(90)
    report = world.process("host:2", **LIMITS).run()
    assert (report.run, report.exit_code) == (run, ExitCode.DONE)


def test_an_approved_run_is_resumed_though_its_approval_has_ended_since() -> None:
    world = World(expired=3)
    run = refused(world)
    accept(world, run, expires_in=timedelta(minutes=5))
    process = world.process(at=on("batch.commit", die), **LIMITS)
    with pytest.raises(Killed):
        purge.execute_sealed(process.ctx, run)
    world.clock.advance(600)
    report = world.process("host:2", **LIMITS).run()
    assert (report.run, report.exit_code) == (run, ExitCode.DONE)


def test_a_run_of_another_job_is_not_executed() -> None:
    world = World(expired=3)
    saved = purge.save(world.process().ctx)
    with pytest.raises(StalePlanError, match="not of other"):
        purge.execute_sealed(world.process(job="other").ctx, str(saved.run))


# --- cancelling ---


@pytest.mark.parametrize("state", [S.REFUSED, S.PENDING])
def test_a_plan_that_waits_is_cancelled_and_its_seal_forgotten(state: RunState) -> None:
    world = World(expired=3)
    run = refused(world) if state is S.REFUSED else str(purge.save(world.process().ctx).run)
    report = cancel(world.process().ctx, run, reason="wrong night", who="ann@desk")
    record = world.ledger.record(run)
    assert (report.exit_code, record.state, record.reason) == (
        ExitCode.DONE,
        S.CANCELLED,
        "cancelled by ann@desk: wrong night",
    )
    assert not list(world.ledger.batches(run))
    with pytest.raises(StalePlanError, match="cancelled"):
        purge.execute_sealed(world.process().ctx, run)
    assert all(world.has_row(n) for n in range(3))


def crashed(world: World) -> str:
    world.process(at=on("batch.commit", die)).run_killed()
    world.clock.advance(90)
    return world.last().run


def test_a_run_that_died_is_cancelled_with_what_it_left_named() -> None:
    world = World(expired=3)
    run = crashed(world)
    report = cancel(world.process("host:2").ctx, run, reason="no", who="ann")
    assert report.exit_code is ExitCode.STORE
    assert {o.code for o in world.outcomes(run).values()} == {"dangling"}
    assert world.ledger.record(run).tally["uploads"].failed == 3
    fresh = world.process("host:3").run()
    assert not fresh.resumed
    assert fresh.run != run


def test_a_run_whose_seal_is_damaged_is_cancelled_and_out_of_the_way() -> None:
    world = World(expired=3)
    run = crashed(world)

    def damaged() -> None:
        raise LedgerError("A sealed batch is damaged")

    report = cancel(
        world.process("host:2", at=on("ledger.batches", damaged)).ctx, run, reason="no", who="ann"
    )
    assert report.exit_code is ExitCode.STORE
    assert "cannot be looked at: A sealed batch is damaged" in world.ledger.record(run).reason
    assert not world.process("host:3").run().resumed


def test_neither_a_working_run_nor_one_that_has_ended_is_cancelled() -> None:
    world = World(expired=3)
    tried = []

    def other() -> None:
        with pytest.raises(LockHeldError):
            cancel(world.process("host:2").ctx, world.last().run, reason="no", who="ann")
        tried.append(True)

    run = str(world.process(at=on("batch.hold", other)).run().run)
    assert tried
    with pytest.raises(StalePlanError, match="succeeded"):
        cancel(world.process().ctx, run, reason="no", who="ann")
    with pytest.raises(StalePlanError, match="not of other"):
        cancel(world.process(job="other").ctx, run, reason="no", who="ann")


# --- the manifest ---


def test_the_manifest_of_a_saved_plan_is_what_was_sealed(tmp_path: Path) -> None:
    world = World(expired=3)
    listed = tmp_path / "items.jsonl"
    process = world.process(manifest=listed)
    saved = purge.save(process.ctx)
    assert process.watch.calls.count("rows.scan") == 1
    assert [json.loads(one)["key"] for one in listed.read_text().splitlines()] == [[0], [1], [2]]
    assert saved.state is S.PENDING


@pytest.mark.parametrize("verb", [purge.plan, purge.dry_run])
def test_a_plan_that_seals_nothing_lists_what_it_would_take(
    verb: Callable[[PurgeContext], Report], tmp_path: Path
) -> None:
    world = World(expired=3)
    listed = tmp_path / "items.jsonl"
    verb(world.process(manifest=listed).ctx)
    assert len(listed.read_text().splitlines()) == 3
