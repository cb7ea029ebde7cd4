"""The verbs of the command line, as functions: each connects, calls the runner, and disconnects."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Literal

import structlog

from safedelete.core.decision import Approval
from safedelete.declare import Declared, Job, Purge
from safedelete.errors import ConfigError, ExitCode, LedgerError
from safedelete.ledger.setup import create, ddl, initialise
from safedelete.ledger.tables import metadata as ledger_tables
from safedelete.locks.lease import LeaseLock
from safedelete.locks.lease import metadata as lease_tables
from safedelete.phases.manifest import write_manifest
from safedelete.phases.parts import Progress, quiet
from safedelete.phases.seal import pages
from safedelete.ports import Binding, RunRecord, StoredBatch, Verdict
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.runner.context import APPROVAL_WINDOW, DRAWN, HISTORY
from safedelete.runner.function import FunctionContext, run_function
from safedelete.runner.report import Report
from safedelete.runner.stop import Asked, deadline, nobody
from safedelete.wiring.connect import buckets_of, context_of, new_run, opened
from safedelete.wiring.settings import Settings, SystemClock

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
        preflight: Also prove permissions, by methods that change nothing.
        manifest: Write every planned item to this file, one JSON object a line.
        progress: Told how far it is.
    """
    with context_of(purge, progress=progress) as ctx:
        report = runner.save(ctx) if save else runner.plan(ctx, with_proofs=preflight)
        if manifest is not None and report.plan is not None:
            made = report.plan
            write_manifest(
                manifest, ((part.target.name, page) for part in ctx.parts for page in pages(made, part))
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
    """
    if isinstance(job, Purge):
        with context_of(job, asked=asked, progress=progress, manifest=manifest) as ctx:
            return runner.dry_run(ctx) if dry_run else runner.run(ctx)
    return _run_function(job, dry_run=dry_run, asked=asked)


def _run_function(job: Job, *, dry_run: bool, asked: Asked) -> Report:
    settings, clock = Settings.read(), SystemClock()
    host, pid = socket.gethostname(), os.getpid()
    with opened(settings, job) as (database, ledger):
        lock = LeaseLock(
            ledger.engine, ledger.database, clock=clock, seconds=settings.lease_seconds, host=host, pid=pid
        )
        return run_function(
            FunctionContext(
                job=job,
                ledger=ledger,
                lock=lock,
                clock=clock,
                new_run=lambda: new_run(clock),
                owner=f"{host}:{pid}:{secrets.token_hex(4)}",
                binding=Binding(settings.environment, frozenset({database.identity}), frozenset()),
                stop=deadline(clock, job.timeout, job.grace, asked),
            ),
            dry_run=dry_run,
        )


def execute(purge: Purge, run: str, *, asked: Asked = nobody, progress: Progress = quiet) -> Report:
    """Execute one sealed plan, once. Deletes."""
    with context_of(purge, asked=asked, progress=progress) as ctx:
        return runner.execute_sealed(ctx, run)


def check(purge: Purge) -> Report:
    """Prove every permission a purge needs, on the objects of its first page. Keeps nothing, deletes nothing."""
    with context_of(purge) as ctx:
        ctx.ledger.verify(ctx.setting.binding)
        made = ctx.survey()
        proofs = (*ctx.ledger.probe(), *ctx.prove(made))
        clear = all(proof.verdict is Verdict.ALLOWED for proof in proofs)
        return Report(
            job=purge.name, plan=made, proofs=proofs, exit_code=ExitCode.DONE if clear else ExitCode.PREFLIGHT
        )


def init(jobs: Sequence[Declared], *, adopt: bool = False, environment: str | None = None) -> Sequence[str]:
    """Create the ledger's and the lease's tables, and bind the ledger. A deploy step; deletes nothing.

    Args:
        jobs: The job file's; their databases and buckets are bound.
        adopt: Bind it anew though it belongs to something else.
        environment: Name of the environment; else ``$SAFEDELETE_ENVIRONMENT``.

    Raises:
        ConfigError: Neither names the environment.
    """
    settings = Settings.read()
    named = (environment or "").strip() or settings.environment
    if not named:
        # The name is all that tells a physical copy (a snapshot, a base backup) from its original.
        raise ConfigError(
            "The ledger cannot be bound: the environment has no name.",
            hint="Set SAFEDELETE_ENVIRONMENT, to `production` for example, here and wherever safedelete runs; "
            "`init --environment NAME` binds a ledger for elsewhere.",
        )
    created: list[str] = []
    identities: set[str] = set()
    for job in jobs or [None]:  # type: ignore[list-item]  # without a job file: the databases of the environment
        with opened(settings, job, may_create=True) as (database, ledger):
            identities.add(database.identity)
            created += create(database.engine, lease_tables)
            if ledger.database != database.identity:
                created += create(ledger.engine, lease_tables)
    with opened(settings, jobs[0] if jobs else None, may_create=True) as (_, ledger):
        binding = Binding(named, frozenset(identities), buckets_of(jobs))
        created += initialise(ledger.engine, binding, adopt=adopt)
    return list(dict.fromkeys(created))


def init_sql(jobs: Sequence[Declared]) -> str:
    """Return the DDL that ``init`` would emit."""
    with opened(Settings.read(), jobs[0] if jobs else None, may_create=True) as (_, ledger):
        return ddl(ledger.engine, ledger_tables, lease_tables)


def approve(
    job: Declared | None,
    run: str,
    *,
    reason: str,
    expires_in: timedelta = APPROVAL_WINDOW,
    teaches: Literal[0, 1, 2] = 1,
) -> Approval:
    """Accept one refused plan, once. Writes to the ledger; deletes nothing."""
    with opened(Settings.read(), job) as (database, ledger):
        who = f"{getpass.getuser()}@{socket.gethostname()} {database.caller}".strip()
        return review.approve(
            ledger, SystemClock(), run, reason=reason, who=who, expires_in=expires_in, teaches=teaches
        )


def history(job: Declared, *, limit: int = 20) -> Sequence[RunRecord]:
    """Return a job's newest runs, newest first. Reads only."""
    with opened(Settings.read(), job) as (_, ledger):
        ledger.binding()
        return ledger.runs(job.name, limit=limit)


def story(job: Declared | None, run: str) -> tuple[RunRecord, Sequence[RunRecord]]:
    """Return a run with the runs of its job before it, newest first. Reads only."""
    with opened(Settings.read(), job) as (_, ledger):
        ledger.binding()
        record = ledger.record(run)
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
    with opened(Settings.read(), known[0]) as (_, ledger):
        ledger.binding()
        record = ledger.record(run)
    for job in known:
        if job.name == record.job and isinstance(job, Purge):
            return job
    raise ConfigError(
        f"Run {record.run} is of {record.job!r}, which the job file does not declare as a purge.",
        hint=f"It declares: {', '.join(job.name for job in known)}.",
    )


@contextmanager
def shown(
    job: Declared | None, run: str
) -> Iterator[tuple[RunRecord, Approval | None, Iterator[StoredBatch]]]:
    """Open one run with its approval and its batches. Reads only."""
    with opened(Settings.read(), job) as (_, ledger):
        ledger.binding()
        record = ledger.record(run)
        yield record, ledger.approval(record.run), ledger.batches(record.run)
