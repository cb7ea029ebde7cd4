"""The plan says what goes along with its rows, whatever the shape of the foreign keys."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from safedelete import Rows, past
from safedelete.core.plan import Cascade
from safedelete.errors import ConfigError
from safedelete.sql import SqlRows
from tests.sql.acts import sealed, survey
from tests.sql.conftest import AS_OF, Server

FAMILY = (
    "CREATE TABLE a (id int PRIMARY KEY, code varchar(9) UNIQUE, at timestamp)",
    "CREATE TABLE b (id int PRIMARY KEY, a_id int REFERENCES a (id) ON DELETE CASCADE)",
    "CREATE TABLE c (id int PRIMARY KEY, a_code varchar(9) REFERENCES a (code) ON DELETE CASCADE)",
    "CREATE TABLE d (id int, n int, b_id int REFERENCES b (id) ON DELETE CASCADE, c_id int REFERENCES c (id) ON DELETE CASCADE, PRIMARY KEY (id, n))",
    "CREATE TABLE e (id int PRIMARY KEY, d_id int, d_n int, FOREIGN KEY (d_id, d_n) REFERENCES d (id, n) ON DELETE SET NULL)",
    "CREATE TABLE f (id int PRIMARY KEY, b_id int REFERENCES b (id))",
    "CREATE TABLE g (id int PRIMARY KEY, a_id int REFERENCES a (id) ON DELETE RESTRICT)",
    "INSERT INTO a VALUES (1, 'one', '2020-01-01'), (2, 'two', '2020-01-01'), (3, 'three', '2020-01-01'), (4, 'four', '2030-01-01')",
    "INSERT INTO b VALUES (10, 1), (11, 1), (12, 4), (13, NULL)",
    "INSERT INTO c VALUES (20, 'one'), (21, 'two'), (22, 'four')",
    "INSERT INTO d VALUES (30, 1, 10, 20), (31, 1, 12, 21), (32, 1, 12, 22), (33, 1, NULL, NULL)",
    "INSERT INTO e VALUES (40, 30, 1), (41, 31, 1), (42, 32, 1), (43, NULL, NULL)",
    "INSERT INTO f VALUES (50, 11), (51, 12)",
    "INSERT INTO g VALUES (60, 3), (61, 4)",
)


def family() -> sa.Table:
    return sa.Table(
        "a", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime)
    )


def numbers(cascades: tuple[Cascade, ...]) -> dict[tuple[str, str], Any]:
    return {(c.table, c.action): c.rows for c in cascades}


def test_blast_radius_follows_every_path_once(server: Server) -> None:
    server.sql(*FAMILY)
    table = family()
    plan = survey(SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), server.open()))
    assert numbers(plan.cascades) == {
        ("b", "delete"): 2,
        ("c", "delete"): 2,
        ("d", "delete"): 2,
        ("e", "set null"): 2,
        ("f", "block"): 1,
        ("g", "block"): 1,
    }
    # InnoDB makes the index itself.
    assert any("b (a_id) has no index" in note for note in plan.notes) == (server.kind != "mariadb")


def test_plan_of_the_blast_radius_agrees_with_what_the_database_touches(server: Server) -> None:
    server.sql(*FAMILY, "DELETE FROM f", "DELETE FROM g")
    table = family()
    rows = SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), server.open())
    plan = survey(rows)
    planned = {c.table: c.rows for c in plan.cascades if c.action != "block"}
    batch = rows.begin(AS_OF)
    (page,) = rows.scan(AS_OF, batch=10, portion=None)
    assert batch.delete(batch.hold(page).rows).touched == {"a": 3, **planned}
    batch.rollback()


def test_cascade_into_itself_is_followed_to_the_end(server: Server) -> None:
    server.sql(
        "CREATE TABLE a (id int PRIMARY KEY, parent int REFERENCES a (id) ON DELETE CASCADE, at timestamp)",
        "CREATE TABLE b (id int PRIMARY KEY, a_id int REFERENCES a (id) ON DELETE CASCADE)",
        "INSERT INTO a VALUES (1, NULL, '2020-01-01'), (2, 1, '2030-01-01'), (3, 2, '2030-01-01'), (4, 3, '2020-01-01'), (9, NULL, '2030-01-01')",
        "INSERT INTO b VALUES (1, 3), (2, 9), (3, 1)",
    )
    table = family()
    rows = SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), server.open())
    assert numbers(survey(rows).cascades) == {("a", "delete"): 2, ("b", "delete"): 2}
    batch = rows.begin(AS_OF)
    (page,) = rows.scan(AS_OF, batch=10, portion=None)
    done = batch.delete(batch.hold(page).rows)
    assert len(done.rows) == 2
    assert done.touched == {"a": 4, "b": 2}
    batch.rollback()


def test_planned_children_do_not_block_their_planned_parent(server: Server) -> None:
    server.sql(
        "CREATE TABLE a (id int PRIMARY KEY, parent int REFERENCES a (id), at timestamp)",
        "INSERT INTO a VALUES (1, NULL, '2020-01-01'), (2, 1, '2020-01-01'), (3, 2, '2030-01-01')",
    )
    table = family()
    assert numbers(
        survey(SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), server.open())).cascades
    ) == {("a", "block"): 1}


def test_partition_is_counted_under_its_parents_name(pg: Server) -> None:
    pg.sql(
        "CREATE TABLE a (id int PRIMARY KEY, at timestamp) PARTITION BY RANGE (id)",
        "CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE a2 PARTITION OF a FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE b (id int, a_id int REFERENCES a (id) ON DELETE CASCADE) PARTITION BY RANGE (id)",
        "CREATE TABLE b1 PARTITION OF b FOR VALUES FROM (0) TO (100)",
        "INSERT INTO a VALUES (1, '2020-01-01'), (11, '2020-01-01')",
        "INSERT INTO b VALUES (1, 1), (2, 11), (3, 11)",
    )
    table = family()
    rows = SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), pg.open())
    assert numbers(survey(rows).cascades) == {("b", "delete"): 3}
    (page,) = rows.scan(AS_OF, batch=10, portion=None)
    batch = rows.begin(AS_OF)
    assert batch.delete(batch.hold(page).rows).touched == {"a": 2, "b": 3}
    batch.rollback()


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "NO ACTION"])
@pytest.mark.parametrize("parent", ["low", "things"])
def test_a_foreign_key_onto_a_partition_counts_once_for_the_whole_table(
    pg: Server, parent: str, action: str
) -> None:
    pg.sql(
        "CREATE TABLE things (id int PRIMARY KEY, at timestamp) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF things FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE high PARTITION OF things FOR VALUES FROM (10) TO (20)",
        f"CREATE TABLE kids (id int PRIMARY KEY, thing int REFERENCES {parent} (id) ON DELETE {action})",
        "CREATE INDEX ON kids (thing)",
        "INSERT INTO things VALUES (1, '2020-01-01'), (2, '2020-01-01'), (11, '2020-01-01')",
        "INSERT INTO kids VALUES (1, 1), (2, 2), (3, 2)",
    )
    table = sa.Table(
        "things", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime)
    )
    rows = SqlRows(Rows(table, past(table.c.at)), pg.open())
    said = {"CASCADE": ("delete", 3), "SET NULL": ("set null", 3), "NO ACTION": ("block", 2)}[action]
    assert [(c.table, c.action, c.rows) for c in survey(rows).cascades] == [("kids", *said)]
    batch = rows.begin(AS_OF)
    done = batch.delete(batch.hold(sealed(rows)).rows)
    batch.rollback()
    assert done.touched == ({"things": 1} if action == "NO ACTION" else {"things": 3, "kids": 3})


def test_foreign_keys_of_other_schemas_are_read_on_mariadb(maria: Server) -> None:
    apart, far = (f"{maria.url.database}{part}" for part in ("_apart", "_far"))
    maria.sql(f"CREATE DATABASE {apart}", f"CREATE DATABASE {far}")
    try:
        maria.sql(
            f"CREATE TABLE {apart}.uploads (id integer PRIMARY KEY, expires_at timestamp)",
            f"CREATE TABLE {apart}.notes (id integer PRIMARY KEY, upload_id integer,"
            " FOREIGN KEY (upload_id) REFERENCES uploads (id) ON DELETE CASCADE)",
            f"CREATE TABLE {far}.lines (id integer PRIMARY KEY, note_id integer,"
            f" FOREIGN KEY (note_id) REFERENCES {apart}.notes (id) ON DELETE CASCADE)",
            f"INSERT INTO {apart}.uploads VALUES (1, '2020-01-01')",
            f"INSERT INTO {apart}.notes VALUES (1, 1), (2, 1)",
            f"INSERT INTO {far}.lines VALUES (1, 1), (2, 1), (3, 2)",
        )
        table = sa.Table(
            "uploads",
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True),
            sa.Column("expires_at", sa.DateTime()),
            schema=apart,
        )
        plan = survey(SqlRows(Rows(table, past(table.c.expires_at)), maria.open()))
        assert {c.table: c.rows for c in plan.cascades} == {f"{apart}.notes": 2, f"{far}.lines": 3}
    finally:
        maria.sql(f"DROP DATABASE {far}", f"DROP DATABASE {apart}")


SLOW = (
    "CREATE TABLE a (id int PRIMARY KEY, at timestamp)",
    "CREATE TABLE b (id int PRIMARY KEY, a_id int REFERENCES a (id) ON DELETE CASCADE)",
    "CREATE TABLE c (id int PRIMARY KEY, b_id int REFERENCES b (id) ON DELETE SET NULL)",
)


@pytest.mark.parametrize("kind", ["pg", "sqlite"])
def test_foreign_keys_without_an_index_are_refused_until_they_have_one(
    request: pytest.FixtureRequest, kind: str
) -> None:
    server: Server = request.getfixturevalue(kind)
    server.sql(*SLOW)
    table = family()
    rows = SqlRows(Rows(table, past(table.c.at)), server.open())
    with pytest.raises(ConfigError, match=r"b \(a_id\), by .*; c \(b_id\)") as refused:
        survey(rows)
    *statements, last = refused.value.hint.splitlines()
    assert len(statements) == 2
    assert "allow_unindexed_fk=True" in last
    with server.admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    plan = survey(rows)
    assert not any("has no index" in note for note in plan.notes)


def test_foreign_keys_without_an_index_can_be_accepted_and_are_told(pg: Server) -> None:
    pg.sql(*SLOW)
    table = family()
    plan = survey(SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), pg.open()))
    assert [note.split(" has no")[0] for note in plan.notes if "no index" in note] == ["b (a_id)", "c (b_id)"]


@pytest.mark.parametrize(
    ("index", "serves"),
    [
        ("CREATE INDEX i ON b (a_id) WHERE a_id IS NOT NULL", True),
        ("CREATE INDEX i ON b (a_id, id)", True),
        ("CREATE INDEX i ON b USING hash (a_id)", True),
        ("CREATE INDEX i ON b (a_id) WHERE id > 5", False),
        ("CREATE INDEX i ON b (id, a_id)", False),
        ("CREATE INDEX i ON b (abs(a_id))", False),
        ("CREATE INDEX i ON b USING brin (a_id)", False),
    ],
)
def test_an_index_counts_where_it_finds_the_rows_of_one_parent(pg: Server, index: str, serves: bool) -> None:
    pg.sql(*SLOW[:2], index)
    table = family()
    rows = SqlRows(Rows(table, past(table.c.at)), pg.open())
    if serves:
        survey(rows)
        return
    with pytest.raises(ConfigError, match="without an index"):
        survey(rows)


def test_an_index_that_failed_to_build_does_not_serve_a_foreign_key(pg: Server) -> None:
    pg.sql(*SLOW[:2], "INSERT INTO a VALUES (1, '2020-01-01')", "INSERT INTO b VALUES (1, 1), (2, 1)")
    with (
        pg.admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(sa.exc.IntegrityError),
    ):
        connection.exec_driver_sql("CREATE UNIQUE INDEX CONCURRENTLY i ON b (a_id)")
    table = family()
    with pytest.raises(ConfigError, match="without an index"):
        survey(SqlRows(Rows(table, past(table.c.at)), pg.open()))
