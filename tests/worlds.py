"""A small world on the stores in memory: uploads whose rows name photos, and processes that purge them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from safedelete.core.item import ObjectRef
from safedelete.core.limits import Guard
from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.core.plan import Plan, TargetPlan
from safedelete.core.run import RunState
from safedelete.core.seal import ObjectBatch
from safedelete.phases.parts import ObjectPart, Part, RowPart, quiet
from safedelete.ports import Binding, RunRecord
from safedelete.runner import purge
from safedelete.runner.context import PurgeContext, Setting
from safedelete.runner.report import Report
from safedelete.runner.stop import deadline, nobody
from safedelete.testing.memory import (
    Call,
    Killed,
    ManualClock,
    MemoryDatabase,
    MemoryLedger,
    MemoryLock,
    MemoryObjects,
    MemoryOrphans,
    MemoryPrefix,
    MemoryProber,
    MemoryReferences,
    MemoryRow,
    MemoryRows,
    MemoryTable,
    Watch,
)

BUCKET = "acme-uploads"
JOB = "expired-uploads"


def photo(key: str) -> ObjectRef:
    return ObjectRef(BUCKET, key)


class World:
    """The stores; what a test changes between two calls of a process."""

    def __init__(
        self,
        expired: int = 6,
        *,
        fresh: int = 30,
        may_lock: bool = True,
        shares: bool = False,
        owns: bool = True,
        apart: bool = False,
    ) -> None:
        self.clock = ManualClock()
        self.database = MemoryDatabase("main")
        self.ledger = MemoryLedger(
            MemoryDatabase("elsewhere") if apart else self.database,
            Binding("test", frozenset({"main"}), frozenset({BUCKET})),
        )
        self.objects = MemoryObjects(chunk=2)
        self.table = MemoryTable(self.database, "uploads")
        self.may_lock, self.shares, self.owns = may_lock, shares, owns
        self.numbers = 0
        self.runs = 0
        self._teach()
        for number in range(expired):
            self.add(number)
        for number in range(1000, 1000 + fresh):
            self.add(number, expired=False)

    def _teach(self, nights: int = 20) -> None:
        """Record earlier runs, so that the guard finds up to sixty items a night usual."""
        for night in range(nights):
            at = self.clock.now() - timedelta(days=nights - night)
            target = TargetPlan(
                name="uploads", kind="rows", items=60, eligible=60, objects=90, total=400, cutoff=at
            )
            week_old = at - timedelta(days=7)
            second = replace(target, name=f"s3://{BUCKET}/tmp/", kind="objects", cutoff=week_old)
            third = replace(second, name=f"orphans of {second.name}")
            done = {name: Tally(deleted=60) for name in (target.name, second.name, third.name)}
            self.ledger.begin(
                RunRecord(
                    run=f"PAST{night:04}",
                    job=JOB,
                    kind="purge",
                    state=RunState.SUCCEEDED,
                    started_at=at,
                    finished_at=at,
                    plan=Plan(
                        job=JOB, as_of=at, fingerprint="f1", targets=(target, second, third), digest="d"
                    ),
                    tally=done,
                )
            )

    def add(self, number: int, *, expired: bool = True, objects: Sequence[str] | None = None) -> MemoryRow:
        keys = [f"{number}.jpg"] if objects is None else objects
        refs = tuple(photo(key) for key in keys) if self.owns else ()
        for ref in refs:
            if not self.objects.holds(ref):
                self.objects.put(ref.bucket, ref.key)
        when = self.clock.now() + timedelta(hours=-1 if expired else 90_000)
        row = MemoryRow((number,), when, refs)
        self.table.put(row)
        return row

    def process(self, name: str = "host:1", **changes: Any) -> Process:
        return Process(self, name, **changes)

    def has_row(self, number: int) -> bool:
        return (number,) in self.table.rows

    def has_object(self, key: str) -> bool:
        return self.objects.holds(photo(key))

    def outcomes(self, run: str) -> dict[object, ItemOutcome]:
        """Every sealed item's outcome, by key; one that has none is left out."""
        found: dict[object, ItemOutcome] = {}
        for stored in self.ledger.batches(run):
            items = stored.items
            names = (
                [ref.key for ref in items.objects]
                if isinstance(items, ObjectBatch)
                else [row.key[0] for row in items.rows]
            )
            settled = stored.state.value in ("done", "deferred")
            for index, name in enumerate(names):
                if index in stored.outcomes:
                    found[name] = stored.outcomes[index]
                elif settled and index not in stored.pending:
                    found[name] = ItemOutcome(Outcome.DELETED)
        return found

    def last(self) -> RunRecord:
        return self.ledger.runs(JOB, limit=1)[0]

    def total(self, run: str) -> Tally:
        return sum(self.ledger.tally(run).values(), Tally())


