"""Purging half of a large table, beside one bare DELETE on an identical copy, on three databases; and its memory.

Everything is measured in the same run, in turns, and the median of the turns counts. "Execute" is the deleting alone, from sealed keys: fence, exact set, ledger, a
commit a batch. Planning, the preflight and looking again afterwards come on top, and are in the figures of whole runs.

    SAFEDELETE_BENCH_ROWS=100000 python -m tests.bench rows      # a quick look; 2,000,000 rows unless told otherwise
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    Uuid,
    create_engine,
    make_url,
    text,
)
from sqlalchemy.pool import NullPool

import safedelete.runner.context
import safedelete.runner.purge
from safedelete import Guard, Rows, S3Keys, older_than
from safedelete.core.decision import Approved, Decision
from safedelete.core.guard import decide
from safedelete.core.item import ObjectRef
from safedelete.core.outcome import DELETED, ItemOutcome
from safedelete.errors import ExitCode
from safedelete.ledger.setup import initialise
from safedelete.ledger.store import SqlLedger
from safedelete.locks import lease
from safedelete.phases.parts import RowPart, quiet
from safedelete.ports import Binding, Presence
from safedelete.runner.context import PurgeContext, Setting
from safedelete.runner.stop import deadline, nobody
from safedelete.sql.engine import Database
from safedelete.sql.rows import SqlRows
from safedelete.testing.servers import MariaDB, Postgres
from safedelete.wiring.connect import new_run
from safedelete.wiring.settings import SystemClock
from tests.bench.copies import TABLE, Copies, MariaDBCopies, PostgresCopies, SQLiteCopies
from tests.bench.result import Result, compared

ROWS = int(os.environ.get("SAFEDELETE_BENCH_ROWS", "2000000"))
TURNS = int(os.environ.get("SAFEDELETE_BENCH_TURNS", "3"))
ONLY = os.environ.get("SAFEDELETE_BENCH_ONLY", "")
"""Part of the names of those comparisons that are wanted; all when empty."""

AGE = 90
MEMORY = 120.0
"""Most megabytes a run may take."""

FLAT = 1.25
"""Most that a hundred times the rows may add to the peak."""


class Instant:
    """An object store that acknowledges everything at once. Implements ``ports.ObjectStore``."""

    def __init__(self) -> None:
        self.gone = 0

    def delete(
        self, refs: Sequence[ObjectRef], *, gate: Callable[[], None]
    ) -> Mapping[ObjectRef, ItemOutcome]:
        for start in range(0, len(refs), 1000):
            gate()
            self.gone += len(refs[start : start + 1000])
        return dict.fromkeys(refs, DELETED)

    def presence(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        return dict.fromkeys(refs, Presence.PRESENT)

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        del refs
        return {}


def declared(shape: str, dialect: str, *, owns: bool) -> Rows:
    keys: dict[str, list[Column[Any]]] = {
        "integer": [Column("id", BigInteger, primary_key=True)],
        "composite": [
            Column("tenant", Integer, primary_key=True),
            Column("number", BigInteger, primary_key=True),
        ],
        "uuid": [Column("id", Uuid, primary_key=True)],
    }
    table = Table(
        TABLE,
        MetaData(),
        *keys[shape],
        Column("created_at", DateTime(timezone=dialect == "postgresql"), index=True),
        Column("customer", Integer, index=True),
        Column("payload", String(200)),
        Column("s3_key", String(100)),
    )
    owned = S3Keys("bench", table.c.s3_key, shared=False) if owns else None
    return Rows(table, older_than(table.c.created_at, days=AGE), owns=owned)


def approved(*arguments: Any, **named: Any) -> Decision:
    """Decide as without limits: half a table on the first night is no case for the guard."""
    decision = decide(*arguments, **named)
    return Approved(plan=decision.plan, measures=decision.measures)


class Spent(dict[str, float]):
    """Seconds by step of one run."""

    @contextmanager
    def on(self, name: str, owner: Any, attribute: str) -> Iterator[None]:
        act = getattr(owner, attribute)

        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return act(*arguments, **named)
            finally:
                self[name] = self.get(name, 0.0) + time.perf_counter() - began

        setattr(owner, attribute, timed)
        try:
            yield
        finally:
            setattr(owner, attribute, act)


@contextmanager
def purge(url: str, shape: str, *, owns: bool = False) -> Iterator[PurgeContext]:
    """Everything a run needs, on a ledger of its own beside the rows."""
    database = Database(url)
    clock = SystemClock()
    binding = Binding("bench", frozenset({database.identity}), frozenset({"bench"}))
    initialise(database.engine, binding, adopt=False)
    lease.metadata.create_all(database.engine)
    lock = lease.LeaseLock(
        database.engine, database.identity, clock=clock, seconds=60, host="bench", pid=os.getpid()
    )
    target = SqlRows(declared(shape, database.engine.dialect.name, owns=owns), database)
    target.siblings = (target,)
    yield PurgeContext(
        job="bench",
        fingerprint="bench",
        guard=Guard(),
        portion=None,
        max_sealed=10**9,
        resume_within=timedelta(hours=1),
        parts=[RowPart(target, Instant() if owns else None)],
        ledger=SqlLedger(database.engine, database.identity),
        lock=lock,
        clock=clock,
        new_run=lambda: new_run(clock),
        setting=Setting(
            environment="bench", database=database.identity, caller="bench", owner="bench:1", binding=binding
        ),
        stop=deadline(clock, timedelta(hours=6), timedelta(seconds=30), nobody),
        progress=quiet,
    )
    database.dispose()


def ours(url: str, shape: str, items: int, *, owns: bool = False) -> Spent:
    """Run the purge, and return what each step took."""
    spent = Spent()
    module = safedelete.runner.purge
    with (
        purge(url, shape, owns=owns) as ctx,
        spent.on("execute", module, "execute"),
        spent.on("verify", module, "verify"),
        spent.on("plan", PurgeContext, "survey"),
        spent.on("seal", PurgeContext, "seal"),
    ):
        safedelete.runner.context.decide, before = approved, safedelete.runner.context.decide  # type: ignore[attr-defined]
        began = time.perf_counter()
        try:
            report = module.run(replace(ctx))
        finally:
            safedelete.runner.context.decide = before  # type: ignore[attr-defined]
        spent["whole"] = time.perf_counter() - began
        assert report.exit_code is ExitCode.DONE, report.message
        assert report.total.deleted == items, report.total
    return spent


def bare(url: str, items: int) -> Spent:
    """Delete the same rows by one statement."""
    engine = create_engine(url, poolclass=NullPool)
    cutoff = datetime.now(UTC) - timedelta(days=AGE)
    value = cutoff if engine.dialect.name == "postgresql" else cutoff.replace(tzinfo=None)
    began = time.perf_counter()
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            value = str(value)  # type: ignore[assignment]
        gone = connection.execute(
            text(f"DELETE FROM {TABLE} WHERE created_at < :cutoff"), {"cutoff": value}
        ).rowcount
    took = time.perf_counter() - began
    assert gone == items, gone
    return Spent(whole=took, execute=took)


def archiver(url: str, items: int, *options: str) -> Spent:
    """Delete the same rows by Percona's tool."""
    at = make_url(url)
    program = shutil.which("pt-archiver")
    assert program is not None
    command = [
        program,
        "--source",
        f"h={at.host},P={at.port},u={at.username},p={at.password},D={at.database},t={TABLE}",
        "--purge",
        "--no-check-charset",
        "--where",
        f"created_at < utc_timestamp() - interval {AGE} day",
        *options,
    ]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    left = _count(url)
    assert done.returncode == 0, done.stderr[-500:]
    # Its default spares the row with the greatest key, which is a young one here.
    assert left == ROWS - items, left
    return Spent(whole=took)


