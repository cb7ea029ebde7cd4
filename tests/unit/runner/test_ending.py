"""How a run ends: the verdict's table, and what is recorded when something stopped it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.cli.document import report_document
from safedelete.core.outcome import Tally
from safedelete.core.run import RunState
from safedelete.errors import (
    DeadlineExceededError,
    ExitCode,
    InterruptedRunError,
    LedgerError,
    LockLostError,
    StoreError,
)
from safedelete.ports import Proof, Verdict
from safedelete.runner.ending import verdict
from safedelete.testing.memory import Call, Policy
from tests.worlds import BUCKET, World, batches_of, on

S, X, T = RunState, ExitCode, Tally
CLEAN = T()


@pytest.mark.parametrize(
    ("total", "owed", "inherited", "state", "code"),
    [
        (T(), 0, CLEAN, S.SUCCEEDED, X.DONE),
        (T(deleted=3), 3, CLEAN, S.SUCCEEDED, X.DONE),
        (T(gone=3), 3, CLEAN, S.SUCCEEDED, X.DONE),
        (T(deleted=1, changed=1, blocked=1), 3, CLEAN, S.SUCCEEDED, X.DONE),
        (T(changed=2, blocked=1), 3, CLEAN, S.INCOMPLETE, X.INCOMPLETE),
        (T(deleted=2, blocked=1, locked=1), 3, CLEAN, S.INCOMPLETE, X.INCOMPLETE),
        (T(deleted=2, failed=1), 3, CLEAN, S.FAILED, X.STORE),
        (T(deleted=2, unknown=1), 3, CLEAN, S.FAILED, X.STORE),
        (T(deleted=1, failed=1, blocked=1, locked=1), 3, CLEAN, S.FAILED, X.STORE),
        (T(deleted=2), 3, CLEAN, S.FAILED, X.STORE),
        (T(deleted=4), 3, CLEAN, S.FAILED, X.STORE),
        (T(deleted=3), 3, T(blocked=9, gone=1), S.SUCCEEDED, X.DONE),
        (T(deleted=3), 3, T(failed=1), S.SUCCEEDED, X.STORE),
        (T(blocked=3, locked=3), 3, T(unknown=1), S.INCOMPLETE, X.STORE),
        (T(), 0, T(failed=2), S.SUCCEEDED, X.STORE),
    ],
)
def test_the_verdict(total: Tally, owed: int, inherited: Tally, state: RunState, code: ExitCode) -> None:
    assert verdict(total, owed, inherited)[:2] == (state, code)


@pytest.mark.parametrize(
    ("total", "owed", "state", "code"),
    [
        (T(), 0, S.INCOMPLETE, X.INCOMPLETE),
        (T(deleted=3), 3, S.INCOMPLETE, X.INCOMPLETE),
        (T(deleted=2, failed=1), 3, S.FAILED, X.STORE),
    ],
)
def test_what_is_due_and_was_not_sealed_is_no_success(
    total: Tally, owed: int, state: RunState, code: ExitCode
) -> None:
    assert verdict(total, owed, CLEAN, ["events"])[:2] == (state, code)


def sealing_nothing(world: World, after: Callable[[], None] = lambda: None) -> Any:
    """Run where the scan that seals finds nothing, though the count did."""
    process = world.process()

    def scan(*_: object, **__: object) -> Any:
        after()
        return iter(())

    process.rows.scan = scan  # type: ignore[method-assign]
    return process.run()


def test_a_run_that_counts_items_and_seals_none_says_so() -> None:
    report = sealing_nothing(World(expired=3))
    assert (report.state, report.exit_code) == (S.INCOMPLETE, X.INCOMPLETE)
    assert "of uploads items are due and none could be sealed" in report.message


def test_items_that_went_before_they_were_sealed_are_nothing_to_tell_of() -> None:
    world = World(expired=3)
    report = sealing_nothing(world, after=world.table.rows.clear)
    assert (report.state, report.exit_code) == (S.SUCCEEDED, X.DONE)


TALLIES = st.builds(T, *[st.integers(0, 5)] * 6)


@given(TALLIES, st.integers(0, 30), TALLIES)
def test_success_means_that_nothing_failed_and_something_was_done(
    total: Tally, owed: int, inherited: Tally
) -> None:
    state, code, message = verdict(total, owed, inherited)
    if state is S.SUCCEEDED:
        assert total.total == owed
        assert total.clean
        assert not owed or total.deleted + total.gone
    assert (code is X.DONE) <= (state is S.SUCCEEDED and inherited.clean)
    assert message.endswith(".")


# --- what stopped it ---


def test_a_lost_lease_is_recorded_as_interrupted_with_its_exit_code() -> None:
    world = World(expired=3)
    with pytest.raises(LockLostError):
        world.process(at=on("objects.delete", lambda: world.clock.freeze(61))).run()
    assert (world.last().state, world.last().exit_code) == (S.INTERRUPTED, X.LOCK_LOST)


def test_the_deadline_ends_a_run_between_two_batches() -> None:
    world = World(expired=6)
    process = world.process(
        timeout=timedelta(minutes=5), at=on("batch.commit", lambda: world.clock.advance(301), moment="after")
    )
    with batches_of(2), pytest.raises(DeadlineExceededError) as caught:
        process.run()
    assert caught.value.deleted == 2
    assert (world.last().state, world.last().tally["uploads"].deleted) == (S.INTERRUPTED, 2)
    with batches_of(2):
        assert world.process("host:2").run().total.deleted == 6


@pytest.mark.parametrize("name", ["rows.survey", "rows.scan", "ledger.seal"])
@pytest.mark.parametrize("fails", [True, False])
def test_a_stop_before_the_first_delete_ends_as_interrupted_whatever_the_cancelled_call_said(
    name: str, fails: bool
) -> None:
    world = World(expired=3)
    asked: list[str] = []

    def cancel() -> None:
        asked.append("SIGTERM")
        if fails:
            raise StoreError("canceling statement due to user request")

    process = world.process(at=on(name, cancel), asked=lambda: asked[0] if asked else None)
    with pytest.raises(InterruptedRunError, match="before it had deleted anything") as caught:
        process.run()
    assert (caught.value.exit_code, caught.value.deleted) == (X.INCOMPLETE, 0)
    assert (world.last().state, world.last().exit_code) == (S.INTERRUPTED, X.INCOMPLETE)
    assert world.process("host:2").run().total.deleted == 3


@pytest.mark.parametrize("when", ["plan", "seal"])
def test_a_probe_that_was_cancelled_is_no_missing_permission(when: str) -> None:
    world = World(expired=3)
    asked: list[str] = []
    process = world.process(asked=lambda: asked[0] if asked else None)
    probe, probed = process.prober.probe, []

    def cancelled(*arguments: Any) -> Any:
        probed.append(1)
        if len(probed) == (1 if when == "plan" else 2):
            asked.append("SIGTERM")
            return [Proof("DELETE on uploads", Verdict.UNKNOWN, "canceled")]
        return probe(*arguments)

    process.prober.probe = cancelled  # type: ignore[method-assign]
    with pytest.raises(InterruptedRunError):
        process.run()
    assert world.last().state is S.INTERRUPTED


def always(name: str, act: Callable[[], None]) -> Callable[[Call], None]:
    """Act after every call of a name."""

    def at(call: Call) -> None:
        if call.name == name and call.moment == "after":
            act()

    return at


def test_a_run_that_ends_in_doubt_does_not_say_that_nothing_was_deleted() -> None:
    """The store carried the deletes out, and its answers were lost."""
    world = World(expired=3)

    def lost() -> None:
        raise StoreError("the connection was reset")

    with pytest.raises(StoreError) as caught:
        world.process(at=always("objects.delete", lost)).run()
    assert caught.value.deleted is None
    assert "could not be determined" in caught.value.deleted_sentence
    assert world.process("host:2").run().exit_code is X.DONE


def test_a_stop_while_looking_again_is_no_failure_of_the_store() -> None:
    world = World(expired=3)
    asked: list[str] = []

    def cancel() -> None:
        asked.append("SIGTERM")
        raise StoreError("canceling statement due to user request")

    process = world.process(at=on("rows.present", cancel), asked=lambda: asked[0] if asked else None)
    with pytest.raises(InterruptedRunError) as caught:
        process.run()
    assert caught.value.deleted == 3
    assert world.last().exit_code == X.INCOMPLETE
    assert world.process("host:2").run().exit_code is X.DONE


def failing_ledger(world: World, after: str) -> pytest.ExceptionInfo[BaseException]:
    """Let a store fail, and from then on the ledger too."""
    broken = []

    def at(call: object) -> None:
        name = call.name  # type: ignore[attr-defined]
        if broken and name.startswith("ledger"):
            raise LedgerError("the ledger does not answer")
        if name == after:
            broken.append(True)
            raise StoreError("the database does not answer")

    with pytest.raises(StoreError) as caught:
        world.process(at=at).run()
    return caught


@pytest.mark.parametrize("after", ["rows.survey", "rows.scan"])
def test_a_ledger_that_fails_as_well_does_not_hide_the_first_error(after: str) -> None:
    world = World(expired=3)
    assert "the database does not answer" in str(failing_ledger(world, after).value)
    assert world.last().state is S.PLANNING
    assert world.process("host:2").run().exit_code is X.DONE
    assert world.ledger.record("RUN00001").state is S.ABANDONED


@pytest.mark.parametrize("name", ["rows.survey", "ledger.history", "rows.scan", "ledger.seal"])
def test_whatever_fails_before_the_first_delete_ends_the_run_as_failed(name: str) -> None:
    world = World(expired=3)

    def fail() -> None:
        raise StoreError("broken")

    with pytest.raises(StoreError):
        world.process(at=on(name, fail, nth=1)).run()
    assert world.last().state is S.FAILED
    assert not list(world.ledger.batches(world.last().run))
    assert all(world.has_row(n) for n in range(3))


@pytest.mark.parametrize("name", ["ledger.tally", "ledger.sealed", "ledger.runs", "ledger.move"])
def test_a_ledger_that_fails_after_the_last_delete_does_not_say_that_nothing_was_deleted(name: str) -> None:
    world = World(expired=3)
    done: list[str] = []

    def at(call: Call) -> None:
        if call.name == "rows.present" and call.moment == "after":
            done.append("verified")
        if call.name == name and done == ["verified"]:
            done.append("failed")
            raise LedgerError("the ledger does not answer")

    with pytest.raises(LedgerError) as caught:
        world.process(at=at).run()
    assert caught.value.deleted == 3
    assert world.last().state is S.INTERRUPTED
    assert world.process("host:2").run().exit_code is X.DONE


def test_a_report_names_the_items_that_failed_at_most_twenty() -> None:
    world = World(expired=30)

    def deny() -> None:
        for number in range(25):
            world.objects.policies[BUCKET, f"{number}.jpg"] = Policy.DENIED

    report = world.process(at=on("objects.delete", deny)).run()
    assert (len(report.failed), report.failed_count) == (20, 25)
    assert report.failed[0].key == (0,)
    assert report.failed[0].objects == (f"s3://{BUCKET}/0.jpg",)
    assert report.failed[0].code == "AccessDenied"
    document = report_document(report)
    assert (len(document["failed"]), document["failed_count"]) == (20, 25)
    assert document["failed"][0]["key"] == [0]


def test_a_run_that_is_over_stays_so_when_its_failed_items_cannot_be_read() -> None:
    world = World(expired=3)
    over: list[bool] = []

    def at(call: Call) -> None:
        deny(call)
        if call.name == "ledger.move" and world.last().state is S.FAILED:
            over.append(True)
        if call.name == "ledger.batches" and over:
            raise LedgerError("the ledger does not answer")

    def one() -> None:
        world.objects.policies[BUCKET, "1.jpg"] = Policy.DENIED

    deny = on("objects.delete", one)
    report = world.process(at=at).run()
    assert over
    assert (report.exit_code, report.failed, report.failed_count) == (X.STORE, (), 1)


def test_an_interrupt_from_the_keyboard_leaves_a_run_that_is_resumed() -> None:
    world = World(expired=3)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.process(at=on("batch.delete", interrupt)).run()
    assert world.last().state is S.INTERRUPTED
    assert world.process("host:2").run().resumed


def test_the_lock_is_given_back_however_a_run_ends() -> None:
    world = World(expired=3)
    with pytest.raises(StoreError):
        failing(world)
    assert world.process("host:2").run().exit_code is X.DONE  # no waiting for the lease to end


def failing(world: World) -> None:
    def fail() -> None:
        raise StoreError("broken")

    world.process(at=on("rows.survey", fail)).run()
