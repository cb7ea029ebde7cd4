"""A project for AWS, and a deploy of what was rendered through the services' own calls.

moto makes nothing of a template's schedules and alarms, so each rendered property is sent to the service it is for,
and asked for again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from safedelete.declare import Purge, S3Prefix
from safedelete.deploy.aws.resources import Deployment, deployment
from safedelete.deploy.drift.model import There
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.part import Part

ACCOUNT = "123456789012"
REGION = "eu-central-1"
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/app:2026-11-29"

SETTINGS: dict[str, Any] = {
    "account": ACCOUNT,
    "region": REGION,
    "cluster": "jobs",
    "image": IMAGE,
    "job_file": "/app/jobs.py",
    "subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
    "security_groups": ["sg-0123456789abcdef0"],
    "secrets": {
        "SAFEDELETE_DATABASE_URL": f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:db-AbCdEf:url::",
    },
}

TOML = f"""
environment = "production"

[ecs]
account = "{ACCOUNT}"
region = "{REGION}"
cluster = "jobs"
image = "{IMAGE}"
job_file = "/app/jobs.py"
subnets = ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]
security_groups = ["sg-0123456789abcdef0"]
emails = ["oncall@example.com"]
secrets = {{ SAFEDELETE_DATABASE_URL = "{SETTINGS["secrets"]["SAFEDELETE_DATABASE_URL"]}" }}
"""

JOBS = """
from datetime import timedelta

from sqlalchemy import BigInteger, Column, DateTime, MetaData, String, Table

from safedelete import Purge, Rows, S3Keys, S3Prefix, job, past

uploads = Table(
    "uploads",
    MetaData(),
    Column("id", BigInteger, primary_key=True),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("s3_key", String(512), unique=True),
)

expired = Purge(
    "expired-uploads",
    Rows(uploads, past(uploads.c.expires_at), owns=S3Keys("acme-uploads", uploads.c.s3_key)),
    schedule="cron(15 3 * * ? *)",
    timeout=timedelta(minutes=20),
)
scratch = Purge(
    "scratch",
    S3Prefix("acme-scratch", "tmp/", older_than=timedelta(days=7), mode="purge"),
    schedule="15 4 * * MON",
    timeout=timedelta(hours=1),
)

@job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
def reminders(run):
    pass

@job("invoices", schedule="cron(30 1 1 * ? *)", timeout=timedelta(hours=2))
def invoices(run):
    pass
"""


def ecs(**changes: Any) -> Ecs:
    assert issubclass(Ecs, Part)
    return Ecs.model_validate({**SETTINGS, **changes})


def purge(name: str = "nightly", schedule: str = "cron(15 3 * * ? *)", **options: Any) -> Purge:
    return Purge(
        name,
        *options.pop("targets", [S3Prefix("acme-scratch", "tmp/", older_than=timedelta(days=7))]),
        schedule=schedule,
        timeout=options.pop("timeout", timedelta(minutes=20)),
        **options,
    )


def made(*jobs: Any, **settings: Any) -> Deployment:
    return deployment(jobs or (purge(),), ecs(**settings), "production", IMAGE)


def as_rendered(mine: Deployment, **changes: Any) -> There:
    """Return what AWS says of a deployment that nobody has touched."""
    tasks = {job.name: {**mine.tasks[job.name], "revision": 4} for job in mine.jobs}
    arn = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/"
    there = There(
        schedules={
            job.name: mine.schedule(job, f"{arn}{mine.names.family(job.name)}:4") for job in mine.jobs
        },
        pinned=tasks,
        newest=tasks,
        alarms={str(a["AlarmName"]): a for a in mine.alarms.values()},
        approver=mine.approver and {**mine.approver, "revision": 2},
        rule=mine.rule,
        subscriptions=[
            {"Protocol": how, "Endpoint": where, "SubscriptionArn": "arn:aws:sns:…"}
            for how, where in mine.subscriptions or [("sqs", "arn:aws:sqs:…")]
        ],
        roles={role["RoleName"]: role for role in mine.roles.values()},
    )
    return replace(there, **changes)


# --- deploying


def resources_of(template: str) -> dict[str, Any]:
    """Return the resources of a template; libyaml, where PyYAML was built with it, takes a tenth of the time."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(template, Loader=loader)["Resources"]
    return found


