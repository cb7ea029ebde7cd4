"""What rows name comes in the order of its bytes from every database, and is asked for byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.core.item import ObjectRef
from safedelete.core.orphans import Listed, Verdict, compare
from safedelete.errors import StoreError
from safedelete.ports import ColumnValues
from safedelete.ports import Verdict as Proven
from safedelete.sql.referenced import SqlReferences
from safedelete.sql.referenced_probe import ReferenceProber
from tests.sql.conftest import Server

BUCKET = "acme"
NOW = datetime(2026, 3, 1, tzinfo=UTC)

ODD = [
    "u/A",
    "u/a",
    "u/a ",
    "u/a  ",
    "u/a\x01",
    "u/a/",
    "u/a.txt",
    "u/a/b",
    "u/B",
    "u/b",
    "u/%",
    "u/_",
    "u/\\",
    "u/é",
    "u/e\u0301",
    "u/E",
    "u/ß",
    "u/ss",
    "u/\ufffd",
    "u/\uffff",
    "u/\U00010000",
    "u/\U0001f600",
    "u/\U0010ffff",
    "u/中",
    "u/a-b",
    "u/ab",
    "u/" + "x" * 700,
]
"""Keys that a language's order, a case-blind or a padding comparison would put elsewhere or take for one another."""

OUTSIDE = ["u", "t/1", "u0", "U/a", "v/x"]


