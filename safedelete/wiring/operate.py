"""What people do beside running: pause and cancel, and ask how the jobs stand. None of it touches a target's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from safedelete.core.decision import Refused
from safedelete.core.run import RESUMABLE, UNFINISHED, RunState
from safedelete.core.say import refusing
from safedelete.core.schedule import parse
from safedelete.core.status import BAD, Health, JobStory, Seen, judge
from safedelete.declare import Declared, Purge
from safedelete.errors import ConfigError, ExitCode, LockHeldError, SafeDeleteError, StalePlanError
from safedelete.ledger.prune import Pruned, prune
from safedelete.ledger.store import SqlLedger
from safedelete.metrics.fanout import call
from safedelete.metrics.notify import Note, message_about, message_unknown
from safedelete.phases.parts import Progress, quiet
from safedelete.ports import Clock, Ledger, Notice, RunChange, RunRecord, holding
from safedelete.runner import review
from safedelete.runner.pause import wish
from safedelete.runner.report import Report
from safedelete.wiring.connect import caller_of, context_of, ledger_opened, one_for_each_ledger
from safedelete.wiring.settings import Settings, SystemClock
from safedelete.wiring.telling import callers

log = structlog.get_logger("safedelete.run")

LOOKED_AT: Final = 20
"""Newest runs of each kind that a job's health is told from: twenty plans that were saved hide no failure before them."""

LOOKED_FOR: Final = (None, {RunState.SUCCEEDED}, UNFINISHED, BAD, {RunState.CANCELLED}, {RunState.EXPIRED})
"""States whose newest runs say how a job stands; None for all together."""


@dataclass(frozen=True, slots=True)
class Paused:
    """A pause that holds, or held.

    Attributes:
        job: The job.
        notice: Who, why, since when, and who took it back.
        changed: Whether this call made the difference.
    """

    job: str
    notice: Notice | None
    changed: bool


def pause(job: Declared, *, reason: str) -> Paused:
    """Keep a job from starting until :func:`unpause`. Writes to the ledger; deletes nothing.

    A run that is at work goes on; :func:`cancel` ends it.

    Args:
        job: The job.
        reason: Why; told to whoever starts the job.

    Raises:
        ConfigError: The reason is empty.
    """
    if not reason.strip():
        raise ConfigError(
            "--reason is empty.", hint="Say why the job must not start; whoever finds it paused reads it."
        )
    with ledger_opened(Settings.read(), job) as (database, ledger):
        ledger.binding()
        notice = Notice(
            kind="pause",
            subject=job.name,
            since=SystemClock().now(),
            who=caller_of(database),
            reason=reason.strip().rstrip("."),
        )
        said = ledger.say(notice)
        return Paused(job.name, holding(ledger.notices("pause", job.name)), said)


def unpause(job: Declared) -> Paused:
    """Let a paused job start again. Writes to the ledger; deletes nothing. Idempotent."""
    with ledger_opened(Settings.read(), job) as (database, ledger):
        ledger.binding()
        ended = ledger.take_back("pause", job.name, at=SystemClock().now(), who=caller_of(database))
        return Paused(job.name, ended[0] if ended else None, bool(ended))


def paused(job: Declared) -> Notice | None:
    """Return the pause that keeps a job from starting, if there is one. Reads only."""
    with ledger_opened(Settings.read(), job) as (_, ledger):
        return holding(ledger.notices("pause", job.name))


def cancel(job: Declared, run: str, *, reason: str) -> Report:
    """End a run so that nothing goes on with it. Writes to the ledger; deletes nothing.

    A run that is at work is told, and ends at its next batch or checkpoint. Telling it needs the ledger alone, so it
    works from any host; a run whose process is dead is ended here where its database can be reached, else by the next run.

    Args:
        job: The job that the run is of.
        run: The run's id, or a unique beginning of it.
        reason: Why; kept with the run.

    Returns:
        How the run stands now; still ``running`` or ``planning`` where it was told.
    """
    with ledger_opened(Settings.read(), job) as (database, ledger):
        ledger.binding()
        record, who = ledger.record(run), caller_of(database)
        if record.job != job.name:
            raise StalePlanError(
                f"Run {record.run} is of {record.job}, not of {job.name}.", hint="Name its job file."
            )
        told = record.state in UNFINISHED
        if told:
            now = SystemClock().now()
            ledger.say(Notice(kind="cancel", subject=record.run, since=now, who=who, reason=reason))
        try:
            return _ended(job, record, ledger, who=who, reason=reason)
        except StalePlanError:
            raise
        except LockHeldError as error:
            if not told:
                raise
            why = f"{error.holder} works on it"
        except SafeDeleteError as error:
            # What can be said here has been: the run reads it, or the next run does.
            if not told:
                raise
            why = str(error).rstrip(".")
        log.info("asked a run to end", run=record.run, who=who, why=why)
        return Report(
            job=job.name,
            kind=job.kind,
            run=record.run,
            state=record.state,
            message=f"It was asked to end ({why}), and does so at its next batch or checkpoint. If its process is "
            "dead, the next run gives it up.",
        )


def _ended(job: Declared, record: RunRecord, ledger: Ledger, *, who: str, reason: str) -> Report:
    if isinstance(job, Purge):
        with context_of(job) as ctx:
            report = review.cancel(ctx, record.run, reason=reason, who=who)
    else:
        report = _function_ended(job.name, record, ledger, who=who, reason=reason)
    ledger.take_back("cancel", record.run, at=SystemClock().now(), who=who)
    return report


