"""The ledger forgets what nothing needs, and decides afterwards as it did before."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safedelete.core import retention
from safedelete.core.decision import Approval
from safedelete.core.guard import decide
from safedelete.core.item import SealedRow
from safedelete.core.limits import Guard
from safedelete.core.outcome import Tally
from safedelete.core.plan import Plan
from safedelete.core.run import RunState
from safedelete.core.seal import RowBatch
from safedelete.errors import ExitCode
from safedelete.ledger import codec, tables
from safedelete.ledger import prune as pruning
from safedelete.ledger.prune import prune
from safedelete.ledger.setup import initialise
from safedelete.ledger.store import SqlLedger
from safedelete.ports import BatchRef, Binding, Notice, RunRecord
from tests.cli.runs import plan_of
from tests.e2e.world import World

S = RunState
JOB = "login-events"
ENDS = [S.SUCCEEDED, S.SUCCEEDED, S.SUCCEEDED, S.FAILED, S.REFUSED, S.INCOMPLETE, S.CANCELLED, S.ABANDONED]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'ledger.db'}")

    @sa.event.listens_for(engine, "connect")
    def hurry(connection: sqlite3.Connection, _record: object) -> None:
        # Hundreds of nights are written one by one, and none of them has to survive a power cut.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")

    initialise(engine, Binding("test", frozenset({"main"}), frozenset()), adopt=False)
    yield SqlLedger(engine, "main")
    engine.dispose()


def emptied(ledger: SqlLedger) -> None:
    with ledger.engine.begin() as connection:
        for table in (tables.run, tables.batch, tables.approval, tables.notice):
            connection.execute(sa.delete(table))


def record(ledger: SqlLedger, night: int, state: RunState, items: int = 4000, *, sealed: bool = False) -> str:
    """Write one run as it would stand after that night."""
    made = plan_of(night, items)
    run = f"RUN{night:06}"
    kept = RunRecord(run=run, job=JOB, kind="purge", state=state, started_at=made.as_of, plan=made)
    ledger.begin(replace(kept, state=S.PLANNING) if sealed else kept)
    if sealed:
        ledger.seal(BatchRef(run, 0, 0), RowBatch((SealedRow((night,), ()),)))
    tally = {"login_events": Tally(deleted=items if state is S.SUCCEEDED else items // 2)}
    with ledger.engine.begin() as connection:
        values = {"state": state.value, "tally": codec.dump_tallies(tally), "exit_code": 0}
        connection.execute(sa.update(tables.run).where(tables.run.c.run == run).values(values))
    return run


def runs(ledger: SqlLedger) -> set[str]:
    return {r.run for r in ledger.runs(None, limit=10_000)}


def verdict(ledger: SqlLedger, tonight: Plan) -> object:
    past = ledger.history(JOB, limit=retention.SIGHT)
    made = decide(tonight, Guard(), past, approval=None, now=tonight.as_of, max_sealed=10**6)
    return type(made), made.findings, made.measures


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    nights=st.integers(5, 40),
    sight=st.integers(3, 12),
    keep=st.integers(2, 30),
    tonight=st.sampled_from([0, 10, 4000, 9000, 60_000]),
)
def test_the_guard_says_the_same_before_and_after(
    ledger: SqlLedger, seed: int, nights: int, sight: int, keep: int, tonight: int
) -> None:
    """With a shorter sight than in life, so that a history of tens of nights is longer than it."""
    rng = random.Random(seed)
    emptied(ledger)
    for night in range(nights):
        record(ledger, night, rng.choice(ENDS), round(4000 * rng.lognormvariate(0, 0.3)))
    plan = plan_of(nights, tonight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "SIGHT", sight)
        before = verdict(ledger, plan)
        newest = [r.run for r in ledger.runs(JOB, limit=sight)]
        prune(ledger.engine, plan.as_of - timedelta(days=keep))
        assert verdict(ledger, plan) == before
        assert [r.run for r in ledger.runs(JOB, limit=sight)] == newest
        # And it stays so on every later night: a new success only pushes old ones out of sight.
        record(ledger, nights, S.SUCCEEDED, tonight)
        again = verdict(ledger, plan_of(nights + 1, tonight))
        prune(ledger.engine, plan.as_of - timedelta(days=keep))
        assert verdict(ledger, plan_of(nights + 1, tonight)) == again


def test_what_is_old_and_out_of_sight_is_forgotten_with_all_that_belongs_to_it(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SIGHT", 3)
    monkeypatch.setattr(pruning, "AT_ONCE", 2)
    made = [record(ledger, night, S.SUCCEEDED, sealed=True) for night in range(10)]
    at = datetime(2020, 1, 1, tzinfo=UTC)
    for run in made:
        ledger.approve(
            Approval(run=run, digest="d", accepts=(), reason="r", who="w", at=at, expires_at=at, teaches=1)
        )
        ledger.say(Notice(kind="cancel", subject=run, since=at, who="ann", reason="r"))
    ledger.say(Notice(kind="declared", subject=JOB, since=at, who="ann"))
    before = plan_of(8, 0).as_of
    steps: list[tuple[str, int, int]] = []
    counted = prune(ledger.engine, before, dry_run=True)
    assert (len(runs(ledger)), counted.runs, counted.seals, counted.batches, counted.kept) == (10, 7, 1, 8, 3)
    done = prune(ledger.engine, before, progress=lambda *step: steps.append(step))
    assert done == counted
    assert steps[-1] == ("runs", 8, 8)
    assert runs(ledger) == set(made[7:])
    with ledger.engine.connect() as connection:
        for column in (tables.approval.c.run, tables.notice.c.subject):
            assert set(connection.execute(sa.select(column)).scalars()) - {JOB} == set(made[7:])
    # The one that stays for the guard alone has lost its keys, the young ones have not.
    assert [len(list(ledger.batches(run))) for run in made[7:]] == [0, 1, 1]
    assert ledger.notices("declared", JOB)
    assert prune(ledger.engine, before).runs == 0


def test_a_run_that_changed_since_it_was_looked_at_stays(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SIGHT", 0)
    old = record(ledger, 0, S.REFUSED, sealed=True)
    real = pruning._count

    def approved_meanwhile(engine: sa.Engine, chosen: object) -> int:
        ledger.move(old, S.RUNNING)
        return real(engine, chosen)  # type: ignore[arg-type]

    monkeypatch.setattr(pruning, "_count", approved_meanwhile)
    prune(ledger.engine, plan_of(400, 0).as_of)
    assert runs(ledger) == {old}
    assert len(list(ledger.batches(old))) == 1


def test_a_run_that_can_be_resumed_keeps_its_seal(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SIGHT", 0)
    kept = [
        record(ledger, night, state, sealed=True)
        for night, state in enumerate([S.INTERRUPTED, S.CRASHED, S.RUNNING, S.PLANNING])
    ]
    prune(ledger.engine, plan_of(400, 0).as_of)
    assert runs(ledger) == set(kept)
    assert all(len(list(ledger.batches(run))) == 1 for run in kept)


def test_an_abandoned_run_whose_failures_nobody_was_told_of_keeps_its_seal(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SIGHT", 0)
    told, untold = (record(ledger, night, S.ABANDONED, sealed=True) for night in range(2))
    tally = codec.dump_tallies({"login_events": Tally(deleted=3, failed=1)})
    with ledger.engine.begin() as connection:
        t = tables.run
        connection.execute(sa.update(t).values(tally=tally, exit_code=int(ExitCode.STORE)))
        connection.execute(sa.update(t).where(t.c.run == untold).values(exit_code=int(ExitCode.INCOMPLETE)))
    prune(ledger.engine, plan_of(400, 0).as_of)
    assert told not in runs(ledger)
    assert runs(ledger) == {untold}
    assert len(list(ledger.batches(untold))) == 1


def test_a_pause_that_ended_long_ago_is_forgotten_and_one_that_holds_or_ended_lately_is_not(
    ledger: SqlLedger,
) -> None:
    old, before, young = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 2022))
    for job, ended in (("long-ago", old), ("lately", young), ("holds", None)):
        ledger.say(Notice(kind="pause", subject=job, since=old, who="ann", reason="r"))
        if ended is not None:
            ledger.take_back("pause", job, at=ended, who="ann")
    prune(ledger.engine, before, dry_run=True)
    assert ledger.notices("pause", "long-ago")
    prune(ledger.engine, before)
    assert [len(ledger.notices("pause", job)) for job in ("long-ago", "lately", "holds")] == [0, 1, 1]


def test_the_verb_says_what_it_forgot_and_a_dry_run_forgets_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = world.ready()
    for _ in range(3):
        world.cli("plan", path, "--save")
    world.sql("UPDATE safedelete_run SET state = 'expired', started_at = '2020-01-01T00:00:00+00:00'")
    monkeypatch.setattr(retention, "SIGHT", 1)
    said = world.cli("prune-ledger", "--keep", "400d", "--file", path, "--dry-run", "--json", expect=0)
    assert said.document == [{"runs": 2, "seals": 1, "batches": 3, "kept": 1, "dry_run": True}]
    assert world.value("SELECT count(*) FROM safedelete_run") == 3
    out = world.cli("prune-ledger", "--keep", "57w", "--file", path, expect=0).out
    assert "Forgot 2 run(s), and the sealed keys of 1 more" in out
    assert world.value("SELECT count(*) FROM safedelete_run") == 1
    assert world.value("SELECT count(*) FROM safedelete_batch") == 0
    assert world.rows() == world.objects() != set()


@pytest.mark.parametrize("keep", ["1d", "0d", "400", "-3d", "1.5d", "a year", ""])
def test_an_age_that_is_none_or_too_short_is_refused(world: World, keep: str) -> None:
    ended = world.cli("prune-ledger", f"--keep={keep}", expect=2)
    assert "Nothing was deleted." in ended.said
