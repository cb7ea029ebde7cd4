"""Bring two answers into one form: what is left different is a difference."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from safedelete.deploy.drift.model import Change
from safedelete.deploy.ecs_spec import RESERVED
from safedelete.errors import StoreError

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


_RULE_SERVER: Final = frozenset({"Arn", "CreatedBy", "EventBusName", "ResponseMetadata"})


@dataclass(frozen=True, slots=True)
class Hidden:
    """The value of a variable: compared, and never printed, since a revision made by hand may hold a password."""

    value: Any = field(repr=False)

    def __str__(self) -> str:
        return "(a value, not shown)"


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
    if isinstance(repository, Hidden) and isinstance(there, Hidden):
        return [Change(path, "(another value, not shown)", "(the rendered one)")]
    return [Change(path, there, repository)]


def task(definition: Mapping[str, Any]) -> Any:
    """Return a task definition without what only the server says, and with its variables hidden."""
    plain = _settled(definition, _TASK_SERVER, _TASK_DEFAULTS, tidy=False)
    plain["containerDefinitions"] = [
        _settled(_hidden(container), frozenset(), _CONTAINER_DEFAULTS, tidy=False)
        for container in plain.get("containerDefinitions") or ()
    ]
    # Beside ours an organisation may put its own.
    ours = {"rendered-by"}
    plain["tags"] = [tag for tag in plain.get("tags") or () if tag.get("key") in ours]
    return clean(plain)


def schedule(answer: Mapping[str, Any]) -> Any:
    """Return a schedule without what only the server says; an input may override variables, which are hidden."""
    plain = _settled(answer, _SCHEDULE_SERVER, _SCHEDULE_DEFAULTS, tidy=False)
    target = dict(plain.get("Target") or {})
    if "Input" in target:
        target["Input"] = _input(str(target["Input"]))
    return clean({**plain, "Target": target})


def alarm(answer: Mapping[str, Any]) -> Any:
    """Return an alarm without its state."""
    return _settled(answer, _ALARM_SERVER, _ALARM_DEFAULTS)


def rule(answer: Mapping[str, Any]) -> Any:
    """Return a rule and its targets; its pattern as a value, however it is written."""
    pattern = answer.get("EventPattern")
    read = json.loads(pattern) if isinstance(pattern, str) else pattern
    return _settled({**answer, "EventPattern": read}, _RULE_SERVER, {})


def document(policy: Mapping[str, Any] | str) -> dict[str, Any]:
    """Return a policy's statements by their text, in whichever order and however lists of one are written.

    Raises:
        StoreError: It is no policy.
    """
    # boto3 decodes policies itself; what stands in for AWS may hand out the text.
    try:
        read = json.loads(policy) if isinstance(policy, str) else policy
        return _statements(read)
    except (ValueError, AttributeError, TypeError) as error:
        raise StoreError(
            "AWS answered with a policy document that cannot be read.",
            hint="Check AWS_ENDPOINT_URL and any proxy in between, and look at the role's policies.",
        ) from error


def _statements(policy: Mapping[str, Any]) -> dict[str, Any]:
    listed = policy.get("Statement") or []
    found = {}
    for statement in listed if isinstance(listed, list) else [listed]:
        one = {
            name: sorted(inner if isinstance(inner, list) else [inner])
            if name in ("Action", "NotAction", "Resource", "NotResource")
            else inner
            for name, inner in statement.items()
        }
        found[json.dumps(one, sort_keys=True)] = one
    return found


def _hidden(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container, or an override of one, whose variables are known by name alone; ours hold no secret."""
    pairs = [
        pair if pair.get("name") in RESERVED else {**pair, "value": Hidden(pair.get("value"))}
        for pair in container.get("environment") or ()
    ]
    return {**container, "environment": pairs}


def _input(text: str) -> Any:
    try:
        read = json.loads(text)
        overrides = [_hidden(one) for one in read.get("containerOverrides") or ()]
    except (ValueError, AttributeError, TypeError):
        return Hidden(text)
    return {**read, "containerOverrides": overrides}


def _settled(
    value: Mapping[str, Any], server: frozenset[str], defaults: Mapping[str, Any], *, tidy: bool = True
) -> Any:
    kept = {
        name: inner
        for name, inner in value.items()
        if name not in server and (name not in defaults or inner != defaults[name])
    }
    return clean(kept) if tidy else kept


def clean(value: Any, name: str = "") -> Any:
    """Drop what is empty, and put into order what has none; named things become a mapping, so that a change says which."""
    if isinstance(value, Mapping):
        found = {key: clean(inner, key) for key, inner in value.items()}
        # A flag that is off is left out by some answers, and said by others.
        return {
            key: inner
            for key, inner in found.items()
            if inner is not False and inner not in (None, [], {}, "")
        }
    if isinstance(value, (list, tuple)):
        items = [clean(inner) for inner in value]
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
