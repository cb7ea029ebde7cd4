"""Rows that are held by deleting them uncommitted: without the right to lock, or without objects to wait for."""

from __future__ import annotations

import sqlalchemy as sa

from safedelete.core.outcome import DANGLING, LOCKED, Outcome
from tests.sql.acts import children, fill, ids, left, sealed, target
from tests.sql.conftest import AS_OF, Server


class TestWithoutTheRightToLock:
    """The role has SELECT and DELETE only, so rows are held by deleting them uncommitted."""

    GRANT = "GRANT SELECT, DELETE ON uploads"

    def test_rows_are_held_and_deleted(self, pg: Server, uploads: sa.Table) -> None:
        fill(pg, uploads, 4)
        rows = target(pg, uploads, pg.role(self.GRANT))
        batch = rows.begin(AS_OF)
        held = batch.hold(sealed(rows))
        with pg.admin.begin() as other:
            assert other.exec_driver_sql("SELECT 1 FROM uploads FOR UPDATE SKIP LOCKED").all() == []
        done = batch.delete(held.rows)
        assert (ids(done.rows), done.touched) == ([1, 2, 3, 4], {"uploads": 4})
        batch.commit()
        assert left(pg) == []

    def test_changed_renamed_and_gone_rows_are_put_back_and_named(
        self, pg: Server, uploads: sa.Table
    ) -> None:
        fill(pg, uploads, 5)
        rows = target(pg, uploads, pg.role(self.GRANT))
        plan = sealed(rows)
        pg.sql(
            "UPDATE uploads SET hold = true WHERE id = 1",
            "UPDATE uploads SET s3_key = 'other' WHERE id = 2",
            "DELETE FROM uploads WHERE id = 3",
        )
        batch = rows.begin(AS_OF)
        held = batch.hold(plan)
        assert ids(held.rows) == [4, 5]
        assert {k[0]: o.state for k, o in held.missing.items()} == {
            1: Outcome.CHANGED,
            2: Outcome.CHANGED,
            3: Outcome.GONE,
        }
        assert held.named[(2,)] == {("acme-uploads", "other")}
        assert batch.delete(held.rows).touched == {"uploads": 2}
        batch.commit()
        assert left(pg) == [1, 2]

    def test_locked_row_is_blocked(self, pg: Server, uploads: sa.Table) -> None:
        fill(pg, uploads, 4)
        rows = target(pg, uploads, pg.role(self.GRANT))
        plan = sealed(rows)
        with pg.admin.begin() as other:
            other.exec_driver_sql("SELECT 1 FROM uploads WHERE id = 2 FOR UPDATE")
            batch = rows.begin(AS_OF)
            held = batch.hold(plan)
            assert ids(held.rows) == [1, 3, 4]
            assert held.missing[(2,)].code == LOCKED
            batch.delete(held.rows)
            batch.commit()
        assert left(pg) == [2]

    def test_referenced_row_is_known_before_any_object_goes(self, pg: Server, uploads: sa.Table) -> None:
        fill(pg, uploads, 4)
        children(pg, "DEFERRABLE INITIALLY DEFERRED")
        rows = target(pg, uploads, pg.role(self.GRANT))
        batch = rows.begin(AS_OF)
        done = batch.delete(batch.hold(sealed(rows)).rows)
        assert ids(done.rows) == [1, 3]
        assert {done.kept[(i,)].code for i in (2, 4)} == {"referenced"}
        batch.commit()
        assert left(pg) == [2, 4]

    def test_row_that_changed_in_the_gap_is_dangling(self, pg: Server, uploads: sa.Table) -> None:
        fill(pg, uploads, 4)
        rows = target(pg, uploads, pg.role(self.GRANT))
        batch = rows.begin(AS_OF)
        held = batch.hold(sealed(rows))
        batch.delete(held.rows)
        batch.undo()
        pg.sql("UPDATE uploads SET hold = true WHERE id = 2", "UPDATE uploads SET s3_key = 'x' WHERE id = 3")
        done = batch.delete([row for row in held.rows if row.key != (4,)])
        assert ids(done.rows) == [1]
        assert {k[0]: (o.state, o.code) for k, o in done.kept.items()} == {
            2: (Outcome.FAILED, DANGLING),
            3: (Outcome.FAILED, DANGLING),
        }
        batch.commit()
        assert left(pg) == [2, 3, 4]


class TestRowsWithoutObjects:
    """Held and deleted by one statement, by a range of keys where that takes exactly the sealed rows."""

    def test_a_range_takes_the_sealed_rows(self, server: Server, uploads: sa.Table) -> None:
        fill(server, uploads, 300)
        rows = target(server, uploads, owns=False)
        plan = sealed(rows)
        batch = rows.begin(AS_OF)
        held = batch.hold(plan[:200])
        assert ids(held.rows) == list(range(1, 201))
        done = batch.delete(held.rows)
        assert (len(done.rows), done.kept, done.touched) == (200, {}, {"uploads": 200})
        batch.commit()
        assert left(server) == list(range(201, 301))

    def test_rows_that_match_since_the_plan_are_kept(self, server: Server, uploads: sa.Table) -> None:
        fill(server, uploads, 300)
        server.sql("UPDATE uploads SET hold = true WHERE mod(id, 3) = 0")
        rows = target(server, uploads, owns=False)
        plan = sealed(rows)
        assert len(plan) == 200
        server.sql(
            "UPDATE uploads SET hold = false WHERE mod(id, 6) = 0",
            "UPDATE uploads SET hold = true WHERE id = 7",
        )
        batch = rows.begin(AS_OF)
        held = batch.hold(plan)
        assert (len(held.rows), held.missing[(7,)].state) == (199, Outcome.CHANGED)
        done = batch.delete(held.rows)
        assert done.touched == {"uploads": 199}
        batch.commit()
        assert left(server) == [i for i in range(1, 301) if i % 3 == 0 or i == 7]

    def test_one_refused_row_stays_alone(self, server: Server, uploads: sa.Table) -> None:
        fill(server, uploads, 300)
        children(server, "")
        rows = target(server, uploads, owns=False)
        batch = rows.begin(AS_OF)
        done = batch.delete(batch.hold(sealed(rows)).rows)
        assert {k[0]: o.code for k, o in done.kept.items()} == {2: "referenced", 4: "referenced"}
        assert (len(done.rows), done.touched) == (298, {"uploads": 298})
        batch.commit()
        assert left(server) == [2, 4]

    def test_undo_and_delete_fewer(self, server: Server, uploads: sa.Table) -> None:
        fill(server, uploads, 120)
        rows = target(server, uploads, owns=False)
        batch = rows.begin(AS_OF)
        held = batch.hold(sealed(rows))
        batch.undo()
        assert len(batch.delete(held.rows[:110]).rows) == 110
        batch.commit()
        assert left(server) == list(range(111, 121))
