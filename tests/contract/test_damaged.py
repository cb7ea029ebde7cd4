"""A row of the ledger that cannot be reckoned with is called damaged where it is read, and ends in nobody's arithmetic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from safedelete.core.decision import Acceptance, Approval, Refused
from safedelete.core.outcome import Tally
from safedelete.core.plan import AgeProfile
from safedelete.core.run import RunState
from safedelete.errors import LedgerError
from safedelete.ledger import tables
from safedelete.ledger.prune import prune
from safedelete.ledger.store import SqlLedger
from safedelete.ports import Notice, RunChange
from tests.contract.ledgers import AT, a_run, plan
from tests.contract.test_ledgers import sql_ledger

AGES = AgeProfile(days=((-1, 5), (0, 7)), older=3)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    """One successful run, which the guard learns from."""
    with sql_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        made = plan()
        made = replace(made, targets=(replace(made.targets[0], ages=AGES),))
        ledger.begin(a_run())
        ledger.move("RUNA", RunState.RUNNING, change=RunChange(plan=made, decision=Refused(plan=made)))
        done = RunChange(finished_at=AT, tally={"uploads": Tally(deleted=5)})
        ledger.move("RUNA", RunState.SUCCEEDED, change=done)
        ledger.approve(
            Approval(
                run="RUNA",
                digest="d",
                accepts=(Acceptance(code="SD101", target="uploads"),),
                reason="r",
                who="ann",
                at=AT,
                expires_at=AT,
                teaches=1,
            )
        )
        yield ledger


def write(ledger: SqlLedger, column: str, value: object, table: str = "safedelete_run") -> None:
    with create_engine(ledger.engine.url, poolclass=NullPool).begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {column} = :value"), {"value": value})


def edited(ledger: SqlLedger, column: str, *path: Any, value: object) -> str:
    with ledger.engine.connect() as connection:
        found = json.loads(connection.execute(text(f"SELECT {column} FROM safedelete_run")).scalar_one())
    inner = found
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(found)


def test_what_is_whole_is_read(ledger: SqlLedger) -> None:
    assert [past.run for past in ledger.history("purge", limit=9)] == ["RUNA"]
    assert ledger.approval("RUNA") is not None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("as_of",), "2026-11-01T00:00:00"),
        (("as_of",), "1969-12-31T23:59:59Z"),
        (("as_of",), "9000-01-01T00:00:00Z"),
        (("targets", 0, "cutoff"), "2026-11-01T00:00:00"),
        (("targets", 0, "cutoff"), "0001-01-01T00:00:00Z"),
        (("targets", 0, "cutoff"), "9999-12-31T23:00:00Z"),
        (("targets", 0, "items"), 10**400),
        (("targets", 0, "bytes"), -(10**400)),
        (("targets", 0, "cascades"), [{"table": "t", "action": "delete", "rows": 10**400}]),
        (("targets", 0, "ages", "days"), [[0, -50]]),
        (("targets", 0, "ages", "days"), [[0, 10**400]]),
        (("targets", 0, "ages", "days"), [[10**9, 1]]),
        (("targets", 0, "ages", "older"), -1),
        (("targets", 0, "ages", "back"), -1),
        (("targets", 0, "ages", "ahead"), 10**9),
    ],
)
@pytest.mark.parametrize("column", ["plan", "decision"])
def test_a_plan_that_cannot_be_reckoned_with_is_damaged(
    ledger: SqlLedger, column: str, path: tuple[Any, ...], value: object
) -> None:
    whole = ("value", "plan", *path) if column == "decision" else path
    write(ledger, column, edited(ledger, column, *whole, value=value))
    with pytest.raises(LedgerError, match=f"{column} of run RUNA cannot be read"):
        ledger.history("purge", limit=9)
    with pytest.raises(LedgerError, match="cannot be read"):
        ledger.record("RUNA")


def test_a_retention_of_centuries_is_no_damage(ledger: SqlLedger) -> None:
    write(ledger, "plan", edited(ledger, "plan", "targets", 0, "cutoff", value="1726-03-01T00:00:00Z"))
    assert ledger.history("purge", limit=9)


@pytest.mark.parametrize("column", ["plan", "decision", "tally"])
def test_what_is_nested_too_deep_is_damaged(ledger: SqlLedger, column: str) -> None:
    write(ledger, column, "[" * 200_000)
    with pytest.raises(LedgerError, match="cannot be read"):
        ledger.history("purge", limit=9)


def test_a_decision_that_is_neither_is_damaged(ledger: SqlLedger) -> None:
    write(ledger, "decision", edited(ledger, "decision", "approved", value="no"))
    with pytest.raises(LedgerError, match="neither approved nor refused"):
        ledger.record("RUNA")


@pytest.mark.parametrize("value", ["2026-11-01T00:00:00", "0001-01-01T00:00:00+00:00", "yesterday"])
@pytest.mark.parametrize("column", ["started_at", "finished_at", "resumed_at"])
def test_a_run_whose_instants_cannot_be_reckoned_with_is_damaged(
    ledger: SqlLedger, column: str, value: str
) -> None:
    write(ledger, column, value)
    with pytest.raises(LedgerError, match="run RUNA cannot be read"):
        ledger.history("purge", limit=9)
    if column == "started_at":
        with pytest.raises(LedgerError, match="run RUNA cannot be read"):
            prune(ledger.engine, AT)


@pytest.mark.parametrize("value", [-1, 3])
@pytest.mark.parametrize(
    ("table", "read"),
    [
        ("safedelete_run", lambda ledger: ledger.record("RUNA")),
        ("safedelete_approval", lambda ledger: ledger.approval("RUNA")),
    ],
)
def test_a_run_teaches_once_twice_or_never(
    ledger: SqlLedger, table: str, read: Callable[[SqlLedger], object], value: int
) -> None:
    write(ledger, "teaches", value, table)
    with pytest.raises(LedgerError, match=f"teaches {value} times"):
        read(ledger)


@pytest.mark.parametrize("column", ["at", "expires_at"])
def test_an_approval_without_a_zone_is_damaged(ledger: SqlLedger, column: str) -> None:
    write(ledger, column, "2026-11-01T00:00:00", "safedelete_approval")
    with pytest.raises(LedgerError, match="approval of run RUNA cannot be read"):
        ledger.approval("RUNA")


def test_a_pause_without_a_zone_is_damaged(ledger: SqlLedger) -> None:
    ledger.say(Notice(kind="pause", subject="purge", since=AT, who="ann", reason="r"))
    write(ledger, "since", "2026-11-01T00:00:00", tables.notice.name)
    with pytest.raises(LedgerError, match="notice pause of purge cannot be read"):
        ledger.notices("pause", "purge")
