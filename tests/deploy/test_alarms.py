"""An alarm tells of what it is for, at the time it may, and has somebody to tell."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from safedelete.core.event import RunEvent
from safedelete.declare import job
from safedelete.deploy.aws.resources import deployment, failed_tasks
from safedelete.deploy.aws.template import template
from safedelete.metrics.lines import emf
from tests.deploy.aws import ACCOUNT, IMAGE, REGION, ecs, made, purge

TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:safedelete-alerts"


def missed(
    schedule: str, timeout: timedelta = timedelta(minutes=20), **options: Any
) -> dict[str, Any] | None:
    return made(purge(schedule=schedule, timeout=timeout, **options)).alarms.get(("nightly", "missed"))


# --- a run that did not happen


def test_a_missing_run_shows_after_the_longest_gap_and_all_that_a_run_may_take() -> None:
    alarm = missed("15 3 * * *", tz="Europe/Berlin")
    assert alarm is not None
    # 25 hours in autumn, 15 minutes of asking for a task, 10 to its start, 20 minutes and 20 seconds.
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (3600, 26)
    assert alarm["TreatMissingData"] == "breaching"
    assert alarm["WarmUpConfiguration"]["WarmUpPeriodDurationInMinutes"] == 25 * 60 + 15 + 10 + 21


def test_a_start_as_late_as_it_may_be_is_not_missed() -> None:
    # The longest gap, timeout and grace alone are a second below 24 hours; a retried start is not.
    room = timedelta(hours=1) - timedelta(seconds=21)
    one = made(purge(schedule="rate(23 hours)", timeout=room)).alarms["nightly", "missed"]
    assert one["EvaluationPeriods"] == 25


def test_no_alarm_looks_back_further_than_aws_lets_it() -> None:
    for schedule in ("rate(6 days)", "15 3 * * MON", "rate(1 minute)", "rate(167 hours)", "0 3 */5 * *"):
        alarm = missed(schedule, timedelta(seconds=30))
        assert alarm is not None
        assert alarm["Period"] * alarm["EvaluationPeriods"] <= 604_800


def test_a_weekly_job_is_missed_by_the_calendar_week() -> None:
    alarm = missed("15 3 * * MON", tz="Europe/Berlin")
    assert alarm is not None
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (604_800, 1)
    assert alarm["EvaluationWindow"] == {"WallClockWindow": {"Timezone": "Europe/Berlin"}}


@pytest.mark.parametrize(
    "schedule",
    [
        # A week may pass without a run.
        "rate(169 hours)",
        # Each week has a run, but it may end in the next one.
        "rate(7 days)",
        "50 23 * * SUN",
        "50 23 * * SAT",
        "cron(0 3 1,8,15,22 * ? *)",
    ],
)
def test_a_calendar_week_that_may_be_without_a_success_is_no_alarm_but_a_finding(schedule: str) -> None:
    mine = made(purge(schedule=schedule), emails=["oncall@example.com"])
    assert ("nightly", "missed") not in mine.alarms
    assert [note.code for note in mine.notes] == ["SD405"]


def test_a_monthly_job_is_said_to_need_a_ping_unless_it_has_one() -> None:
    monthly = purge(schedule="cron(30 1 1 * ? *)")
    mine = made(monthly, emails=["oncall@example.com"])
    assert [(note.code, note.target) for note in mine.notes] == [("SD405", "nightly")]
    assert ("nightly", "missed") not in mine.alarms
    ping = {"SAFEDELETE_METRICS": "log,emf,ping:https://hc.example.com/{job}"}
    assert made(monthly, emails=["oncall@example.com"], variables=ping).notes == ()


# --- whose runs


def selected(alarm: dict[str, Any]) -> list[dict[str, str]]:
    """Return the dimensions of each of an alarm's metrics."""
    metrics = [one["MetricStat"]["Metric"] for one in alarm.get("Metrics", ()) if "MetricStat" in one]
    return [{d["Name"]: d["Value"] for d in one["Dimensions"]} for one in metrics or [alarm]]


