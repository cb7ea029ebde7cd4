"""The CloudFormation template, and the bare files for those who deploy by other tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from safedelete.deploy.as_yaml import as_yaml
from safedelete.deploy.aws.names import logical
from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.aws.task import APPROVER
from safedelete.deploy.ecs_spec import IMAGE
from safedelete.deploy.files import MARK
from safedelete.errors import ConfigError

TEMPLATE: Final = "safedelete.cloudformation.yaml"
MOST_RESOURCES: Final = 500
MOST_BYTES: Final = 1_000_000
"""CloudFormation's limits of a template; above 51,200 bytes it has to come from a bucket."""

_VERBATIM: Final = frozenset({"options"})
"""What holds a user's own keys, whose case must stay."""


def template(deployment: Deployment) -> Mapping[str, str]:
    """Return the template by its file name."""
    resources = _shared(deployment)
    for job in deployment.jobs:
        task = logical("Task", job.name)
        resources[task] = _task(deployment, deployment.tasks[job.name], ("execution",), ("job", job.name))
        resources[logical("Schedule", job.name)] = {
            "Type": "AWS::Scheduler::Schedule",
            "Properties": pascal(deployment.schedule(job, {"Ref": task})),
            "DependsOn": sorted(["Group", "DeadLetters", *_made(deployment, ("scheduler",))]),
        }
    if deployment.approver is not None:
        resources[logical("Approver")] = _task(deployment, deployment.approver, ("approver", "execution"))
    document: dict[str, Any] = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"{MARK}: {', '.join(job.name for job in deployment.jobs)}"[:1024],
    }
    if deployment.image == {"Ref": "Image"}:
        document["Parameters"] = {
            "Image": {
                "Type": "String",
                "Description": "The image that runs the jobs, with a tag other than latest or a digest.",
                "AllowedPattern": IMAGE,
                "ConstraintDescription": "must name its version: a tag other than latest, or a digest",
            }
        }
    document["Resources"] = resources
    text = as_yaml(document, width=110)
    if len(resources) > MOST_RESOURCES or len(text.encode()) > MOST_BYTES:
        raise ConfigError(
            f"The template has {len(resources)} resources and {len(text.encode()):,} bytes; CloudFormation takes "
            f"{MOST_RESOURCES} and {MOST_BYTES:,}.",
            hint="Split the job file, with an ecs.prefix for each part.",
        )
    return {TEMPLATE: text}


def bare_tasks(deployment: Deployment) -> Mapping[str, str]:
    """Return each job's task definition as ``aws ecs register-task-definition --cli-input-json`` takes it."""
    approver = {} if deployment.approver is None else {APPROVER: deployment.approver}
    return {f"{job}.taskdef.json": _json(task) for job, task in {**deployment.tasks, **approver}.items()}


def bare_roles(deployment: Deployment) -> Mapping[str, str]:
    """Return each role with its policies."""
    return {f"{role['RoleName']}.iam.json": _json(role) for role in deployment.roles.values()}


def pascal(value: Any) -> Any:
    """Return what an API takes as CloudFormation spells it: each name with a capital."""
    if isinstance(value, Mapping):
        return {
            name if name.startswith("Fn::") else name[:1].upper() + name[1:]: inner
            if name in _VERBATIM
            else pascal(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [pascal(inner) for inner in value]
    return value


def _shared(deployment: Deployment) -> dict[str, Any]:
    names, ecs = deployment.names, deployment.ecs
    found: dict[str, Any] = {}
    for what, role in deployment.roles.items():
        found[logical("Role", *what)] = {"Type": "AWS::IAM::Role", "Properties": role}
    found["Logs"] = {
        "Type": "AWS::Logs::LogGroup",
        # Not where the first deploy fails: a group that stayed would be in the way of the next attempt, by its name.
        "DeletionPolicy": "RetainExceptOnCreate",
        "UpdateReplacePolicy": "Retain",
        "Properties": {"LogGroupName": names.log_group, "RetentionInDays": ecs.log_retention},
    }
    found["Group"] = {"Type": "AWS::Scheduler::ScheduleGroup", "Properties": {"Name": names.group}}
    found["DeadLetters"] = {
        "Type": "AWS::SQS::Queue",
        "DeletionPolicy": "Delete",
        "UpdateReplacePolicy": "Delete",
        "Properties": {
            "QueueName": names.dead_letters,
            "MessageRetentionPeriod": 1_209_600,
            "SqsManagedSseEnabled": True,
        },
    }
    topic: Mapping[str, Any] = {}
    if ecs.topic is None:
        topic = {"DependsOn": "Topic"}
        subscribed = [{"Protocol": how, "Endpoint": where} for how, where in deployment.subscriptions]
        found["Topic"] = {
            "Type": "AWS::SNS::Topic",
            "Properties": {
                "TopicName": names.topic.rpartition(":")[2],
                **({"Subscription": subscribed} if subscribed else {}),
            },
        }
        found["TopicPolicy"] = {
            "Type": "AWS::SNS::TopicPolicy",
            "Properties": {
                "Topics": [{"Ref": "Topic"}],
                "PolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "cloudwatch.amazonaws.com"},
                            "Action": "sns:Publish",
                            "Resource": {"Ref": "Topic"},
                            "Condition": {"StringEquals": {"aws:SourceAccount": ecs.account}},
                        },
                        # EventBridge bears no condition here.
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "events.amazonaws.com"},
                            "Action": "sns:Publish",
                            "Resource": {"Ref": "Topic"},
                        },
                    ],
                },
            },
        }
    found["FailedTasks"] = {"Type": "AWS::Events::Rule", "Properties": deployment.rule, **topic}
    for what, alarm in deployment.alarms.items():
        found[logical("Alarm", *what)] = {"Type": "AWS::CloudWatch::Alarm", "Properties": alarm, **topic}
    return found


def _task(deployment: Deployment, properties: Mapping[str, Any], *roles: tuple[str, ...]) -> dict[str, Any]:
    return {
        "Type": "AWS::ECS::TaskDefinition",
        # The revision that a schedule has run until now stays, so that one can go back to it.
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": pascal(properties),
        "DependsOn": sorted(["Logs", *_made(deployment, *roles)]),
    }


def _made(deployment: Deployment, *roles: tuple[str, ...]) -> list[str]:
    return [logical("Role", *what) for what in roles if what in deployment.roles]


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