def _count(url: str) -> int:
    engine = create_engine(url, poolclass=NullPool)
    with engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {TABLE}")).scalar_one())


def turns(copies: Copies, shape: str, sides: Mapping[str, Callable[[str], Spent]]) -> dict[str, Spent]:
    """Run each side on copies of its own, in turns, and return the medians of what each step took."""
    seen: dict[str, list[Spent]] = {name: [] for name in sides}
    for _ in range(TURNS):
        for name, side in sides.items():
            with copies.copy(shape) as url:
                seen[name].append(side(url))
    medians = {
        name: Spent({step: statistics.median(s[step] for s in all_) for step in all_[0]})
        for name, all_ in seen.items()
    }
    for name, spent in medians.items():
        steps = ", ".join(f"{step} {seconds:.2f} s" for step, seconds in spent.items())
        print(f"  {shape}, {name}: {steps}", file=sys.stderr, flush=True)
    return medians


def database(
    name: str, copies: Copies, goals: Mapping[str, float], shapes: Sequence[str], *, archive: bool = False
) -> Iterator[Result]:
    half = ROWS // 2
    base = "one DELETE"
    integer: dict[str, float] = {}
    for shape in ("integer", *shapes):
        copies.make(shape, ROWS)
        sides: dict[str, Callable[[str], Spent]] = {
            base: lambda url: bare(url, half),
            "rows": lambda url, shape=shape: ours(url, shape, half),  # type: ignore[misc]
        }
        if "objects" in goals:
            sides["objects"] = lambda url, shape=shape: ours(url, shape, half, owns=True)  # type: ignore[misc]
        if archive and shape == "integer" and shutil.which("pt-archiver"):
            for how in ("--bulk-delete", "--commit-each"):
                sides[how] = lambda url, how=how: archiver(url, half, how, "--limit", "1000")  # type: ignore[misc]
        spent = turns(copies, shape, sides)
        single = spent[base]["whole"]
        for kind in ("rows", "objects"):
            if kind not in spent:
                continue
            what = "rows" if kind == "rows" else "rows with objects"
            mine = spent[kind]["execute"]
            goal = goals[kind] if shape == "integer" else round(1.5 * integer[kind], 3)
            integer.setdefault(kind, mine / single)
            yield compared(f"{name}: execute {half:,} {what}, {shape} key", base, mine, single, goal)
        if shape != "integer":
            continue
        if "plan" in goals:
            mine = spent["rows"]["plan"] + spent["rows"]["seal"]
            yield compared(f"{name}: plan and seal {half:,} rows", base, mine, single, goals["plan"])
        yield compared(f"{name}: whole run, {half:,} rows", base, spent["rows"]["whole"], single, None)
        for how, goal in (("--bulk-delete", 1.0), ("--commit-each", 0.2)) if archive else ():
            what = f"{name}: whole run, {half:,} rows"
            if how in spent:
                yield compared(what, f"pt-archiver {how}", spent["rows"]["whole"], spent[how]["whole"], goal)
            else:
                yield Result(
                    name=what,
                    ours_s=spent["rows"]["whole"],
                    base_s=0.0,
                    base=f"pt-archiver {how} (missing)",
                    ratio=0.0,
                    goal=goal,
                    met=False,
                )