@pytest.mark.parametrize("environment", ["production", "prüfung"])
def test_an_alarm_looks_at_what_the_runs_of_its_environment_send_and_at_no_others(environment: str) -> None:
    def sent(environment: str) -> dict[str, str]:
        line = emf(RunEvent(job="nightly", environment=environment, started_at=datetime.now(UTC)))
        (named,) = line["_aws"]["CloudWatchMetrics"][0]["Dimensions"]
        return {name: line[name] for name in named}

    alarms = deployment([purge()], ecs(), environment, IMAGE).alarms
    for what in ("failed", "missed"):
        for whose in selected(alarms["nightly", what]):
            # CloudWatch takes the metric whose dimensions are exactly these.
            assert whose == sent(environment)
            assert whose != sent("staging")


# --- what is told, and what is not


def test_only_a_success_is_told_as_a_recovery() -> None:
    alarms = made().alarms
    assert {what: alarm.get("OKActions") for what, alarm in alarms.items()} == {
        ("nightly", "failed"): None,
        ("nightly", "missed"): [TOPIC],
        ("not-started",): None,
        ("not-kept",): None,
        ("scheduler-errors",): None,
    }
    assert all(alarm["AlarmActions"] == [TOPIC] and alarm["ActionsEnabled"] for alarm in alarms.values())


def test_what_counts_failures_ends_with_them_so_that_the_next_one_is_told_anew() -> None:
    for what, alarm in made().alarms.items():
        if what[-1] == "missed":
            continue
        assert alarm["TreatMissingData"] == "notBreaching"
        # A queue's depth stays until somebody empties it.
        assert alarm.get("Namespace") in (None, "AWS/Scheduler")
    assert made().alarms["not-started",]["MetricName"] == "InvocationDroppedCount"
    # Without a queue nobody would know what was given up.
    assert made().alarms["not-kept",]["MetricName"] == "InvocationsFailedToBeSentToDeadLetterCount"


def test_a_topic_that_is_made_without_a_subscriber_is_a_finding() -> None:
    assert [note.code for note in made().notes] == ["SD410"]
    assert TOPIC in made().notes[0].message
    assert made(emails=["oncall@example.com"]).notes == ()
    assert made(webhooks=["https://oncall.example.com/key"]).notes == ()
    # Who listens to a topic of one's own is for drift to ask.
    assert made(topic=f"arn:aws:sns:{REGION}:{ACCOUNT}:oncall").notes == ()


def test_subscribers_are_made_with_the_topic() -> None:
    [text] = template(
        made(emails=["oncall@example.com"], webhooks=["https://oncall.example.com/key"])
    ).values()
    assert yaml.safe_load(text)["Resources"]["Topic"]["Properties"]["Subscription"] == [
        {"Protocol": "email", "Endpoint": "oncall@example.com"},
        {"Protocol": "https", "Endpoint": "https://oncall.example.com/key"},
    ]


# --- tasks that send no metric


def matches(pattern: dict[str, Any], event: Any) -> bool:
    """Whether EventBridge takes an event, as far as our pattern uses its language.

    Of a list of objects one has to match by itself (aws/event-ruler calls it array consistency), while a field that must
    not exist may be in none of them: absence is asked before the name says which one is meant.
    """

    def leaf(rules: list[Any], node: Any, name: str, others: list[Any]) -> bool:
        def takes(rule: Any) -> bool:
            match rule:
                case {"exists": False}:
                    return not any(name in one for one in others)
                case {"anything-but": known}:
                    return name in node and node[name] not in known
                case {"prefix": start}:
                    return name in node and str(node[name]).startswith(start)
            return node.get(name) == rule

        return any(map(takes, rules))

    def one(pattern: dict[str, Any], node: Any, others: list[Any]) -> bool:
        for name, inner in pattern.items():
            if name == "$or":
                well = any(one(part, node, others) for part in inner)
            elif isinstance(inner, list):
                well = leaf(inner, node, name, others)
            else:
                found = node[name] if isinstance(node[name], list) else [node[name]]
                well = any(one(inner, element, found) for element in found)
            if not well:
                return False
        return True

    return one(pattern, event, [event])


