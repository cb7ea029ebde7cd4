"""A purge's nights: one table on a real database, and a clock that can be moved on by days."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete import Purge, Rows, older_than, wiring
from safedelete.core.decision import Approval, Finding
from safedelete.errors import RefusedError
from safedelete.ports import RunRecord
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.runner.report import Report
from safedelete.wiring.connect import context_of
from safedelete.wiring.settings import SystemClock

A_NIGHT = 150
RETENTION = 90

metadata = sa.MetaData()
events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
    sa.Column("seen_at", sa.DateTime(timezone=True)),
    sa.Column("done", sa.Boolean, nullable=False, default=False),
)


class MovedClock(SystemClock):
    """The host's clock, some time away from what it says."""

    def __init__(self) -> None:
        self.offset = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.offset


@dataclass
class Nights:
    """One database with one purge's table, seen from outside and through the purge."""

    url: str
    clock: MovedClock = field(default_factory=MovedClock)

    def __post_init__(self) -> None:
        self.engine = sa.create_engine(self.url, poolclass=NullPool)
        metadata.create_all(self.engine)
        self.began = datetime.now(UTC)

    # --- the table

    def fill(self, days: int = RETENTION + 1, each: int = A_NIGHT) -> None:
        """Write some rows for every day up to now: the oldest day is due tonight."""
        step = timedelta(days=1) / each
        start = self.began - timedelta(days=days) + step / 2
        self.add([start + number * step for number in range(days * each)])

    def add(self, times: list[datetime]) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.insert(events), [{"created_at": at, "done": False} for at in times])

    def surge(self, rows: int, *, age: float = 120) -> None:
        """Write rows that are long due."""
        at = self.clock.now() - timedelta(days=age)
        self.add([at + timedelta(seconds=number) for number in range(rows)])

    def rows(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(sa.select(sa.func.count()).select_from(events)).scalar_one())

    def sql(self, statement: str, **values: Any) -> int:
        with self.engine.begin() as connection:
            return connection.execute(sa.text(statement), values).rowcount

    # --- the purge

    def purge(self, *, days: float = RETENTION, column: str = "created_at", **options: Any) -> Purge:
        return Purge(
            "events",
            Rows(events, older_than(events.c[column], days=days)),
            schedule="rate(1 day)",
            timeout=timedelta(minutes=5),
            database=self.url,
            **options,
        )

    def timeless(self) -> Purge:
        return Purge(
            "events",
            Rows(events, events.c.done.is_(True), anytime=True),
            schedule="rate(1 day)",
            timeout=timedelta(minutes=5),
            database=self.url,
        )

    def init(self, purge: Purge) -> Purge:
        wiring.init([purge])
        return purge

    def pass_night(self, days: float = 1) -> None:
        self.clock.offset += timedelta(days=days)

    def plan(self, purge: Purge) -> Report:
        with context_of(purge, clock=self.clock) as ctx:
            return runner.plan(ctx)

    def save(self, purge: Purge) -> Report:
        with context_of(purge, clock=self.clock) as ctx:
            return runner.save(ctx)

    def run(self, purge: Purge) -> Report:
        with context_of(purge, clock=self.clock) as ctx:
            return runner.run(ctx)

    def refused(self, purge: Purge) -> tuple[str, dict[str, Finding]]:
        """Run a purge that has to be refused; returns the run and its refusing findings, and holds that nothing went."""
        before = self.rows()
        with pytest.raises(RefusedError) as raised:
            self.run(purge)
        assert self.rows() == before
        run = raised.value.run
        assert run is not None
        record = self.record(purge, run)
        assert record.state.value == "refused"
        assert record.decision is not None
        return run, {f.code: f for f in record.decision.findings if f.severity == "refuse"}

    def usual(self, purge: Purge, count: int) -> list[Report]:
        """Run some ordinary nights, one after the other."""
        reports = []
        for _ in range(count):
            reports.append(self.run(purge))
            self.pass_night()
        return reports

    def approve(
        self, purge: Purge, run: str, *, hours: float = 24, teaches: Literal[0, 1, 2] = 1
    ) -> Approval:
        with context_of(purge, clock=self.clock) as ctx:
            return review.approve(
                ctx.ledger,
                self.clock,
                run,
                reason="looked at it",
                who="ann@desk",
                expires_in=timedelta(hours=hours),
                teaches=teaches,
            )

    def execute(self, purge: Purge, run: str) -> Report:
        with context_of(purge, clock=self.clock) as ctx:
            return runner.execute_sealed(ctx, run)

    def record(self, purge: Purge, run: str) -> RunRecord:
        return wiring.story(purge, run)[0]
