"""The roles with what each may do, and nothing more, as ``AWS::IAM::Role`` takes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from safedelete.core.event import words
from safedelete.declare import Declared, Inventory, Purge, Rows, S3Orphans, S3Prefix
from safedelete.declare.targets import Mode
from safedelete.deploy.aws.names import Names
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.files import MARK
from safedelete.s3.canary import NAME as CANARY
from safedelete.s3.remedy import statement

_KEEPERS: Final = ("s3:GetBucketObjectLockConfiguration", "s3:GetReplicationConfiguration")
"""What would keep a version; a bucket without versions has neither."""


def roles(jobs: Sequence[Declared], ecs: Ecs) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the roles that are made, by what they are for; those that the settings name are left out."""
    names = Names(ecs)
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    if ecs.execution_role is None:
        of: dict[tuple[str, ...], dict[str, str]] = {("execution",): ecs.secrets}
        if ecs.approver_secrets:
            of["approver", "execution"] = ecs.approver_secrets
        for what, secrets in of.items():
            found[what] = _role(
                ecs, "-".join(what), "ecs-tasks.amazonaws.com", _execution(ecs, secrets.values())
            )
    if ecs.scheduler_role is None:
        found["scheduler",] = _role(ecs, "scheduler", "scheduler.amazonaws.com", _scheduler(jobs, ecs))
    if ecs.task_role is None:
        for job in jobs:
            role = _role(
                ecs, f"job-{job.name}", "ecs-tasks.amazonaws.com", task_statements(job, names.topic, ecs)
            )
            if managed := ecs.policies.get(job.name):
                role["ManagedPolicyArns"] = list(managed)
            found["job", job.name] = role
    return found


def task_statements(job: Declared, topic: str, ecs: Ecs) -> list[dict[str, Any]]:
    """Return what a job itself needs: the buckets of its targets, by prefix and mode, and telling of a failure.

    What a function does is not known here; its permissions are the managed policies that the settings name.
    """
    found = bucket_statements(job)
    for one in found:
        one["Resource"] = one["Resource"].replace("arn:aws:", f"arn:{ecs.partition}:", 1)
    # Where a list itself is a secret, nobody here knows what is in it: most likely our own topic, beside an address that is one.
    named = topic if "SAFEDELETE_NOTIFY" in ecs.secrets else ecs.variables.get("SAFEDELETE_NOTIFY", topic)
    found += [
        {"Effect": "Allow", "Action": ["sns:Publish"], "Resource": one}
        for one in named.split()
        if one == topic or one.startswith("arn:")
    ]
    if "SAFEDELETE_METRICS" in ecs.secrets or "cloudwatch" in words(
        ecs.variables.get("SAFEDELETE_METRICS", "")
    ):
        found.append(
            {
                "Effect": "Allow",
                "Action": ["cloudwatch:PutMetricData"],
                "Resource": "*",
                "Condition": {"StringEquals": {"cloudwatch:namespace": "safedelete"}},
            }
        )
    return found


def bucket_statements(job: Declared) -> list[dict[str, Any]]:
    """Return the S3 statements of a purge."""
    if not isinstance(job, Purge):
        return []
    wanted: Wanted = defaultdict(set)
    for target in job.targets:
        match target:
            case S3Prefix() | S3Orphans():
                prefix = _literal(target.prefix)
                _want(wanted, target.bucket, prefix, target.mode, listed=True)
                if isinstance(target, S3Prefix):
                    _want_canary(wanted, target.bucket, prefix, target.mode, target.require_conditional)
                    if target.inventory is not None:
                        _want_inventory(wanted, target.inventory)
            case Rows():
                for keys in target.owns:
                    # The keys are in the rows: no prefix of them is known.
                    _want(wanted, keys.bucket, "", keys.mode, listed=False)
                    _want_canary(wanted, keys.bucket, "", keys.mode, keys.require_conditional)
    return [
        statement(sorted(actions), bucket, prefix) for (bucket, prefix, _), actions in sorted(wanted.items())
    ]


Wanted: TypeAlias = "defaultdict[tuple[str, str, str], set[str]]"
"""Actions by bucket, prefix, and what they are on; a statement is about a bucket or about its objects."""


def _literal(prefix: str) -> str:
    """Return a prefix in which nothing stands for other characters: a policy has its own way to say so."""
    return "".join(f"${{{letter}}}" if letter in "*?$" else letter for letter in prefix)


