"""Keys and times of every kind find their own row again, from the plan to the delete."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.pool import NullPool

from safedelete import Rows, older_than, past
from safedelete.core.plan import AgeProfile
from safedelete.core.seal import RowBatch, decode, encode
from safedelete.errors import ConfigError, StoreError
from safedelete.sql import Database, SqlRows
from tests.sql.acts import keys, survey
from tests.sql.conftest import AS_OF, Server, aged, stored


class Lower(sa.TypeDecorator[str]):
    impl = sa.String
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return None if value is None else value.upper()


MOMENT = datetime(2025, 5, 4, 3, 2, 1, 123456)
KEYS: dict[str, tuple[list[sa.Column[Any]], list[tuple[Any, ...]]]] = {
    "integer": ([sa.Column("a", sa.Integer, primary_key=True)], [(i,) for i in (-5, 1, 2**31 - 1)]),
    "uuid": (
        [sa.Column("a", sa.Uuid, primary_key=True)],
        [(uuid.UUID(int=i * 2**99 + 7),) for i in range(3)],
    ),
    "text": (
        [sa.Column("a", sa.String(40), primary_key=True)],
        [("",), ("it's",), ("50%",), ('"q"',), ("é\U0001f600",), ("a\\b",), ("A",), ("a",)],
    ),
    "datetime": (
        [sa.Column("a", sa.DateTime, primary_key=True)],
        [(MOMENT + timedelta(microseconds=i),) for i in range(3)],
    ),
    "date": ([sa.Column("a", sa.Date, primary_key=True)], [(date(2025, 1, i),) for i in (1, 2, 3)]),
    "time": (
        [sa.Column("a", sa.Time, primary_key=True)],
        [(time(0, 0),), (time(7, 5, 9),), (time(23, 59, 59),)],
    ),
    "bytes": ([sa.Column("a", sa.LargeBinary, primary_key=True)], [(b"\x00\xff",), (b"",), (b"z",)]),
    "composite": (
        [sa.Column("a", sa.Integer, primary_key=True), sa.Column("b", sa.String(9), primary_key=True)],
        [(1, "x"), (1, "y"), (2, "a"), (2, "x")],
    ),
    "composite of three": (
        [
            sa.Column("b", sa.Uuid, primary_key=True),
            sa.Column("a", sa.Date, primary_key=True),
            sa.Column("c", sa.BigInteger, primary_key=True),
        ],
        [(uuid.UUID(int=i), date(2025, 1, 1 + j), 2**40 + i) for i in range(2) for j in range(2)],
    ),
    "composite of bytes": (
        [sa.Column("a", sa.LargeBinary, primary_key=True), sa.Column("b", sa.Integer, primary_key=True)],
        [(b"\xff", 1), (b"\xff", 2), (b"a", 1)],
    ),
    "decorated": ([sa.Column("a", Lower(10), primary_key=True)], [("x",), ("y",), ("z",)]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_kind_survive_scan_seal_hold_and_delete(server: Server, kind: str) -> None:
    columns, values = KEYS[kind]
    table = sa.Table(
        "things",
        sa.MetaData(),
        *(sa.Column(c.name, stored(c.type), primary_key=True) for c in columns),
        sa.Column("at", sa.DateTime),
    )
    server.create(table)
    names = [c.name for c in columns]
    server.insert(table, *({**dict(zip(names, v, strict=True)), "at": aged(1)} for v in values))
    rows = SqlRows(Rows(table, past(table.c.at)), server.open())
    found = [row for page in rows.scan(AS_OF, batch=2, portion=None) for row in page]
    assert len(found) == len(values)
    assert {row.key for row in found} == set(values)
    blob = encode(RowBatch(tuple(found)))
    back = decode(blob.data, blob.sha256)
    assert isinstance(back, RowBatch)
    batch = rows.begin(AS_OF)
    held = batch.hold(back.rows[1:])
    assert held.missing == {}
    done = batch.delete(held.rows)
    assert (len(done.rows), done.kept) == (len(values) - 1, {})
    batch.commit()
    assert rows.present([row.key for row in found]) == {found[0].key}


def test_aware_datetime_keys_survive(pg: Server) -> None:
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("a", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("at", sa.Date),
    )
    pg.create(table)
    values = [datetime(2025, 10, 26, 0, 30, 0, 7, tzinfo=UTC) + timedelta(hours=i) for i in range(3)]
    pg.insert(table, *({"a": v, "at": date(2025, 1, 1)} for v in values))
    pg.sql("ALTER ROLE CURRENT_USER SET timezone = 'Europe/Berlin'")
    try:
        rows = SqlRows(Rows(table, past(table.c.at)), pg.open())
        found = [row for page in rows.scan(AS_OF, batch=2, portion=None) for row in page]
        assert [row.key[0] for row in found] == values
        batch = rows.begin(AS_OF)
        assert len(batch.delete(batch.hold(found).rows).rows) == 3
        batch.rollback()
    finally:
        pg.sql("ALTER ROLE CURRENT_USER RESET timezone")


def test_interval_keys_survive(server: Server) -> None:
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("a", stored(sa.Time()), primary_key=True),
        sa.Column("b", sa.Interval, primary_key=True),
        sa.Column("at", sa.DateTime),
    )
    server.create(table)
    values = [(time(i % 2), timedelta(days=100 * i, seconds=i)) for i in range(4)]
    server.insert(table, *({"a": a, "b": b, "at": aged(1)} for a, b in values))
    rows = SqlRows(Rows(table, past(table.c.at)), server.open())
    assert survey(rows).eligible == 4
    found = [row for page in rows.scan(AS_OF, batch=3, portion=None) for row in page]
    # Only PostgreSQL has intervals; the others keep a time since 1970, and such a key is that time.
    epoch = datetime(1970, 1, 1)
    spans = {b - epoch if isinstance(b, datetime) else b for _, b in (row.key for row in found)}
    assert spans == {b for _, b in values}
    blob = encode(RowBatch(tuple(found)))
    assert decode(blob.data, blob.sha256) == RowBatch(tuple(found))
    batch = rows.begin(AS_OF)
    assert len(batch.delete(batch.hold(found[1:]).rows).rows) == 3
    batch.commit()
    assert rows.present([row.key for row in found]) == {found[0].key}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (postgresql.INET(), ["10.0.0.1", "10.0.0.1/8", "::1", "fe80::1/64"]),
        (postgresql.CIDR(), ["10.0.0.0/8", "10.0.0.0/16", "::/0"]),
    ],
)
def test_network_addresses_of_both_families_survive(
    pg: Server, kind: sa.types.TypeEngine[Any], values: list[str], native: bool
) -> None:
    table = sa.Table(
        "things", sa.MetaData(), sa.Column("a", kind, primary_key=True), sa.Column("at", sa.DateTime)
    )
    pg.create(table)
    pg.insert(table, *({"a": v, "at": aged(1)} for v in values))
    engine = sa.create_engine(pg.url, poolclass=NullPool, native_inet_types=native)
    pg.opened.append(Database(engine))
    rows = SqlRows(Rows(table, past(table.c.at)), pg.opened[-1])
    assert survey(rows).eligible == len(values)
    found = [row for page in rows.scan(AS_OF, batch=2, portion=None) for row in page]
    assert {row.key[0] for row in found} == set(values)
    blob = encode(RowBatch(tuple(found)))
    assert decode(blob.data, blob.sha256) == RowBatch(tuple(found))
    batch = rows.begin(AS_OF)
    assert len(batch.delete(batch.hold(found[1:]).rows).rows) == len(values) - 1
    batch.commit()
    assert rows.present([row.key for row in found]) == {found[0].key}


@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        (postgresql.ARRAY(sa.Integer), [1, 2], "list"),
        (postgresql.JSONB(), {"a": 1}, "dict"),
        (postgresql.INT4RANGE(), "[1,3)", "Range"),
        (sa.Time(timezone=True), time(1, tzinfo=UTC), "time"),
    ],
)
def test_a_key_that_no_seal_can_hold_is_refused_when_it_is_planned(
    pg: Server, kind: sa.types.TypeEngine[Any], value: Any, named: str
) -> None:
    table = sa.Table(
        "things", sa.MetaData(), sa.Column("a", kind, primary_key=True), sa.Column("at", sa.DateTime)
    )
    pg.create(table)
    # Not yet due: the first night that finds a row is late to say so.
    pg.insert(table, {"a": value, "at": aged(-9)})
    with pytest.raises(
        ConfigError, match=f"column a holds values of a type that cannot be sealed: {named}"
    ) as e:
        survey(SqlRows(Rows(table, past(table.c.at)), pg.open()))
    assert "unique key" in e.value.hint


def test_model_that_says_integer_where_the_table_says_bigint(pg: Server) -> None:
    pg.sql(
        "CREATE TABLE things (a bigint PRIMARY KEY, at timestamp)",
        f"INSERT INTO things VALUES ({2**40}, '2020-01-01')",
    )
    table = sa.Table(
        "things", sa.MetaData(), sa.Column("a", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime)
    )
    rows = SqlRows(Rows(table, past(table.c.at)), pg.open())
    found = [row for page in rows.scan(AS_OF, batch=2, portion=None) for row in page]
    batch = rows.begin(AS_OF)
    assert len(batch.delete(batch.hold(found).rows).rows) == 1
    batch.rollback()


@pytest.mark.parametrize("shape", ["aware", "naive", "zoned", "date", "s", "ms"])
def test_time_columns_of_every_shape(server: Server, shape: str) -> None:
    kinds: dict[str, Any] = {
        "aware": sa.DateTime(timezone=True),
        "date": sa.Date(),
        "s": sa.BigInteger(),
        "ms": sa.BigInteger(),
    }
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", kinds.get(shape, sa.DateTime())),
    )
    options: dict[str, Any] = {
        "zoned": {"tz": "America/New_York"},
        "s": {"unit": "s"},
        "ms": {"unit": "ms"},
    }.get(shape, {})
    test = older_than(table.c.at, days=3, **options)
    server.create(table)
    rows = Rows(table, test)
    cutoff = rows.age_tests[0].cutoff
    server.insert(
        table,
        *({"id": d, "at": cutoff.shaped(AS_OF - timedelta(days=d))} for d in range(1, 7)),
        {"id": 9, "at": None},
    )
    plan = survey(SqlRows(rows, server.open()))
    assert plan.eligible == 3
    assert plan.nulls == 1
    assert plan.ageless == 6
    assert isinstance(plan.ages, AgeProfile)
    assert sum(n for _, n in plan.ages.days) + plan.ages.older == 6
    assert sum(n for d, n in plan.ages.days if d < 0) + plan.ages.older == 3


def test_sqlite_key_that_is_null_is_left_out(sqlite: Server) -> None:
    sqlite.sql(
        "CREATE TABLE things (a text PRIMARY KEY, at timestamp)",
        "INSERT INTO things VALUES (NULL, '2020-01-01'), ('x', '2020-01-01')",
    )
    table = sa.Table(
        "things", sa.MetaData(), sa.Column("a", sa.String, primary_key=True), sa.Column("at", sa.DateTime)
    )
    rows = SqlRows(Rows(table, past(table.c.at)), sqlite.open())
    plan = survey(rows)
    assert (plan.eligible, plan.items) == (1, 1)
    assert keys(rows) == [("x",)]


@pytest.mark.parametrize("kind", ["timestamp", "timestamptz", "date"])
def test_a_portion_ends_at_times_that_python_does_not_have(pg: Server, kind: str) -> None:
    times = ["-infinity", "0044-03-15 BC", "2020-01-01", "2020-01-02", "infinity"]
    pg.sql(
        f"CREATE TABLE things (id int PRIMARY KEY, at {kind})",
        *(f"INSERT INTO things VALUES ({9 - i}, '{at}')" for i, at in enumerate(times)),
    )
    types: dict[str, Any] = {"timestamp": sa.DateTime(), "timestamptz": sa.DateTime(timezone=True)}
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", types.get(kind, sa.Date())),
    )
    rows = SqlRows(Rows(table, past(table.c.at)), pg.open())
    for portion in (1, 2, 3, 4, 5):
        assert sorted(keys(rows, portion=portion), reverse=True) == [(9,), (8,), (7,), (6,)][:portion]
    assert survey(rows, portion=1).items == 1


def test_a_key_that_the_models_type_cannot_read_is_told(sqlite: Server) -> None:
    table = sa.Table(
        "things", sa.MetaData(), sa.Column("id", sa.DateTime, primary_key=True), sa.Column("at", sa.DateTime)
    )
    sqlite.sql(
        "CREATE TABLE things (id PRIMARY KEY, at timestamp)", "INSERT INTO things VALUES ('x', '0000')"
    )
    rows = SqlRows(Rows(table, past(table.c.at)), sqlite.open())
    assert any("No sample could be read" in note for note in survey(rows).notes)
    with pytest.raises(StoreError, match="cannot be read as the model's type"):
        keys(rows)
