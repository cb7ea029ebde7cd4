"""What AWS says, and how it differs from what the repository does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final


class Kind(StrEnum):
    """What can be different."""

    NO_SCHEDULE = "no schedule"
    DISABLED = "disabled schedule"
    REPOINTED = "re-pointed schedule"
    UNPINNED = "unpinned schedule"
    SCHEDULE = "changed schedule"
    STRAY = "schedule of no job"
    NO_REVISION = "no such revision"
    REVISION = "changed revision"
    HAND_REGISTERED = "newer revision"
    NO_ALARM = "deleted alarm"
    ALARM = "changed alarm"
    NO_RULE = "deleted rule"
    RULE = "changed rule"
    NO_TOPIC = "no topic"
    UNHEARD = "unheard topic"
    NO_SUBSCRIPTION = "missing subscription"
    UNCONFIRMED = "unconfirmed subscription"
    FILTERED = "filtered subscription"
    NO_ROLE = "no role"
    ROLE = "changed role"


UNCHECKED: Final = (
    "what is in the image: `run --expect-revision` holds its job file against the task definition",
    "the topic's policy",
    "the dead-letter queue and the log group",
    "the roles' permission boundaries, and the organisation's policies",
    "schedules of other groups, and rules, that start the same task definitions",
)
"""What may have been changed by hand, too, and is not looked at."""


@dataclass(frozen=True, slots=True)
class Change:
    """One field.

    Attributes:
        path: Where it is.
        there: What is deployed; None where nothing is.
        repository: What the repository says; None where it says nothing.
    """

    path: str
    there: Any
    repository: Any


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as the repository says.

    Attributes:
        kind: What sort.
        name: Of what.
        message: One sentence.
        changes: The fields; what the next deploy would undo.
    """

    kind: Kind
    name: str
    message: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """What AWS says, of one deployment.

    Attributes:
        schedules: By job; None where there is none.
        strays: Names of further schedules in the group.
        pinned: By job, the task definition that its schedule names; None where there is none.
        newest: By job, the newest ACTIVE revision of its family; None where there is none.
        alarms: By name.
        approver: The newest ACTIVE revision of the approving task; None where there is none.
        rule: The rule on stopped tasks with its targets; None where there is none.
        subscriptions: Of the topic; None where there is no such topic.
        roles: By name, those that are made, with their policies; None where there is none.
    """

    schedules: Mapping[str, Mapping[str, Any] | None]
    strays: Sequence[str] = ()
    pinned: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    newest: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    alarms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    approver: Mapping[str, Any] | None = None
    rule: Mapping[str, Any] | None = None
    subscriptions: Sequence[Mapping[str, Any]] | None = None
    roles: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


def family_of(arn: str) -> tuple[str, int | None]:
    """Return the family and the revision that a task definition's name or ARN says."""
    name = arn.rpartition("/")[2]
    family, colon, revision = name.partition(":")
    return family, int(revision) if colon and revision.isdecimal() else None
