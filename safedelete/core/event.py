"""What a run tells the outside: one event when it starts, one when it is over, and the names its numbers go by.

The metric names stand here alone: whatever sends them, and whatever makes an alarm of them, takes them from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, NamedTuple

from safedelete.core.outcome import Outcome, Tally
from safedelete.errors import ExitCode

NAMESPACE: Final = "safedelete"
"""CloudWatch's namespace, and the prefix of Prometheus' and OpenTelemetry's names."""

JOB_LABEL: Final = "job_name"
"""Not ``job``, which Prometheus gives to every scrape."""

ENVIRONMENT_LABEL: Final = "environment"
"""Where several environments tell one Prometheus, or one AWS account: production's silence must not hide behind staging's
success."""


def dimensions(job: str, environment: str) -> dict[str, str]:
    """Return CloudWatch's dimensions of a job's metrics, for what sends them and for the alarms: they must be the same.

    A value is ASCII there, and never empty: a metric with any other is not taken.
    """
    known = {JOB_LABEL: job, ENVIRONMENT_LABEL: environment.encode("ascii", "backslashreplace").decode()}
    return {name: value for name, value in known.items() if value}


class Ending(StrEnum):
    """How a run ended, as an alarm needs it: coarser than a run's state in the ledger."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """It stopped at its deadline or because it was asked to, and can be resumed."""
    REFUSED = "refused"
    SKIPPED = "skipped"
    """The lock was held, or the job is paused."""
    CRASHED = "crashed"
    """Its process died; told by the run that found it."""


_BY_CODE: Final = {
    ExitCode.DONE: Ending.SUCCEEDED,
    ExitCode.REFUSED: Ending.REFUSED,
    ExitCode.INCOMPLETE: Ending.INTERRUPTED,
    ExitCode.SKIPPED: Ending.SKIPPED,
}


def ending(code: ExitCode) -> Ending:
    """Return how a run ended from its exit code; any other code is a failure."""
    return _BY_CODE.get(code, Ending.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One run, when it starts or when it is over.

    Attributes:
        job: The job's name.
        kind: ``purge``, or ``job`` for a declared function.
        environment: Name of the environment.
        run: Id in the ledger; None where nothing was recorded (skipped, or stopped before its record was made).
        started_at: When it began, aware, UTC.
        ended_at: When it ended; None for the event at its start.
        ending: How; None for the event at its start.
        exit_code: What the command ends with; None for the event at its start.
        items: Outcome sums of all targets.
        planned_rows: Rows that the plan would delete; None for a function, and where they could not be counted.
        planned_objects: Objects that would go, with their rows or for themselves; None as above.
        planned_bytes: Their size; None where the plan knows no sizes.
        limit: The lowest limit that the guard held a count of items against; None where there was none.
        message: One sentence about the end.
        codes: Findings that refuse (``SDnnn``).
        approve: The command that would accept a refused plan; empty where none can.
    """

    job: str
    kind: Literal["purge", "job"] = "purge"
    environment: str = ""
    run: str | None = None
    started_at: datetime
    ended_at: datetime | None = None
    ending: Ending | None = None
    exit_code: ExitCode | None = None
    items: Tally = field(default_factory=Tally)
    planned_rows: int | None = None
    planned_objects: int | None = None
    planned_bytes: int | None = None
    limit: float | None = None
    message: str = ""
    codes: tuple[str, ...] = ()
    approve: str = ""

    @property
    def duration(self) -> float:
        """Seconds from start to end; 0 at the start."""
        return 0.0 if self.ended_at is None else max(0.0, (self.ended_at - self.started_at).total_seconds())


def words(text: str) -> list[str]:
    """Split a list of sinks or of addresses: by commas or blanks for sinks, which hold neither."""
    return text.replace(",", " ").split()


class Metric(NamedTuple):
    """One number of an event.

    Attributes:
        name: In CloudWatch.
        series: In Prometheus and OpenTelemetry, with the namespace and the unit as is the custom there.
        unit: In CloudWatch's words.
        meaning: One line.
        labels: Labels beside the job's, which set one number of a series apart from the others.
    """

    name: str
    series: str
    unit: Literal["Count", "Seconds", "Bytes"]
    meaning: str
    labels: tuple[tuple[str, str], ...] = ()


def _named(word: str) -> str:
    return word.capitalize()


