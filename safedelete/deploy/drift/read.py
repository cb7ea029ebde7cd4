"""Ask AWS what is deployed. Reads only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.aws.task import APPROVER
from safedelete.deploy.drift.model import Asked, There, called, family_of
from safedelete.errors import ConfigError, PreflightError, SafeDeleteError, StoreError, UnreachedError

ATTEMPTS: Final = 8
"""How often a throttled or unanswered call is made, with growing pauses between."""

_DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_BAD_TOKENS: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)

_AWS: Final = re.compile(r"\.(amazonaws\.com|amazonaws\.com\.cn|api\.aws|amazonaws\.eu)(:[0-9]+)?(/|$)")


class Reader(Protocol):
    """What has to be known of AWS."""

    def account(self) -> str:
        """Return the account's number."""

    def schedule(self, group: str, name: str) -> Mapping[str, Any] | None:
        """Return a schedule; None where there is none."""

    def schedules(self, group: str) -> Sequence[str]:
        """Return the names of a group's schedules."""

    def task_definition(self, name: str) -> Mapping[str, Any] | None:
        """Return a revision, or the newest ACTIVE one of a family, with its tags; None where there is none."""

    def alarms(self, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Return those of these alarms that are there."""

    def rule(self, name: str) -> Mapping[str, Any] | None:
        """Return a rule with its targets; None where there is none."""

    def subscriptions(self, topic: str) -> Sequence[Mapping[str, Any]] | None:
        """Return who is subscribed to a topic; None where there is no such topic."""

    def filter_policy(self, subscription: str) -> str | None:
        """Return what a subscriber is told of alone; None where that is everything."""

    def role(self, name: str) -> Mapping[str, Any] | None:
        """Return a role with the policies in it and the names of those attached to it; None where there is none."""


def read(made: Deployment, reader: Reader) -> There:
    """Ask for everything that is compared; what is denied or fails is left unread, and the rest asked for all the same.

    Raises:
        ConfigError: The credentials are for another account than the settings name, or no longer good.
        StoreError: Nothing was answered at all.
    """
    asking, names = _Asking(), made.names
    schedules = _schedules(made, reader, asking)
    alarm_names = [str(alarm["AlarmName"]) for alarm in made.alarms.values()]
    none: Sequence[Mapping[str, Any]] = ()
    alarms = asking.of(Asked.ALARMS, "", lambda: reader.alarms(alarm_names), none)
    rule = asking.of(Asked.RULE, names.rule, lambda: reader.rule(names.rule), None)
    approver, subscriptions = None, None
    if made.approver is not None:
        family = names.family(APPROVER)
        approver = asking.of(Asked.TASK, APPROVER, lambda: reader.task_definition(family), None)
    if made.own_topic:
        subscriptions = asking.of(Asked.TOPIC, names.topic, lambda: _subscriptions(made, reader), None)
    roles = {
        name: asking.of(Asked.ROLE, name, partial(reader.role, name), None)
        for name in (str(role["RoleName"]) for role in made.roles.values())
    }
    return replace(
        schedules,
        alarms={str(alarm["AlarmName"]): alarm for alarm in alarms},
        approver=approver,
        rule=rule,
        subscriptions=subscriptions,
        roles=roles,
        unread=asking.unread,
    )


T = TypeVar("T")


class _Asking:
    """Asks for one thing after another, and remembers what could not be looked at."""

    def __init__(self) -> None:
        self.unread: dict[str, SafeDeleteError] = {}
        self._failed: dict[Asked, SafeDeleteError] = {}

    def of(self, kind: Asked, name: str, ask: Callable[[], T], otherwise: T) -> T:
        """Return an answer; ``otherwise`` where there is none, which is remembered with its reason."""
        error = self._failed.get(kind)
        if error is None:
            try:
                return ask()
            except UnreachedError:
                raise
            except PreflightError as denied:
                # Of this one, perhaps: the next may be allowed.
                error = denied
            except StoreError as failed:
                # Each was asked for over and over, in vain; all of its kind would take as long.
                error = self._failed[kind] = failed
        self.unread[called(kind, name)] = error
        return otherwise


def _subscriptions(made: Deployment, reader: Reader) -> Sequence[Mapping[str, Any]] | None:
    """Ask who listens, and of those that are rendered to what: another account's own may not be asked for its filter."""
    there = reader.subscriptions(made.names.topic)
    return there and [
        {**one, "FilterPolicy": reader.filter_policy(arn)}
        if (one.get("Protocol"), one.get("Endpoint")) in made.subscriptions
        and (arn := str(one.get("SubscriptionArn"))).startswith("arn:")
        else one
        for one in there
    ]


def read_schedules(made: Deployment, reader: Reader) -> There:
    """Ask for the schedules and what they run, which is where a deploy arrives last.

    Raises:
        ConfigError: The credentials are for another account than the settings name, or no longer good.
        StoreError: Nothing was answered at all.
    """
    asking = _Asking()
    return replace(_schedules(made, reader, asking), unread=asking.unread)


def _schedules(made: Deployment, reader: Reader, asking: _Asking) -> There:
    account = reader.account()
    if account != made.ecs.account:
        raise ConfigError(
            f"The credentials are for the account {account}; ecs.account is {made.ecs.account}.",
            hint="Use the profile of that account, or the settings of this one.",
        )
    group = made.names.group
    schedules = {
        job.name: asking.of(Asked.SCHEDULE, job.name, partial(reader.schedule, group, job.name), None)
        for job in made.jobs
    }
    pinned: dict[str, Mapping[str, Any] | None] = {}
    newest: dict[str, Mapping[str, Any] | None] = {}

    def task(job: str, name: str) -> Mapping[str, Any] | None:
        return asking.of(Asked.TASK, job, lambda: reader.task_definition(name), None)

    for job in made.jobs:
        newest[job.name] = task(job.name, made.names.family(job.name))
        parameters = ((schedules[job.name] or {}).get("Target") or {}).get("EcsParameters") or {}
        arn = parameters.get("TaskDefinitionArn")
        pinned[job.name] = task(job.name, str(arn)) if arn else None
    none: Sequence[str] = ()
    listed = asking.of(Asked.STRAYS, group, lambda: reader.schedules(group), none)
    strays = [name for name in listed if name not in schedules]
    return There(schedules=schedules, strays=strays, pinned=pinned, newest=newest)


class Aws:
    """Implements :class:`Reader` by boto3. Reads only.

    Args:
        region: Where to look.
        session: A boto3 session; the default chain unless given.
    """

    def __init__(self, region: str, session: Any = None) -> None:
        import boto3
        from botocore.config import Config

        # Its clients are asked for by name, which no stub knows.
        self._session: Any = session or boto3.session.Session()
        self._region = region
        self._config = Config(
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS}, connect_timeout=10, read_timeout=30
        )
        self._clients: dict[str, Any] = {}

    def account(self) -> str:
        """Return the caller's account."""
        return str(self._ask("sts", "GetCallerIdentity", lambda c: c.get_caller_identity())["Account"])

    def schedule(self, group: str, name: str) -> Mapping[str, Any] | None:
        """Return a schedule; None where there is none."""
        found: dict[str, Any] | None = self._ask(
            "scheduler",
            "GetSchedule",
            lambda c: c.get_schedule(GroupName=group, Name=name),
            absent={"ResourceNotFoundException"},
        )
        return found

    def schedules(self, group: str) -> Sequence[str]:
        """Return the names of a group's schedules; none where there is no such group."""

        def listed(client: Any) -> list[str]:
            pages = client.get_paginator("list_schedules").paginate(GroupName=group)
            return [str(schedule["Name"]) for page in pages for schedule in page["Schedules"]]

        found: list[str] | None = self._ask(
            "scheduler", "ListSchedules", listed, absent={"ResourceNotFoundException"}
        )
        return found or []

    def task_definition(self, name: str) -> Mapping[str, Any] | None:
        """Return a task definition with its tags; None where there is none."""
        if ":" not in name.rpartition("/")[2]:
            newest = self._newest(name.rpartition("/")[2])
            return None if newest is None else self.task_definition(newest)

        def described(client: Any) -> dict[str, Any]:
            answer = client.describe_task_definition(taskDefinition=name, include=["TAGS"])
            return {**answer["taskDefinition"], "tags": answer.get("tags") or []}

        found: dict[str, Any] | None = self._ask(
            "ecs", "DescribeTaskDefinition", described, absent={"ClientException"}
        )
        return found

    def _newest(self, family: str) -> str | None:
        """Return the ARN of a family's newest ACTIVE revision."""

        def listed(client: Any) -> list[str]:
            pages = client.get_paginator("list_task_definitions").paginate(
                familyPrefix=family, status="ACTIVE", sort="DESC"
            )
            return [str(arn) for page in pages for arn in page["taskDefinitionArns"]]

        arns: list[str] = self._ask("ecs", "ListTaskDefinitions", listed)
        mine = [arn for arn in arns if family_of(arn)[0] == family]
        return max(mine, key=lambda arn: family_of(arn)[1] or 0, default=None)

    def alarms(self, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Return those of these alarms that are there; a request takes 100 names."""

        def described(client: Any) -> Iterator[Mapping[str, Any]]:
            for start in range(0, len(names), 100):
                some = list(names[start : start + 100])
                pages = client.get_paginator("describe_alarms").paginate(
                    AlarmNames=some, AlarmTypes=["MetricAlarm"]
                )
                for page in pages:
                    yield from page["MetricAlarms"]

        return self._ask("cloudwatch", "DescribeAlarms", lambda c: list(described(c))) or []

    def rule(self, name: str) -> Mapping[str, Any] | None:
        """Return a rule with its targets; None where there is none."""

        def described(client: Any) -> dict[str, Any]:
            targets = client.list_targets_by_rule(Rule=name)["Targets"]
            return {**client.describe_rule(Name=name), "Targets": targets}

        found: dict[str, Any] | None = self._ask(
            "events", "DescribeRule", described, absent={"ResourceNotFoundException"}
        )
        return found

    def subscriptions(self, topic: str) -> Sequence[Mapping[str, Any]] | None:
        """Return who is subscribed to a topic; None where there is no such topic."""

        def listed(client: Any) -> list[Mapping[str, Any]]:
            pages = client.get_paginator("list_subscriptions_by_topic").paginate(TopicArn=topic)
            return [one for page in pages for one in page["Subscriptions"]]

        found: list[Mapping[str, Any]] | None = self._ask(
            "sns", "ListSubscriptionsByTopic", listed, absent={"NotFound", "NotFoundException"}
        )
        return found

    def filter_policy(self, subscription: str) -> str | None:
        """Return what a subscriber is told of alone; None where that is everything."""
        found: Mapping[str, Any] | None = self._ask(
            "sns",
            "GetSubscriptionAttributes",
            lambda c: c.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"],
            absent={"NotFound", "NotFoundException"},
        )
        return (found or {}).get("FilterPolicy") or None

    def role(self, name: str) -> Mapping[str, Any] | None:
        """Return a role with the policies in it and the ARNs of those attached to it; None where there is none."""

        def described(client: Any) -> dict[str, Any]:
            role = client.get_role(RoleName=name)["Role"]
            inline = client.get_paginator("list_role_policies").paginate(RoleName=name)
            attached = client.get_paginator("list_attached_role_policies").paginate(RoleName=name)
            return {
                **role,
                "Policies": [
                    client.get_role_policy(RoleName=name, PolicyName=policy)
                    for page in inline
                    for policy in page["PolicyNames"]
                ],
                "ManagedPolicyArns": [
                    one["PolicyArn"] for page in attached for one in page["AttachedPolicies"]
                ],
            }

        found: dict[str, Any] | None = self._ask("iam", "GetRole", described, absent={"NoSuchEntity"})
        return found

    def _ask(
        self, service: str, operation: str, ask: Callable[[Any], Any], *, absent: set[str] | None = None
    ) -> Any:
        from botocore.exceptions import ClientError

        with _told(f"{service}:{operation}"):
            if service not in self._clients:
                self._clients[service] = self._session.client(
                    service, region_name=self._region, config=self._config
                )
            client = self._clients[service]
        with _told(f"{service}:{operation}", str(client.meta.endpoint_url)):
            try:
                return ask(client)
            except ClientError as error:
                if absent and _code(error) in absent:
                    return None
                raise


@contextmanager
def _told(what: str, endpoint: str = "") -> Iterator[None]:
    """Turn the SDK's errors into ours: what could not be read is never called equal."""
    again = "Nothing is known of it; try again."
    if endpoint and not _AWS.search(endpoint):
        again = (
            f"Nothing is known of what is deployed: {endpoint} was asked, which is not AWS. Unset $AWS_ENDPOINT_URL and "
            "$AWS_ENDPOINT_URL_<SERVICE>, and endpoint_url in the AWS profile."
        )
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
        ProfileNotFound,
        TokenRetrievalError,
    )

    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, ProfileNotFound, TokenRetrievalError) as error:
        raise ConfigError(
            f"{what} could not be asked: {error}.",
            hint="Set AWS_PROFILE, or the AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a role that may read.",
        ) from error
    except ClientError as error:
        said = f"{_code(error)}: {(error.response.get('Error') or {}).get('Message') or ''}".rstrip(": ")
        if _code(error) in _BAD_TOKENS:
            raise ConfigError(
                f"{what} was not answered: {said}.", hint="Renew the credentials, and try again."
            ) from error
        if _code(error) in _DENIED:
            raise PreflightError(
                f"{what} is denied: {said}.",
                denied=[what],
                hint="docs/how-to/pipeline.md lists what `drift` reads.",
            ) from error
        raise StoreError(f"{what} failed: {said}.", hint=again) from error
    except BotoCoreError as error:
        raise UnreachedError(f"{what} was not answered: {error}.", hint=again) from error


def _code(error: Any) -> str:
    return str((error.response.get("Error") or {}).get("Code") or "?")
