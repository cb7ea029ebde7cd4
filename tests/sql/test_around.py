"""What stands around a table is found before anything is deleted: triggers, children, partitions, the schema that a name means."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from safedelete import Rows, past
from safedelete.errors import ConfigError, UnfitKeysError
from safedelete.ports import Proof, Verdict
from safedelete.sql import Database, SqlProber, SqlRows
from tests.sql.acts import children, fill, keys, sealed, survey, target
from tests.sql.conftest import AS_OF, Server


def probe(rows: SqlRows) -> dict[str, Proof]:
    return {proof.subject: proof for proof in SqlProber(rows).probe(AS_OF, [])}


def bad(proofs: dict[str, Proof]) -> dict[str, Proof]:
    return {subject: proof for subject, proof in proofs.items() if proof.verdict is not Verdict.ALLOWED}


def things(
    server: Server, *columns: sa.Column[Any], database: Database | None = None, **options: Any
) -> SqlRows:
    key = columns or (sa.Column("id", sa.Integer, primary_key=True),)
    table = sa.Table("things", sa.MetaData(), *key, sa.Column("at", sa.DateTime()))
    return SqlRows(Rows(table, past(table.c.at), **options), database or server.open())


# --- triggers -----------------------------------------------------------------------------------------------------------


def test_triggers_are_told_on_sqlite(sqlite: Server, uploads: sa.Table) -> None:
    fill(sqlite, uploads, 1)
    sqlite.sql(
        "CREATE TRIGGER keep BEFORE DELETE ON uploads BEGIN SELECT RAISE(IGNORE); END",
        "CREATE TRIGGER other AFTER UPDATE OF hold ON uploads BEGIN DELETE FROM uploads WHERE 0; END",
    )
    proof = probe(target(sqlite, uploads, owns=False))["triggers on uploads"]
    assert proof.verdict is Verdict.ALLOWED
    assert "fires keep (BEFORE)." in proof.detail
    assert "other" not in proof.detail


def test_what_a_trigger_writes_must_be_named_where_the_server_does_not_say_it(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 1)
    maria.sql(
        "CREATE TABLE audit (id integer)",
        "CREATE TRIGGER t AFTER DELETE ON uploads FOR EACH ROW INSERT INTO `audit` VALUES (OLD.id)",
        "CREATE TRIGGER u AFTER UPDATE ON uploads FOR EACH ROW DELETE FROM others WHERE id = OLD.id",
    )
    denied = bad(probe(target(maria, uploads, owns=False)))["triggers on uploads"]
    assert denied.verdict is Verdict.DENIED
    assert "t (AFTER), which write to audit " in denied.detail
    assert denied.remedy == "Rows(..., may_touch=['audit'])"
    named = probe(target(maria, uploads, owns=False, may_touch=["audit"]))
    assert bad(named) == {}
    assert "t (AFTER)" in named["triggers on uploads"].detail


def test_a_trigger_that_writes_nothing_is_told_and_does_not_stop_a_run(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 1)
    maria.sql(
        "CREATE TRIGGER t BEFORE DELETE ON uploads FOR EACH ROW"
        " IF OLD.hold THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'held'; END IF"
    )
    proofs = probe(target(maria, uploads, owns=False))
    assert bad(proofs) == {}
    assert "t (BEFORE)" in proofs["triggers on uploads"].detail


def test_a_trigger_of_one_partition_is_told(pg: Server) -> None:
    pg.sql(
        "CREATE TABLE things (id int, at timestamp, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF things FOR VALUES FROM (0) TO (10)",
        "CREATE FUNCTION eat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        "CREATE TRIGGER one BEFORE DELETE ON low FOR EACH ROW EXECUTE FUNCTION eat()",
        "CREATE TRIGGER all_of_them AFTER DELETE ON things FOR EACH ROW EXECUTE FUNCTION eat()",
    )
    assert "fires all_of_them (AFTER), one (BEFORE)." in probe(things(pg))["triggers on things"].detail


EATS = "CREATE FUNCTION eat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
SEES = "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$"


@pytest.mark.parametrize(
    ("action", "event"), [("ON DELETE CASCADE", "DELETE"), ("ON DELETE SET NULL", "UPDATE")]
)
def test_a_childs_trigger_that_can_keep_it_without_its_parent_is_denied(
    pg: Server, uploads: sa.Table, action: str, event: str
) -> None:
    fill(pg, uploads, 4)
    children(pg, action)
    pg.sql(
        EATS,
        SEES,
        f"CREATE TRIGGER eat BEFORE {event} ON notes FOR EACH ROW EXECUTE FUNCTION eat()",
        f"CREATE TRIGGER see BEFORE {event} ON notes FOR EACH ROW EXECUTE FUNCTION see()",
        f"CREATE TRIGGER late AFTER {event} ON notes FOR EACH ROW EXECUTE FUNCTION eat()",
    )
    found = bad(probe(target(pg, uploads, owns=False)))
    assert set(found) == {"trigger eat on notes"}
    pg.sql(found["trigger eat on notes"].remedy)
    assert bad(probe(target(pg, uploads, owns=False))) == {}


def test_a_rule_that_stands_in_a_cascades_place_is_denied(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 4)
    children(pg, "ON DELETE CASCADE")
    pg.sql("CREATE RULE keep AS ON DELETE TO notes DO INSTEAD NOTHING")
    found = bad(probe(target(pg, uploads, owns=False)))
    assert set(found) == {"rule keep on notes"}
    pg.sql(found["rule keep on notes"].remedy)
    assert bad(probe(target(pg, uploads, owns=False))) == {}


def test_a_table_that_keeps_what_is_deleted_from_it_is_told(maria: Server, uploads: sa.Table) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    maria.sql("ALTER TABLE uploads ADD SYSTEM VERSIONING", "ALTER TABLE notes ADD SYSTEM VERSIONING")
    rows = target(maria, uploads, owns=False)
    found = bad(probe(rows))
    assert set(found) == {"history of uploads", "history of notes"}
    assert {p.verdict for p in found.values()} == {Verdict.ADVICE}
    assert "DELETE HISTORY" in found["history of uploads"].detail
    # What references it is counted as ever.
    assert survey(rows).cascades[0].rows == 3


# --- foreign keys that do not act, or that nobody sees -----------------------------------------------------------------


def test_foreign_keys_whose_triggers_are_off_are_denied(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 4)
    children(pg, "")
    pg.sql("ALTER TABLE uploads DISABLE TRIGGER ALL")
    found = bad(probe(target(pg, uploads, owns=False)))
    (proof,) = found.values()
    assert proof.subject.startswith("foreign key notes_upload_id_fkey")
    assert proof.verdict is Verdict.DENIED
    pg.sql(proof.remedy)
    assert bad(probe(target(pg, uploads, owns=False))) == {}


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON DELETE SET NULL", ""])
def test_a_foreign_key_that_is_not_enforced_is_denied_and_counts_nothing(
    pg18: Server, uploads: sa.Table, action: str
) -> None:
    fill(pg18, uploads, 4)
    children(pg18, f"{action} NOT ENFORCED")
    pg18.sql(
        "CREATE TABLE crops (id int PRIMARY KEY, upload_id bigint REFERENCES uploads (id) ON DELETE CASCADE)",
        "CREATE INDEX ON crops (upload_id)",
        "CREATE TABLE marks (id int PRIMARY KEY, crop_id int REFERENCES crops (id) NOT ENFORCED)",
        "CREATE INDEX ON marks (crop_id)",
    )
    rows = target(pg18, uploads, owns=False)
    found = bad(probe(rows))
    assert set(found) == {
        "foreign key notes_upload_id_fkey on uploads",
        "foreign key marks_crop_id_fkey on crops",
    }
    assert {p.verdict for p in found.values()} == {Verdict.DENIED}
    assert [c.table for c in survey(rows).cascades] == ["crops"]
    pg18.sql(*(proof.remedy for proof in found.values()))
    rows = target(pg18, uploads, owns=False)
    assert bad(probe(rows)) == {}
    assert sum(c.rows for c in survey(rows).cascades if c.table == "notes") == (3 if action else 2)


def test_a_session_that_takes_itself_for_a_replica_is_denied(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 1)
    pg.sql(f"ALTER DATABASE {pg.url.database} SET session_replication_role = replica")
    (proof,) = bad(probe(target(pg, uploads, owns=False))).values()
    assert proof.subject.startswith("session_replication_role")
    assert proof.remedy.endswith("SET session_replication_role = origin;")


def test_a_role_that_may_not_look_for_hidden_children_is_no_yes(maria: Server, uploads: sa.Table) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    role = maria.role("GRANT SELECT, DELETE, TRIGGER ON uploads")
    rows = target(maria, uploads, role, owns=False)
    # The server keeps it from this role, and would cascade all the same.
    assert rows.schema.foreign_keys == ()
    found = bad(probe(rows))["seeing what references uploads"]
    assert found.verdict is Verdict.UNKNOWN
    assert "only tables that it has some right on" in found.detail
    assert "allow_unseen=True" in found.detail
    assert found.remedy == f"GRANT PROCESS ON *.* TO '{role}'@'%';"
    maria.sql(found.remedy)
    denied = bad(probe(target(maria, uploads, role, owns=False)))["seeing what references uploads"]
    assert denied.verdict is Verdict.DENIED
    assert f"{maria.url.database}.notes references it" in denied.detail
    maria.sql(denied.remedy)
    rows = target(maria, uploads, role, owns=False)
    assert bad(probe(rows)) == {}
    assert survey(rows).cascades[0].rows == 3


def test_a_role_that_reads_every_table_is_kept_from_none_and_needs_no_process(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    role = maria.role("GRANT SELECT ON *.*", "GRANT DELETE, TRIGGER ON uploads")
    rows = target(maria, uploads, role, owns=False)
    assert bad(probe(rows)) == {}
    assert survey(rows).cascades[0].rows == 3


def test_what_nobody_may_look_at_is_accepted_by_the_job_file_alone_and_told_all_the_same(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    maria.sql(
        "CREATE TABLE audit (id integer)",
        "CREATE TRIGGER t AFTER DELETE ON uploads FOR EACH ROW INSERT INTO audit VALUES (OLD.id)",
    )
    role = maria.role("GRANT SELECT, DELETE ON uploads")
    found = bad(probe(target(maria, uploads, role, owns=False, allow_unseen=True)))
    assert {p.verdict for p in found.values()} == {Verdict.ADVICE}
    assert set(found) == {"seeing what references uploads", "triggers on uploads"}
    assert all(p.detail.endswith("Accepted by allow_unseen=True.") for p in found.values())
    # What may be looked at is held to the plan all the same.
    maria.sql(*(proof.remedy for proof in found.values()))
    found = bad(probe(target(maria, uploads, role, owns=False, allow_unseen=True)))
    assert {p.verdict for p in found.values()} == {Verdict.DENIED}


def test_a_table_that_has_nothing_to_do_with_it_may_be_closed_to_the_role(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 4)
    children(maria, "ON DELETE CASCADE")
    maria.sql(
        "CREATE TABLE crops (id integer PRIMARY KEY, note integer REFERENCES notes (id) ON DELETE CASCADE)",
        "INSERT INTO crops VALUES (1, 3)",
        "CREATE TABLE others (id integer PRIMARY KEY, crop integer)",
    )
    # A right on a column makes a table visible, and does not let the role see how it is made.
    role = maria.role(
        "GRANT SELECT, DELETE, TRIGGER ON uploads",
        "GRANT SELECT ON notes",
        "GRANT SELECT ON crops",
        "GRANT SELECT (id) ON others",
        "GRANT PROCESS ON *.*",
    )
    rows = target(maria, uploads, role, owns=False)
    assert bad(probe(rows)) == {}
    assert [(c.table, c.rows) for c in survey(rows).cascades] == [("notes", 3), ("crops", 1)]


@pytest.mark.parametrize("fires", [True, False])
def test_a_role_that_may_not_see_triggers_is_no_yes(maria: Server, uploads: sa.Table, fires: bool) -> None:
    fill(maria, uploads, 4)
    if fires:
        maria.sql(
            "CREATE TABLE audit (id integer)",
            "CREATE TRIGGER t AFTER DELETE ON uploads FOR EACH ROW INSERT INTO audit VALUES (OLD.id)",
        )
    role = maria.role("GRANT SELECT, DELETE ON uploads", "GRANT PROCESS ON *.*")
    found = bad(probe(target(maria, uploads, role, owns=False)))
    assert found["triggers on uploads"].verdict is Verdict.UNKNOWN
    assert set(found) == {"triggers on uploads"}
    assert found["triggers on uploads"].remedy.endswith(f".uploads TO '{role}'@'%';")
    maria.sql(found["triggers on uploads"].remedy)
    found = bad(probe(target(maria, uploads, role, owns=False)))
    assert [p.verdict for p in found.values()] == [Verdict.DENIED] * fires
    assert all("which write to audit" in p.detail for p in found.values())


def test_rights_that_are_held_by_a_role_or_on_a_whole_schema_are_seen(
    maria: Server, uploads: sa.Table
) -> None:
    fill(maria, uploads, 4)
    space = str(maria.url.database).replace("_", r"\_")
    whole = maria.role(f"GRANT SELECT, DELETE, TRIGGER ON `{space}`.*", "GRANT PROCESS ON *.*")
    assert bad(probe(target(maria, uploads, whole, owns=False))) == {}
    member = maria.role("GRANT PROCESS ON *.*")
    maria.sql(
        f"CREATE ROLE of_{member}",
        f"GRANT SELECT, DELETE, TRIGGER ON uploads TO of_{member}",
        f"GRANT of_{member} TO '{member}'@'%'",
        f"SET DEFAULT ROLE of_{member} FOR '{member}'@'%'",
    )
    try:
        assert bad(probe(target(maria, uploads, member, owns=False))) == {}
    finally:
        maria.sql(f"DROP ROLE of_{member}")


# --- names and shapes ---------------------------------------------------------------------------------------------------


def test_a_child_is_known_by_its_name_however_innodb_writes_it(maria: Server) -> None:
    maria.sql(
        "CREATE TABLE `th\u00efngs-1` (id integer PRIMARY KEY, at timestamp)",
        "CREATE TABLE `n\u00f6te s-2` (id integer PRIMARY KEY, thing integer REFERENCES `th\u00efngs-1` (id) ON DELETE CASCADE)",
    )
    table = sa.Table(
        "th\u00efngs-1",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime()),
    )
    declared = Rows(table, past(table.c.at))
    assert bad(probe(SqlRows(declared, maria.open()))) == {}
    role = maria.role("GRANT SELECT, DELETE, TRIGGER ON `th\u00efngs-1`", "GRANT PROCESS ON *.*")
    denied = bad(probe(SqlRows(declared, maria.open(role))))["seeing what references th\u00efngs-1"]
    assert f"{maria.url.database}.n\u00f6te s-2 references it" in denied.detail


def test_a_table_further_down_the_search_path_is_found(pg: Server, uploads: sa.Table) -> None:
    fill(pg, uploads, 4)
    children(pg, "ON DELETE CASCADE")
    role = pg.role("GRANT SELECT, DELETE, UPDATE ON uploads", "GRANT SELECT ON notes")
    pg.sql(f"CREATE SCHEMA {role} AUTHORIZATION {role}")  # "$user" comes first in every search_path
    rows = target(pg, uploads, role, owns=False)
    plan = survey(rows)
    assert (plan.eligible, plan.cascades[0].rows) == (4, 3)
    assert bad(probe(rows)) == {}
    batch = rows.begin(AS_OF)
    touched = batch.delete(batch.hold(sealed(rows)).rows).touched
    batch.rollback()
    assert touched == {"uploads": 4, plan.cascades[0].table: 3}


def test_set_null_of_some_columns_alters_and_does_not_block(pg: Server) -> None:
    pg.sql(
        "CREATE TABLE things (t int, id int, at timestamp, PRIMARY KEY (t, id))",
        "CREATE TABLE kids (id int PRIMARY KEY, t int NOT NULL, p int,"
        " FOREIGN KEY (t, p) REFERENCES things (t, id) ON DELETE SET NULL (p))",
        "CREATE INDEX ON kids (t, p)",
        "INSERT INTO things VALUES (1, 1, '2020-01-01'), (1, 2, '2020-01-01')",
        "INSERT INTO kids VALUES (1, 1, 1), (2, 1, 2)",
    )
    rows = things(
        pg, sa.Column("t", sa.Integer, primary_key=True), sa.Column("id", sa.Integer, primary_key=True)
    )
    (cascade,) = survey(rows).cascades
    assert (cascade.action, cascade.rows) == ("set null", 2)
    assert bad(probe(rows)) == {}


def test_a_partition_in_the_tables_place_is_refused(pg: Server) -> None:
    pg.sql(
        "CREATE TABLE whole (id int, at timestamp, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE things PARTITION OF whole FOR VALUES FROM (0) TO (10)",
    )
    with pytest.raises(ConfigError, match="things is a partition"):
        survey(things(pg))


@pytest.mark.parametrize("words", ["'z', 'a'", "'a', 'z'"])
def test_a_key_that_is_compared_otherwise_than_it_is_ordered_is_refused(maria: Server, words: str) -> None:
    maria.sql(
        f"CREATE TABLE things (kind ENUM({words}), id integer, at timestamp, PRIMARY KEY (kind, id))",
        *(f"INSERT INTO things VALUES ('{k}', {i}, '2020-01-01')" for k in "az" for i in (1, 2)),
    )
    rows = things(
        maria,
        sa.Column("kind", sa.String(9), primary_key=True),
        sa.Column("id", sa.Integer, primary_key=True),
    )
    if words.startswith("'z'"):
        with pytest.raises(ConfigError, match="kind is an ENUM whose words are not in the order"):
            survey(rows)
        return
    assert survey(rows).eligible == 4
    assert keys(rows, batch=3) == [("a", 1), ("a", 2), ("z", 1), ("z", 2)]


def test_a_key_whose_type_the_model_has_wrong_is_told_what_to_do(pg: Server) -> None:
    pg.sql(
        "CREATE TYPE kind AS ENUM ('z', 'a')",
        "CREATE TABLE things (id kind PRIMARY KEY, at timestamp)",
        "INSERT INTO things VALUES ('a', '2020-01-01')",
    )
    with pytest.raises(UnfitKeysError) as error:
        sealed(things(pg, sa.Column("id", sa.String, primary_key=True)))
    assert "correct the model's types" in error.value.hint
