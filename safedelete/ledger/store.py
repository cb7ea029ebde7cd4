"""Runs, batches and approvals over SQLAlchemy, on whatever database the ledger lives in."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

from sqlalchemy import Connection, Engine, Row, delete, func, insert, or_, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from safedelete.core.decision import Approval
from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.core.plan import PastRun
from safedelete.core.run import BatchState, RunState, transition
from safedelete.core.seal import ObjectBatch, RowBatch, decode, encode
from safedelete.errors import BindingError, LedgerError
from safedelete.ledger import codec, tables
from safedelete.ports import (
    BatchRef,
    Binding,
    Proof,
    RunChange,
    RunRecord,
    StoredBatch,
    Transaction,
    Verdict,
)

TAUGHT = frozenset({RunState.SUCCEEDED, RunState.REFUSED, RunState.FAILED, RunState.INCOMPLETE})
"""Finished runs that the guard may look at; it decides itself which of them teach."""


@runtime_checkable
class SqlTransaction(Protocol):
    """A transaction that runs on a SQLAlchemy connection."""

    @property
    def connection(self) -> Connection:
        """The connection it is open on."""


class LedgerTransaction:
    """A transaction on the ledger's own connection."""

    def __init__(self, connection: Connection, database: str) -> None:
        self.connection = connection
        self.database = database

    def commit(self) -> None:
        """Commit, and give the connection back."""
        with _told("commit an outcome"):
            self.connection.commit()
        self.connection.close()

    def rollback(self) -> None:
        """Undo, and give the connection back."""
        self.connection.close()