class Process:
    """One process that purges, watched; a test may act at any of its calls."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        at: Callable[[Call], None] | None = None,
        parts: Callable[[Process], Sequence[Part]] | None = None,
        timeout: timedelta = timedelta(hours=1),
        asked: Callable[[], str | None] = nobody,
        lease: float = 60.0,
        **changes: Any,
    ) -> None:
        self.world = world
        self.watch = Watch(at)
        self.objects = world.objects.seen_by(self.watch.request)
        self.rows = MemoryRows(world.table, may_lock=world.may_lock, shares=world.shares, owns=world.owns)
        self.prober = MemoryProber(world.objects)
        setting = Setting(
            environment="test",
            database="main",
            caller="role@main",
            owner=name,
            binding=Binding("test", frozenset({"main"}), frozenset({BUCKET})),
        )
        given = {
            key: changes.pop(key) for key in tuple(changes) if key in ("caller", "environment", "database")
        }
        self.ctx = PurgeContext(
            job=JOB,
            fingerprint="f1",
            guard=Guard(),
            portion=None,
            max_sealed=10_000,
            resume_within=timedelta(hours=24),
            parts=self.parts() if parts is None else parts(self),
            ledger=self.watch.over("ledger", world.ledger),
            lock=self.watch.over("lock", MemoryLock(world.database, world.clock, seconds=lease)),
            clock=world.clock,
            new_run=self._new_run,
            setting=replace(setting, **given),
            stop=deadline(world.clock, timeout, timedelta(seconds=30), asked),
            progress=quiet,
        )
        if changes:
            self.ctx = replace(self.ctx, **changes)

    def parts(self) -> list[Part]:
        return [self.row_part()]

    def row_part(self, **changes: Any) -> RowPart:
        store = self.watch.over("objects", self.objects) if self.world.owns else None
        part = RowPart(self.watch.over("rows", self.rows), store, (self.prober,))
        return replace(part, **changes)

    def prefix_part(self, prefix: str = "tmp/") -> ObjectPart:
        target = MemoryPrefix(self.objects, BUCKET, prefix, older_than=timedelta(days=7))
        return ObjectPart(self.watch.over("prefix", target), (self.prober,))

    def orphan_part(self, prefix: str = "tmp/") -> ObjectPart:
        references = MemoryReferences([self.world.table], BUCKET, prefix)
        target = MemoryOrphans(self.objects, references, older_than=timedelta(days=7))
        asked = self.watch.over("references", references)
        return ObjectPart(self.watch.over("orphans", target), (self.prober,), asked)

    def run(self) -> Report:
        return purge.run(self.ctx)

    def run_killed(self) -> None:
        """Run up to the instant in which the process dies."""
        try:
            purge.run(self.ctx)
        except Killed:
            return
        raise AssertionError("the process was to be killed, and lived")

    def _new_run(self) -> str:
        self.world.runs += 1
        return f"RUN{self.world.runs:05}"


def on(name: str, act: Callable[[], None], *, nth: int = 1, moment: str = "before") -> Callable[[Call], None]:
    """Act once, at the nth call of a name."""
    seen = 0

    def at(call: Call) -> None:
        nonlocal seen
        if call.name == name and call.moment == moment:
            seen += 1
            if seen == nth:
                act()

    return at


def die() -> None:
    raise Killed


@contextmanager
def batches_of(size: int) -> Iterator[None]:
    """Seal that many items a batch."""
    from safedelete.phases import seal

    sizes = {name: value for name, value in vars(seal).items() if name.endswith("_A_BATCH")}
    vars(seal).update(dict.fromkeys(sizes, size))
    try:
        yield
    finally:
        vars(seal).update(sizes)


@contextmanager
def slices_of(size: int) -> Iterator[None]:
    """Begin every run with transactions of that many rows; where time stands still they grow by one or two each."""
    from safedelete.core import pace

    before = pace.FIRST
    vars(pace).update(FIRST=size)
    try:
        yield
    finally:
        vars(pace).update(FIRST=before)


FINAL = frozenset({RunState.SUCCEEDED, RunState.INCOMPLETE, RunState.FAILED, RunState.ABANDONED})


def another_begins(world: World, job: str) -> None:
    """Have another host take the job's lock, which must be free, and be at work on a run of its own."""
    MemoryLock(world.database, world.clock).acquire(job, owner="host:9")
    at = world.clock.now()
    world.ledger.begin(
        RunRecord(run="ANOTHER", job=job, kind="purge", state=RunState.RUNNING, started_at=at, owner="host:9")
    )
