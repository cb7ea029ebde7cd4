"""The batch protocol against everything that may happen around it, step by step, on the stores in memory.

Two processes purge, an application writes, policies change, leases run out, connections break, and a process may die at
any of its calls; then the promises are checked. ``SAFEDELETE_MODEL_EXAMPLES`` and ``SAFEDELETE_MODEL_STEPS`` ask for more,
``SAFEDELETE_MODEL_SEED`` for the same again.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from safedelete.core.item import Key, ObjectRef
from safedelete.core.outcome import Outcome
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import RowBatch
from safedelete.errors import BusyError, LedgerError, SafeDeleteError, StoreError
from safedelete.runner import purge
from safedelete.runner.review import approve
from safedelete.testing.memory import Call, Killed, MemoryRow, MemoryTransaction, Policy
from tests.worlds import BUCKET, FINAL, JOB, Process, World, batches_of, photo, slices_of

EXAMPLES = int(os.environ.get("SAFEDELETE_MODEL_EXAMPLES", "110"))
STEPS = int(os.environ.get("SAFEDELETE_MODEL_STEPS", "14"))
SEED = int(os.environ.get("SAFEDELETE_MODEL_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
STEPS_TAKEN: Counter[str] = Counter()
"""Histories, steps of theirs, runs in these, and the moments before and after each call of a run: at any of them something
may happen."""

NUMBERS = st.integers(0, 7)
NAMES = (
    "ledger.move",
    "ledger.seal",
    "ledger.doubt",
    "rows.begin",
    "lease.fence",
    "batch.hold",
    "batch.delete",
    "batch.undo",
    "batch.named",
    "batch.rollback",
    "objects.delete",
    "objects.request",
    "objects.presence",
    "batch.prove_alive",
    "lease.gate",
    "ledger.settle",
    "lease.pin",
    "batch.commit",
    "rows.present",
    "objects.remaining",
    "ledger.open",
)
POINTS = st.one_of(
    st.integers(1, 160),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["before", "after"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["before", "after"]), st.integers(1, 4)),
)
"""When something happens: at the nth point of a run, or before or after the nth call of a name."""
POLICIES = st.sampled_from([None, Policy.DENIED, Policy.SILENT, Policy.LOST, Policy.BLOCKED, Policy.HIDDEN])
WRITES = st.one_of(
    st.tuples(st.just("unexpire"), NUMBERS),
    st.tuples(st.just("expire"), NUMBERS),
    st.tuples(st.just("remove"), NUMBERS),
    st.tuples(st.just("rename"), NUMBERS, NUMBERS),
    st.tuples(st.just("lock"), NUMBERS),
    st.tuples(st.just("unlock"), NUMBERS),
    st.tuples(st.just("refuse"), NUMBERS),
    st.tuples(st.just("policy"), NUMBERS, POLICIES),
)
TROUBLE = st.one_of(
    st.tuples(st.just("die")),
    st.tuples(st.just("error")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("freeze")),
)
RIVAL = st.tuples(st.just("rival"), st.lists(st.tuples(POINTS, st.one_of(WRITES, TROUBLE)), max_size=2))
SCHEDULES = st.lists(st.tuples(POINTS, st.one_of(WRITES, TROUBLE, TROUBLE, RIVAL)), max_size=4)
Schedule = Sequence[tuple[Any, tuple[Any, ...]]]

UNFENCED = {("lease.gate", "after"), ("objects.request", "before")}
"""Between the gate and its request nothing can be fenced, so no time passes there."""


class BatchProtocol(RuleBasedStateMachine):
    @initialize(
        shares=st.booleans(),
        may_lock=st.booleans(),
        apart=st.booleans(),
        sizes=st.sampled_from([(2, 2), (4, 1), (8, 1), (8, 3)]),
    )
    def begin(self, shares: bool, may_lock: bool, apart: bool, sizes: tuple[int, int]) -> None:
        STEPS_TAKEN["histories"] += 1
        self.batch, self.slice = sizes
        self.world = World(expired=0, shares=shares, may_lock=may_lock, apart=apart)
        self.known: dict[Key, MemoryRow] = dict(self.world.table.rows)
        self.removed: set[Key] = set()
        self.touched: set[str] = set()
        self.sealed_rows: set[Key] = set()
        self.sealed_keys: set[str] = set()
        self.existed: set[str] = set()
        self.fill()
        self.running: list[Process] = []

    # --- the application

    @rule(number=NUMBERS, twice=st.booleans())
    def add(self, number: int, twice: bool) -> None:
        if (number,) in self.world.table.rows:
            return
        keys = [f"{number}.jpg", f"{number}.webp"] if twice else [f"{number}.jpg"]
        with suppress(BusyError):
            self.world.add(number, objects=keys)
            self.known[number,] = self.world.table.rows[number,]
            self.removed.discard((number,))

    @rule()
    def fill(self) -> None:
        for number in range(8):
            self.add(number, number % 3 == 0)

    @precondition(lambda self: self.world.shares)
    @rule(number=NUMBERS, other=NUMBERS)
    def share(self, number: int, other: int) -> None:
        key = f"{other}.jpg"
        if (number,) in self.world.table.rows or not self.world.has_object(key):
            return
        with suppress(BusyError):
            self.world.add(number, objects=[key])
            self.known[number,] = self.world.table.rows[number,]
            self.removed.discard((number,))

    @rule(write=WRITES)
    def write(self, write: tuple[Any, ...]) -> None:
        self.happen(write)

    @rule(seconds=st.sampled_from([5, 61, 3600, 90_000]))
    def wait(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    # --- the processes

    @rule(schedule=SCHEDULES, late=st.booleans())
    def run(self, schedule: Schedule, late: bool) -> None:
        if late:
            self.world.clock.freeze(61)
        self.go("host:1", schedule, purge.run)

    @rule(schedule=SCHEDULES)
    def run_elsewhere(self, schedule: Schedule) -> None:
        self.world.clock.freeze(61)
        self.go("host:2", schedule, purge.run)

    @rule(schedule=SCHEDULES, what=st.sampled_from(["fingerprint", "caller"]))
    def run_otherwise(self, schedule: Schedule, what: str) -> None:
        """After a deployment: what was interrupted does not fit any more."""
        self.world.clock.freeze(61)
        self.go("host:5", schedule, purge.run, **{what: "another"})

    @rule()
    def save(self) -> None:
        self.go("host:3", (), purge.save)

    @rule(schedule=SCHEDULES)
    def execute(self, schedule: Schedule) -> None:
        for record in self.world.ledger.runs(JOB, limit=1, states={RunState.PENDING, RunState.REFUSED}):
            with suppress(SafeDeleteError):
                approve(self.world.ledger, self.world.clock, record.run, reason="looked at", who="ann")
            self.go("host:4", schedule, lambda ctx, run=record.run: purge.execute_sealed(ctx, run))

    def go(self, name: str, schedule: Schedule, verb: Callable[[Any], Any], **changes: Any) -> None:
        todo = list(schedule)
        seen: Counter[tuple[str, str]] = Counter()
        opened: list[str] = []

        def at(call: Call) -> None:
            STEPS_TAKEN["moments"] += 1
            if call.name in ("rows.begin", "ledger.open"):
                opened.append(call.name)
            # Where the ledger is elsewhere its commits are told apart: they delete nothing.
            if call.name != "batch.commit" or opened[-1] == "rows.begin":
                self.only_the_holder_deletes(process, call)
            seen[call.name, call.moment] += 1
            here = (call.point, (call.name, call.moment, seen[call.name, call.moment]))
            due = [event for point, event in todo if point in here]
            todo[:] = [entry for entry in todo if entry[0] not in here]
            for event in due:
                self.happen(event, process, call)

        STEPS_TAKEN["runs"] += 1
        process = self.world.process(name, at=at, **changes)
        self.running.append(process)
        try:
            with batches_of(self.batch), slices_of(self.slice), suppress(SafeDeleteError, Killed):
                verb(process.ctx)
        finally:
            self.running.remove(process)

    def happen(
        self, event: tuple[Any, ...], process: Process | None = None, call: Call | None = None
    ) -> None:
        kind, *given = event
        if kind in ("die", "error", "cut", "freeze", "rival"):
            assert process is not None
            assert call is not None
            self.trouble(kind, given, process, call)
            return
        number = given[0]
        key, table = (number,), self.world.table
        if kind == "policy":
            for suffix in ("jpg", "webp"):
                self.world.objects.policies.pop((BUCKET, f"{number}.{suffix}"), None)
            if given[1] is not None:
                self.world.objects.policies[BUCKET, f"{number}.jpg"] = given[1]
            return
        if kind == "refuse":
            from safedelete.core.outcome import ItemOutcome

            refused = ItemOutcome(Outcome.BLOCKED, "referenced", "an order names it")
            if table.refusals.pop(key, None) is None:
                table.refusals[key] = refused
            return
        if kind == "unlock":
            table.unlock(key)
            return
        if key not in table.rows:
            return
        with suppress(BusyError):
            self.change(kind, key, given)

    def change(self, kind: str, key: Key, given: Sequence[Any]) -> None:
        table = self.world.table
        row = table.rows[key]
        if kind == "lock":
            table.lock(key)
        elif kind == "remove":
            table.remove(key)
            self.removed.add(key)
            self.touched |= {ref.key for ref in row.objects}
        elif kind == "rename":
            new = photo(f"{given[1]}.jpg") if self.world.shares else photo(f"{key[0]}.new.jpg")
            table.update(key, objects=(new,))
            if not self.world.has_object(new.key):
                self.world.objects.put(new.bucket, new.key)
            self.touched |= {ref.key for ref in (*row.objects, new)}
        else:
            table.update(key, kept=kind == "unexpire")
        if key in table.rows:
            self.known[key] = table.rows[key]

    def trouble(self, kind: str, given: Sequence[Any], process: Process, call: Call) -> None:
        never_raises = call.name in ("batch.rollback", "lease.release", "rows.cancel")
        if kind == "die":
            raise Killed
        if kind == "error" and not never_raises:
            raise (
                LedgerError("the ledger failed")
                if call.name.startswith("ledger")
                else StoreError("it failed")
            )
        if kind == "cut":
            for opened in process.watch._connected:
                if isinstance(opened, MemoryTransaction):
                    opened.disconnect()
        if (call.name, call.moment) in UNFENCED:
            return
        if kind == "freeze":
            self.world.clock.freeze(61)
        if kind == "rival" and len(self.running) == 1:
            self.world.clock.freeze(61)
            self.go("host:9", given[0], purge.run)

    # --- the promises

    def only_the_holder_deletes(self, process: Process, call: Call) -> None:
        if (call.name, call.moment) not in {("objects.request", "before"), ("batch.commit", "after")}:
            return
        lease = self.world.database.leases[JOB]
        assert lease.owner == process.ctx.setting.owner, (
            f"{process.ctx.setting.owner} deletes on {lease.owner}'s lease"
        )

    @invariant()
    def a_step_was_taken(self) -> None:
        STEPS_TAKEN["steps"] += 1

    @invariant()
    def nothing_was_deleted_that_was_not_sealed(self) -> None:
        if not hasattr(self, "world"):
            return
        self.note()
        gone = {key for key in self.known if key not in self.world.table.rows} - self.removed
        assert gone <= self.sealed_rows
        assert {key for key in self.existed if not self.world.has_object(key)} <= self.sealed_keys

    @invariant()
    def no_row_is_gone_while_its_object_is_still_there(self) -> None:
        if not hasattr(self, "world"):
            return
        named = {ref.key for row in self.world.table.rows.values() for ref in row.objects}
        for key, row in self.known.items():
            if key in self.world.table.rows or key in self.removed:
                continue
            left = {ref.key for ref in row.objects if self.world.objects.holds(ref)}
            assert left <= named | self.touched, f"row {key} is gone, {left} is there"

    @invariant()
    def no_row_is_left_without_its_object_unreported(self) -> None:
        if not hasattr(self, "world"):
            return
        for row in self.world.table.rows.values():
            for ref in row.objects:
                if not self.world.objects.holds(ref):
                    assert ref.key in self.touched or self.reported(ref), (
                        f"{row.key} has lost {ref.key}, unreported"
                    )

    @invariant()
    def the_sums_of_every_finished_run_match(self) -> None:
        if not hasattr(self, "world"):
            return
        for record in self.world.ledger.runs(JOB, limit=1000, states=FINAL):
            if record.run.startswith("PAST"):
                continue
            owed = sum(self.world.ledger.sealed(record.run).values())
            assert self.world.total(record.run).total == owed, record
            for stored in self.world.ledger.batches(record.run):
                assert stored.state is BatchState.DONE
                assert not stored.pending
                assert set(stored.outcomes) <= set(range(len(stored.items)))

    def teardown(self) -> None:
        """When all is well again, the next run converges."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.objects.policies.clear()
        world.table.refusals.clear()
        for key in list(world.table.locks):
            world.table.unlock(key)
        assert not world.table.locks, "a batch has left a lock behind"
        world.clock.freeze(61)
        for _ in range(4):
            self.go("host:1", (), purge.run)
            if not any(row.eligible(world.clock.now()) for row in world.table.rows.values()):
                break
            world.clock.advance(60)
        left = [row.key for row in world.table.rows.values() if row.eligible(world.clock.now())]
        assert not left, f"{left} stays for ever: {world.last()}"
        self.nothing_was_deleted_that_was_not_sealed()
        self.no_row_is_gone_while_its_object_is_still_there()
        self.no_row_is_left_without_its_object_unreported()
        self.the_sums_of_every_finished_run_match()

    def note(self) -> None:
        for record in self.world.ledger.runs(JOB, limit=1000):
            for stored in self.world.ledger.batches(record.run):
                assert isinstance(stored.items, RowBatch)
                for row in stored.items.rows:
                    self.sealed_rows.add(row.key)
                    self.sealed_keys |= {ref.key for ref in row.objects}
        self.existed |= {key for _, key in self.world.objects.stored}

    def reported(self, ref: ObjectRef) -> bool:
        for record in self.world.ledger.runs(JOB, limit=1000):
            for stored in self.world.ledger.batches(record.run):
                assert isinstance(stored.items, RowBatch)
                for index, row in enumerate(stored.items.rows):
                    if ref not in row.objects:
                        continue
                    if (
                        stored.state in (BatchState.IN_DOUBT, BatchState.DEFERRED)
                        and record.state not in FINAL
                    ):
                        return True
                    outcome = stored.outcomes.get(index)
                    if outcome is not None and outcome.state in (Outcome.FAILED, Outcome.UNKNOWN):
                        return True
        return False


def test_the_promises_hold_whatever_happens_around_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    STEPS_TAKEN.clear()
    run_state_machine_as_test(
        seed(SEED)(BatchProtocol),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    histories, moments, runs = (STEPS_TAKEN[name] for name in ("histories", "moments", "runs"))
    # The making of a world is told of as a step, and is none.
    steps = STEPS_TAKEN["steps"] - histories
    with capsys.disabled():
        print(
            f"\n  model: {steps:,} steps of {histories:,} histories, {runs:,} runs in them, "
            f"{moments:,} moments before and after their calls; SAFEDELETE_MODEL_SEED={SEED}",
            end="",
            flush=True,
        )
    assert steps > EXAMPLES * STEPS // 2, "a history of the model has become a short one"
    assert moments > 150 * EXAMPLES, "a run of the model has become a short one"
