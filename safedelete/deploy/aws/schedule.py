"""The schedule of a job, as ``CreateSchedule`` takes it: with every field, since an update resets those left out."""

from __future__ import annotations

from typing import Any, Final

from safedelete.deploy.aws.expression import expression
from safedelete.deploy.aws.names import Names
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.jobs import Deployed
from safedelete.errors import ConfigError

ZONE: Final = 50
"""Letters that the name of a time zone may have."""


def schedule(job: Deployed, ecs: Ecs, task: Any) -> dict[str, Any]:
    """Return a job's schedule.

    Args:
        job: The job.
        ecs: The settings.
        task: ARN of the task definition with its revision: a family alone would start whatever was registered last.

    Raises:
        ConfigError: AWS has no expression for it.
    """
    names = Names(ecs)
    zone = job.schedule.zone
    if len(zone) > ZONE:
        raise ConfigError(
            f"{job.name}: the time zone {zone} has {len(zone)} letters; AWS takes {ZONE}.",
            hint="Name another zone with the same clock.",
        )
    return {
        "Name": job.name,
        "GroupName": names.group,
        "Description": f"safedelete {job.name}: {job.schedule.text}"[:512],
        "ScheduleExpression": expression(job.name, job.schedule),
        "ScheduleExpressionTimezone": zone,
        "State": "ENABLED",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": names.cluster,
            "RoleArn": names.scheduler_role,
            "EcsParameters": {
                "TaskDefinitionArn": task,
                "TaskCount": 1,
                "LaunchType": "FARGATE",
                "PlatformVersion": "LATEST",
                "NetworkConfiguration": {
                    "awsvpcConfiguration": {
                        "Subnets": sorted(ecs.subnets),
                        "SecurityGroups": sorted(ecs.security_groups),
                        "AssignPublicIp": "ENABLED" if ecs.public_ip else "DISABLED",
                    }
                },
                "PropagateTags": "TASK_DEFINITION",
                "EnableECSManagedTags": True,
                "EnableExecuteCommand": False,
            },
            "RetryPolicy": {
                "MaximumRetryAttempts": ecs.retries,
                "MaximumEventAgeInSeconds": ecs.retry_age,
            },
            "DeadLetterConfig": {"Arn": ecs.arn("sqs", names.dead_letters)},
        },
    }
