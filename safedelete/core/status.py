"""Whether a job is as its schedule says it should be by now. Pure; ``status`` asks it from whatever host it runs on.

A job that does not run says nothing, so what it should have done is computed: the first run that its schedule has
after the last success, with its timeout and its grace, is the instant by which another success has to be there. For a
schedule with even gaps that is the longest gap + timeout + grace after it; where gaps differ (weekdays only, a night
that a DST change lengthens) it is as early as the schedule allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, islice, takewhile
from typing import Final, Literal, TypeAlias

from safedelete.core.run import UNFINISHED, RunState
from safedelete.core.schedule import Schedule

ProblemKind: TypeAlias = Literal["failed", "overdue", "never ran", "late", "ended"]

EARLY: Final = timedelta(minutes=1)
"""How much before its time a run may seem to begin: the scheduler's clock and the run's host's need not agree."""

COUNTED: Final = 1000
"""Missed runs that are counted; more are "1,000 or more"."""

NEVER: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""Later than any run of a schedule."""

BAD: Final = frozenset(
    {
        RunState.FAILED,
        RunState.INCOMPLETE,
        RunState.INTERRUPTED,
        RunState.CRASHED,
        RunState.ABANDONED,
        RunState.REFUSED,
    }
)
"""Ends that somebody has to look at. A person who cancelled a run, or let a saved plan expire, knows."""


AHEAD: Final = timedelta(minutes=1)
"""How far a run's beginning may lie ahead of this host's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recorded run, as far as this rule looks at it.

    Attributes:
        run: Its id.
        state: Where it stands.
        began_at: When the process that works on it, or last did, began. Aware UTC.
        refused: Whether the guard refused it, for one that has expired since.
        failed: Whether it left items that failed or are unknown, for one that was cancelled.
        why: How it ended, in a sentence.
    """

    run: str
    state: RunState
    began_at: datetime
    refused: bool = False
    failed: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStory:
    """What is known of one job. Instants are aware UTC.

    Attributes:
        name: The job's name.
        schedule: When it should run.
        timeout: Its own deadline.
        grace: How long its end may take.
        runs: Its newest runs, the newest successful one and every unfinished one among them, in any order.
        declared_at: When ``init`` first saw it; None where it never did.
        paused_since: When it was paused; None where it is not.
        unpaused_at: When it was last let run again.
    """

    name: str
    schedule: Schedule
    timeout: timedelta
    grace: timedelta
    runs: Sequence[Seen] = ()
    declared_at: datetime | None = None
    paused_since: datetime | None = None
    unpaused_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a job."""

    kind: ProblemKind
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a job stands.

    Attributes:
        job: Its name.
        problems: What is wrong; empty for a healthy job.
        paused: Whether it is paused, which no missed run speaks against.
        last: Its newest run that has ended, or waits; None where there is none.
        succeeded_at: When the newest successful run began.
        working: The run that is at work, within its deadline or not.
        due: By when the next success has to be there; None where the schedule has no further run.
        missed: Runs that should have succeeded since, at most ``COUNTED``.
    """

    job: str
    problems: tuple[Problem, ...] = ()
    paused: bool = False
    last: Seen | None = None
    succeeded_at: datetime | None = None
    working: Seen | None = None
    due: datetime | None = None
    missed: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    @property
    def word(self) -> str:
        """The job's health in a word or two."""
        if self.problems:
            return self.problems[0].kind
        if self.paused:
            return "paused"
        if self.working is not None:
            return "running"
        return "ok" if self.succeeded_at is not None else "not due yet"


