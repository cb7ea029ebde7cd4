"""A batch deletes what it holds, and nothing else, whatever happens around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete import Rows, S3Keys, past
from safedelete.core.item import SealedRow
from safedelete.core.outcome import DANGLING, LOCKED, Outcome
from safedelete.errors import StoreError
from safedelete.sql import SqlRows
from tests.sql.conftest import AS_OF, Server, aged


def target(
    server: Server, uploads: sa.Table, role: str | None = None, *, owns: bool = True, **options: Any
) -> SqlRows:
    rows = Rows(
        uploads,
        past(uploads.c.expires_at),
        uploads.c.hold.is_(False),
        owns=S3Keys("acme-uploads", uploads.c.s3_key) if owns else None,
        **options,
    )
    return SqlRows(rows, server.open(role))


def fill(server: Server, uploads: sa.Table, count: int) -> None:
    server.create(uploads)
    server.insert(
        uploads,
        *({"id": i, "expires_at": aged(count - i + 1), "s3_key": f"k/{i}"} for i in range(1, count + 1)),
    )


def sealed(rows: SqlRows, batch: int = 1000) -> list[SealedRow]:
    return [row for page in rows.scan(AS_OF, batch=batch, portion=None) for row in page]


def ids(rows: Sequence[SealedRow]) -> list[int]:
    return [row.key[0] for row in rows]


def left(server: Server) -> list[int]:
    return [row[0] for row in server.rows("SELECT id FROM uploads ORDER BY id")]


def test_what_is_held_is_deleted_and_committed(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 5)
    rows = target(server, uploads)
    plan = sealed(rows)
    batch = rows.begin(AS_OF)
    held = batch.hold(plan[:3])
    assert ids(held.rows) == [1, 2, 3]
    assert not held.missing
    done = batch.delete(held.rows)
    assert ids(done.rows) == [1, 2, 3]
    assert done.touched == {"uploads": 3}
    batch.prove_alive()
    batch.commit()
    assert left(server) == [4, 5]
    assert rows.present([(1,), (4,), (99,)]) == {(4,)}


def test_rollback_leaves_everything(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 3)
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    batch.delete(batch.hold(sealed(rows)).rows)
    batch.rollback()
    batch.rollback()
    assert left(server) == [1, 2, 3]


def test_row_updated_out_of_the_predicate_is_changed_and_kept(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 3)
    rows = target(server, uploads)
    plan = sealed(rows)
    server.sql("UPDATE uploads SET hold = true WHERE id = 2")
    batch = rows.begin(AS_OF)
    held = batch.hold(plan)
    assert ids(held.rows) == [1, 3]
    assert held.missing[(2,)].state is Outcome.CHANGED
    assert held.named[(2,)] == {("acme-uploads", "k/2")}
    batch.delete(held.rows)
    batch.commit()
    assert left(server) == [2]


def test_row_that_names_another_object_now_is_changed_and_kept(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 3)
    rows = target(server, uploads)
    plan = sealed(rows)
    server.sql(
        "UPDATE uploads SET s3_key = 'k/new' WHERE id = 2", "UPDATE uploads SET s3_key = '' WHERE id = 3"
    )
    batch = rows.begin(AS_OF)
    held = batch.hold(plan)
    assert ids(held.rows) == [1]
    assert [held.missing[k].state for k in ((2,), (3,))] == [Outcome.CHANGED] * 2
    assert held.named[(2,)] == {("acme-uploads", "k/new")}
    assert held.named[(3,)] == frozenset()
    batch.rollback()


def test_row_that_is_gone_is_gone(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 2)
    rows = target(server, uploads)
    plan = sealed(rows)
    server.sql("DELETE FROM uploads WHERE id = 1")
    batch = rows.begin(AS_OF)
    held = batch.hold(plan)
    assert held.missing[(1,)].state is Outcome.GONE
    assert (1,) not in held.named
    batch.rollback()


def test_locked_row_is_blocked_and_not_waited_for(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 3)
    rows = target(pg, uploads)
    plan = sealed(rows)
    with pg.admin.begin() as other:
        other.exec_driver_sql("SELECT 1 FROM uploads WHERE id = 2 FOR UPDATE")
        batch = rows.begin(AS_OF)
        held = batch.hold(plan)
        assert ids(held.rows) == [1, 3]
        assert (held.missing[(2,)].state, held.missing[(2,)].code) == (Outcome.BLOCKED, LOCKED)
        assert batch.delete(held.rows).touched == {"uploads": 2}
        batch.commit()
    assert left(pg) == [2]


def test_undo_gives_rows_back_and_still_holds_them(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 3)
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    batch.delete(held.rows)
    batch.undo()
    if server.kind == "postgresql":
        with server.admin.begin() as other:
            found = other.exec_driver_sql("SELECT id FROM uploads FOR UPDATE SKIP LOCKED").all()
        assert found == []
    done = batch.delete(held.rows[1:])
    assert ids(done.rows) == [2, 3]
    assert done.touched == {"uploads": 2}
    batch.commit()
    assert left(server) == [1]


def test_only_held_rows_can_be_deleted(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 3)
    rows = target(server, uploads)
    plan = sealed(rows)
    batch = rows.begin(AS_OF)
    batch.hold(plan[:1])
    with pytest.raises(StoreError, match="without being held"):
        batch.delete(plan)
    batch.rollback()
    assert left(server) == [1, 2, 3]


def children(server: Server, action: str) -> None:
    server.sql(
        f"CREATE TABLE notes (id integer PRIMARY KEY, upload_id bigint REFERENCES uploads (id) {action})",
        "CREATE INDEX notes_upload ON notes (upload_id)",
        "INSERT INTO notes VALUES (1, 2), (2, 2), (3, 4)",
    )


@pytest.mark.parametrize("action", ["", "ON DELETE RESTRICT", "DEFERRABLE INITIALLY DEFERRED"])
def test_row_that_a_foreign_key_holds_is_blocked_and_takes_no_other_with_it(
    server: Server, uploads: sa.Table, action: str
) -> None:
    if "DEFERRABLE" in action and server.kind == "mariadb":
        pytest.skip("InnoDB has no deferred constraints")
    fill(server, uploads, 9)
    children(server, action)
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    done = batch.delete(held.rows)
    assert ids(done.rows) == [1, 3, 5, 6, 7, 8, 9]
    assert {k: (o.state, o.code) for k, o in done.kept.items()} == {
        (2,): (Outcome.BLOCKED, "referenced"),
        (4,): (Outcome.BLOCKED, "referenced"),
    }
    assert all(o.detail for o in done.kept.values())
    assert done.touched == {"uploads": 7}
    batch.commit()
    assert left(server) == [2, 4]


def test_cascade_is_named_with_its_rows(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 4)
    children(server, "ON DELETE CASCADE")
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    done = batch.delete(batch.hold(sealed(rows)).rows)
    assert done.touched == {"uploads": 4, "notes": 3}
    batch.commit()
    assert server.rows("SELECT * FROM notes") == []


def test_touched_leaves_out_what_was_taken_back(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 4)
    children(server, "ON DELETE CASCADE")
    server.sql(
        "CREATE TABLE pins (upload_id bigint PRIMARY KEY REFERENCES uploads (id))",
        "INSERT INTO pins VALUES (2)",
    )
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    done = batch.delete(held.rows)
    assert ids(done.rows) == [1, 3, 4]
    assert done.touched == {"uploads": 3, "notes": 1}
    batch.undo()
    again = batch.delete([row for row in held.rows if row.key != (4,)])
    assert again.touched == {"uploads": 2}
    batch.commit()


AUDIT = {
    "postgresql": (
        "CREATE TABLE audit (id bigint)",
        (
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO audit VALUES (old.id); RETURN old; END $$"
        ),
        "CREATE TRIGGER note BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION note()",
    ),
    "sqlite": (
        "CREATE TABLE audit (id bigint)",
        "CREATE TRIGGER note BEFORE DELETE ON uploads BEGIN INSERT INTO audit VALUES (old.id); END",
    ),
}


def test_table_that_a_trigger_writes_to_is_named(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 4)
    server.sql(*AUDIT[server.kind])
    rows = target(server, uploads, may_touch=["audit"])
    batch = rows.begin(AS_OF)
    touched = batch.delete(batch.hold(sealed(rows)).rows).touched
    # MariaDB does not say what a trigger wrote; the probe names the trigger instead.
    assert touched == ({"uploads": 4} if server.kind == "mariadb" else {"uploads": 4, "audit": 4})
    batch.rollback()


AUDIT["mariadb"] = (
    "CREATE TABLE audit (id bigint)",
    "CREATE TRIGGER note BEFORE DELETE ON uploads FOR EACH ROW INSERT INTO audit VALUES (old.id)",
)
REFUSES = {
    "mariadb": (
        (
            "CREATE TRIGGER refuse BEFORE DELETE ON uploads FOR EACH ROW IF old.id = 3 THEN "
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'legal hold on 3'; END IF"
        ),
    ),
    "postgresql": (
        (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF old.id = 3 THEN RAISE 'legal hold on 3'; END IF; RETURN old; END $$"
        ),
        "CREATE TRIGGER refuse BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "sqlite": (
        "CREATE TRIGGER refuse BEFORE DELETE ON uploads WHEN old.id = 3 BEGIN SELECT RAISE(ABORT, 'legal hold on 3'); END",
    ),
}
EATS = {
    "postgresql": (
        (
            "CREATE FUNCTION eat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF old.id = 3 THEN RETURN NULL; END IF; RETURN old; END $$"
        ),
        "CREATE TRIGGER eat BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION eat()",
    ),
    "sqlite": (
        "CREATE TRIGGER eat BEFORE DELETE ON uploads WHEN old.id = 3 BEGIN SELECT RAISE(IGNORE); END",
    ),
}


def test_row_that_a_trigger_refuses_is_kept_with_the_triggers_words(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, 6)
    server.sql(*REFUSES[server.kind])
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    done = batch.delete(batch.hold(sealed(rows)).rows)
    assert ids(done.rows) == [1, 2, 4, 5, 6]
    assert done.kept[(3,)].state is Outcome.FAILED
    assert "legal hold on 3" in done.kept[(3,)].detail
    batch.commit()
    assert left(server) == [3]


def test_row_that_a_trigger_quietly_keeps_is_failed(server: Server, uploads: sa.Table) -> None:
    if server.kind == "mariadb":
        pytest.skip("a MariaDB trigger cannot keep a row without an error")
    fill(server, uploads, 6)
    server.sql(*EATS[server.kind])
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    done = batch.delete(batch.hold(sealed(rows)).rows)
    assert ids(done.rows) == [1, 2, 4, 5, 6]
    assert (done.kept[(3,)].state, done.kept[(3,)].code) == (Outcome.FAILED, "kept")
    batch.commit()
    assert left(server) == [3]


def test_trigger_that_rolls_everything_back_ends_the_batch(sqlite: Server, uploads: sa.Table) -> None:
    fill(sqlite, uploads, 6)
    sqlite.sql(
        "CREATE TRIGGER stop BEFORE DELETE ON uploads WHEN old.id = 3 BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    )
    rows = target(sqlite, uploads)
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    with pytest.raises(StoreError, match="ended while deleting"):
        batch.delete(held.rows)
    batch.rollback()
    assert left(sqlite) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("rule", ["DO INSTEAD NOTHING", "WHERE old.id = 3 DO INSTEAD NOTHING"])
def test_rule_in_the_deletes_place_keeps_every_row(pg: Server, uploads: sa.Table, rule: str) -> None:
    fill(pg, uploads, 4)
    clause = rule if rule.startswith("DO") else rule.replace("WHERE", "WHERE", 1)
    pg.sql(f"CREATE RULE eat AS ON DELETE TO uploads {clause}")
    rows = target(pg, uploads)
    batch = rows.begin(AS_OF)
    done = batch.delete(batch.hold(sealed(rows)).rows)
    assert done.rows == ()
    assert {o.state for o in done.kept.values()} == {Outcome.FAILED}
    assert len(done.kept) == 4
    batch.commit()
    assert left(pg) == [1, 2, 3, 4]


def test_self_referencing_rows_go_whatever_their_order(server: Server) -> None:
    tree = sa.Table(
        "tree",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("parent", sa.Integer, sa.ForeignKey("tree.id"), index=True),
        sa.Column("at", sa.DateTime),
    )
    server.create(tree)
    for i in range(1, 10):
        server.insert(tree, {"id": i, "parent": i - 1 or None, "at": aged(1)})
    server.sql("INSERT INTO tree VALUES (100, 5, NULL)")  # 5, and so everything above it, stays
    rows = SqlRows(Rows(tree, past(tree.c.at)), server.open())
    batch = rows.begin(AS_OF)
    done = batch.delete(batch.hold(sealed(rows)).rows)
    assert ids(done.rows) == [6, 7, 8, 9]
    assert {o.code for o in done.kept.values()} == {"referenced"}
    batch.commit()
    assert [r[0] for r in server.rows("SELECT id FROM tree ORDER BY id")] == [1, 2, 3, 4, 5, 100]


def test_busy_child_of_a_cascade_blocks_its_parent_alone(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 6)
    children(pg, "ON DELETE CASCADE")
    rows = target(pg, uploads)
    plan = sealed(rows)
    with pg.admin.begin() as other:
        other.exec_driver_sql("SELECT 1 FROM notes WHERE id = 3 FOR UPDATE")
        batch = rows.begin(AS_OF)
        done = batch.delete(batch.hold(plan).rows)
        assert ids(done.rows) == [1, 2, 3, 5, 6]
        assert done.kept[(4,)].code == LOCKED
        assert done.touched == {"uploads": 5, "notes": 2}
        batch.commit()
    assert left(pg) == [4]


def test_lost_connection_is_noticed_before_anything_else_goes(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 3)
    rows = target(pg, uploads)
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    batch.delete(held.rows)
    pid = batch.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    pg.rows(f"SELECT pg_terminate_backend({pid}, 5000)")
    with pytest.raises(StoreError):
        batch.prove_alive()
    with pytest.raises(StoreError):
        batch.commit()
    batch.rollback()
    assert left(pg) == [1, 2, 3]


def test_row_level_security_raises_instead_of_skipping(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 3)
    role = pg.role("GRANT SELECT, DELETE, UPDATE ON uploads")
    rows = target(pg, uploads, role)
    plan = sealed(rows)
    pg.sql(
        "ALTER TABLE uploads ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON uploads FOR DELETE USING (id > 1)",
        "CREATE POLICY q ON uploads FOR SELECT USING (true)",
    )
    batch = rows.begin(AS_OF)
    with pytest.raises(StoreError, match="row-level security"):
        batch.hold(plan)
    batch.rollback()
    assert left(pg) == [1, 2, 3]


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
        held = batch.hold(sealed(rows))
        assert ids(held.rows) == [1, 3]
        assert {held.missing[(i,)].code for i in (2, 4)} == {"referenced"}
        batch.rollback()

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
