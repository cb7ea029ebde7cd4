"""What a purge runs with, and the small steps that all of its verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog

from safedelete.core.baseline import left_behind, read
from safedelete.core.decision import Approval, Approved, Decision, Refused, codes_of, refusing
from safedelete.core.guard import decide
from safedelete.core.item import KeyRows, ObjectRef
from safedelete.core.limits import Guard
from safedelete.core.outcome import Tally
from safedelete.core.plan import PastRun, Plan, TargetPlan, Unknown
from safedelete.core.run import RunState
from safedelete.core.seal import ObjectBatch, RowBatch
from safedelete.errors import LedgerError, RefusedError
from safedelete.phases.manifest import Page, write_manifest
from safedelete.phases.parts import Brake, ObjectPart, Part, Progress, Stop
from safedelete.phases.plan import make_plan
from safedelete.phases.preflight import Groups, first_objects, prove, require
from safedelete.phases.seal import Sealed, pages, seal
from safedelete.ports import (
    MOST_SKEW,
    Binding,
    Clock,
    Lease,
    Ledger,
    Lock,
    Prober,
    Proof,
    RunRecord,
    Silence,
    Teller,
)
from safedelete.runner.pause import refuse_paused

log = structlog.get_logger("safedelete.run")

HISTORY: Final = 400
"""Newest runs the guard is shown: a year of nights and some."""

DRAWN: Final = 90
"""Newest runs that a chart may show."""

APPROVAL_WINDOW: Final = timedelta(hours=24)
"""How long a refused or saved plan's seal waits for an approval or an execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and as whom a purge runs; a resumed plan must have been made in the same."""

    environment: str
    database: str
    caller: str
    owner: str
    binding: Binding
    task: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeContext:
    """Everything one purge needs, handed in by the wiring.

    Attributes:
        job: The purge's name.
        fingerprint: Hash of its definition.
        guard: Its declared limits.
        portion: ``per_run``.
        max_sealed: Most items a plan may seal.
        resume_within: How old an interrupted run may be and still be resumed.
        parts: Its targets, in order.
        ledger: Where runs are recorded.
        lock: Keeps two runs apart.
        clock: The clocks.
        new_run: Makes run ids.
        setting: Where and as whom.
        stop: When to end.
        progress: Told how far each phase is.
        jitter: Gives numbers in [0, 1) that pauses between tries are shortened by.
        brakes: Asked before each batch for a reason to pause.
        clocks: Each holds a database's clock against the host's, before a plan is sealed for later.
        manifest: Where to write every planned item, the sealed ones where there are any, before anything is deleted.
        teller: Told when a run starts to work, and of earlier ones that crashed.
    """

    job: str
    fingerprint: str
    guard: Guard
    portion: int | None
    max_sealed: int
    resume_within: timedelta
    parts: Sequence[Part]
    ledger: Ledger
    lock: Lock
    clock: Clock
    new_run: Callable[[], str]
    setting: Setting
    stop: Stop
    progress: Progress
    jitter: Callable[[], float] = lambda: 0.0
    brakes: Sequence[Brake] = ()
    clocks: Sequence[Callable[[], Proof]] = ()
    manifest: Path | None = None
    teller: Teller = field(default_factory=Silence)

    def start(self) -> Lease:
        """Enter as a run does, which a pause keeps from starting.

        Asked under the lock, so that who paused a job and found its lock free knows that nothing works on it.

        Raises:
            PausedError: Somebody paused the job; says who, why and since when.
        """
        lease = self.enter()
        try:
            refuse_paused(self.ledger, self.job)
        except BaseException:
            lease.release()
            raise
        return lease

    def enter(self) -> Lease:
        """Check the ledger, take the lock, and prove that the ledger can be written.

        The lock comes first: while another run works, a database with one writer refuses the probe's writes too, and
        who holds the lock says more than that.
        """
        self.ledger.verify(self.setting.binding)
        lease = self.lock.acquire(self.job, owner=self.setting.owner)
        try:
            require(self.ledger.probe())
        except BaseException:
            lease.release()
            raise
        return lease

    def begin(self) -> str:
        """Record a new run; returns its id."""
        run = self.new_run()
        self.ledger.begin(
            RunRecord(
                run=run,
                job=self.job,
                kind="purge",
                state=RunState.PLANNING,
                started_at=self.clock.now(),
                owner=self.setting.owner,
                task=self.setting.task,
            )
        )
        return run

    def survey(self) -> Plan:
        """Count every target at this instant. Reads only."""
        now = self.clock.now()
        last = self.last_success(now)
        if last is not None and last.plan.fingerprint != self.fingerprint:
            # Under another definition every row it newly selects would seem to have been dated back.
            last = None
        made = make_plan(
            self.job,
            [part.reader for part in self.parts],
            as_of=now,
            fingerprint=self.fingerprint,
            portion=self.portion,
            since=None if last is None else last.plan.as_of,
            environment=self.setting.environment,
            database=self.setting.database,
            caller=self.setting.caller,
        )
        return made if last is None else without_left(made, last)

    def took_objects_lately(self) -> bool:
        """Whether a run since the last success deleted objects whose rows may still be there. Reads only.

        After such a run absent objects are to be expected, and say nothing about a wrong bucket.
        """
        for record in self.ledger.runs(self.job, limit=HISTORY):
            if record.state is RunState.SUCCEEDED:
                return False
            if record.state in (RunState.ABANDONED, RunState.FAILED, RunState.CANCELLED) and record.tally:
                return True
        return False

    def decide(self, plan: Plan, approval: Approval | None = None, *, at: datetime | None = None) -> Decision:
        """Ask the guard, with the history as it is now; an approval has to hold at ``at``, else now."""
        return decide(
            plan,
            self.guard,
            self.history(),
            approval=approval,
            now=at or self.clock.now(),
            max_sealed=self.max_sealed,
        )

    def history(self) -> Sequence[PastRun] | Unknown:
        """Return what the guard may learn from, or why that cannot be read, which the guard refuses. Reads only."""
        try:
            return self.ledger.history(self.job, limit=HISTORY)
        except LedgerError as error:
            return Unknown(str(error).rstrip("."))

    def last_success(self, before: datetime) -> PastRun | None:
        """Return the last successful run before an instant, runs left out whose clock was found to be wrong. Reads only."""
        history = self.history()
        runs = () if isinstance(history, Unknown) else read(history, self.job, before).runs
        return runs[-1] if runs else None

    def recent(self) -> Sequence[RunRecord]:
        """Return the newest runs, newest first, for drawing them; none where they cannot be read. Reads only."""
        try:
            return self.ledger.runs(self.job, limit=DRAWN)
        except LedgerError as error:
            # The guard has said so as SD100; a chart is not worth a second failure.
            log.warning("earlier runs cannot be shown", job=self.job, error=str(error))
            return ()

    def decide_again(self, record: RunRecord) -> Decision:
        """Ask the guard about a sealed plan under the limits as they are now, and under its approval.

        The approval is the one that a person recorded: what the run's own row says of it, whoever may run may have written.
        """
        assert record.plan is not None
        approval = self.ledger.approval(record.run) if claimed(record) is not None else None
        # It was begun while its approval held; that it takes longer takes nothing back.
        return self.decide(record.plan, approval, at=None if approval is None else approval.at)

    def probers(self) -> list[Prober]:
        """Return what proves permissions, for every target."""
        return [prober for part in self.parts for prober in part.probers]

    def first_objects(self, plan: Plan) -> tuple[ObjectRef, ...]:
        """Return an object of each group seen on the first page of every target. Reads only."""
        owning = [p for p in self.parts if isinstance(p, ObjectPart) or p.target.owns_objects]
        return tuple(ref for part in owning for ref in first_objects(pages(plan, part)).sample())

    def prove(self, plan: Plan) -> tuple[Proof, ...]:
        """Prove permissions on a sample, before anything is sealed. Changes nothing but for a canary, put and removed."""
        return prove(plan.as_of, self.probers(), self.first_objects(plan))

    def seal(self, run: str, plan: Plan) -> Sealed:
        """Seal the plan's exact items. Writes to the ledger; deletes nothing."""
        return seal(
            plan,
            self.parts,
            self.ledger,
            run,
            max_sealed=self.max_sealed,
            stop=self.stop,
            progress=self.progress,
        )

    def tallies(self, plan: Plan | None, run: str) -> dict[str, Tally]:
        """Return a run's outcome sums by target name."""
        if plan is None:
            return {}
        sums = self.ledger.tally(run)
        return {target.name: sums.get(index, Tally()) for index, target in enumerate(plan.targets)}

    def refusal(self, decision: Refused, run: str, lead: str = "") -> RefusedError:
        """Return the error that tells of a refusal, and of the run that an approval would name."""
        broken = refusing(decision.findings)
        text = " ".join(f"[{f.code}] {f.message}" for f in broken)
        hints = [f.hint for f in broken if f.hint]
        return RefusedError(
            f"{self.job} refused. {lead}{' ' if lead else ''}{text}",
            findings=list(codes_of(broken)),
            hint="\n".join(dict.fromkeys(hints)),
            run=run,
        )

    def sealed_pages(self, plan: Plan, run: str) -> Iterator[tuple[str, Page]]:
        """Yield what was sealed, a batch at a time, with its target's name. Reads only."""
        for stored in self.ledger.batches(run):
            items = stored.items
            yield (
                plan.targets[stored.ref.target].name,
                items.objects if isinstance(items, ObjectBatch) else items.rows,
            )

    def list_items(self, plan: Plan, run: str | None = None) -> None:
        """Write the manifest where one is wanted: what was sealed, or what a scan finds where nothing was.

        Args:
            plan: The plan.
            run: The run that was sealed; None where nothing was.

        Raises:
            ConfigError: The file cannot be written. Nothing was deleted.
        """
        if self.manifest is None:
            return
        if run is not None and plan.digest is not None:
            write_manifest(self.manifest, self.sealed_pages(plan, run))
            return
        found = ((part.target.name, page) for part in self.parts for page in pages(plan, part))
        write_manifest(self.manifest, found)

    def groups(self, run: str) -> Groups:
        """Collect one object of each group from what was sealed. Reads only."""
        groups = Groups()
        for stored in self.ledger.batches(run):
            groups.add(_objects(stored.items))
        return groups


