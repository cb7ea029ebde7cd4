"""Alert rules for Prometheus, and the unit tests that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import yaml

from safedelete.core.event import (
    DURATION,
    ENDED,
    JOB_LABEL,
    SERIES_CRASHED_AT,
    SERIES_SUCCEEDED_AT,
    WORKED,
    Ending,
)
from safedelete.deploy.files import MARK
from safedelete.deploy.jobs import SLOW, Deployed
from safedelete.deploy.spec import Prometheus

RULES: Final = "safedelete.rules.yml"
STEPS: Final = 200
"""How many times a unit test evaluates until a run is overdue: a monthly job by the minute would take promtool minutes."""

LAST_RUN: Final = ENDED[Ending.FAILED].series
BAD: Final = (Ending.FAILED, Ending.INTERRUPTED)
"""How a run ends when somebody should look; a refusal and a crash have alerts of their own, and a skipped run none."""

CRASH_SHOWS: Final = timedelta(hours=1)
"""How long a crash fires, at least: the run that finds it goes on with the work, and may well succeed."""


def render(jobs: Sequence[Deployed], spec: Prometheus) -> Mapping[str, str]:
    """Return the rules, and promtool's unit tests of them, by file name."""
    rules = [rule for job in jobs for rule in _rules(job, spec)]
    files = {RULES: _yaml({"groups": [{"name": "safedelete", "rules": rules}]})}
    for job in jobs:
        # A file a job: one file has one interval, and jobs of minutes and of months share none.
        files[f"safedelete-{job.name}.tests.yml"] = _yaml(
            {
                "rule_files": [RULES],
                "evaluation_interval": f"{_seconds(_step(job, spec))}s",
                "tests": _tests(job, spec, [other for other in jobs if other is not job]),
            }
        )
    return files