def _function_ended(name: str, record: RunRecord, ledger: Ledger, *, who: str, reason: str) -> Report:
    """End a function's run that nothing goes on with anyhow; one that may be at work has only been told."""
    if record.state in UNFINISHED:
        raise LockHeldError("It may be at work.", holder=record.owner, hint="Ask again when it has ended.")
    if record.state not in RESUMABLE:
        raise StalePlanError(
            f"Run {record.run} is {record.state.value}; only a run that has not ended can be cancelled.",
            hint=f"`safedelete show {record.run}` tells how it ended.",
        )
    message = wish(who, reason)
    ledger.move(record.run, RunState.CANCELLED, change=RunChange(reason=message))
    return Report(
        job=name,
        kind="job",
        run=record.run,
        state=RunState.CANCELLED,
        tally=record.tally,
        exit_code=ExitCode.DONE,
        message=f"{message[:1].upper()}{message[1:]}.",
    )


def status(jobs: Sequence[Declared], *, now: datetime | None = None, notify: bool = False) -> list[Health]:
    """Say of each job whether it is as its schedule says it should be by now. Reads the ledger only, from any host.

    Args:
        jobs: The jobs.
        now: The instant to judge at, aware; the clock's unless given.
        notify: Send one message for each job that is not to those that ``$SAFEDELETE_NOTIFY`` names, and one when the
            ledger cannot be read. One that cannot be delivered is logged, and changes nothing else.

    Raises:
        ConfigError: ``notify``, and the variable names nobody, or somebody wrongly.
    """
    settings, clock = Settings.read(), SystemClock()
    called = callers(settings) if notify else ()
    try:
        found = _healths(jobs, settings, now or clock.now())
    except SafeDeleteError as error:
        _call_for(called, f"how {', '.join(job.name for job in jobs)} stand", error, settings, clock)
        raise
    ill = [message_about(health, environment) for health, environment in found if not health.ok]
    if ill:
        call(called, ill, clock)
    return [health for health, _ in found]


def tell_unloadable(file: Path, error: SafeDeleteError) -> None:
    """Tell those that ``$SAFEDELETE_NOTIFY`` names that nothing can be known of the jobs of a file that does not load.

    Raises:
        ConfigError: The variable names nobody, or somebody wrongly.
    """
    settings = Settings.read()
    _call_for(callers(settings), f"how the jobs of {file} stand", error, settings, SystemClock())


def _call_for(
    called: Sequence[Note], what: str, error: SafeDeleteError, settings: Settings, clock: Clock
) -> None:
    call(called, [message_unknown(what, str(error), settings.environment)], clock)


def _healths(jobs: Sequence[Declared], settings: Settings, at: datetime) -> list[tuple[Health, str]]:
    """Return the health of each job, and the environment that its ledger is bound to."""
    found = []
    for job in jobs:
        with ledger_opened(settings, job) as (_, ledger):
            environment = ledger.binding().environment
            found.append((judge(_story(job, ledger), at), environment))
    return found


def _story(job: Declared, ledger: SqlLedger) -> JobStory:
    records: dict[str, RunRecord] = {}
    for states in LOOKED_FOR:
        for record in ledger.runs(job.name, limit=LOOKED_AT, states=states):
            records[record.run] = record
    pauses = ledger.notices("pause", job.name)
    held = holding(pauses)
    declared = ledger.notices("declared", job.name)
    return JobStory(
        name=job.name,
        schedule=parse(job.schedule, job.tz),
        timeout=job.timeout,
        grace=job.grace,
        runs=[_seen(record) for record in records.values()],
        declared_at=min((notice.since for notice in declared), default=None),
        paused_since=None if held is None else held.since,
        unpaused_at=max((n.ended_at for n in pauses if n.ended_at is not None), default=None),
    )


def _seen(record: RunRecord) -> Seen:
    return Seen(
        run=record.run,
        state=record.state,
        began_at=record.began_at,
        refused=isinstance(record.decision, Refused),
        failed=record.exit_code == ExitCode.STORE,
        why=" ".join(filter(None, (_codes(record), record.reason))),
    )


def _codes(record: RunRecord) -> str:
    return refusing(record.decision) if isinstance(record.decision, Refused) else ""


SHORTEST_KEEP: Final = timedelta(days=2)
"""A refused or saved plan waits a day, and so may a resumable run: neither is old before that."""


def prune_ledger(
    job: Declared | None, *, keep: timedelta, dry_run: bool = False, progress: Progress = quiet
) -> Pruned:
    """Forget what the ledger knows of old runs that no later decision needs. Deletes rows of the ledger, nothing else.

    Args:
        job: A job whose ledger it is; None for the environment's.
        keep: Age below which every run stays, at least two days.
        dry_run: Count only.
        progress: Told how far it is.

    Raises:
        ConfigError: ``keep`` is too short.
    """
    if keep < SHORTEST_KEEP:
        raise ConfigError(
            f"keep={keep}: must be at least {SHORTEST_KEEP}.",
            hint="Refused plans wait a day for an approval. 400d keeps a year of nights, which the charts show.",
        )
    with ledger_opened(Settings.read(), job) as (_, ledger):
        ledger.binding()
        return prune(ledger.engine, SystemClock().now() - keep, dry_run=dry_run, progress=progress)


def ledgers(jobs: Sequence[Declared] | None) -> list[Declared | None]:
    """Return one job for each ledger of a job file; None stands for the environment's."""
    return one_for_each_ledger(list(jobs), Settings.read()) if jobs else [None]
