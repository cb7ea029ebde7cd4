"""The verbs of the command line, as functions: each connects, calls the runner, and disconnects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import structlog

from safedelete.core.decision import Approval, Finding
from safedelete.core.item import ObjectRef
from safedelete.core.plan import Plan
from safedelete.declare import Declared, Job, Purge
from safedelete.errors import (
    AmbiguousRunError,
    ConfigError,
    ExitCode,
    LedgerError,
    NoSuchRunError,
    SafeDeleteError,
    StoreError,
)
from safedelete.ledger.store import SqlLedger
from safedelete.phases.manifest import write_manifest
from safedelete.phases.parts import Progress, RowPart, quiet
from safedelete.phases.preflight import first_objects, prove
from safedelete.phases.seal import pages
from safedelete.ports import Binding, RunRecord, StoredBatch
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.runner.context import APPROVAL_WINDOW, DRAWN, HISTORY, PurgeContext
from safedelete.runner.function import FunctionContext, run_function
from safedelete.runner.pause import cancellation
from safedelete.runner.report import Report
from safedelete.runner.stop import Asked, deadline, nobody
from safedelete.sql.boot import refusing_ddl
from safedelete.sql.engine import Database
from safedelete.sql.rows import SqlRows
from safedelete.wiring.connect import (
    caller_of,
    context_of,
    ledger_opened,
    new_owner,
    new_run,
    one_for_each_ledger,
    opened,
)
from safedelete.wiring.lint import Deployment, lint_jobs
from safedelete.wiring.lock import lock_of
from safedelete.wiring.settings import Settings, SystemClock
from safedelete.wiring.task import described
from safedelete.wiring.telling import Passing, Telling, proofs_of, told
from safedelete.wiring.unfinished import working

log = structlog.get_logger("safedelete.run")


def plan(
    purge: Purge,
    *,
    save: bool = False,
    preflight: bool = False,
    manifest: Path | None = None,
    progress: Progress = quiet,
) -> Report:
    """Count what a purge would delete now, and decide. Reads only, unless ``save`` seals the plan for review.

    Args:
        purge: The purge.
        save: Seal the exact keys in the ledger, for ``execute``.
        preflight: Also prove permissions, by methods that change nothing that was there; where ``require_conditional`` is
            declared, a canary is put and removed.
        manifest: Write every planned item to this file, one JSON object a line; with ``save`` exactly the sealed ones.
        progress: Told how far it is.
    """
    with context_of(purge, progress=progress) as ctx:
        report = runner.save(ctx) if save else runner.plan(ctx, with_proofs=preflight)
        if manifest is not None and report.plan is not None:
            made = report.plan
            sealed = report.run is not None and made.digest is not None
            write_manifest(
                manifest,
                ctx.sealed_pages(made, report.run)
                if sealed and report.run is not None
                else ((part.target.name, page) for part in ctx.parts for page in pages(made, part)),
            )
        return report


def run(
    job: Declared,
    *,
    dry_run: bool = False,
    manifest: Path | None = None,
    asked: Asked = nobody,
    progress: Progress = quiet,
) -> Report:
    """Run a job once, under its lock and deadline. Deletes, unless ``dry_run``.

    Installs no signal handler and never ends the process: ``asked`` says whether the host wants it to stop.

    Args:
        job: A purge or a function job.
        dry_run: Plan, decide and prove permissions, then stop.
        manifest: Write every sealed item to this file before anything is deleted.
        asked: Returns why a stop was asked for, or None.
        progress: Told how far it is.

    Raises:
        ConfigError: ``manifest`` is given where nothing is sealed.
    """
    if manifest is not None and (dry_run or not isinstance(job, Purge)):
        what = "A dry run" if dry_run else f"{job.name} is a function, and"
        raise ConfigError(
            f"{what} seals nothing, so there is no manifest to write.",
            hint="`safedelete plan FILE NAME --manifest PATH` writes what a purge would delete.",
        )
    settings, clock = Settings.read(), SystemClock()
    if dry_run:
        return _dry_run(job, Passing(job, settings, clock), asked=asked, progress=progress)
    telling = Telling(job, settings, clock)
    with told(telling) as reports:
        if isinstance(job, Purge):
            with (
                refusing_ddl(job.name, allowed=job.allow_ddl),
                context_of(job, asked=asked, progress=progress, manifest=manifest, teller=telling) as ctx,
                telling.remembering(ctx.ledger),
            ):
                reports.append(runner.run(ctx))
        else:
            reports.append(_run_function(job, telling, dry_run=False, asked=asked))
    return reports[0]


def _dry_run(job: Declared, telling: Telling, *, asked: Asked, progress: Progress) -> Report:
    if isinstance(job, Purge):
        with (
            refusing_ddl(job.name, allowed=job.allow_ddl),
            context_of(job, asked=asked, progress=progress, teller=telling) as ctx,
        ):
            return runner.dry_run(ctx)
    return _run_function(job, telling, dry_run=True, asked=asked)


def _run_function(job: Job, telling: Telling, *, dry_run: bool, asked: Asked) -> Report:
    settings, clock = Settings.read(), SystemClock()
    owner = new_owner()
    with (
        opened(settings, job) as (database, ledger),
        working(job.name, owner, ledger, clock, telling),
        telling.remembering(ledger),
    ):
        lock, _ = lock_of(job, database, ledger, settings, clock)
        return run_function(
            FunctionContext(
                job=job,
                ledger=ledger,
                lock=lock,
                clock=clock,
                new_run=lambda: new_run(clock),
                owner=owner,
                binding=Binding(settings.environment, frozenset({database.identity}), frozenset()),
                stop=deadline(
                    clock, job.timeout, job.grace, asked, cancellation(ledger, job.name, owner, clock)
                ),
                task=described(settings.revision),
                guard=lambda: refusing_ddl(job.name, allowed=job.allow_ddl),
                lease_seconds=settings.lease_seconds,
                teller=telling,
            ),
            dry_run=dry_run,
        )


def execute(purge: Purge, run: str, *, asked: Asked = nobody, progress: Progress = quiet) -> Report:
    """Execute one sealed plan, once. Deletes."""
    telling = Telling(purge, Settings.read(), SystemClock())
    with (
        told(telling) as reports,
        refusing_ddl(purge.name, allowed=purge.allow_ddl),
        context_of(purge, asked=asked, progress=progress, teller=telling) as ctx,
        telling.remembering(ctx.ledger),
    ):
        reports.append(runner.execute_sealed(ctx, run))
    return reports[0]


def check(job: Declared, *, deployment: Deployment | None = None) -> Report:
    """Lint a job, and prove that it can run: its lock, its ledger, and a purge's permissions on objects of its first page.

    Keeps and deletes nothing. Where ``require_conditional`` is declared, a canary is put and removed.

    Args:
        job: A purge or a function job.
        deployment: Where it will run, for the rules about platforms.

    Returns:
        The report: ``lint`` has what is wrong with the definition, ``proofs`` every permission. ``exit_code`` is 2 when a
        lint rule refuses, else 9 when a permission is missing, the lock cannot be taken or a sink's place is not there.
    """
    settings = Settings.read()
    lint: tuple[Finding, ...]
    made: Plan | None = None
    if isinstance(job, Purge):
        with context_of(job) as ctx:
            ctx.ledger.verify(ctx.setting.binding)
            lint = lint_jobs([job], deployment)
            made = ctx.survey()
            proofs = [*ctx.ledger.probe(), *prove(made.as_of, ctx.probers(), _known_objects(ctx, made))]
    else:
        clock = SystemClock()
        with opened(settings, job) as (database, ledger):
            ledger.verify(Binding(settings.environment, frozenset({database.identity}), frozenset()))
            lint = lint_jobs([job], deployment)
            _, probers = lock_of(job, database, ledger, settings, clock)
            proofs = [*ledger.probe(), *prove(clock.now(), probers, [])]
    proofs += proofs_of(settings)
    broken = any(finding.severity == "refuse" for finding in lint)
    clear = not any(proof.stops for proof in proofs)
    code = ExitCode.USAGE if broken else ExitCode.DONE if clear else ExitCode.PREFLIGHT
    return Report(job=job.name, kind=job.kind, plan=made, proofs=tuple(proofs), lint=lint, exit_code=code)


def _known_objects(ctx: PurgeContext, made: Plan) -> list[ObjectRef]:
    """Return objects to probe beside: eligible ones, else any that a table's rows name, so that a quiet day proves as much."""
    found: list[ObjectRef] = []
    for part in ctx.parts:
        mine = list(first_objects(pages(made, part)).sample())
        if not mine and isinstance(part, RowPart) and isinstance(part.target, SqlRows):
            mine = part.target.examples()
        found += mine
    return found


