"""The verbs. Each one loads the job file, calls a function of ``wiring``, and prints what it returns."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

import typer

from safedelete.cli import operate
from safedelete.cli.arguments import File, FromFile, Json, Name, Names, Run
from safedelete.cli.common import (
    chosen,
    echo,
    end,
    every_job,
    load,
    needed,
    print_json,
    print_json_of,
    purges,
    raise_first,
    said,
    show_ledger,
    show_refused,
    show_report,
    work,
)
from safedelete.cli.definition import hold_definition
from safedelete.cli.drift import drift
from safedelete.cli.reconcile import reconcile
from safedelete.cli.render import render
from safedelete.errors import ConfigError, RefusedError, SafeDeleteError

app = typer.Typer(
    name="safedelete",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Purges, sweeps and backups that cannot fail quietly: plan, guard, preflight, execute, verify.",
)


def _version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version as installed

        echo(installed("safedelete-purge"))
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also log every batch.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=lambda wanted: _version(wanted=wanted),
        ),
    ] = False,
) -> None:
    """Purges, sweeps and backups that cannot fail quietly: plan, guard, preflight, execute, verify."""
    if debug:
        os.environ["SAFEDELETE_DEBUG"] = "1"
    chosen.verbose = verbose


@app.command()
def version() -> None:
    """Print the version."""
    _version(wanted=True)


@app.command()
def init(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The job file: its databases and buckets are bound."),
    ] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Bind the ledger anew, though it belongs to something else.")
    ] = False,
    environment: Annotated[
        str | None,
        typer.Option("--environment", help="Name of this environment; else $SAFEDELETE_ENVIRONMENT."),
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the DDL and change nothing.")] = False,
) -> None:
    """Create the ledger's tables and bind them to this environment. A deploy step."""
    wiring = work()

    jobs = list(load(file).jobs.values()) if file is not None else []
    if sql:
        # For a database, not for a person; and every word of it is ours.
        sys.stdout.write(wiring.init_sql(jobs))
        return
    show_ledger(wiring.init(jobs, adopt=adopt, environment=environment), jobs, file)


