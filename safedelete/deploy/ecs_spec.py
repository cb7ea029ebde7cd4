"""``[ecs]`` of ``safedelete.toml``: how the jobs run on AWS, held against the platform's ranges."""

from __future__ import annotations

import re
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from safedelete.core.event import words
from safedelete.core.redact import given_by_name
from safedelete.deploy.part import Part
from safedelete.errors import ConfigError

CPU_MEMORY: Final = {
    256: (512, 1024, 2048),
    512: tuple(range(1024, 4097, 1024)),
    1024: tuple(range(2048, 8193, 1024)),
    2048: tuple(range(4096, 16385, 1024)),
    4096: tuple(range(8192, 30721, 1024)),
    8192: tuple(range(16384, 61441, 4096)),
    16384: tuple(range(32768, 122881, 8192)),
}
"""Fargate's sizes: CPU units (1024 are one vCPU) and the MiB that go with them."""

RETENTION: Final = (
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653,
)  # fmt: skip
"""Days that CloudWatch Logs can keep a log group for."""

RESERVED: Final = frozenset({"SAFEDELETE_ENVIRONMENT", "SAFEDELETE_REVISION"})
"""Variables that the rendering sets."""


IMAGE: Final = r"^(?![^@]*:latest$)[^\s@]+(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}|@sha256:[0-9a-f]{64})$"
"""An image that names its version; as CloudFormation takes it, too."""

_ECR: Final = re.compile(
    r"([0-9]{12})\.dkr[.-]ecr(?:-fips)?\.([a-z0-9-]+)\.(?:amazonaws\.|on\.a)[^/]*/([^:@]+)[:@].*"
)


def _image(image: str) -> str:
    if not re.match(IMAGE, image):
        raise ValueError(
            "names no version, so that a pinned task definition would run whatever was pushed last; "
            "give a tag other than latest, or a digest (@sha256: and 64 hex digits)"
        )
    return image


def _retention(days: int) -> int:
    if days not in RETENTION:
        raise ValueError(f"must be one of {', '.join(map(str, RETENTION))}")
    return days


def _cpu(units: int) -> int:
    if units not in CPU_MEMORY:
        raise ValueError(f"must be one of {', '.join(map(str, CPU_MEMORY))}")
    return units


