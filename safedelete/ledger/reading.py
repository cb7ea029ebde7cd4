"""Read runs, batches and approvals back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

from sqlalchemy import ColumnElement, Engine, Row, func, or_, select
from sqlalchemy.exc import DBAPIError

from safedelete.core.decision import Approval
from safedelete.core.outcome import Tally
from safedelete.core.plan import PastRun
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import decode
from safedelete.errors import AmbiguousRunError, BindingError, LedgerError, NoSuchRunError
from safedelete.ledger import codec, tables
from safedelete.ledger.failures import missing_table, told
from safedelete.ledger.notices import SqlNoticeReader
from safedelete.ledger.past import TAUGHT, past_runs
from safedelete.ports import BatchRef, Binding, RunRecord, StoredBatch

_AT_ONCE: Final = 100
"""Runs asked for by their ids in one statement."""


class SqlLedgerReader(SqlNoticeReader):
    """The ledger's tables, for planning and for showing. Implements ``ports.LedgerReader``. Reads only.

    Args:
        engine: Where the tables are.
        database: Identity of that database, to tell whether a batch's transaction can be joined.
    """

    def __init__(self, engine: Engine, database: str) -> None:
        self.engine = engine
        self.database = database

    def verify(self, binding: Binding) -> None:
        """Compare version, environment, databases and buckets. Reads only."""
        bound = self.binding()
        if not binding.environment:
            raise BindingError(
                f"This ledger belongs to the environment {bound.environment!r}; this run names none.",
                hint=f"If this is {bound.environment}, set SAFEDELETE_ENVIRONMENT={bound.environment}. In a copy of it, "
                "set another name: a copy of production is not production.",
            )
        if bound.environment != binding.environment:
            raise BindingError(
                f"This ledger belongs to the environment {bound.environment!r}; this run is in {binding.environment!r}.",
                hint="A copy of production is not production. Set SAFEDELETE_ENVIRONMENT to what is true; if this "
                "ledger is to belong here from now on, run `safedelete init FILE --adopt`.",
            )
        strange = sorted(binding.databases - bound.databases)
        if strange:
            raise BindingError(
                f"This ledger belongs to {', '.join(sorted(bound.databases))}; this run would purge {', '.join(strange)}.",
                hint="A restored dump or a copied file looks like this. If this database is to be purged from now on, "
                "run `safedelete init FILE --adopt`.",
            )
        buckets = sorted(binding.buckets - bound.buckets)
        if buckets:
            raise BindingError(
                f"This ledger is not bound to the bucket(s) {', '.join(buckets)}; it is bound to "
                f"{', '.join(sorted(bound.buckets)) or 'none'}.",
                hint="If the job file names a new bucket, run `safedelete init FILE` as part of the deployment.",
            )

    def binding(self) -> Binding:
        """Return what the ledger is bound to. Reads only."""
        with told("read its version"), self.engine.connect() as connection:
            try:
                found = dict(connection.execute(select(tables.meta.c.name, tables.meta.c.value)).all())
            except DBAPIError as error:
                if missing_table(error):
                    raise LedgerError(
                        "The ledger is not initialised: its tables are not there.",
                        hint="Run `safedelete init FILE` as a deploy step; `run` never creates tables.",
                    ) from error
                raise
        if "version" not in found:
            raise LedgerError(
                "The ledger is not initialised: its tables are empty.", hint="Run `safedelete init FILE`."
            )
        if found["version"] != str(tables.VERSION):
            raise LedgerError(
                f"The ledger has version {found['version']}; this safedelete reads version {tables.VERSION}.",
                hint="Install the version of safedelete that wrote it.",
            )
        try:
            databases, buckets = json.loads(found["databases"]), json.loads(found["buckets"])
            return Binding(found["environment"], frozenset(databases), frozenset(buckets))
        except (KeyError, ValueError, TypeError) as error:
            raise codec.damaged("binding", error) from error

    def history(self, job: str, *, limit: int) -> Sequence[PastRun]:
        """Return the newest successful purges of a job, and the newest others that deleted something. Reads only.

        The two are asked for apart: however many nights fail, they push no success out of sight.
        """
        t = tables.run.c
        planned = select(tables.run).where(t.job == job, t.plan.is_not(None))
        newest = planned.where(self._in({RunState.SUCCEEDED})).order_by(t.started_at.desc(), t.run.desc())
        partial = (
            select(t.run, t.tally)
            .where(t.job == job, t.plan.is_not(None), t.tally.is_not(None))
            .where(t.state.in_([state.value for state in TAUGHT - {RunState.SUCCEEDED}]))
            .order_by(t.started_at.desc(), t.run.desc())
        )
        with told("read runs"), self.engine.connect() as connection:
            rows = list(connection.execute(newest.limit(limit)))
            deleted = [
                run
                for run, tally in connection.execute(partial)
                if any(t.deleted for t in codec.load_tallies(tally, f"tally of run {run}").values())
            ]
            for start in range(0, min(limit, len(deleted)), _AT_ONCE):
                some = deleted[start : min(start + _AT_ONCE, limit)]
                rows += connection.execute(select(tables.run).where(t.run.in_(some)))
        rows.sort(key=lambda row: (row.started_at, row.run), reverse=True)
        return past_runs(_record(row) for row in rows)

    @staticmethod
    def _in(states: Collection[RunState]) -> ColumnElement[bool]:
        """Match runs in these states, and runs whose state cannot be read: it may be any, and is told as damage."""
        state = tables.run.c.state
        return or_(state.in_([s.value for s in states]), state.not_in([s.value for s in RunState]))

    def runs(
        self, job: str | None, *, limit: int, states: Collection[RunState] | None = None
    ) -> Sequence[RunRecord]:
        """Return runs, newest first. Reads only."""
        t = tables.run.c
        query = select(tables.run).order_by(t.started_at.desc(), t.run.desc()).limit(limit)
        if job is not None:
            query = query.where(t.job == job)
        if states is not None:
            query = query.where(self._in(states))
        with told("read runs"), self.engine.connect() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]

    def record(self, run: str) -> RunRecord:
        """Return one run by its id or a unique prefix of it. Reads only."""
        t = tables.run.c
        query = select(tables.run).where(t.run.startswith(run.upper(), autoescape=True)).limit(2)
        with told("read a run"), self.engine.connect() as connection:
            rows = connection.execute(query).all()
        if len(rows) != 1:
            what = "more than one run" if rows else "no run"
            raise (AmbiguousRunError if rows else NoSuchRunError)(
                f"There is {what} whose id begins with {run!r}.", hint="`safedelete history FILE` lists them."
            )
        return _record(rows[0])

    def batches(self, run: str, states: Collection[BatchState] | None = None) -> Iterator[StoredBatch]:
        """Yield sealed batches in order, one in memory at a time. Reads only."""
        t = tables.batch.c
        places = select(t.target, t.seq).where(t.run == run).order_by(t.target, t.seq)
        if states is not None:
            unreadable = t.state.not_in([s.value for s in BatchState])
            places = places.where(or_(t.state.in_([s.value for s in states]), unreadable))
        with told("list batches"), self.engine.connect() as connection:
            refs = connection.execute(places).all()
        for target, seq in refs:
            query = select(tables.batch).where(t.run == run, t.target == target, t.seq == seq)
            with told("read a batch"), self.engine.connect() as connection:
                row = connection.execute(query).one()
            where = f"batch {target}/{seq} of run {run}"
            yield StoredBatch(
                BatchRef(run, target, seq),
                _state(BatchState, row.state, where),
                decode(row.data, row.sha256),
                codec.load_outcomes(row.outcomes, where),
                codec.load_indexes(row.pending, where, items=row.item_count),
            )

    def approval(self, run: str) -> Approval | None:
        """Return the newest approval of a run. Reads only."""
        t = tables.approval.c
        query = select(tables.approval).where(t.run == run).order_by(t.at.desc()).limit(1)
        with told("read approvals"), self.engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        where = f"approval of run {row.run}"
        return Approval(
            run=row.run,
            digest=row.digest,
            accepts=codec.load_accepts(row.accepts, where),
            reason=row.reason,
            who=row.who,
            at=codec.load_instant(row.at, where),
            expires_at=codec.load_instant(row.expires_at, where),
            teaches=_teaches(row.teaches, where),
        )

    def tally(self, run: str) -> Mapping[int, Tally]:
        """Add up the settled batches by target index. Reads only."""
        t = tables.batch.c
        query = select(t.target, t.tally).where(t.run == run, t.tally.is_not(None))
        sums: dict[int, Tally] = {}
        with told("add up outcomes"), self.engine.connect() as connection:
            for target, text in connection.execute(query):
                for tally in codec.load_tallies(text, f"tally of run {run}").values():
                    sums[target] = sums.get(target, Tally()) + tally
        return sums

    def sealed(self, run: str) -> Mapping[int, int]:
        """Count the sealed items by target index. Reads only."""
        t = tables.batch.c
        query = select(t.target, func.sum(t.item_count)).where(t.run == run).group_by(t.target)
        with told("count sealed items"), self.engine.connect() as connection:
            return {target: int(items) for target, items in connection.execute(query)}

    def checksums(self, run: str) -> Iterator[str]:
        """Yield the sealed batches' checksums in order. Reads only."""
        t = tables.batch.c
        query = select(t.sha256).where(t.run == run).order_by(t.target, t.seq)
        with told("read checksums"), self.engine.connect() as connection:
            yield from connection.execute(query).scalars()


