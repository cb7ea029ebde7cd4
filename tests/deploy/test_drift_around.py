"""What stands around the jobs is held against the repository too: who is told, what may be done, who may approve."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest
import yaml

from safedelete.cli import drift as verb
from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.aws.template import template
from safedelete.deploy.drift.around import around
from safedelete.deploy.drift.compare import compare
from safedelete.deploy.drift.model import Difference
from safedelete.deploy.drift.normal import document
from safedelete.deploy.drift.read import Aws, read
from safedelete.deploy.drift.watch import Looked
from safedelete.deploy.spec import NAME
from safedelete.errors import StoreError
from tests.deploy.aws import ACCOUNT, JOBS, REGION, TOML, Services, as_rendered, made
from tests.e2e.world import run_here

POLICY = f"arn:aws:iam::{ACCOUNT}:policy/mail"
RULE = "safedelete-task-failed"
APPROVER = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:approver-AbCdEf"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:safedelete-alerts"
JOB_ROLE = f"safedelete-{REGION}-job-nightly"


@pytest.fixture
def mine() -> Deployment:
    return made(
        emails=["oncall@example.com"],
        approver_secrets={"SAFEDELETE_DATABASE_URL": APPROVER},
        policies={"nightly": [POLICY]},
    )


# --- on AWS, as far as moto is


def register(services: Services) -> None:
    family = {
        "family": "safedelete-approver",
        "networkMode": "awsvpc",
        "requiresCompatibilities": ["FARGATE"],
    }
    container = {"name": "safedelete", "image": "app:hotfix", "memory": 512}
    services.ecs.register_task_definition(**family, cpu="256", memory="512", containerDefinitions=[container])


def widen(services: Services) -> None:
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": statement})
    services.iam.put_role_policy(RoleName=JOB_ROLE, PolicyName="hotfix", PolicyDocument=document)


def unsubscribe(services: Services) -> None:
    for one in services.sns.list_subscriptions_by_topic(TopicArn=TOPIC)["Subscriptions"]:
        services.sns.unsubscribe(SubscriptionArn=one["SubscriptionArn"])


def filtered(policy: str) -> Callable[[Services], object]:
    def put(services: Services) -> None:
        [one] = services.sns.list_subscriptions_by_topic(TopicArn=TOPIC)["Subscriptions"]
        services.sns.set_subscription_attributes(
            SubscriptionArn=one["SubscriptionArn"], AttributeName="FilterPolicy", AttributeValue=policy
        )

    return put


def remove_target(services: Services) -> None:
    services.events.remove_targets(Rule=RULE, Ids=["topic"])


def delete_rule(services: Services) -> None:
    remove_target(services)
    services.events.delete_rule(Name=RULE)


def subscribe(services: Services) -> None:
    services.sns.subscribe(TopicArn=TOPIC, Protocol="email", Endpoint="oncall@example.com")


def make_rule(services: Services) -> None:
    services.rule(services.resources["FailedTasks"]["Properties"])


Act = Callable[[Services], object]
CHANGES: list[tuple[Act, Act, set[tuple[str, str]]]] = [
    (
        register,
        lambda s: s.ecs.deregister_task_definition(taskDefinition="safedelete-approver:2"),
        {("changed revision", "approver")},
    ),
    (
        widen,
        lambda s: s.iam.delete_role_policy(RoleName=JOB_ROLE, PolicyName="hotfix"),
        {("changed role", JOB_ROLE)},
    ),
    (
        lambda s: s.iam.detach_role_policy(RoleName=JOB_ROLE, PolicyArn=POLICY),
        lambda s: s.iam.attach_role_policy(RoleName=JOB_ROLE, PolicyArn=POLICY),
        {("changed role", JOB_ROLE)},
    ),
    (unsubscribe, subscribe, {("missing subscription", "oncall@example.com"), ("unheard topic", TOPIC)}),
    (filtered('{"severity": ["high"]}'), filtered(""), {("filtered subscription", "oncall@example.com")}),
    (
        lambda s: s.sns.delete_topic(TopicArn=TOPIC),
        lambda s: s.topic(s.resources["Topic"]["Properties"]),
        {("no topic", TOPIC)},
    ),
    (
        lambda s: s.events.disable_rule(Name=RULE),
        lambda s: s.events.enable_rule(Name=RULE),
        {("changed rule", RULE)},
    ),
    (remove_target, make_rule, {("changed rule", RULE)}),
    (delete_rule, make_rule, {("deleted rule", RULE)}),
]


def test_each_change_by_hand_is_named_and_once_repaired_all_is_well(
    mine: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
        services, reader = Services(boto3.session.Session(), None), Aws(REGION)
        mail = {"Effect": "Allow", "Action": "ses:SendEmail", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [mail]})
        services.iam.create_policy(PolicyName="mail", PolicyDocument=document)
        [text] = template(mine).values()
        services.make(yaml.safe_load(text)["Resources"])

        def found() -> set[tuple[str, str]]:
            return {(one.kind.value, one.name) for one in around(mine, read(mine, reader))}

        assert found() == set()
        for change, repair, expected in CHANGES:
            change(services)
            assert found() == expected
            repair(services)
            assert found() == set()


# --- the comparison itself


def differences(mine: Deployment, **changes: Any) -> list[Difference]:
    return compare(mine, as_rendered(mine, **changes))


def test_a_subscriber_who_has_not_confirmed_hears_nothing(mine: Deployment) -> None:
    assert differences(mine) == []
    pending = [
        {"Protocol": "email", "Endpoint": "oncall@example.com", "SubscriptionArn": "PendingConfirmation"}
    ]
    assert [one.kind.value for one in differences(mine, subscriptions=pending)] == [
        "unconfirmed subscription",
        "unheard topic",
    ]
    other = {"Protocol": "sqs", "Endpoint": "arn:aws:sqs:x", "SubscriptionArn": "arn:aws:sns:x"}
    assert [one.kind.value for one in differences(mine, subscriptions=[*pending, other])] == [
        "unconfirmed subscription"
    ]


def test_nobody_asks_another_accounts_topic_who_listens() -> None:
    other = made(topic=f"arn:aws:sns:{REGION}:210987654321:oncall")
    assert not other.own_topic
    assert differences(other, subscriptions=None) == []
    named = made(topic=f"arn:aws:sns:{REGION}:{ACCOUNT}:oncall")
    assert [one.kind.value for one in differences(named, subscriptions=[])] == ["unheard topic"]


def test_it_is_said_that_another_accounts_topic_was_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"arn:aws:sns:{REGION}:210987654321:oncall"
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / NAME).write_text(re.sub("emails = .*", f'topic = "{topic}"', TOML))
    monkeypatch.setattr("safedelete.deploy.drift.watch.differences", lambda *_, **__: Looked([], {}))
    arguments = ["drift", str(tmp_path / "jobs.py")]
    assert f"Not looked at: who listens to {topic}" in run_here(arguments, {}).out
    assert topic in run_here([*arguments, "--json"], {}).document["unchecked"][0]


def test_a_clean_answer_says_what_was_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / NAME).write_text(TOML)
    monkeypatch.setattr("safedelete.deploy.drift.watch.differences", lambda *_, **__: Looked([], {}))
    ended = run_here(["drift", str(tmp_path / "jobs.py")], {})
    assert ended.code == 0
    for what in (
        "in the image",
        "the topic's policy",
        "dead-letter queue",
        "permission boundaries",
        "other groups",
    ):
        assert re.search(f"Not looked at: .*{what}", ended.out), what


def test_statements_are_compared_however_they_are_written(mine: Deployment) -> None:
    role = deepcopy(dict(mine.roles["job", "nightly"]))
    [policy] = role["Policies"]
    statements = policy["PolicyDocument"]["Statement"]
    statements.reverse()
    for one in statements:
        one["Resource"] = [one["Resource"]]
        one["Action"].reverse()
    roles = {**as_rendered(mine).roles, JOB_ROLE: role}
    assert differences(mine, roles=roles) == []
    more = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
    gone = statements.pop()
    statements.append(more)
    [found] = differences(mine, roles=roles)
    [there, missing] = found.changes
    assert (there.path, there.there, there.repository) == ("Policies.safedelete", more, None)
    assert (missing.there, missing.repository["Action"]) == (None, sorted(gone["Action"]))
    # A policy that is called as the trust is stands beside it.
    role["Policies"].append(
        {"PolicyName": "AssumeRolePolicyDocument", "PolicyDocument": {"Statement": [more]}}
    )
    role["AssumeRolePolicyDocument"] = {"Statement": []}
    [found] = differences(mine, roles=roles)
    assert {change.path for change in found.changes} == {
        "Policies.safedelete", "Policies.AssumeRolePolicyDocument", "AssumeRolePolicyDocument",
    }  # fmt: skip


def by_hand(mine: Deployment, **environment: str) -> list[Difference]:
    """Return what is found of a newer revision that was made by hand."""
    task = json.loads(json.dumps({**mine.tasks["nightly"], "revision": 5}))
    [container] = task["containerDefinitions"]
    own = [pair for pair in container["environment"] if pair["name"] not in environment]
    container["environment"] = [*own, *({"name": n, "value": v} for n, v in environment.items())]
    return differences(mine, newest={"nightly": task})


def printed(found: list[Difference]) -> str:
    return json.dumps([verb._plain(one) for one in found]) + "".join(
        f"{change.path}: {verb._said(change.there)} -> {verb._said(change.repository)}\n"
        for one in found
        for change in one.changes
    )


def test_a_variable_of_a_hand_made_revision_is_named_and_never_printed(mine: Deployment) -> None:
    [found] = by_hand(mine, ADDED="hunter2", SAFEDELETE_METRICS="hunter2", SAFEDELETE_REVISION="0123456789ab")
    environment = "containerDefinitions.safedelete.environment"
    assert {change.path for change in found.changes} == {
        f"{environment}.ADDED",
        f"{environment}.SAFEDELETE_METRICS.value",
        f"{environment}.SAFEDELETE_REVISION.value",
    }
    text = printed([found])
    assert "hunter2" not in text
    assert (
        f'{environment}.SAFEDELETE_METRICS.value: "(another value, not shown)" -> "(the rendered one)"'
        in text
    )
    # What the rendering itself sets is no secret, and says which revision it is.
    assert "0123456789ab" in text
    # Equal is equal.
    assert by_hand(mine)[0].changes == ()


def test_no_other_place_of_a_hand_made_change_prints_a_password(mine: Deployment) -> None:
    task = json.loads(json.dumps({**mine.tasks["nightly"], "revision": 5}))
    [container] = task["containerDefinitions"]
    container["command"] = ["psql", "postgresql://u:hunter2@h/d"]
    extra = {"name": "sidecar", "image": "x:1", "environment": [{"name": "P", "value": "hunter2"}]}
    task["containerDefinitions"].append(extra)
    schedule = dict(as_rendered(mine).schedules["nightly"] or {})
    override = {
        "containerOverrides": [{"name": "safedelete", "environment": [{"name": "P", "value": "hunter2"}]}]
    }
    for text in (json.dumps(override), "hunter2 is no JSON", '["hunter2"]'):
        schedule["Target"] = {**schedule["Target"], "Input": text}
        found = differences(mine, newest={"nightly": task}, schedules={"nightly": schedule})
        assert [one.kind.value for one in found] == ["changed schedule", "newer revision"]
        assert "hunter2" not in printed(found)
        assert "postgresql://u:***@h/d" in printed(found)


# --- trouble


@pytest.mark.parametrize("code", ["UnknownOperationException", "InvalidAction", "NotImplemented"])
def test_an_endpoint_that_is_not_aws_is_said_to_be_none(code: str) -> None:
    from botocore.exceptions import ClientError

    class Elsewhere:
        class meta:
            endpoint_url = "http://localhost:8333"

        def client(self, *_: Any, **__: Any) -> Any:
            return self

        def get_caller_identity(self) -> Any:
            raise ClientError({"Error": {"Code": code, "Message": ""}}, "GetCallerIdentity")

    with pytest.raises(StoreError, match=f"sts:GetCallerIdentity failed: {code}") as raised:
        Aws(REGION, Elsewhere()).account()
    assert "http://localhost:8333 was asked, which is not AWS" in (raised.value.hint or "")
    Elsewhere.meta.endpoint_url = f"https://sts.{REGION}.amazonaws.com"
    with pytest.raises(StoreError) as raised:
        Aws(REGION, Elsewhere()).account()
    assert "not AWS" not in (raised.value.hint or "")


def test_a_policy_is_read_from_its_text_too() -> None:
    policy = {"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}
    assert document(json.dumps(policy)) == document(policy)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"Statement": [1]}'])
def test_a_policy_that_cannot_be_read_is_an_error_of_its_own(text: str) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        document(text)
