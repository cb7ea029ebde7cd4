"""Gather what the lint rules need to know of a job file's jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

from safedelete.core.decision import Finding
from safedelete.core.lint import JobFacts, lint
from safedelete.core.run import RunState
from safedelete.core.schedule import parse
from safedelete.declare import Declared, Purge, Rows
from safedelete.ledger.store import SqlLedger
from safedelete.ports import RunRecord
from safedelete.s3.client import CONNECT_TIMEOUT, READ_TIMEOUT
from safedelete.sql.engine import Timeouts
from safedelete.wiring.connect import opened
from safedelete.wiring.lock import lock_of
from safedelete.wiring.settings import Settings, SystemClock

RECENT: Final = 30
"""Runs that a timeout is held against, and among which another job of the same name is looked for."""

REQUEST: Final = timedelta(seconds=CONNECT_TIMEOUT + READ_TIMEOUT)
"""How long one request to the object store may take."""

PlatformName: TypeAlias = Literal["ecs", "kubernetes", "systemd"]


@dataclass(frozen=True, slots=True)
class Platform:
    """What a platform does to the jobs that it runs.

    Attributes:
        stop_timeout: What it leaves between SIGTERM and SIGKILL unless told otherwise.
        alarm: What notices there that a run is missing.
        keeps_disk: Whether a task's own disk outlives the task.
    """

    stop_timeout: timedelta
    alarm: Literal["cloudwatch"] | None
    keeps_disk: bool


PLATFORMS: Final[dict[PlatformName, Platform]] = {
    "ecs": Platform(timedelta(seconds=30), "cloudwatch", keeps_disk=False),
    "kubernetes": Platform(timedelta(seconds=30), None, keeps_disk=False),
    "systemd": Platform(timedelta(seconds=90), None, keeps_disk=True),
}

_PASSING: Final = frozenset({"overlay", "tmpfs", "ramfs", "aufs"})
"""File systems that end with the container or the machine."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where the jobs will run, as far as whoever checks them says.

    Attributes:
        platform: None where that is not known: then no rule about platforms is broken.
        stop_timeout: What it leaves between SIGTERM and SIGKILL; else the platform's own default.
    """

    platform: PlatformName | None = None
    stop_timeout: timedelta | None = None


def lint_jobs(jobs: Sequence[Declared], deployment: Deployment | None = None) -> tuple[Finding, ...]:
    """Hold a job file's jobs against every lint rule, with how their recent runs went. Reads only.

    Args:
        jobs: All jobs of a file, since some rules are about two of them.
        deployment: Where they will run.
    """
    settings = Settings.read()
    facts = []
    for job in jobs:
        with opened(settings, job) as (database, ledger):
            ledger.binding()
            lock_of(job, database, ledger, settings, SystemClock())
            facts.append(_facts(job, ledger, settings, deployment or Deployment()))
    return lint(facts, SystemClock().now())


def _facts(job: Declared, ledger: SqlLedger, settings: Settings, deployment: Deployment) -> JobFacts:
    guard = job.guard if isinstance(job, Purge) else None
    platform = None if deployment.platform is None else PLATFORMS[deployment.platform]
    runs = ledger.runs(job.name, limit=RECENT)
    return JobFacts(
        name=job.name,
        kind=job.kind,
        schedule=parse(job.schedule, job.tz),
        timeout=job.timeout,
        grace=job.grace,
        stop_timeout=deployment.stop_timeout or (platform.stop_timeout if platform else None),
        successes=tuple(_durations(job, ledger)),
        limited=None if guard is None else any((guard.max_items, guard.max_bytes, guard.max_fraction)),
        lease=timedelta(seconds=settings.lease_seconds),
        batch=_batch(job, settings),
        another=_another(job, runs),
        ledger=_disk(ledger, platform),
        alarm=None if platform is None else platform.alarm,
    )


def _batch(job: Declared, settings: Settings) -> timedelta:
    """Return how long a batch may take: its transaction is kept below the lease, but a request on the wire is not."""
    transaction = min(Timeouts().idle, timedelta(seconds=settings.lease_seconds * 0.75))
    objects = isinstance(job, Purge) and any(not isinstance(t, Rows) or t.owns for t in job.targets)
    return max(transaction, REQUEST) if objects else transaction


def _durations(job: Declared, ledger: SqlLedger) -> Iterator[timedelta]:
    for record in ledger.runs(job.name, limit=RECENT, states={RunState.SUCCEEDED}):
        # A clock that was set back while it ran says nothing about how long it took.
        # One that was resumed had a deadline anew, from when it was taken up.
        if record.finished_at is not None and record.finished_at > record.began_at:
            yield record.finished_at - record.began_at


def _another(job: Declared, runs: Sequence[RunRecord]) -> str:
    """Say what else runs under a job's name: something that ran after this job had, so that it is no earlier form of it."""
    strange = [_strange(job, record) for record in runs]
    if "" not in strange:
        return ""
    own = len(strange) - 1 - strange[::-1].index("")
    return next((what for what in strange[:own] if what), "")


def _strange(job: Declared, record: RunRecord) -> str:
    """Say what a run is that cannot be this job's; empty when it can."""
    if record.kind != job.kind:
        return "a purge" if record.kind == "purge" else "a function"
    if not isinstance(job, Purge) or record.plan is None:
        return ""
    mine, theirs = {t.name for t in job.targets}, {t.name for t in record.plan.targets}
    return "" if mine & theirs else f"a purge of {', '.join(sorted(theirs))}"


def _disk(ledger: SqlLedger, platform: Platform | None) -> Literal["durable", "ephemeral"] | None:
    """Say whether the ledger outlives the task."""
    if ledger.engine.dialect.name != "sqlite":
        return "durable"
    if platform is None or platform.keeps_disk:
        return None
    return "ephemeral" if _passes_away(Path(str(ledger.engine.url.database))) else "durable"


def _passes_away(file: Path) -> bool:
    """Whether a file lies on a container's own disk: on its root, or in its memory."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return True
    mounts = [(Path(line.split()[4]), line.partition(" - ")[2].split()[0]) for line in lines]
    under = [(point, kind) for point, kind in mounts if file.resolve().is_relative_to(point)]
    point, kind = max(under, key=lambda mount: len(mount[0].parts), default=(Path("/"), ""))
    return kind in _PASSING or point == Path("/")