class SqlLedger:
    """The ledger in a SQL database. Implements ``ports.Ledger``.

    Args:
        engine: Where its tables are.
        database: Identity of that database, to tell whether a batch's transaction can be joined.
    """

    def __init__(self, engine: Engine, database: str) -> None:
        self.engine = engine
        self.database = database

    # --- what it belongs to

    def verify(self, binding: Binding) -> None:
        """Compare version, environment, databases and buckets. Reads only."""
        bound = self.binding()
        if bound.environment != binding.environment:
            raise BindingError(
                f"This ledger belongs to the environment {bound.environment!r}; this run is in {binding.environment!r}.",
                hint="A copy of production is not production. Set SAFEDELETE_ENVIRONMENT to what is true; if this "
                "ledger is to belong here from now on, run `safedelete init --adopt`.",
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
        with _told("read its version"), self.engine.connect() as connection:
            try:
                query = select(tables.meta.c.name, tables.meta.c.value)
                found: dict[str, str] = {row.name: row.value for row in connection.execute(query)}
            except DBAPIError as error:
                if _missing_table(error):
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
                hint="Install the version of safedelete that wrote it, or run `safedelete init FILE` to upgrade an "
                "older ledger.",
            )
        try:
            databases, buckets = json.loads(found["databases"]), json.loads(found["buckets"])
            return Binding(found["environment"], frozenset(databases), frozenset(buckets))
        except (KeyError, ValueError, TypeError) as error:
            raise codec.damaged("binding", error) from error

    # --- reading

    def history(self, job: str, *, limit: int) -> Sequence[PastRun]:
        """Return finished purges of a job with their plans, newest first. Reads only."""
        return [
            PastRun(
                run=record.run,
                plan=record.plan,
                state=record.state.value,
                finished_at=record.finished_at,
                deleted={name: tally.deleted for name, tally in record.tally.items()},
                teaches=record.teaches,
            )
            for record in self.runs(job, limit=limit, states=TAUGHT)
            if record.plan is not None
        ]

    def runs(
        self, job: str | None, *, limit: int, states: Collection[RunState] | None = None
    ) -> Sequence[RunRecord]:
        """Return runs, newest first. Reads only."""
        t = tables.run.c
        query = select(tables.run).order_by(t.started_at.desc(), t.run.desc()).limit(limit)
        if job is not None:
            query = query.where(t.job == job)
        if states is not None:
            # A state that cannot be read may be any of them: it is taken along, and told as damage below.
            unreadable = t.state.not_in([s.value for s in RunState])
            query = query.where(or_(t.state.in_([s.value for s in states]), unreadable))
        with _told("read runs"), self.engine.connect() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]

    def record(self, run: str) -> RunRecord:
        """Return one run by its id or a unique prefix of it. Reads only."""
        t = tables.run.c
        query = select(tables.run).where(t.run.startswith(run.upper(), autoescape=True)).limit(2)
        with _told("read a run"), self.engine.connect() as connection:
            rows = connection.execute(query).all()
        if len(rows) != 1:
            what = "more than one run" if rows else "no run"
            raise LedgerError(
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
        with _told("list batches"), self.engine.connect() as connection:
            refs = connection.execute(places).all()
        for target, seq in refs:
            query = select(tables.batch).where(t.run == run, t.target == target, t.seq == seq)
            with _told("read a batch"), self.engine.connect() as connection:
                row = connection.execute(query).one()
            where = f"batch {target}/{seq} of run {run}"
            yield StoredBatch(
                BatchRef(run, target, seq),
                _state(BatchState, row.state, where),
                decode(row.data, row.sha256),
                codec.load_outcomes(row.outcomes, where),
                codec.load_indexes(row.pending, where),
            )

    def approval(self, run: str) -> Approval | None:
        """Return the newest approval of a run. Reads only."""
        t = tables.approval.c
        query = select(tables.approval).where(t.run == run).order_by(t.at.desc()).limit(1)
        with _told("read approvals"), self.engine.connect() as connection:
            row = connection.execute(query).first()
        if row is None:
            return None
        return Approval(
            run=row.run,
            digest=row.digest,
            codes=tuple(json.loads(row.codes)),
            reason=row.reason,
            who=row.who,
            at=datetime.fromisoformat(row.at),
            expires_at=datetime.fromisoformat(row.expires_at),
            teaches=row.teaches,
        )

    def tally(self, run: str) -> Mapping[int, Tally]:
        """Add up the settled batches by target index. Reads only."""
        t = tables.batch.c
        query = select(t.target, t.tally).where(t.run == run, t.tally.is_not(None))
        sums: dict[int, Tally] = {}
        with _told("add up outcomes"), self.engine.connect() as connection:
            for target, text in connection.execute(query):
                for tally in codec.load_tallies(text, f"tally of run {run}").values():
                    sums[target] = sums.get(target, Tally()) + tally
        return sums

    def sealed(self, run: str) -> Mapping[int, int]:
        """Count the sealed items by target index. Reads only."""
        t = tables.batch.c
        query = select(t.target, func.sum(t.item_count)).where(t.run == run).group_by(t.target)
        with _told("count sealed items"), self.engine.connect() as connection:
            return {target: int(items) for target, items in connection.execute(query)}

    # --- writing

    def begin(self, record: RunRecord) -> None:
        """Insert a run."""
        values = {
            "run": record.run,
            "job": record.job,
            "kind": record.kind,
            "state": record.state.value,
            "started_at": instant(record.started_at),
            "owner": record.owner,
            "sealed_bytes": 0,
            "teaches": record.teaches,
            **_columns(RunChange(plan=record.plan, decision=record.decision)),
        }
        with _told("record a run"), self.engine.begin() as connection:
            connection.execute(insert(tables.run).values(values))

    def move(
        self, run: str, to: RunState, *, change: RunChange | None = None, owner: str | None = None
    ) -> RunRecord:
        """Move a run along an edge of the state table, comparing the old state and owner."""
        now = self.record(run)
        if now.state is not to:
            transition(now.state, to)
        t = tables.run.c
        statement = update(tables.run).where(t.run == now.run, t.state == now.state.value)
        if owner is not None:
            statement = statement.where(t.owner == owner)
        with _told("record a run's state"), self.engine.begin() as connection:
            moved = connection.execute(statement.values(state=to.value, **_columns(change or RunChange())))
        if moved.rowcount != 1:
            raise LedgerError(
                f"Run {now.run} was changed by another process while this one was about to make it {to.value}.",
                hint="Look at it with `safedelete show`.",
            )
        return self.record(now.run)

    def seal(self, ref: BatchRef, items: RowBatch | ObjectBatch) -> int:
        """Store a batch; returns its size in bytes."""
        blob = encode(items)
        values = {
            "run": ref.run,
            "target": ref.target,
            "seq": ref.seq,
            "state": BatchState.SEALED.value,
            "item_count": len(items),
            "sha256": blob.sha256,
            "data": blob.data,
        }
        with _told("seal a batch"), self.engine.begin() as connection:
            connection.execute(insert(tables.batch).values(values))
        return len(blob.data)

    def drop_seal(self, run: str) -> None:
        """Forget a run's sealed batches."""
        with _told("drop a seal"), self.engine.begin() as connection:
            connection.execute(delete(tables.batch).where(tables.batch.c.run == run))

    def checksums(self, run: str) -> Iterator[str]:
        """Yield the sealed batches' checksums in order. Reads only."""
        t = tables.batch.c
        query = select(t.sha256).where(t.run == run).order_by(t.target, t.seq)
        with _told("read checksums"), self.engine.connect() as connection:
            yield from connection.execute(query).scalars()

    def doubt(self, ref: BatchRef) -> None:
        """Mark a batch in doubt."""
        with _told("mark a batch in doubt"), self.engine.begin() as connection:
            connection.execute(
                update(tables.batch)
                # What is settled stays settled, whoever comes late.
                .where(*_place(ref), tables.batch.c.state != BatchState.DONE.value)
                .values(state=BatchState.IN_DOUBT.value)
            )

    def settle(
        self,
        ref: BatchRef,
        tally: Tally,
        outcomes: Mapping[int, ItemOutcome],
        pending: Sequence[int],
        transaction: Transaction | None,
    ) -> None:
        """Record a batch's outcomes, in the given transaction where it is on this database."""
        state = BatchState.DEFERRED if pending else BatchState.DONE
        statement = (
            update(tables.batch)
            .where(*_place(ref))
            .values(
                state=state.value,
                tally=codec.dump_tallies({"": tally}),
                outcomes=codec.dump_outcomes(outcomes) if outcomes else None,
                pending=codec.dump_indexes(pending) if pending else None,
            )
        )
        with _told("record a batch's outcomes"):
            if (
                transaction is not None
                and self.joins(transaction)
                and isinstance(transaction, SqlTransaction)
            ):
                transaction.connection.execute(statement)
            else:
                with self.engine.begin() as connection:
                    connection.execute(statement)

    def joins(self, transaction: Transaction) -> bool:
        """Whether a transaction is on this ledger's own database."""
        return transaction.database == self.database and isinstance(transaction, SqlTransaction)

    def open(self) -> LedgerTransaction:
        """Open a transaction on the ledger's database."""
        with _told("open a transaction"):
            connection = self.engine.connect()
            connection.begin()
        return LedgerTransaction(connection, self.database)

    def approve(self, approval: Approval) -> None:
        """Record an approval."""
        values = {
            "run": approval.run,
            "at": instant(approval.at),
            "digest": approval.digest,
            "codes": json.dumps(approval.codes),
            "reason": approval.reason,
            "who": approval.who,
            "expires_at": instant(approval.expires_at),
            "teaches": approval.teaches,
        }
        with _told("record an approval"), self.engine.begin() as connection:
            connection.execute(insert(tables.approval).values(values))

    def probe(self) -> Sequence[Proof]:
        """Prove each write in a transaction that is rolled back."""
        writes = {
            "INSERT on safedelete_run": insert(tables.run).values(
                run="PROBE",
                job="",
                kind="purge",
                state="",
                started_at="",
                owner="",
                sealed_bytes=0,
                teaches=0,
            ),
            "UPDATE on safedelete_run": update(tables.run)
            .where(tables.run.c.run == "PROBE")
            .values(state=""),
            "INSERT on safedelete_batch": insert(tables.batch).values(
                run="PROBE", target=0, seq=0, state="", item_count=0, sha256="", data=b""
            ),
            "UPDATE on safedelete_batch": update(tables.batch)
            .where(tables.batch.c.run == "PROBE")
            .values(state=""),
            "DELETE on safedelete_batch": delete(tables.batch).where(tables.batch.c.run == "PROBE"),
            "SELECT on safedelete_approval": select(tables.approval).limit(1),
        }
        proofs = []
        for subject, statement in writes.items():
            try:
                with self.engine.connect() as connection:
                    connection.execute(statement)
                    connection.rollback()
                proofs.append(Proof(subject, Verdict.ALLOWED))
            except SQLAlchemyError as error:
                verdict = Verdict.DENIED if denied(error) else Verdict.UNKNOWN
                proofs.append(
                    Proof(
                        subject,
                        verdict,
                        first_line(error),
                        f"GRANT {subject.replace(' on ', ' ON ')} TO <role>;",
                    )
                )
        return proofs


def instant(value: datetime) -> str:
    """Write an instant as the ledger stores it: ISO 8601, UTC, microseconds."""
    return value.astimezone(UTC).isoformat(timespec="microseconds")


def first_line(error: BaseException) -> str:
    """Return the database's own words, without SQLAlchemy's statement and parameters."""
    source = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return (str(source).strip().splitlines() or [type(source).__name__])[0]


def denied(error: SQLAlchemyError) -> bool:
    """Whether the database refused for want of a privilege, or because it is read-only."""
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None)
    if state is not None:
        return state in {"42501", "25006"}
    code = original.args[0] if original is not None and original.args else None
    if isinstance(code, int):
        return code in {1142, 1143, 1227, 1290, 1044}
    return "readonly" in str(original) or "read-only" in str(original)


