"""A batch deletes what it holds, and nothing else, whatever happens around it."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from safedelete import Rows, past
from safedelete.core.item import ObjectRef
from safedelete.core.outcome import LOCKED, Outcome
from safedelete.errors import StoreError
from safedelete.sql import SqlRows
from tests.sql.acts import children, fill, ids, left, sealed, target
from tests.sql.conftest import AS_OF, Server, aged


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


def test_objects_that_another_row_names_are_found_after_the_delete(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 4)
    server.sql(
        "UPDATE uploads SET s3_key = 'same' WHERE id IN (1, 2, 4)",
        "UPDATE uploads SET hold = true WHERE id = 4",
    )
    rows = target(server, uploads)
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    batch.delete(held.rows)
    refs = [
        ObjectRef("acme-uploads", "same"),
        ObjectRef("acme-uploads", "k/3"),
        ObjectRef("acme-other", "same"),
    ]
    assert list(batch.named(refs)) == refs[:1]
    batch.rollback()
