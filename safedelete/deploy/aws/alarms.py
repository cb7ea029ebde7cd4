"""The alarms, as ``PutMetricAlarm`` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from safedelete.core.event import ENDED, JOB_LABEL, NAMESPACE, Ending
from safedelete.deploy.aws.names import Names
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.jobs import Deployed

BAD: Final = (Ending.FAILED, Ending.INTERRUPTED, Ending.CRASHED, Ending.REFUSED)
"""How a run ends when somebody should look; a skipped run is none of them."""

HOUR: Final = 3600
WEEK: Final = 604_800
"""Seconds, and the longest that an alarm can look back."""

WARM_UP: Final = timedelta(minutes=2880)
"""The longest that a new alarm can be told to wait for its first data."""

_DST: Final = timedelta(hours=1)


def alarms(jobs: Sequence[Deployed], ecs: Ecs) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return every alarm by the parts of its name."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for job in jobs:
        found[job.name, "failed"] = _failed(job, ecs)
        if expressible(job):
            found[job.name, "missed"] = _missed(job, ecs)
    found["not-started",] = _not_started(ecs)
    found["scheduler-errors",] = _scheduler_errors(ecs)
    return found


def expressible(job: Deployed) -> bool:
    """Whether an alarm can know that a run is missing: it looks back a week, or at whole calendar weeks."""
    return periods(job) * HOUR <= WEEK or job.longest <= timedelta(days=7) + _DST


def periods(job: Deployed) -> int:
    """Return the hours after which a success is missing."""
    return -(-job.missed_after // timedelta(hours=1))


def _failed(job: Deployed, ecs: Ecs) -> dict[str, Any]:
    dimensions = [{"Name": JOB_LABEL, "Value": job.name}]
    parts = [
        {
            "Id": how.value,
            "MetricStat": {
                "Metric": {
                    "Namespace": NAMESPACE,
                    "MetricName": ENDED[how].name,
                    "Dimensions": dimensions,
                },
                "Period": 300,
                "Stat": "Sum",
            },
            "ReturnData": False,
        }
        for how in BAD
    ]
    return {
        **_alarm(ecs, job.name, "failed"),
        "AlarmDescription": f"{job.name}: a run failed, was interrupted, crashed, or was refused by the guard. "
        f"`safedelete history` says which.",
        "Metrics": [
            {
                "Id": "bad",
                "Expression": " + ".join(how.value for how in BAD),
                "Label": "runs that did not succeed",
                "ReturnData": True,
            },
            *parts,
        ],
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def _missed(job: Deployed, ecs: Ecs) -> dict[str, Any]:
    how = ENDED[Ending.SUCCEEDED]
    alarm = {
        **_alarm(ecs, job.name, "missed"),
        "Namespace": NAMESPACE,
        "MetricName": how.name,
        "Dimensions": [{"Name": JOB_LABEL, "Value": job.name}],
        "Statistic": "Sum",
        "Threshold": 1,
        "ComparisonOperator": "LessThanThreshold",
        "TreatMissingData": "breaching",
        "DatapointsToAlarm": 1,
    }
    hours = periods(job)
    if hours * HOUR > WEEK:
        # A window that slides would alarm in the hours between the week's end and the end of a run.
        return alarm | {
            "AlarmDescription": f"{job.name}: no run succeeded in a whole calendar week.",
            "Period": WEEK,
            "EvaluationPeriods": 1,
            "EvaluationWindow": {"WallClockWindow": {"Timezone": job.schedule.zone}},
        }
    alarm |= {
        "AlarmDescription": f"{job.name}: no run has succeeded for {hours} h: the longest gap of its schedule, its timeout "
        "and its grace.",
        "Period": HOUR,
        "EvaluationPeriods": hours,
        "DatapointsToAlarm": hours,
    }
    if job.missed_after <= WARM_UP:
        # Until the first run is due there is nothing to miss.
        minutes = -(-job.missed_after // timedelta(minutes=1))
        alarm["WarmUpConfiguration"] = {
            "WarmUpPeriodDurationInMinutes": minutes,
            "OnlyStartEvaluatingAfterWarmUpPeriodEnds": False,
        }
    return alarm


def _not_started(ecs: Ecs) -> dict[str, Any]:
    return {
        **_alarm(ecs, "not-started"),
        "AlarmDescription": "Scheduler gave up starting a task; the message in the queue says which and why.",
        "Namespace": "AWS/SQS",
        "MetricName": "ApproximateNumberOfMessagesVisible",
        "Dimensions": [{"Name": "QueueName", "Value": Names(ecs).dead_letters}],
        "Statistic": "Maximum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def _scheduler_errors(ecs: Ecs) -> dict[str, Any]:
    return {
        **_alarm(ecs, "scheduler-errors"),
        "AlarmDescription": "Scheduler could not start a task at the first attempt: a role, a subnet or a quota.",
        "Namespace": "AWS/Scheduler",
        "MetricName": "TargetErrorCount",
        "Dimensions": [{"Name": "ScheduleGroup", "Value": Names(ecs).group}],
        "Statistic": "Sum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def _alarm(ecs: Ecs, *parts: str) -> dict[str, Any]:
    names = Names(ecs)
    return {
        "AlarmName": names.alarm(*parts),
        "ActionsEnabled": True,
        "AlarmActions": [names.topic],
        "OKActions": [names.topic],
    }