def _teaches(value: Any, where: str) -> Literal[0, 1, 2]:
    if value not in (0, 1, 2):
        raise codec.damaged(where, ValueError(f"it teaches {value!r} times; it may 0, 1 or 2"))
    return cast("Literal[0, 1, 2]", value)


def _state(kind: Any, value: str, where: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise codec.damaged(where, error) from error


def _record(row: Row[Any]) -> RunRecord:
    where = f"run {row.run}"
    return RunRecord(
        run=row.run,
        job=row.job,
        kind=row.kind,
        state=_state(RunState, row.state, where),
        started_at=codec.load_instant(row.started_at, where),
        finished_at=None if row.finished_at is None else codec.load_instant(row.finished_at, where),
        plan=None if row.plan is None else codec.load_plan(row.plan, f"plan of {where}"),
        decision=None if row.decision is None else codec.load_decision(row.decision, f"decision of {where}"),
        owner=row.owner,
        tally=codec.load_tallies(row.tally, f"tally of {where}"),
        reason=row.reason or "",
        exit_code=row.exit_code,
        sealed_bytes=row.sealed_bytes,
        teaches=_teaches(row.teaches, where),
        resumed_at=None if row.resumed_at is None else codec.load_instant(row.resumed_at, where),
        task=row.task or "",
    )
