"""The alarms, as ``PutMetricAlarm`` takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from safedelete.core.event import ENDED, NAMESPACE, Ending, dimensions
from safedelete.core.lint import every_week
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

START: Final = timedelta(minutes=10)
"""From a schedule's instant to the first line of code: Scheduler is a minute late, and Fargate pulls the image."""


def alarms(jobs: Sequence[Deployed], ecs: Ecs, environment: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return every alarm by the parts of its name.

    Args:
        jobs: The jobs.
        ecs: The settings.
        environment: Whose runs are looked at: another one's in the same account says nothing here.
    """
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for job in jobs:
        whose = [{"Name": name, "Value": value} for name, value in dimensions(job.name, environment).items()]
        found[job.name, "failed"] = _failed(job, ecs, whose)
        if expressible(job, ecs):
            found[job.name, "missed"] = _missed(job, ecs, whose)
    found["not-started",] = _not_started(ecs)
    found["not-kept",] = _not_kept(ecs)
    found["scheduler-errors",] = _scheduler_errors(ecs)
    return found


def late(ecs: Ecs) -> timedelta:
    """Return how long after its instant a run may begin: as long as Scheduler asks again, and the start itself."""
    return timedelta(seconds=ecs.retry_age) + START


def overdue(job: Deployed, ecs: Ecs) -> timedelta:
    """Return how long after a success the next one is missing: the longest gap, and all that a run may take."""
    return job.missed_after + late(ecs)


def expressible(job: Deployed, ecs: Ecs) -> bool:
    """Whether an alarm can know that a run is missing: it looks back a week, or at whole calendar weeks."""
    return _hours(job, ecs) * HOUR <= WEEK or every_week(job.schedule, late(ecs) + job.timeout + job.grace)


def _hours(job: Deployed, ecs: Ecs) -> int:
    return -(-overdue(job, ecs) // timedelta(hours=1))


def _failed(job: Deployed, ecs: Ecs, whose: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    parts = [
        {
            "Id": how.value,
            "MetricStat": {
                "Metric": {
                    "Namespace": NAMESPACE,
                    "MetricName": ENDED[how].name,
                    "Dimensions": [dict(one) for one in whose],
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
        f"`safedelete history FILE` says which.",
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


def _missed(job: Deployed, ecs: Ecs, whose: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    how = ENDED[Ending.SUCCEEDED]
    alarm = {
        **_alarm(ecs, job.name, "missed"),
        "Namespace": NAMESPACE,
        "MetricName": how.name,
        "Dimensions": [dict(one) for one in whose],
        "Statistic": "Sum",
        "Threshold": 1,
        "ComparisonOperator": "LessThanThreshold",
        "TreatMissingData": "breaching",
        "DatapointsToAlarm": 1,
        # Here OK is news: a run has succeeded again.
        "OKActions": [Names(ecs).topic],
    }
    hours = _hours(job, ecs)
    if hours * HOUR > WEEK:
        # A window that slides would alarm in the hours between the week's end and the end of a run.
        return alarm | {
            "AlarmDescription": f"{job.name}: no run succeeded in a whole calendar week.",
            "Period": WEEK,
            "EvaluationPeriods": 1,
            "EvaluationWindow": {"WallClockWindow": {"Timezone": job.schedule.zone}},
        }
    alarm |= {
        "AlarmDescription": f"{job.name}: no run has succeeded for {hours} h: the longest gap of its schedule, a late start, "
        "its timeout and its grace.",
        "Period": HOUR,
        "EvaluationPeriods": hours,
        "DatapointsToAlarm": hours,
    }
    if overdue(job, ecs) <= WARM_UP:
        # Until the first run is due there is nothing to miss. A changed alarm waits anew, as a new one does.
        minutes = -(-overdue(job, ecs) // timedelta(minutes=1))
        alarm["WarmUpConfiguration"] = {
            "WarmUpPeriodDurationInMinutes": minutes,
            "OnlyStartEvaluatingAfterWarmUpPeriodEnds": False,
        }
    return alarm


def _not_started(ecs: Ecs) -> dict[str, Any]:
    # The queue's depth would stay until somebody empties it, and hide what fails meanwhile.
    return {
        **_scheduler(ecs, "not-started", "InvocationDroppedCount"),
        "AlarmDescription": f"Scheduler gave up starting a task; the message in the queue {Names(ecs).dead_letters} says "
        "which and why.",
    }


def _not_kept(ecs: Ecs) -> dict[str, Any]:
    return {
        **_scheduler(ecs, "not-kept", "InvocationsFailedToBeSentToDeadLetterCount"),
        "AlarmDescription": f"Scheduler gave up starting a task, and could not write why into the queue {Names(ecs).dead_letters}: "
        "the queue is gone, or its role may not send to it.",
    }


def _scheduler_errors(ecs: Ecs) -> dict[str, Any]:
    return {
        **_scheduler(ecs, "scheduler-errors", "TargetErrorCount"),
        "AlarmDescription": "Scheduler could not start a task at the first attempt: a role, a subnet or a quota.",
    }


def _scheduler(ecs: Ecs, name: str, metric: str) -> dict[str, Any]:
    return {
        **_alarm(ecs, name),
        "Namespace": "AWS/Scheduler",
        "MetricName": metric,
        "Dimensions": [{"Name": "ScheduleGroup", "Value": Names(ecs).group}],
        "Statistic": "Sum",
        "Period": 300,
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def _alarm(ecs: Ecs, *parts: str) -> dict[str, Any]:
    # No OKActions: what counts failures is OK again as soon as nothing runs, which is no recovery.
    names = Names(ecs)
    return {
        "AlarmName": names.alarm(*parts),
        "ActionsEnabled": True,
        "AlarmActions": [names.topic],
    }
