"""Everything that one deployment consists of, made from the job file and the settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from safedelete.core.decision import Finding
from safedelete.core.event import words
from safedelete.core.lint import JobFacts, missed_run_not_expressible, nobody_is_told
from safedelete.declare import Declared
from safedelete.deploy.aws.alarms import alarms, expressible, late
from safedelete.deploy.aws.names import Names
from safedelete.deploy.aws.policies import roles
from safedelete.deploy.aws.revision import revision_of
from safedelete.deploy.aws.schedule import schedule
from safedelete.deploy.aws.task import APPROVER, CONTAINER, approver_definition, task_definition
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.jobs import Deployed, deployed
from safedelete.errors import ConfigError, ExitCode

_REFERENCE: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is deployed.

    Attributes:
        ecs: The settings.
        image: The image's name, or what stands for it in a template.
        jobs: As a deployment sees them, in the order of the job file.
        tasks: Task definitions by job.
        approver: The task in which a person approves, where there is to be one.
        roles: By what they are for.
        alarms: By the parts of their names.
        notes: What no alarm can tell.
    """

    ecs: Ecs
    image: Any
    jobs: Sequence[Deployed]
    tasks: Mapping[str, dict[str, Any]]
    approver: dict[str, Any] | None
    roles: Mapping[tuple[str, ...], dict[str, Any]]
    alarms: Mapping[tuple[str, ...], dict[str, Any]]
    notes: tuple[Finding, ...]

    @property
    def subscriptions(self) -> Sequence[tuple[str, str]]:
        """Protocol and address of whoever is subscribed to the topic that is made."""
        emails = [("email", address) for address in self.ecs.emails]
        return [*emails, *(("https", address) for address in self.ecs.webhooks)]

    @property
    def own_topic(self) -> bool:
        """Whether the topic is this account's, so that one can ask who listens to it."""
        return self.names.topic.split(":")[4] == self.ecs.account

    @property
    def rule(self) -> dict[str, Any]:
        """The rule for tasks that send no metric, and its target."""
        return {
            **failed_tasks(self.names, [job.name for job in self.jobs]),
            "Targets": [{"Id": "topic", "Arn": self.names.topic}],
        }

    def schedule(self, job: Deployed, task: Any) -> dict[str, Any]:
        """Return a job's schedule, pinned to a task definition."""
        return schedule(job, self.ecs, task)

    @property
    def names(self) -> Names:
        """What everything is called."""
        return Names(self.ecs)


def deployment(declared: Sequence[Declared], ecs: Ecs, environment: str, image: Any) -> Deployment:
    """Make every resource.

    Args:
        declared: The job file's jobs.
        ecs: The settings.
        environment: Name of the environment.
        image: The image's name, or what stands for it in a template.

    Raises:
        ConfigError: A schedule that AWS cannot express, a name that it would refuse, or a grace that ECS cuts short.
    """
    unknown = sorted(ecs.policies.keys() - {job.name for job in declared})
    if unknown:
        raise ConfigError(
            f"ecs.policies names {', '.join(unknown)}, which the job file does not declare.",
            hint="Correct the name, or leave the entry out.",
        )
    jobs = deployed(declared)
    tasks = {
        job.name: task_definition(job, ecs, environment, revision_of(origin), image)
        for job, origin in zip(jobs, declared, strict=True)
    }
    for job in jobs:
        schedule(job, ecs, "")
    approver = approver_definition(ecs, environment, image) if ecs.approver_secrets else None
    if approver is not None and APPROVER in tasks:
        raise ConfigError(
            f"A job is called {APPROVER}, as the task for ecs.approver_secrets is.", hint="Rename the job."
        )
    return Deployment(
        ecs,
        image,
        jobs,
        tasks,
        approver,
        roles(declared, ecs),
        alarms(jobs, ecs, environment),
        tuple(_notes(declared, jobs, ecs)),
    )


def _notes(declared: Sequence[Declared], jobs: Sequence[Deployed], ecs: Ecs) -> list[Finding]:
    # One address for several jobs says "well" for each of them whenever one of them is.
    pinged = any(
        sink.startswith("ping:") and ("{job}" in sink or len(jobs) == 1)
        for sink in words(ecs.variables.get("SAFEDELETE_METRICS", ""))
    )
    found: list[Finding] = []
    if ecs.topic is None and not ecs.emails and not ecs.webhooks:
        found.append(nobody_is_told(Names(ecs).topic))
    for origin, job in zip(declared, jobs, strict=True):
        if expressible(job, ecs) or pinged:
            continue
        facts = JobFacts(
            name=job.name,
            kind=origin.kind,
            schedule=job.schedule,
            timeout=job.timeout,
            grace=job.grace,
            spread=late(ecs),
            alarm="cloudwatch",
        )
        found += missed_run_not_expressible(facts, job.schedule.gaps(_REFERENCE))
    return found


PATTERN: Final = 2048
"""Letters that an event pattern may have, unless the account's quota was raised."""


def failed_tasks(names: Names, jobs: Sequence[str]) -> dict[str, Any]:
    """Return the rule for tasks that never ran a line of code, or whose process ended badly: these send no metric.

    A skipped run is neither. What is beside our container (an agent that an organisation puts into every task) ends as it
    likes.
    """
    # Up to the colon: another deployment's prefix may begin with ours.
    pattern = _pattern(names, [f"{names.family(job)}:" for job in jobs])
    if len(json.dumps(pattern)) > PATTERN:
        pattern = _pattern(names, [names.family("")])
    return {
        "Name": names.rule,
        "Description": "A task of safedelete failed to start, or ended with a failure.",
        "State": "ENABLED",
        "EventPattern": pattern,
    }


def _pattern(names: Names, families: Sequence[str]) -> dict[str, Any]:
    def ours(code: Any) -> dict[str, Any]:
        return {"containers": {"name": [CONTAINER], "exitCode": [code]}}

    return {
        "source": ["aws.ecs"],
        "detail-type": ["ECS Task State Change"],
        "detail": {
            "clusterArn": [names.cluster],
            "lastStatus": ["STOPPED"],
            "taskDefinitionArn": [
                {"prefix": names.ecs.arn("ecs", f"task-definition/{family}")} for family in families
            ],
            "$or": [
                # Never started, or stopped with its host or by hand.
                {"stopCode": [{"anything-but": ["EssentialContainerExited"]}]},
                ours({"anything-but": [int(ExitCode.DONE), int(ExitCode.SKIPPED)]}),
                # Nobody knows how it ended. EventBridge takes this for "no container has one", which the first line is for.
                ours({"exists": False}),
            ],
        },
    }
