"""Reports as a person reads them: short tables, one sentence for the decision, and what to do next."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from textwrap import shorten

from tabulate import tabulate

from safedelete.cli.chart import chart, glyphs
from safedelete.cli.document import item_document
from safedelete.cli.look import (
    accept,
    acceptable,
    attention,
    execute_command,
    pictures,
    planned,
    run_command,
    save_command,
    seal,
    sentences,
    show_command,
    when,
)
from safedelete.cli.proven import proofs, rehearsed
from safedelete.cli.series import Series, series
from safedelete.core.decision import Approval, Approved, Decision, Finding, Refused
from safedelete.core.outcome import Tally
from safedelete.core.plan import Count, Plan, TargetPlan
from safedelete.core.run import RunState
from safedelete.core.say import refusing
from safedelete.core.status import Health
from safedelete.ledger.prune import Pruned
from safedelete.phases.parts import Progress, quiet
from safedelete.ports import Notice, RunRecord, StoredBatch
from safedelete.runner.context import APPROVAL_WINDOW
from safedelete.runner.report import Report

SHOWN = 20
"""Items listed without --items: enough to recognise what is wrong."""


def plan(report: Report, file: str | None = None) -> str:
    """Lay out a plan and its decision.

    Args:
        report: What ``wiring.plan`` returned.
        file: The job file, quoted for a shell; None where none was named.
    """
    assert report.plan is not None
    made = report.plan
    lines = _planned(made, report.decision, report.past)
    if report.proofs:
        lines += ["", proofs(report)]
    lines += ["", "Nothing was deleted."]
    if report.run is not None:
        state = report.state.value if report.state else ""
        lines.append(f"Sealed as run {report.run} ({state}, {report.sealed_bytes:,} bytes in the ledger).")
        if isinstance(report.decision, Refused):
            lines += accept(report.decision, report.run, file)
        else:
            lines.append(f"To delete exactly this: {execute_command(report.run, file)}")
    elif isinstance(report.decision, Refused):
        lines += seal(report.decision, file)
    else:
        lines.append(f"A run counts and decides anew: {run_command(made.job, file)}")
    return "\n".join(lines)


def _planned(made: Plan, decided: Decision | None, past: Sequence[RunRecord]) -> list[str]:
    lines = [f"{made.job}: plan as of {when(made.as_of)}", ""]
    for target in made.targets:
        lines += [_target(target), ""]
    lines += _charts(series(past, made, decided))
    return [*lines, decision(decided), *_looked_at(made, decided, past)]


def refusal(record: RunRecord, past: Sequence[RunRecord], file: str | None = None) -> str:
    """Lay out a run that the guard refused: the plan, why, what to look at, and how to accept it.

    Args:
        record: The refused run.
        past: The runs before it, newest first.
        file: The job file, quoted for a shell; None where none was named.
    """
    if record.plan is None:
        return ""
    lines = [*_planned(record.plan, record.decision, past), "", "Nothing was deleted."]
    if isinstance(record.decision, Refused):
        lines += accept(record.decision, record.run, file)
    return "\n".join(lines)


def result(report: Report, file: str | None = None) -> str:
    """Lay out how a run ended.

    Args:
        report: The run's; of a dry run, it has no state.
        file: The job file, quoted for a shell; None where none was named.
    """
    if report.state is None:
        said = report.message if report.plan is None else plan(report, file)
        return f"{said}\n\n{rehearsed(report, file)}"
    lines = [f"{report.job}: {report.state.value}{' (resumed)' if report.resumed else ''}. {report.message}"]
    if report.tally:
        lines += ["", _tallies(report.tally.items(), report.kind)]
    if report.plan is not None:
        lines += ["", decision(report.decision)]
    lines += [f"note: {note}" for note in report.notes]
    if report.sealed_bytes:
        lines += ["", f"Its sealed keys take {report.sealed_bytes:,} bytes in the ledger."]
    if report.run is not None:
        lines += ["", f"Run {report.run}; `{show_command(report.run, file)}` tells it again."]
    return "\n".join(lines)


def decision(made: Decision | None) -> str:
    """Say what the guard decided and why."""
    if made is None:
        return ""
    lines = [f"Guard: {_verdict(made)}."]
    lines += [f"  {measure.target}: {said}" for measure, said in sentences(made)]
    lines += [finding(one) for one in made.findings]
    if isinstance(made, Approved) and made.approval is not None:
        lines.append(
            f"  Accepted once by {made.approval.who}: {made.approval.reason}. {taught(made.approval)}"
        )
    return "\n".join(lines)


def _verdict(made: Decision) -> str:
    if isinstance(made, Refused):
        return f"REFUSED {refusing(made)}"
    if made.approval is not None:
        return f"refused [{', '.join(made.approval.codes)}], and accepted once"
    return "approved"


def taught(approval: Approval) -> str:
    """Say what an approved run teaches the guard."""
    return {
        0: "It never teaches the guard what is usual (--one-off).",
        1: "It enters the baseline as an ordinary run.",
        2: "It counts twice in the baseline (--usual).",
    }[approval.teaches]


def approval(made: Approval, file: str | None) -> str:
    """Say that a refused plan is accepted, and how it is executed."""
    return (
        f"Run {made.run} is approved once, until {made.expires_at:%Y-%m-%d %H:%M} UTC, by {made.who}.\n"
        f"Accepted: {', '.join(made.codes)}. {taught(made)} Nothing was deleted.\n"
        f"To execute exactly what was sealed: {execute_command(made.run, file)}"
    )


def _why(record: RunRecord) -> str:
    """Say in a few words why a run ended as it did, and who had accepted it."""
    made = record.decision
    if isinstance(made, Approved) and made.approval is not None:
        accepted = f"accepted by {made.approval.who}: {made.approval.reason}"
        return f"{accepted}; {record.reason}" if record.reason else accepted
    if isinstance(made, Refused):
        return f"{refusing(made)} {record.reason}".strip()
    return record.reason


def history(job: str, records: Sequence[RunRecord], *, limit: int) -> str:
    """List runs, newest first, below a chart of what each of them found.

    Args:
        job: The job's name.
        records: Its runs, newest first, as many as the chart may show.
        limit: Most runs listed.
    """
    if not records:
        return f"{job}: no runs yet."
    rows = []
    for record in records[:limit]:
        total = sum(record.tally.values(), Tally())
        rows.append(
            [
                record.run,
                when(record.started_at),
                record.state.value,
                "" if record.exit_code is None else record.exit_code,
                planned(record),
                total.deleted if record.tally else "",
                total.failed + total.unknown if record.tally else "",
                shorten(_why(record), 60, placeholder=" ..."),
            ]
        )
    done = "processed" if records[0].kind == "job" else "deleted"
    headers = ["run", "started (UTC)", "state", "exit", "planned", done, "failed", "why"]
    table = tabulate(rows, headers=headers, tablefmt="simple", intfmt=",", disable_numparse=[0])
    return "\n".join([job, *_charts(series(records)), table])


def pause(job: str, notice: Notice | None) -> str:
    """Say that a job is paused, by whom, why and since when."""
    if notice is None:
        return f"{job}: not paused."
    return f"{job}: paused since {when(notice.since)} by {notice.who}: {notice.reason}."


def pruned(one: Pruned, *, dry_run: bool) -> str:
    """Say what the ledger has forgotten, or would."""
    verb = "Would forget" if dry_run else "Forgot"
    return (
        f"{verb} {one.runs:,} run(s), and the sealed keys of {one.seals:,} more that the guard still learns from: "
        f"{one.batches:,} batch(es) in all. {one.kept:,} run(s) stay. No row and no object of yours was touched."
    )


def status(found: Sequence[Health], pauses: Mapping[str, Notice | None]) -> str:
    """List how jobs stand, and below what is wrong, job by job."""
    rows = [
        [
            one.job,
            one.word.upper() if one.problems else one.word,
            when(one.succeeded_at) if one.succeeded_at else "never",
            "" if one.last is None else f"{one.last.state.value} {one.last.run}",
            when(one.due) if one.due else "",
        ]
        for one in found
    ]
    headers = ["job", "health", "last success (UTC)", "last run", "next success due by (UTC)"]
    lines = [tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)]
    lines += [f"{one.job}: {problem.kind}: {problem.message}." for one in found for problem in one.problems]
    lines += [pause(name, notice) for name, notice in pauses.items() if notice is not None]
    return "\n".join(lines)


def run(
    record: RunRecord,
    approval: Approval | None,
    past: Sequence[RunRecord] = (),
    file: str | None = None,
    now: datetime | None = None,
) -> str:
    """Lay out one recorded run, as it was decided then.

    Args:
        record: The run.
        approval: Its approval.
        past: The runs before it, newest first.
        file: The job file, quoted for a shell; None where none was named.
        now: The instant, aware; without it, a run that waits is taken to be young enough to be executed.
    """
    lines = [
        f"Run {record.run} of {record.job}: {record.state.value}",
        f"started {when(record.started_at)} by {record.owner}"
        + (f", ended {when(record.finished_at)}" if record.finished_at else ""),
    ]
    if record.task:
        lines.append(f"as {record.task}")
    if record.exit_code is not None:
        lines.append(f"exit code {record.exit_code}")
    if record.reason:
        lines.append(record.reason)
    if record.plan is not None:
        lines.append("")
        for target in record.plan.targets:
            lines += [_target(target), ""]
        lines.append(decision(record.decision))
        lines += _looked_at(record.plan, record.decision, past)
    if approval is not None:
        lines.append(
            f"Approval by {approval.who} until {when(approval.expires_at)}: {approval.reason}. {taught(approval)}"
        )
    if record.tally:
        lines += ["", _tallies(record.tally.items(), record.kind)]
    if record.sealed_bytes:
        lines.append(f"Its sealed keys take {record.sealed_bytes:,} bytes in the ledger.")
    return "\n".join(lines + _waits(record, approval, file, now))


def _waits(record: RunRecord, approval: Approval | None, file: str | None, now: datetime | None) -> list[str]:
    """Say what can still be done with a plan that was laid aside; of any other run there is nothing to say."""
    if record.state not in {RunState.PENDING, RunState.REFUSED, RunState.EXPIRED} or record.decision is None:
        return []
    lines = ["", "Nothing was deleted."]
    refused = isinstance(record.decision, Refused)
    over = now is not None and now >= record.started_at + APPROVAL_WINDOW
    if (over or record.state is RunState.EXPIRED) and (not refused or acceptable(record.decision)):
        waited = "an approval" if refused and approval is None else "its execution"
        lines.append(f"It waited for {waited} for 24 hours, and that is over. To plan again:")
        return [*lines, f"    {save_command(record.job, file)}"]
    if refused and not (approval is not None and (now is None or now < approval.expires_at)):
        return lines + accept(record.decision, record.run, file)
    return [*lines, f"To execute exactly what was sealed: {execute_command(record.run, file)}"]


def items(
    record: RunRecord, batches: Iterator[StoredBatch], file: str | None = None, *, everything: bool
) -> Iterator[str]:
    """List sealed items with what became of them; those that were not deleted unless ``everything``."""
    listed = 0
    for stored in batches:
        for item in item_document(record, stored):
            if not everything and item["outcome"] in ("deleted", "pending"):
                continue
            listed += 1
            if not everything and listed > SHOWN:
                yield f"... and more; `{show_command(record.run, file, items=True)}` lists every item."
                return
            key = ", ".join(str(part) for part in item["key"])
            objects = " ".join(item["objects"])
            why = " ".join(part for part in (item["code"], item["detail"]) if part)
            yield f"{item['outcome']:<9} {item['target']} {key} {objects}{': ' + why if why else ''}".rstrip()


@contextmanager
def progress() -> Iterator[Progress]:
    """Draw progress bars on a terminal; say nothing elsewhere, where log lines tell."""
    if not sys.stderr.isatty():
        yield quiet
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks = {}

        def told(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase, total=total)
            bars.update(tasks[phase], completed=done, total=total)

        yield told


def _looked_at(made: Plan, decided: Decision | None, past: Sequence[RunRecord]) -> list[str]:
    if isinstance(decided, Refused):
        return attention(made, decided, past)
    return pictures(made, decided)


def _charts(drawn: Sequence[Series]) -> list[str]:
    shape = glyphs(sys.stdout.encoding, os.environ.get("TERM"))
    lines: list[str] = []
    for one in drawn:
        if body := chart(one, shape):
            lines += [*body, ""]
    return lines


def _target(target: TargetPlan) -> str:
    rows = [
        ["items this run", _count(target.items)],
        ["eligible", f"{_count(target.eligible)} of {_count(target.total)}"],
        ["objects", _count(target.objects)],
    ]
    if target.conditional:
        rows.append(["deleted only if unchanged", _count(target.conditional)])
    if target.bytes is not None:
        rows.append(["bytes", _count(target.bytes)])
    if target.cutoff is not None:
        rows.append(["older than", when(target.cutoff)])
    if target.nulls:
        rows.append(["without a time (kept)", _count(target.nulls)])
    if target.late:
        rows.append(["became eligible out of time", _count(target.late)])
    rows += [[f"{c.action} in {c.table}", _count(c.rows)] for c in target.cascades]
    rows.append(["where", target.statement])
    rows += [[f"  :{name}", value] for name, value in target.parameters.items()]
    if target.first:
        rows += [["first", target.first], ["last", target.last]]
    rows += [["for example", one] for one in target.sample if one not in (target.first, target.last)]
    rows += [["note", note] for note in target.notes]
    return f"{target.name}\n" + tabulate(rows, tablefmt="plain", disable_numparse=True)


def finding(one: Finding) -> str:
    """Say one finding, with what to do."""
    text = f"  [{one.code}] {'' if one.severity == 'refuse' else 'warning: '}{one.message}"
    return text + (f"\n          {one.hint}" if one.hint else "")


def _tallies(tallies: Iterable[tuple[str, Tally]], kind: str) -> str:
    if kind == "job":
        done = [[name, t.deleted, t.failed] for name, t in tallies]
        return tabulate(done, headers=["job", "processed", "failed"], tablefmt="simple", intfmt=",")
    rows = [
        [name, t.deleted, t.gone, t.changed, t.blocked, t.failed, t.unknown, t.total] for name, t in tallies
    ]
    headers = ["target", "deleted", "gone", "changed", "blocked", "failed", "unknown", "sum"]
    return tabulate(rows, headers=headers, tablefmt="simple", intfmt=",")


def _count(count: Count) -> str:
    return f"{count:,}" if isinstance(count, int) else str(count)
