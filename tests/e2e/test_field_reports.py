"""What people who run purges have reported, each as a whole run on a real database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete import Guard, Purge, Rows, older_than, wiring
from safedelete.core.outcome import Tally
from safedelete.core.run import RunState
from safedelete.errors import BlastRadiusError, PartialDeleteError, RefusedError
from safedelete.ports import RunRecord
from safedelete.runner import purge as runner
from safedelete.runner.report import Report
from safedelete.sql import SqlRows
from safedelete.sql.batch import SqlRowTransaction
from safedelete.wiring.connect import context_of
from tests.worlds import batches_of

NOW = datetime.now(UTC).replace(tzinfo=None)
metadata = sa.MetaData()
orders = sa.Table(
    "orders",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.DateTime, index=True),
    sa.Column("note", sa.String(20)),
)
lines = sa.Table(
    "lines",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("order_id", sa.Integer, sa.ForeignKey("orders.id"), index=True),
    sa.Column("at", sa.DateTime, index=True),
)
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("order_id", sa.Integer, sa.ForeignKey("orders.id", ondelete="CASCADE"), index=True),
)


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFEDELETE_ENVIRONMENT", "test")


@dataclass
class Shop:
    """Orders with their lines and an audit trail."""

    url: str
    engine: sa.Engine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = sa.create_engine(self.url, poolclass=NullPool)
        metadata.create_all(self.engine)

    def add(self, table: sa.Table, *rows: dict[str, Any]) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.insert(table), list(rows))

    def sql(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def ids(self, table: sa.Table) -> set[int]:
        with self.engine.connect() as connection:
            return set(connection.execute(sa.select(table.c.id)).scalars())

    def purge(self, *targets: Rows, **options: Any) -> Purge:
        found = Purge(
            "orders",
            *(targets or (Rows(orders, older_than(orders.c.at, days=30)),)),
            schedule="rate(1 day)",
            timeout=timedelta(minutes=5),
            database=self.url,
            **options,
        )
        wiring.init([found])
        return found

    def run(self, purge: Purge) -> Report:
        """Run it; a first night that has nothing to compare with is approved, as a person would."""
        with context_of(purge) as ctx:
            try:
                return runner.run(ctx)
            except RefusedError as refused:
                if not set(refused.findings) <= {"SD200", "SD205", "SD114"}:
                    raise
                run = str(refused.run)
        wiring.approve(purge, run, reason="first night")
        with context_of(purge) as ctx:
            return runner.execute_sealed(ctx, run)

    def last(self, purge: Purge) -> RunRecord:
        with context_of(purge) as ctx:
            return ctx.ledger.runs("orders", limit=1)[0]


@pytest.fixture(params=["pg_database", "mariadb_database", "sqlite_url"])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    found = Shop(request.getfixturevalue(request.param))
    yield found
    found.engine.dispose()


def aged(days: float) -> datetime:
    return NOW - timedelta(days=days)


def several(count: int, *, young: int = 400) -> list[dict[str, Any]]:
    """Rows that are due, ids against the order of time, and as many that are not as keep the share usual."""
    due = [{"id": i, "at": aged(31 + (i * 7919) % 97), "note": ""} for i in range(1, count + 1)]
    return due + [{"id": 10_000 + i, "at": aged(i % 29), "note": ""} for i in range(young)]


@contextmanager
def before_each_batch(act: Any) -> Iterator[None]:
    real = SqlRows.begin
    seen = 0

    def begin(self: SqlRows, as_of: datetime) -> SqlRowTransaction:
        nonlocal seen
        seen += 1
        act(seen)
        return real(self, as_of)

    with mock.patch.object(SqlRows, "begin", begin):
        yield


def test_three_hundred_rows_in_batches_of_a_hundred_while_a_writer_inserts_and_updates(shop: Shop) -> None:
    shop.add(orders, *several(300))
    purge = shop.purge()

    def write(batch: int) -> None:
        # New rows below, between and above the batches; rows of later batches renewed, and a young one dated back.
        shop.add(
            orders,
            {"id": -batch, "at": aged(50), "note": ""},
            {"id": 20_000 + batch, "at": aged(50), "note": ""},
        )
        shop.sql(f"UPDATE orders SET at = '{aged(0)}' WHERE id IN ({100 * batch - 1}, {100 * batch - 50})")
        shop.sql(f"UPDATE orders SET at = '{aged(90)}' WHERE id = {10_000 + batch}")

    with batches_of(100), before_each_batch(write):
        report = shop.run(purge)
    renewed = {100 * b - n for b in (1, 2, 3) for n in (1, 50)}
    assert report.total == Tally(deleted=294, changed=6)
    left = shop.ids(orders)
    assert left & set(range(1, 301)) == renewed
    assert {-1, -2, -3, 20_001, 20_002, 20_003, 10_001, 10_002, 10_003} <= left, (
        "nothing that was not sealed goes"
    )


def test_an_old_parent_with_a_new_child_is_blocked_and_holds_up_nobody_else(shop: Shop) -> None:
    shop.add(orders, *several(20))
    shop.add(lines, {"id": 1, "order_id": 7, "at": aged(1)})
    report = shop.run(shop.purge())
    assert report.total == Tally(deleted=19, blocked=1)
    assert shop.ids(orders) & set(range(1, 21)) == {7}
    assert shop.ids(lines) == {1}


def test_a_new_child_that_comes_after_the_plan_blocks_its_parent_as_well(shop: Shop) -> None:
    shop.add(orders, *several(20))
    purge = shop.purge()
    with before_each_batch(lambda n: n == 1 and shop.add(lines, {"id": 1, "order_id": 7, "at": aged(1)})):
        report = shop.run(purge)
    assert report.total == Tally(deleted=19, blocked=1)
    assert shop.ids(lines) == {1}


def test_an_audit_trail_that_a_cascade_would_erase_is_shown_and_limited_under_its_own_name(
    shop: Shop,
) -> None:
    shop.add(orders, *several(20))
    shop.add(audit, *({"id": i, "order_id": 1 + i % 20} for i in range(200)))
    purge = shop.purge(guard=Guard(max_items=50))
    with context_of(purge) as ctx, pytest.raises(RefusedError, match=r"audit.*200.*50") as refused:
        runner.run(ctx)
    assert "SD101" in refused.value.findings
    assert len(shop.ids(audit)) == 200
    assert len(shop.ids(orders)) == 420


def test_an_audit_trail_that_grew_after_the_plan_stops_the_run_before_it_is_erased(shop: Shop) -> None:
    shop.add(orders, *several(20))
    shop.add(audit, {"id": 1, "order_id": 3})
    purge = shop.purge()
    with (
        before_each_batch(
            lambda n: n == 1 and shop.add(audit, *({"id": i, "order_id": 3} for i in range(2, 9)))
        ),
        pytest.raises(BlastRadiusError, match=r"8 row\(s\) of audit .* allows 1"),
    ):
        shop.run(purge)
    assert len(shop.ids(audit)) == 8
    assert len(shop.ids(orders)) == 420


def test_a_legal_hold_set_between_plan_and_execution_keeps_its_row(shop: Shop) -> None:
    shop.add(orders, *several(20))
    purge = shop.purge(Rows(orders, older_than(orders.c.at, days=30), orders.c.note != "hold"))
    with before_each_batch(lambda n: n == 1 and shop.sql("UPDATE orders SET note = 'hold' WHERE id = 5")):
        report = shop.run(purge)
    assert report.total == Tally(deleted=19, changed=1)
    assert 5 in shop.ids(orders)


# --- more than one target


def children_first(shop: Shop, **options: Any) -> Purge:
    return shop.purge(
        Rows(lines, older_than(lines.c.at, days=30)),
        Rows(orders, older_than(orders.c.at, days=30)),
        **options,
    )


def filled(shop: Shop) -> None:
    shop.add(orders, *several(20))
    shop.add(lines, *({"id": i, "order_id": 1 + i % 20, "at": aged(40)} for i in range(60)))
    shop.add(lines, *({"id": 1000 + i, "order_id": 10_000 + i, "at": aged(1)} for i in range(300)))


def test_children_go_before_their_parents_in_one_purge(shop: Shop) -> None:
    filled(shop)
    report = shop.run(children_first(shop))
    assert {name: tally.deleted for name, tally in report.tally.items()} == {"lines": 60, "orders": 20}
    assert not shop.ids(orders) & set(range(1, 21))


def test_each_target_has_its_own_numbers_before_the_guard(shop: Shop) -> None:
    filled(shop)
    purge = children_first(shop, guard=Guard(max_items=30))
    with context_of(purge) as ctx, pytest.raises(RefusedError) as refused:
        runner.run(ctx)
    decision = shop.last(purge).decision
    assert decision is not None
    over = [f for f in decision.findings if f.code == "SD101"]
    assert [(f.target, f.numbers["items"]) for f in over] == [("lines", 60)]
    assert "SD101" in refused.value.findings
    assert len(shop.ids(lines)) == 360


def test_a_target_that_failed_keeps_the_later_ones_from_being_attempted_and_says_so(pg_database: str) -> None:
    shop = Shop(pg_database)
    filled(shop)
    shop.sql(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF old.id = 5 THEN RETURN NULL; END IF; "
        "RETURN old; END $$"
    )
    shop.sql("CREATE TRIGGER keep BEFORE DELETE ON lines FOR EACH ROW EXECUTE FUNCTION keep()")
    purge = children_first(shop)
    with pytest.raises(
        PartialDeleteError, match=r"lines ended with 1 failed .* the 1 target\(s\) after it were not"
    ):
        shop.run(purge)
    assert shop.ids(orders) >= set(range(1, 21))
    assert shop.last(purge).state is RunState.FAILED
    shop.engine.dispose()
