"""What every ``References`` promises, on memory and on each database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.core.item import ObjectRef
from safedelete.ports import References
from safedelete.sql import Database
from safedelete.sql.referenced import SqlReferences
from safedelete.testing.memory import MemoryDatabase, MemoryReferences, MemoryRow, MemoryTable

BUCKET = "acme"
KEYS = ["u/b", "u/B", "u/a/", "u/a.txt", "u/\uffff", "u/\U0001f600", "u/é", "u/e\u0301", "t/x", "u", "u0"]


@dataclass
class Made:
    """References under ``u/``, and a hand on the rows."""

    references: References
    put: Callable[[Sequence[str]], None]


def in_memory() -> Made:
    table = MemoryTable(MemoryDatabase(), "uploads")

    def put(keys: Sequence[str]) -> None:
        for key in keys:
            table.put(MemoryRow((len(table.rows),), None, (ObjectRef(BUCKET, key),)))

    return Made(MemoryReferences([table], BUCKET, "u/"), put)


def in_sql(url: str) -> Made:
    table = sa.Table(
        "uploads",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("s3_key", sa.String(200)),
    )
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    table.create(engine)

    def put(keys: Sequence[str]) -> None:
        with engine.begin() as connection:
            connection.execute(table.insert(), [{"s3_key": key} for key in keys])

    return Made(SqlReferences([table.c.s3_key], Database(url), BUCKET, "u/", page=2), put)


@pytest.fixture(params=["memory", "sqlite", "pg_database", "mariadb_database"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    match request.param:
        case "memory":
            yield in_memory()
        case "sqlite":
            (tmp_path / "app.db").touch()
            yield in_sql(f"sqlite:///{tmp_path / 'app.db'}")
        case name:
            found = in_sql(request.getfixturevalue(name))
            yield found
            assert isinstance(found.references, SqlReferences)
            found.references.database.dispose()


def test_the_keys_under_the_prefix_come_in_byte_order_and_reading_is_idempotent(made: Made) -> None:
    made.put(KEYS)
    for _ in range(2):
        found = [key for stream in made.references.streams() for key in stream]
        assert found == sorted((key for key in KEYS if key.startswith("u/")), key=str.encode)


def test_a_table_without_a_row_is_named(made: Made) -> None:
    assert made.references.values().empty == ("uploads",)
    made.put(["u/1"])
    assert made.references.values().empty == ()


def test_what_is_named_is_named_byte_for_byte_and_as_it_is_now(made: Made) -> None:
    made.put(["u/a"])
    refs = [
        ObjectRef(BUCKET, "u/a"),
        ObjectRef(BUCKET, "u/A"),
        ObjectRef("other", "u/a"),
        ObjectRef(BUCKET, "u/b"),
    ]
    assert list(made.references.named(refs)) == refs[:1]
    made.put(["u/b"])
    assert set(made.references.named(refs)) == {refs[0], refs[3]}
    assert list(made.references.named([])) == []