WORKED: Final = (Ending.SUCCEEDED, Ending.FAILED, Ending.INTERRUPTED, Ending.REFUSED)
"""How a run that began ends. The others say nothing of how a run of the job ends, and so touch none of these."""

ENDED: Final = {
    how: Metric(
        _named(how.value),
        "safedelete_last_run",
        "Count",
        "1 for how the last run ended, 0 for every other way.",
        (("ending", how.value),),
    )
    for how in WORKED
} | {
    Ending.SKIPPED: Metric("Skipped", "safedelete_skipped", "Count", "1 when a run was skipped."),
    Ending.CRASHED: Metric(
        "Crashed", "safedelete_crashed", "Count", "1 when a run was found whose process had died."
    ),
}
"""Where events are counted, all are sent with every end, so that a series of zeros tells a healthy job from one that says
nothing, and an alarm that adds some of them up finds each."""

ITEMS: Final = {
    outcome: Metric(
        f"Items{_named(outcome.value)}",
        "safedelete_last_items",
        "Count",
        "Items of the last run by outcome.",
        (("outcome", outcome.value),),
    )
    for outcome in Outcome
}

STARTED: Final = Metric("Started", "safedelete_started", "Count", "1 when a run starts.")
DURATION: Final = Metric(
    "Duration", "safedelete_last_duration_seconds", "Seconds", "How long the last run took."
)
PLANNED_ROWS: Final = Metric(
    "PlannedRows", "safedelete_last_planned_rows", "Count", "Rows the last plan would delete."
)
PLANNED_OBJECTS: Final = Metric(
    "PlannedObjects", "safedelete_last_planned_objects", "Count", "Objects the last plan would delete."
)
PLANNED_BYTES: Final = Metric(
    "PlannedBytes",
    "safedelete_last_planned_bytes",
    "Bytes",
    "Bytes of the objects the last plan would delete.",
)
LIMIT: Final = Metric(
    "GuardLimit",
    "safedelete_last_guard_limit",
    "Count",
    "The lowest limit the guard held the last plan against.",
)

SERIES_STARTED_AT: Final = "safedelete_last_start_timestamp_seconds"
SERIES_ENDED_AT: Final = "safedelete_last_end_timestamp_seconds"
SERIES_SUCCEEDED_AT: Final = "safedelete_last_success_timestamp_seconds"
SERIES_SKIPPED_AT: Final = "safedelete_last_skip_timestamp_seconds"
SERIES_CRASHED_AT: Final = "safedelete_last_crash_timestamp_seconds"
"""Unix times. Prometheus keeps what a dead job said last for ever, so its alerts go by these, not by the other numbers."""

METRICS: Final = (
    STARTED,
    *ENDED.values(),
    DURATION,
    *ITEMS.values(),
    PLANNED_ROWS,
    PLANNED_OBJECTS,
    PLANNED_BYTES,
    LIMIT,
)


def numbers(event: RunEvent) -> Mapping[Metric, float]:
    """Return an event's numbers for what counts events; one that is not known is left out, never 0."""
    if event.ending is None:
        return {STARTED: 1.0}
    found: dict[Metric, float] = {metric: float(how is event.ending) for how, metric in ENDED.items()}
    if event.ending not in WORKED:
        # It says nothing of how long a run takes, or of what one deletes.
        return found
    found[DURATION] = event.duration
    for outcome, metric in ITEMS.items():
        found[metric] = float(getattr(event.items, outcome.value))
    known = (
        (PLANNED_ROWS, event.planned_rows),
        (PLANNED_OBJECTS, event.planned_objects),
        (PLANNED_BYTES, event.planned_bytes),
        (LIMIT, event.limit),
    )
    found.update({metric: float(number) for metric, number in known if number is not None})
    return found


def lasting(event: RunEvent) -> Mapping[Metric, float]:
    """Return an event's numbers for what keeps the last value of each: those that this event, and no other, may change.

    A skipped or crashed run sends its own alone: else the next start that meets a held lock would say that the last run
    had not failed. One that worked leaves theirs as they are.
    """
    found = numbers(event)
    if event.ending is None:
        return found
    own = {event.ending} if event.ending not in WORKED else set(WORKED)
    others = {metric for how, metric in ENDED.items() if how not in own}
    return {metric: number for metric, number in found.items() if metric not in others}
