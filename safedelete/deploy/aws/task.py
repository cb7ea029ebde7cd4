"""The ECS task definition of a job, as ``RegisterTaskDefinition`` takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from safedelete.deploy.aws.names import Names
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.files import MARK
from safedelete.deploy.jobs import Deployed
from safedelete.errors import ConfigError

CONTAINER: Final = "safedelete"
"""Name of the container, which an override of ``run-task`` has to name."""

TAG: Final = "rendered-by"

APPROVER: Final = "approver"
"""What the approving task is called, as a job is."""


def task_definition(job: Deployed, ecs: Ecs, environment: str, revision: str, image: Any) -> dict[str, Any]:
    """Return a job's task definition.

    Both are lists, so that no shell stands between the process and SIGTERM. The program is the entry point, so that the
    image's own (one that migrates a database, say) never runs, and all of it, so that an override of ``run-task``
    replaces the verb and its arguments alone. ``initProcessEnabled`` reaps what a job leaves behind.

    Args:
        job: The job.
        ecs: The settings.
        environment: Name of the environment.
        revision: What the definition is known by, see :func:`safedelete.deploy.aws.revision.revision_of`.
        image: The image's name, or what stands for it in a template.
    """
    names = Names(ecs)
    _check(job, ecs)
    variables = {
        "SAFEDELETE_METRICS": "log,emf",
        "SAFEDELETE_NOTIFY": names.topic,
        **ecs.variables,
        "SAFEDELETE_ENVIRONMENT": environment,
        "SAFEDELETE_REVISION": revision,
    }
    return {
        **_sized(ecs, names.family(job.name), names.execution_role),
        "taskRoleArn": names.task_role(job.name),
        "containerDefinitions": [
            _container(ecs, image, job.name, ["run", ecs.job_file, job.name], variables, ecs.secrets)
        ],
    }


def approver_definition(ecs: Ecs, environment: str, image: Any) -> dict[str, Any]:
    """Return the task in which a person approves: with a database role of its own, and no role on AWS at all.

    Its command is given by an override of ``run-task``; without one it prints the help.
    """
    names = Names(ecs)
    return {
        **_sized(ecs, names.family(APPROVER), names.approver_execution_role),
        "containerDefinitions": [
            _container(
                ecs,
                image,
                APPROVER,
                ["--help"],
                {**ecs.variables, "SAFEDELETE_ENVIRONMENT": environment},
                ecs.approver_secrets,
            )
        ],
    }


def _sized(ecs: Ecs, family: str, role: str) -> dict[str, Any]:
    return {
        # First, since it is what tells our files from others by.
        "tags": [{"key": TAG, "value": MARK}],
        "family": family,
        "requiresCompatibilities": ["FARGATE"],
        "networkMode": "awsvpc",
        "cpu": str(ecs.cpu),
        "memory": str(ecs.memory),
        "runtimePlatform": {"cpuArchitecture": ecs.architecture, "operatingSystemFamily": "LINUX"},
        "executionRoleArn": role,
    }


def _container(
    ecs: Ecs,
    image: Any,
    stream: str,
    arguments: Sequence[str],
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "name": CONTAINER,
        "image": image,
        "essential": True,
        "entryPoint": list(ecs.command),
        "command": list(arguments),
        "stopTimeout": ecs.stop_timeout,
        "linuxParameters": {"initProcessEnabled": True},
        "environment": [
            {"name": name, "value": value} for name, value in sorted(variables.items()) if name not in secrets
        ],
        "secrets": [{"name": name, "valueFrom": arn} for name, arn in sorted(secrets.items())],
        "logConfiguration": {
            "logDriver": "awslogs",
            "options": {
                "awslogs-group": Names(ecs).log_group,
                "awslogs-region": ecs.region,
                "awslogs-stream-prefix": stream,
                # Metrics are log lines: the account's default may be to drop some when there are many at once, and with
                # them a failure that an alarm waits for.
                "mode": "blocking",
            },
        },
    }


def _check(job: Deployed, ecs: Ecs) -> None:
    grace = job.grace.total_seconds()
    if grace >= ecs.stop_timeout:
        raise ConfigError(
            f"{job.name}: its grace of {grace:g} s is not below ecs.stop_timeout = {ecs.stop_timeout}; ECS would kill it "
            "in the middle of a batch.",
            hint="Raise ecs.stop_timeout (120 at most), or shorten the job's grace=.",
        )
