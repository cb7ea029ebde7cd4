"""A plan's keys name its own rows and no others: what would blur that is refused before anything is sealed."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from safedelete import Rows, S3Keys, past
from safedelete.errors import ConfigError, StoreError, UnfitKeysError
from safedelete.sql import Database, SqlRows
from safedelete.sql.keys import as_asked
from tests.sql.acts import fill, left, sealed, target
from tests.sql.conftest import AS_OF, Server


def tree(server: Server, action: str = "CASCADE") -> sa.Table:
    """Replies that reference each other."""
    table = sa.Table(
        "replies",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("parent", sa.Integer, sa.ForeignKey("replies.id", ondelete=action), index=True),
        sa.Column("expires_at", sa.DateTime(), index=True),
        sa.Column("s3_key", sa.String(200), unique=True),
    )
    server.create(table)
    return table


def survey(*rows: SqlRows) -> None:
    for one in rows:
        one.siblings = rows
    for one in rows:
        one.survey(AS_OF, portion=None, since=None)


def test_a_cascade_into_rows_that_own_objects_is_refused(server: Server) -> None:
    table = tree(server)
    rows = SqlRows(
        Rows(table, past(table.c.expires_at), owns=S3Keys("acme", table.c.s3_key), may_touch=["replies"]),
        server.open(),
    )
    with pytest.raises(ConfigError, match="takes rows whose objects would stay behind"):
        survey(rows)


def test_a_cascade_into_rows_of_the_same_purge_must_be_said(server: Server) -> None:
    table = tree(server)
    with pytest.raises(ConfigError, match=r"may keep"):
        survey(SqlRows(Rows(table, past(table.c.expires_at)), server.open()))
    survey(SqlRows(Rows(table, past(table.c.expires_at), may_touch=["replies"]), server.open()))


def test_a_reference_that_does_not_cascade_is_no_reason_to_refuse(server: Server) -> None:
    table = tree(server, "SET NULL")
    survey(SqlRows(Rows(table, past(table.c.expires_at), owns=S3Keys("acme", table.c.s3_key)), server.open()))


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_rows_behind_an_altered_child_that_follow_it_are_refused_until_it_is_said(
    server: Server, uploads: sa.Table, action: str
) -> None:
    fill(server, uploads, 4)
    server.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, upload_id bigint UNIQUE,"
        " FOREIGN KEY (upload_id) REFERENCES uploads (id) ON DELETE SET NULL)",
        "CREATE TABLE marks (id integer PRIMARY KEY, note bigint,"
        f" FOREIGN KEY (note) REFERENCES notes (upload_id) ON UPDATE {action})",
        "CREATE INDEX marks_note ON marks (note)",
        "INSERT INTO notes VALUES (1, 2), (2, 3)",
        "INSERT INTO marks VALUES (1, 2), (2, 2), (3, 3)",
    )
    with pytest.raises(ConfigError, match=r"marks \(note\) follows ON UPDATE") as error:
        survey(target(server, uploads, owns=False))
    assert "may_touch=['marks']" in error.value.hint
    rows = target(server, uploads, owns=False, may_touch=["marks"])
    plan = rows.survey(AS_OF, portion=None, since=None)
    assert [(c.table, c.action, c.rows) for c in plan.cascades] == [("notes", "set null", 2)]
    batch = rows.begin(AS_OF)
    touched = batch.delete(batch.hold(sealed(rows)).rows).touched
    batch.rollback()
    assert touched is not None
    # MariaDB does not say it, and what it does not say is what has to be accepted.
    assert touched.get("marks", 0) == (0 if server.kind == "mariadb" else 3)


def test_a_row_that_is_altered_before_it_goes_itself_is_no_surprise(server: Server) -> None:
    table = tree(server, "SET NULL")
    due = AS_OF - timedelta(days=1)
    # Four that go, the last two naming the first two, and one that stays and loses its parent.
    for number in range(1, 5):
        server.insert(table, {"id": number, "parent": number - 2 if number > 2 else None, "expires_at": due})
    server.insert(table, {"id": 5, "parent": 1, "expires_at": AS_OF + timedelta(days=1)})
    rows = SqlRows(Rows(table, past(table.c.expires_at)), server.open())
    planned = rows.survey(AS_OF, portion=None, since=None)
    altered = sum(c.rows for c in planned.cascades if c.action == "set null" and isinstance(c.rows, int))
    batch = rows.begin(AS_OF)
    touched = batch.delete(batch.hold(sealed(rows)).rows).touched
    batch.commit()
    assert altered == 1
    assert set(touched or ()) == {"replies"}
    assert server.rows("SELECT id, parent FROM replies") == [(5, None)]


def test_a_model_key_that_is_not_unique_in_the_database_is_refused(server: Server) -> None:
    server.sql(
        "CREATE TABLE events (id integer NOT NULL, day integer NOT NULL, at timestamp, PRIMARY KEY (id, day))"
    )
    model = sa.Table(
        "events", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime())
    )
    with pytest.raises(ConfigError, match="no key is unique over id"):
        SqlRows(Rows(model, past(model.c.at)), server.open()).survey(AS_OF, portion=None, since=None)


def test_an_index_that_failed_to_build_does_not_prove_that_keys_are_not_shared(
    pg: Server, uploads: sa.Table
) -> None:
    fill(pg, uploads, 3)
    pg.sql("UPDATE uploads SET s3_key = 'same'")
    engine = sa.create_engine(pg.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(sa.exc.IntegrityError):
        connection.exec_driver_sql("CREATE UNIQUE INDEX CONCURRENTLY by_key ON uploads (s3_key)")
    engine.dispose()
    assert target(pg, uploads).shares_objects


def test_an_engine_that_renames_schemas_is_refused(server: Server) -> None:
    engine = sa.create_engine(server.url).execution_options(schema_translate_map={None: "other"})
    with pytest.raises(ConfigError, match="schema_translate_map"):
        Database(engine)
    engine.dispose()


def test_a_naive_cutoff_is_utc_whatever_zone_the_session_has(pg: Server) -> None:
    model = sa.Table(
        "up", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime())
    )
    pg.sql("CREATE TABLE up (id integer PRIMARY KEY, at timestamptz)")
    for number, hours in ((1, -1), (2, 5)):
        pg.sql(f"INSERT INTO up VALUES ({number}, '{(AS_OF + timedelta(hours=hours)).isoformat()}')")
    zoned = sa.create_engine(pg.url, connect_args={"options": "-c TimeZone=America/New_York"})
    database = Database(zoned)
    rows = SqlRows(Rows(model, past(model.c.at)), database)
    assert [row.key for row in sealed(rows)] == [(1,)]
    batch = rows.begin(AS_OF)
    held = batch.hold(sealed(rows))
    assert [row.key for row in held.rows] == [(1,)]
    batch.rollback()
    database.dispose()
    zoned.dispose()


def test_keys_that_do_not_find_their_own_rows_are_not_sealed(sqlite: Server) -> None:
    model = sa.Table(
        "t", sa.MetaData(), sa.Column("at", sa.DateTime(), primary_key=True), sa.Column("gone", sa.DateTime())
    )
    # The spelling of CURRENT_TIMESTAMP, which SQLAlchemy reads but does not write.
    sqlite.sql(
        "CREATE TABLE t (at text PRIMARY KEY NOT NULL, gone text)",
        "INSERT INTO t VALUES ('2020-01-01 00:00:00', '2020-01-01 00:00:00')",
    )
    rows = SqlRows(Rows(model, past(model.c.gone)), sqlite.open())
    with pytest.raises(StoreError, match="do not find their own rows"):
        sealed(rows)


def test_a_key_whose_case_changed_is_the_same_key_where_the_database_says_so(sqlite: Server) -> None:
    model = sa.Table(
        "t", sa.MetaData(), sa.Column("name", sa.String, primary_key=True), sa.Column("gone", sa.DateTime())
    )
    sqlite.sql(
        "CREATE TABLE t (name text COLLATE NOCASE PRIMARY KEY NOT NULL, gone text)",
        "INSERT INTO t VALUES ('Ann', '2020-01-01 00:00:00.000000'), ('bob', '2020-01-01 00:00:00.000000')",
    )
    rows = SqlRows(Rows(model, past(model.c.gone)), sqlite.open())
    planned = sealed(rows)
    sqlite.sql("UPDATE t SET name = 'ANN' WHERE name = 'Ann'")
    batch = rows.begin(AS_OF)
    held = batch.hold(planned)
    assert {row.key for row in held.rows} == {("Ann",), ("bob",)}
    deletion = batch.delete(held.rows)
    assert len(deletion.rows) == 2
    assert not deletion.kept
    batch.commit()
    assert not sqlite.rows("SELECT * FROM t")


def test_sealed_keys_of_another_width_are_told_as_such(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 2)
    rows = target(server, uploads)
    with pytest.raises(UnfitKeysError, match=r"2 column\(s\); the table's has 1"):
        rows.present([(1, 2)])


def test_a_row_that_matches_among_the_sealed_ones_and_was_not_sealed_stays(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, 150)
    rows = target(server, uploads, owns=False)
    # Enough keys, and close enough together, for one range to be tried first.
    wanted = [row for row in sealed(rows) if row.key != (75,)]
    batch = rows.begin(AS_OF)
    held = batch.hold(wanted)
    assert len(held.rows) == 149
    assert batch.delete(held.rows).touched == {"uploads": 149}
    batch.commit()
    assert left(server) == [75]


@pytest.mark.parametrize("owns", [False, True])
def test_keys_that_answer_in_another_spelling_are_the_ones_asked_for(maria: Server, owns: bool) -> None:
    model = sa.Table(
        "t",
        sa.MetaData(),
        sa.Column("name", sa.String(30), primary_key=True),
        sa.Column("s3_key", sa.String(30)),
        sa.Column("gone", sa.DateTime()),
    )
    names = ["\u00e9", "\u0153uf", "Bob", "trail", "\u0153il"]
    maria.sql(
        "CREATE TABLE t (name varchar(30) COLLATE utf8mb4_unicode_ci PRIMARY KEY, s3_key varchar(30), gone datetime)",
        *(f"INSERT INTO t VALUES ('{name}', 'k/{i}', '2020-01-01')" for i, name in enumerate(names)),
    )
    keys = S3Keys("acme", model.c.s3_key) if owns else None
    rows = SqlRows(Rows(model, past(model.c.gone), owns=keys), maria.open())
    planned = sealed(rows)
    # Two that no rule of ours can tell, which the database alone knows to be the same.
    for old, new in zip(names, ["e", "oeuf", "BOB", "trail ", "oeil"], strict=True):
        maria.sql(f"UPDATE t SET name = '{new}' WHERE name = '{old}'")
    assert rows.present([(name,) for name in names]) == {(name,) for name in names}
    batch = rows.begin(AS_OF)
    deletion = batch.delete(batch.hold(planned).rows)
    batch.commit()
    assert {row.key for row in deletion.rows} == {(name,) for name in names}
    assert maria.rows("SELECT * FROM t") == []


def test_where_blanks_count_a_key_is_not_taken_for_the_one_with_a_blank() -> None:
    asked = [("a",), ("a ",)]
    assert as_asked({("A",): 1}, asked) == {("a",): 1}
    assert as_asked({("A ",): 1, ("A",): 2}, asked) == {("a ",): 1, ("a",): 2}
    # Either could be meant, so neither is.
    assert as_asked({("\u00e0",): 1}, [("\u00e1",), ("\u00e2",)]) == {("\u00e0",): 1}
    # A number has one spelling.
    assert as_asked({(5,): 1}, [(4,)]) == {(5,): 1}