def without_left(plan: Plan, last: PastRun) -> Plan:
    """Take off what the last run left behind itself (the rest of a backlog, blocked items): it is late, not strange."""
    earlier = {target.name: target for target in last.plan.targets}
    return replace(
        plan,
        targets=tuple(_without_left(target, earlier.get(target.name), last) for target in plan.targets),
    )


def _without_left(target: TargetPlan, before: TargetPlan | None, last: PastRun) -> TargetPlan:
    if before is None or not isinstance(target.late, int) or not isinstance(before.eligible, int):
        return target
    # Of all that were eligible: also those that reading found unfit to be sealed are there still.
    left = left_behind(last, before, before.eligible)
    left = min(left, target.late)
    return replace(target, late=target.late - left, left=left)


def claimed(record: RunRecord) -> Approval | None:
    """Return the approval that a run's own row says it was begun under."""
    return record.decision.approval if isinstance(record.decision, Approved) else None


def ahead(record: RunRecord, now: datetime) -> str:
    """Say that a recorded plan bears an instant that has yet to come; empty when it bears none.

    The clock was wrong when it was made, or is wrong now. What such a plan calls due may be due only on a later day, and by
    no number of its own can anybody tell.
    """
    latest = max(record.started_at, record.started_at if record.plan is None else record.plan.as_of)
    if latest <= now + MOST_SKEW:
        return ""
    return (
        f"it was planned at {latest:%Y-%m-%d %H:%M:%S} UTC, which is {latest - now} after now: the host's clock was ahead "
        "then, or is behind now"
    )


def _objects(items: RowBatch | ObjectBatch) -> tuple[ObjectRef, ...]:
    if isinstance(items, ObjectBatch):
        return items.objects
    if isinstance(items.rows, KeyRows):
        return ()
    return tuple(ref for row in items.rows for ref in row.objects)
