"""What comes between the seal, the count and the delete is neither taken nor left without its parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete import Rows, past
from safedelete.core.item import KeyRows
from safedelete.core.outcome import LOCKED, Outcome
from safedelete.core.seal import RowBatch, decode, encode
from safedelete.errors import BusyError, SchemaChangedError
from safedelete.sql import Database, SqlRows
from tests.sql.acts import children, fill, ids, left, sealed, target
from tests.sql.conftest import AS_OF, Server


def through_the_ledger(rows: SqlRows) -> Any:
    blob = encode(RowBatch(tuple(sealed(rows))))
    back = decode(blob.data, blob.sha256)
    assert isinstance(back, RowBatch)
    return back.rows


@contextmanager
def before_the_delete(rows: SqlRows, act: Callable[[], None]) -> Iterator[None]:
    """Do something in another session right before the batch's first DELETE."""
    done: list[bool] = []

    def look(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE") and not done:
            done.append(True)
            act()

    engine = rows.database.engine
    sa.event.listen(engine, "before_cursor_execute", look)
    try:
        yield
    finally:
        sa.event.remove(engine, "before_cursor_execute", look)
    assert done


def test_rows_that_named_no_object_are_kept_when_they_have_come_to_name_one(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, 4)
    server.sql("UPDATE uploads SET s3_key = NULL")
    rows = target(server, uploads)
    planned = through_the_ledger(rows)
    assert isinstance(planned, KeyRows)  # the form in which nothing is known to be owned
    server.sql("UPDATE uploads SET s3_key = 'new' WHERE id = 2")
    batch = rows.begin(AS_OF)
    held = batch.hold(planned)
    assert held.missing[(2,)].state is Outcome.CHANGED
    assert ids(batch.delete(held.rows).rows) == [1, 3, 4]
    batch.commit()
    assert left(server) == [2]


@pytest.mark.parametrize("level", ["child", "grandchild"])
def test_a_child_that_comes_after_the_count_is_not_taken_uncounted(
    server: Server, uploads: sa.Table, level: str
) -> None:
    if server.kind == "sqlite":
        pytest.skip("a batch holds the whole database, so no child can come")
    fill(server, uploads, 4)
    children(server, "ON DELETE CASCADE")
    server.sql(
        "CREATE TABLE marks (id integer PRIMARY KEY, note integer REFERENCES notes (id) ON DELETE CASCADE)",
        "CREATE INDEX marks_note ON marks (note)",
        "INSERT INTO marks VALUES (1, 1)",
    )
    came: list[str] = []

    def insert() -> None:
        with server.admin.begin() as other:
            wait = (
                "SET innodb_lock_wait_timeout = 1" if server.kind == "mariadb" else "SET lock_timeout = 500"
            )
            other.exec_driver_sql(wait)
            new = "INSERT INTO notes VALUES (9, 1)" if level == "child" else "INSERT INTO marks VALUES (9, 1)"
            try:
                other.exec_driver_sql(new)
            except sa.exc.OperationalError:
                return
        came.append(level)

    rows = target(server, uploads, owns=False)
    planned = through_the_ledger(rows)
    with before_the_delete(rows, insert):
        batch = rows.begin(AS_OF)
        touched = batch.delete(batch.hold(planned).rows).touched
        batch.commit()
    # Either it could not come, or it has been counted with what goes.
    extra = len(came)
    assert touched == {
        "uploads": 4,
        "notes": 3 + (extra if level == "child" else 0),
        "marks": 1 + (extra if level == "grandchild" else 0),
    }


COMES = {
    "foreign key": (
        "CREATE TABLE votes (id integer PRIMARY KEY, upload_id bigint REFERENCES uploads (id) ON DELETE CASCADE)",
        "INSERT INTO votes VALUES (1, 1), (2, 2)",
    ),
    "foreign key below": (
        "CREATE TABLE votes (id integer PRIMARY KEY, note integer REFERENCES notes (id) ON DELETE CASCADE)",
        "INSERT INTO votes VALUES (1, 1), (2, 2)",
    ),
    "another action": (
        (
            "ALTER TABLE bills DROP FOREIGN KEY bills_ibfk_1,"
            " ADD FOREIGN KEY (upload_id) REFERENCES uploads (id) ON DELETE CASCADE"
        ),
    ),
    "trigger": (
        "CREATE TRIGGER late AFTER DELETE ON uploads FOR EACH ROW INSERT INTO votes VALUES (OLD.id, OLD.id)",
    ),
}


@pytest.mark.parametrize("process", [True, False])
@pytest.mark.parametrize("comes", COMES)
@pytest.mark.parametrize("owns", [True, False])
def test_what_comes_around_a_table_while_a_purge_runs_stops_it_before_a_commit(
    maria: Server, uploads: sa.Table, comes: str, owns: bool, process: bool
) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    maria.sql("CREATE TABLE bills (id integer PRIMARY KEY, upload_id bigint REFERENCES uploads (id))")
    if comes == "trigger":
        maria.sql("CREATE TABLE votes (id integer, upload_id bigint)")
    role = maria.role(f"GRANT ALL ON {maria.url.database}.*", *["GRANT PROCESS ON *.*"] * process)
    rows = target(maria, uploads, role, owns=owns, allow_unindexed_fk=True)
    planned = sealed(rows)
    batch = rows.begin(AS_OF)
    assert batch.delete(batch.hold(planned[3:]).rows).touched == {"uploads": 1, "notes": 1}
    batch.commit()
    maria.sql(*COMES[comes])
    batch = rows.begin(AS_OF)
    with pytest.raises(SchemaChangedError, match="around uploads have changed since the run began"):
        batch.delete(batch.hold(planned[:3]).rows)
    batch.rollback()
    assert left(maria) == [1, 2, 3]
    # The next run reads it anew, and counts.
    again = target(maria, uploads, role, owns=owns, allow_unindexed_fk=True)
    batch = again.begin(AS_OF)
    assert len(batch.delete(batch.hold(sealed(again)).rows).rows) == 3
    batch.rollback()


def test_without_returning_a_row_that_another_session_deletes_is_not_called_ours(
    maria: Server, uploads: sa.Table
) -> None:
    maria.returning = False
    fill(maria, uploads, 4)
    rows = target(maria, uploads, owns=False)
    planned = through_the_ledger(rows)
    maria.sql("UPDATE uploads SET hold = 1 WHERE id = 4")
    attempts: list[int] = []

    def look(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not statement.startswith("DELETE"):
            return
        attempts.append(1)
        if len(attempts) == 2:
            with maria.admin.begin() as other:
                other.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
                try:
                    other.exec_driver_sql("DELETE FROM uploads WHERE id = 2")
                except sa.exc.OperationalError:
                    return
            attempts.append(0)

    sa.event.listen(rows.database.engine, "before_cursor_execute", look)
    batch = rows.begin(AS_OF)
    deletion = batch.delete(batch.hold(planned).rows)
    batch.commit()
    assert 0 not in attempts  # held: nobody could come between the looks
    assert ids(deletion.rows) == [1, 2, 3]
    assert left(maria) == [4]


def test_a_server_that_ignores_foreign_keys_and_cuts_answers_short_does_neither_to_a_batch(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 4)
    children(maria, "")
    engine = sa.create_engine(
        maria.url,
        poolclass=NullPool,
        connect_args={"init_command": "SET SESSION foreign_key_checks = 0, sql_select_limit = 1"},
    )
    database = Database(engine)
    maria.opened.append(database)
    rows = SqlRows(target(maria, uploads).rows, database)
    planned = sealed(rows)
    assert ids(planned) == [1, 2, 3, 4]
    _ = rows.schema, database.identity
    # The session that has read is taken, so the batch gets one that has done nothing yet.
    with database.connected():
        batch = rows.begin(AS_OF)
    held = batch.hold(planned)
    assert held.missing == {}
    deletion = batch.delete(held.rows)
    batch.commit()
    assert ids(deletion.rows) == [1, 3]
    assert {o.state for o in deletion.kept.values()} == {Outcome.BLOCKED}
    assert rows.present([(i,) for i in range(1, 5)]) == {(2,), (4,)}
    engine.dispose()


def test_a_tree_deeper_than_innodb_follows_keeps_its_root_alone(server: Server) -> None:
    table = sa.Table(
        "replies",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("parent", sa.Integer, sa.ForeignKey("replies.id", ondelete="CASCADE"), index=True),
        sa.Column("expires_at", sa.DateTime()),
    )
    server.create(table)
    due, kept = AS_OF.replace(year=2020, tzinfo=None), AS_OF.replace(year=2040, tzinfo=None)
    for number in range(1, 21):
        server.insert(
            table, {"id": number, "parent": number - 1 or None, "expires_at": due if number == 1 else kept}
        )
    server.insert(table, {"id": 99, "expires_at": due})
    rows = SqlRows(_tree(table), server.open())
    batch = rows.begin(AS_OF)
    deletion = batch.delete(batch.hold(sealed(rows)).rows)
    batch.commit()
    if server.kind == "mariadb":
        assert ids(deletion.rows) == [99]
        assert deletion.kept[(1,)].state is Outcome.BLOCKED
        assert server.rows("SELECT count(*) FROM replies") == [(20,)]
    else:
        assert ids(deletion.rows) == [1, 99]
        assert server.rows("SELECT count(*) FROM replies") == [(0,)]


def _tree(table: sa.Table) -> Rows:
    return Rows(table, past(table.c.expires_at), may_touch=["replies"])


def test_a_table_that_is_locked_as_a_whole_is_not_waited_for(maria: Server, uploads: sa.Table) -> None:
    fill(maria, uploads, 2)
    rows = target(maria, uploads)
    planned = sealed(rows)
    batch = rows.begin(AS_OF)
    with maria.admin.connect() as other:
        other.exec_driver_sql("LOCK TABLES uploads WRITE")
        with pytest.raises(BusyError):  # by the timeout of a lock, well before that of a statement
            batch.hold(planned)
        other.exec_driver_sql("UNLOCK TABLES")
    batch.rollback()
    assert left(maria) == [1, 2]


def test_a_child_that_comes_below_a_cycle_is_not_taken_uncounted(maria: Server) -> None:
    table = sa.Table(
        "replies",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("parent", sa.Integer, sa.ForeignKey("replies.id", ondelete="CASCADE"), index=True),
        sa.Column("expires_at", sa.DateTime()),
    )
    maria.create(table)
    due, kept = AS_OF.replace(year=2020, tzinfo=None), AS_OF.replace(year=2040, tzinfo=None)
    for number in (1, 2, 3):
        maria.insert(
            table, {"id": number, "parent": number - 1 or None, "expires_at": due if number == 1 else kept}
        )
    came: list[bool] = []

    def insert() -> None:
        with maria.admin.begin() as other:
            other.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
            try:
                other.exec_driver_sql("INSERT INTO replies (id, parent) VALUES (9, 3)")
            except sa.exc.OperationalError:
                return
        came.append(True)

    rows = SqlRows(_tree(table), maria.open())
    planned = sealed(rows)
    with before_the_delete(rows, insert):
        batch = rows.begin(AS_OF)
        touched = batch.delete(batch.hold(planned).rows).touched
        batch.commit()
    assert touched == {"replies": 3 + len(came)}


def test_a_busy_child_blocks_its_parent_alone_though_it_is_locked_to_be_counted(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    maria.sql(
        "CREATE TABLE marks (id integer PRIMARY KEY, note integer REFERENCES notes (id) ON DELETE CASCADE)"
    )
    rows = target(maria, uploads, owns=False)
    planned = sealed(rows)
    batch = rows.begin(AS_OF)
    with maria.admin.begin() as other:
        other.exec_driver_sql("SELECT * FROM notes WHERE id = 3 FOR UPDATE")
        deletion = batch.delete(batch.hold(planned).rows)
    batch.commit()
    assert ids(deletion.rows) == [1, 2, 3]
    assert deletion.kept[(4,)].code == LOCKED
    assert deletion.touched == {"uploads": 3, "notes": 2}