def judge(story: JobStory, now: datetime) -> Health:
    """Say how a job stands at an aware instant."""
    newest = sorted(story.runs, key=lambda seen: (seen.began_at, seen.run), reverse=True)
    working = next((seen for seen in newest if seen.state in UNFINISHED), None)
    ended = next((seen for seen in newest if _bad(seen) or _counts(seen)), None)
    success = next((seen for seen in newest if seen.state is RunState.SUCCEEDED), None)
    allowed = story.timeout + story.grace
    late = working is not None and now > working.began_at + allowed
    since = _since(story, success, newest, now)
    due = _due(story, since, success)
    missed = 0
    problems: list[Problem] = []
    if late and working is not None:
        problems.append(
            Problem(
                "late",
                f"run {working.run} began {_at(working.began_at)} and had to end by "
                f"{_at(working.began_at + allowed)} (timeout {story.timeout} and grace {story.grace}); its process hangs, "
                "or has died",
            )
        )
    ahead = next((seen for seen in newest if seen.began_at > now + AHEAD), None)
    if ahead is not None:
        problems.append(
            Problem(
                "failed",
                f"run {ahead.run} began {_at(ahead.began_at)}, which is still to come: a host's clock was wrong, and what that "
                "run says about the others' order cannot be trusted",
            )
        )
    if ended is not None and (_bad(ended) or ended.refused):
        # A pause does not repair what had failed before it.
        why = f": {ended.why}" if ended.why else ""
        problems.append(
            Problem("failed", f"the last run, {ended.run}, ended {ended.state.value}{why.rstrip('.')}")
        )
    if story.paused_since is None:
        within = working is not None and not late
        if since is None and not within:
            problems.append(
                Problem(
                    "never ran",
                    "it has never run, and the ledger does not know since when it is declared; run `safedelete init FILE` "
                    "when it is deployed, and it is given until its first run",
                )
            )
        elif since is not None and due is not None and now > due and not within:
            missed = _missed(story, since, success, now - allowed)
            problems.append(_overdue(story, success, newest, due, missed))
        # Until the last run has had its time, it is that one which is waited for.
        over = "" if within else run_out(story.schedule, now - allowed - timedelta.resolution)
        if over:
            problems.append(
                Problem("ended", f"{over}; correct its years, pause it, or take it out of the job file")
            )
    return Health(
        job=story.name,
        problems=tuple(problems),
        paused=story.paused_since is not None,
        last=ended,
        succeeded_at=None if success is None else success.began_at,
        working=working,
        due=due,
        missed=missed,
    )


def run_out(schedule: Schedule, after: datetime) -> str:
    """Say that a schedule has no run after an aware instant, and when it had its last; empty where one is to come."""
    if schedule.next(after) is not None:
        return ""
    last = schedule.previous(after + timedelta(seconds=1))
    had = "" if last is None else f" had its last run {_at(last)}, and"
    return f"its schedule {schedule.text!r}{had} never runs again"


def _bad(seen: Seen) -> bool:
    return seen.state in BAD or (seen.state is RunState.CANCELLED and seen.failed)


def _counts(seen: Seen) -> bool:
    return seen.state is RunState.SUCCEEDED or (seen.state is RunState.EXPIRED and seen.refused)


def _since(story: JobStory, success: Seen | None, newest: Sequence[Seen], now: datetime) -> datetime | None:
    """Return from when on the job owes a success; None where that is not known.

    An instant that is still to come was written by a wrong clock: going by it, nothing would be missed until then.
    """
    declared, unpaused = (
        None if at is None or at > now + AHEAD else at for at in (story.declared_at, story.unpaused_at)
    )
    if success is not None:
        known = [success.began_at]
    elif declared is not None:
        known = [declared]
    else:
        known = [newest[-1].began_at] if newest else []
    if unpaused is not None:
        known.append(unpaused)
    return max(known, default=None)


def _due(story: JobStory, since: datetime | None, success: Seen | None) -> datetime | None:
    if since is None:
        return None
    expected = next(_expected(story, since, success), None)
    return None if expected is None else expected + story.timeout + story.grace


def _expected(story: JobStory, since: datetime, success: Seen | None) -> Iterator[datetime]:
    """Yield the runs that should succeed after an instant."""
    if story.schedule.period is not None:
        # When a rate began is the scheduler's own knowledge; only the distance is certain.
        for number in count(1):
            yield since + number * story.schedule.period
    start = since
    if success is not None and since == success.began_at:
        shortest = story.schedule.gaps(since).shortest
        start += min(EARLY, EARLY if shortest is None else shortest / 2)
    yield from (run for run in story.schedule.occurrences(start, NEVER) if run > start)


def _missed(story: JobStory, since: datetime, success: Seen | None, until: datetime) -> int:
    owed = takewhile(lambda run: run <= until, _expected(story, since, success))
    return sum(1 for _ in islice(owed, COUNTED))


def _overdue(
    story: JobStory, success: Seen | None, newest: Sequence[Seen], due: datetime, missed: int
) -> Problem:
    many = f"{COUNTED:,} runs or more" if missed >= COUNTED else f"{missed:,} run{'s' if missed != 1 else ''}"
    owed = f"{many} should have succeeded by now, the first by {_at(due)}"
    if success is not None:
        return Problem("overdue", f"{owed}; the last success began {_at(success.began_at)}")
    if newest:
        return Problem("overdue", f"{owed}; none has yet")
    since = "" if story.declared_at is None else f", declared since {_at(story.declared_at)}"
    return Problem("never ran", f"it has never run{since}; {owed}")


def _at(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