def _missing_table(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    code = error.orig.args[0] if error.orig is not None and error.orig.args else None
    return state == "42P01" or code == 1146 or "no such table" in str(error.orig)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise LedgerError(
            f"The ledger could not {what}: {first_line(error)}.",
            hint="Another process may have written the same row; look at it with `safedelete history FILE`.",
        ) from error
    except SQLAlchemyError as error:
        hint = (
            "The role lacks a privilege on the ledger's tables."
            if denied(error)
            else "Check that the ledger's database answers, and its URL (SAFEDELETE_LEDGER_URL, SAFEDELETE_DATABASE_URL)."
        )
        raise LedgerError(f"The ledger could not {what}: {first_line(error)}.", hint=hint) from error


def _columns(change: RunChange) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "plan": None if change.plan is None else codec.dump_plan(change.plan),
        "decision": None if change.decision is None else codec.dump_decision(change.decision),
        "finished_at": None if change.finished_at is None else instant(change.finished_at),
        "tally": None if change.tally is None else codec.dump_tallies(change.tally),
        "reason": change.reason,
        "exit_code": change.exit_code,
        "sealed_bytes": change.sealed_bytes,
        "owner": change.owner,
        "teaches": change.teaches,
    }
    return {name: value for name, value in columns.items() if value is not None}


def _place(ref: BatchRef) -> tuple[Any, ...]:
    t = tables.batch.c
    return (t.run == ref.run, t.target == ref.target, t.seq == ref.seq)


def _state(kind: Any, value: str, where: str) -> Any:
    try:
        return kind(value)
    except ValueError as error:
        raise codec.damaged(where, error) from error


def _record(row: Row[Any]) -> RunRecord:
    where = f"run {row.run}"
    try:
        started = datetime.fromisoformat(row.started_at)
        finished = None if row.finished_at is None else datetime.fromisoformat(row.finished_at)
    except ValueError as error:
        raise codec.damaged(where, error) from error
    return RunRecord(
        run=row.run,
        job=row.job,
        kind=row.kind,
        state=_state(RunState, row.state, where),
        started_at=started,
        finished_at=finished,
        plan=None if row.plan is None else codec.load_plan(row.plan, f"plan of {where}"),
        decision=None if row.decision is None else codec.load_decision(row.decision, f"decision of {where}"),
        owner=row.owner,
        tally=codec.load_tallies(row.tally, f"tally of {where}"),
        reason=row.reason or "",
        exit_code=row.exit_code,
        sealed_bytes=row.sealed_bytes,
        teaches=row.teaches,
    )