FAMILY = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/safedelete-nightly"
AGENT = {"name": "aws-guardduty-agent"}


@pytest.mark.parametrize(
    ("told", "change"),
    [
        (False, {}),
        (False, {"containers": [{"name": "safedelete", "exitCode": 5}]}),
        (True, {"containers": [{"name": "safedelete", "exitCode": 7}]}),
        (True, {"containers": [{"name": "safedelete", "exitCode": 137, "reason": "OutOfMemoryError"}]}),
        (True, {"stopCode": "TaskFailedToStart", "containers": [{"name": "safedelete"}]}),
        # Stopped by a person, or with its host, before the process could say anything.
        (True, {"stopCode": "UserInitiated", "containers": [{"name": "safedelete"}]}),
        (True, {"stopCode": "SpotInterruption", "containers": [{"name": "safedelete"}]}),
        (False, {"lastStatus": "RUNNING", "containers": [{"name": "safedelete"}]}),
        (False, {"taskDefinitionArn": f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/web:1", "containers": [{}]}),
        # Of another deployment, whose prefix begins with ours, or of another job.
        (False, {"taskDefinitionArn": f"{FAMILY}-eu:1", "containers": [{"name": "safedelete", "exitCode": 7}]}),
        # What an organisation puts beside it may end as it likes.
        (False, {"containers": [{"name": "safedelete", "exitCode": 0}, {**AGENT, "exitCode": 143}]}),
        (False, {"containers": [{**AGENT, "exitCode": 137}, {"name": "safedelete", "exitCode": 5}]}),
        (False, {"containers": [{"name": "safedelete", "exitCode": 0}, AGENT]}),
        (True, {"containers": [{**AGENT, "exitCode": 0}, {"name": "safedelete", "exitCode": 7}]}),
        (True, {"containers": [AGENT, {"name": "safedelete"}]}),
        (True, {"stopCode": "TerminationNotice", "containers": [{**AGENT, "exitCode": 0}, {"name": "safedelete"}]}),
    ],
)  # fmt: skip
def test_a_task_that_ended_badly_or_without_saying_how_is_told_of(told: bool, change: dict[str, Any]) -> None:
    pattern = failed_tasks(made().names, ["nightly"])["EventPattern"]
    detail = {
        "clusterArn": f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/jobs",
        "taskDefinitionArn": f"{FAMILY}:4",
        "lastStatus": "STOPPED",
        "stopCode": "EssentialContainerExited",
        "containers": [{"name": "safedelete", "exitCode": 0}],
    }
    event = {
        "source": "aws.ecs",
        "detail-type": "ECS Task State Change",
        "detail": {**detail, **change},
    }
    assert matches(pattern, event) is told


def test_the_rule_of_many_jobs_has_room_in_what_eventbridge_takes() -> None:
    names = made().names
    few, many = ([f"a-rather-long-name-of-a-job-{n}" for n in range(count)] for count in (8, 80))
    assert len(failed_tasks(names, few)["EventPattern"]["detail"]["taskDefinitionArn"]) == 8
    pattern = failed_tasks(names, many)["EventPattern"]
    assert len(json.dumps(pattern)) <= 2048
    assert pattern["detail"]["taskDefinitionArn"] == [{"prefix": FAMILY.removesuffix("nightly")}]


def test_a_job_is_watched_as_a_purge_is() -> None:
    @job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
    def reminders(run: object) -> None: ...

    assert {what for what in made(reminders).alarms if what[0] == "reminders"} == {
        ("reminders", "failed"),
        ("reminders", "missed"),
    }