Where = Declared | Sequence[Declared] | None
"""Whose ledger: a job's, those of several jobs, or the environment's."""


@contextmanager
def found(where: Where, run: str) -> Iterator[tuple[Database, SqlLedger, RunRecord]]:
    """Open the ledger that a run is recorded in; looks in every one there is."""
    settings = Settings.read()
    jobs: list[Declared | None] = list(where) if isinstance(where, Sequence) else [where]
    holders: dict[str, Declared | None] = {}
    missing: NoSuchRunError | None = None
    trouble: SafeDeleteError | None = None
    for job in one_for_each_ledger(jobs, settings):
        try:
            with ledger_opened(settings, job) as (_, ledger):
                ledger.binding()
                holders[ledger.record(run).run] = job
        except NoSuchRunError as error:
            missing = error
        except (LedgerError, StoreError) as error:
            trouble = trouble or error
    whole = [holder for holder in holders if holder == run.upper()]
    if len(holders) > 1:
        raise AmbiguousRunError(
            f"There is more than one run whose id begins with {run!r}.",
            hint="`safedelete history FILE` lists them.",
        )
    # A beginning may be that of another run, too, in the ledger that could not be read.
    if trouble is not None and not whole:
        raise trouble
    if missing is not None and not holders:
        raise missing
    ((name, job),) = holders.items()
    with ledger_opened(settings, job) as (database, ledger):
        yield database, ledger, ledger.record(name)


