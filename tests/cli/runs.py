"""Recorded runs for what draws them: made by the guard itself, night after night."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from safedelete.core.decision import Acceptance, Approval, Approved, Refused, refusing
from safedelete.core.guard import decide
from safedelete.core.limits import Guard
from safedelete.core.outcome import Tally
from safedelete.core.plan import AgeProfile, PastRun, Plan, TargetPlan, Unknown
from safedelete.core.run import RunState
from safedelete.ports import RunRecord

START = datetime(2026, 6, 1, 3, 15, tzinfo=UTC)
PERIOD = timedelta(days=90)


def plan_of(
    night: int, items: int, *, job: str = "login-events", ages: AgeProfile | Unknown | None = None
) -> Plan:
    as_of = START + timedelta(days=night)
    target = TargetPlan(
        name="login_events",
        kind="rows",
        items=items,
        eligible=items,
        total=400_000,
        ageless=400_000,
        late=0 if night else None,
        cutoff=as_of - PERIOD,
        period=PERIOD,
        ages=ages,
        statement="login_events.created_at < :cutoff",
    )
    return Plan(job=job, as_of=as_of, fingerprint="f" * 64, targets=(target,), digest=f"{night:064}")


def ages_of(tonight: int, rng: random.Random, level: int = 4000) -> AgeProfile:
    days = [(-1, tonight)] if tonight else []
    days += [(day, round(level * rng.lognormvariate(0, 0.15))) for day in range(60)]
    return AgeProfile(tuple(days))


def nights(count: int, *, surge_at: int | None = None, job: str = "login-events") -> list[RunRecord]:
    """Return runs, newest first, each decided on those before it; a surge is refused, the rest succeeds."""
    rng = random.Random(7)
    records: list[RunRecord] = []
    coming = 4000
    for night in range(count):
        items = 48_210 if night == surge_at else coming
        ages = ages_of(items, rng)
        coming = dict(ages.days)[0]
        plan = plan_of(night, items, job=job, ages=ages)
        past = [
            PastRun(run=r.run, plan=r.plan, state=r.state.value, deleted={"login_events": t.deleted})
            for r in records
            if r.plan is not None and (t := r.tally.get("login_events", Tally())) is not None
        ]
        decision = decide(plan, Guard(), past)
        refused = isinstance(decision, Refused)
        records.append(
            RunRecord(
                run=f"01J{night:023}",
                job=job,
                kind="purge",
                state=RunState.REFUSED if refused else RunState.SUCCEEDED,
                started_at=plan.as_of,
                finished_at=None if refused else plan.as_of + timedelta(minutes=1),
                plan=plan,
                decision=decision,
                tally={} if refused else {"login_events": Tally(deleted=items)},
                reason="" if refused else f"{items:,} of {items:,} are gone.",
                exit_code=3 if refused else 0,
                owner="worker-1:4711:00",
            )
        )
    return records[::-1]


def accepted(record: RunRecord, reason: str) -> RunRecord:
    """Return a refused run as it looks after somebody accepted it and it was executed."""
    assert record.plan is not None
    assert isinstance(record.decision, Refused)
    at = record.started_at
    refusal = decide(record.plan, Guard(), [])
    approval = Approval(
        run=record.run,
        digest=record.plan.digest or "",
        accepts=tuple(Acceptance.of(found) for found in refusing(refusal.findings)),
        reason=reason,
        who="ann@desk",
        at=at,
        expires_at=at + timedelta(hours=24),
    )
    decision = decide(record.plan, Guard(), [], approval=approval)
    assert isinstance(decision, Approved)
    return RunRecord(
        run=record.run,
        job=record.job,
        kind="purge",
        state=RunState.SUCCEEDED,
        started_at=at,
        plan=record.plan,
        decision=decision,
        owner=record.owner,
    )
