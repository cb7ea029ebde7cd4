"""Decide whether a plan may be executed.

First form: the fixed limits, and a rolling baseline of what earlier successful runs took.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from safedelete.core.decision import Approval, Approved, Decision, Finding, Measure, Refused
from safedelete.core.limits import Guard
from safedelete.core.plan import PastRun, Plan, TargetPlan, Unknown

HEADROOM = 5.0
"""How many times the usual run a night may take before it is refused."""

WINDOW = 90
"""Newest successful runs that form the baseline."""

SMALL = 20
"""Counts up to this are noise, whatever the ratio."""


def decide(
    plan: Plan, limits: Guard, history: Sequence[PastRun], *, approval: Approval | None = None
) -> Decision:
    """Decide whether a plan may be executed.

    Args:
        plan: The plan, on estimated or on sealed counts.
        limits: The purge's declared limits.
        history: Earlier runs of the same purge, in any order.
        approval: A person's acceptance of findings of this very plan (same sealed digest).

    Returns:
        ``Approved``, or ``Refused`` with every finding.
    """
    findings: list[Finding] = []
    measures: list[Measure] = []
    for target in plan.targets:
        findings += _fixed(target, limits)
        measure, found = _usual(target, history)
        measures.append(measure)
        findings += found
    accepted = (
        frozenset(approval.codes) if approval is not None and approval.digest == plan.digest else frozenset()
    )
    refusing = [f for f in findings if f.severity == "refuse" and f.code not in accepted]
    if refusing:
        return Refused(plan=plan, measures=tuple(measures), findings=tuple(findings))
    return Approved(
        plan=plan, measures=tuple(measures), findings=tuple(findings), approval=approval if accepted else None
    )


def _fixed(target: TargetPlan, limits: Guard) -> Iterator[Finding]:
    counts = {"items": target.items, "eligible": target.eligible, "objects": target.objects}
    for label, count in counts.items():
        if isinstance(count, Unknown):
            yield Finding(
                code="SD100",
                severity="refuse",
                target=target.name,
                message=f"{target.name}: the number of {label} is {count}; unknown is never zero.",
                hint="Repair what kept the count from being made, then plan again.",
            )
    items = target.items
    if isinstance(items, int) and limits.max_items is not None and items > limits.max_items:
        yield Finding(
            code="SD101",
            severity="refuse",
            target=target.name,
            message=f"{target.name}: would delete {items:,} items; max_items is {limits.max_items:,}.",
            numbers={"items": items, "max_items": limits.max_items},
        )
    if limits.max_fraction is not None:
        total = target.total
        if isinstance(total, Unknown):
            yield Finding(
                code="SD100",
                severity="refuse",
                target=target.name,
                message=f"{target.name}: max_fraction is set, but the total is {total}.",
            )
        elif isinstance(items, int) and items > limits.max_fraction * total:
            yield Finding(
                code="SD102",
                severity="refuse",
                target=target.name,
                message=(
                    f"{target.name}: would delete {items:,} of {total:,} ({items / max(total, 1):.1%}); "
                    f"max_fraction is {limits.max_fraction:.1%}."
                ),
                numbers={"items": items, "total": total, "max_fraction": limits.max_fraction},
            )
    if limits.max_bytes is not None:
        size = target.bytes
        if not isinstance(size, int):
            yield Finding(
                code="SD100",
                severity="refuse",
                target=target.name,
                message=f"{target.name}: max_bytes is set, but the plan knows no sizes ({size}).",
                hint="Name the size column in S3Keys(size=...).",
            )
        elif size > limits.max_bytes:
            yield Finding(
                code="SD103",
                severity="refuse",
                target=target.name,
                message=f"{target.name}: would delete {size:,} bytes; max_bytes is {limits.max_bytes:,}.",
                numbers={"bytes": size, "max_bytes": limits.max_bytes},
            )


def _usual(target: TargetPlan, history: Iterable[PastRun]) -> tuple[Measure, list[Finding]]:
    taught = sorted((p for p in history if p.state == "succeeded" and p.teaches), key=lambda p: p.plan.as_of)
    past = [
        t.items
        for p in taught
        for t in p.plan.targets
        if t.name == target.name and isinstance(t.items, int) and t.items
    ][-WINDOW:]
    items = target.items if isinstance(target.items, int) else None
    if not past or items is None:
        return Measure(
            target=target.name, measure="items", tonight=items, runs=len(past), rule="no history"
        ), []
    usual = median(past)
    limit = max(SMALL, usual * HEADROOM, max(past) * 1.5)
    stop = items > limit
    measure = Measure(
        target=target.name,
        measure="items",
        tonight=items,
        usual_low=min(past),
        usual_high=max(past),
        runs=len(past),
        expected=usual,
        limit=limit,
        rule=f"{HEADROOM:g} x median",
        verdict="stop" if stop else "ok",
    )
    if not stop:
        return measure, []
    finding = Finding(
        code="SD201",
        severity="refuse",
        target=target.name,
        message=f"{target.name}: would delete {items:,} items; {len(past)} earlier runs took {usual:,.0f} (median).",
        numbers={"items": items, "median": usual, "limit": limit},
        hint="Look at the cutoff and at what changed in the definition.",
    )
    return measure, [finding]
