"""Objects that several rows may name: when that has to be asked, and that it is said when asking is slow."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from safedelete import Rows, S3Keys, past
from safedelete.core.item import ObjectRef, Prefix
from safedelete.sql import SqlRows
from tests.sql.acts import fill, sealed, target
from tests.sql.conftest import AS_OF, Server


@pytest.mark.parametrize("indexed", [False, True])
def test_a_plan_says_that_a_key_column_without_an_index_is_looked_up_row_by_row(
    server: Server, uploads: sa.Table, indexed: bool
) -> None:
    fill(server, uploads, 3)
    if indexed:
        length = "(500)" if server.kind.startswith("maria") or server.kind == "mysql" else ""
        server.sql(f"CREATE INDEX by_key ON uploads (s3_key{length})")
    notes = target(server, uploads).survey(AS_OF, portion=None, since=None).notes
    assert any("uploads.s3_key has no index" in note for note in notes) is not indexed


def below(server: Server, uploads: sa.Table, **options: bool) -> SqlRows:
    owns = S3Keys("acme-uploads", prefix=uploads.c.s3_key, **options)
    return SqlRows(Rows(uploads, past(uploads.c.expires_at), owns=owns), server.open())


def test_an_object_is_named_by_every_prefix_above_it_in_whole_segments(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, 3)
    server.sql(
        "UPDATE uploads SET s3_key = 'a/b' WHERE id = 1",
        "UPDATE uploads SET s3_key = 'c/' WHERE id = 2",
        "UPDATE uploads SET s3_key = 'A/x' WHERE id = 3",
    )
    keys = ["a/b/1", "a/b/deep/er", "a/bc/1", "a/b", "c/1", "c", "cc/1", "a/x/1", "A/x/1", "a/b/"]
    refs = [ObjectRef("acme-uploads", key) for key in keys]
    found = below(server, uploads).named([*refs, ObjectRef("acme-other", "a/b/1")])
    assert [ref.key for ref in found] == ["a/b/1", "a/b/deep/er", "c/1", "A/x/1", "a/b/"]


def test_prefixes_share_unless_that_is_ruled_out(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 1)
    server.sql("CREATE UNIQUE INDEX one_each ON uploads (id)")
    assert below(server, uploads).shares_objects
    assert not below(server, uploads, shared=False).shares_objects


def test_what_is_no_prefix_is_left_out_by_the_database_and_when_reading_alike(
    server: Server, uploads: sa.Table
) -> None:
    values = ["ok/1", "", "  ", "/", "/up", "s3://acme-uploads/up", "HTTP://x/y", None, "x" * 1023, "é" * 512]
    fill(server, uploads, len(values))
    with server.open().engine.begin() as connection:
        for number, value in enumerate(values, 1):
            connection.execute(sa.update(uploads).where(uploads.c.id == number).values(s3_key=value))
    rows = below(server, uploads)
    found = {row.key[0]: row.prefixes for row in sealed(rows)}
    assert rows.left_out == 0, "the database has left out what reading would have"
    assert set(found) == {1, 8, 9}
    assert (found[1], found[8]) == ((Prefix("acme-uploads", "ok/1/"),), ())
    assert rows.survey(AS_OF, portion=None, since=None).items == 3


def test_two_spellings_that_a_collation_calls_equal_are_two_objects(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, 2)
    column: sa.ColumnElement[str] = uploads.c.s3_key
    match server.kind:
        case "sqlite":
            column = sa.collate(column, "NOCASE")
        case "postgresql":
            server.sql(
                "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
                "ALTER TABLE uploads ALTER COLUMN s3_key TYPE text COLLATE blind",
            )
        case _:
            server.sql("ALTER TABLE uploads MODIFY s3_key varchar(500) COLLATE utf8mb4_general_ci")
    server.sql(
        "UPDATE uploads SET s3_key = 'u/PHOTO' WHERE id = 1",
        "UPDATE uploads SET s3_key = 'u/photo' WHERE id = 2",
    )
    owns = S3Keys("acme-uploads", column, shared=True)
    rows = SqlRows(Rows(uploads, past(uploads.c.expires_at), owns=owns), server.open())
    asked = [ObjectRef("acme-uploads", key) for key in ("u/PHOTO", "u/photo", "u/Photo")]
    assert [ref.key for ref in rows.named(asked)] == ["u/PHOTO", "u/photo"]
