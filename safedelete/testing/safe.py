"""``assert_purge_is_safe``: hold a purge of yours to every promise that a test can hold it to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from zlib import crc32

from sqlalchemy import MetaData

from safedelete.core.outcome import Outcome
from safedelete.declare import Purge, Rows
from safedelete.errors import ConfigError, ExitCode, SafeDeleteError, StoreError
from safedelete.runner.items import items_of
from safedelete.runner.report import Report
from safedelete.testing.asked import check_columns, check_examples, check_names, check_purges, check_words
from safedelete.testing.lab import Lab
from safedelete.testing.memory.watch import Killed
from safedelete.testing.promises import PROMISES, Broken, Night, listing, unindexed
from safedelete.testing.promises import owed as owed_objects
from safedelete.testing.scene import (
    Naming,
    Place,
    RowName,
    Scene,
    Snapshot,
    Subject,
    change,
    due,
    fill,
    look,
    name_of,
    named_by,
    said,
    subject_of,
)
from safedelete.testing.smallest import Shown, smallest
from safedelete.testing.strategies import Columns, made_up

Through: TypeAlias = Callable[[Lab], object]
"""Runs a purge once, in a lab, in a way of its own."""

Found: TypeAlias = tuple[str, Broken | None]
"""When, and the promise that was broken then; None when the moment is over."""

Act: TypeAlias = Callable[[Scene], Iterator[Found]]


class PurgeUnsafeError(AssertionError):
    """A purge broke a promise.

    Attributes:
        promise: Its name in :data:`safedelete.testing.PROMISES`.
        what: What happened, in one sentence.
        scene: The smallest data found that shows it; None where no data is needed.
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
    also_changes: Collection[str] = (),
    columns: Columns | None = None,
    accept: Collection[str] = (),
    metadata: MetaData | Sequence[MetaData] | None = None,
    url: str | None = None,
    examples: int = 3,
    through: Through | None = None,
) -> None:
    """Run a purge on made-up data around its cutoff, and see that it keeps every promise.

    Each example is a night on which the store refuses some objects and rows change after the plan, the night after it,
    and a third that finds nothing to do; and the same data with a run that is killed, right after its first objects went and
    again at one of its writes, and the run after each. The first example is at an ordinary instant, the second while a
    time column's zone changes its clocks, if it does, the next on a leap day. Works in a scratch database and in buckets in
    memory alone.

    Args:
        purge: The purge, as the job file declares it.
        beside: The other purges of the job file.
        names: Further columns by which rows name objects, by bucket.
        also_deletes: Names of tables whose rows may go along, by ON DELETE CASCADE.
        also_changes: Names of tables whose rows may stay and be changed, by ON DELETE SET NULL or a trigger.
        columns: What may stand in a column, by the column, where the type alone does not tell.
        accept: Promises that this purge need not keep, by name. Each is one of :data:`safedelete.testing.PROMISES`.
        metadata: Whose tables there are; those of the purges' tables, unless given.
        url: Of an empty database, for types that SQLite has not.
        examples: How many examples, at least 1; each takes about seven runs.
        through: Runs the purge in place of safedelete's own runner, on ``lab.engine`` and ``lab.client``: a job of your own that
            shall be as safe as the purge which describes it.

    Raises:
        PurgeUnsafeError: A promise is broken; says which, and shows the smallest data that was found to show it.
        ConfigError: No data could be made up, a target or a kind of its objects had nothing due in any example, ``through``
            could not be killed, or an argument names what is not there.
    """
    check_purges(purge, beside)
    check_names(names)
    subject = subject_of(purge, beside, names, metadata)
    check_words(subject, accept=accept, also_deletes=also_deletes, also_changes=also_changes)
    check_examples(examples)
    check_columns(subject, columns or {})
    with Lab(purge, *beside, metadata=subject.metadata, url=url) as lab:
        lab.want(subject.tables)
        trial = _Trial(
            lab, subject, frozenset(also_deletes), frozenset(also_changes), frozenset(accept), through
        )
        for broken in unindexed(subject):
            trial.hold(broken, None, "As it is declared")
        for scene, moment in made_up(subject, columns or {}, examples):
            trial.examine(scene, trial.nights)
            for death in trial.crashes(moment):
                trial.examine(scene, death)
        trial.want_due()


