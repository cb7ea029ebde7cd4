"""What a run has to say when it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from safedelete.core.decision import Decision, Finding
from safedelete.core.outcome import Tally
from safedelete.core.plan import Plan
from safedelete.core.run import RunState
from safedelete.errors import ExitCode
from safedelete.ports import Proof, RunRecord
from safedelete.runner.items import Item


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a plan or a run.

    Attributes:
        job: The job's name.
        kind: ``purge``, or ``job`` for a declared function, whose ``deleted`` are the items it processed.
        run: Id in the ledger; None where nothing was recorded (``plan``, ``--dry-run``).
        state: How it ended; None for a plan.
        exit_code: What the command ends with.
        plan: On sealed counts where it was sealed.
        decision: The guard's.
        tally: Outcome sums by target.
        notes: What a reader should know, a sentence each.
        failed: The first items that failed or are unknown, at most 20; :attr:`failed_count` says how many there are.
        sealed_bytes: What the seal costs in the ledger.
        resumed: Whether an earlier run was gone on with.
        inherited: Outcomes that an abandoned earlier run left, settled by this one.
        proofs: Permissions that were proven.
        message: One sentence about the end.
        lint: What is wrong with the job's definition; found by ``check`` alone.
        past: Newest runs before this one, newest first, for drawing what is usual.
    """

    job: str
    kind: Literal["purge", "job"] = "purge"
    run: str | None = None
    state: RunState | None = None
    exit_code: ExitCode = ExitCode.DONE
    plan: Plan | None = None
    decision: Decision | None = None
    tally: Mapping[str, Tally] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    failed: tuple[Item, ...] = ()
    sealed_bytes: int = 0
    resumed: bool = False
    inherited: Tally = field(default_factory=Tally)
    proofs: tuple[Proof, ...] = ()
    message: str = ""
    lint: tuple[Finding, ...] = ()
    past: Sequence[RunRecord] = ()

    @property
    def failed_count(self) -> int:
        """How many items failed or are unknown."""
        return self.total.failed + self.total.unknown

    @property
    def total(self) -> Tally:
        """All targets' outcomes together."""
        return sum(self.tally.values(), Tally())
