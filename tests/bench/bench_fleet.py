"""Many jobs, many nights, many starters: what `status`, `history`, `plan` and a start cost as they add up.

    python -m tests.bench fleet

Compared are the large and the small: a ratio of 1 says that the cost does not grow with what lies around. Sizes come from
``SAFEDELETE_BENCH_JOBS`` (50), ``SAFEDELETE_BENCH_NIGHTS`` (1,825: five years) and ``SAFEDELETE_BENCH_STARTERS`` (200).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import sqlalchemy as sa

from safedelete import history, init, plan, status
from safedelete.core.decision import Approved
from safedelete.core.outcome import Tally
from safedelete.core.plan import Plan
from safedelete.core.run import RunState
from safedelete.declare import Declared
from safedelete.ledger import tables
from safedelete.ledger.codec import dump_decision, dump_plan, dump_tallies
from safedelete.loader import load
from safedelete.testing.servers import Postgres
from tests.bench.result import Result, compared

JOBS = int(os.environ.get("SAFEDELETE_BENCH_JOBS", "50"))
NIGHTS = int(os.environ.get("SAFEDELETE_BENCH_NIGHTS", str(5 * 365)))
STARTERS = int(os.environ.get("SAFEDELETE_BENCH_STARTERS", "200"))
FEW = 400
"""Nights of the small ledger: as many as the guard ever looks at, so that more of them must cost nothing."""

FILE = """
from datetime import timedelta
from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table
from safedelete import Purge, Rows, older_than

metadata = MetaData()
tables = [
    Table(f"t{{n:02}}", metadata, Column("id", BigInteger, primary_key=True), Column("at", DateTime, index=True))
    for n in range({jobs})
]
purges = [
    Purge(f"purge-{{n:02}}", Rows(t, older_than(t.c.at, days=30)), schedule="rate(1 day)", timeout=timedelta(minutes=5))
    for n, t in enumerate(tables)
]
"""


class Fleet:
    """A database with one table and one purge for each job, and a ledger of so many nights."""

    def __init__(self, url: str, folder: Path, jobs: int) -> None:
        self.url, self.folder = url, folder
        self.file = folder / "jobs.py"
        self.file.write_text(FILE.format(jobs=jobs))
        self.engine = sa.create_engine(url, poolclass=sa.NullPool)
        self.jobs: list[Declared] = list(load(self.file).jobs.values())
        now = datetime.now(UTC).replace(tzinfo=None)
        for job in self.jobs:
            table = job.targets[0].table  # type: ignore[union-attr]
            table.metadata.create_all(self.engine)
            rows = [{"id": n, "at": now - timedelta(days=n % 60, hours=1)} for n in range(600)]
            with self.engine.begin() as connection:
                connection.execute(sa.insert(table), rows)
        init(self.jobs)

    def remember(self, nights: int) -> None:
        """Write so many nights of every job into the ledger, each as tonight's plan and decision."""
        now = datetime.now(UTC)
        for job in self.jobs:
            report = plan(job)  # type: ignore[arg-type]
            assert report.plan is not None
            values = []
            for night in range(1, nights + 1):
                at = now - timedelta(days=night)
                made = _moved(report.plan, at)
                values.append(
                    {
                        "run": f"{job.name[-2:]}{night:024}",
                        "job": job.name,
                        "kind": "purge",
                        "state": RunState.SUCCEEDED.value,
                        "started_at": at.isoformat(),
                        "finished_at": at.isoformat(),
                        "owner": "bench:1:0",
                        "plan": dump_plan(made),
                        "decision": dump_decision(Approved(plan=made, measures=())),
                        "tally": dump_tallies({made.targets[0].name: Tally(deleted=10)}),
                        "exit_code": 0,
                        "sealed_bytes": 100,
                        "teaches": 1,
                    }
                )
            with self.engine.begin() as connection:
                connection.execute(sa.insert(tables.run), values)


def _moved(made: Plan, at: datetime) -> Plan:
    by = made.as_of - at
    targets = tuple(
        replace(target, cutoff=None if target.cutoff is None else target.cutoff - by)
        for target in made.targets
    )
    return replace(made, as_of=at, digest="d" * 64, targets=targets)


def measure() -> list[Result]:
    """Compare a ledger of years with one of a month, many jobs with one, and many starters with one."""
    with Postgres() as server, tempfile.TemporaryDirectory() as folder:
        with environment(server.create_database()) as url:
            large = Fleet(url, Path(folder), JOBS)
            large.remember(NIGHTS)
            years = {name: seconds(act, large.jobs) for name, act in VERBS.items()}
            one = {name: seconds(act, large.jobs[:1]) for name, act in VERBS.items()}
        with environment(server.create_database()) as url:
            small = Fleet(url, Path(folder), JOBS)
            small.remember(min(FEW, NIGHTS))
            month = {name: seconds(act, small.jobs) for name, act in VERBS.items()}
            started = start(small, STARTERS)
            alone = start(small, 1)
    results = [
        compared(
            f"{name} of {JOBS} jobs, {NIGHTS} nights each",
            f"{FEW} nights each",
            years[name],
            month[name],
            1.5,
        )
        for name in VERBS
    ]
    results += [
        compared(
            f"{name} of {JOBS} jobs",
            "one job of the same file",
            years[name] / len(large.jobs),
            one[name],
            1.5,
        )
        for name in VERBS
    ]
    # Each starter imports Python's half before it asks for the lock: so many processes share what cores there are.
    cores = os.cpu_count() or 1
    results.append(
        compared(
            f"{STARTERS} starters of one job at once",
            "their share of the cores",
            started,
            alone * STARTERS / cores,
            1.5,
        )
    )
    return results


VERBS: dict[str, Callable[[list[Declared]], object]] = {
    "status": status,
    "history": lambda jobs: [history(job, limit=90) for job in jobs],
    "plan": lambda jobs: [plan(job) for job in jobs],  # type: ignore[arg-type]
}


def seconds(act: Callable[[list[Declared]], object], jobs: list[Declared]) -> float:
    """The best of three."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        act(jobs)
        found.append(time.perf_counter() - began)
    return min(found)


def start(fleet: Fleet, starters: int) -> float:
    """Start so many processes of one job at once: one works, and the others say that it is locked, or find nothing left."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "safedelete", "run", str(fleet.file), fleet.jobs[0].name]
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(starters)
    ]
    codes = Counter(process.wait() for process in processes)
    took = time.perf_counter() - began
    assert codes.keys() <= {0, 3, 5}, codes
    assert codes[0] >= 1, f"nobody worked, so nothing was measured: {codes}"
    table = fleet.jobs[0].targets[0].table  # type: ignore[union-attr]
    due = table.c.at < datetime.now(UTC).replace(tzinfo=None) - timedelta(days=30)
    with fleet.engine.connect() as connection:
        working = connection.execute(
            sa.select(sa.func.count()).where(tables.run.c.state.in_(["planning", "running"]))
        ).scalar_one()
        left = connection.execute(sa.select(sa.func.count()).select_from(table).where(due)).scalar_one()
    assert (working, left) == (0, 0), f"{working} are still working, {left} due rows are left"
    print(f"{starters} starters ended with {dict(codes)}", file=sys.stderr)
    return took


@contextmanager
def environment(url: str) -> Iterator[str]:
    """The environment that the verbs read."""
    with mock.patch.dict(os.environ, SAFEDELETE_DATABASE_URL=url, SAFEDELETE_ENVIRONMENT="bench"):
        yield url
