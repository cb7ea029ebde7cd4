"""Compare what is deployed with what the repository says: pure, so that every case can be held in a test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.jobs import Deployed

_ORDERED: Final = frozenset({"command", "entryPoint", "dnsServers", "dependsOn"})
"""Lists whose order means something."""

_TASK_SERVER: Final = frozenset(
    {
        "taskDefinitionArn",
        "revision",
        "status",
        "requiresAttributes",
        "compatibilities",
        "registeredAt",
        "registeredBy",
        "deregisteredAt",
        "deleteRequestedAt",
    }
)
"""What only the server says of a task definition."""

_SCHEDULE_SERVER: Final = frozenset({"Arn", "CreationDate", "LastModificationDate", "ResponseMetadata"})
_ALARM_SERVER: Final = frozenset(
    {
        "AlarmArn",
        "AlarmConfigurationUpdatedTimestamp",
        "StateValue",
        "StateReason",
        "StateReasonData",
        "StateUpdatedTimestamp",
        "StateTransitionedTimestamp",
        "EvaluationState",
    }
)

_TASK_DEFAULTS: Final[Mapping[str, Any]] = {"enableFaultInjection": False}
_CONTAINER_DEFAULTS: Final[Mapping[str, Any]] = {"cpu": 0, "essential": True, "versionConsistency": "enabled"}
_SCHEDULE_DEFAULTS: Final[Mapping[str, Any]] = {"ActionAfterCompletion": "NONE"}
_ALARM_DEFAULTS: Final[Mapping[str, Any]] = {"EvaluationWindow": {"SlidingWindow": {}}}


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
    """

    schedules: Mapping[str, Mapping[str, Any] | None]
    strays: Sequence[str] = ()
    pinned: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    newest: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    alarms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def compare(made: Deployment, there: There) -> list[Difference]:
    """Return every difference: of schedules and revisions in the order of the jobs, then of alarms."""
    found: list[Difference] = []
    for job in made.jobs:
        found += revisions(made, job, there)
    for name in there.strays:
        found.append(
            Difference(
                Kind.STRAY,
                name,
                f"The group {made.names.group} has a schedule {name}, which belongs to no job of the file: it goes on "
                "starting what it names.",
            )
        )
    for alarm in made.alarms.values():
        found += _alarm(alarm, there.alarms.get(alarm["AlarmName"]))
    return found


def revisions(made: Deployment, job: Deployed, there: There) -> Iterator[Difference]:
    """Yield what is different about a job's schedule and its task definition."""
    actual = there.schedules.get(job.name)
    if actual is None:
        yield Difference(
            Kind.NO_SCHEDULE,
            job.name,
            f"{job.name}: there is no schedule {made.names.group}/{job.name}; the job never runs.",
        )
        return
    target = actual.get("Target") or {}
    pinned_arn = str((target.get("EcsParameters") or {}).get("TaskDefinitionArn", ""))
    if actual.get("State") != "ENABLED":
        yield Difference(
            Kind.DISABLED,
            job.name,
            f"{job.name}: its schedule is {actual.get('State')}; the job does not run.",
            (Change("State", actual.get("State"), "ENABLED"),),
        )
    changes = fields(
        _schedule({**made.schedule(job, pinned_arn), "State": actual.get("State")}), _schedule(actual)
    )
    if changes:
        yield Difference(
            Kind.SCHEDULE, job.name, f"{job.name}: its schedule is not the rendered one.", tuple(changes)
        )
    yield from _pinned(made, job, there, pinned_arn)


