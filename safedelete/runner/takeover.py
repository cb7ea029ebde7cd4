"""What an earlier run left: finish it where it still fits, abandon it where it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import structlog

from safedelete.core.decision import Approved, codes_of
from safedelete.core.outcome import Tally
from safedelete.core.run import EXECUTABLE, RESUMABLE, UNFINISHED, RunState
from safedelete.errors import ExitCode, SafeDeleteError, UnfitKeysError
from safedelete.phases.parts import Part
from safedelete.phases.verify import settle_open, verify
from safedelete.ports import Lease, Ledger, RunChange, RunRecord, Teller, holding
from safedelete.runner.context import APPROVAL_WINDOW, HISTORY, PurgeContext, ahead, claimed
from safedelete.runner.pause import wish
from safedelete.runner.report import Report

log = structlog.get_logger("safedelete.run")

Resume: TypeAlias = Callable[[RunRecord, Approved], Report]
"""Goes on with an interrupted run under a renewed approval."""


def mark_crashed(ledger: Ledger, job: str, teller: Teller, lease: Lease) -> None:
    """Say of runs whose process is gone that they crashed: we hold the lock, so they do not.

    Raises:
        LockLostError: We do not hold it any more, suspended since it was taken perhaps: what is at work is another's run.
    """
    marked: list[RunRecord] = []
    try:
        for record in ledger.runs(job, limit=HISTORY, states=UNFINISHED):
            # Asked after the run was read: whoever took the lock over began his run with it.
            lease.fence()
            ledger.move(
                record.run,
                RunState.CRASHED,
                owner=record.owner,
                change=RunChange(reason=f"its process ({record.owner}) died or lost the lock"),
            )
            log.warning("an earlier run crashed", run=record.run, owner=record.owner)
            marked.append(record)
    finally:
        # Together: a sink that hangs would hold the run up once for each.
        teller.crashed(marked)


def take_over(ctx: PurgeContext, lease: Lease, resume: Resume) -> Report | None:
    """Finish the newest interrupted run if it still fits; abandon the others, their doubts settled first.

    A run that fits is decided again, under the limits as they are now and under its approval if it had one.

    Returns:
        The report of the run that was finished, if any. What abandoned ones left is told by :func:`untold`.
    """
    mark_crashed(ctx.ledger, ctx.job, ctx.teller, lease)
    fitting: tuple[RunRecord, Approved] | None = None
    for record in ctx.ledger.runs(ctx.job, limit=HISTORY, states=RESUMABLE):
        why = _too_late(ctx, record, fitting)
        if not why:
            decision = ctx.decide_again(record)
            if isinstance(decision, Approved):
                fitting = (record, decision)
                continue
            why = "the limits refuse it now: " + ", ".join(codes_of(decision.findings))
        _abandon(ctx, lease, record, why)
    return resume(*fitting) if fitting is not None else None


def untold(ctx: PurgeContext) -> Sequence[RunRecord]:
    """Return abandoned runs with failed or unknown items that no run has yet told of by how it ended. Reads only.

    Asked of the ledger, not remembered: the run that abandoned them may itself have died before it could tell.
    """
    return [
        record
        for record in ctx.ledger.runs(ctx.job, limit=HISTORY, states={RunState.ABANDONED})
        if record.exit_code != ExitCode.STORE and not _total(record).clean
    ]


def inherited(records: Sequence[RunRecord]) -> Tally:
    """Add up what abandoned runs left."""
    return sum((_total(record) for record in records), Tally())


def told(ctx: PurgeContext, records: Sequence[RunRecord]) -> None:
    """Record that a run has told of these by how it ended. Idempotent; a crash before it tells twice, not never."""
    for record in records:
        ctx.ledger.move(record.run, RunState.ABANDONED, change=RunChange(exit_code=ExitCode.STORE))


def mention(ctx: PurgeContext, error: SafeDeleteError) -> None:
    """Add what abandoned runs left to an error that ends this one; it stays owed until a run ends with exit code 7."""
    try:
        left = untold(ctx)
    except SafeDeleteError as second:
        log.warning("what earlier runs left cannot be read", job=ctx.job, error=str(second))
        return
    if left:
        sums = inherited(left)
        runs = ", ".join(record.run for record in left)
        error.args = (
            f"{error} An earlier run ({runs}) left {sums.failed:,} failed and {sums.unknown:,} unknown item(s).",
        )


def _total(record: RunRecord) -> Tally:
    return sum(record.tally.values(), Tally())


def unfit(ctx: PurgeContext, record: RunRecord) -> str:
    """Say why a sealed plan may not be executed here and now; empty when it may."""
    plan = record.plan
    if plan is None or plan.digest is None:
        return "it had sealed nothing"
    mine = ctx.setting
    facts = {
        "definition": (plan.fingerprint, ctx.fingerprint),
        "environment": (plan.environment, mine.environment),
        "database": (plan.database, mine.database),
        "caller": (plan.caller, mine.caller),
    }
    return "; ".join(
        f"{name} was {then!r}, is {here!r}" for name, (then, here) in facts.items() if then != here
    )


def _too_late(ctx: PurgeContext, record: RunRecord, fitting: tuple[RunRecord, Approved] | None) -> str:
    """Say why an interrupted run is not resumed; empty when nothing speaks against it but the limits."""
    if fitting is not None:
        return f"run {fitting[0].run}, which is newer, is resumed"
    cancelled = holding(ctx.ledger.notices("cancel", record.run))
    if cancelled is not None:
        return wish(cancelled.who, cancelled.reason)
    why = unfit(ctx, record) or _forged(ctx, record)
    if why or record.plan is None:
        return why
    now = ctx.clock.now()
    if early := ahead(record, now):
        return early
    age = now - record.plan.as_of
    return f"it is {age} old; resume_within is {ctx.resume_within}" if age > ctx.resume_within else ""


def _forged(ctx: PurgeContext, record: RunRecord) -> str:
    """Say of the approval that a run claims that nobody gave it so; empty where it was given, or where none is claimed.

    Approvals are written by another role than runs: whoever can write a run's row cannot approve one by it.
    """
    said = claimed(record)
    if said is None or record.plan is None:
        return ""
    given = ctx.ledger.approval(record.run)
    if given is None:
        return "it claims an approval that nobody has given"
    if {said.digest, given.digest} != {record.plan.digest} or set(said.accepts) != set(given.accepts):
        return f"it claims another approval than {given.who} has given"
    return ""


def settle(ctx: PurgeContext, lease: Lease, record: RunRecord) -> None:
    """Give every item that a run left open its outcome, so that nothing of it stays in doubt. Deletes nothing."""
    plan = record.plan
    parts: list[Part | None] = []
    if plan is not None and plan.database == ctx.setting.database:
        here = {part.target.name: part for part in ctx.parts}
        parts = [here.get(target.name) for target in plan.targets]
    try:
        # What it had deleted was to be looked for at its end, which never came.
        verify(record.run, parts, ctx.ledger, lease, stop=ctx.stop, progress=ctx.progress)
    except UnfitKeysError as error:
        log.warning("what an abandoned run deleted cannot be looked for", run=record.run, error=str(error))
    settle_open(
        record.run,
        parts,
        ctx.ledger,
        lease,
        as_of=None if plan is None else plan.as_of,
        redefined=plan is None or plan.fingerprint != ctx.fingerprint,
    )


def _abandon(ctx: PurgeContext, lease: Lease, record: RunRecord, why: str) -> None:
    log.warning("abandoning an earlier run", run=record.run, why=why)
    settle(ctx, lease, record)
    ctx.ledger.move(
        record.run,
        RunState.ABANDONED,
        change=RunChange(
            reason=why,
            finished_at=ctx.clock.now(),
            tally=ctx.tallies(record.plan, record.run),
            # Whatever an interrupted run ended with before: what it leaves is yet to be told.
            exit_code=ExitCode.INCOMPLETE,
        ),
    )


def expire(ctx: PurgeContext) -> None:
    """Let go of seals whose window has ended."""
    for record in ctx.ledger.runs(ctx.job, limit=HISTORY, states=EXECUTABLE):
        if ctx.clock.now() - record.started_at > APPROVAL_WINDOW:
            ctx.ledger.move(record.run, RunState.EXPIRED, change=RunChange(finished_at=ctx.clock.now()))
            ctx.ledger.drop_seal(record.run)
