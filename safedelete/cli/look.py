"""What to look at before a refused plan is accepted: cutoff, definition, clock, days, last runs. Pure text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from tabulate import tabulate

from safedelete.core.decision import Decision, codes_of
from safedelete.core.findings import never_acceptable
from safedelete.core.outcome import Tally
from safedelete.core.plan import AgeProfile, Plan, TargetPlan, Unknown
from safedelete.core.run import RunState
from safedelete.core.say import picture
from safedelete.errors import RefusedError
from safedelete.ports import RunRecord

DAY: Final = timedelta(days=1)

RUNS: Final = 5
"""Last runs listed below a refusal; `history` lists them all."""

PICTURED: Final = frozenset({"SD200", "SD205", "SD210", "SD211", "SD212", "SD300", "SD304"})
"""Findings that the day-by-day picture explains: a cold start, a broken forecast, items out of time."""


def attention(plan: Plan, decision: Decision, past: Sequence[RunRecord]) -> list[str]:
    """Say what a person should look at, with the numbers to compare.

    Args:
        plan: The refused plan.
        decision: The refusal.
        past: The runs before it, newest first.
    """
    last = next(
        (
            r
            for r in past
            if r.state is RunState.SUCCEEDED and r.plan is not None and r.plan.as_of <= plan.as_of
        ),
        None,
    )
    before = None if last is None else last.plan
    lines = ["What to look at:"]
    for target in plan.targets:
        lines += _cutoff(target, before)
    lines.append(f"  definition: {_definition(plan, before, last)}")
    lines.append(f"  clock: {_clock(plan, before, last)}")
    lines += pictures(plan, decision, everywhere=True)
    return lines + last_runs(past)


def pictures(plan: Plan, decision: Decision | None, *, everywhere: bool = False) -> list[str]:
    """Draw the day-by-day picture of each target that a finding points to it for.

    Args:
        plan: The plan.
        decision: What the guard said.
        everywhere: Of every target that has one.
    """
    found = decision.findings if decision is not None else ()
    named = {f.target for f in found if f.code in PICTURED}
    lines: list[str] = []
    for target in plan.targets:
        if not everywhere and target.name not in named:
            continue
        if isinstance(target.ages, AgeProfile) and (target.ages.days or target.ages.older):
            lines.append(
                f"  {target.name}, day by day around the cutoff ({target.kind}; a bar is {target.kind} a day):"
            )
            lines += picture(target.ages, target.cutoff)
        elif isinstance(target.ages, Unknown):
            lines.append(f"  {target.name}: no day-by-day picture: {target.ages.why}")
    return lines


def last_runs(past: Sequence[RunRecord]) -> list[str]:
    """List the newest runs, a line each."""
    if not past:
        return ["  last runs: none"]
    rows = [
        [
            record.run,
            when(record.started_at),
            record.state.value,
            planned(record),
            sum(record.tally.values(), Tally()).deleted if record.tally else "",
        ]
        for record in past[:RUNS]
    ]
    headers = ["last runs", "started (UTC)", "state", "planned", "deleted"]
    table = tabulate(rows, headers=headers, tablefmt="simple", intfmt=",", disable_numparse=[0])
    return [f"  {line}" for line in table.splitlines()]


def accept(decision: Decision, run: str, file: str) -> list[str]:
    """Say how a refused, sealed plan is accepted, or why it cannot be.

    Args:
        decision: The refusal.
        run: The sealed run's id.
        file: The job file, quoted for a shell.
    """
    stuck = never_acceptable(codes_of(decision.findings))
    if stuck or decision.plan.digest is None:
        why = ", ".join(stuck) or "A plan whose keys were not sealed"
        return [f"{why} cannot be approved: repair it, then plan again."]
    return [
        f"To accept this plan once: {approval_command(run, file)}",
        "    --one-off when it must not count as usual; --usual when it is how nights will be from now on",
    ]


def approval_command(run: str, file: str) -> str:
    """Return the command that accepts a refused plan once.

    Args:
        run: The sealed run's id.
        file: The job file, quoted for a shell.
    """
    return f'safedelete approve {run} --file {file} --reason "..."'


@contextmanager
def suggesting(file: str) -> Iterator[None]:
    """Add to a refusal the command that would accept it, where one would.

    Args:
        file: The job file, quoted for a shell.
    """
    try:
        yield
    except RefusedError as refused:
        if refused.run is not None and not never_acceptable(refused.findings):
            command = f"To accept this plan once: {approval_command(refused.run, file)}"
            refused.hint = f"{refused.hint}\n{command}" if refused.hint else command
        raise


def planned(record: RunRecord) -> object:
    """Return how many items a run planned to delete."""
    if record.plan is None:
        return ""
    counts = [target.items for target in record.plan.targets]
    if any(isinstance(count, Unknown) for count in counts):
        return "unknown"
    return sum(count for count in counts if isinstance(count, int))


def when(instant: datetime) -> str:
    """Return an instant to the second, in UTC."""
    return f"{instant:%Y-%m-%d %H:%M:%S}Z"


def _cutoff(target: TargetPlan, before: Plan | None) -> Iterator[str]:
    if target.cutoff is None:
        return
    earlier = next((t for t in before.targets if t.name == target.name), None) if before is not None else None
    was = ""
    if earlier is not None and earlier.cutoff is not None:
        moved = (target.cutoff - earlier.cutoff) / DAY
        was = f"; last time {when(earlier.cutoff)}{_retention(earlier)}, so it moved {moved:,.2f} days"
    yield f"  cutoff: {target.name} older than {when(target.cutoff)}{_retention(target)}{was}"


def _retention(target: TargetPlan) -> str:
    return f" ({target.period / DAY:g} days)" if target.period else ""


def _definition(plan: Plan, before: Plan | None, last: RunRecord | None) -> str:
    if before is None or last is None:
        return "no successful run to compare with; read the predicate above"
    if before.fingerprint == plan.fingerprint:
        return f"unchanged since run {last.run}"
    now, then = {t.name: t for t in plan.targets}, {t.name: t for t in before.targets}
    parts = [f"CHANGED since run {last.run}"]
    for name in dict.fromkeys((*then, *now)):
        mine, theirs = now.get(name), then.get(name)
        if mine is None or theirs is None:
            parts.append(f"{name} is {'new' if theirs is None else 'gone'}")
        elif mine.statement != theirs.statement:
            parts.append(f"{name} was: {theirs.statement}")
    return "; ".join(parts)


def _clock(plan: Plan, before: Plan | None, last: RunRecord | None) -> str:
    if before is None or last is None:
        return f"planned at {when(plan.as_of)}"
    ago = (plan.as_of - before.as_of) / DAY
    return f"planned at {when(plan.as_of)}, {ago:,.2f} days after the last successful run ({last.run})"
