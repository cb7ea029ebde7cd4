"""Decide whether a plan may be executed.

In one sentence: *a plan is refused when it breaks a declared limit, when its definition, cutoff or clock is not that
of the last successful run, when it takes more than earlier runs saw coming, or, where none could look ahead, more
than its weekday usually takes times the headroom this job has shown to need.*

Three layers, in this order, all of them always: ``fixed`` (no statistics), ``lookahead`` (the time column),
``volume`` (what earlier runs took). A finding of any of them refuses, and every number is kept. Nothing here reads a
clock or a store, nothing is remembered between calls, and the order of the history does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from safedelete.core.baseline import read
from safedelete.core.decision import (
    Approval,
    Approved,
    Decision,
    Finding,
    Measure,
    Refused,
    codes_of,
    refusing,
)
from safedelete.core.findings import finding, never_acceptable
from safedelete.core.fixed import changed, too_many
from safedelete.core.limits import Guard
from safedelete.core.look import Look
from safedelete.core.plan import PastRun, Plan, Unknown


def decide(
    plan: Plan,
    limits: Guard,
    history: Sequence[PastRun] | Unknown,
    *,
    approval: Approval | None = None,
    now: datetime | None = None,
    max_sealed: int | None = None,
) -> Decision:
    """Decide whether a plan may be executed.

    Args:
        plan: The plan, on estimated or on sealed counts.
        limits: The purge's declared limits.
        history: Earlier runs of the same purge, in any order and any state; Unknown where it could not be read,
            which refuses.
        approval: A person's acceptance of findings of this very plan (same sealed digest).
        now: The instant of the decision, UTC, for the approval's expiry; the plan's own instant when left out.
        max_sealed: Most items a plan may seal, inclusive; a plan that is sealed already is not held against it.

    Returns:
        ``Approved``, or ``Refused``, each with every finding and every number.
    """
    found: list[Finding] = []
    measures: list[Measure] = []
    record = None
    if isinstance(history, Unknown):
        found.append(
            finding(
                "SD100",
                f"The history of earlier runs is {history}; unknown is never empty.",
                hint="Repair the ledger, or the right to read it, then plan again. It cannot be approved.",
            )
        )
    else:
        record = read(history, plan.job, plan.as_of)
        found += changed(plan, record)
    if max_sealed is not None:
        found += too_many(plan, max_sealed)
    dropped = 0 if record is None else record.dropped
    for target in plan.targets:
        looked = Look(plan, target, limits, record)
        looked.decide()
        found += looked.found
        measures += looked.measures
        dropped += looked.damaged
    if dropped:
        found.append(
            finding("SD308", f"{dropped} entries of the history were left out.", numbers={"entries": dropped})
        )
    return _verdict(plan, _stopped(measures, found), found, approval, now or plan.as_of)


def _verdict(
    plan: Plan, measures: tuple[Measure, ...], found: list[Finding], approval: Approval | None, now: datetime
) -> Decision:
    broken = refusing(found)
    if approval is not None:
        wrong = _void(approval, plan, now)
        if wrong:
            found.append(finding("SD307", f"The approval by {approval.who} does not apply: {wrong}."))
            approval = None
        else:
            found += _not_covered(approval, broken)
    found.sort(key=lambda f: f.severity != "refuse")
    findings = tuple(found)
    if any(not _accepted(f, approval) for f in broken):
        return Refused(plan=plan, measures=measures, findings=findings)
    return Approved(plan=plan, measures=measures, findings=findings, approval=approval)


def _accepted(found: Finding, approval: Approval | None) -> bool:
    if approval is None or never_acceptable([found.code]):
        return False
    return any(accepted.covers(found) for accepted in approval.accepts)


def _not_covered(approval: Approval, broken: Sequence[Finding]) -> Iterator[Finding]:
    """Say why findings refuse whose codes the approval names."""
    if stuck := never_acceptable([code for code in approval.codes if code in codes_of(broken)]):
        yield finding(
            "SD307", f"The approval by {approval.who} names {', '.join(stuck)}: nobody can accept that."
        )
    for found in broken:
        if found.code in approval.codes and found.code not in stuck and not _accepted(found, approval):
            on = f" on {found.target}" if found.target else ""
            yield finding(
                "SD307",
                f"The approval by {approval.who} accepts {found.code}, but not{on} as it is now: another target, a tighter "
                "limit, or runs that were not shown.",
                target=found.target,
            )


_OWN: Final = {"SD103": "bytes", "SD202": "objects", "SD203": "bytes", "SD204": "cascade"}
"""Findings of a measure that has a sentence of its own; every other is told by that of the target's items."""


def _stopped(measures: Sequence[Measure], found: Sequence[Finding]) -> tuple[Measure, ...]:
    """Let no sentence end in "go" that is of a target, or a plan, refused for a reason beside what is usual."""
    broken = refusing(found)
    return tuple(replace(m, verdict="stop") if any(_stops(f, m) for f in broken) else m for m in measures)


def _stops(found: Finding, measure: Measure) -> bool:
    if found.code in _OWN:
        return (_OWN[found.code], found.target) == (measure.measure, measure.target)
    if measure.measure == "cascade":
        return found.target == measure.target
    return measure.measure == "items" and found.target in (measure.target, "")


def _void(approval: Approval, plan: Plan, now: datetime) -> str:
    """Return why an approval does not apply, or nothing."""
    if plan.digest is None:
        return "the plan is not sealed, so there is nothing exact to approve"
    if approval.digest != plan.digest:
        return f"it is for the plan with digest {approval.digest}, this one has {plan.digest}"
    if now >= approval.expires_at:
        return f"it expired at {approval.expires_at.isoformat(timespec='minutes')}"
    return ""
