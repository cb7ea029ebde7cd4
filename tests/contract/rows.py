"""What every ``RowTarget`` promises, whatever it is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.item import Key, ObjectRef, SealedRow
from safedelete.core.outcome import GONE, LOCKED, Outcome
from safedelete.errors import StoreError
from safedelete.ports import RowTarget

AS_OF = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUCKET = "acme-uploads"


@dataclass
class Table:
    """A table under test: its target, and the application's hand on it.

    Attributes:
        target: What is tested.
        put: Insert (number, expires at, object key, parent or None), committed.
        keep: Make a row not match any more, committed.
        rename: Let a row name another object, committed.
        remove: Delete a row, committed.
        lock: Lock a row in a transaction that stays open; returns what ends it.
        numbers: The rows there are, by another connection.
        locks_rows: Whether a row can be locked by somebody else while a batch begins.
        may_lock: Whether the batch's own role may.
    """

    target: RowTarget
    put: Callable[[int, datetime | None, str, int | None], None]
    keep: Callable[[int], None]
    rename: Callable[[int, str], None]
    remove: Callable[[int], None]
    lock: Callable[[int], Callable[[], None]]
    numbers: Callable[[], set[int]]
    locks_rows: bool = True
    may_lock: bool = True


def row(number: int, key: str | None = None) -> SealedRow:
    return SealedRow((number,), (ObjectRef(BUCKET, key or f"{number}.jpg"),))


class RowTargetContract:
    """Inherit, and give a fixture ``table``: a Table with no row in it."""

    @pytest.fixture
    def filled(self, table: Table) -> Table:
        """Rows 1 to 4 are eligible, the oldest first; 5 expires at the instant itself, 6 later, 7 never."""
        for number in range(1, 5):
            table.put(number, AS_OF - timedelta(days=10 - number), f"{number}.jpg", None)
        table.put(5, AS_OF, "5.jpg", None)
        table.put(6, AS_OF + timedelta(seconds=1), "6.jpg", None)
        table.put(7, None, "7.jpg", None)
        return table

    # --- planning

    def test_a_survey_counts_what_is_older_exclusively_and_tells_of_nulls(self, filled: Table) -> None:
        plan = filled.target.survey(AS_OF, portion=None, since=None)
        assert (plan.items, plan.eligible, plan.total, plan.nulls) == (4, 4, 7, 1)
        assert (plan.name, plan.kind) == (filled.target.name, "rows")
        assert plan.objects == 4

    def test_a_survey_counts_the_portion_beside_the_whole(self, filled: Table) -> None:
        plan = filled.target.survey(AS_OF, portion=3, since=None)
        assert (plan.items, plan.eligible) == (3, 4)

    def test_surveying_and_scanning_are_idempotent_and_change_nothing(self, filled: Table) -> None:
        first = filled.target.survey(AS_OF, portion=None, since=None)
        pages = list(filled.target.scan(AS_OF, batch=2, portion=None))
        assert filled.target.survey(AS_OF, portion=None, since=None) == first
        assert list(filled.target.scan(AS_OF, batch=2, portion=None)) == pages
        assert filled.numbers() == set(range(1, 8))

    def test_a_scan_yields_the_rows_by_key_with_what_they_name(self, filled: Table) -> None:
        pages = list(filled.target.scan(AS_OF, batch=3, portion=None))
        assert [[r.key for r in page] for page in pages] == [[(1,), (2,), (3,)], [(4,)]]
        assert [(ref.bucket, ref.key) for ref in pages[0][0].objects] == [(BUCKET, "1.jpg")]

    def test_a_scan_of_a_portion_yields_the_oldest(self, table: Table) -> None:
        for number, days in ((1, 1), (2, 9), (3, 5), (4, 7)):
            table.put(number, AS_OF - timedelta(days=days), f"{number}.jpg", None)
        found = [r.key for page in table.target.scan(AS_OF, batch=10, portion=2) for r in page]
        assert found == [(2,), (4,)]

    def test_an_empty_table_is_zero_and_no_page(self, table: Table) -> None:
        assert table.target.survey(AS_OF, portion=None, since=None).items == 0
        assert list(table.target.scan(AS_OF, batch=10, portion=None)) == []

    # --- holding

    def test_holding_deletes_nothing_for_good(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        held = batch.hold([row(1), row(2)])
        batch.rollback()
        assert {r.key for r in held.rows} == {(1,), (2,)}
        assert not held.missing
        assert filled.numbers() == set(range(1, 8))

    def test_what_is_not_held_is_named_with_its_reason(self, filled: Table) -> None:
        filled.remove(1)
        filled.keep(2)
        filled.rename(3, "new.jpg")
        batch = filled.target.begin(AS_OF)
        held = batch.hold([row(1), row(2), row(3), row(4)])
        batch.rollback()
        assert [r.key for r in held.rows] == [(4,)]
        assert held.missing[1,].state is GONE.state
        assert held.missing[2,].state is Outcome.CHANGED
        assert held.missing[3,].state is Outcome.CHANGED
        assert held.named[2,] == {(BUCKET, "2.jpg")}
        assert held.named[3,] == {(BUCKET, "new.jpg")}
        assert (1,) not in held.named

    def test_a_row_that_another_transaction_holds_is_skipped(self, filled: Table) -> None:
        if not filled.locks_rows:
            pytest.skip("a database that locks as a whole has no row that is locked alone")
        free = filled.lock(2)
        batch = filled.target.begin(AS_OF)
        try:
            held = batch.hold([row(1), row(2)])
            assert [r.key for r in held.rows] == [(1,)]
            assert (held.missing[2,].state, held.missing[2,].code) == (Outcome.BLOCKED, LOCKED)
        finally:
            batch.rollback()
            free()

    # --- deleting

    def test_nothing_shows_before_the_commit_and_everything_after(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        held = batch.hold([row(1), row(2)])
        deletion = batch.delete(held.rows)
        assert {r.key for r in deletion.rows} == {(1,), (2,)}
        assert not deletion.kept
        assert filled.numbers() == set(range(1, 8))
        batch.commit()
        assert filled.numbers() == {3, 4, 5, 6, 7}

    def test_the_rows_touched_are_counted_by_table(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        deletion = batch.delete(batch.hold([row(1), row(2)]).rows)
        batch.rollback()
        assert deletion.touched is None or deletion.touched[filled.target.name] == 2

    def test_a_rollback_undoes_everything_and_never_raises(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        batch.delete(batch.hold([row(1)]).rows)
        batch.rollback()
        batch.rollback()
        assert filled.numbers() == set(range(1, 8))

    def test_an_undone_delete_may_be_made_again_with_fewer_rows(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        held = batch.hold([row(1), row(2), row(3)])
        batch.delete(held.rows)
        batch.undo()
        again = batch.delete([r for r in held.rows if r.key != (2,)])
        assert {r.key for r in again.rows} == {(1,), (3,)}
        batch.commit()
        assert filled.numbers() == {2, 4, 5, 6, 7}

    def test_after_an_undo_nothing_is_deleted(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        batch.delete(batch.hold([row(1)]).rows)
        batch.undo()
        batch.commit()
        assert filled.numbers() == set(range(1, 8))

    def test_no_rows_are_no_trouble(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        assert batch.hold([]).rows == ()
        assert batch.delete([]).rows == ()
        batch.commit()
        assert filled.numbers() == set(range(1, 8))

    def test_a_row_that_was_not_held_is_not_deleted(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        batch.hold([row(1)])
        with pytest.raises(StoreError):
            batch.delete([row(1), row(2)])
        batch.rollback()
        assert filled.numbers() == set(range(1, 8))

    def test_a_row_the_database_refuses_takes_no_other_with_it(self, filled: Table) -> None:
        filled.put(8, None, "8.jpg", 2)  # a row that is kept references row 2
        batch = filled.target.begin(AS_OF)
        held = batch.hold([row(1), row(2), row(3)])
        deletion = batch.delete(held.rows)
        refused = dict(held.missing) | dict(deletion.kept)
        assert {key: o.state for key, o in refused.items()} == {(2,): Outcome.BLOCKED}
        batch.commit()
        assert filled.numbers() == {2, 4, 5, 6, 7, 8}

    def test_a_batch_sees_which_objects_its_deletes_leave_named(self, filled: Table) -> None:
        filled.put(9, AS_OF - timedelta(days=1), "1.jpg", None)
        batch = filled.target.begin(AS_OF)
        one, two = ObjectRef(BUCKET, "1.jpg"), ObjectRef(BUCKET, "2.jpg")
        held = batch.hold([row(1), row(2)])
        batch.delete(held.rows)
        assert set(batch.named([one, two])) == {one}
        batch.rollback()
        assert set(filled.target.named([one, two])) == {one, two}

    # --- the transaction

    def test_an_open_transaction_is_alive_and_an_ended_one_is_not(self, filled: Table) -> None:
        batch = filled.target.begin(AS_OF)
        batch.hold([row(1)])
        batch.prove_alive()
        batch.rollback()
        with pytest.raises(Exception) as caught:
            batch.prove_alive()
        assert caught.type.__name__ in ("StoreError", "ResourceClosedError"), caught.value

    def test_a_batch_and_the_target_know_their_database(self, filled: Table) -> None:
        one, two = filled.target.begin(AS_OF), None
        identity = one.database
        one.rollback()
        two = filled.target.begin(AS_OF)
        assert identity
        assert two.database == identity
        two.rollback()

    # --- looking

    def test_present_says_which_keys_exist_whatever_they_look_like(self, filled: Table) -> None:
        filled.keep(2)
        keys: list[Key] = [(1,), (2,), (99,)]
        assert set(filled.target.present(keys)) == {(1,), (2,)}
        assert set(filled.target.present([])) == set()

    def test_cancelling_is_idempotent_and_never_raises(self, filled: Table) -> None:
        filled.target.cancel()
        filled.target.cancel()
        assert filled.numbers() == set(range(1, 8))