@app.command()
def check(
    file: File,
    names: Names = None,
    platform: Annotated[
        Literal["ecs", "kubernetes", "systemd"] | None,
        typer.Option("--platform", help="Where the jobs will run, for the rules about that."),
    ] = None,
    stop_timeout: Annotated[
        float | None,
        typer.Option(
            "--stop-timeout",
            metavar="SECONDS",
            min=0,
            help="What it leaves between SIGTERM and SIGKILL; else the platform's default.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Lint the jobs and prove what they need: ledger, lock, permissions. For the deploy pipeline; keeps nothing.

    Deletes nothing of yours. Where require_conditional= is declared, it puts an object .safedelete-canary-… and removes it.
    """
    wiring = work()
    from safedelete.cli import proven, text
    from safedelete.cli.document import error_document, plain, report_document

    loaded = load(file)
    picked = loaded.pick(names or [])
    deployment = wiring.Deployment(
        platform,
        None if stop_timeout is None else timedelta(seconds=stop_timeout),
    )
    reports, failed = [], []
    for job in picked:
        try:
            reports.append(wiring.check(job, deployment=deployment))
        except SafeDeleteError as error:
            # The other jobs' answers are wanted all the same; this one's is told below.
            failed.append((job.name, error))
    findings = [finding for report in reports for finding in report.lint]
    if as_json:
        print_json(
            {
                "permissions": [report_document(report) for report in reports],
                "lint": [plain(finding) for finding in findings],
                "unchecked": [{"job": name} | error_document(trouble) for name, trouble in failed],
            }
        )
    else:
        for report in reports:
            echo(proven.proofs(report))
        for finding in findings:
            echo(text.finding(finding))
        echo(f"{len(reports)} of {len(picked)} job(s) checked and probed. Nothing was deleted.")
    raise_first(failed, of=len(picked))
    broken = [finding.code for finding in findings if finding.severity == "refuse"]
    if broken:
        raise ConfigError(
            f"{file}: {', '.join(broken)} must be repaired before this is deployed.",
            hint="Each has its section in docs/reference/findings.md.",
        )
    end(reports)


@app.command()
def plan(
    file: File,
    names: Names = None,
    as_json: Json = False,
    save: Annotated[
        bool, typer.Option("--save", help="Seal the exact keys for review; `execute RUN` deletes them.")
    ] = False,
    preflight: Annotated[bool, typer.Option("--preflight", help="Also prove permissions.")] = False,
    manifest: Annotated[
        Path | None,
        typer.Option("--manifest", metavar="PATH", help="Write every planned item, one JSON line each."),
    ] = None,
) -> None:
    """Count what would go, and decide. Deletes nothing; writes the ledger with --save alone.

    With --preflight, where require_conditional= is declared, it puts an object .safedelete-canary-… and removes it.
    """
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import report_document

    reports = []
    picked = load(file).pick(names or [])
    wanted = purges(picked)
    others = [job.name for job in picked if job not in wanted]
    if names and others:
        raise ConfigError(
            f"{', '.join(others)}: a function, not a purge; there is nothing to plan.",
            hint=f"Name a purge. `safedelete run {quote(str(file))} {others[0]} --dry-run` calls a function with dry_run set.",
        )
    if manifest is not None and len(wanted) != 1:
        raise ConfigError(
            f"--manifest writes one purge's items; {len(wanted)} are named.",
            hint=f"Name one: safedelete plan {quote(str(file))} NAME --manifest {quote(str(manifest))}",
        )
    for purge in wanted:
        with text.progress() as progress:
            report = wiring.plan(purge, save=save, preflight=preflight, manifest=manifest, progress=progress)
        reports.append(report)
        if not as_json:
            echo(("\n" if reports[1:] else "") + text.plan(report, quote(str(file))))
    if as_json:
        print_json([report_document(report) for report in reports])
    else:
        for name in others:
            echo(f"{name}: a function, not a purge; there is nothing to plan.")
    end(reports)


@app.command()
def run(
    file: File,
    name: Name = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Plan, decide, prove permissions; then stop.")
    ] = False,
    manifest: Annotated[
        Path | None,
        typer.Option(
            "--manifest", metavar="PATH", help="Write every planned item before anything is deleted."
        ),
    ] = None,
    expect_revision: Annotated[
        str | None,
        typer.Option(
            "--expect-revision",
            metavar="FAMILY:N",
            help="On ECS: run only as this revision of the task definition, and from the job file it was rendered from.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a job: the whole of it, under lock, deadline and guard. Deletes."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.look import suggesting
    from safedelete.cli.signals import listening

    declared = load(file)
    job = declared.one(name)
    if expect_revision is not None:
        wiring.require_revision(expect_revision, job.name, declared.jobs)
    hold_definition(job, required=expect_revision is not None)
    try:
        with suggesting(quote(str(file))), listening(job) as asked, text.progress() as progress:
            report = wiring.run(job, dry_run=dry_run, asked=asked, progress=progress, manifest=manifest)
    except RefusedError as refused:
        if refused.run is not None:
            show_refused(job, refused.run, file, as_json=as_json)
        raise
    show_report(report, job, file, as_json=as_json)


@app.command()
def execute(run: Run, file: FromFile = None, as_json: Json = False) -> None:
    """Execute one sealed plan, once: a saved one, or a refused one that was approved. Deletes."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.look import suggesting
    from safedelete.cli.signals import listening

    path = needed(file)
    job = wiring.owner_of(load(path).jobs.values(), run)
    hold_definition(job, required=False)
    with suggesting(quote(str(path)), job, run), listening(job) as asked, text.progress() as progress:
        report = wiring.execute(job, run, asked=asked, progress=progress)
    show_report(report, job, file, as_json=as_json)


@app.command()
def approve(
    run: Run,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the run.")],
    file: FromFile = None,
    one_off: Annotated[
        bool, typer.Option("--one-off", help="The run never teaches the guard what is usual.")
    ] = False,
    usual: Annotated[
        bool, typer.Option("--usual", help="The run counts twice: this is what is usual now.")
    ] = False,
    expires_in: Annotated[
        float, typer.Option("--expires-in", metavar="HOURS", help="Hours until the approval ends.")
    ] = 24.0,
) -> None:
    """Accept one refused plan, once: exactly the keys that were sealed. Deletes nothing."""
    wiring = work()

    if one_off and usual:
        raise ConfigError("--one-off and --usual contradict each other.", hint="Say one of them, or neither.")
    if not reason.strip():
        raise ConfigError("--reason is empty.", hint="Say why this plan is right; it is kept with the run.")
    longest = wiring.APPROVAL_WINDOW / timedelta(hours=1)
    if not 0 < expires_in <= longest:
        raise ConfigError(
            f"--expires-in {expires_in:g}: must be above 0 and at most {longest:g} hours.",
            hint="What is sealed is dropped by then. Later, let the next run plan anew and approve that.",
        )
    teaches: Literal[0, 1, 2] = 0 if one_off else 2 if usual else 1
    approval = wiring.approve(
        every_job(file), run, reason=reason.strip(), expires_in=timedelta(hours=expires_in), teaches=teaches
    )
    from safedelete.cli import text

    echo(text.approval(approval, said(file)))


@app.command()
def history(
    file: File,
    name: Name = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most runs of each job.")] = 20,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="PATH", help="Write one page with charts and the list of runs."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List past runs, and draw what they found. Deletes nothing."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import record_document
    from safedelete.runner.context import DRAWN

    if html is not None and as_json:
        raise ConfigError("--html and --json contradict each other.", hint="Ask for one of them.")
    jobs = load(file).pick([name] if name else [])
    if as_json:
        found = [record for job in jobs for record in wiring.history(job, limit=limit)]
        print_json([record_document(record) for record in found])
        return
    drawn = [(job, wiring.history(job, limit=max(limit, DRAWN))) for job in jobs]
    if html is not None:
        from safedelete.cli.page import write_page

        write_page(html, [(job.name, records) for job, records in drawn])
        runs = sum(len(records) for _, records in drawn)
        echo(f"Wrote {html}: {len(drawn)} job(s), {runs} run(s). Nothing was deleted.")
        return
    for place, (job, records) in enumerate(drawn):
        echo(("\n" if place else "") + text.history(job.name, records, limit=limit))
        if (notice := wiring.paused(job)) is not None:
            echo(text.pause(job.name, notice))


@app.command()
def show(
    run: Run,
    file: FromFile = None,
    items: Annotated[
        bool,
        typer.Option("--items", help="Every sealed item with what became of it; else those that did not go."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show one run: plan, findings, decision, outcomes. Deletes nothing."""
    wiring = work()
    from safedelete.cli import text
    from safedelete.cli.document import item_document, record_document

    jobs = every_job(file)
    with wiring.shown(jobs, run) as (record, approval, batches):
        if as_json:
            print_json_of(
                record_document(record, approval),
                "items",
                (
                    item
                    for stored in batches
                    for item in item_document(record, stored)
                    if items or item["outcome"] not in ("deleted", "pending")
                ),
            )
            return
        _, past = wiring.story(jobs, record.run)
        echo(text.run(record, approval, past, said(file), datetime.now(UTC)))
        for line in text.items(record, batches, said(file), everything=items):
            echo(line)


operate.register(app)
app.command()(render)
app.command()(drift)
app.command()(reconcile)
