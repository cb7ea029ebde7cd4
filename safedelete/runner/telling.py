"""What a recorded run, a report or an error comes to, as an event."""

from __future__ import annotations

from datetime import datetime

from safedelete.core.decision import Approved, Refused, codes_of
from safedelete.core.event import Ending, RunEvent, ending
from safedelete.core.findings import never_acceptable
from safedelete.core.outcome import Tally
from safedelete.core.plan import Count, Plan
from safedelete.errors import ExitCode, IncompleteError, SafeDeleteError
from safedelete.ports import RunRecord


def code_of_end(error: BaseException | None, reported: ExitCode) -> ExitCode:
    """Return the exit code of what ended a run."""
    match error:
        case None:
            return reported
        case SafeDeleteError():
            return error.exit_code
        case KeyboardInterrupt():
            return IncompleteError.exit_code
    return ExitCode.UNEXPECTED


def ended(
    start: RunEvent,
    code: ExitCode,
    at: datetime,
    message: str,
    record: RunRecord | None,
    *,
    file: str = "FILE",
) -> RunEvent:
    """Return the event at a run's end.

    Args:
        start: The event at its start.
        code: What the command ends with.
        at: When it ended, aware, UTC.
        message: One sentence about the end.
        record: The run, as the ledger has it now; None where it recorded none, or cannot be read.
        file: The job file, as one types it, for the command that would approve.
    """
    plan = None if record is None else record.plan
    decision = None if record is None else record.decision
    findings = () if decision is None else decision.findings
    codes = codes_of(findings)
    refused = code is ExitCode.REFUSED and record is not None
    sealed = plan is not None and plan.digest is not None
    acceptable = refused and sealed and isinstance(decision, Refused) and not never_acceptable(codes)
    return RunEvent(
        job=start.job,
        kind=start.kind,
        environment=start.environment,
        run=start.run,
        started_at=start.started_at,
        ended_at=at,
        ending=ending(code),
        exit_code=code,
        items=Tally() if record is None else sum(record.tally.values(), Tally()),
        planned_rows=planned(plan, "rows"),
        planned_objects=planned(plan, "objects"),
        planned_bytes=_sum([target.bytes for target in plan.targets]) if plan is not None else None,
        limit=_limit(decision),
        message=message,
        # An approved run that failed accepted these; they are not why it failed.
        codes=codes if not isinstance(decision, Approved) else (),
        approve=f"safedelete approve {start.run} --file {file} --reason '…'" if acceptable else "",
    )


def crashed(record: RunRecord, environment: str, at: datetime) -> RunEvent:
    """Return the event of an earlier run whose process died."""
    return RunEvent(
        job=record.job,
        kind=record.kind,
        environment=environment,
        run=record.run,
        started_at=record.started_at,
        ended_at=at,
        ending=Ending.CRASHED,
        message=f"Its process ({record.owner}) died or lost the lock; the next run goes on with what it left.",
    )


def planned(plan: Plan | None, what: str) -> int | None:
    """Return how many rows or objects a plan would delete; None where one target's could not be counted."""
    if plan is None:
        return None
    if what == "rows":
        return _sum([target.items for target in plan.targets if target.kind == "rows"])
    return _sum([target.items if target.kind == "objects" else target.objects for target in plan.targets])


def _sum(counts: list[Count] | list[Count | None]) -> int | None:
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if len(known) == len(counts) else None


def _limit(decision: Approved | Refused | None) -> float | None:
    if decision is None:
        return None
    limits = [m.limit for m in decision.measures if m.measure == "items" and m.limit is not None]
    return min(limits, default=None)


def why(error: BaseException | None, message: str) -> str:
    """Return what to say of an end."""
    if error is None:
        return message
    if isinstance(error, SafeDeleteError):
        return f"{error} {error.deleted_sentence}"
    # The text of an error that is not ours may hold anything, a password in an address for one.
    return f"{type(error).__name__}, an error that safedelete does not know; see the log."
