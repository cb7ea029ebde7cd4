"""The verbs of a purge, from lock to final state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

import structlog

from safedelete.core.decision import Approved, Decision, Refused
from safedelete.core.findings import finding
from safedelete.core.outcome import Tally
from safedelete.core.plan import Plan, Unknown
from safedelete.core.run import BatchState, RunState
from safedelete.errors import ExitCode, PreflightError, RefusedError, SafeDeleteError, StoreError
from safedelete.phases.execute import execute
from safedelete.phases.parts import Tools
from safedelete.phases.plan import announce
from safedelete.phases.preflight import Groups, preflight, require, require_objects
from safedelete.phases.seal import TOO_MANY, Sealed
from safedelete.phases.verify import verify
from safedelete.ports import Lease, RunChange, RunRecord
from safedelete.runner.context import PurgeContext
from safedelete.runner.ending import failed_early, failed_late, unsealed, verdict
from safedelete.runner.heap import settled_heap
from safedelete.runner.items import failed_items
from safedelete.runner.report import Report
from safedelete.runner.review import approval_of, executable
from safedelete.runner.takeover import expire, inherited, mark_crashed, mention, take_over, told, untold

log = structlog.get_logger("safedelete.run")


def plan(ctx: PurgeContext, *, with_proofs: bool = False) -> Report:
    """Count and decide. Reads only; with ``with_proofs`` also probes permissions, by a canary where one is demanded."""
    ctx.ledger.verify(ctx.setting.binding)
    made = ctx.survey()
    announce(made)
    decision = ctx.decide(made)
    proofs = ctx.prove(made) if with_proofs else ()
    code = ExitCode.DONE if isinstance(decision, Approved) else ExitCode.REFUSED
    if code is ExitCode.DONE and any(proof.stops for proof in proofs):
        code = ExitCode.PREFLIGHT
    ctx.list_items(made)
    past = ctx.recent()
    return Report(job=ctx.job, plan=made, decision=decision, exit_code=code, proofs=proofs, past=past)


def dry_run(ctx: PurgeContext) -> Report:
    """Plan, decide and prove permissions, then stop. Changes nothing but for a canary, put and removed where one is demanded.

    Raises:
        PreflightError: The plan is approved, but a permission is not there.
    """
    report = plan(ctx, with_proofs=True)
    if isinstance(report.decision, Approved):
        require((*ctx.ledger.probe(), *report.proofs))
    return report


@settled_heap()
def save(ctx: PurgeContext) -> Report:
    """Plan and seal for review; :func:`execute_sealed` runs it later. Writes to the ledger; deletes nothing.

    Raises:
        PreflightError: A database's clock and the host's differ: what is sealed would be due by one of them alone.
    """
    lease = ctx.enter()
    try:
        mark_crashed(ctx.ledger, ctx.job, ctx.teller, lease)
        expire(ctx)
        require([asked() for asked in ctx.clocks])
        run = ctx.begin()
        try:
            with _stoppable(ctx.stop.before):
                made = ctx.survey()
            announce(made)
            past = [record for record in ctx.recent() if record.run != run]
            aside = _lay_aside(ctx, run, made, ctx.decide(made), RunState.PENDING)
            assert aside.plan is not None
            ctx.list_items(aside.plan, run)
            return replace(aside, past=past)
        except BaseException as error:
            failed_early(ctx, run, error)
            raise
    finally:
        lease.release()


@settled_heap()
def run(ctx: PurgeContext) -> Report:
    """Run the whole purge: take over what an earlier run left, plan, decide, prove, seal, execute, verify. Deletes.

    Raises:
        PausedError: Somebody paused it.
        SafeDeleteError: Whatever stopped it, after the ledger has been told.
    """
    begun = ctx.clock.now()
    lease = ctx.start()
    try:

        def resume(record: RunRecord, decision: Approved) -> Report:
            log.info("resuming", run=record.run, started_at=record.started_at.isoformat())
            groups = ctx.groups(record.run)
            return _go(
                ctx, decision, record.run, lease, groups, record.sealed_bytes, resumed=True, begun=begun
            )

        resumed = take_over(ctx, lease, resume)
        if resumed is not None:
            return resumed
        expire(ctx)
        try:
            return _fresh(ctx, lease)
        except SafeDeleteError as error:
            mention(ctx, error)
            raise
    finally:
        lease.release()


@settled_heap()
def execute_sealed(ctx: PurgeContext, run: str) -> Report:
    """Execute one sealed plan: a saved one the guard approved, or a refused one that a person approved. Deletes.

    Raises:
        StalePlanError: It was executed, cancelled, has expired, or no longer fits.
        RefusedError: A limit that the approval does not accept is broken.
    """
    begun = ctx.clock.now()
    lease = ctx.start()
    try:
        mark_crashed(ctx.ledger, ctx.job, ctx.teller, lease)
        record = ctx.ledger.record(run)
        sealed = executable(ctx, record)
        decision = ctx.decide(sealed, approval_of(ctx, record))
        if isinstance(decision, Refused):
            raise ctx.refusal(decision, record.run, "The approval does not cover this.")
        groups = ctx.groups(record.run)
        return _go(ctx, decision, record.run, lease, groups, record.sealed_bytes, begun=begun)
    finally:
        lease.release()


def _fresh(ctx: PurgeContext, lease: Lease) -> Report:
    run = ctx.begin()
    try:
        ctx.teller.started(run)
        with _stoppable(ctx.stop.before):
            made = ctx.survey()
        announce(made)
        decision = ctx.decide(made)
        if isinstance(decision, Refused):
            aside = _lay_aside(ctx, run, made, decision, RunState.REFUSED)
            raise ctx.refusal(aside.decision if isinstance(aside.decision, Refused) else decision, run)
        with _stoppable(ctx.stop.before):
            preflight(made, ctx.probers(), ctx.first_objects(made))
        try:
            with _stoppable(ctx.stop.before):
                sealed = ctx.seal(run, made)
        except RefusedError as grown:
            raise ctx.refusal(_unsealed(ctx, run, _grown(decision, grown)), run) from grown
        decision = ctx.decide(sealed.plan)
        if isinstance(decision, Refused):
            _note(ctx, run, RunState.REFUSED, sealed, decision)
            raise ctx.refusal(decision, run)
        return _go(ctx, decision, run, lease, sealed.groups, sealed.bytes)
    except BaseException as error:
        failed_early(ctx, run, error)
        raise


def _go(
    ctx: PurgeContext,
    decision: Approved,
    run: str,
    lease: Lease,
    groups: Groups,
    sealed_bytes: int,
    *,
    resumed: bool = False,
    begun: datetime | None = None,
) -> Report:
    sealed = decision.plan
    ctx.teller.started(run)
    with _stoppable(ctx.stop.between if resumed else ctx.stop.before):
        cleared = preflight(sealed, ctx.probers(), groups.sample())
        if not resumed and not ctx.took_objects_lately():
            require_objects(ctx.parts, ctx.ledger.batches(run, {BatchState.SEALED}))
    for note in groups.notes():
        log.warning("not every group was probed", job=ctx.job, run=run, note=note)
    ctx.list_items(sealed, run)
    # A process that was suspended while it sealed must not bring a run back that another has called dead.
    lease.fence()
    ctx.ledger.move(
        run,
        RunState.RUNNING,
        change=RunChange(
            plan=sealed,
            decision=decision,
            sealed_bytes=sealed_bytes,
            owner=ctx.setting.owner,
            task=ctx.setting.task,
            teaches=decision.approval.teaches if decision.approval is not None else None,
            resumed_at=begun,
            reopened=True,
        ),
    )
    announce(sealed)
    try:
        tools = Tools(ctx.ledger, lease, ctx.clock, ctx.stop, ctx.progress, ctx.jitter, ctx.brakes)
        execute(decision, cleared, run, ctx.parts, tools)
        with _stoppable(ctx.stop.between, afterwards=False):
            verify(run, ctx.parts, ctx.ledger, lease, stop=ctx.stop, progress=ctx.progress)
        tally = ctx.tallies(sealed, run)
        owed = sum(ctx.ledger.sealed(run).values())
        left = untold(ctx)
        state, code, message = verdict(
            sum(tally.values(), Tally()), owed, inherited(left), unsealed(ctx, sealed)
        )
        ctx.ledger.move(
            run,
            state,
            owner=ctx.setting.owner,
            change=RunChange(finished_at=ctx.clock.now(), tally=tally, exit_code=code, reason=message),
        )
        told(ctx, left)
    except BaseException as error:
        failed_late(ctx, run, sealed, lease, error)
        raise
    log.info("finished", job=ctx.job, run=run, state=state.value, exit_code=int(code), message=message)
    return Report(
        job=ctx.job,
        run=run,
        state=state,
        exit_code=code,
        plan=sealed,
        decision=decision,
        tally=tally,
        sealed_bytes=sealed_bytes,
        resumed=resumed,
        inherited=inherited(left),
        proofs=cleared.proofs,
        message=message,
        notes=groups.notes(),
        failed=failed_items(ctx.ledger, sealed, run, sum(tally.values(), Tally())),
    )


@contextmanager
def _stoppable(check: Callable[[], None], *, afterwards: bool = True) -> Iterator[None]:
    """Say that a step was stopped where it was: a cancelled statement looks like a store that failed, or a plain unknown.

    Args:
        check: Raises when the time is over or a stop was asked for.
        afterwards: Also ask it when the step seems to have succeeded.
    """
    try:
        yield
    except (StoreError, PreflightError):
        check()
        raise
    if afterwards:
        check()


def _lay_aside(ctx: PurgeContext, run: str, made: Plan, decision: Decision, otherwise: RunState) -> Report:
    """Seal a plan that is not executed now, because it was refused or is to be reviewed."""
    uncounted = any(
        isinstance(target.items, Unknown) or isinstance(target.objects, Unknown) or target.objections
        for target in made.targets
    )
    if isinstance(decision, Refused) and (uncounted or any(f.code == TOO_MANY for f in decision.findings)):
        return _not_sealed(ctx, run, _unsealed(ctx, run, decision))
    try:
        sealed = ctx.seal(run, made)
    except RefusedError as grown:
        return _not_sealed(ctx, run, _unsealed(ctx, run, _grown(decision, grown)))
    again = ctx.decide(sealed.plan)
    if isinstance(decision, Refused) and isinstance(again, Approved):
        # Rows went away between counting and sealing. What was said stands; the next run decides anew.
        again = Refused(plan=sealed.plan, measures=decision.measures, findings=decision.findings)
    state = RunState.REFUSED if isinstance(again, Refused) else otherwise
    _note(ctx, run, state, sealed, again)
    return Report(
        job=ctx.job,
        run=run,
        state=state,
        plan=sealed.plan,
        decision=again,
        sealed_bytes=sealed.bytes,
        exit_code=ExitCode.REFUSED if state is RunState.REFUSED else ExitCode.DONE,
    )


def _grown(decision: Decision, error: RefusedError) -> Refused:
    """Refuse a plan that turned out to be too big only while it was sealed."""
    found = finding(TOO_MANY, str(error))
    return Refused(plan=decision.plan, measures=decision.measures, findings=(found, *decision.findings))


def _unsealed(ctx: PurgeContext, run: str, decision: Refused) -> Refused:
    """Record a refused plan whose keys cannot be sealed, and which can therefore not be approved."""
    change = RunChange(plan=decision.plan, decision=decision, exit_code=ExitCode.REFUSED)
    ctx.ledger.move(run, RunState.REFUSED, change=change)
    return decision


def _not_sealed(ctx: PurgeContext, run: str, decision: Refused) -> Report:
    return Report(
        job=ctx.job,
        run=run,
        state=RunState.REFUSED,
        plan=decision.plan,
        decision=decision,
        exit_code=ExitCode.REFUSED,
    )


def _note(ctx: PurgeContext, run: str, state: RunState, sealed: Sealed, decision: Decision) -> None:
    ctx.ledger.move(
        run,
        state,
        change=RunChange(
            plan=sealed.plan,
            decision=decision,
            sealed_bytes=sealed.bytes,
            exit_code=ExitCode.REFUSED if state is RunState.REFUSED else None,
        ),
    )
