"""``assert_purge_is_safe``: hold a purge of yours to every promise that a test can hold it to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import MetaData

from safedelete.core.decision import Refused
from safedelete.declare import Purge
from safedelete.errors import ConfigError, ExitCode, RefusedError, SafeDeleteError
from safedelete.runner.report import Report
from safedelete.testing.lab import Lab
from safedelete.testing.memory.watch import Killed
from safedelete.testing.promises import PROMISES, Broken, Night, unindexed
from safedelete.testing.scene import RowName, Scene, Snapshot, Subject, change, due, fill, look
from safedelete.testing.strategies import Columns, scenes

Through: TypeAlias = Callable[[Lab], object]
"""Runs a purge once, in a lab, in a way of its own."""

Found: TypeAlias = tuple[str, Broken | None]
"""When, and the promise that was broken then; None when the moment is over."""

Act: TypeAlias = Callable[[Scene], Iterator[Found]]

TRIES: Final = 50
"""Examples that finding the smallest data may take."""

_AHEAD: Final = timedelta(days=20 * 365)


class PurgeUnsafeError(AssertionError):
    """A purge broke a promise.

    Attributes:
        promise: Its name in :data:`safedelete.testing.PROMISES`.
        what: What happened, in one sentence.
        scene: The smallest data found that shows it: without any one row, object, denial or change of it, it does not.
            None where no data is needed.
    """

    def __init__(self, purge: str, broken: Broken, scene: Scene | None, moment: str) -> None:
        self.promise = broken.promise
        self.what = broken.what
        self.scene = scene
        data = "" if scene is None else "\nThe smallest data that shows it:\n" + _indented(str(scene))
        super().__init__(
            f"{purge} breaks the promise {broken.promise!r}: {PROMISES[broken.promise]}\n"
            f"{moment}: {broken.what}.{data}"
        )


def assert_purge_is_safe(
    purge: Purge,
    *,
    beside: Sequence[Purge] = (),
    names: Mapping[str, Sequence[Any]] | None = None,
    also_deletes: Collection[str] = (),
    columns: Columns | None = None,
    accept: Collection[str] = (),
    metadata: MetaData | Sequence[MetaData] | None = None,
    url: str | None = None,
    examples: int = 3,
    through: Through | None = None,
) -> None:
    """Run a purge on made-up data around its cutoff, and see that it keeps every promise.

    Each example is a night on which the store refuses some objects and rows change after the plan, the night after it,
    and a third that finds nothing to do; and the same data with a run that is killed, by turns right after its first objects
    went and at any of its writes, and the run after that. Works in a scratch database and in buckets in memory
    alone.

    Args:
        purge: The purge, as the job file declares it.
        beside: The other purges of the job file.
        names: Further columns by which rows name objects, by bucket.
        also_deletes: Names of tables whose rows may go along, by ON DELETE CASCADE.
        columns: What may stand in a column, by the column, where the type alone does not tell.
        accept: Promises that this purge need not keep, by name. Each is one of :data:`safedelete.testing.PROMISES`.
        metadata: Whose tables there are; those of the purges' tables, unless given.
        url: Of an empty database, for types that SQLite has not.
        examples: How many examples, at least 1; each takes about five runs.
        through: Runs the purge in place of safedelete's own runner, on ``lab.engine`` and ``lab.client``: a job of your own that
            shall be as safe as the purge which describes it.

    Raises:
        PurgeUnsafeError: A promise is broken; says which, and shows the smallest data that was found to show it.
        ConfigError: No data could be made up, or ``accept`` names no promise.
    """
    unknown = sorted(set(accept) - set(PROMISES))
    if unknown:
        raise ConfigError(f"accept={unknown[0]!r} is no promise.", hint=f"There are {', '.join(PROMISES)}.")
    with Lab(purge, *beside, metadata=metadata, url=url) as lab:
        subject = Subject(purge, tuple(beside), names or {}, lab.metadata)
        trial = _Trial(lab, subject, frozenset(also_deletes), frozenset(accept), through)
        for broken in unindexed(subject):
            trial.hold(broken, None, "As it is declared")
        made = scenes(subject, columns or {})
        quiet = settings(
            max_examples=examples,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )

        @quiet
        @given(made, st.floats(0, 1))
        def each(scene: Scene, moment: float) -> None:
            trial.examine(scene, trial.nights)
            trial.examine(scene, trial.crash(moment))

        each()
        trial.guard_holds()


@dataclass
class _Trial:
    """One purge in one lab, with what a person has accepted."""

    lab: Lab
    subject: Subject
    also_deletes: frozenset[str]
    accept: frozenset[str]
    through: Through | None
    last: Scene | None = field(default=None, init=False)
    writes: int = field(default=1, init=False)
    crashes: int = field(default=0, init=False)

    # --- what happens to a scene; each yields what is broken, as soon as it is ---

    def nights(self, scene: Scene) -> Iterator[Found]:
        """Run once with denials and changes, then without, then again."""
        if self.through is not None:
            # Nobody can tell when somebody else's job has made up its mind.
            scene = replace(scene, changes={}, overwritten=frozenset())
        before, owed = self._begin(scene)
        denied = frozenset(p for row in scene.denied for p in before.named.get(row, ()))
        for bucket in {bucket for bucket, _ in denied}:
            self.lab.store.deny(bucket, [key for b, key in denied if b == bucket])
        altered: set[RowName] = set()

        def between() -> None:
            change(self.lab, self.subject, scene)
            still, named = self._due(), look(self.lab, self.subject).named
            altered.update(
                row for row in scene.changes if row not in still or named.get(row) != before.named.get(row)
            )

        self.lab.kill_at(None)
        yield from self._night("The first night", between if scene.changes or scene.overwritten else None)
        yield "The first night", None
        self.writes = self.lab.boundaries
        after = look(self.lab, self.subject)
        named = {row: places | after.named.get(row, frozenset()) for row, places in before.named.items()}
        seen = Snapshot(before.rows, before.objects, named)
        night = Night(self.subject, scene, seen, after, owed, frozenset(altered), denied, self.also_deletes)
        yield from _all("After the first night", night)
        for bucket in {bucket for bucket, _ in denied}:
            self.lab.store.lift(bucket)
        yield from self._rest(
            replace(scene, denied=frozenset(), overwritten=frozenset(), changes={}), scene.changes
        )

    def crash(self, moment: float) -> Act:
        """Return what kills a run: between its first objects and their rows, and every second time at one of its writes."""
        self.crashes += 1
        owns = any(target.owns for target in self.subject.rows) or bool(self.subject.listed)
        if owns and self.crashes % 2:
            return lambda scene: self._dies(
                scene, self.lab.kill_after_objects, "Killed after its first objects had gone"
            )
        # The plainest example dies well within the run, not before it has begun.
        number = 1 + int((0.7 + moment) % 1 * self.writes)
        said = f"Killed at write {number} of {self.writes}"
        return lambda scene: self._dies(scene, lambda: self.lab.kill_at(number), said)

    def _dies(self, scene: Scene, arm: Callable[[], None], moment: str) -> Iterator[Found]:
        scene = replace(scene, denied=frozenset(), changes={}, overwritten=frozenset())
        before, owed = self._begin(scene)
        arm()
        with suppress(Killed):
            yield from self._night(moment, None)
        self.lab.revive()
        dead = Night(
            self.subject,
            scene,
            before,
            look(self.lab, self.subject),
            owed,
            also_deletes=self.also_deletes,
            settled=False,
        )
        # A row whose transaction was taken back has lost its objects, and the next run must find that out.
        yield from _all(moment, dead)
        yield from self._rest(scene, {}, once=True)

    def _rest(
        self, scene: Scene, changes: Mapping[RowName, Mapping[str, Any]], *, once: bool = False
    ) -> Iterator[Found]:
        """Run until nothing is due, and once more unless it is not asked for."""
        before, owed = look(self.lab, self.subject), self._due()
        reports = yield from self._night("The night after", None)
        after, left = look(self.lab, self.subject), self._due()
        current = replace(
            scene,
            rows=tuple(replace(r, values={**r.values, **changes.get(r.name, {})}) for r in scene.rows),
        )
        night = Night(self.subject, current, before, after, owed, also_deletes=self.also_deletes)
        yield from (("The night after", broken) for broken in night.broken())
        whole = self.subject.purge.per_run is None
        if whole and left and not any(report.total.blocked or report.total.locked for report in reports):
            names = ", ".join(f"{table} {key}" for table, key in sorted(left, key=repr))
            yield "The night after", Broken("converges", f"{names} is due and still there", left)
        for report in reports:
            if report.exit_code is not ExitCode.DONE:
                yield (
                    "The night after",
                    Broken(
                        "converges",
                        f"it ended with exit code {int(report.exit_code)}: {report.message}",
                        left,
                    ),
                )
        yield "The night after", None
        if not whole or once:
            return
        yield from self._night("A further night", None)
        if look(self.lab, self.subject) != after:
            yield "A further night", Broken("idempotent", "it changed something at the same instant")

    # --- how a night is run ---

    def _begin(self, scene: Scene) -> tuple[Snapshot, frozenset[RowName]]:
        fill(self.lab, self.subject, scene)
        return look(self.lab, self.subject), self._due()

    def _due(self) -> frozenset[RowName]:
        return frozenset().union(*(due(self.lab, rows) for rows in self.subject.rows))

    def _night(self, moment: str, between: Callable[[], None] | None) -> Generator[Found, None, list[Report]]:
        """Run once; yields a promise that the purge cannot be run, and returns the report if there is one."""
        reports: list[Report] = []
        try:
            if self.through is not None:
                self.through(self.lab)
            else:
                reports.append(self.lab.run(self.subject.purge, between=between))
        except SafeDeleteError as error:
            if self.through is None:
                yield moment, Broken("runs", str(error).rstrip("."))
        except Exception:  # a job of somebody else's: what it left behind is looked at, whatever it says
            if self.through is None:
                raise
        return reports

    # --- what becomes of what is broken ---

    def examine(self, scene: Scene, act: Act) -> None:
        """Act on a scene; raise for a promise that is broken, with the smallest scene that breaks it as well."""
        self.last = scene
        found = self._first(scene, act)
        if found is None:
            return
        scene, moment, broken = self._smallest(scene, act, *found)
        raise PurgeUnsafeError(self.subject.purge.name, broken, scene, moment)

    def hold(self, broken: Broken, scene: Scene | None, moment: str) -> None:
        """Raise for a promise that is broken, unless it was accepted."""
        if broken.promise not in self.accept:
            raise PurgeUnsafeError(self.subject.purge.name, broken, scene, moment)

    def _first(
        self, scene: Scene, act: Act, like: tuple[str, Broken] | None = None
    ) -> tuple[str, Broken] | None:
        """Return the first promise broken, or the first that is like another: of one name, at one moment."""
        for moment, broken in act(scene):
            if broken is None:
                if like is not None and like[0] == moment:
                    return None
            elif broken.promise not in self.accept and (like is None or broken.promise == like[1].promise):
                return moment, broken
        return None

    def _smallest(self, scene: Scene, act: Act, moment: str, broken: Broken) -> tuple[Scene, str, Broken]:
        """Return a scene that breaks the same promise, and no longer does without any one thing of it."""
        tries = TRIES

        def breaks(smaller: Scene) -> bool:
            nonlocal scene, moment, broken, tries
            tries -= 1
            try:
                found = self._first(smaller, act, (moment, broken))
            except ConfigError:
                # Without that row another's foreign key points nowhere.
                return False
            if found is not None:
                scene, (moment, broken) = smaller, found
            return found is not None

        witness = _only(scene, broken)
        if not breaks(replace(witness, denied=frozenset(), changes={})):
            breaks(witness)
        before: Scene | None = None
        while scene is not before and tries > 0:
            before = scene
            for thing in scene.things():
                if tries > 0:
                    breaks(scene.without(thing))
        return scene, moment, broken

    def guard_holds(self) -> None:
        """Plan on the last scene twenty years later, as with a wrecked cutoff: everything is due, and must be refused."""
        if self.last is None or self.through is not None or "guard" in self.accept:
            return
        scene = replace(self.last, denied=frozenset(), changes={}, overwritten=frozenset())
        fill(self.lab, self.subject, scene)
        self.lab.clock.instant += _AHEAD
        try:
            report = self.lab.plan(self.subject.purge)
        except RefusedError:
            return
        if report.plan is not None and not isinstance(report.decision, Refused):
            taken = sum(t.items for t in report.plan.targets if isinstance(t.items, int))
            if taken:
                what = f"a plan for all {taken} items, made {_AHEAD.days // 365} years too late, was approved"
                self.hold(Broken("guard", what), scene, "With a clock gone wrong")


def _all(moment: str, night: Night) -> Iterator[Found]:
    yield from ((moment, broken) for broken in night.broken())
    yield moment, None


def _only(scene: Scene, broken: Broken) -> Scene:
    """Return a scene of what shows a broken promise alone: its rows, and all they refer to."""
    wanted = set(broken.rows)
    rows = {row.name: row for row in scene.rows}
    for row in reversed(scene.rows):
        if row.name not in wanted:
            continue
        for key in row.table.foreign_key_constraints:
            pairs = [(e.parent.name, e.column.name) for e in key.elements]
            wanted |= {
                other.name
                for other in rows.values()
                if other.table is key.referred_table
                and all(other.values[its] == row.values[own] for own, its in pairs)
            }
    return replace(
        scene.with_rows(row for row in scene.rows if row.name in wanted),
        objects=tuple(o for o in scene.objects if (o.bucket, o.key) in broken.objects),
        overwritten=scene.overwritten & broken.objects,
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