def approve(
    job: Where,
    run: str,
    *,
    reason: str,
    expires_in: timedelta = APPROVAL_WINDOW,
    teaches: Literal[0, 1, 2] = 1,
) -> Approval:
    """Accept one refused plan, once. Writes to the ledger; deletes nothing.

    Args:
        job: A job in whose ledger the run is, or all that it may be of; None for the environment's ledger.
        run: The run's id, or a unique beginning of it.
        reason: Why; kept with the run.
        expires_in: How long the approval lasts, at most as long as the sealed plan: 24 hours.
        teaches: How often the run counts for what is usual.
    """
    with found(job, run) as (database, ledger, record):
        who = caller_of(database)
        return review.approve(
            ledger, SystemClock(), record.run, reason=reason, who=who, expires_in=expires_in, teaches=teaches
        )


def history(job: Declared, *, limit: int = 20) -> Sequence[RunRecord]:
    """Return a job's newest runs, newest first. Reads only."""
    with ledger_opened(Settings.read(), job) as (_, ledger):
        ledger.binding()
        return ledger.runs(job.name, limit=limit)


def story(job: Where, run: str) -> tuple[RunRecord, Sequence[RunRecord]]:
    """Return a run with the runs of its job before it, newest first. Reads only."""
    with found(job, run) as (_, ledger, record):
        try:
            runs = ledger.runs(record.job, limit=HISTORY)
        except LedgerError as error:
            # One damaged row must not keep another from being looked at.
            log.warning("earlier runs cannot be shown", job=record.job, error=str(error))
            return record, ()
        return record, [r for r in runs if (r.started_at, r.run) < (record.started_at, record.run)][:DRAWN]


def owner_of(jobs: Iterable[Declared], run: str) -> Purge:
    """Return the purge that a recorded run is of. Reads only.

    Raises:
        ConfigError: The job file declares no such purge.
        LedgerError: There is no such run.
    """
    known = list(jobs)
    job = declared_of(known, run)
    if not isinstance(job, Purge):
        raise ConfigError(
            f"Run {run} is of {job.name!r}, which the job file does not declare as a purge.",
            hint=f"It declares: {', '.join(job.name for job in known)}.",
        )
    return job


def declared_of(jobs: Sequence[Declared], run: str) -> Declared:
    """Return the job that a recorded run is of. Reads only.

    Raises:
        ConfigError: The job file declares no such job.
        LedgerError: There is no such run.
    """
    with found(jobs, run) as (_, _, record):
        pass
    for job in jobs:
        if job.name == record.job and job.kind == record.kind:
            return job
    raise ConfigError(
        f"Run {record.run} is of {record.job!r}, which the job file does not declare as a {record.kind}.",
        hint=f"It declares: {', '.join(job.name for job in jobs)}.",
    )


def show(job: Where, run: str) -> RunRecord:
    """Return one recorded run with its plan, decision and outcome sums. Reads only.

    Args:
        job: A job in whose ledger the run is, or all that it may be of; None for the environment's ledger.
        run: The run's id, or a unique beginning of it.

    Raises:
        LedgerError: There is no such run, or more than one.
    """
    with found(job, run) as (_, _, record):
        return record


@contextmanager
def shown(job: Where, run: str) -> Iterator[tuple[RunRecord, Approval | None, Iterator[StoredBatch]]]:
    """Open one run with its approval and its batches. Reads only."""
    with found(job, run) as (_, ledger, record):
        yield record, ledger.approval(record.run), ledger.batches(record.run)