@pytest.fixture(params=["pg", "sqlite", "maria", "maria utf8mb4_general_ci", "maria utf8mb4_unicode_ci"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn, MariaDB also with the collations that applications have; nothing is deleted here."""
    name, *collation = request.param.split()
    found: Server = request.getfixturevalue(name)
    if collation:
        found.sql(f"ALTER DATABASE {found.url.database} CHARACTER SET utf8mb4 COLLATE {collation[0]}")
    return found


def table(name: str = "uploads", **options: Any) -> sa.Table:
    kind = sa.String(1024, **options)
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("s3_key", kind),
    )


def filled(server: Server, keys: Sequence[str | None], made: sa.Table | None = None) -> sa.Table:
    made = table() if made is None else made
    server.create(made)
    if keys:
        server.insert(made, *({"id": i, "s3_key": key} for i, key in enumerate(keys, 1)))
    return made


def over(server: Server, *columns: sa.ColumnElement[Any], prefix: str = "u/", page: int = 4) -> SqlReferences:
    return SqlReferences(columns, server.open(), BUCKET, prefix, page=page)


def refs(*keys: str) -> list[ObjectRef]:
    return [ObjectRef(BUCKET, key) for key in keys]


def in_bytes(keys: Sequence[str]) -> list[str]:
    return sorted(keys, key=str.encode)


def test_keys_come_in_byte_order_page_after_page(server: Server) -> None:
    made = filled(server, [*reversed(ODD), *OUTSIDE, None, "", *ODD[:3]])
    (stream,) = over(server, made.c.s3_key).streams()
    found = list(stream)
    assert list(dict.fromkeys(found)) == in_bytes(ODD)
    verdicts = {f.verdict for f in compare((Listed(k, k) for k in in_bytes(ODD)), [iter(found)])}
    assert verdicts == {Verdict.NAMED}


def test_under_an_empty_prefix_every_key_comes_and_nothing_that_is_none(server: Server) -> None:
    made = filled(server, [*ODD, *OUTSIDE, None, ""])
    (stream,) = over(server, made.c.s3_key, prefix="", page=1000).streams()
    assert list(stream) == in_bytes([*ODD, *OUTSIDE])


def test_asked_again_a_key_is_named_only_byte_for_byte(server: Server) -> None:
    made = filled(server, ODD)
    references = over(server, made.c.s3_key)
    near = ["u/á", "u/É", "u/C", "u/c", "u/ab ", "u/SS", "u/\ufffc", "u/\U0001f601", "u/nul\0", "u/A "]
    assert set(references.named(refs(*ODD, *near))) == set(refs(*ODD))
    assert list(references.named([ObjectRef("other", ODD[0])])) == []
    assert list(references.named(refs("u/nul\0"))) == []


def test_two_spellings_that_a_collation_takes_for_one_are_both_named(server: Server) -> None:
    made = filled(server, ["u/photo", "u/PHOTO"])
    assert len(over(server, made.c.s3_key).named(refs("u/photo", "u/PHOTO", "u/Photo"))) == 2


def test_several_columns_and_tables_are_several_streams(server: Server) -> None:
    one = filled(server, ["u/1", "u/3"])
    other = filled(server, ["u/2", "u/3"], table("avatars"))
    references = over(server, one.c.s3_key, other.c.s3_key)
    assert [list(stream) for stream in references.streams()] == [["u/1", "u/3"], ["u/2", "u/3"]]
    assert set(references.named(refs("u/1", "u/2", "u/3", "u/4"))) == set(refs("u/1", "u/2", "u/3"))


def test_an_expression_may_make_the_key(server: Server) -> None:
    made = filled(server, ["s3://acme/u/1", "s3://acme/u/2"])
    key = sa.func.replace(made.c.s3_key, "s3://acme/", "", type_=sa.String())
    references = over(server, key)
    assert list(references.streams()[0]) == ["u/1", "u/2"]
    assert references.values().unmatched == 0
    assert set(references.named(refs("u/1", "u/3"))) == set(refs("u/1"))


def test_what_is_no_key_is_counted(server: Server) -> None:
    urls = ["s3://other/u/1", "s3://other/u/1", "S3://Acme/u/1", "https://cdn/u/2", "/u/3", "acme/u/4"]
    made = filled(server, ["u/1", "u/a://b", None, None, "", *urls])
    values = over(server, made.c.s3_key).values()
    assert (values.empty, values.blank, values.elsewhere, values.unmatched) == ((), 3, 2, 4)
    assert "uploads.s3_key" in values.example
    # Neither what names nothing nor what lies in another bucket is a value that should lie under the prefix.
    assert values.columns == (ColumnValues("uploads.s3_key", 6, 2),)


def test_a_table_without_a_row_is_named(server: Server) -> None:
    one, other = filled(server, ["u/1"]), filled(server, [], table("avatars"))
    assert over(server, one.c.s3_key, other.c.s3_key).values().empty == ("avatars",)


def test_a_missing_table_is_no_empty_one(server: Server) -> None:
    references = over(server, table().c.s3_key)
    for ask in (
        references.values,
        lambda: list(references.streams()[0]),
        lambda: references.named(refs("u/1")),
    ):
        with pytest.raises(StoreError, match="uploads"):
            ask()


def test_the_probe_proves_reading_and_the_primary(server: Server) -> None:
    made = filled(server, ["u/1"])
    proofs = ReferenceProber(over(server, made.c.s3_key)).probe(NOW, ())
    assert {proof.verdict for proof in proofs} == {Proven.ALLOWED}
    assert proofs[0].subject.startswith("SELECT on uploads")


def test_a_role_that_may_not_read_is_denied(server: Server) -> None:
    if server.kind == "sqlite":
        pytest.skip("SQLite knows no roles")
    made = filled(server, ["u/1"])
    database = server.open(server.role())
    proof = ReferenceProber(SqlReferences([made.c.s3_key], database, BUCKET, "u/")).probe(NOW, ())[0]
    if server.kind == "mariadb":
        assert proof.verdict is not Proven.ALLOWED  # a role without any grant may not even enter the database
        return
    assert proof.verdict is Proven.DENIED
    assert proof.remedy.startswith("GRANT SELECT ON uploads TO ")


def test_rows_that_row_security_hides_are_an_error_and_not_absent(pg: Server) -> None:
    made = filled(pg, ["u/1"])
    pg.sql("ALTER TABLE uploads ENABLE ROW LEVEL SECURITY")
    role = pg.role("GRANT SELECT ON uploads")
    references = SqlReferences([made.c.s3_key], pg.open(role), BUCKET, "u/")
    with pytest.raises(StoreError, match="row-level security"):
        references.named(refs("u/1"))
    assert ReferenceProber(references).probe(NOW, ())[0].verdict is not Proven.ALLOWED


@pytest.mark.parametrize("kind", ["char(40)", "citext", 'varchar(40) COLLATE "en-x-icu"', "text"])
def test_postgresql_types_that_compare_in_their_own_way_still_give_bytes(pg: Server, kind: str) -> None:
    if kind == "citext":
        pg.sql("CREATE EXTENSION IF NOT EXISTS citext")
    pg.sql(f"CREATE TABLE uploads (id int PRIMARY KEY, s3_key {kind})")
    made = table()
    pg.insert(made, *({"id": i, "s3_key": k} for i, k in enumerate(["u/b", "u/A", "u/a", "u/B", "u/é"], 1)))
    references = over(pg, made.c.s3_key, page=2)
    assert list(references.streams()[0]) == ["u/A", "u/B", "u/a", "u/b", "u/é"]
    assert set(references.named(refs("u/a", "u/B", "u/É"))) == set(refs("u/a", "u/B"))


def test_postgresql_uses_an_index_for_the_order_and_for_asking_again(pg: Server) -> None:
    made = filled(pg, [f"u/{number:06}" for number in range(3_000)])
    pg.sql('CREATE INDEX by_bytes ON uploads (s3_key COLLATE "C")', "CREATE INDEX by_key ON uploads (s3_key)")
    pg.sql("ANALYZE uploads")
    references = over(pg, made.c.s3_key)
    (column,) = references.columns
    order = sa.select(column.bytes).where(column.under("u/")).order_by(column.bytes).limit(100)
    (again,) = column.equals(["u/000001", "u/000002"])
    for statement, index in ((order, "by_bytes"), (sa.select(column.bytes).where(again), "by_")):
        with references.database.connected() as connection:
            text = str(statement.compile(connection, compile_kwargs={"literal_binds": True}))
            plan = "\n".join(
                row[0] for row in connection.exec_driver_sql(f"EXPLAIN {text}".replace("%", "%%"))
            )
        assert index in plan, plan
        assert "Sort" not in plan, plan


def test_blobs_among_texts_are_no_keys_and_not_passed_over(sqlite: Server) -> None:
    made = filled(sqlite, ["u/1"])
    sqlite.sql("INSERT INTO uploads VALUES (7, x'752f32')")
    values = over(sqlite, made.c.s3_key).values()
    assert values.unmatched == 1


@pytest.mark.parametrize("charset", ["latin1", "utf8mb3"])
def test_mariadb_columns_of_another_character_set_give_utf8(maria: Server, charset: str) -> None:
    maria.sql(f"CREATE TABLE uploads (id int PRIMARY KEY, s3_key varchar(40) CHARACTER SET {charset})")
    made = table()
    maria.insert(made, *({"id": i, "s3_key": k} for i, k in enumerate(["u/é", "u/a", "u/B", "u/ü"], 1)))
    references = over(maria, made.c.s3_key, page=2)
    assert list(references.streams()[0]) == in_bytes(["u/é", "u/a", "u/B", "u/ü"])
    assert set(references.named(refs("u/é", "u/e", "u/\U0001f600", "u/B"))) == set(refs("u/é", "u/B"))
