"""What is rendered for AWS passes AWS's own linter, and holds what the linter does not know."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from safedelete.declare import Inventory, S3Orphans, S3Prefix
from safedelete.deploy.aws.names import Names, logical
from safedelete.deploy.aws.policies import bucket_statements, task_statements
from safedelete.deploy.aws.resources import deployment
from safedelete.deploy.aws.template import TEMPLATE, template
from safedelete.deploy.ecs_spec import check_image
from safedelete.deploy.files import MARK
from safedelete.errors import ConfigError
from tests.deploy.aws import ACCOUNT, IMAGE, JOBS, REGION, TOML, ecs, made, purge, resources_of
from tests.deploy.conftest import Rendering


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "safedelete.toml").write_text(TOML)
    return tmp_path


def resources(project: Path) -> dict[str, Any]:
    return resources_of((project / "deploy" / TEMPLATE).read_text())


def of(project: Path, kind: str) -> list[dict[str, Any]]:
    return [r["Properties"] for r in resources(project).values() if r["Type"] == kind]


def linted(path: Path) -> list[str]:
    from cfnlint.api import lint_file

    return [f"{match.rule.id} {match.message}" for match in lint_file(path) if match.rule.id[0] in "EW"]


# --- the template; with most of what can be said, it is linted where it is kept (test_golden_aws)


def test_the_linter_has_nothing_to_say_where_the_roles_are_there_already(
    project: Path, render: Rendering
) -> None:
    roles = [f'{what}_role = "arn:aws:iam::{ACCOUNT}:role/x"' for what in ("task", "execution", "scheduler")]
    (project / "safedelete.toml").write_text("\n".join([TOML, *roles, ""]))
    render("cloudformation")
    assert linted(project / "deploy" / TEMPLATE) == []
    assert not of(project, "AWS::IAM::Role")


def test_the_linter_has_nothing_to_say_where_the_image_comes_at_deploy_time(
    project: Path, render: Rendering
) -> None:
    (project / "safedelete.toml").write_text(re.sub("image = .*", "", TOML))
    render("cloudformation")
    assert linted(project / "deploy" / TEMPLATE) == []
    [container] = of(project, "AWS::ECS::TaskDefinition")[0]["ContainerDefinitions"]
    assert container["Image"] == {"Ref": "Image"}


def test_the_linter_has_nothing_to_say_where_the_topic_is_there_already(
    project: Path, render: Rendering
) -> None:
    own = f'topic = "arn:aws:sns:{REGION}:{ACCOUNT}:oncall"'
    (project / "safedelete.toml").write_text(re.sub("emails = .*", own, TOML))
    render("cloudformation")
    assert linted(project / "deploy" / TEMPLATE) == []
    assert not of(project, "AWS::SNS::Topic")


def test_the_linter_would_notice_a_mistake(project: Path, render: Rendering) -> None:
    render("cloudformation")
    path = project / "deploy" / TEMPLATE
    path.write_text(path.read_text().replace("MaximumRetryAttempts: 3", "MaximumRetryAttempts: 186"))
    assert any("186" in line for line in linted(path))


def test_the_process_is_told_to_stop_before_it_is_killed(project: Path, render: Rendering) -> None:
    render("cloudformation")
    task = of(project, "AWS::ECS::TaskDefinition")[0]
    [container] = task["ContainerDefinitions"]
    # A list, no shell; and the image's own entry point never runs.
    assert container["EntryPoint"] == ["safedelete"]
    assert container["Command"] == ["run", "/app/jobs.py", "expired-uploads"]
    assert container["LinuxParameters"] == {"InitProcessEnabled": True}
    assert container["StopTimeout"] == 120
    assert container["Image"] == IMAGE
    assert {pair["Name"] for pair in container["Secrets"]} == {"SAFEDELETE_DATABASE_URL"}
    variables = {pair["Name"]: pair["Value"] for pair in container["Environment"]}
    assert variables["SAFEDELETE_METRICS"] == "log,emf"
    assert variables["SAFEDELETE_ENVIRONMENT"] == "production"
    assert re.fullmatch("[0-9a-f]{12}", variables["SAFEDELETE_REVISION"])


def test_an_override_replaces_the_verb_and_never_the_program() -> None:
    secret = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:approver-AbCdEf"
    mine = made(command=["/opt/venv/bin/python", "-m", "safedelete"], approver_secrets={"A": secret})
    [container] = mine.tasks["nightly"]["containerDefinitions"]
    assert container["entryPoint"] == ["/opt/venv/bin/python", "-m", "safedelete"]
    assert container["command"] == ["run", "/app/jobs.py", "nightly"]
    assert mine.approver is not None
    [container] = mine.approver["containerDefinitions"]
    assert (container["entryPoint"][-1], container["command"]) == ("safedelete", ["--help"])


def test_no_log_line_is_dropped_and_a_first_deploy_that_failed_can_be_tried_again() -> None:
    mine = made()
    [container] = mine.tasks["nightly"]["containerDefinitions"]
    assert container["logConfiguration"]["options"]["mode"] == "blocking"
    [text] = template(mine).values()
    assert resources_of(text)["Logs"]["DeletionPolicy"] == "RetainExceptOnCreate"


def test_a_schedule_names_the_revision_of_this_very_template(project: Path, render: Rendering) -> None:
    render("cloudformation")
    for schedule in of(project, "AWS::Scheduler::Schedule"):
        target = schedule["Target"]
        task = target["EcsParameters"]["TaskDefinitionArn"]["Ref"]
        family = resources(project)[task]["Properties"]["Family"]
        assert family == f"safedelete-{schedule['Name']}"
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        assert schedule["State"] == "ENABLED"
        assert target["RetryPolicy"] == {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 900}
        assert target["DeadLetterConfig"]["Arn"].endswith(":safedelete-not-started")


def test_the_same_input_renders_the_same_bytes_and_check_holds_them(project: Path, render: Rendering) -> None:
    for kind in ("cloudformation", "taskdef", "iam", "grants"):
        out = ["--out", str(project / kind)]
        render(kind, *out)
        before = {path.name: path.read_bytes() for path in (project / kind).iterdir()}
        assert all(MARK.encode() in text for text in before.values())
        render(kind, *out, "--force")
        assert {path.name: path.read_bytes() for path in (project / kind).iterdir()} == before
        render(kind, *out, "--check")
    (project / "jobs.py").write_text(JOBS.replace("minutes=20", "minutes=25"))
    assert (
        "SAFEDELETE_REVISION"
        in render("cloudformation", "--out", str(project / "cloudformation"), "--check", expect=10).out
    )


# --- permissions


def actions(*targets: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in bucket_statements(purge(targets=targets)):
        condition = one.get("Condition", {}).get("StringLike", {}).get("s3:prefix", "")
        found.setdefault(
            f"{one['Resource'].removeprefix('arn:aws:s3:::')} {condition}".strip(), set()
        ).update(one["Action"])
    return found


STATE = {"s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration", "s3:GetReplicationConfiguration"}
WEEK = timedelta(days=7)


def test_a_purge_may_delete_what_it_purges_and_nothing_else() -> None:
    assert actions(S3Prefix("acme", "tmp/", older_than=WEEK)) == {
        "acme": {"s3:GetBucketVersioning", "s3:ListBucket"},
        "acme/tmp/*": {"s3:DeleteObject", "s3:GetObject"},
    }


def test_a_purge_of_versions_may_not_leave_markers() -> None:
    assert actions(S3Prefix("acme", "tmp/", older_than=WEEK, mode="purge")) == {
        # As in every other mode: else AWS answers the HEAD of a version that is gone with 403.
        "acme": {*STATE, "s3:ListBucket"},
        "acme tmp/*": {"s3:ListBucketVersions"},
        "acme/tmp/*": {"s3:DeleteObjectVersion", "s3:GetObjectVersion"},
    }


def test_a_star_in_a_prefix_stands_for_itself() -> None:
    found = actions(S3Prefix("acme", "a*b?$/", older_than=WEEK, mode="purge"))
    assert set(found) == {"acme", "acme a${*}b${?}${$}/*", "acme/a${*}b${?}${$}/*"}


def test_a_canary_may_be_put_in_its_folder_alone() -> None:
    found = actions(S3Prefix("acme", "tmp/", older_than=WEEK, mode="marker", require_conditional="canary/"))
    assert found["acme/canary/.safedelete-canary-*"] == {
        "s3:PutObject", "s3:DeleteObject", "s3:GetObject", "s3:DeleteObjectVersion",
    }  # fmt: skip
    assert found["acme canary/.safedelete-canary-*"] == {"s3:ListBucketVersions"}
    assert "s3:PutObject" not in found["acme/tmp/*"]


def test_an_inventory_may_be_read() -> None:
    found = actions(S3Prefix("acme", "tmp/", older_than=WEEK, inventory=Inventory("s3://inv/acme/daily/")))
    assert found["inv/acme/daily/*"] == {"s3:GetObject"}
    assert found["inv acme/daily/*"] == {"s3:ListBucket"}


def test_orphans_are_swept_under_their_prefix() -> None:
    from sqlalchemy import Column, Integer, MetaData, String, Table

    table = Table("t", MetaData(), Column("id", Integer, primary_key=True), Column("k", String(9)))
    found = actions(S3Orphans("acme", "u/", referenced_by=[table.c.k], older_than=WEEK))
    assert found["acme/u/*"] == {"s3:DeleteObject", "s3:GetObject"}


def test_the_scheduler_may_start_these_jobs_on_this_cluster_alone(project: Path, render: Rendering) -> None:
    render("iam")
    role = json.loads((project / "deploy" / f"safedelete-{REGION}-scheduler.iam.json").read_text())
    statements = {s["Action"][0]: s for s in role["Policies"][0]["PolicyDocument"]["Statement"]}
    assert statements["ecs:RunTask"]["Condition"]["ArnEquals"]["ecs:cluster"].endswith(":cluster/jobs")
    assert all(
        arn.endswith(":*") and "task-definition/safedelete-" in arn
        for arn in statements["ecs:RunTask"]["Resource"]
    )
    assert (
        statements["iam:PassRole"]["Condition"]["StringEquals"]["iam:PassedToService"]
        == "ecs-tasks.amazonaws.com"
    )


def test_who_approves_has_a_database_role_of_its_own_and_none_on_aws(
    project: Path, render: Rendering
) -> None:
    secret = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:approver-AbCdEf"
    (project / "safedelete.toml").write_text(
        TOML + f'approver_secrets = {{ SAFEDELETE_DATABASE_URL = "{secret}:url::" }}\n'
    )
    render("taskdef")
    render("iam")
    files = {path.name: json.loads(path.read_text()) for path in (project / "deploy").iterdir()}
    approver = files["approver.taskdef.json"]
    assert "taskRoleArn" not in approver
    [container] = approver["containerDefinitions"]
    assert container["secrets"] == [{"name": "SAFEDELETE_DATABASE_URL", "valueFrom": f"{secret}:url::"}]
    assert container["command"] == ["--help"]
    # Whoever may start a purge may pass the other one.
    role = f"safedelete-{REGION}-approver-execution"
    assert approver["executionRoleArn"].endswith(f":role/{role}")
    assert sorted(name for name, file in files.items() if secret in json.dumps(file)) == [
        "approver.taskdef.json", f"{role}.iam.json",
    ]  # fmt: skip
    assert "secret:db-" not in json.dumps(files[f"{role}.iam.json"])
    assert role not in json.dumps(files[f"safedelete-{REGION}-scheduler.iam.json"])
    # Side by side, each kind holds its own files alone.
    for kind in ("taskdef", "iam"):
        render(kind, "--check")
    (project / "jobs.py").write_text(JOBS.replace('"approver"', "").replace('"reminders"', '"approver"'))
    assert "A job is called approver" in render("taskdef", expect=2).said


def test_the_secret_is_read_by_the_role_that_starts_the_task_and_no_other(
    project: Path, render: Rendering
) -> None:
    render("iam")
    readers = [p.name for p in (project / "deploy").iterdir() if "secretsmanager" in p.read_text()]
    assert readers == [f"safedelete-{REGION}-execution.iam.json"]


# --- names


def test_a_long_name_is_cut_and_stays_another_than_its_neighbour() -> None:
    names = Names(ecs())
    long = ["a" * 63 + "x", "a" * 63 + "y"]
    roles = {names.role(f"job-{name}") for name in long}
    assert len(roles) == 2
    assert all(len(role) <= 64 for role in roles)
    assert len({logical("Task", name) for name in ("a-b", "ab", "a-b-c", "ab-c")}) == 4


def test_a_template_beyond_what_cloudformation_takes_is_refused() -> None:
    jobs = [purge(f"job-{n}", "rate(1 day)") for n in range(110)]
    with pytest.raises(ConfigError, match="CloudFormation takes 500"):
        template(made(*jobs))


# --- what is refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("stop_timeout = 600", "ecs.stop_timeout is 600"),
        ("stop_timeout = 20", "its grace of 20 s is not below ecs.stop_timeout = 20"),
        ("log_retention = 31", "ecs.log_retention is 31: must be one of 1, 3, 5"),
        ("memory = 5000", "memory 5000 does not go with cpu 256; Fargate has 512 to 2048"),
        ("cpu = 300", "ecs.cpu is 300"),
        ("retry_age = 86400", "ecs.retry_age is 86400"),
        ("retries = 185", "ecs.retries is 185"),
        ('prefix = "Has Space"', "ecs.prefix is 'Has Space'"),
        ('variables = { SAFEDELETE_ENVIRONMENT = "x" }', "SAFEDELETE_ENVIRONMENT is set by the rendering"),
        (
            f'approver_secrets = {{ SAFEDELETE_REVISION = "arn:aws:ssm:{REGION}:{ACCOUNT}:parameter/x" }}',
            "SAFEDELETE_REVISION is set by the rendering",
        ),
        (f'topic = "arn:aws:sns:us-east-1:{ACCOUNT}:oncall"', "is in another region than eu-central-1"),
        (
            f'topic = "arn:aws:sns:{REGION}:{ACCOUNT}:oncall"',
            "emails and webhooks are for the topic that is made",
        ),
        (
            'variables = { REPORTS_URL = "postgresql://u:hunter2@h/d" }',
            "variables: REPORTS_URL holds a secret",
        ),
        ('webhooks = ["http://oncall.example.com/x"]', "ecs.webhooks.0"),
        ('variables = { SAFEDELETE_METRICS = "log,ping:https://x" }', "names neither emf nor cloudwatch"),
        ('policies = { nobody = ["arn:aws:iam::aws:policy/ReadOnlyAccess"] }', "ecs.policies names nobody"),
        ("flexible = 5", "ecs.flexible is not a known key."),
    ],
)
def test_a_value_out_of_the_platforms_range_is_told_with_file_and_key(
    project: Path, render: Rendering, change: str, said: str
) -> None:
    path = project / "safedelete.toml"
    path.write_text(f"{TOML}{change}\n")
    found = render("cloudformation", expect=2).said
    assert said in found
    assert "hunter2" not in found
    assert not (project / "deploy").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REPORTS_URL", "postgresql://u:hunter2@h/d"),
        ("REPORTS_URL", "redis://:hunter2@h"),
        ("REPORTS_URL", "postgresql://h/d?password=hunter2"),
        ("PGPASSWORD", "hunter2"),
        ("API_TOKEN", "hunter2"),
    ],
)
def test_a_secret_is_no_plain_variable_and_is_not_repeated(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=f"variables: {name} holds a secret") as raised:
        ecs(variables={name: value})
    assert "hunter2" not in str(raised.value.errors()[0]["msg"])


def test_an_address_without_a_password_is_a_plain_variable() -> None:
    plain = {"A": "https://hc.example.com/x?a=b", "B": "postgresql://reader@h/d", "C": "10:30 mail me @ home"}
    assert ecs(variables=plain).variables == plain


def test_a_secret_that_was_written_down_is_not_repeated(project: Path, render: Rendering) -> None:
    path = project / "safedelete.toml"
    path.write_text(re.sub("secrets = .*", 'secrets = { DATABASE_URL = "postgresql://u:hunter2@h/d" }', TOML))
    said = render("cloudformation", expect=2).said
    assert "ecs.secrets.DATABASE_URL is no ARN" in said
    assert "hunter2" not in said


NO_VERSION = [
    "app:latest",
    "app",
    "registry:5000/app",
    "registry:5000/app:latest",
    "app@sha256:abc",
    "app@",
    "app:",
]


def test_an_image_without_a_version_is_refused_here_and_by_the_template() -> None:
    settings = ecs(image=None)
    template_of = template(deployment([purge()], settings, "production", {"Ref": "Image"}))
    parameter = yaml.safe_load(template_of[TEMPLATE])["Parameters"]["Image"]
    for image in NO_VERSION:
        with pytest.raises(ConfigError, match="names no version"):
            check_image(image, settings)
        assert not re.fullmatch(parameter["AllowedPattern"], image)
    for image in (IMAGE, "registry:5000/app:7", f"app@sha256:{'0' * 64}", f"app:latest@sha256:{'0' * 64}"):
        check_image(image, settings)
        assert re.fullmatch(parameter["AllowedPattern"], image)


def test_the_execution_role_pulls_from_the_images_repository_alone() -> None:
    def pulled(**settings: Any) -> Any:
        role = made(purge(), **settings).roles["execution",]
        statements = role["Policies"][0]["PolicyDocument"]["Statement"]
        return [one["Resource"] for one in statements if "ecr:BatchGetImage" in one["Action"]]

    own = f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository"
    assert pulled() == [f"{own}/app"]
    assert pulled(image=f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/team/app@sha256:{'0' * 64}") == [
        f"{own}/team/app"
    ]
    for host in (
        f"dkr-ecr.{REGION}.on.aws",
        f"dkr.ecr-fips.{REGION}.amazonaws.com",
        "dkr.ecr.cn-north-1.amazonaws.com.cn",
    ):
        assert pulled(image=f"{ACCOUNT}.{host}/app:7")[0].endswith(f":{ACCOUNT}:repository/app")
    assert pulled(image="ghcr.io/acme/app:7") == []
    assert pulled(image=None) == [f"{own}/*"]
    assert pulled(image=None, repository=f"{own}/app") == [f"{own}/app"]
    for settings in ({}, {"image": "ghcr.io/acme/app:7"}):
        with pytest.raises(ConfigError, match=r"Set ecs.repository|may pull from"):
            check_image(IMAGE.replace("/app:", "/other:"), ecs(**settings))
    check_image(IMAGE.replace("/app:", "/other:"), ecs(image=None))


def test_a_customer_managed_key_may_be_used_by_the_role_that_reads_the_secrets() -> None:
    key = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    roles = made(purge(), kms_keys=[key]).roles
    assert [what for what, role in roles.items() if "kms:Decrypt" in json.dumps(role)] == [("execution",)]
    assert "kms:Decrypt" not in json.dumps(made().roles["execution",])


def test_a_bare_task_definition_needs_its_image(project: Path, render: Rendering) -> None:
    (project / "safedelete.toml").write_text(re.sub("image = .*", "", TOML))
    assert "ecs.image is missing" in render("taskdef", expect=2).said
    render("taskdef", "--image", "app:7")
    document = json.loads((project / "deploy" / "scratch.taskdef.json").read_text())
    assert document["containerDefinitions"][0]["image"] == "app:7"


def test_settings_without_the_table_say_which(project: Path, render: Rendering) -> None:
    (project / "safedelete.toml").write_text('environment = "x"\n')
    assert "the table [ecs] is missing" in render("cloudformation", expect=2).said


def test_a_schedule_that_aws_cannot_have_writes_nothing(project: Path, render: Rendering) -> None:
    (project / "jobs.py").write_text(JOBS.replace('"15 4 * * MON"', '"15 4 1 * MON"'))
    assert "cannot be a schedule of AWS" in render("cloudformation", expect=2).said
    assert not (project / "deploy").exists()


def test_what_the_metrics_and_the_messages_need_is_granted_however_the_lists_are_written() -> None:
    topic = f"arn:aws:sns:{REGION}:{ACCOUNT}:safedelete"
    other = f"arn:aws:sns:{REGION}:{ACCOUNT}:ops"
    own = purge()
    written = {
        "SAFEDELETE_METRICS": "log, emf cloudwatch",
        "SAFEDELETE_NOTIFY": f"{other} https://hook.example/x",
    }
    found = task_statements(own, topic, ecs(variables=written))
    assert {"Effect": "Allow", "Action": ["sns:Publish"], "Resource": other} in found
    assert any(one["Action"] == ["cloudwatch:PutMetricData"] for one in found)
    plain = task_statements(own, topic, ecs())
    assert {"Effect": "Allow", "Action": ["sns:Publish"], "Resource": topic} in plain
    assert not any(one["Action"] == ["cloudwatch:PutMetricData"] for one in plain)
    # In a secret there may be an address beside our topic; which, nobody here knows.
    secret = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:notify-AbCdEf"
    hidden = task_statements(own, topic, ecs(secrets={"SAFEDELETE_NOTIFY": secret}))
    assert {"Effect": "Allow", "Action": ["sns:Publish"], "Resource": topic} in hidden
