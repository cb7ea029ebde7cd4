"""Each missing right is found before anything is deleted, with the statement that gives it, and probing changes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete import Rows, S3Keys, past
from safedelete.ports import Proof, Verdict
from safedelete.sql import Database, SqlProber, SqlRows
from tests.sql.conftest import AS_OF, Server, aged


def declared(uploads: sa.Table) -> Rows:
    holds = sa.Table("holds", uploads.metadata, sa.Column("upload_id", sa.BigInteger), extend_existing=True)
    return Rows(
        uploads,
        past(uploads.c.expires_at),
        uploads.c.hold.is_(False),
        ~sa.exists().where(holds.c.upload_id == uploads.c.id),
        owns=S3Keys("acme-uploads", uploads.c.s3_key),
    )


def make(server: Server, uploads: sa.Table) -> Rows:
    rows = declared(uploads)
    uploads.metadata.create_all(server.admin)
    server.insert(uploads, {"id": 1, "expires_at": aged(1), "s3_key": "a"})
    return rows


def probe(rows: Rows, database: Database) -> dict[str, Proof]:
    return {proof.subject: proof for proof in SqlProber(SqlRows(rows, database)).probe(AS_OF, [])}


def bad(proofs: dict[str, Proof]) -> dict[str, Proof]:
    return {subject: proof for subject, proof in proofs.items() if proof.verdict is not Verdict.ALLOWED}


def test_a_role_with_every_grant_is_cleared(server: Server, uploads: sa.Table) -> None:
    rows = make(server, uploads)
    before = server.rows("SELECT * FROM uploads")
    assert bad(probe(rows, server.open())) == {}
    assert server.rows("SELECT * FROM uploads") == before
    assert "_safedelete_probe" not in sa.inspect(server.admin).get_table_names()


GRANTS = ("SELECT (id, expires_at, hold, s3_key) ON uploads", "DELETE ON uploads", "SELECT ON holds")
MISSING = {
    "DELETE ON uploads": ("DELETE on uploads", "GRANT DELETE ON uploads TO {role};"),
    "SELECT ON holds": ("SELECT on holds", "GRANT SELECT (upload_id) ON holds TO {role};"),
    "s3_key": ("SELECT on uploads", "GRANT SELECT (s3_key) ON uploads TO {role};"),
    "expires_at": ("SELECT on uploads", "GRANT SELECT (expires_at) ON uploads TO {role};"),
}


def test_the_least_grants_are_enough(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    role = pg.role(*(f"GRANT {grant}" for grant in GRANTS))
    proofs = probe(rows, pg.open(role))
    assert bad(proofs) == {}
    assert proofs["locking rows of uploads"].remedy == f"GRANT UPDATE (id) ON uploads TO {role};"


@pytest.mark.parametrize("missing", MISSING)
def test_one_missing_grant_is_denied_with_its_remedy(pg: Server, uploads: sa.Table, missing: str) -> None:
    rows = make(pg, uploads)
    grants = [g.replace(f", {missing}", "") for g in GRANTS if g != missing]
    role = pg.role(*(f"GRANT {grant}" for grant in grants))
    subject, remedy = MISSING[missing]
    found = bad(probe(rows, pg.open(role)))
    assert found[subject].verdict is Verdict.DENIED
    assert found[subject].remedy == remedy.format(role=role)
    pg.sql(*(proof.remedy for proof in found.values() if proof.remedy))
    assert bad(probe(rows, pg.open(role))) == {}


def test_schema_usage_is_needed(pg: Server) -> None:
    pg.sql("CREATE SCHEMA app", "CREATE TABLE app.things (id int PRIMARY KEY, at timestamp)")
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", sa.DateTime),
        schema="app",
    )
    rows = Rows(table, past(table.c.at))
    role = pg.role("GRANT SELECT, DELETE ON app.things")
    found = bad(probe(rows, pg.open(role)))
    assert found["SELECT on app.things"].remedy == f"GRANT USAGE ON SCHEMA app TO {role};"
    pg.sql(found["SELECT on app.things"].remedy)
    assert bad(probe(rows, pg.open(role))) == {}


def test_owner_of_a_cascaded_child_must_hold_the_right(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    owner = pg.role()
    pg.sql(
        "CREATE TABLE notes (id int PRIMARY KEY, upload_id bigint REFERENCES uploads (id) ON DELETE CASCADE)",
        f"ALTER TABLE notes OWNER TO {owner}",
        f"GRANT USAGE ON SCHEMA public TO {owner}",
        f"REVOKE DELETE ON notes FROM {owner}",
    )
    found = bad(probe(rows, pg.open()))
    assert [p.remedy for p in found.values()] == [f"GRANT DELETE ON notes TO {owner};"]
    pg.sql(*(p.remedy for p in found.values()))
    assert bad(probe(rows, pg.open())) == {}


def test_row_level_security_is_found(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    role = pg.role("GRANT SELECT, DELETE ON uploads", "GRANT SELECT ON holds")
    pg.sql("ALTER TABLE uploads ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON uploads USING (id > 5)")
    found = bad(probe(rows, pg.open(role)))
    assert found["row-level security on uploads"].remedy == f"ALTER ROLE {role} BYPASSRLS;"
    pg.sql(f"ALTER ROLE {role} BYPASSRLS")
    assert bad(probe(rows, pg.open(role))) == {}


def test_read_only_role_is_found(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    role = pg.role("GRANT SELECT, DELETE ON uploads", "GRANT SELECT ON holds")
    pg.sql(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    found = bad(probe(rows, pg.open(role)))
    assert {p.verdict for p in found.values()} == {Verdict.DENIED}
    assert f"ALTER ROLE {role} SET default_transaction_read_only = off;" in {p.remedy for p in found.values()}


def test_a_server_that_does_not_count_what_a_delete_touches_is_denied(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    pg.sql(f"ALTER DATABASE {pg.url.database} SET track_counts = off")
    found = bad(probe(rows, pg.open()))
    (proof,) = found.values()
    assert proof.verdict is Verdict.DENIED
    assert proof.subject.startswith("track_counts")
    assert "track_counts = on" in proof.remedy


def test_rule_and_heirs_are_found(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    pg.sql(
        "CREATE RULE keep AS ON DELETE TO uploads DO INSTEAD NOTHING",
        "CREATE TABLE old_uploads () INHERITS (uploads)",
    )
    found = bad(probe(rows, pg.open()))
    assert found["rule keep on uploads"].remedy == "ALTER TABLE uploads DISABLE RULE keep;"
    assert "old_uploads" in found["inheritance of uploads"].detail


def test_statement_trigger_is_not_fired_by_the_probe(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    pg.sql(
        "CREATE TABLE fired (n int)",
        (
            "CREATE FUNCTION fire() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN PERFORM dblink_is_not_here(); RETURN NULL; END $$"
        ),
        "CREATE TRIGGER fire AFTER DELETE ON uploads FOR EACH STATEMENT EXECUTE FUNCTION fire()",
    )
    proofs = probe(rows, pg.open())
    assert bad(proofs) == {}
    assert "fire (AFTER)" in proofs["triggers on uploads"].detail
    role = pg.role("GRANT SELECT ON uploads, holds")
    assert bad(probe(rows, pg.open(role)))["DELETE on uploads"].verdict is Verdict.DENIED


def test_view_or_missing_table_is_denied(server: Server, uploads: sa.Table) -> None:
    rows = make(server, uploads)
    server.sql("ALTER TABLE uploads RENAME TO kept")
    assert "no table uploads" in bad(probe(rows, server.open()))["table uploads"].detail
    server.sql("CREATE VIEW uploads AS SELECT * FROM kept")
    assert "is a view" in bad(probe(rows, server.open()))["table uploads"].detail


MARIA = ("DELETE ON uploads", "SELECT ON uploads", "SELECT ON holds", "TRIGGER ON uploads", "PROCESS ON *.*")


@pytest.mark.parametrize("missing", [*MARIA, None])
def test_one_missing_grant_is_denied_on_mariadb(
    maria: Server, uploads: sa.Table, missing: str | None
) -> None:
    rows = make(maria, uploads)
    grants = [g for g in MARIA if g != missing]
    role = maria.role(*(f"GRANT {grant}" for grant in grants))
    found = bad(probe(rows, maria.open(role)))
    if missing is None or missing.startswith(("TRIGGER", "PROCESS")):
        assert [p.verdict for p in found.values()] == [Verdict.UNKNOWN] * (missing is not None)
        maria.sql(*(p.remedy for p in found.values()))
        assert bad(probe(rows, maria.open(role))) == {}
        return
    privilege = missing.split()[0]
    assert found[f"{privilege} on uploads"].verdict is Verdict.DENIED
    assert found[f"{privilege} on uploads"].remedy.startswith(f"GRANT {privilege} ON ")
    assert found[f"{privilege} on uploads"].remedy.endswith(f"TO '{role}'@'%';")


def test_missing_column_grant_is_denied_on_mariadb(maria: Server, uploads: sa.Table) -> None:
    rows = make(maria, uploads)
    role = maria.role("GRANT DELETE, SELECT (id, expires_at, hold) ON uploads", "GRANT SELECT ON holds")
    found = bad(probe(rows, maria.open(role)))
    assert found["SELECT on uploads"].verdict is Verdict.DENIED
    assert "s3_key" in found["SELECT on uploads"].detail


def test_read_only_mariadb_is_denied_even_to_an_administrator(maria: Server, uploads: sa.Table) -> None:
    rows = make(maria, uploads)
    maria.sql("SET GLOBAL read_only = ON")
    try:
        found = bad(probe(rows, maria.open()))
    finally:
        maria.sql("SET GLOBAL read_only = OFF")
    assert {p.verdict for p in found.values()} == {Verdict.DENIED}
    assert all("primary" in p.remedy for p in found.values())


def test_sqlite_opened_read_only_is_denied(sqlite: Server, uploads: sa.Table) -> None:
    rows = make(sqlite, uploads)
    sqlite.sql("PRAGMA journal_mode=DELETE")
    path = sqlite.url.database
    database = Database(f"sqlite:///file:{path}?mode=ro&uri=true")
    found = bad(probe(rows, database))
    assert found["DELETE on uploads"].verdict is Verdict.DENIED
    assert "mode=ro" in found["DELETE on uploads"].remedy


def test_sqlite_under_query_only_is_denied(sqlite: Server, uploads: sa.Table) -> None:
    rows = make(sqlite, uploads)
    engine = sa.create_engine(sqlite.url, poolclass=NullPool)

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.execute("PRAGMA query_only=ON")

    assert bad(probe(rows, Database(engine)))["DELETE on uploads"].verdict is Verdict.DENIED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
def test_sqlite_in_an_unwritable_folder_is_denied(sqlite: Server, uploads: sa.Table) -> None:
    rows = make(sqlite, uploads)
    sqlite.sql("PRAGMA journal_mode=DELETE")
    folder = Path(str(sqlite.url.database)).parent
    folder.chmod(0o500)
    try:
        found = bad(probe(rows, sqlite.open()))
        assert Verdict.DENIED in {p.verdict for p in found.values()}
    finally:
        folder.chmod(0o700)


def test_sqlite_held_by_another_writer_is_unknown(sqlite: Server, uploads: sa.Table) -> None:
    rows = make(sqlite, uploads)
    with sqlite.admin.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        found = bad(probe(rows, sqlite.open()))
    assert {p.verdict for p in found.values()} == {Verdict.UNKNOWN}


def test_a_child_that_the_role_may_not_count_is_denied_on_mariadb(maria: Server, uploads: sa.Table) -> None:
    rows = make(maria, uploads)
    maria.sql(
        "CREATE TABLE notes (id int PRIMARY KEY, upload_id bigint REFERENCES uploads (id) ON DELETE CASCADE)",
        "CREATE TABLE marks (id int PRIMARY KEY, note int REFERENCES notes (id) ON DELETE CASCADE)",
    )
    role = maria.role(
        *(f"GRANT {grant}" for grant in MARIA), "GRANT REFERENCES ON notes", "GRANT SELECT ON marks"
    )
    denied = bad(probe(rows, maria.open(role)))
    assert set(denied) == {"counting what references uploads"}
    assert denied["counting what references uploads"].verdict is Verdict.DENIED
    assert "SELECT command denied" in denied["counting what references uploads"].detail
    maria.sql(f"GRANT SELECT (id, upload_id) ON notes TO '{role}'@'%'")
    assert bad(probe(rows, maria.open(role))) == {}


def test_a_session_in_safe_update_mode_is_cleared(maria: Server, uploads: sa.Table) -> None:
    rows = make(maria, uploads)
    engine = sa.create_engine(
        maria.url, poolclass=NullPool, connect_args={"init_command": "SET SESSION sql_safe_updates = 1"}
    )
    maria.opened.append(Database(engine))
    assert bad(probe(rows, maria.opened[-1])) == {}


@pytest.mark.parametrize("engine", ["MyISAM", "Aria"])
def test_a_table_whose_deletes_cannot_be_taken_back_is_denied(
    maria: Server, uploads: sa.Table, engine: str
) -> None:
    rows = make(maria, uploads)
    maria.sql(f"ALTER TABLE uploads ENGINE = {engine}")
    found = bad(probe(rows, maria.open()))["transactions on uploads"]
    assert found.verdict is Verdict.DENIED
    assert f"storage engine, {engine}, has no transactions" in found.detail
    maria.sql(found.remedy)
    assert bad(probe(rows, maria.open())) == {}


def test_row_level_security_that_is_forced_on_the_owner_is_found(pg: Server, uploads: sa.Table) -> None:
    rows = make(pg, uploads)
    owner = pg.role("GRANT SELECT ON holds")
    pg.sql(
        f"ALTER TABLE uploads OWNER TO {owner}",
        "ALTER TABLE uploads ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY p ON uploads USING (id > 5)",
    )
    assert bad(probe(rows, pg.open(owner))) == {}
    pg.sql("ALTER TABLE uploads FORCE ROW LEVEL SECURITY")
    assert "row-level security on uploads" in bad(probe(rows, pg.open(owner)))
