"""What every ``Ledger`` and every ``Lock`` promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Thread

import pytest

from safedelete.core.decision import Acceptance, Approval, Refused
from safedelete.core.item import ObjectRef, SealedRow
from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.core.plan import Plan, TargetPlan
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import ObjectBatch, RowBatch, digest
from safedelete.errors import BindingError, LedgerError, LockHeldError, LockLostError
from safedelete.ports import (
    BatchRef,
    Binding,
    Ledger,
    Lock,
    Notice,
    RunChange,
    RunRecord,
    Transaction,
    Verdict,
    holding,
)

AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
BOUND = Binding("test", frozenset({"main"}), frozenset({"acme-uploads"}))
ROWS = RowBatch(tuple(SealedRow((n,), (ObjectRef("acme-uploads", f"{n}.jpg"),)) for n in range(5)))
OBJECTS = ObjectBatch((ObjectRef("acme-uploads", "tmp/a", '"e"', None, 3),))
KEPT = ItemOutcome(Outcome.CHANGED, "predicate", "it no longer matches")
LOCKED = ItemOutcome(Outcome.BLOCKED, "locked")


def plan(as_of: datetime = AT) -> Plan:
    target = TargetPlan(name="uploads", kind="rows", items=5, eligible=5, total=100, cutoff=as_of)
    return Plan(job="purge", as_of=as_of, fingerprint="f", targets=(target,), digest="d")


def a_run(run: str = "RUNA", *, job: str = "purge", at: datetime = AT) -> RunRecord:
    return RunRecord(
        run=run,
        job=job,
        kind="purge",
        state=RunState.PLANNING,
        started_at=at,
        owner="host:1",
        task="f:1 app:1",
    )


class LedgerContract:
    """Inherit, and give a fixture ``ledger``, bound to ``BOUND`` and empty."""

    @pytest.fixture
    def sealed(self, ledger: Ledger) -> Ledger:
        ledger.begin(a_run())
        ledger.seal(BatchRef("RUNA", 0, 0), ROWS)
        ledger.seal(BatchRef("RUNA", 0, 1), ROWS)
        ledger.seal(BatchRef("RUNA", 1, 0), OBJECTS)
        return ledger

    # --- what people say

    def a_pause(self, reason: str = "a migration", at: datetime = AT) -> Notice:
        return Notice(kind="pause", subject="purge", since=at, who="ann@desk app", reason=reason)

    def test_a_notice_is_read_back_as_it_was_said(self, ledger: Ledger) -> None:
        assert ledger.notices("pause", "purge") == []
        assert ledger.say(self.a_pause())
        assert ledger.notices("pause", "purge") == [self.a_pause()]
        assert ledger.notices("pause", "purge-more") == []
        assert ledger.notices("cancel", "purge") == []

    def test_a_notice_that_holds_is_not_said_twice(self, ledger: Ledger) -> None:
        assert ledger.say(self.a_pause())
        assert not ledger.say(self.a_pause("another reason", AT + timedelta(hours=1)))
        assert ledger.notices("pause", "purge") == [self.a_pause()]

    def test_a_notice_that_was_taken_back_is_kept_and_another_may_be_said(self, ledger: Ledger) -> None:
        later = AT + timedelta(hours=1)
        ledger.say(self.a_pause())
        assert ledger.take_back("pause", "purge", at=later, who="bob@desk") == [self.a_pause()]
        assert ledger.take_back("pause", "purge", at=later, who="eve@desk") == []
        ended = replace(self.a_pause(), ended_at=later, ended_by="bob@desk")
        assert ledger.notices("pause", "purge") == [ended]
        assert holding(ledger.notices("pause", "purge")) is None
        again = self.a_pause("again", AT + timedelta(hours=2))
        assert ledger.say(again)
        assert ledger.notices("pause", "purge") == [again, ended]

    def test_a_run_learns_of_its_own_cancellation_only(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        ledger.begin(replace(a_run("RUNB"), owner="host:2"))
        wish = Notice(kind="cancel", subject="RUNA", since=AT, who="ann", reason="wrong table")
        ledger.say(wish)
        assert ledger.cancelled("purge", "host:1") == wish
        assert ledger.cancelled("purge", "host:2") is None
        assert ledger.cancelled("another", "host:1") is None
        ledger.move("RUNA", RunState.RUNNING)
        assert ledger.cancelled("purge", "host:1") == wish
        ledger.move("RUNA", RunState.CANCELLED)
        assert ledger.cancelled("purge", "host:1") is None

    def test_when_a_run_was_resumed_is_kept_beside_when_it_began(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        assert ledger.record("RUNA").began_at == AT
        later = AT + timedelta(hours=24)
        ledger.move("RUNA", RunState.RUNNING, change=RunChange(resumed_at=later))
        assert (ledger.record("RUNA").started_at, ledger.record("RUNA").began_at) == (AT, later)

    # --- binding

    def test_it_accepts_what_it_is_bound_to(self, ledger: Ledger) -> None:
        ledger.verify(BOUND)

    @pytest.mark.parametrize(
        "other",
        [
            Binding("staging", BOUND.databases, BOUND.buckets),
            Binding("test", frozenset({"copy"}), BOUND.buckets),
            Binding("test", BOUND.databases, frozenset({"another-bucket"})),
        ],
    )
    def test_it_refuses_anything_else(self, ledger: Ledger, other: Binding) -> None:
        with pytest.raises(BindingError):
            ledger.verify(other)

    # --- runs

    def test_a_run_is_read_back_as_it_was_recorded(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        assert ledger.record("RUNA") == a_run()
        assert ledger.record("RUN") == a_run()
        assert ledger.record("runa") == a_run()

    def test_an_id_is_recorded_once(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        with pytest.raises(LedgerError):
            ledger.begin(replace(a_run(), owner="host:2"))
        assert ledger.record("RUNA").owner == "host:1"

    def test_a_run_that_is_not_there_or_not_the_only_one_is_an_error(self, ledger: Ledger) -> None:
        ledger.begin(a_run("RUNA"))
        ledger.begin(a_run("RUNB"))
        for name in ("RUN", "NONE", "%", "_UNA"):
            with pytest.raises(LedgerError):
                ledger.record(name)

    def test_a_move_sets_state_and_columns_together(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        change = RunChange(
            plan=plan(),
            decision=Refused(plan=plan()),
            finished_at=AT + timedelta(minutes=3),
            tally={"uploads": Tally(deleted=3, blocked=2, locked=1)},
            reason="because",
            exit_code=3,
            sealed_bytes=99,
            owner="host:2",
            task="f:2 app:2",
            teaches=0,
        )
        moved = ledger.move("RUNA", RunState.REFUSED, change=change)
        assert moved == ledger.record("RUNA")
        assert moved.state is RunState.REFUSED
        assert (moved.plan, moved.decision, moved.finished_at) == (
            change.plan,
            change.decision,
            change.finished_at,
        )
        assert (moved.tally, moved.reason, moved.exit_code) == (change.tally, "because", 3)
        assert (moved.sealed_bytes, moved.owner, moved.task, moved.teaches) == (99, "host:2", "f:2 app:2", 0)

    def test_a_move_outside_the_table_changes_nothing(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        with pytest.raises(LedgerError):
            ledger.move("RUNA", RunState.ABANDONED, change=RunChange(reason="no"))
        assert ledger.record("RUNA") == a_run()

    def test_a_run_that_is_reopened_forgets_how_it_ended(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        for state in (RunState.RUNNING, RunState.INTERRUPTED):
            ledger.move(
                "RUNA", state, change=RunChange(finished_at=AT, reason="late", exit_code=4, owner="x")
            )
        ledger.move("RUNA", RunState.RUNNING, change=RunChange(owner="y", task="", reopened=True))
        found = ledger.record("RUNA")
        assert (found.finished_at, found.reason, found.exit_code, found.owner) == (None, "", None, "y")
        # Resumed elsewhere: what it ran as before is not what it runs as now.
        assert found.task == ""

    def test_a_move_by_another_owner_changes_nothing(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        with pytest.raises(LedgerError):
            ledger.move("RUNA", RunState.FAILED, owner="host:2")
        assert ledger.record("RUNA") == a_run()
        assert ledger.move("RUNA", RunState.FAILED, owner="host:1").state is RunState.FAILED

    def test_a_move_to_the_same_state_changes_the_columns_alone(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        moved = ledger.move("RUNA", RunState.PLANNING, change=RunChange(reason="still counting"))
        assert moved == replace(a_run(), reason="still counting")

    def test_of_two_processes_one_makes_the_move(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        ledger.move("RUNA", RunState.PENDING, change=RunChange(plan=plan()))
        made: list[bool] = []

        def move() -> None:
            try:
                ledger.move("RUNA", RunState.RUNNING)
            except LedgerError:
                made.append(False)
            else:
                made.append(True)

        # One after the other is enough here: moving to the state it is in is allowed, so the owner decides.
        threads = [Thread(target=move) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert True in made
        with pytest.raises(LedgerError):
            ledger.move("RUNA", RunState.PENDING)

    def test_runs_come_newest_first_by_job_and_state(self, ledger: Ledger) -> None:
        ledger.begin(a_run("RUNA", at=AT))
        ledger.begin(a_run("RUNB", at=AT + timedelta(hours=1)))
        ledger.begin(a_run("RUNC", job="other", at=AT + timedelta(hours=2)))
        ledger.move("RUNA", RunState.FAILED)
        assert [r.run for r in ledger.runs(None, limit=9)] == ["RUNC", "RUNB", "RUNA"]
        assert [r.run for r in ledger.runs("purge", limit=9)] == ["RUNB", "RUNA"]
        assert [r.run for r in ledger.runs("purge", limit=1)] == ["RUNB"]
        assert [r.run for r in ledger.runs(None, limit=9, states={RunState.FAILED})] == ["RUNA"]

    def test_history_is_finished_runs_with_a_plan_newest_first(self, ledger: Ledger) -> None:
        for number in range(3):
            name, at = f"RUN{number}", AT + timedelta(days=number)
            ledger.begin(a_run(name, at=at))
            if number < 2:
                tally = {"uploads": Tally(deleted=number + 1)}
                done = RunChange(plan=plan(at), tally=tally, finished_at=at)
                ledger.move(name, RunState.SUCCEEDED, change=done)
        past = ledger.history("purge", limit=9)
        assert [(p.run, p.state, p.deleted) for p in past] == [
            ("RUN1", "succeeded", {"uploads": 2}),
            ("RUN0", "succeeded", {"uploads": 1}),
        ]
        assert ledger.history("other", limit=9) == []

    def test_runs_that_did_not_succeed_push_no_success_out_of_history(self, ledger: Ledger) -> None:
        ends = [
            (RunState.SUCCEEDED, 7, True),
            (RunState.INCOMPLETE, 2, True),
            *[(RunState.FAILED, 0, False)] * 3,
            *[(RunState.REFUSED, 0, True)] * 3,
        ]
        for number, (state, deleted, planned) in enumerate(ends):
            name, at = f"RUN{number}", AT + timedelta(days=number)
            ledger.begin(a_run(name, at=at))
            tally = {"uploads": Tally(deleted=deleted)}
            done = RunChange(plan=plan(at) if planned else None, tally=tally, finished_at=at)
            if state is RunState.INCOMPLETE:
                ledger.move(name, RunState.RUNNING)
            ledger.move(name, state, change=done)
        past = ledger.history("purge", limit=2)
        assert [(p.run, p.state, p.deleted["uploads"]) for p in past] == [
            ("RUN1", "incomplete", 2),
            ("RUN0", "succeeded", 7),
        ]

    # --- batches

    def test_batches_come_back_in_order_as_they_were_sealed(self, sealed: Ledger) -> None:
        found = list(sealed.batches("RUNA"))
        assert [(b.ref.target, b.ref.seq) for b in found] == [(0, 0), (0, 1), (1, 0)]
        assert [b.items for b in found] == [ROWS, ROWS, OBJECTS]
        assert {b.state for b in found} == {BatchState.SEALED}
        assert sealed.sealed("RUNA") == {0: 10, 1: 1}
        assert sealed.tally("RUNA") == {}

    def test_a_batch_is_read_when_it_is_asked_for_and_not_before(self, sealed: Ledger) -> None:
        batches = sealed.batches("RUNA")
        assert next(batches).state is BatchState.SEALED
        sealed.doubt(BatchRef("RUNA", 0, 1))
        assert next(batches).state is BatchState.IN_DOUBT

    def test_the_checksums_are_those_of_the_batches_in_order(self, sealed: Ledger) -> None:
        sums = list(sealed.checksums("RUNA"))
        assert len(sums) == 3
        assert sums[0] == sums[1] != sums[2]
        assert digest("f", AT, sums) == digest("f", AT, sealed.checksums("RUNA"))

    def test_a_batch_is_sealed_once_and_only_while_its_run_is_planned(self, sealed: Ledger) -> None:
        with pytest.raises(LedgerError):
            sealed.seal(BatchRef("RUNA", 0, 0), OBJECTS)
        with pytest.raises(LedgerError):
            sealed.seal(BatchRef("NONE", 0, 0), ROWS)
        sealed.move("RUNA", RunState.CRASHED)
        with pytest.raises(LedgerError):
            sealed.seal(BatchRef("RUNA", 0, 2), ROWS)
        assert [b.items for b in sealed.batches("RUNA")] == [ROWS, ROWS, OBJECTS]

    def test_a_seal_costs_bytes(self, ledger: Ledger) -> None:
        ledger.begin(a_run())
        assert ledger.seal(BatchRef("RUNA", 0, 0), ROWS) > 0

    def test_dropping_a_seal_is_idempotent(self, sealed: Ledger) -> None:
        sealed.drop_seal("RUNA")
        sealed.drop_seal("RUNA")
        assert list(sealed.batches("RUNA")) == []
        assert sealed.sealed("RUNA") == {}

    def test_doubt_is_idempotent_and_stops_at_what_is_settled(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 0, 0)
        assert sealed.doubt(ref)
        assert sealed.doubt(ref)
        assert [b.ref for b in sealed.batches("RUNA", {BatchState.IN_DOUBT})] == [ref]
        sealed.settle(ref, Tally(deleted=5), {}, (), None)
        assert not sealed.doubt(ref)
        assert [b.ref for b in sealed.batches("RUNA", {BatchState.DONE})] == [ref]

    def test_a_batch_that_is_not_there_can_neither_be_doubted_nor_settled(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 7, 7)
        with pytest.raises(LedgerError):
            sealed.doubt(ref)
        with pytest.raises(LedgerError):
            sealed.settle(ref, Tally(), {}, (), None)

    def test_settling_records_outcomes_and_sums(self, sealed: Ledger) -> None:
        sealed.settle(BatchRef("RUNA", 0, 0), Tally(deleted=4, changed=1), {3: KEPT}, (), None)
        sealed.settle(BatchRef("RUNA", 0, 1), Tally(deleted=5), {}, (), None)
        assert sealed.tally("RUNA") == {0: Tally(deleted=9, changed=1)}
        first = next(sealed.batches("RUNA"))
        assert (first.state, first.outcomes, first.pending) == (BatchState.DONE, {3: KEPT}, ())

    def test_settling_again_replaces_what_was_settled(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 0, 0)
        for _ in range(2):
            sealed.settle(ref, Tally(deleted=4, changed=1), {3: KEPT}, (), None)
        sealed.settle(ref, Tally(deleted=5), {}, (), None)
        assert sealed.tally("RUNA") == {0: Tally(deleted=5)}
        assert next(sealed.batches("RUNA")).outcomes == {}

    def test_a_batch_of_which_a_part_was_not_tried_stays_in_doubt_with_what_is_pending(
        self, sealed: Ledger
    ) -> None:
        ref = BatchRef("RUNA", 0, 0)
        sealed.settle(ref, Tally(deleted=1, changed=1), {3: KEPT}, (1, 2, 4), None, underway=True)
        (partly,) = sealed.batches("RUNA", {BatchState.IN_DOUBT})
        assert (partly.ref, partly.pending, partly.outcomes) == (ref, (1, 2, 4), {3: KEPT})
        assert sealed.tally("RUNA")[0] == Tally(deleted=1, changed=1)
        sealed.settle(ref, Tally(deleted=4, changed=1), {3: KEPT}, (), None)
        assert not list(sealed.batches("RUNA", {BatchState.IN_DOUBT}))

    def test_a_batch_that_is_done_is_not_reopened(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 0, 0)
        sealed.settle(ref, Tally(deleted=5), {}, (), None)
        with pytest.raises(LedgerError):
            sealed.settle(ref, Tally(deleted=3), {}, (3, 4), None, underway=True)
        assert [b.pending for b in sealed.batches("RUNA", {BatchState.DONE})] == [()]

    def test_doubt_is_refused_to_whoever_does_not_know_what_is_pending(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 0, 0)
        assert sealed.doubt(ref, ())
        assert not sealed.doubt(ref, (1, 2))
        sealed.settle(ref, Tally(deleted=3), {}, (3, 4), None, underway=True)
        assert not sealed.doubt(ref, ())
        assert not sealed.doubt(ref, (3,))
        assert sealed.doubt(ref, (3, 4))

    def test_what_is_owed_defers_a_batch_and_doubting_it_forgets_nothing(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 0, 0)
        sealed.settle(ref, Tally(deleted=2, changed=1), {3: KEPT}, (1, 2), None)
        (deferred,) = sealed.batches("RUNA", {BatchState.DEFERRED})
        assert (deferred.pending, deferred.outcomes) == ((1, 2), {3: KEPT})
        assert sealed.doubt(ref, (1, 2))
        (doubtful,) = sealed.batches("RUNA", {BatchState.IN_DOUBT})
        assert (doubtful.pending, doubtful.outcomes) == ((1, 2), {3: KEPT})
        sealed.settle(ref, Tally(deleted=3, changed=1, blocked=1, locked=1), {1: LOCKED, 3: KEPT}, (), None)
        (done,) = sealed.batches("RUNA", {BatchState.DONE})
        assert (done.pending, done.outcomes) == ((), {1: LOCKED, 3: KEPT})

    def test_what_is_settled_in_a_transaction_shows_when_it_commits(self, sealed: Ledger) -> None:
        ref = BatchRef("RUNA", 0, 0)
        transaction = sealed.open()
        assert sealed.joins(transaction)
        sealed.settle(ref, Tally(deleted=5), {}, (), transaction)
        transaction.rollback()
        assert sealed.tally("RUNA") == {}
        transaction = sealed.open()
        sealed.settle(ref, Tally(deleted=5), {}, (), transaction)
        transaction.commit()
        assert sealed.tally("RUNA") == {0: Tally(deleted=5)}

    def test_a_transaction_elsewhere_is_not_joined(self, sealed: Ledger, elsewhere: Transaction) -> None:
        assert not sealed.joins(elsewhere)
        sealed.settle(BatchRef("RUNA", 0, 0), Tally(deleted=5), {}, (), elsewhere)
        assert sealed.tally("RUNA") == {0: Tally(deleted=5)}

    # --- approvals, permissions

    def test_the_newest_approval_of_a_run_counts(self, ledger: Ledger) -> None:
        assert ledger.approval("RUNA") is None
        first = Approval(
            run="RUNA",
            digest="d",
            accepts=(
                Acceptance(code="SD101", target="uploads", limit=9),
                Acceptance(code="SD112", limit="RUNB,RUNC"),
            ),
            reason="r",
            who="ann",
            at=AT,
            expires_at=AT + timedelta(hours=1),
        )
        later = replace(first, at=AT + timedelta(seconds=1), who="bob", teaches=2)
        ledger.approve(later)
        ledger.approve(first)
        assert ledger.approval("RUNA") == later
        assert ledger.approval("RUNB") is None

    def test_probing_is_idempotent_and_leaves_nothing(self, sealed: Ledger) -> None:
        before = (sealed.runs(None, limit=9), list(sealed.batches("RUNA")))
        first = sealed.probe()
        assert first
        assert {proof.verdict for proof in first} == {Verdict.ALLOWED}
        assert sealed.probe() == first
        assert (sealed.runs(None, limit=9), list(sealed.batches("RUNA"))) == before


@dataclass
class Leases:
    """Locks under test.

    Attributes:
        lock: Takes leases.
        expire: Let every lease end, while no heartbeat beats.
        begin: Open a transaction on the lease's own database.
        elsewhere: Open one on another database.
    """

    lock: Lock
    expire: Callable[[], None]
    begin: Callable[[], Transaction]
    elsewhere: Callable[[], Transaction]


class LockContract:
    """Inherit, and give a fixture ``leases``."""

    def test_a_lease_keeps_everybody_else_out_and_says_who_holds_it(self, leases: Leases) -> None:
        held = leases.lock.acquire("purge", owner="one")
        with pytest.raises(LockHeldError) as caught:
            leases.lock.acquire("purge", owner="two")
        assert caught.value.holder
        assert caught.value.since
        held.gate()
        held.fence()
        held.release()

    def test_the_same_owner_cannot_take_it_twice(self, leases: Leases) -> None:
        held = leases.lock.acquire("purge", owner="one")
        with pytest.raises(LockHeldError):
            leases.lock.acquire("purge", owner="one")
        held.release()

    def test_jobs_do_not_hinder_each_other(self, leases: Leases) -> None:
        one, two = leases.lock.acquire("purge", owner="one"), leases.lock.acquire("other", owner="one")
        one.release()
        two.fence()
        two.release()

    def test_a_lease_given_back_is_free_at_once_and_raises_the_token(self, leases: Leases) -> None:
        first = leases.lock.acquire("purge", owner="one")
        first.release()
        second = leases.lock.acquire("purge", owner="two")
        assert second.token > first.token
        second.release()

    def test_a_lease_given_back_lets_nothing_more_start(self, leases: Leases) -> None:
        held = leases.lock.acquire("purge", owner="one")
        held.release()
        held.release()
        for prove in (held.gate, held.fence):
            with pytest.raises(LockLostError):
                prove()

    def test_giving_back_twice_does_not_free_the_next_holders_lease(self, leases: Leases) -> None:
        first = leases.lock.acquire("purge", owner="one")
        first.release()
        second = leases.lock.acquire("purge", owner="two")
        first.release()
        second.fence()
        with pytest.raises(LockHeldError):
            leases.lock.acquire("purge", owner="three")
        second.release()

    def test_a_lease_that_ended_is_taken_over_and_its_holder_may_do_nothing(self, leases: Leases) -> None:
        first = leases.lock.acquire("purge", owner="one")
        leases.expire()
        second = leases.lock.acquire("purge", owner="two")
        assert second.token > first.token
        transaction = leases.begin()
        with pytest.raises(LockLostError):
            first.fence(transaction)
        with pytest.raises(LockLostError):
            first.pin(transaction)
        with pytest.raises(LockLostError):
            first.fence()
        transaction.rollback()
        second.fence()
        first.release()
        second.fence()
        second.release()

    def test_a_lease_that_ended_is_lost_even_when_nobody_took_it(self, leases: Leases) -> None:
        held = leases.lock.acquire("purge", owner="one")
        leases.expire()
        with pytest.raises(LockLostError):
            held.fence()
        with pytest.raises(LockLostError):
            held.gate()
        held.release()

    def test_fence_and_pin_pass_in_a_transaction_of_its_database_and_of_another(self, leases: Leases) -> None:
        held = leases.lock.acquire("purge", owner="one")
        for begin in (leases.begin, leases.elsewhere):
            transaction = begin()
            held.fence(transaction)
            held.pin(transaction)
            transaction.commit()
        held.release()

    def test_nobody_takes_over_while_the_lease_is_pinned(self, leases: Leases) -> None:
        held = leases.lock.acquire("purge", owner="one")
        transaction = leases.begin()
        held.pin(transaction)
        leases.expire()
        with pytest.raises(LockHeldError):
            leases.lock.acquire("purge", owner="two")
        transaction.commit()
        leases.expire()
        second = leases.lock.acquire("purge", owner="two")
        assert second.token > held.token
        held.release()
        second.release()
