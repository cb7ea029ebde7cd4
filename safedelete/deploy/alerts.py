"""Alert rules for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from safedelete.core.event import (
    DURATION,
    ENDED,
    ENVIRONMENT_LABEL,
    JOB_LABEL,
    SERIES_CRASHED_AT,
    SERIES_ENDED_AT,
    SERIES_SUCCEEDED_AT,
    Ending,
)
from safedelete.deploy.jobs import SLOW, Deployed
from safedelete.deploy.spec import Prometheus

STEPS: Final = 50
"""How many times a unit test evaluates until a run is overdue: more would tell apart thresholds that differ by less than 2 %,
and take promtool, which evaluates every job's rules each time, minutes for a file of many jobs."""

LAST_RUN: Final = ENDED[Ending.FAILED].series
BAD: Final = (Ending.FAILED, Ending.INTERRUPTED)
"""How a run ends when somebody should look; a refusal and a crash have alerts of their own, and a skipped run none."""

CRASH_SHOWS: Final = timedelta(hours=1)
"""How long a crash fires, at least: the run that finds it goes on with the work, and may well succeed."""

SLOW_CLOCK: Final = timedelta(days=1)
"""How far behind a clock may be that tells of a crash."""

AHEAD: Final = 300
"""Seconds that a time may lie in the future: one that lies further was written by a wrong clock, and says nothing."""

LINGERS: Final = timedelta(days=1)
"""How much longer than a run is overdue its job's last success is known after its host has gone; ``NeverReported`` fires by then."""

EACH: Final = f"max by ({JOB_LABEL}, {ENVIRONMENT_LABEL})"
"""Over all hosts: what a job left on one that it has moved away from is scraped for ever."""


@dataclass(frozen=True, slots=True)
class Alarms:
    """The alerts of one job.

    Attributes:
        job: The job.
        spec: The settings.
        environment: Whose runs are looked at: another one's success or failure says nothing here.
    """

    job: Deployed
    spec: Prometheus
    environment: str

    def rules(self) -> list[Mapping[str, Any]]:
        """Return the rules."""
        job, bad = self.job, "|".join(ending.value for ending in BAD)
        succeeded = self.series(SERIES_SUCCEEDED_AT)
        # What a range says last, for a host that is gone has no instant value.
        last = f"last_over_time({succeeded}[{seconds(job.missed_after + LINGERS)}s])"
        failed = self.series(LAST_RUN, f',ending=~"{bad}"')
        refused = self.series(LAST_RUN, f',ending="{Ending.REFUSED.value}"')
        return [
            self._rule(
                "Failed", f"{self._of_newest(failed)} == 1", "the last run failed or was interrupted."
            ),
            self._rule(
                "Crashed",
                self._crashed(),
                "a run's process died (killed, out of memory, or its host went); a later run has found it and goes on.",
            ),
            self._rule(
                "GuardRefused",
                f"{self._of_newest(refused)} == 1",
                "the guard refused the last run; nothing was deleted. `safedelete history FILE` says why.",
            ),
            self._rule(
                "Missed",
                f"time() - {EACH} ({_past(last)}) > {seconds(job.missed_after)}",
                f"no run has succeeded for {_span(job.missed_after)}: the longest gap of its schedule, its timeout and its "
                "grace.",
            ),
            self._rule(
                "NeverReported",
                f"absent({_past(succeeded)})",
                "no success has ever been reported, or what reports it is gone, or its clock is ahead.",
                wait=job.missed_after,
            ),
            self._rule(
                "Slow",
                f"{self._of_newest(self.series(DURATION.series))} > {self.slow}",
                f"the last run took more than {SLOW:.0%} of its timeout of {_span(job.timeout)}.",
            ),
        ]

    @property
    def step(self) -> timedelta:
        """How often the unit tests evaluate."""
        return max(
            timedelta(minutes=self.spec.evaluation_minutes),
            timedelta(minutes=self.job.missed_after // timedelta(minutes=STEPS)),
        )

    @property
    def crash_shows(self) -> timedelta:
        """How long a crash fires; in whole steps, or the unit tests could not look at its end."""
        return max(2, -(-CRASH_SHOWS // self.step)) * self.step

    @property
    def slow(self) -> int:
        """Seconds above which a run is slow."""
        return seconds(self.job.timeout * SLOW)

    def series(self, name: str, more: str = "") -> str:
        """Return the job's own series of a name."""
        # A PromQL string escapes as JSON's do.
        mine = json.dumps(self.environment, ensure_ascii=False)
        return f'{name}{{{JOB_LABEL}="{self.job.name}",{ENVIRONMENT_LABEL}={mine}{more}}}'

    def _of_newest(self, series: str) -> str:
        """Return what a series says where the newest run was: an older one on another host neither fires nor hides it."""
        ended = self.series(SERIES_ENDED_AT)
        return f"{EACH} ({series} and ignoring (ending) {ended} == scalar(max({_past(ended)})))"

    def _crashed(self) -> str:
        """Return when a crash has been told lately: by Prometheus' own clock, for a host's may be hours slow, or ahead for good."""
        at, lately = self.series(SERIES_CRASHED_AT), f"{seconds(self.crash_shows)}s"
        fresh = f"changes({at}[{lately}]) > 0 or {at} unless last_over_time({at}[{lately}] offset {lately})"
        # What a host that is scraped anew said long ago is no news.
        return f"{EACH} (({fresh}) and {at} > time() - {seconds(self.crash_shows + SLOW_CLOCK)})"

    def _rule(
        self, what: str, expression: str, text: str, wait: timedelta | None = None
    ) -> Mapping[str, Any]:
        whose = {JOB_LABEL: self.job.name, ENVIRONMENT_LABEL: self.environment}
        notes = {"summary": f"{self.job.name} ({self.environment}): {text}"}
        if self.spec.runbook is not None:
            address = self.spec.runbook.replace("{alert}", f"Safedelete{what}")
            notes["runbook_url"] = address.replace("{job}", self.job.name)
        return {
            "alert": f"Safedelete{what}",
            "expr": expression,
            **({} if wait is None else {"for": f"{seconds(wait)}s"}),
            "labels": {**whose, "severity": "critical", **self.spec.labels},
            "annotations": notes,
        }


def _past(series: str) -> str:
    """Return those of some times that are none of a wrong clock: one far ahead would be the newest for good."""
    return f"{series} <= time() + {AHEAD}"


def seconds(span: timedelta) -> int:
    """Return a span in whole seconds, rounded up."""
    return -(-span // timedelta(seconds=1))


def _span(span: timedelta) -> str:
    return str(timedelta(seconds=seconds(span))).removesuffix(":00")
