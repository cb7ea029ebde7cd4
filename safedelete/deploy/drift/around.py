"""Compare what stands around the jobs: who is told, what may be done, and who may approve. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.aws.task import APPROVER
from safedelete.deploy.drift.model import Asked, Change, Difference, Kind, There
from safedelete.deploy.drift.normal import clean, document, fields, rule, task

_PENDING: Final = "PendingConfirmation"
"""What stands in place of the ARN of a subscription that nobody has confirmed."""


def around(made: Deployment, there: There) -> Iterator[Difference]:
    """Yield what is different about the approving task, the rule on stopped tasks, the topic and the roles."""
    if there.known(Asked.TASK, APPROVER):
        yield from _approver(made, there.approver)
    if there.known(Asked.RULE, made.names.rule):
        yield from _rule(made, there.rule)
    if made.own_topic and there.known(Asked.TOPIC, made.names.topic):
        yield from _topic(made, there)
    for role in made.roles.values():
        if there.known(Asked.ROLE, role["RoleName"]):
            yield from _role(role, there.roles.get(role["RoleName"]))


def _approver(made: Deployment, newest: Mapping[str, Any] | None) -> Iterator[Difference]:
    if made.approver is None:
        return
    family = made.names.family(APPROVER)
    if newest is None:
        yield Difference(
            Kind.NO_REVISION, APPROVER, f"There is no task definition {family}; nobody can approve by it."
        )
        return
    if changes := fields(task(made.approver), task(newest)):
        yield Difference(
            Kind.REVISION,
            APPROVER,
            f"{family}:{newest.get('revision')}, in which people approve, is not what the repository renders.",
            tuple(changes),
        )


def _rule(made: Deployment, actual: Mapping[str, Any] | None) -> Iterator[Difference]:
    name = made.names.rule
    if actual is None:
        yield Difference(
            Kind.NO_RULE, name, f"The rule {name} is not there; nobody is told of a task that never ran."
        )
    elif changes := fields(rule(made.rule), rule(actual)):
        yield Difference(Kind.RULE, name, f"The rule {name} is not the rendered one.", tuple(changes))


def _topic(made: Deployment, there: There) -> Iterator[Difference]:
    topic = made.names.topic
    if there.subscriptions is None:
        yield Difference(Kind.NO_TOPIC, topic, f"The topic {topic} is not there; no alarm is heard.")
        return
    filters = {
        (str(one.get("Protocol")), str(one.get("Endpoint"))): one.get("FilterPolicy")
        for one in there.subscriptions
    }
    confirmed = {
        (str(one.get("Protocol")), str(one.get("Endpoint"))): one.get("SubscriptionArn") != _PENDING
        for one in there.subscriptions
    }
    for one in made.subscriptions:
        how, where = one
        change = (Change(f"Subscription.{how}", None, where),)
        if one not in confirmed:
            yield Difference(
                Kind.NO_SUBSCRIPTION,
                where,
                f"{where} is not subscribed to {topic}: unsubscribed, or not confirmed in time.",
                change,
            )
        elif not confirmed[one]:
            yield Difference(
                Kind.UNCONFIRMED,
                where,
                f"{where} has not confirmed its subscription to {topic}, and hears nothing.",
            )
        elif filters[one]:
            yield Difference(
                Kind.FILTERED,
                where,
                f"{where} is told by {topic} only of what its filter policy lets through; no alarm has what it asks for.",
                (Change(f"Subscription.{how}.FilterPolicy", filters[one], None),),
            )
    if not any(confirmed.values()):
        yield Difference(
            Kind.UNHEARD, topic, f"The topic {topic} has no subscriber that has confirmed: no alarm is heard."
        )


def _role(wanted: Mapping[str, Any], actual: Mapping[str, Any] | None) -> Iterator[Difference]:
    name = str(wanted["RoleName"])
    if actual is None:
        yield Difference(Kind.NO_ROLE, name, f"The role {name} is not there.")
        return
    mine, theirs = _policies(wanted), _policies(actual)
    changes = []
    for policy in sorted({*mine, *theirs}):
        ours, others = mine.get(policy, {}), theirs.get(policy, {})
        changes += [Change(policy, others[text], None) for text in others if text not in ours]
        changes += [Change(policy, None, ours[text]) for text in ours if text not in others]
    names = [
        clean({"ManagedPolicyArns": sorted(role.get("ManagedPolicyArns") or ())}) for role in (wanted, actual)
    ]
    changes += fields(*names)
    if changes:
        yield Difference(Kind.ROLE, name, f"The role {name} is not the rendered one.", tuple(changes))


def _policies(role: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the statements of a role's own policies and of its trust, by where they stand."""
    inline = {
        f"Policies.{one['PolicyName']}": document(one["PolicyDocument"]) for one in role.get("Policies") or ()
    }
    return {**inline, "AssumeRolePolicyDocument": document(role["AssumeRolePolicyDocument"])}
