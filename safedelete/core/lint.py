"""Rules that a scheduled job can break before it ever runs, each with a stable code.

A rule reads :class:`JobFacts` and nothing else. What is not known is None and breaks no rule; whoever gathers the
facts says what could not be found out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from typing import Final, Literal
from zoneinfo import ZoneInfo

from safedelete.core.decision import Finding
from safedelete.core.lint_rules import RULES
from safedelete.core.schedule import HORIZON, Gaps, Schedule
from safedelete.core.status import run_out

__all__ = ["RULES", "JobFacts", "every_week", "lint", "missed_run_not_expressible", "nobody_is_told"]

CLOUDWATCH_REACH: Final = timedelta(days=7)
"""Longest time a CloudWatch alarm can look back."""

NEARLY_FULL: Final = 0.8
"""Share of the shortest gap that a timeout may take before a slow night runs into the next one."""

_MONDAY: Final = date(2026, 1, 5)
"""From where calendar weeks are looked at: fixed, so that the answer does not change by itself."""

_EVERY_HOUR: Final = timedelta(hours=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What the rules need to know of one job.

    Attributes:
        name: The job's name.
        kind: A purge destroys data; a job is any other function.
        schedule: Parsed.
        timeout: The run's own deadline.
        grace: How long a stop may take.
        spread: How much later than scheduled the platform may start it (flexible window, random delay).
        stop_timeout: What the platform leaves between SIGTERM and SIGKILL.
        successes: How long recent successful runs took, in any order.
        limited: For a purge, whether its guard has a fixed limit.
        lease: How long the lock outlives its last renewal.
        batch: The time budget of one batch.
        lock: The name under which it locks; its own name unless shared on purpose.
        another: What else has run under its name, as the ledger tells; empty when nothing has.
        ledger: Whether the ledger's disk outlives the task.
        alarm: What notices that a run is missing.
    """

    name: str
    kind: Literal["purge", "job"]
    schedule: Schedule
    timeout: timedelta
    grace: timedelta
    spread: timedelta = timedelta(0)
    stop_timeout: timedelta | None = None
    successes: tuple[timedelta, ...] = ()
    limited: bool | None = None
    lease: timedelta | None = None
    batch: timedelta | None = None
    lock: str = ""
    another: str = ""
    ledger: Literal["durable", "ephemeral"] | None = None
    alarm: Literal["cloudwatch", "prometheus", "ping"] | None = None


def lint(jobs: Sequence[JobFacts], now: datetime) -> tuple[Finding, ...]:
    """Hold every job against every rule.

    Args:
        jobs: All jobs that share a ledger, since some rules are about two of them.
        now: An aware instant; schedules are looked at for two years from here.

    Returns:
        Findings in the order of the jobs, then by code; those about several jobs last.
    """
    found: list[Finding] = []
    for job in jobs:
        gaps = job.schedule.gaps(now)
        found += timeout_reaches_next_run(job, gaps)
        found += timeout_near_what_runs_take(job, gaps)
        found += grace_too_long(job, gaps)
        found += local_time_at_risk(job, gaps, now)
        found += missed_run_not_expressible(job, gaps)
        found += purge_without_limit(job)
        found += lease_shorter_than_batch(job)
        found += ledger_does_not_last(job)
        found += name_is_anothers_too(job)
        found += never_runs_again(job, now)
    return (*found, *shared_lock_names(jobs))


def timeout_reaches_next_run(job: JobFacts, gaps: Gaps) -> Iterator[Finding]:
    """SD401: a run may still be going when the next one is due, which then is skipped."""
    if gaps.shortest is not None and job.timeout + job.spread >= gaps.shortest:
        spread = f" plus a start up to {job.spread} late" if job.spread else ""
        yield Finding(
            code="SD401",
            severity="refuse",
            target=job.name,
            message=(
                f"{job.name}: a timeout of {job.timeout}{spread} reaches the next run; the shortest gap of "
                f"{job.schedule.text!r} is {gaps.shortest}."
            ),
            numbers={
                "timeout_s": job.timeout.total_seconds(),
                "spread_s": job.spread.total_seconds(),
                "shortest_s": gaps.shortest.total_seconds(),
            },
            hint="Shorten the timeout, or run less often.",
        )


