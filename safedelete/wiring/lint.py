"""Gather what the lint rules need to know of a job file's jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

from safedelete.core.decision import Finding
from safedelete.core.lint import JobFacts, lint
from safedelete.core.run import RunState
from safedelete.core.schedule import parse
from safedelete.declare import Declared, Purge
from safedelete.ledger.store import SqlLedger
from safedelete.sql.engine import Timeouts
from safedelete.wiring.connect import opened
from safedelete.wiring.settings import Settings, SystemClock

RECENT: Final = 30
"""Successful runs whose durations a timeout is held against."""


def lint_jobs(jobs: Sequence[Declared]) -> tuple[Finding, ...]:
    """Hold a job file's jobs against every lint rule, with how long their recent runs took. Reads only."""
    settings = Settings.read()
    facts = []
    for job in jobs:
        with opened(settings, job) as (_, ledger):
            ledger.binding()
            facts.append(_facts(job, ledger, settings))
    return lint(facts, SystemClock().now())


def _facts(job: Declared, ledger: SqlLedger, settings: Settings) -> JobFacts:
    usual = Timeouts()
    guard = job.guard if isinstance(job, Purge) else None
    return JobFacts(
        name=job.name,
        kind=job.kind,
        schedule=parse(job.schedule, job.tz),
        timeout=job.timeout,
        grace=job.grace,
        successes=tuple(_durations(job, ledger)),
        limited=None if guard is None else any((guard.max_items, guard.max_bytes, guard.max_fraction)),
        lease=timedelta(seconds=settings.lease_seconds),
        batch=min(usual.idle, timedelta(seconds=settings.lease_seconds * 0.75)),
    )


def _durations(job: Declared, ledger: SqlLedger) -> Iterator[timedelta]:
    for record in ledger.runs(job.name, limit=RECENT, states={RunState.SUCCEEDED}):
        if record.finished_at is not None:
            yield record.finished_at - record.started_at