@dataclass
class _Trial:
    """One purge in one lab, with what a person has accepted."""

    lab: Lab
    subject: Subject
    also_deletes: frozenset[str]
    also_changes: frozenset[str]
    accept: frozenset[str]
    through: Through | None
    writes: int = field(default=1, init=False)
    error: str = field(default="", init=False)
    was_due: set[str] = field(default_factory=set, init=False)
    was_named: set[Naming] = field(default_factory=set, init=False)

    # --- what happens to a scene; each yields what is broken, as soon as it is ---

    def nights(self, scene: Scene) -> Iterator[Found]:
        """Run once with denials and changes, then without, then again."""
        if self.through is not None:
            # Nobody can tell when somebody else's job has made up its mind.
            scene = replace(scene, changes={}, overwritten=frozenset())
        before, owed = self._begin(scene)
        denied = frozenset(_one_of(row, before.named[row]) for row in scene.denied if before.named.get(row))
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
        late = between if scene.changes or scene.overwritten else None
        yield from self._night("The first night", late, denying=bool(denied))
        yield "The first night", None
        self.writes = self.lab.boundaries
        after = look(self.lab, self.subject)
        named = {row: places | after.named.get(row, frozenset()) for row, places in before.named.items()}
        seen = replace(before, named=named)
        night = replace(self._seen(scene, seen, after, owed), altered=frozenset(altered), denied=denied)
        yield from _all("After the first night", night)
        for bucket in {bucket for bucket, _ in denied}:
            self.lab.store.lift(bucket)
        yield from self._rest(
            replace(scene, denied=frozenset(), overwritten=frozenset(), changes={}), scene.changes
        )

    def crashes(self, moment: float) -> Iterator[Act]:
        """Yield what kills a run: between its first objects and their rows, and at one of its writes.

        Args:
            moment: Which write, from 0 for the first to 1; turned so that 0 is well within the run, not before it began.
        """
        if any(target.owns for target in self.subject.rows) or self.subject.listed:
            yield lambda scene: self._dies(scene, None)
        share = (0.7 + moment) % 1
        yield lambda scene: self._dies(scene, share)

    def _dies(self, scene: Scene, share: float | None) -> Iterator[Found]:
        moment = "Killed after its first objects had gone" if share is None else "Killed at one of its writes"
        scene = replace(scene, denied=frozenset(), changes={}, overwritten=frozenset())
        while True:
            before, owed = self._begin(scene)
            number = None if share is None else 1 + int(share * self.writes)
            if number is None:
                self.lab.kill_after_objects()
            else:
                self.lab.kill_at(number)
            with suppress(Killed):
                yield from self._night(moment, None)
            after, died, writes = look(self.lab, self.subject), self.lab.dead, self.lab.boundaries
            self.lab.revive()
            if died or number is None or not 0 < writes < number:
                break
            # It wrote less than in the first night, and was through before it could be killed.
            self.writes = writes
        dead = self._seen(scene, before, after, owed)
        # A row whose transaction was taken back has lost its objects, and the next run must find that out.
        yield from _all(moment, dead)
        if not died:
            if dead.lost or (number is not None and before != after):
                raise ConfigError(
                    f"{self.subject.purge.name} could not be killed: it changed something past {writes} writes that the lab "
                    "has seen, so no crash was tried.",
                    hint="Let what through= runs use lab.engine and lab.client, or clients made by it.",
                )
            return
        yield from self._rest(scene, {}, once=True)

    def _rest(
        self, scene: Scene, changes: Mapping[RowName, Mapping[str, Any]], *, once: bool = False
    ) -> Iterator[Found]:
        """Run until nothing is due, and once more unless it is not asked for."""
        before, owed = look(self.lab, self.subject), self._due()
        listed = owed_objects(self.subject, before, scene.now)
        reports = yield from self._night("The night after", None)
        after, left = look(self.lab, self.subject), self._due()
        held = self._blocked(reports)
        left -= held
        listed &= owed_objects(self.subject, after, scene.now)
        current = replace(
            scene,
            rows=tuple(replace(r, values={**r.values, **changes.get(r.name, {})}) for r in scene.rows),
        )
        night = self._seen(current, before, after, owed)
        yield from (("The night after", broken) for broken in night.broken())
        whole = self.subject.purge.per_run is None
        if whole and (left or listed):
            names = [said(name) for name in sorted(left, key=repr)]
            names += [f"s3://{bucket}/{key!r}" for bucket, key in sorted(listed)]
            what = f"{', '.join(names)} is due and still there"
            # Of a job of somebody else's that is the reason, more often than not.
            what += f"; it ended with {self.error}" if self.error else ""
            yield "The night after", Broken("converges", what, left, listed)
        if self.error:
            yield "The night after", Broken("converges", f"it ended with {self.error}", left)
        for report in reports:
            # Where all that is left is held by other rows, a run can but say that it got nowhere.
            if report.exit_code not in ((ExitCode.DONE, ExitCode.INCOMPLETE) if held else (ExitCode.DONE,)):
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

    def _seen(self, scene: Scene, before: Snapshot, after: Snapshot, owed: frozenset[RowName]) -> Night:
        return Night(
            self.subject,
            scene,
            before,
            after,
            owed,
            also_deletes=self.also_deletes,
            also_changes=self.also_changes,
        )

    def _begin(self, scene: Scene) -> tuple[Snapshot, frozenset[RowName]]:
        fill(self.lab, self.subject, scene)
        before, owed = look(self.lab, self.subject), self._due()
        self.was_due |= {table for table, _ in owed}
        for naming in self.subject.owned:
            if naming not in self.was_named and any(before.named.get(row) for row in owed):
                self.was_named |= {naming} if named_by(self.lab, naming).keys() & owed else set()
        for target in self.subject.listed:
            if any(listing(target, place, before, scene.now) == "" for place in before.objects):
                self.was_due.add(target.name)
        return before, owed

    def _due(self) -> frozenset[RowName]:
        return frozenset().union(*(due(self.lab, rows) for rows in self.subject.rows))

    def _night(
        self, moment: str, between: Callable[[], None] | None, *, denying: bool = False
    ) -> Generator[Found, None, list[Report]]:
        """Run once; yields a promise that the purge cannot be run, and returns the report if there is one."""
        reports: list[Report] = []
        self.error = ""
        try:
            if self.through is not None:
                self.through(self.lab)
            else:
                reports.append(self.lab.run(self.subject.purge, between=between))
        except Exception as error:
            # Of a job of somebody else's, what it left behind is looked at first, whatever it says.
            self.error = f"{type(error).__name__}: {error}".rstrip(".")
            if self.through is None:
                if not isinstance(error, SafeDeleteError):
                    raise
                # A store that refuses what it is asked for may end a run: that is no fault of the purge.
                if not (denying and isinstance(error, StoreError)):
                    yield moment, Broken("runs", str(error).rstrip("."))
        return reports

    def _blocked(self, reports: Sequence[Report]) -> frozenset[RowName]:
        """Return the rows that a run kept because something holds them: no run can finish those."""
        runs = [report for report in reports if report.run is not None and report.total.blocked]
        if not runs:
            return frozenset()
        tables = {target.name: target.table for target in self.subject.rows}
        with self.lab.context(self.subject.purge) as ctx:
            return frozenset(
                name_of(tables[item.target], item.key)
                for report in runs
                for stored in ctx.ledger.batches(str(report.run))
                for item in items_of(report.plan, stored)
                if item.target in tables and item.outcome == Outcome.BLOCKED.value
            )

    # --- what becomes of what is broken ---

    def examine(self, scene: Scene, act: Act) -> None:
        """Act on a scene; raise for a promise that is broken, with the smallest scene that breaks it as well."""
        found = self._first(scene, act)
        if found is None:
            return
        scene, moment, broken = smallest(scene, *found, lambda smaller, like: self._first(smaller, act, like))
        raise PurgeUnsafeError(self.subject.purge.name, broken, scene, moment)

    def hold(self, broken: Broken, scene: Scene | None, moment: str) -> None:
        """Raise for a promise that is broken, unless it was accepted."""
        if broken.promise not in self.accept:
            raise PurgeUnsafeError(self.subject.purge.name, broken, scene, moment)

    def _first(self, scene: Scene, act: Act, like: Shown | None = None) -> Shown | None:
        """Return the first promise broken, or the first that is like another: of one name, at one moment."""
        for moment, broken in act(scene):
            if broken is None:
                if like is not None and like[0] == moment:
                    return None
            elif broken.promise not in self.accept and (like is None or broken.promise == like[1].promise):
                return moment, broken
        return None

    def want_due(self) -> None:
        """Raise unless each target had something due: a purge that is given nothing to delete keeps any promise."""
        for target in self.subject.purge.targets:
            if target.name not in self.was_due:
                thing = "row matches" if isinstance(target, Rows) else "object is due for"
                raise ConfigError(
                    f"{self.subject.purge.name}: no made-up {thing} {target.name}, so nothing was shown.",
                    hint="Say what its conditions ask for: columns={Model.state: st.sampled_from(['done', 'new'])} for a "
                    "column, names={bucket: [Model.key]} for further rows that name objects; or look at more examples=.",
                )
        for naming in self.subject.owned:
            if naming not in self.was_named:
                raise ConfigError(
                    f"{self.subject.purge.name}: no made-up row of {naming.table.fullname} that is due names an object by "
                    f"{naming.column}, so nothing was shown about those.",
                    hint="Say what its columns may hold: columns={Model.key: st.sampled_from(['a/1.jpg', 'a/2.jpg'])}.",
                )


def _one_of(row: RowName, places: Collection[Place]) -> Place:
    """Return one object of a row: whoever bears that one of two is refused bears that both are."""
    return sorted(places)[crc32(repr(row).encode()) % len(places)]


def _all(moment: str, night: Night) -> Iterator[Found]:
    yield from ((moment, broken) for broken in night.broken())
    yield moment, None


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