Region = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}$")]
Account = Annotated[str, StringConstraints(pattern=r"^[0-9]{12}$")]
Image = Annotated[str, StringConstraints(pattern=r"^[^\s]{1,255}$"), AfterValidator(_image)]
Arn = r"^arn:aws[a-z-]*:"
RoleArn = Annotated[str, StringConstraints(pattern=Arn + r"iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$")]
PolicyArn = Annotated[
    str, StringConstraints(pattern=Arn + r"iam::(aws|[0-9]{12}):policy/[A-Za-z0-9_+=,.@/-]+$")
]
TopicArn = Annotated[str, StringConstraints(pattern=Arn + r"sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]+$")]
SecretArn = Annotated[
    str,
    StringConstraints(
        pattern=Arn
        + r"(secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9_/+=.@:-]+|ssm:[a-z0-9-]+:[0-9]{12}:parameter/[A-Za-z0-9_./-]+)$"
    ),
]
Repository = Annotated[
    str, StringConstraints(pattern=Arn + r"ecr:[a-z0-9-]+:[0-9]{12}:repository/[a-z0-9][a-z0-9._/-]*$")
]
KeyArn = Annotated[str, StringConstraints(pattern=Arn + r"kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$")]
Webhook = Annotated[str, StringConstraints(pattern=r"^https://[^\s/]+[^\s]*$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
JobName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$")]


class Ecs(Part):
    """``[ecs]``: how the jobs run on ECS.

    Attributes:
        account: The AWS account's number; deploying or comparing in another is refused.
        region: Where everything is.
        cluster: Name of the ECS cluster.
        image: The image, with a tag other than ``latest`` or a digest; left out, it is said at deploy time.
        repository: ECR repository that the image may be pulled from; the image's unless said.
        command: The program and its first arguments within the image; ``run FILE NAME`` is added.
        job_file: Where the job file lies within the image.
        cpu: CPU units.
        memory: MiB.
        architecture: The image's.
        subnets: Where the tasks' network interfaces are.
        security_groups: What they may reach.
        public_ip: Whether a task gets a public address, which it needs in a subnet without a NAT or endpoints.
        stop_timeout: Seconds between SIGTERM and SIGKILL.
        retries: How often Scheduler asks ECS again when it could not start a task.
        retry_age: How long it does, in seconds; a purge that starts later than planned surprises people.
        execution_role: Pulls the image and reads the secrets; made unless said.
        task_role: What the jobs themselves may do; made for each job unless said.
        scheduler_role: Starts the tasks; made unless said.
        policies: Managed policies added to a job's role, by job: what a function needs is not known here.
        log_group: Name of the log group; ``/safedelete`` with the prefix unless said.
        log_retention: Days.
        topic: SNS topic that is told; made unless said.
        emails: Who is subscribed to the topic that is made; each confirms by mail.
        webhooks: Addresses of an on-call service that are subscribed to it, which confirm by themselves.
        variables: Added to the environment of every task.
        secrets: Variables whose values ECS takes from Secrets Manager or Parameter Store, by ARN.
        approver_secrets: As ``secrets``, for a task of its own that approves refused plans: the URL of a database role
            that may, which a job's role may not.
        kms_keys: Customer-managed keys that the secrets are encrypted with.
        prefix: What every name begins with.
    """

    account: Account
    region: Region
    cluster: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,255}$")]
    image: Image | None = None
    repository: Repository | None = None
    command: Annotated[
        list[Annotated[str, StringConstraints(min_length=1)]],
        Field(min_length=1, default_factory=lambda: ["safedelete"]),
    ]
    job_file: Annotated[str, StringConstraints(pattern=r"^/[^\s]*$")]
    cpu: Annotated[int, AfterValidator(_cpu)] = 256
    memory: int = 512
    architecture: Annotated[str, StringConstraints(pattern=r"^(X86_64|ARM64)$")] = "X86_64"
    subnets: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$")]],
        Field(min_length=1, max_length=16),
    ]
    security_groups: Annotated[
        list[Annotated[str, StringConstraints(pattern=r"^sg-[0-9a-f]{8,17}$")]],
        Field(min_length=1, max_length=5),
    ]
    public_ip: bool = False
    stop_timeout: Annotated[int, Field(ge=2, le=120)] = 120
    retries: Annotated[int, Field(ge=0, le=3)] = 3
    retry_age: Annotated[int, Field(ge=60, le=900)] = 900
    execution_role: RoleArn | None = None
    task_role: RoleArn | None = None
    scheduler_role: RoleArn | None = None
    policies: dict[JobName, list[PolicyArn]] = Field(default_factory=dict)
    log_group: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./#-]{1,512}$")] | None = None
    log_retention: Annotated[int, AfterValidator(_retention)] = 90
    topic: TopicArn | None = None
    emails: list[Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+$")]] = Field(
        default_factory=list
    )
    webhooks: list[Webhook] = Field(default_factory=list)
    variables: dict[Variable, str] = Field(default_factory=dict)
    secrets: dict[Variable, SecretArn] = Field(default_factory=dict)
    approver_secrets: dict[Variable, SecretArn] = Field(default_factory=dict)
    kms_keys: list[KeyArn] = Field(default_factory=list)
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")] = "safedelete"

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.memory not in CPU_MEMORY[self.cpu]:
            allowed = CPU_MEMORY[self.cpu]
            raise ValueError(
                f"memory {self.memory} does not go with cpu {self.cpu}; Fargate has {allowed[0]} to {allowed[-1]} for it, "
                f"in steps of {allowed[1] - allowed[0]}"
            )
        given = self.variables.keys() | self.secrets.keys() | self.approver_secrets.keys()
        own = sorted(RESERVED & given)
        if own:
            raise ValueError(
                f"{', '.join(own)} is set by the rendering; leave it out of variables and of both kinds of secrets"
            )
        # Whoever may describe a task definition reads its variables. The value is not repeated.
        open_ = sorted(name for name, value in self.variables.items() if any(given_by_name({name: value})))
        if open_:
            raise ValueError(
                f"variables: {', '.join(open_)} holds a secret, which everybody could read who may look at a task; "
                "store it in Secrets Manager, and name it in secrets"
            )
        twice = sorted(self.variables.keys() & self.secrets.keys())
        if twice:
            raise ValueError(f"{', '.join(twice)} is in variables and in secrets")
        sinks = set(words(self.variables.get("SAFEDELETE_METRICS", "emf")))
        if not sinks & {"emf", "cloudwatch"} and "SAFEDELETE_METRICS" not in self.secrets:
            raise ValueError(
                "SAFEDELETE_METRICS names neither emf nor cloudwatch, so that no alarm would ever hear of a failed run"
            )
        if self.topic is not None and self.topic.split(":")[3] != self.region:
            raise ValueError(
                f"topic {self.topic} is in another region than {self.region}; no alarm reaches it"
            )
        if (self.emails or self.webhooks) and self.topic is not None:
            raise ValueError(
                "emails and webhooks are for the topic that is made; subscribe them to the topic that is named"
            )
        if self.policies and self.task_role is not None:
            raise ValueError(
                "policies are for the roles that are made; attach them to the task_role that is named"
            )
        return self

    @property
    def partition(self) -> str:
        """The partition of the region."""
        for start, partition in (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"), ("eusc-", "aws-eusc")):
            if self.region.startswith(start):
                return partition
        return "aws"

    @property
    def pulled(self) -> str | None:
        """ARN of the ECR repository that tasks may pull from; None where the image is another registry's.

        Where neither the repository nor the image is in the settings, any repository of the account and region.
        """
        if self.repository is not None:
            return self.repository
        return self.arn("ecr", "repository/*") if self.image is None else self.repository_of(self.image)

    def repository_of(self, image: str) -> str | None:
        """Return the ARN of the ECR repository that an image is in; None where it is another registry's."""
        found = _ECR.fullmatch(image)
        return found and f"arn:{self.partition}:ecr:{found[2]}:{found[1]}:repository/{found[3]}"

    def arn(self, service: str, resource: str, *, region: bool = True) -> str:
        """Return the ARN of something in this account."""
        where = self.region if region else ""
        return f"arn:{self.partition}:{service}:{where}:{self.account}:{resource}"


def check_image(image: str, ecs: Ecs) -> None:
    """Raise unless an image names its version, and the execution role that is made may pull it.

    Raises:
        ConfigError: It may not, or is no image.
    """
    try:
        TypeAdapter(Image).validate_python(image)
    except ValidationError as error:
        [one] = error.errors()
        raise ConfigError(
            f"The image {image!r}: {one['msg']}.", hint="Name it by tag or digest, as docker pull takes it."
        ) from error
    allowed, needed = ecs.pulled, ecs.repository_of(image)
    if ecs.execution_role is not None or needed is None or _within(needed, allowed or ""):
        return
    raise ConfigError(
        f"The image {image} is in {needed}; the execution role may pull from {allowed or 'no repository of ECR'}.",
        hint="Set ecs.repository to the repository that images come from.",
    )


def _within(needed: str, allowed: str) -> bool:
    return needed == allowed or (allowed.endswith("/*") and needed.startswith(allowed.removesuffix("*")))