def _want(wanted: Wanted, bucket: str, prefix: str, mode: Mode | None, *, listed: bool) -> None:
    # A HEAD names no prefix: without s3:ListBucket on the bucket what is gone would be answered with 403, as a denial is.
    wanted[bucket, "", "bucket"].update({"s3:GetBucketVersioning", "s3:ListBucket"})
    if mode is not None:
        wanted[bucket, "", "bucket"].update(_KEEPERS)
    objects = wanted[bucket, prefix, "objects"]
    # Every version and marker goes by its VersionId, and is found by listing versions.
    if mode == "purge":
        objects.update({"s3:DeleteObjectVersion", "s3:GetObjectVersion"})
        if not listed:
            # A row names a key, and no version of it.
            objects.add("s3:GetObject")
        wanted[bucket, prefix, "list"].add("s3:ListBucketVersions")
        return
    objects.update({"s3:DeleteObject", "s3:GetObject"})


def _want_canary(wanted: Wanted, bucket: str, prefix: str, mode: Mode | None, demanded: bool | str) -> None:
    if not demanded or mode == "purge":
        return
    # Beside the first planned object, wherever that is, unless a folder is named.
    where = f"{_literal(demanded)}{CANARY}" if isinstance(demanded, str) else f"{prefix}*{CANARY}"
    wanted[bucket, where, "objects"].update({"s3:DeleteObject", "s3:GetObject", "s3:PutObject"})
    if mode == "marker":
        wanted[bucket, where, "objects"].add("s3:DeleteObjectVersion")
        wanted[bucket, where, "list"].add("s3:ListBucketVersions")


def _want_inventory(wanted: Wanted, inventory: Inventory) -> None:
    # The data files stand in a folder beside the dated ones that hold the manifests.
    folder = inventory.key if inventory.newest else "".join(f"{p}/" for p in inventory.key.split("/")[:-2])
    folder = _literal(folder)
    wanted[inventory.bucket, folder, "objects"].add("s3:GetObject")
    if inventory.newest:
        wanted[inventory.bucket, folder, "list"].add("s3:ListBucket")


def _execution(ecs: Ecs, named: Collection[str]) -> list[dict[str, Any]]:
    names = Names(ecs)
    logs = ecs.arn("logs", f"log-group:{names.log_group}:log-stream:*")
    found: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": logs},
    ]
    if ecs.pulled is not None:
        pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        found += [
            # A token is for no repository in particular.
            {"Effect": "Allow", "Action": ["ecr:GetAuthorizationToken"], "Resource": "*"},
            {"Effect": "Allow", "Action": pull, "Resource": ecs.pulled},
        ]
    secrets = sorted({_secret(arn) for arn in named if ":secretsmanager:" in arn})
    parameters = sorted({arn for arn in named if ":ssm:" in arn})
    if secrets:
        found.append({"Effect": "Allow", "Action": ["secretsmanager:GetSecretValue"], "Resource": secrets})
    if parameters:
        found.append({"Effect": "Allow", "Action": ["ssm:GetParameters"], "Resource": parameters})
    if ecs.kms_keys:
        found.append({"Effect": "Allow", "Action": ["kms:Decrypt"], "Resource": sorted(ecs.kms_keys)})
    return found


def _secret(arn: str) -> str:
    """Return a secret's own ARN, without the key, stage and version that may follow it."""
    return ":".join(arn.split(":")[:7])


def _scheduler(jobs: Sequence[Declared], ecs: Ecs) -> list[dict[str, Any]]:
    names = Names(ecs)
    return [
        {
            "Effect": "Allow",
            "Action": ["ecs:RunTask"],
            "Resource": [ecs.arn("ecs", f"task-definition/{names.family(job.name)}:*") for job in jobs],
            "Condition": {"ArnEquals": {"ecs:cluster": names.cluster}},
        },
        # Tags are propagated from the task definition.
        {
            "Effect": "Allow",
            "Action": ["ecs:TagResource"],
            "Resource": ecs.arn("ecs", f"task/{ecs.cluster}/*"),
            "Condition": {"StringEquals": {"ecs:CreateAction": ["RunTask"]}},
        },
        {
            "Effect": "Allow",
            "Action": ["iam:PassRole"],
            "Resource": sorted({names.execution_role, *(names.task_role(job.name) for job in jobs)}),
            "Condition": {"StringEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
        },
        {"Effect": "Allow", "Action": ["sqs:SendMessage"], "Resource": ecs.arn("sqs", names.dead_letters)},
    ]


def _role(ecs: Ecs, what: str, service: str, statements: Sequence[dict[str, Any]]) -> dict[str, Any]:
    trust: dict[str, Any] = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    # Against another account's resources that would make the service act for them.
    trust["Condition"] = {"StringEquals": {"aws:SourceAccount": ecs.account}}
    role: dict[str, Any] = {
        "RoleName": Names(ecs).role(what),
        "Description": f"{MARK}: {what}",
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]},
    }
    if statements:
        role["Policies"] = [
            {
                "PolicyName": "safedelete",
                "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)},
            }
        ]
    return role
