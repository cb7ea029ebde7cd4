"""What was rendered, deployed on moto's server, and changed by hand: each change is named, and nothing else is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import pytest

from safedelete.deploy.aws.template import TEMPLATE
from safedelete.deploy.drift.compare import compare
from safedelete.deploy.drift.model import Asked, Kind, There, called
from safedelete.deploy.drift.read import ATTEMPTS, Aws, read_schedules
from safedelete.deploy.drift.watch import differences
from safedelete.deploy.spec import NAME
from safedelete.deploy.spec import read as read_settings
from safedelete.errors import PreflightError
from safedelete.loader import load
from safedelete.testing.servers import Moto
from tests.backends import started
from tests.deploy.aws import (
    ACCOUNT,
    IMAGE,
    JOBS,
    REGION,
    TOML,
    Services,
    as_rendered,
    camel,
    made,
    pinned,
    resources_of,
)
from tests.e2e.world import Ended, run_here

FORGOTTEN = ("EvaluationWindow", "WarmUpConfiguration")
"""Fields of an alarm that moto drops."""


@pytest.fixture(scope="module")
def moto() -> Iterator[Moto]:
    with started(Moto) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / NAME).write_text(TOML)
    return tmp_path


@pytest.fixture
def env(moto: Moto) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": moto.endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="module")
def clients(moto: Moto) -> Services:
    session = boto3.session.Session(aws_access_key_id="testing", aws_secret_access_key="testing")
    return Services(session, moto.endpoint)


@pytest.fixture
def services(moto: Moto, clients: Services) -> Services:
    moto.reset()
    clients.resources, clients.put = {}, {}
    return clients


@cache
def rendered_once() -> str:
    with TemporaryDirectory() as folder:
        (Path(folder) / "jobs.py").write_text(JOBS)
        (Path(folder) / NAME).write_text(TOML)
        ended = run_here(["render", "cloudformation", f"{folder}/jobs.py", "--out", folder], {})
        assert ended.code == 0, ended.said
        return (Path(folder) / TEMPLATE).read_text()


class Live:
    """A project that was deployed."""

    def __init__(self, project: Path, services: Services, env: dict[str, str]) -> None:
        self.project, self.services, self.env = project, services, env
        self.template = project / "deploy" / TEMPLATE
        self.template.parent.mkdir()
        self.template.write_text(rendered_once())
        self.arns = services.deploy(self.template)

    def run(self, *arguments: str) -> Ended:
        *verb, kind = arguments[:2] if arguments[0] == "render" else arguments[:1]
        rest = arguments[2:] if arguments[0] == "render" else arguments[1:]
        return run_here([*verb, kind, str(self.project / "jobs.py"), *rest], self.env)

    def drift(self, *options: str) -> dict[str, list[str]]:
        """Return what is different, by kind."""
        ended = self.run("drift", "--json", *options)
        found: dict[str, list[str]] = {}
        for one in ended.document["differences"]:
            found.setdefault(one["kind"], []).append(one["name"])
        assert ended.code == (10 if found else 0), ended.err
        return found

    @property
    def rendered(self) -> dict[str, Any]:
        return resources_of(self.template.read_text())

    def schedule(self, name: str) -> dict[str, Any]:
        found = self.services.scheduler.get_schedule(GroupName="safedelete", Name=name)
        server = {"Arn", "CreationDate", "LastModificationDate", "ResponseMetadata"}
        return {key: value for key, value in found.items() if key not in server}

    def arn(self, family: str) -> str:
        return next(arn for arn in self.arns.values() if f"/{family}:" in arn)


@pytest.fixture
def live(project: Path, services: Services, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Live:
    asked = Aws.alarms

    def whole(self: Aws, names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        return [
            {**{n: v for n, v in services.put[a["AlarmName"]].items() if n in FORGOTTEN}, **a}
            for a in asked(self, names)
        ]

    monkeypatch.setattr(Aws, "alarms", whole)
    return Live(project, services, env)


# --- the chain


def test_every_rendered_field_arrives(live: Live) -> None:
    resources = live.rendered.values()
    for properties in (r["Properties"] for r in resources if r["Type"] == "AWS::Scheduler::Schedule"):
        there = live.schedule(properties["Name"])
        assert there.pop("ActionAfterCompletion", "NONE") == "NONE"
        assert there == pinned(properties, live.arns)
    for properties in (r["Properties"] for r in resources if r["Type"] == "AWS::CloudWatch::Alarm"):
        [there] = live.services.cloudwatch.describe_alarms(AlarmNames=[properties["AlarmName"]])[
            "MetricAlarms"
        ]
        sent = {name: value for name, value in properties.items() if name not in FORGOTTEN}
        assert {name: there[name] for name in sent} == sent
    for name, resource in live.rendered.items():
        if resource["Type"] != "AWS::ECS::TaskDefinition":
            continue
        sent = camel(resource["Properties"])
        answer = live.services.ecs.describe_task_definition(taskDefinition=live.arns[name], include=["TAGS"])
        there = {**answer["taskDefinition"], "tags": answer["tags"]}
        [ours], [theirs] = sent.pop("containerDefinitions"), there["containerDefinitions"]
        assert {key: there[key] for key in sent} == sent
        assert {key: theirs[key] for key in ours} == ours


def test_what_was_just_deployed_is_as_the_repository_says(live: Live) -> None:
    assert live.drift() == {}
    assert "4 job(s), 10 alarm(s): as the repository says." in live.run("drift").out


# --- each change by hand, and its repair

Act = Callable[[Live], object]


def hand_register(live: Live) -> str:
    task = live.services.ecs.describe_task_definition(taskDefinition="safedelete-scratch")["taskDefinition"]
    [container] = task["containerDefinitions"]
    answer = live.services.ecs.register_task_definition(
        **{k: task[k] for k in ("family", "networkMode", "cpu", "memory", "requiresCompatibilities")},
        containerDefinitions=[{**container, "image": "app:hotfix"}],
    )
    return str(answer["taskDefinition"]["taskDefinitionArn"])


def deregister_newest(live: Live) -> None:
    arns = live.services.ecs.list_task_definitions(familyPrefix="safedelete-scratch")["taskDefinitionArns"]
    live.services.ecs.deregister_task_definition(
        taskDefinition=max(arns, key=lambda arn: int(arn.split(":")[-1]))
    )


def re_point(live: Live) -> None:
    schedule = live.schedule("scratch")
    schedule["Target"]["EcsParameters"]["TaskDefinitionArn"] = hand_register(live)
    live.services.scheduler.update_schedule(**schedule)


def point_back(live: Live) -> None:
    live.services.again(live.template, live.arns, "scratch")
    deregister_newest(live)


def unpin(live: Live) -> None:
    schedule = live.schedule("scratch")
    parameters = schedule["Target"]["EcsParameters"]
    parameters["TaskDefinitionArn"] = parameters["TaskDefinitionArn"].removesuffix(":1")
    live.services.scheduler.update_schedule(**schedule)


def point_elsewhere(live: Live) -> None:
    schedule = live.schedule("scratch")
    schedule["Target"]["EcsParameters"]["TaskDefinitionArn"] = live.arn("safedelete-reminders")
    live.services.scheduler.update_schedule(**schedule)


def disable(live: Live) -> None:
    live.services.scheduler.update_schedule(**{**live.schedule("scratch"), "State": "DISABLED"})


def forget_fields(live: Live) -> None:
    # What UpdateSchedule is not told goes back to its default.
    schedule = live.schedule("scratch")
    kept = ("Name", "GroupName", "State", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    live.services.scheduler.update_schedule(
        **{name: schedule[name] for name in kept}, ScheduleExpressionTimezone="Europe/Berlin"
    )


def override(live: Live) -> None:
    schedule = live.schedule("scratch")
    schedule["Target"]["Input"] = json.dumps(
        {"containerOverrides": [{"name": "safedelete", "command": ["true"]}]}
    )
    live.services.scheduler.update_schedule(**schedule)


def delete_schedule(live: Live) -> None:
    live.services.scheduler.delete_schedule(GroupName="safedelete", Name="scratch")


def create_schedule(live: Live) -> None:
    for resource in live.rendered.values():
        if resource["Type"] == "AWS::Scheduler::Schedule" and resource["Properties"]["Name"] == "scratch":
            live.services.scheduler.create_schedule(**pinned(resource["Properties"], live.arns))


def leave_stray(live: Live) -> None:
    live.services.scheduler.create_schedule(**{**live.schedule("scratch"), "Name": "old-job"})


def remove_stray(live: Live) -> None:
    live.services.scheduler.delete_schedule(GroupName="safedelete", Name="old-job")


def delete_alarm(live: Live) -> None:
    live.services.cloudwatch.delete_alarms(AlarmNames=["safedelete-scratch-missed"])


def quiet_alarm(live: Live) -> None:
    live.services.cloudwatch.disable_alarm_actions(AlarmNames=["safedelete-scratch-failed"])


def put_alarms(live: Live) -> None:
    for resource in live.rendered.values():
        if resource["Type"] == "AWS::CloudWatch::Alarm":
            live.services.alarm(resource["Properties"])


def restore(live: Live) -> None:
    live.services.again(live.template, live.arns, "scratch")


CHANGES: list[tuple[Act, Act, str, str]] = [
    (hand_register, deregister_newest, "newer revision", "scratch"),
    (re_point, point_back, "changed revision", "scratch"),
    (unpin, restore, "unpinned schedule", "scratch"),
    (point_elsewhere, restore, "re-pointed schedule", "scratch"),
    (disable, restore, "disabled schedule", "scratch"),
    (forget_fields, restore, "changed schedule", "scratch"),
    (override, restore, "changed schedule", "scratch"),
    (delete_schedule, create_schedule, "no schedule", "scratch"),
    (leave_stray, remove_stray, "schedule of no job", "old-job"),
    (delete_alarm, put_alarms, "deleted alarm", "safedelete-scratch-missed"),
    (quiet_alarm, put_alarms, "changed alarm", "safedelete-scratch-failed"),
]


def test_each_change_by_hand_is_named_and_once_repaired_all_is_well(live: Live) -> None:
    made, reader = deployment_of(live), Aws(REGION, session(live))

    def found() -> list[tuple[str, str]]:
        # What stands around the jobs is not asked for each time.
        alarms = reader.alarms([alarm["AlarmName"] for alarm in made.alarms.values()])
        there = as_rendered(made, alarms={alarm["AlarmName"]: alarm for alarm in alarms})
        asked = read_schedules(made, reader)
        around = {
            name: getattr(there, name) for name in ("alarms", "approver", "rule", "subscriptions", "roles")
        }
        return [(one.kind.value, one.name) for one in compare(made, replace(asked, **around))]

    for change, repair, kind, name in CHANGES:
        change(live)
        assert found() == [(kind, name)], change.__name__
        repair(live)
        assert found() == [], repair.__name__


def test_a_schedule_that_was_moved_to_an_older_revision_is_told_from_a_change_of_the_file(live: Live) -> None:
    (live.project / "jobs.py").write_text(JOBS.replace("timedelta(hours=1)", "timedelta(hours=3)"))
    # Not deployed yet: the revision and the alarms are those of the repository as it was.
    assert live.drift()["changed revision"] == ["scratch"]
    live.run("render", "cloudformation", "--out", str(live.template.parent))
    new = next(
        r["Properties"]
        for r in live.rendered.values()
        if r["Type"] == "AWS::ECS::TaskDefinition" and r["Properties"]["Family"] == "safedelete-scratch"
    )
    live.services.ecs.register_task_definition(**camel(new))
    assert live.drift()["re-pointed schedule"] == ["scratch"]


def test_what_the_next_deploy_would_undo_is_printed(live: Live) -> None:
    re_point(live)
    ended = live.run("drift")
    assert ended.code == 10
    assert "A deploy of this repository would undo:" in ended.out
    path = "containerDefinitions.safedelete.image"
    assert f'{path}: "app:hotfix" -> "{IMAGE}"' in ended.out
    assert "Nothing was deleted." in ended.said


# --- waiting


def test_waiting_ends_when_the_deployed_revision_is_the_one_scheduled(live: Live) -> None:
    re_point(live)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if clock[0] >= 10:
            point_back(live)

    deployed = deployment_of(live)
    reader = Aws(REGION, session(live))
    assert differences(deployed, reader, wait=60, now=lambda: clock[0], sleep=sleep) == ([], {})
    assert clock[0] == 10


def test_waiting_ends_in_time_with_what_is_still_different(live: Live) -> None:
    re_point(live)
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    found, _ = differences(
        deployment_of(live), Aws(REGION, session(live)), wait=12, now=lambda: clock[0], sleep=sleep
    )
    assert [one.kind for one in found] == [Kind.REVISION]
    assert clock[0] == 12


def test_nothing_waits_for_an_alarm_that_no_deploy_brings_back(live: Live) -> None:
    delete_alarm(live)
    found, _ = differences(
        deployment_of(live),
        Aws(REGION, session(live)),
        wait=60,
        now=lambda: 0.0,
        sleep=lambda _: pytest.fail("it waited"),
    )
    assert [one.kind for one in found] == [Kind.NO_ALARM]


def deployment_of(live: Live) -> Any:
    from safedelete.deploy.aws.resources import deployment

    settings = read_settings(live.project / NAME)
    assert settings.ecs is not None
    return deployment(list(load(live.project / "jobs.py").jobs.values()), settings.ecs, "production", IMAGE)


def session(live: Live, key: str = "testing") -> Any:
    made = boto3.session.Session(aws_access_key_id=key, aws_secret_access_key=key)
    endpoint = live.env["AWS_ENDPOINT_URL"]
    plain = made.client
    made.client = lambda name, **options: plain(name, endpoint_url=endpoint, **options)  # type: ignore[method-assign]
    return made


# --- trouble


def test_a_throttled_call_is_made_again(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = throttle(live, monkeypatch, times=3)
    assert live.drift() == {}
    assert seen[0] > 3


def test_a_call_that_stays_throttled_is_no_drift_and_no_yes(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = throttle(live, monkeypatch, times=10_000)
    ended = live.run("drift")
    assert ended.code == 7
    assert "scheduler:GetSchedule failed: ThrottlingException" in ended.said
    assert "Nothing is known of what is deployed" in ended.said
    for job in ("expired-uploads", "scratch", "reminders", "invoices"):
        assert f"Not looked at: the schedule {job}: scheduler:GetSchedule failed" in ended.out
    assert "as the repository says." not in ended.out
    # What was refused that often is not asked for again for every other job.
    assert seen[0] == ATTEMPTS


def test_what_is_denied_is_named_and_the_rest_is_held_against_the_repository_all_the_same(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(
        monkeypatch,
        "AccessDeniedException",
        403,
        lambda request: request.url.endswith("scratch?groupName=safedelete"),
    )
    for options in ((), ("--wait", "600")):
        ended = live.run("drift", *options)
        assert ended.code == 9
        assert "Not looked at: the schedule scratch: scheduler:GetSchedule is denied" in ended.out
        assert "as the repository says." not in ended.out
        assert "could not be looked at: the schedule scratch." in ended.said
        assert "docs/how-to/pipeline.md" in ended.said
    document = live.run("drift", "--json").document
    assert document["differences"] == []
    assert document["unchecked"][0].startswith("the schedule scratch: scheduler:GetSchedule is denied")
    delete_alarm(live)
    ended = live.run("drift")
    assert ended.code == 10
    assert "[deleted alarm] The alarm safedelete-scratch-missed is not there" in ended.out
    assert "Not looked at: the schedule scratch." in ended.said


def test_nothing_that_could_not_be_looked_at_is_called_gone_or_changed() -> None:
    mine = made(approver_secrets={"SAFEDELETE_DATABASE_URL": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/x"})
    unread = {
        called(kind, name): PreflightError("denied")
        for kind, name in (
            (Asked.SCHEDULE, "nightly"),
            (Asked.ALARMS, ""),
            (Asked.RULE, mine.names.rule),
            (Asked.TOPIC, mine.names.topic),
            (Asked.TASK, "approver"),
            *((Asked.ROLE, role["RoleName"]) for role in mine.roles.values()),
        )
    }
    nothing = There(schedules={"nightly": None})
    assert {one.kind for one in compare(mine, nothing)} >= {Kind.NO_SCHEDULE, Kind.NO_ALARM, Kind.NO_ROLE}
    assert compare(mine, replace(nothing, unread=unread)) == []
    # Of a schedule that is known, what it runs may still be unknown.
    known = as_rendered(mine, pinned={"nightly": None}, newest={"nightly": None})
    assert [one.kind for one in compare(mine, known)] == [Kind.NO_REVISION]
    task = {called(Asked.TASK, "nightly"): PreflightError("denied")}
    assert compare(mine, replace(known, unread=task)) == []


def throttle(live: Live, monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """Have the first requests for a schedule refused."""
    seen = [0]

    def early(_: Any) -> bool:
        seen[0] += 1
        return seen[0] <= times

    refuse(monkeypatch, "ThrottlingException", 429, early)
    return seen


def refuse(monkeypatch: pytest.MonkeyPatch, code: str, status: int, which: Callable[[Any], bool]) -> None:
    """Have requests for a schedule refused."""
    from botocore.awsrequest import AWSResponse

    class Raw:
        def stream(self, **_: Any) -> Iterator[bytes]:
            yield b'{"message": "no"}'

    def answer(request: Any, **_: Any) -> AWSResponse | None:
        if not which(request):
            return None
        headers = {"x-amzn-errortype": code, "content-type": "application/json"}
        return AWSResponse(request.url, status, headers, Raw())  # type: ignore[arg-type]

    usual = boto3.session.Session.client

    def client(self: Any, name: str, **options: Any) -> Any:
        made = usual(self, name, **options)
        made.meta.events.register("before-send.scheduler.GetSchedule", answer)
        return made

    monkeypatch.setattr(boto3.session.Session, "client", client)
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_no_credentials_is_one_message(live: Live) -> None:
    live.env = {n: v for n, v in live.env.items() if not n.startswith(("AWS_ACCESS", "AWS_SECRET"))}
    ended = live.run("drift")
    assert ended.code == 2
    assert "sts:GetCallerIdentity could not be asked: Unable to locate credentials." in ended.said
    assert "AWS_PROFILE" in ended.said
    assert "Traceback" not in ended.err


def test_another_account_is_not_compared(live: Live) -> None:
    (live.project / NAME).write_text(TOML.replace(ACCOUNT, "210987654321"))
    ended = live.run("drift")
    assert ended.code == 2
    assert f"The credentials are for the account {ACCOUNT}; ecs.account is 210987654321." in ended.said


def test_a_denied_call_names_what_was_denied() -> None:
    from botocore.exceptions import ClientError

    class Denied:
        def client(self, *_: Any, **__: Any) -> Any:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetSchedule")

    with pytest.raises(PreflightError, match="sts:GetCallerIdentity is denied: AccessDeniedException: no"):
        Aws(REGION, Denied()).account()


def test_an_image_that_is_not_known_cannot_be_compared(live: Live) -> None:
    path = live.project / NAME
    repository = f'repository = "arn:aws:ecr:{REGION}:{ACCOUNT}:repository/app"'
    path.write_text(re.sub("image = .*", repository, TOML))
    assert "ecs.image is missing" in live.run("drift").said
    assert live.drift("--image", IMAGE) == {}


# --- the comparison itself


def test_order_empties_and_defaults_are_no_difference() -> None:
    mine = made()
    [job] = mine.jobs
    task = json.loads(json.dumps(mine.tasks["nightly"]))
    [container] = task["containerDefinitions"]
    container["environment"].reverse()
    container["readonlyRootFilesystem"] = False
    container |= {"cpu": 0, "mountPoints": [], "portMappings": [], "volumesFrom": [], "systemControls": []}
    task |= {
        "status": "ACTIVE", "revision": 4, "volumes": [], "placementConstraints": [],
        "compatibilities": ["EC2", "FARGATE"], "tags": [*task["tags"], {"key": "team", "value": "data"}],
    }  # fmt: skip
    schedule = mine.schedule(job, "arn:aws:ecs:r:a:task-definition/safedelete-nightly:4")
    del schedule["Target"]["EcsParameters"]["EnableExecuteCommand"]
    network = schedule["Target"]["EcsParameters"]["NetworkConfiguration"]["awsvpcConfiguration"]
    network["Subnets"].reverse()
    alarms = {
        a["AlarmName"]: {**a, "Threshold": float(a["Threshold"]), "InsufficientDataActions": []}
        for a in mine.alarms.values()
    }
    there = as_rendered(
        mine,
        schedules={"nightly": {**schedule, "ActionAfterCompletion": "NONE"}},
        pinned={"nightly": task},
        newest={"nightly": task},
        alarms=alarms,
    )
    assert compare(mine, there) == []
    # The order of a command means something.
    container["command"].reverse()
    assert [one.kind for one in compare(mine, there)] == [Kind.REVISION]


def test_a_deregistered_revision_is_told() -> None:
    mine = made()
    task = {**mine.tasks["nightly"], "status": "INACTIVE", "revision": 4}
    there = as_rendered(mine, pinned={"nightly": task}, newest={"nightly": None})
    [found] = compare(mine, there)
    assert found.kind is Kind.NO_REVISION
    assert "safedelete-nightly:4, which was deregistered" in found.message
