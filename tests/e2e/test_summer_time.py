"""Two runs one second apart around each change of the clocks: both succeed, and no row goes before it is old enough."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

import safedelete
from safedelete.declare import Purge, Rows, older_than
from safedelete.runner import purge as runner
from safedelete.wiring.connect import context_of
from safedelete.wiring.settings import SystemClock

SECOND, STEP, DAY = timedelta(seconds=1), timedelta(minutes=10), timedelta(days=1)

CHANGES = [
    ("Europe/Berlin", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-10-25 01:00"),
    ("America/New_York", "2026-03-08 07:00"),
    ("America/New_York", "2026-11-01 06:00"),
    ("Australia/Lord_Howe", "2026-10-03 15:30"),
    ("Australia/Lord_Howe", "2026-04-04 15:00"),
]

visits = sa.Table(
    "visits",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("seen_at", sa.DateTime, index=True),
)


class SetClock(SystemClock):
    """Says what it is told."""

    def __init__(self, now: datetime) -> None:
        self.at = now

    def now(self) -> datetime:
        return self.at


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_two_runs_one_second_apart_around_a_change_of_the_clocks(
    zone: str, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime.fromisoformat(change).replace(tzinfo=UTC)
    local = ZoneInfo(zone)
    assert (at - SECOND).astimezone(local).utcoffset() != at.astimezone(local).utcoffset()
    url = f"sqlite:///{tmp_path / 'app.db'}"
    monkeypatch.setenv("SAFEDELETE_DATABASE_URL", url)
    monkeypatch.setenv("SAFEDELETE_ENVIRONMENT", "test")
    # A row every ten minutes, as the wall clock said it; the guard sees as many on every coming day.
    seen = {n: at - DAY + n * STEP for n in range(1, 15 * 144)}
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    visits.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            sa.insert(visits),
            [{"id": n, "seen_at": when.astimezone(local).replace(tzinfo=None)} for n, when in seen.items()],
        )
    purge = Purge(
        "visits",
        Rows(visits, older_than(visits.c.seen_at, days=1, tz=zone)),
        schedule="rate(1 day)",
        timeout=timedelta(minutes=5),
    )
    safedelete.init([purge])
    clock = SetClock(at + DAY - SECOND)
    cutoffs = []
    for _ in range(2):
        with context_of(purge, clock=clock) as ctx:
            report = runner.run(ctx)
        assert report.exit_code == 0
        cutoffs.append(clock.at - DAY)
        with engine.connect() as connection:
            kept = set(connection.execute(sa.select(visits.c.id)).scalars())
        early = {str(seen[n]) for n in set(seen) - kept if seen[n] >= cutoffs[-1]}
        assert not early, "deleted before they were old enough"
        late = {n for n in kept if seen[n] < cutoffs[-1] - timedelta(hours=1)}
        assert not late, "kept for more than the repeated hour too long"
        clock.at += SECOND
    assert cutoffs == [at - SECOND, at]
