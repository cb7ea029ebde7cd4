"""Compare what is deployed with what the repository says: pure, so that every case can be held in a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.drift.around import around
from safedelete.deploy.drift.model import Asked, Change, Difference, Kind, There, family_of
from safedelete.deploy.drift.normal import alarm, fields, schedule, task
from safedelete.deploy.jobs import Deployed


def compare(made: Deployment, there: There) -> list[Difference]:
    """Return every difference of what AWS has answered about: of schedules and revisions in the order of the jobs, of alarms, then of what is around."""
    found: list[Difference] = []
    for job in made.jobs:
        found += revisions(made, job, there)
    for name in there.strays:
        found.append(
            Difference(
                Kind.STRAY,
                name,
                f"The group {made.names.group} has a schedule {name}, which belongs to no job of the file: it goes on "
                "starting what it names.",
            )
        )
    for wanted in made.alarms.values() if there.known(Asked.ALARMS) else ():
        found += _alarm(wanted, there.alarms.get(wanted["AlarmName"]))
    return [*found, *around(made, there)]


def revisions(made: Deployment, job: Deployed, there: There) -> Iterator[Difference]:
    """Yield what is different about a job's schedule and its task definition; nothing of what could not be looked at."""
    if not there.known(Asked.SCHEDULE, job.name):
        return
    actual = there.schedules.get(job.name)
    if actual is None:
        yield Difference(
            Kind.NO_SCHEDULE,
            job.name,
            f"{job.name}: there is no schedule {made.names.group}/{job.name}; the job never runs.",
        )
        return
    target = actual.get("Target") or {}
    pinned_arn = str((target.get("EcsParameters") or {}).get("TaskDefinitionArn", ""))
    if actual.get("State") != "ENABLED":
        yield Difference(
            Kind.DISABLED,
            job.name,
            f"{job.name}: its schedule is {actual.get('State')}; the job does not run.",
            (Change("State", actual.get("State"), "ENABLED"),),
        )
    changes = fields(
        schedule({**made.schedule(job, pinned_arn), "State": actual.get("State")}), schedule(actual)
    )
    if changes:
        yield Difference(
            Kind.SCHEDULE, job.name, f"{job.name}: its schedule is not the rendered one.", tuple(changes)
        )
    if there.known(Asked.TASK, job.name):
        yield from _pinned(made, job, there, pinned_arn)


def _pinned(made: Deployment, job: Deployed, there: There, arn: str) -> Iterator[Difference]:
    family = made.names.family(job.name)
    named, revision = family_of(arn)
    pinned, newest = there.pinned.get(job.name), there.newest.get(job.name)
    latest = None if newest is None else int(newest["revision"])
    if named != family:
        yield Difference(
            Kind.REPOINTED,
            job.name,
            f"{job.name}: its schedule runs {named}:{revision or 'newest'}, another family than {family}.",
            (
                Change(
                    "Target.EcsParameters.TaskDefinitionArn", arn, f"{family}:{latest or 'to be registered'}"
                ),
            ),
        )
        return
    if revision is None:
        yield Difference(
            Kind.UNPINNED,
            job.name,
            f"{job.name}: its schedule names no revision of {family}, so it runs whatever is registered last.",
            (
                Change(
                    "Target.EcsParameters.TaskDefinitionArn", arn, f"{family}:{latest or 'to be registered'}"
                ),
            ),
        )
    if pinned is None or pinned.get("status") == "INACTIVE":
        how = "was deregistered" if pinned else "does not exist"
        yield Difference(
            Kind.NO_REVISION,
            job.name,
            f"{job.name}: its schedule runs {family}:{revision}, which {how}.",
        )
    wanted = made.tasks[job.name]
    changes = [] if pinned is None else fields(task(wanted), task(pinned))
    if changes:
        # Where another revision is as the repository says, it is the schedule that was moved.
        other = newest is not None and latest != revision and not fields(task(wanted), task(newest))
        kind = Kind.REPOINTED if other else Kind.REVISION
        yield Difference(
            kind,
            job.name,
            f"{job.name}: its schedule runs {family}:{revision}{_who(pinned)}, which is not what the repository "
            f"renders{f'; {family}:{latest} is' if other else ''}.",
            tuple(changes),
        )
    if revision is not None and latest is not None and latest != revision:
        difference = fields(task(wanted), task(newest or {}))
        yield Difference(
            Kind.HAND_REGISTERED,
            job.name,
            f"{job.name}: {family}:{latest}{_who(newest)} is registered beside {revision}, which the schedule runs: by hand, "
            "or by a deploy that has not arrived. The next deploy registers another.",
            tuple(difference),
        )


def _alarm(wanted: Mapping[str, Any], actual: Mapping[str, Any] | None) -> Iterator[Difference]:
    name = str(wanted["AlarmName"])
    if actual is None:
        yield Difference(Kind.NO_ALARM, name, f"The alarm {name} is not there; nobody is told.")
        return
    changes = fields(alarm(wanted), alarm(actual))
    if changes:
        yield Difference(Kind.ALARM, name, f"The alarm {name} is not the rendered one.", tuple(changes))


def _who(task: Mapping[str, Any] | None) -> str:
    who = (task or {}).get("registeredBy")
    return f" (registered by {who})" if who else ""