class Services:
    """The services of one account, reached by one session."""

    def __init__(self, session: Any, endpoint: str | None) -> None:
        def client(name: str) -> Any:
            return session.client(name, region_name=REGION, endpoint_url=endpoint)

        self.ecs = client("ecs")
        self.scheduler = client("scheduler")
        self.cloudwatch = client("cloudwatch")
        self.sns = client("sns")
        self.events = client("events")
        self.iam = client("iam")
        self.resources: Mapping[str, Any] = {}
        self.put: dict[str, dict[str, Any]] = {}
        """Every alarm as it was sent: moto forgets some of its fields."""

    def deploy(self, template: Path) -> dict[str, str]:
        """Make what a template says, in the order of its resources; returns the ARNs of the task definitions."""
        return self.make(resources_of(template.read_text()))

    def make(self, resources: Mapping[str, Any]) -> dict[str, str]:
        """As :meth:`deploy`, from a template's resources."""
        self.resources = resources
        arns: dict[str, str] = {}
        for name, resource in resources.items():
            properties = resource["Properties"]
            match resource["Type"]:
                case "AWS::Scheduler::ScheduleGroup":
                    self.scheduler.create_schedule_group(Name=properties["Name"])
                case "AWS::ECS::TaskDefinition":
                    task = self.ecs.register_task_definition(**camel(properties))["taskDefinition"]
                    arns[name] = task["taskDefinitionArn"]
                case "AWS::Scheduler::Schedule":
                    self.scheduler.create_schedule(**pinned(properties, arns))
                case "AWS::CloudWatch::Alarm":
                    self.alarm(properties)
                case "AWS::SNS::Topic":
                    self.topic(properties)
                case "AWS::Events::Rule":
                    self.rule(properties)
                case "AWS::IAM::Role":
                    self.role(properties)
        return arns

    def topic(self, properties: Mapping[str, Any]) -> None:
        topic = self.sns.create_topic(Name=properties["TopicName"])["TopicArn"]
        for one in properties.get("Subscription", ()):
            self.sns.subscribe(TopicArn=topic, **one)

    def rule(self, properties: Mapping[str, Any]) -> None:
        rest = {name: value for name, value in properties.items() if name not in ("Targets", "EventPattern")}
        self.events.put_rule(**rest, EventPattern=json.dumps(properties["EventPattern"]))
        self.events.put_targets(Rule=properties["Name"], Targets=properties["Targets"])

    def role(self, properties: Mapping[str, Any]) -> None:
        name, trust = properties["RoleName"], json.dumps(properties["AssumeRolePolicyDocument"])
        self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
        for one in properties.get("Policies", ()):
            self.iam.put_role_policy(
                RoleName=name, PolicyName=one["PolicyName"], PolicyDocument=json.dumps(one["PolicyDocument"])
            )
        for arn in properties.get("ManagedPolicyArns", ()):
            self.iam.attach_role_policy(RoleName=name, PolicyArn=arn)

    def alarm(self, properties: Mapping[str, Any]) -> None:
        self.cloudwatch.put_metric_alarm(**properties)
        self.put[properties["AlarmName"]] = dict(properties)

    def again(self, template: Path, arns: Mapping[str, str], *schedules: str) -> None:
        """Send the rendered schedules of these jobs anew."""
        for resource in resources_of(template.read_text()).values():
            if resource["Type"] == "AWS::Scheduler::Schedule" and resource["Properties"]["Name"] in schedules:
                self.scheduler.update_schedule(**pinned(resource["Properties"], arns))


def pinned(properties: Mapping[str, Any], arns: Mapping[str, str]) -> dict[str, Any]:
    """Return a template's schedule as the service takes it."""
    target = dict(properties["Target"])
    parameters = dict(target["EcsParameters"])
    parameters["TaskDefinitionArn"] = arns[parameters["TaskDefinitionArn"]["Ref"]]
    network = parameters["NetworkConfiguration"]
    parameters["NetworkConfiguration"] = {"awsvpcConfiguration": network["AwsvpcConfiguration"]}
    return {**properties, "Target": {**target, "EcsParameters": parameters}}


def camel(value: Any) -> Any:
    """Return a template's task definition as the service takes it."""
    if isinstance(value, Mapping):
        return {
            name[:1].lower() + name[1:]: inner if name == "Options" else camel(inner)
            for name, inner in value.items()
        }
    return [camel(inner) for inner in value] if isinstance(value, list) else value
