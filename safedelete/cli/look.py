"""What to look at before a refused plan is accepted: cutoff, definition, clock, days, last runs. Pure text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from shlex import quote
from typing import Final

from tabulate import tabulate

from safedelete.cli.differs import differences, explain
from safedelete.cli.series import left_over
from safedelete.core.decision import Decision, Measure, codes_of
from safedelete.core.findings import never_acceptable
from safedelete.core.outcome import Tally
from safedelete.core.plan import AgeProfile, Plan, TargetPlan, Unknown, length
from safedelete.core.run import RunState
from safedelete.core.say import picture, sentence
from safedelete.declare import Purge
from safedelete.errors import RefusedError, StalePlanError
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
    succeeded = [r for r in past if r.state is RunState.SUCCEEDED and r.plan is not None]
    last = next((r for r in succeeded if r.plan is not None and r.plan.as_of <= plan.as_of), None)
    later = next((r for r in succeeded if r.plan is not None and r.plan.as_of > plan.as_of), None)
    before = None if last is None else last.plan
    lines = ["What to look at:"]
    for target in plan.targets:
        lines += _cutoff(target, before)
    lines += _definition(plan, before, last)
    lines.append(f"  clock: {_clock(plan, last, later)}")
    lines += pictures(plan, decision, everywhere=True)
    return lines + last_runs(past)


def sentences(made: Decision) -> Iterator[tuple[Measure, str]]:
    """Say each measure of a decision, in its target's own unit.

    What the last run left behind is told apart from what was forecast, which is new items alone: on the nights of a
    backlog "0 forecast" would stand beside a limit of thousands.
    """
    kinds = {target.name: target.kind for target in made.plan.targets}
    for measure in made.measures:
        kind = kinds.get(measure.target, "rows")
        left = left_over(measure)
        said = sentence(
            replace(measure, forecast=None) if left else measure,
            unit=kind if measure.measure == "items" else None,
            of="table" if kind == "rows" else "prefix",
        )
        if left and measure.expected is not None and measure.forecast is not None:
            new = f"{measure.forecast:,.0f} new ones" if round(measure.forecast) else "no new ones"
            about = f"about {measure.expected:,.0f} expected"
            said = said.replace(about, f"{about} ({left:,.0f} left over, {new} forecast)")
        elif measure.rule == "no usable history":
            said = said.replace("; limit ", "; no forecast was made; limit ")
        yield measure, said


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


def accept(decision: Decision, run: str, file: str | None) -> list[str]:
    """Say how a refused, sealed plan is accepted, or why it cannot be.

    Args:
        decision: The refusal.
        run: The sealed run's id.
        file: The job file, quoted for a shell; None where none was named.
    """
    if not acceptable(decision):
        why = ", ".join(_stuck(decision)) or "A plan whose keys were not sealed"
        return [f"{why} cannot be approved: repair it, then plan again."]
    return [
        f"To accept this plan once: {approval_command(run, file)}",
        "    --one-off when it must not count as usual; --usual when it is how nights will be from now on",
    ]


def seal(decision: Decision, file: str | None) -> list[str]:
    """Say how a refused plan that is not sealed comes to be accepted, or why it cannot be.

    Args:
        decision: The refusal.
        file: The job file, quoted for a shell; None where none was named.
    """
    if stuck := _stuck(decision):
        return [f"{', '.join(stuck)} cannot be approved: repair it, then plan again."]
    return [
        "A plan that is not sealed cannot be approved. To seal one, for an approval within 24 hours:",
        f"    {save_command(decision.plan.job, file)}",
    ]


def acceptable(decision: Decision) -> bool:
    """Whether a person may accept a refused plan at all: it is sealed, and says nothing that nobody can judge."""
    return decision.plan.digest is not None and not _stuck(decision)


def _stuck(decision: Decision) -> list[str]:
    return never_acceptable(codes_of(decision.findings))


def approval_command(run: str, file: str | None) -> str:
    """Return the command that accepts a refused plan once.

    Args:
        run: The sealed run's id.
        file: The job file, quoted for a shell; None where none was named.
    """
    return f'safedelete approve {run}{named(file)} --reason "..."'


def execute_command(run: str, file: str | None) -> str:
    """Return the command that executes a sealed plan, which no ledger alone can do: it needs the job file."""
    if file is None:
        return f"safedelete execute {run} --file FILE  (FILE: the job file that declares it)"
    return f"safedelete execute {run} --file {file}"


def run_command(job: str, file: str | None) -> str:
    """Return the command that runs a purge."""
    return f"safedelete run {file or 'FILE'} {quote(job)}"


def save_command(job: str, file: str | None) -> str:
    """Return the command that plans a purge anew and seals it."""
    return f"safedelete plan {file or 'FILE'} {quote(job)} --save"


def show_command(run: str, file: str | None, *, items: bool = False) -> str:
    """Return the command that tells of a run."""
    return f"safedelete show {run}{named(file)}{' --items' if items else ''}"


def named(file: str | None) -> str:
    """Return the option that names a job file, as it was named in the command that we answer."""
    return "" if file is None else f" --file {file}"


@contextmanager
def suggesting(file: str, job: Purge | None = None, run: str = "") -> Iterator[None]:
    """Add to a refusal the command that would accept it, or what has become of the definition it was made by.

    Args:
        file: The job file, quoted for a shell.
        job: The purge whose sealed plan is executed.
        run: The sealed run.
    """
    try:
        yield
    except StalePlanError as stale:
        if job is not None:
            explain(stale, job, run)
        raise
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
        moved = target.cutoff - earlier.cutoff
        way = "back" if moved < timedelta(0) else "on"
        was = (
            f"; last time {when(earlier.cutoff)}{_retention(earlier)}, so it moved {_span(abs(moved))} {way}"
        )
    yield f"  cutoff: {target.name} older than {when(target.cutoff)}{_retention(target)}{was}"


def _retention(target: TargetPlan) -> str:
    return f" ({length(target.period)})" if target.period else ""


def _definition(plan: Plan, before: Plan | None, last: RunRecord | None) -> Iterator[str]:
    if before is None or last is None:
        yield "  definition: no successful run to compare with; read the predicate above"
    elif before.fingerprint == plan.fingerprint:
        yield f"  definition: unchanged since run {last.run}"
    else:
        yield f"  definition: CHANGED since run {last.run}"
        for line in differences(before, plan):
            yield f"    {line}"


def _clock(plan: Plan, last: RunRecord | None, later: RunRecord | None) -> str:
    said = f"planned at {when(plan.as_of)}"
    if last is not None and last.plan is not None:
        said += f", {_span(plan.as_of - last.plan.as_of)} after the last successful run ({last.run})"
    if later is not None and later.plan is not None:
        ahead = _span(later.plan.as_of - plan.as_of)
        said += f"; but run {later.run} has succeeded at {when(later.plan.as_of)}, {ahead} LATER than that"
    return said


def _span(span: timedelta) -> str:
    """Return how long a span is, in the unit that tells most."""
    for unit, size in (("days", DAY), ("hours", timedelta(hours=1)), ("minutes", timedelta(minutes=1))):
        if span >= size:
            return f"{span / size:,.2f} {unit}"
    seconds = round(span.total_seconds())
    return f"{seconds} second{'s' * (seconds != 1)}"