def _pinned(made: Deployment, job: Deployed, there: There, arn: str) -> Iterator[Difference]:
    family = made.names.family(job.name)
    named, revision = family_of(arn)
    pinned, newest = there.pinned.get(job.name), there.newest.get(job.name)
    latest = None if newest is None else int(newest["revision"])
    if named != family:
        yield Difference(
            Kind.REPOINTED,
            job.name,
            f"{job.name}: its schedule runs {named}:{revision or 'newest'}, another family than {family}.",
            (
                Change(
                    "Target.EcsParameters.TaskDefinitionArn", arn, f"{family}:{latest or 'to be registered'}"
                ),
            ),
        )
        return
    if revision is None:
        yield Difference(
            Kind.UNPINNED,
            job.name,
            f"{job.name}: its schedule names no revision of {family}, so it runs whatever is registered last.",
            (
                Change(
                    "Target.EcsParameters.TaskDefinitionArn", arn, f"{family}:{latest or 'to be registered'}"
                ),
            ),
        )
    if pinned is None or pinned.get("status") == "INACTIVE":
        how = "was deregistered" if pinned else "does not exist"
        yield Difference(
            Kind.NO_REVISION,
            job.name,
            f"{job.name}: its schedule runs {family}:{revision}, which {how}.",
        )
    wanted = made.tasks[job.name]
    changes = [] if pinned is None else fields(_task(wanted), _task(pinned))
    if changes:
        # Where another revision is as the repository says, it is the schedule that was moved.
        other = newest is not None and latest != revision and not fields(_task(wanted), _task(newest))
        kind = Kind.REPOINTED if other else Kind.REVISION
        yield Difference(
            kind,
            job.name,
            f"{job.name}: its schedule runs {family}:{revision}{_who(pinned)}, which is not what the repository "
            f"renders{f'; {family}:{latest} is' if other else ''}.",
            tuple(changes),
        )
    if revision is not None and latest is not None and latest != revision:
        difference = fields(_task(wanted), _task(newest or {}))
        yield Difference(
            Kind.HAND_REGISTERED,
            job.name,
            f"{job.name}: {family}:{latest}{_who(newest)} is registered beside {revision}, which the schedule runs: by hand, "
            "or by a deploy that has not arrived. The next deploy registers another.",
            tuple(difference),
        )


def _alarm(wanted: Mapping[str, Any], actual: Mapping[str, Any] | None) -> Iterator[Difference]:
    name = str(wanted["AlarmName"])
    if actual is None:
        yield Difference(Kind.NO_ALARM, name, f"The alarm {name} is not there; nobody is told.")
        return
    changes = fields(_clean(wanted), _settled(actual, _ALARM_SERVER, _ALARM_DEFAULTS))
    if changes:
        yield Difference(Kind.ALARM, name, f"The alarm {name} is not the rendered one.", tuple(changes))


def family_of(arn: str) -> tuple[str, int | None]:
    """Return the family and the revision that a task definition's name or ARN says."""
    name = arn.rpartition("/")[2]
    family, colon, revision = name.partition(":")
    return family, int(revision) if colon and revision.isdecimal() else None


def fields(repository: Any, there: Any, path: str = "") -> list[Change]:
    """Return the leaves in which two normalised values differ."""
    if isinstance(repository, Mapping) and isinstance(there, Mapping):
        found: list[Change] = []
        for name in sorted({*repository, *there}):
            inner = f"{path}.{name}" if path else name
            found += fields(repository.get(name), there.get(name), inner)
        return found
    if repository == there:
        return []
    return [Change(path, there, repository)]


def _who(task: Mapping[str, Any] | None) -> str:
    who = (task or {}).get("registeredBy")
    return f" (registered by {who})" if who else ""


def _task(task: Mapping[str, Any]) -> Any:
    plain = _settled(task, _TASK_SERVER, _TASK_DEFAULTS, clean=False)
    plain["containerDefinitions"] = [
        _settled(container, frozenset(), _CONTAINER_DEFAULTS, clean=False)
        for container in plain.get("containerDefinitions") or ()
    ]
    # Beside ours an organisation may put its own.
    ours = {"rendered-by"}
    plain["tags"] = [tag for tag in plain.get("tags") or () if tag.get("key") in ours]
    return _clean(plain)


def _schedule(schedule: Mapping[str, Any]) -> Any:
    return _settled(schedule, _SCHEDULE_SERVER, _SCHEDULE_DEFAULTS)


def _settled(
    value: Mapping[str, Any], server: frozenset[str], defaults: Mapping[str, Any], *, clean: bool = True
) -> Any:
    kept = {
        name: inner
        for name, inner in value.items()
        if name not in server and (name not in defaults or inner != defaults[name])
    }
    return _clean(kept) if clean else kept


def _clean(value: Any, name: str = "") -> Any:
    """Drop what is empty, and put into order what has none; named things become a mapping, so that a change says which."""
    if isinstance(value, Mapping):
        found = {key: _clean(inner, key) for key, inner in value.items()}
        # A flag that is off is left out by some answers, and said by others.
        return {
            key: inner
            for key, inner in found.items()
            if inner is not False and inner not in (None, [], {}, "")
        }
    if isinstance(value, (list, tuple)):
        items = [_clean(inner) for inner in value]
        key = _named(items)
        if key is not None:
            return {item[key]: {k: v for k, v in item.items() if k != key} or True for item in items}
        if name in _ORDERED:
            return items
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True, default=str))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return float(value)


def _named(items: Sequence[Any]) -> str | None:
    for key in ("name", "Name", "key", "Id"):
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            return key if len({item[key] for item in items}) == len(items) else None
    return None
