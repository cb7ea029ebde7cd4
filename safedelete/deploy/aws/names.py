"""What everything is called: names are given, never left to the stack, so that what is deployed can be found again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from safedelete.deploy.ecs_spec import Ecs

ROLE: Final = 64
"""Letters of a role's name."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names, and the ARNs that follow from them."""

    ecs: Ecs

    @property
    def group(self) -> str:
        """The schedule group; a schedule in it has its job's name, which is just as long as AWS allows."""
        return self.ecs.prefix

    @property
    def cluster(self) -> str:
        """ARN of the cluster."""
        return self.ecs.arn("ecs", f"cluster/{self.ecs.cluster}")

    @property
    def log_group(self) -> str:
        """Name of the log group."""
        return self.ecs.log_group or f"/{self.ecs.prefix}"

    @property
    def topic(self) -> str:
        """ARN of the topic."""
        return self.ecs.topic or self.ecs.arn("sns", f"{self.ecs.prefix}-alerts")

    @property
    def dead_letters(self) -> str:
        """Name of the queue for what Scheduler could not start."""
        return f"{self.ecs.prefix}-not-started"

    @property
    def rule(self) -> str:
        """Name of the rule that tells of failed tasks."""
        return f"{self.ecs.prefix}-task-failed"

    @property
    def execution_role(self) -> str:
        """ARN of the role that starts a container."""
        return self.ecs.execution_role or self.role_arn("execution")

    @property
    def approver_execution_role(self) -> str:
        """ARN of the role that starts the approving task's container: no other may read what an approver connects by."""
        return self.ecs.execution_role or self.role_arn("approver-execution")

    @property
    def scheduler_role(self) -> str:
        """ARN of the role that starts a task."""
        return self.ecs.scheduler_role or self.role_arn("scheduler")

    def task_role(self, job: str) -> str:
        """ARN of a job's own role."""
        return self.ecs.task_role or self.role_arn(f"job-{job}")

    def family(self, job: str) -> str:
        """A job's family of task definitions."""
        return f"{self.ecs.prefix}-{job}"

    def alarm(self, *parts: str) -> str:
        """Name of an alarm."""
        return "-".join([self.ecs.prefix, *parts])

    def role(self, what: str) -> str:
        """Name of a role; what would be too long ends in a part of its hash. The region keeps two deployments apart."""
        name = f"{self.ecs.prefix}-{self.ecs.region}-{what}"
        if len(name) <= ROLE:
            return name
        return f"{name[: ROLE - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

    def role_arn(self, what: str) -> str:
        """ARN of a role that is made."""
        return self.ecs.arn("iam", f"role/{self.role(what)}", region=False)


def logical(*parts: str) -> str:
    """Return a template's name for a resource: letters and digits, and different for ``a-b`` and ``ab``."""
    text = "".join(part[:1].upper() + part[1:] for chunk in parts for part in re.split("[^A-Za-z0-9]", chunk))
    joined = "-".join(parts)
    if "-" not in joined:
        return text
    return f"{text}{hashlib.sha256(joined.encode()).hexdigest()[:6]}"
