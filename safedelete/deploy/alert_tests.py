"""Unit tests of the alert rules, for promtool: on both sides of every threshold, so that a changed one fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from safedelete.core.event import (
    DURATION,
    SERIES_CRASHED_AT,
    SERIES_ENDED_AT,
    SERIES_SUCCEEDED_AT,
    WORKED,
    Ending,
)
from safedelete.deploy.alerts import BAD, LAST_RUN, SLOW_CLOCK, Alarms, seconds

NEW: Final = ',instance="new"'
OLD: Final = ',instance="old"'
"""Where the newest run was, and a host that the job has moved away from, which goes on saying what was last there."""


AHEAD: Final = "1000000000"
"""Seconds after the tests' begin: as a clock that is decades ahead says."""


def tests_of(mine: Alarms, others: Sequence[Alarms]) -> list[dict[str, Any]]:
    """Return the tests of one job's rules.

    Args:
        mine: The job's.
        others: Other jobs' and other environments': they are well meanwhile, which must hide nothing here.
    """
    step = mine.step
    late = -(-mine.job.missed_after // step)
    samples, shown = f"x{late + 2}", f"x{-(-mine.crash_shows // step) + 2}"
    # After as many samples as the first crash is shown for, and the one that the series begins with.
    again = mine.crash_shows + 3 * step
    elsewhere = Alarms(mine.job, mine.spec, f"not {mine.environment}")
    well = {
        other.series(SERIES_SUCCEEDED_AT): f"0+{seconds(step)}{samples}" for other in (*others, elsewhere)
    }
    rules = {rule["alert"].removeprefix("Safedelete"): rule for rule in mine.rules()}

    def check(at: timedelta, alert: str, *, fires: bool) -> dict[str, Any]:
        rule = rules[alert]
        fired = {"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}
        return {
            "eval_time": f"{seconds(at)}s",
            "alertname": rule["alert"],
            "exp_alerts": [fired] if fires else [],
        }

    def world(name: str, series: Mapping[str, str], *checks: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": f"{mine.job.name}: {name}",
            "interval": f"{seconds(step)}s",
            "input_series": [{"series": s, "values": v} for s, v in {**well, **series}.items()],
            "alert_rule_test": list(checks),
        }

    def around(edge: timedelta, alert: str, *, before: bool) -> list[dict[str, Any]]:
        return [check(edge - step, alert, fires=before), check(edge + step, alert, fires=not before)]

    succeeded = mine.series(SERIES_SUCCEEDED_AT, NEW)
    before = _run(mine, OLD, Ending.FAILED, "-60", mine.slow + 1, samples)
    healthy = {
        **before,
        mine.series(SERIES_SUCCEEDED_AT, OLD): f"-60{samples}",
        **_run(elsewhere, NEW, Ending.FAILED, "60", mine.slow + 1, samples),
        **_run(mine, NEW, Ending.SUCCEEDED, "0", mine.slow, samples),
        succeeded: f"0{samples}",
    }
    overdue = late * step
    worlds = [
        world(
            "a success fires nothing until the next one is overdue, whatever another host or environment said before",
            healthy,
            *(check(step, alert, fires=False) for alert in rules),
            *around(overdue, "Missed", before=False),
            check(overdue + step, "NeverReported", fires=False),
        ),
        world("silence fires once a run is overdue", {}, *around(overdue, "NeverReported", before=False)),
        world(
            "a crash fires for a while, whatever the next run does",
            {
                mine.series(SERIES_CRASHED_AT, OLD): f"-{seconds(mine.crash_shows)}{shown}",
                mine.series(SERIES_CRASHED_AT, NEW): f"0{shown}",
            },
            *around(mine.crash_shows, "Crashed", before=True),
        ),
        world(
            "a crash that a slow clock tells fires for as long",
            {mine.series(SERIES_CRASHED_AT, NEW): f"-{seconds(SLOW_CLOCK)}{shown}"},
            *around(mine.crash_shows, "Crashed", before=True),
        ),
        world(
            "a crash that a clock far ahead tells fires no longer",
            {mine.series(SERIES_CRASHED_AT, NEW): f"{AHEAD}{shown}"},
            *around(mine.crash_shows, "Crashed", before=True),
        ),
        world(
            "a crash of long ago fires nothing, however lately its host is scraped",
            {mine.series(SERIES_CRASHED_AT, NEW): f"-{seconds(SLOW_CLOCK + mine.crash_shows)}{shown}"},
            check(step, "Crashed", fires=False),
        ),
        world(
            "the next crash of the same host fires anew",
            {mine.series(SERIES_CRASHED_AT, NEW): f"0{shown} {seconds(again)}{shown}"},
            check(again - step, "Crashed", fires=False),
            check(again, "Crashed", fires=True),
            check(again + mine.crash_shows + step, "Crashed", fires=False),
        ),
    ]
    worlds += [
        world(
            "a clock that was far ahead hides nothing",
            {
                **_run(mine, OLD, Ending.SUCCEEDED, AHEAD, 1, samples),
                mine.series(SERIES_SUCCEEDED_AT, OLD): f"{AHEAD}{samples}",
                **_run(mine, NEW, Ending.FAILED, "0", 1, samples),
                succeeded: f"0{samples}",
            },
            check(step, "Failed", fires=True),
            *around(overdue, "Missed", before=False),
        ),
        world(
            "a clock that is far ahead reports nothing",
            {mine.series(SERIES_SUCCEEDED_AT, NEW): f"{AHEAD}{samples}"},
            *around(overdue, "NeverReported", before=False),
        ),
        world(
            "a host that is gone with all it said has missed its runs all the same",
            {succeeded: f"0x1 stale _x{late}"},
            *around(overdue, "Missed", before=False),
        ),
    ]
    worlds += [
        world(
            f"a slow run that ended {how.value} fires at once, whatever another host said before",
            {
                **_run(mine, OLD, Ending.SUCCEEDED, "-60", 1, "x2"),
                **_run(mine, NEW, how, "0", mine.slow + 1, "x2"),
            },
            check(step, "Failed", fires=how in BAD),
            check(step, "GuardRefused", fires=how is Ending.REFUSED),
            check(step, "Slow", fires=True),
        )
        for how in (*BAD, Ending.REFUSED)
    ]
    return worlds


def _run(of: Alarms, host: str, how: Ending, ended_at: str, took: int, samples: str) -> dict[str, str]:
    """Return what one run leaves behind."""
    return {
        of.series(SERIES_ENDED_AT, host): f"{ended_at}{samples}",
        of.series(DURATION.series, host): f"{took}{samples}",
        **{
            of.series(LAST_RUN, f'{host},ending="{other.value}"'): f"{int(other is how)}{samples}"
            for other in WORKED
        },
    }
