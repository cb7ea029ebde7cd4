"""Record runs, batches and approvals, over SQLAlchemy, on whatever database the ledger lives in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from safedelete.core.decision import Approval
from safedelete.core.outcome import ItemOutcome, Tally
from safedelete.core.run import BatchState, RunState, settled, transition
from safedelete.core.seal import ObjectBatch, RowBatch, encode
from safedelete.errors import LedgerError
from safedelete.ledger import codec, tables
from safedelete.ledger.failures import NO_APPROVER, denied, first_line, instant, storable, told
from safedelete.ledger.notices import SqlNotices
from safedelete.ledger.reading import SqlLedgerReader
from safedelete.ports import BatchRef, Proof, RunChange, RunRecord, Transaction, Verdict


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
        with told("commit an outcome"):
            self.connection.commit()
        self.connection.close()

    def rollback(self) -> None:
        """Undo, and give the connection back."""
        self.connection.close()


class SqlLedger(SqlNotices, SqlLedgerReader):
    """The ledger, for runs. Implements ``ports.Ledger``; every method commits by itself unless given a transaction."""

    def begin(self, record: RunRecord) -> None:
        """Insert a run."""
        values = {
            "run": record.run,
            "job": record.job,
            "kind": record.kind,
            "state": record.state.value,
            "started_at": instant(record.started_at),
            "owner": record.owner,
            "task": record.task,
            "sealed_bytes": 0,
            "teaches": record.teaches,
            **_columns(RunChange(plan=record.plan, decision=record.decision)),
        }
        with told("record a run"), self.engine.begin() as connection:
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
        with told("record a run's state"), self.engine.begin() as connection:
            moved = connection.execute(statement.values(state=to.value, **_columns(change or RunChange())))
        if moved.rowcount != 1:
            raise LedgerError(
                f"Run {now.run} was changed by another process while this one was about to make it {to.value}.",
                hint="Look at it with `safedelete show RUN`.",
                deleted=None,
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
        t = tables.run.c
        planning = select(t.run).where(t.run == ref.run, t.state == RunState.PLANNING.value)
        with told("seal a batch"), self.engine.begin() as connection:
            connection.execute(insert(tables.batch).values(values))
            if connection.execute(planning.with_for_update(read=True)).first() is None:
                raise LedgerError(
                    f"Run {ref.run} is not being planned any more, so nothing can be sealed for it.",
                    hint="Another run took the lock over, probably while this process was suspended.",
                )
        return len(blob.data)

    def drop_seal(self, run: str) -> None:
        """Forget a run's sealed batches."""
        with told("drop a seal"), self.engine.begin() as connection:
            connection.execute(delete(tables.batch).where(tables.batch.c.run == run))

    def doubt(self, ref: BatchRef, pending: Sequence[int] = ()) -> bool:
        """Mark a batch in doubt; False where it is settled already, or has got further than the caller knows."""
        t = tables.batch.c
        known = t.pending == codec.dump_indexes(pending) if pending else t.pending.is_(None)
        statement = (
            update(tables.batch)
            .where(*_place(ref), t.state != BatchState.DONE.value, known)
            .values(state=BatchState.IN_DOUBT.value)
        )
        with told("mark a batch in doubt"), self.engine.begin() as connection:
            marked = connection.execute(statement).rowcount == 1
            there = marked or connection.execute(select(tables.batch.c.seq).where(*_place(ref))).first()
        if not there:
            raise _no_batch(ref)
        return marked

    def settle(
        self,
        ref: BatchRef,
        tally: Tally,
        outcomes: Mapping[int, ItemOutcome],
        pending: Sequence[int],
        transaction: Transaction | None,
        *,
        underway: bool = False,
    ) -> None:
        """Record a batch's outcomes, in the given transaction where it is on this database."""
        state = settled(pending, underway=underway)
        # Whoever was frozen before it could commit this must not reopen what another run has ended since.
        reopens = [tables.batch.c.state != BatchState.DONE.value] if pending else []
        statement = (
            update(tables.batch)
            .where(*_place(ref), *reopens)
            .values(
                state=state.value,
                tally=codec.dump_tallies({"": tally}),
                outcomes=codec.dump_outcomes(outcomes) if outcomes else None,
                pending=codec.dump_indexes(pending) if pending else None,
            )
        )
        with told("record a batch's outcomes"):
            if (
                transaction is not None
                and self.joins(transaction)
                and isinstance(transaction, SqlTransaction)
            ):
                found = transaction.connection.execute(statement).rowcount
            else:
                with self.engine.begin() as connection:
                    found = connection.execute(statement).rowcount
        if found != 1:
            raise _no_batch(ref)

    def joins(self, transaction: Transaction) -> bool:
        """Whether a transaction is on this ledger's own database."""
        return transaction.database == self.database and isinstance(transaction, SqlTransaction)

    def open(self) -> LedgerTransaction:
        """Open a transaction on the ledger's database."""
        with told("open a transaction"):
            connection = self.engine.connect()
            connection.begin()
        return LedgerTransaction(connection, self.database)

    def approve(self, approval: Approval) -> None:
        """Record an approval."""
        values = {
            "run": approval.run,
            "at": instant(approval.at),
            "digest": approval.digest,
            "accepts": codec.dump_accepts(approval.accepts),
            "reason": storable(approval.reason),
            "who": storable(approval.who),
            "expires_at": instant(approval.expires_at),
            "teaches": approval.teaches,
        }
        with told("record an approval", NO_APPROVER), self.engine.begin() as connection:
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
            "SELECT on safedelete_notice": select(tables.notice).limit(1),
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


def _columns(change: RunChange) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "plan": None if change.plan is None else codec.dump_plan(change.plan),
        "decision": None if change.decision is None else codec.dump_decision(change.decision),
        "finished_at": None if change.finished_at is None else instant(change.finished_at),
        "tally": None if change.tally is None else codec.dump_tallies(change.tally),
        "reason": None if change.reason is None else storable(change.reason),
        "exit_code": change.exit_code,
        "sealed_bytes": change.sealed_bytes,
        "owner": change.owner,
        "task": change.task,
        "teaches": change.teaches,
        "resumed_at": None if change.resumed_at is None else instant(change.resumed_at),
    }
    forgotten = dict.fromkeys(("finished_at", "reason", "exit_code")) if change.reopened else {}
    return forgotten | {name: value for name, value in columns.items() if value is not None}


def _no_batch(ref: BatchRef) -> LedgerError:
    return LedgerError(
        f"There is no open batch {ref.target}/{ref.seq} of run {ref.run}.",
        hint="Another process dropped its seal or ended it; look at the run with `safedelete show RUN`.",
        deleted=None,
    )


def _place(ref: BatchRef) -> tuple[Any, ...]:
    t = tables.batch.c
    return (t.run == ref.run, t.target == ref.target, t.seq == ref.seq)
