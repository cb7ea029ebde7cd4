"""Whatever the schema: the plan's blast radius is what the delete does, and nothing that was not sealed goes uncascaded."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from sqlalchemy.pool import NullPool

from safedelete import Rows, past
from safedelete.core.outcome import Outcome
from safedelete.core.plan import Unknown
from safedelete.sql import Database, SqlRows
from tests.sql.conftest import AS_OF

ACTIONS = ("CASCADE", "CASCADE", "SET NULL", "NO ACTION", "RESTRICT")
TABLES = ("t0", "t1", "t2", "t3")
ROWS = 5

edges = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(ACTIONS)),
    max_size=5,
    unique_by=lambda e: e[:2],
)
links = st.lists(st.none() | st.integers(1, ROWS), min_size=5 * 4 * ROWS, max_size=5 * 4 * ROWS)
old = st.sets(st.integers(1, ROWS), min_size=1)


@contextmanager
def database(
    schema: list[tuple[int, int, str]], values: list[int | None], expired: set[int]
) -> Iterator[tuple[sa.Engine, SqlRows]]:
    """Make four tables with these foreign keys (child, parent, action), five rows each; t0 is the target."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'x.db'}"
        engine = sa.create_engine(url, poolclass=NullPool)
        feed = iter(values)
        with engine.begin() as connection:
            for i, name in enumerate(TABLES):
                keys = [(f"f{p}", p, action) for c, p, action in schema if c == i]
                columns = ["id INTEGER PRIMARY KEY", "at TIMESTAMP"]
                columns += [f"{c} INTEGER REFERENCES t{p} (id) ON DELETE {action}" for c, p, action in keys]
                connection.exec_driver_sql(f"CREATE TABLE {name} ({', '.join(columns)})")
                for row in range(1, ROWS + 1):
                    at = "2020-01-01 00:00:00.000000" if i or row in expired else "2030-01-01 00:00:00.000000"
                    cells = [row, at, *(next(feed) for _ in keys)]
                    marks = ", ".join("?" * len(cells))
                    connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({marks})", tuple(cells))
        table = sa.Table(
            "t0", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", sa.DateTime)
        )
        yield engine, SqlRows(Rows(table, past(table.c.at), allow_unindexed_fk=True), Database(url))


def contents(engine: sa.Engine) -> dict[str, dict[int, tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {
            name: {row[0]: tuple(row) for row in connection.exec_driver_sql(f"SELECT * FROM {name}")}
            for name in TABLES
        }


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=edges, values=links, expired=old)
def test_what_the_plan_counts_is_what_goes(
    schema: list[tuple[int, int, str]], values: list[int | None], expired: set[int]
) -> None:
    with database(schema, values, expired) as (engine, rows):
        before = contents(engine)
        plan = rows.survey(AS_OF, portion=None, since=None)
        note(str(plan.cascades))
        (page,) = rows.scan(AS_OF, batch=100, portion=None)
        assert {row.key[0] for row in page} == expired
        batch = rows.begin(AS_OF)
        held = batch.hold(page)
        done = batch.delete(held.rows)
        batch.commit()
        after = contents(engine)
        gone = {name: before[name].keys() - after[name].keys() for name in TABLES}
        altered = {name: {i for i in after[name] if after[name][i] != before[name][i]} for name in TABLES}
        deleted = {row.key[0] for row in done.rows}
        # Every sealed row has one outcome, and it is true.
        assert deleted | {k[0] for k in done.kept} | {k[0] for k in held.missing} == expired
        assert deleted <= gone["t0"]
        assert not {k[0] for k in done.kept} & gone["t0"]
        assert {o.state for o in done.kept.values()} <= {Outcome.BLOCKED}
        assert not held.missing
        # What is said to be touched was touched.
        assert done.touched is not None
        assert sum(done.touched.values()) >= sum(len(g) for g in gone.values())
        if done.kept:
            return
        # Nothing was blocked: the plan's numbers are those of the delete.
        for cascade in plan.cascades:
            if cascade.action == "delete" and not isinstance(cascade.rows, Unknown):
                planned = deleted if cascade.table == "t0" else set()
                assert cascade.rows == len(gone[cascade.table] - planned), cascade
        reached = {c.table for c in plan.cascades if c.action == "delete"} | {"t0"}
        assert {name for name in TABLES if gone[name]} <= reached
        nulled = [c for c in plan.cascades if c.action == "set null" and not isinstance(c.rows, Unknown)]
        if all(not isinstance(c.rows, Unknown) for c in plan.cascades):
            for name in TABLES:
                counted = sum(c.rows for c in nulled if c.table == name and isinstance(c.rows, int))
                assert counted >= len(altered[name])
                assert (counted == 0) == (not altered[name])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=edges, values=links, expired=old)
def test_rows_that_the_plan_calls_blocked_are_those_the_delete_keeps(
    schema: list[tuple[int, int, str]], values: list[int | None], expired: set[int]
) -> None:
    with database(schema, values, expired) as (_, rows):
        plan = rows.survey(AS_OF, portion=None, since=None)
        blocks = [c for c in plan.cascades if c.action == "block"]
        note(str(plan.cascades))
        (page,) = rows.scan(AS_OF, batch=100, portion=None)
        batch = rows.begin(AS_OF)
        done = batch.delete(batch.hold(page).rows)
        batch.rollback()
        sure = all(isinstance(c.rows, int) for c in blocks)
        if any(isinstance(c.rows, int) and c.rows for c in blocks):
            assert done.kept
        elif sure and "RESTRICT" not in {action for _, _, action in schema}:
            assert not done.kept
