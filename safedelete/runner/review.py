"""Accept a refused plan once, cancel a run that waits, and tell which sealed plans may still be executed."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Literal

from safedelete.core.decision import Acceptance, Approval, Refused, codes_of, refusing
from safedelete.core.findings import never_acceptable
from safedelete.core.outcome import Tally
from safedelete.core.plan import PastRun, Plan
from safedelete.core.run import EXECUTABLE, RESUMABLE, RunState
from safedelete.errors import ConfigError, ExitCode, LedgerError, RefusedError, StalePlanError
from safedelete.phases.halt import require_sealed
from safedelete.ports import Clock, Lease, Ledger, RunChange, RunRecord
from safedelete.runner.context import APPROVAL_WINDOW, PurgeContext, ahead
from safedelete.runner.report import Report
from safedelete.runner.takeover import mark_crashed, settle, unfit

WRONG_CLOCK: Final = "Set the clock by NTP, cancel the run, and plan again."
OTHER_CALLER: Final = (
    "What was sealed is executed as whoever sealed it: call `execute` with that database role and that AWS identity. "
    "Where these were exchanged for good: Plan again."
)


def approve(
    ledger: Ledger,
    clock: Clock,
    run: str,
    *,
    reason: str,
    who: str,
    expires_in: timedelta = APPROVAL_WINDOW,
    teaches: Literal[0, 1, 2] = 1,
) -> Approval:
    """Accept the findings of one refused plan, once. Writes to the ledger; deletes nothing.

    Bound to the sealed digest: what is executed under it is exactly what was refused and looked at.

    Args:
        ledger: The ledger, opened as a role that may write approvals.
        clock: The clock.
        run: The refused run.
        reason: Why, in the approver's words; not empty.
        who: Login and caller identity.
        expires_in: From now, above 0; never longer than the sealed plan waits.
        teaches: How the run will enter the baseline.

    Raises:
        ConfigError: There is no reason.
        StalePlanError: The run is not one that waits for an approval, or was planned by a clock that was ahead.
        RefusedError: A finding that no approval can accept.
        LedgerError: The plan is not the one that was sealed: either was damaged or edited.
    """
    if not reason.strip():
        raise ConfigError("reason is empty.", hint="Say why this plan is right; it is kept with the run.")
    record = ledger.record(run)
    if (
        record.state is not RunState.REFUSED
        or not isinstance(record.decision, Refused)
        or record.plan is None
    ):
        raise StalePlanError(
            f"Run {record.run} is {record.state.value}; only a refused plan can be approved.",
            hint="`safedelete history FILE` lists the runs.",
        )
    now, ends = clock.now(), record.started_at + APPROVAL_WINDOW
    if now >= ends:
        raise StalePlanError(
            f"Run {record.run} waited for an approval until {ends:%Y-%m-%d %H:%M} UTC; it is {now:%Y-%m-%d %H:%M} UTC.",
            hint="Plan again.",
        )
    if expires_in <= timedelta(0):
        raise StalePlanError(
            f"An approval of run {record.run} for {expires_in} would have expired when it is given.",
            hint="Give it longer than nothing; --expires-in counts hours.",
        )
    if early := ahead(record, now):
        raise StalePlanError(f"Run {record.run} cannot be approved: {early}.", hint=WRONG_CLOCK)
    before = ledger.approval(record.run)
    if before is not None and before.expires_at > now:
        raise StalePlanError(
            f"Run {record.run} is approved already, by {before.who} until {before.expires_at:%Y-%m-%d %H:%M} UTC: {before.reason}",
            hint=f"`safedelete execute {record.run} --file FILE` executes it; `safedelete cancel {record.run} --file FILE "
            '--reason "..."` takes it back.',
        )
    broken = refusing(record.decision.findings)
    never = never_acceptable(codes_of(broken))
    if never or record.plan.digest is None:
        raise RefusedError(
            f"Run {record.run} cannot be approved: {', '.join(never) or 'its keys were not sealed'}.",
            findings=never,
            hint="What could not be counted cannot be accepted by a person either. Repair it and plan again.",
            run=record.run,
        )
    # A person accepts the numbers shown; they have to be those of the keys that would be deleted.
    require_sealed(record.plan, record.run, ledger)
    approval = Approval(
        run=record.run,
        digest=record.plan.digest,
        accepts=tuple(Acceptance.of(found) for found in broken),
        reason=reason,
        who=who,
        at=now,
        expires_at=min(now + expires_in, ends),
        teaches=teaches,
    )
    ledger.approve(approval)
    return approval


CANCELLABLE: Final = EXECUTABLE | RESUMABLE
"""States of a run that waits: for somebody to execute it, or for the next run to take it over."""


def cancel(ctx: PurgeContext, run: str, *, reason: str, who: str) -> Report:
    """End a run that waits, so that nothing goes on with it. Writes to the ledger; deletes nothing.

    What an interrupted or crashed run left in doubt is settled first, as when it is abandoned. A seal that is damaged
    cannot be settled, and is cancelled all the same: it would be in the way of every later run.

    Args:
        ctx: The purge that the run is of.
        run: The run's id.
        reason: Why, in the words of whoever cancels.
        who: Login and host.

    Returns:
        How the run stands now; exit code 7 where items of it failed, are unknown, or could not be looked at.

    Raises:
        StalePlanError: The run is of another purge, or has ended.
        LockHeldError: It is still working.
    """
    lease = ctx.enter()
    try:
        mark_crashed(ctx.ledger, ctx.job, ctx.teller, lease)
        record = ctx.ledger.record(run)
        if record.job != ctx.job:
            raise StalePlanError(
                f"Run {record.run} is of {record.job}, not of {ctx.job}.", hint="Name its job file."
            )
        if record.state not in CANCELLABLE:
            raise StalePlanError(
                f"Run {record.run} is {record.state.value}; only a run that waits or was interrupted can be cancelled.",
                hint=f"`safedelete show {record.run}` tells how it ended.",
            )
        waits = record.state in EXECUTABLE
        damage = "" if waits else _settled(ctx, lease, record)
        tally = {} if waits else ctx.tallies(record.plan, record.run)
        total = sum(tally.values(), Tally())
        code = ExitCode.DONE if total.clean and not damage else ExitCode.STORE
        message = f"cancelled by {who}: {reason}" + (f" ({damage})" if damage else "")
        ctx.ledger.move(
            record.run,
            RunState.CANCELLED,
            change=RunChange(finished_at=ctx.clock.now(), tally=tally, reason=message, exit_code=code),
        )
        if waits:
            ctx.ledger.drop_seal(record.run)
        return Report(
            job=ctx.job,
            run=record.run,
            state=RunState.CANCELLED,
            exit_code=code,
            tally=tally,
            message=message[:1].upper() + message[1:].rstrip(".") + ".",
        )
    finally:
        lease.release()


def _settled(ctx: PurgeContext, lease: Lease, record: RunRecord) -> str:
    try:
        settle(ctx, lease, record)
    except LedgerError as error:
        return f"what it left in doubt cannot be looked at: {error}"
    return ""


def executable(ctx: PurgeContext, record: RunRecord) -> Plan:
    """Return a sealed plan that may be executed here and now.

    Raises:
        StalePlanError: It may not, and why.
    """
    if record.job != ctx.job:
        raise StalePlanError(
            f"Run {record.run} is of {record.job}, not of {ctx.job}.", hint="Name its job file."
        )
    if record.state not in EXECUTABLE:
        raise StalePlanError(
            f"Run {record.run} is {record.state.value}; only a saved or refused plan can be executed, and once.",
            hint="`safedelete plan FILE --save` makes a new one.",
        )
    age = ctx.clock.now() - record.started_at
    if age >= APPROVAL_WINDOW:
        raise StalePlanError(
            f"Run {record.run} was planned {age} ago; a sealed plan waits at most {APPROVAL_WINDOW}.",
            hint="Plan again.",
        )
    if early := ahead(record, ctx.clock.now()):
        raise StalePlanError(f"Run {record.run} may not be executed: {early}.", hint=WRONG_CLOCK)
    if newer := _overtaken(ctx, record):
        raise StalePlanError(
            f"Run {record.run} may not be executed: run {newer.run} has succeeded since, with a plan of "
            f"{newer.plan.as_of:%Y-%m-%d %H:%M} UTC.",
            hint="Its limits are of nights before that. Plan again.",
        )
    why = unfit(ctx, record)
    if why or record.plan is None:
        other = record.plan is not None and record.plan.caller != ctx.setting.caller
        raise StalePlanError(
            f"Run {record.run} no longer fits: {why}.", hint=OTHER_CALLER if other else "Plan again."
        )
    return record.plan


def _overtaken(ctx: PurgeContext, record: RunRecord) -> PastRun | None:
    """Return the newest run that has succeeded on a later plan, which the sealed one could not know of.

    Runs that its decision already names as later (SD112) had the wrong clock, or it had: that is for an approval to say.
    """
    decision, plan = record.decision, record.plan
    if decision is None or plan is None:
        return None
    named = {run for f in decision.findings for run in str(f.numbers.get("runs") or "").split(",")}
    newest = ctx.last_success(ctx.clock.now())
    return (
        newest if newest is not None and newest.plan.as_of > plan.as_of and newest.run not in named else None
    )


def approval_of(ctx: PurgeContext, record: RunRecord) -> Approval | None:
    """Return a refused run's valid approval; None for a saved run, which needs none.

    Raises:
        RefusedError: Nobody has approved it.
        StalePlanError: The approval has expired, or is for other keys.
    """
    if record.state is not RunState.REFUSED:
        return None
    approval = ctx.ledger.approval(record.run)
    if approval is None:
        raise RefusedError(
            f"Run {record.run} was refused and nobody has approved it.",
            hint=f"Look at it with `safedelete show {record.run}`, then `safedelete approve` it.",
            run=record.run,
        )
    if approval.expires_at <= ctx.clock.now():
        raise StalePlanError(
            f"The approval of run {record.run} expired at {approval.expires_at:%Y-%m-%d %H:%M} UTC.",
            hint="Approve it again while its keys are sealed, or plan again.",
        )
    if record.plan is None or approval.digest != record.plan.digest:
        raise StalePlanError(
            f"The approval of run {record.run} is for other keys than are sealed.", hint="Plan again."
        )
    return approval
