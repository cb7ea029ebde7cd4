"""The matrix: every boundary of a run, what happens there and afterwards, and how many of them are tried."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import NamedTuple

from safedelete import Rows, S3Orphans, S3Prefix
from tests.crash import promises
from tests.crash.evidence import Told, hold
from tests.crash.nursery import KILLED
from tests.crash.promises import Names
from tests.crash.purges import LIMIT, mode_of, target_of
from tests.crash.world import Lab, LedgerRun, Stores, Written

WORKERS = 2
EVERY_BOUNDARY = os.environ.get("SAFEDELETE_CRASH") == "all"
SPREAD = int(os.environ.get("SAFEDELETE_CRASH_SPREAD", "3"))
"""Boundaries tried beside the ends of each stretch, evenly over the whole run."""


SLACK = 8
"""A run may pass this many boundaries fewer than the recorded one (a server's statistics that come a moment later)."""


class Boundary(NamedTuple):
    """One place where a run can die.

    Attributes:
        number: Its number, from 0.
        label: Before or after what.
        picture: A number for what would be left behind.
        left: How many boundaries came after it.
    """

    number: int
    label: str
    picture: int
    left: int = SLACK


class Start(NamedTuple):
    """What the run that dies is.

    Attributes:
        purge: Name of its definition.
        role: Who calls the database; None for the tables' owner.
        locked: A row that somebody else has locked all the while.
    """

    purge: str
    role: str | None = None
    locked: int | None = None

    def __str__(self) -> str:
        role = f", as {self.role}" if self.role else ""
        return f"{self.purge}{role}{f', row {self.locked} locked' if self.locked else ''}"


class Change(NamedTuple):
    """What is not any more as the dead run had it.

    Attributes:
        purge: Name of the definition from now on.
        environment: Name of the environment.
        access_key: Who calls the object store.
        role: Who calls the database; None for the same as before.
    """

    purge: str
    environment: str = "matrix"
    access_key: str = "runner"
    role: str | None = None

    def __str__(self) -> str:
        role = f", as {self.role}" if self.role else ""
        key = f", by {self.access_key}" if self.access_key != "runner" else ""
        return f"{self.purge}{role}{key}{f', {self.environment}' if self.environment != 'matrix' else ''}"


def recorded(lab: Lab, start: Start) -> list[Boundary]:
    """Run a purge to its end and return every boundary it passed; in each lab once, since a look at each takes its time."""
    if start not in lab.recorded:
        lab.seed()
        with lab.locked(start.locked):
            lab.recorded[start] = _passed(lab, Change(start.purge, role=start.role))
    return list(lab.recorded[start])


def listed(lab: Lab, start: Start) -> list[Boundary]:
    """As above, without a look at the stores at each: their pictures cost more than the run."""
    lab.seed()
    labels: list[str] = []
    lab.run(start.purge, at_each=labels.append)
    return [Boundary(number, label, 0, len(labels) - 1 - number) for number, label in enumerate(labels)]


def recorded_second(lab: Lab, start: Start, first: int, change: Change) -> list[Boundary]:
    """Kill a run at a boundary, and return every boundary that the next one passed."""
    case = Case(lab, start)
    assert case.dies_at(Boundary(first, "", 0)), case.broken
    case.changes_to(change)
    return _passed(lab, change)


def _passed(lab: Lab, change: Change) -> list[Boundary]:
    passed: list[Boundary] = []
    with lab.camera() as picture:

        def at_each(label: str) -> None:
            passed.append(Boundary(len(passed), label, picture(label)))

        lab.run(
            change.purge,
            at_each=at_each,
            environment=change.environment,
            access_key=change.access_key,
            role=change.role,
        )
    return [here._replace(left=len(passed) - 1 - here.number) for here in passed]


def pictures(passed: Sequence[Boundary]) -> list[Boundary]:
    """Return the last boundary of each stretch that leaves one picture: every different way to have died."""
    following = [*passed[1:], None]
    return [
        here
        for here, after in zip(passed, following, strict=True)
        if after is None or after.picture != here.picture
    ]


def few(passed: Sequence[Boundary]) -> list[Boundary]:
    """Return every third way to be dead, or every way there is where all boundaries are wanted."""
    ways = pictures(passed)
    return ways if EVERY_BOUNDARY else ways[1::3]


def chosen(passed: Sequence[Boundary], *, doubting: bool) -> list[Boundary]:
    """Return the boundaries to try: all, or the end of each stretch that leaves one picture.

    A dead process leaves nothing but what the stores hold, so within a stretch of one picture every death is the same
    death.

    Args:
        passed: All that the run passed.
        doubting: Whether to doubt that, by trying each stretch's other end and some boundaries between, too.
    """
    if EVERY_BOUNDARY:
        return list(passed)
    if not doubting:
        return pictures(passed)
    last = [here.number for here in pictures(passed)]
    wanted = {0, *last, *(number + 1 for number in last[:-1])}
    wanted |= {place * len(passed) // SPREAD for place in range(SPREAD)}
    return [passed[number] for number in sorted(wanted)]


class Tried(NamedTuple):
    """What was seen at the points that were tried.

    Attributes:
        cases: One for each.
        broken: What broke, with the point's label.
    """

    cases: Sequence[Case]
    broken: list[str]

    def __str__(self) -> str:
        killed = sum(case.killed for case in self.cases)
        ends = Counter(status for case in self.cases for status in case.ends)
        said = ", ".join(f"{count:,} with {status}" for status, count in sorted(ends.items()))
        survived = sum(not case.broken for case in self.cases)
        return (
            f"{survived:,} of {len(self.cases):,} points survived"
            f"{f'; {killed:,} runs were killed' if killed else ''}; the others ended: {said or 'none'}"
        )


def tried(labs: Sequence[Lab], points: Sequence[Boundary], trial: Callable[[Lab, Boundary], Case]) -> Tried:
    """Try every point, on as many labs at a time as there are."""
    free: SimpleQueue[Lab] = SimpleQueue()
    for lab in labs:
        free.put(lab)

    def one(point: Boundary) -> Case:
        lab = free.get()
        try:
            return trial(lab, point)
        finally:
            free.put(lab)

    with ThreadPoolExecutor(len(labs)) as pool:
        cases = list(pool.map(one, points))
    broken = [
        f"{point.number} {point.label}: {what}"
        for point, case in zip(points, cases, strict=True)
        for what in case.broken
    ]
    return Tried(cases, broken)


def survive(
    labs: Sequence[Lab],
    what: str,
    passed: Sequence[Boundary],
    points: Sequence[Boundary],
    trial: Callable[[Lab, Boundary], Case],
    say: Callable[[str], None],
) -> None:
    """Try some of the boundaries that a run passed, say what was seen, and let nothing be broken."""
    seen = tried(labs, points, trial)
    say(
        f"{labs[0].where} | {what}: {len(passed):,} boundaries, {len(pictures(passed))} ways to be dead; {seen}"
    )
    assert not seen.broken, "\n".join(seen.broken)
    if not EVERY_BOUNDARY:
        hold(labs[0].where, what, Told(len(passed), len(points)))


def die_write_resume(lab: Lab, start: Start, point: Boundary) -> Case:
    """Kill a run, let the writer write, and let the next two runs go."""
    case = Case(lab, start)
    _ = case.dies_at(point) and case.goes_on() and case.converges()
    return case


def die_change_resume(lab: Lab, start: Start, point: Boundary, change: Change) -> Case:
    """As above, with a deployment between the crash and the next run."""
    case = Case(lab, start)
    if case.dies_at(point):
        case.changes_to(change)
        _ = case.goes_on() and case.converges()
    return case


def die_and_be_refused(lab: Lab, start: Start, point: Boundary) -> Case:
    """As above, with limits that refuse the next run, and are put right for the one after it."""
    case = Case(lab, start)
    if case.dies_at(point):
        case.changes_to(Change("tighter limits"))
        more_than_the_limit = case.still_due() > LIMIT
        if not more_than_the_limit or case.is_refused():
            case.changes_to(Change(start.purge))
            _ = case.goes_on() and case.converges()
    return case


def die_twice(lab: Lab, start: Start, first: int, point: Boundary, change: Change) -> Case:
    """Kill a run, then kill the next one at the point, and let the two after that go."""
    case = Case(lab, start)
    if case.dies_at(Boundary(first, "", 0)):
        case.changes_to(change)
        _ = case.dies_again_at(point) and case.goes_on() and case.converges()
    return case


class Case:
    """One death and what came after it; each step looks at the stores before and after, and says what broke."""

    def __init__(self, lab: Lab, start: Start) -> None:
        self.lab = lab
        self.change = Change(start.purge, role=start.role)
        self._locked = start.locked
        self.broken: list[str] = []
        self.killed = 0
        """How many of its runs were killed."""
        self.ends: list[int] = []
        """Exit codes of those that were left alone."""
        self._names = Names.of(start.purge)
        self._hides = mode_of(start.purge) == "marker"
        self._objects_alone = not isinstance(target_of(start.purge), Rows)
        self._written: list[Written] = []
        self._told: set[str] = set()
        """Runs that a process has ended other than with 0 after."""
        lab.seed()
        self._now = self._look()
        self._ever = frozenset(self._now.objects)

    def dies_at(self, point: Boundary) -> bool:
        """The first run, killed; then the writer."""
        self._run(point, self._locked)
        return self._writes(point.number)

    def changes_to(self, change: Change) -> None:
        """A deployment."""
        self.change = change
        if change.environment != "matrix":
            ended = self.lab.run(change.purge, verb="adopt", environment=change.environment)
            assert ended.status == 0, ended.said

    def dies_again_at(self, point: Boundary) -> bool:
        """The next run, killed as well; then the writer again."""
        self._run(point)
        return self._writes(point.number + 7)

    def goes_on(self) -> bool:
        """The next run, to its end."""
        status = self._run(None)
        runs = self.lab.sealed_and_said()
        self._must("the next run", promises.the_exit_is_right(runs, self._told, status))
        self._settled("the next run", runs, status)
        return not self.broken

    def still_due(self) -> int:
        """How many rows are due now."""
        return sum(row.due for row in self._now.rows.values())

    def is_refused(self) -> bool:
        """The next run, which the limits refuse: it deletes nothing, and settles what the dead one left in doubt."""
        before = self._now
        status = self._run(None)
        runs = self.lab.sealed_and_said()
        if status != 3:
            self.broken.append(f"the refused run ended with {status}")
        if self._now != before:
            self.broken.append("the refused run changed something")
        every = {run.run for run in runs}
        self._must(
            "the refused run", promises.no_loss_is_quiet(self._now, runs, self._names, self._ever, every)
        )
        return not self.broken

    def converges(self) -> bool:
        """A further run: whatever is due is done, and nothing is left to say."""
        status = self._run(None)
        runs = self.lab.sealed_and_said()
        self._must("a further run", promises.the_exit_is_right(runs, self._told, status))
        self._settled("a further run", runs, status)
        self._must("a further run", promises.all_is_done(self._now, self.change.purge))
        return not self.broken

    def _run(self, point: Boundary | None, locked: int | None = None) -> int:
        change = self.change
        with self.lab.locked(locked):
            ended = self.lab.run(
                change.purge,
                kill_at=None if point is None else point.number,
                environment=change.environment,
                access_key=change.access_key,
                role=change.role,
            )
        self.lab.let_time_pass()
        before, self._now = self._now, self._look()
        runs = self.lab.sealed_and_said()
        step = "an ended run" if point is None else "the killed run"
        if ended.status == KILLED:
            self.killed += 1
        elif point is None:
            self.ends.append(ended.status)
        if point is not None and ended.status != KILLED and point.left >= SLACK:
            self.broken.append(f"{step} ended with {ended.status} before it could be killed: {ended.said}")
        if ended.status == 1:
            self.broken.append(f"{step}: {ended.said}")
        self._went(step, before, runs)
        return ended.status

    def _look(self) -> Stores:
        """What the stores hold; where objects are to be hidden, a hidden one is gone."""
        seen = self.lab.look()
        return seen.shown() if self._hides else seen

    def _went(self, step: str, before: Stores, runs: list[LedgerRun]) -> None:
        self._must(step, promises.nothing_old_came_back(before, self._now))
        if self._hides:
            self._must(step, promises.nothing_is_gone_for_good(before, self._now))
        target, names = target_of(self.change.purge), Names.of(self.change.purge)
        if isinstance(target, Rows):
            self._must(step, promises.nothing_but_the_sealed_went(before, self._now, runs, names))
        elif target.mode == "purge":
            self._must(step, promises.nothing_but_the_sealed_versions_went(before, self._now, runs))
        else:
            self._must(step, promises.nothing_but_the_sealed_objects_went(before, self._now, runs))
        if isinstance(target, S3Orphans):
            self._must(step, promises.no_named_object_went(before, self._now, target.bucket))

    def _settled(self, step: str, runs: list[LedgerRun], status: int) -> None:
        self._must(step, promises.the_ledger_is_true(self._now, runs, self._written))
        if status == 7:
            self._told |= {run.run for run in runs}
        if not self._objects_alone:
            self._must(step, promises.no_loss_is_quiet(self._now, runs, self._names, self._ever, self._told))

    def _writes(self, number: int) -> bool:
        lab, target = self.lab, target_of(self.change.purge)
        write: Callable[[int], Written] = lab.write
        if isinstance(target, S3Orphans):
            write = partial(lab.write_names, bucket=target.bucket, there=self._now.objects)
        elif isinstance(target, S3Prefix):
            write = partial(lab.write_objects, bucket=target.bucket)
        elif mode_of(self.change.purge) is not None:
            write = partial(lab.write_versions, bucket=target.owns[0].bucket)
        elif any(keys.prefix is not None for keys in target.owns):
            write = lab.write_below
        self._written.append(write(number))
        self._now = self._look()
        self._ever |= frozenset(self._now.objects)
        return not self.broken

    def _must(self, step: str, broken: promises.Iterator[str]) -> None:
        self.broken += [f"{step}: {what}" for what in broken]
