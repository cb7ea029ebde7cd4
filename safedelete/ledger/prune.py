"""Forget old runs of the ledger, and the seals of those that stay for the guard alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Engine, delete, func, select

from safedelete.core.outcome import Tally
from safedelete.core.retention import Past, forgettable
from safedelete.core.run import EXECUTABLE, RESUMABLE, UNFINISHED, RunState
from safedelete.errors import ExitCode
from safedelete.ledger import codec, tables
from safedelete.ledger.failures import instant, told

AT_ONCE: Final = 50
"""Runs forgotten in one transaction: a run may have a thousand batches of a megabyte."""

_OPEN: Final = UNFINISHED | RESUMABLE | EXECUTABLE
"""States whose sealed keys somebody still needs."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was forgotten, or would be.

    Attributes:
        runs: Runs.
        seals: Runs that stay for the guard, without their sealed keys.
        batches: Sealed batches of both.
        kept: Runs that stay.
    """

    runs: int
    seals: int
    batches: int
    kept: int


def prune(
    engine: Engine,
    before: datetime,
    *,
    dry_run: bool = False,
    progress: Callable[[str, int, int], None] = lambda _phase, _done, _total: None,
) -> Pruned:
    """Forget runs that began before an instant and that nothing needs. Deletes rows of the ledger, nothing else.

    Each transaction forgets whole runs, so that a stop at any point leaves a ledger that is whole; start it again.

    Args:
        engine: The ledger's database; the role needs DELETE on its tables.
        before: Exclusive, aware UTC.
        dry_run: Count only.
        progress: Told how far it is.
    """
    gone, stripped, kept = _choose(engine, before)
    chosen = [*gone, *stripped]
    batches = _count(engine, chosen)
    if not dry_run:
        done = 0
        for some in _slices(stripped):
            _forget(engine, some, whole=False)
            progress("seals", done := done + len(some), len(chosen))
        for some in _slices(gone):
            _forget(engine, some, whole=True)
            progress("runs", done := done + len(some), len(chosen))
        t = tables.notice.c
        with told("forget old notices"), engine.begin() as connection:
            connection.execute(delete(tables.notice).where(t.ended_at < instant(before)))
    return Pruned(len(gone), len(stripped), batches, kept)


def _choose(engine: Engine, before: datetime) -> tuple[list[Past], list[Past], int]:
    """Return the runs to forget, those whose seals alone may go, and how many runs stay."""
    t = tables.run.c
    with told("list its jobs"), engine.connect() as connection:
        jobs = list(connection.execute(select(t.job).distinct()).scalars())
    gone: list[Past] = []
    stripped: list[Past] = []
    kept = 0
    for job in jobs:
        runs = list(_runs(engine, job))
        mine = list(forgettable(runs, before))
        names = {past.run for past in mine}
        gone += mine
        kept += len(runs) - len(mine)
        old = [
            p
            for p in runs
            if p.run not in names and p.started_at < before and p.state not in _OPEN and not p.untold
        ]
        sealed = _sealed(engine, old)
        stripped += [past for past in old if past.run in sealed]
    return gone, stripped, kept


def _runs(engine: Engine, job: str) -> Iterator[Past]:
    t = tables.run.c
    planned = t.plan.is_not(None).label("planned")
    query = select(t.run, t.kind, t.state, t.started_at, t.exit_code, t.tally, planned).where(t.job == job)
    with told("list runs"), engine.connect() as connection:
        for row in connection.execute(query.order_by(t.started_at.desc(), t.run.desc())):
            where = f"run {row.run}"
            try:
                state, started = RunState(row.state), codec.load_instant(row.started_at, where)
            except ValueError as error:
                # A damaged row is told by whoever stumbles on it; forgetting it would hide the damage.
                raise codec.damaged(where, error) from error
            total = sum(codec.load_tallies(row.tally, f"tally of {where}").values(), Tally())
            yield Past(
                run=row.run,
                state=state,
                started_at=started,
                deleted=total.deleted > 0,
                planned=bool(row.planned),
                resumes=row.kind == "purge",
                untold=state is RunState.ABANDONED and row.exit_code != ExitCode.STORE and not total.clean,
            )


def _sealed(engine: Engine, runs: Sequence[Past]) -> set[str]:
    t = tables.batch.c
    found: set[str] = set()
    for some in _slices(runs):
        query = select(t.run).where(_of(t.run, some)).distinct()
        with told("look for seals"), engine.connect() as connection:
            found |= set(connection.execute(query).scalars())
    return found


def _count(engine: Engine, runs: Sequence[Past]) -> int:
    t = tables.batch.c
    count = 0
    for some in _slices(runs):
        query = select(func.count()).select_from(tables.batch).where(_of(t.run, some))
        with told("count batches"), engine.connect() as connection:
            count += int(connection.execute(query).scalar_one())
    return count


def _forget(engine: Engine, runs: Sequence[Past], *, whole: bool) -> None:
    t = tables.run.c
    with told("forget old runs"), engine.begin() as connection:
        # Held while they are still as they were looked at: a refused run may have been approved since.
        query = select(t.run, t.state).where(_of(t.run, runs)).with_for_update()
        now: dict[str, str] = {row.run: row.state for row in connection.execute(query)}
        same = [past for past in runs if now.get(past.run) == past.state.value]
        connection.execute(delete(tables.batch).where(_of(tables.batch.c.run, same)))
        if whole:
            notice = tables.notice.c
            connection.execute(delete(tables.approval).where(_of(tables.approval.c.run, same)))
            connection.execute(
                delete(tables.notice).where(notice.kind == "cancel", _of(notice.subject, same))
            )
            connection.execute(delete(tables.run).where(_of(t.run, same)))


def _of(column: Any, runs: Sequence[Past]) -> ColumnElement[bool]:
    found: ColumnElement[bool] = column.in_([past.run for past in runs])
    return found


def _slices(runs: Sequence[Past]) -> Iterator[Sequence[Past]]:
    for start in range(0, len(runs), AT_ONCE):
        yield runs[start : start + AT_ONCE]