def timeout_near_what_runs_take(job: JobFacts, gaps: Gaps) -> Iterator[Finding]:
    """SD402: the timeout would cut an ordinary slow run, or leaves no room before the next one."""
    slowest = max(job.successes, default=None)
    if slowest is not None and job.timeout <= slowest:
        yield Finding(
            code="SD402",
            severity="warn",
            target=job.name,
            message=(
                f"{job.name}: a timeout of {job.timeout} is not above the slowest of the last {len(job.successes)} "
                f"successful run(s), {slowest}."
            ),
            numbers={"timeout_s": job.timeout.total_seconds(), "slowest_s": slowest.total_seconds()},
            hint="Raise the timeout above what successful runs need, or drain in portions (per_run).",
        )
    if (
        gaps.shortest is not None
        and gaps.shortest * NEARLY_FULL < job.timeout
        and job.timeout + job.spread < gaps.shortest
    ):
        yield Finding(
            code="SD402",
            severity="warn",
            target=job.name,
            message=(
                f"{job.name}: a timeout of {job.timeout} takes {job.timeout / gaps.shortest:.0%} of the shortest gap, "
                f"{gaps.shortest}; at most {NEARLY_FULL:.0%} leaves room for a late start."
            ),
            numbers={"timeout_s": job.timeout.total_seconds(), "shortest_s": gaps.shortest.total_seconds()},
            hint="Shorten the timeout, or run less often.",
        )


def grace_too_long(job: JobFacts, gaps: Gaps) -> Iterator[Finding]:
    """SD403: the platform kills the run before its grace is over, or a stopping run meets the next one."""
    if job.stop_timeout is not None and job.grace >= job.stop_timeout:
        yield Finding(
            code="SD403",
            severity="refuse",
            target=job.name,
            message=(
                f"{job.name}: a grace of {job.grace} is not below the platform's stop timeout of {job.stop_timeout}; "
                "a run that is stopped would be killed in the middle of a batch."
            ),
            numbers={
                "grace_s": job.grace.total_seconds(),
                "stop_timeout_s": job.stop_timeout.total_seconds(),
            },
            hint="Shorten grace=, or raise the platform's stop timeout (120 seconds at most on Fargate).",
        )
    if gaps.shortest is not None and job.timeout < gaps.shortest <= job.timeout + job.grace:
        yield Finding(
            code="SD403",
            severity="warn",
            target=job.name,
            message=(
                f"{job.name}: timeout {job.timeout} and grace {job.grace} together reach the next run; the shortest gap "
                f"is {gaps.shortest}."
            ),
            numbers={
                "timeout_s": job.timeout.total_seconds(),
                "grace_s": job.grace.total_seconds(),
                "shortest_s": gaps.shortest.total_seconds(),
            },
            hint="Shorten the timeout or the grace.",
        )


def local_time_at_risk(job: JobFacts, gaps: Gaps, now: datetime) -> Iterator[Finding]:
    """SD404: a change of the clocks skips or repeats the scheduled local time.

    A job that runs every hour is left alone: it loses at most one of many runs, and its longest gap says so.
    """
    if gaps.longest is None or gaps.longest <= _EVERY_HOUR:
        return
    risks = job.schedule.local_times_at_risk(now)
    if risks:
        first = risks[0]
        shifted = job.schedule.kind == "crontab"
        skipped = "runs when the gap ends" if shifted else "does not run"
        then = f"and {skipped} that day" if first.effect == "skipped" else "and runs the first time only"
        yield Finding(
            code="SD404",
            severity="warn",
            target=job.name,
            message=(
                f"{job.name}: {first.local:%H:%M} in {job.schedule.zone} is {first.effect} on {first.local:%Y-%m-%d} "
                f"{then}; {len(risks)} such time(s) in two years, longest gap {gaps.longest}."
            ),
            numbers={"times": len(risks), "longest_s": gaps.longest.total_seconds()},
            hint="Choose a time that no change of the clocks touches, or tz='UTC'.",
        )


def missed_run_not_expressible(job: JobFacts, gaps: Gaps) -> Iterator[Finding]:
    """SD405: the alarm cannot look back far enough to know that a run is missing, nor does each week have one."""
    if job.alarm != "cloudwatch" or gaps.longest is None:
        return
    room = job.spread + job.timeout + job.grace
    needed = gaps.longest + room
    if needed > CLOUDWATCH_REACH and not every_week(job.schedule, room):
        yield Finding(
            code="SD405",
            severity="warn",
            target=job.name,
            message=(
                f"{job.name}: a missing run shows after {needed} (longest gap {gaps.longest}, late start, timeout, grace); a "
                f"CloudWatch alarm looks back {CLOUDWATCH_REACH.days} days, or at calendar weeks where each has a run."
            ),
            numbers={"needed_s": needed.total_seconds(), "reach_s": CLOUDWATCH_REACH.total_seconds()},
            hint="Have an outside watcher pinged, or run more often.",
        )


