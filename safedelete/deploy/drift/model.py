"""What AWS says, and how it differs from what the repository does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from safedelete.errors import SafeDeleteError


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


class Asked(StrEnum):
    """What AWS is asked about."""

    SCHEDULE = "the schedule"
    STRAYS = "further schedules of the group"
    TASK = "the task definitions of"
    ALARMS = "the alarms"
    RULE = "the rule"
    TOPIC = "who listens to"
    ROLE = "the role"


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
        unread: What could not be looked at, as its kind and its name say, and why: it is neither there, nor gone, nor equal.
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
    unread: Mapping[str, SafeDeleteError] = field(default_factory=dict)

    def known(self, kind: Asked, name: str = "") -> bool:
        """Whether AWS has answered about something."""
        return called(kind, name) not in self.unread


def called(kind: Asked, name: str = "") -> str:
    """Return what something is called in a message."""
    return f"{kind.value} {name}".rstrip()


def family_of(arn: str) -> tuple[str, int | None]:
    """Return the family and the revision that a task definition's name or ARN says."""
    name = arn.rpartition("/")[2]
    family, colon, revision = name.partition(":")
    return family, int(revision) if colon and revision.isdecimal() else None