def _step(job: Deployed, spec: Prometheus) -> timedelta:
    return max(
        timedelta(minutes=spec.evaluation_minutes),
        timedelta(minutes=job.missed_after // timedelta(minutes=STEPS)),
    )


def _crash_shows(job: Deployed, spec: Prometheus) -> timedelta:
    return max(CRASH_SHOWS, 2 * _step(job, spec))


def _rules(job: Deployed, spec: Prometheus) -> list[dict[str, Any]]:
    own = f'{JOB_LABEL}="{job.name}"'
    bad = "|".join(ending.value for ending in BAD)
    late = _seconds(job.missed_after)
    slow = _seconds(job.timeout * SLOW)
    return [
        _rule(
            job,
            spec,
            "Failed",
            f'{LAST_RUN}{{{own},ending=~"{bad}"}} == 1',
            "the last run failed or was interrupted.",
        ),
        _rule(
            job,
            spec,
            "Crashed",
            f"time() - {SERIES_CRASHED_AT}{{{own}}} < {_seconds(_crash_shows(job, spec))}",
            "a run's process died (killed, out of memory, or its host went); a later run has found it and goes on.",
        ),
        _rule(
            job,
            spec,
            "GuardRefused",
            f'{LAST_RUN}{{{own},ending="{Ending.REFUSED.value}"}} == 1',
            "the guard refused the last run; nothing was deleted. `safedelete history` says why.",
        ),
        _rule(
            job,
            spec,
            "Missed",
            f"time() - {SERIES_SUCCEEDED_AT}{{{own}}} > {late}",
            f"no run has succeeded for {_span(job.missed_after)}: the longest gap of its schedule, its timeout and its "
            "grace.",
        ),
        _rule(
            job,
            spec,
            "NeverReported",
            f"absent({SERIES_SUCCEEDED_AT}{{{own}}})",
            "no success has ever been reported, or what reports it is gone.",
            wait=job.missed_after,
        ),
        _rule(
            job,
            spec,
            "Slow",
            f"{DURATION.series}{{{own}}} > {slow}",
            f"the last run took more than {SLOW:.0%} of its timeout of {_span(job.timeout)}.",
        ),
    ]


def _rule(
    job: Deployed, spec: Prometheus, what: str, expression: str, text: str, wait: timedelta | None = None
) -> dict[str, Any]:
    return {
        "alert": f"Safedelete{what}",
        "expr": expression,
        **({} if wait is None else {"for": f"{_seconds(wait)}s"}),
        "labels": _labels(job, spec),
        "annotations": _notes(job, spec, what, text),
    }


def _labels(job: Deployed, spec: Prometheus) -> dict[str, str]:
    return {JOB_LABEL: job.name, "severity": "critical", **spec.labels}


def _notes(job: Deployed, spec: Prometheus, what: str, text: str) -> dict[str, str]:
    notes = {"summary": f"{job.name}: {text}"}
    if spec.runbook is not None:
        address = spec.runbook.replace("{alert}", f"Safedelete{what}").replace("{job}", job.name)
        notes["runbook_url"] = address
    return notes


def _tests(job: Deployed, spec: Prometheus, others: Sequence[Deployed]) -> list[dict[str, Any]]:
    """Return tests on both sides of every threshold, so that a changed one fails; the other jobs are well meanwhile."""
    step = _step(job, spec)
    late = -(-job.missed_after // step)
    slow = _seconds(job.timeout * SLOW)
    shows = _crash_shows(job, spec)
    own = f'{JOB_LABEL}="{job.name}"'
    series = f"{SERIES_SUCCEEDED_AT}{{{own}}}"
    fired = {what: rule for rule in _rules(job, spec) for what in [rule["alert"]]}

    step_seconds = _seconds(step)
    well = {
        f'{SERIES_SUCCEEDED_AT}{{{JOB_LABEL}="{other.name}"}}': f"0+{step_seconds}x{late + 2}"
        for other in others
    }

    def expected(at: timedelta, alert: str, *, fires: bool) -> dict[str, Any]:
        rule = fired[alert]
        exp: list[dict[str, Any]] = []
        if fires:
            extra = {"ending": _ENDING[alert]} if alert in _ENDING else {}
            exp = [{"exp_labels": {**rule["labels"], **extra}, "exp_annotations": rule["annotations"]}]
        return {"eval_time": f"{_seconds(at)}s", "alertname": alert, "exp_alerts": exp}

    def world(name: str, series_of: dict[str, str], *checks: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": f"{job.name}: {name}",
            "interval": f"{step_seconds}s",
            "input_series": [{"series": s, "values": v} for s, v in {**well, **series_of}.items()],
            "alert_rule_test": list(checks),
        }

    healthy = {
        series: f"0x{late + 2}",
        **{
            f'{LAST_RUN}{{{own},ending="{e.value}"}}': f"{int(e is Ending.SUCCEEDED)}x{late + 2}"
            for e in WORKED
        },
        f"{DURATION.series}{{{own}}}": f"{slow}x{late + 2}",
    }
    return [
        world(
            "a success fires nothing until the next one is overdue",
            healthy,
            *(expected(step, alert, fires=False) for alert in fired),
            expected(late * step - step, "SafedeleteMissed", fires=False),
            expected(late * step + step, "SafedeleteMissed", fires=True),
            expected(late * step + step, "SafedeleteNeverReported", fires=False),
        ),
        world(
            "silence fires once a run is overdue",
            {},
            expected(late * step - step, "SafedeleteNeverReported", fires=False),
            expected(late * step + step, "SafedeleteNeverReported", fires=True),
        ),
        world(
            "a failure, a refusal and a slow run each fire at once",
            {
                f'{LAST_RUN}{{{own},ending="{Ending.FAILED.value}"}}': "1x2",
                f'{LAST_RUN}{{{own},ending="{Ending.REFUSED.value}"}}': "1x2",
                f"{DURATION.series}{{{own}}}": f"{slow + 1}x2",
            },
            expected(step, "SafedeleteFailed", fires=True),
            expected(step, "SafedeleteGuardRefused", fires=True),
            expected(step, "SafedeleteSlow", fires=True),
        ),
        world(
            "a crash fires for a while, whatever the next run does",
            {f"{SERIES_CRASHED_AT}{{{own}}}": f"0x{-(-shows // step) + 2}"},
            expected(shows - step, "SafedeleteCrashed", fires=True),
            expected(shows + step, "SafedeleteCrashed", fires=False),
        ),
    ]


_ENDING: Final = {"SafedeleteFailed": Ending.FAILED.value, "SafedeleteGuardRefused": Ending.REFUSED.value}


def _seconds(span: timedelta) -> int:
    return -(-span // timedelta(seconds=1))


def _span(span: timedelta) -> str:
    return str(timedelta(seconds=_seconds(span))).removesuffix(":00")


def _yaml(document: object) -> str:
    text = yaml.safe_dump(document, sort_keys=False, width=110, allow_unicode=True)
    return f"# {MARK} from the job file and safedelete.toml; change those.\n{text}"