def peak_mb(url: str, items: int, *, owns: bool) -> float:
    """Return the peak memory of a whole run in a process of its own."""
    code = (
        "import resource, sys; from tests.bench.bench_rows import ours; "
        f"ours(sys.argv[1], 'integer', int(sys.argv[2]), owns={owns}); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, url, str(items)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=Path(__file__).parent.parent.parent,
    )
    return int(done.stdout.splitlines()[-1]) / 1024


def memory(name: str, copies: Copies) -> Iterator[Result]:
    """Compare the peak memory of runs over few rows and over many, in megabytes."""
    for owns, many in ((True, ROWS // 2), (False, ROWS * 5)):
        few = ROWS // 20
        peaks = []
        for items in (few, many):
            copies.make("integer", 2 * items)
            with copies.copy("integer") as url:
                peaks.append(peak_mb(url, items, owns=owns))
        what = f"{name}: peak MB of a run over {many:,} rows{' with objects' if owns else ''}"
        print(f"  memory: {peaks[0]:.1f} MB, {peaks[1]:.1f} MB", file=sys.stderr)
        yield compared(what, "megabytes", peaks[1], MEMORY, 1.0)
        yield compared(what, f"over {few:,}", peaks[1], peaks[0], FLAT)


def measure() -> list[Result]:
    results: list[Result] = []
    if "postgresql" in (ONLY or "postgresql"):
        with Postgres(fsync=True, settings={"shared_buffers": "512MB", "max_wal_size": "8GB"}) as postgres:
            goals = {"rows": 1.6, "objects": 5.0, "plan": 2.0}
            results += database("PostgreSQL", PostgresCopies(postgres), goals, ("composite", "uuid"))
    if "mariadb" in (ONLY or "mariadb"):
        settings = {"innodb-buffer-pool-size": "1G", "innodb-flush-log-at-trx-commit": "1"}
        with MariaDB(settings=settings) as mariadb:
            goals = {"rows": 1.5, "objects": 2.0}
            results += database("MariaDB", MariaDBCopies(mariadb), goals, ("composite",), archive=True)
    with tempfile.TemporaryDirectory() as folder:
        if "sqlite" in (ONLY or "sqlite"):
            results += database("SQLite", SQLiteCopies(Path(folder)), {"rows": 1.7}, ())
    with tempfile.TemporaryDirectory() as folder:
        if "memory" in (ONLY or "memory"):
            results += memory("SQLite", SQLiteCopies(Path(folder)))
    return results