def every_week(schedule: Schedule, room: timedelta) -> bool:
    """Whether each calendar week of the schedule's zone has a run that also ends in it, at the latest.

    AWS does not say whether its weeks begin on Monday or on Sunday, so both must hold. A ``rate`` begins whenever it is
    deployed, so no week is certain to have one that does not end in the next.
    """
    if schedule.period is not None:
        return False
    zone = ZoneInfo(schedule.zone)
    for first in (_MONDAY, _MONDAY - timedelta(days=1)):
        weeks = (
            datetime.combine(first + timedelta(days=7 * n), time(), zone).astimezone(UTC)
            for n in range(HORIZON.days // 7 + 2)
        )
        for start, end in pairwise(weeks):
            if not any(run + room < end for run in schedule.occurrences(start, end)):
                return False
    return True


def purge_without_limit(job: JobFacts) -> Iterator[Finding]:
    """SD406: until there is a history, nothing bounds what a first run may delete."""
    if job.kind == "purge" and job.limited is False:
        yield Finding(
            code="SD406",
            severity="warn",
            target=job.name,
            message=f"{job.name}: the purge has no fixed limit; its first runs have no history to be held against.",
            hint="Add guard=Guard(max_items=..., max_fraction=...).",
        )


def lease_shorter_than_batch(job: JobFacts) -> Iterator[Finding]:
    """SD407: a batch can outlive the lease that protects it."""
    if job.lease is not None and job.batch is not None and job.lease <= job.batch:
        yield Finding(
            code="SD407",
            severity="refuse",
            target=job.name,
            message=f"{job.name}: a lease of {job.lease} does not outlast a batch, which may take {job.batch}.",
            numbers={"lease_s": job.lease.total_seconds(), "batch_s": job.batch.total_seconds()},
            hint="Lengthen the lease, or shorten the batch's time budget.",
        )


def ledger_does_not_last(job: JobFacts) -> Iterator[Finding]:
    """SD408: history, seals and the lock vanish with the task's disk."""
    if job.ledger == "ephemeral":
        yield Finding(
            code="SD408",
            severity="refuse",
            target=job.name,
            message=(
                f"{job.name}: the ledger lies on a disk that ends with the task; every run would be the first, and an "
                "interrupted one could not be resumed."
            ),
            hint="Point $SAFEDELETE_LEDGER_URL at a database, or mount a volume that lasts.",
        )


def name_is_anothers_too(job: JobFacts) -> Iterator[Finding]:
    """SD409: another job file has a job of this name in the same ledger."""
    if job.another:
        yield Finding(
            code="SD409",
            severity="refuse",
            target=job.name,
            message=(
                f"{job.name}: {job.another} runs under this name too, in the same ledger; the two share one lock and one "
                "history, so that each is skipped while the other runs and is judged by the other's numbers."
            ),
            hint="Give each its own name or lock.",
        )


def nobody_is_told(topic: str) -> Finding:
    """SD410: an alarm goes to a topic that nobody is subscribed to."""
    return Finding(
        code="SD410",
        severity="warn",
        message=f"The topic {topic} is made without a subscriber: its alarms reach nobody.",
        hint="Set ecs.emails or ecs.webhooks, or name the topic that your on-call listens to (ecs.topic).",
    )


def never_runs_again(job: JobFacts, now: datetime) -> Iterator[Finding]:
    """SD411: the schedule has no run to come.

    Not asked where a job is declared: no clock is looked at there, and a file must not stop loading, its other jobs with
    it, on the day after one's last run.
    """
    over = run_out(job.schedule, now)
    if over:
        yield Finding(
            code="SD411",
            severity="refuse",
            target=job.name,
            message=f"{job.name}: {over}.",
            hint="Correct the years, or take the job out of its file.",
        )


def shared_lock_names(jobs: Iterable[JobFacts]) -> Iterator[Finding]:
    """SD409: two jobs under one lock keep each other from running."""
    holders: dict[str, list[str]] = defaultdict(list)
    for job in jobs:
        holders[job.lock or job.name].append(job.name)
    for lock, names in holders.items():
        if len(names) > 1:
            yield Finding(
                code="SD409",
                severity="refuse",
                target=names[0],
                message=f"{len(names)} jobs share the lock {lock!r}: {', '.join(names)}; while one runs, the others are skipped.",
                numbers={"jobs": len(names)},
                hint="Give each its own name or lock.",
            )
