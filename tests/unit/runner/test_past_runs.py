"""What recorded runs tell the guard: whose clock a person called wrong, and what runs that did not succeed deleted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from safedelete.core.decision import Acceptance, Approval, Approved, Finding
from safedelete.core.outcome import Tally
from safedelete.core.run import RunState
from safedelete.ledger.past import TAUGHT, past_runs
from safedelete.ports import RunRecord
from tests.unit.core.guard_cases import plan

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def record(later: list[str], earlier: int, seen: list[str] | None = None) -> RunRecord:
    found = Finding(
        code="SD112",
        severity="refuse",
        message="the clock went backwards",
        numbers={"runs": ",".join(later), "earlier": earlier},
    )
    approval = Approval(
        run="r",
        digest="sealed",
        accepts=(Acceptance(code="SD112", limit=",".join(later if seen is None else seen)),),
        reason="clock",
        who="me",
        at=NOW,
        expires_at=NOW,
    )
    decision = Approved(plan=plan(), findings=(found,), approval=approval)
    return RunRecord(
        run="r",
        job="purge",
        kind="purge",
        state=RunState.SUCCEEDED,
        started_at=NOW,
        plan=plan(),
        decision=decision,
        tally={"events": Tally(deleted=7, gone=5, changed=3, blocked=1)},
    )


@pytest.mark.parametrize(
    ("later", "earlier", "wrong"),
    [(1, 0, 1), (2, 0, 2), (2, 30, 2), (3, 30, 3), (3, 2, 0), (20, 0, 0)],
)
def test_an_approval_leaves_later_runs_out_unless_most_of_all_runs_are_later(
    later: int, earlier: int, wrong: int
) -> None:
    named = [f"r{n}" for n in range(later)]
    (past,) = past_runs([record(named, earlier)])
    assert past.overrules == tuple(named[:wrong])


def test_runs_that_the_approver_was_not_shown_are_not_left_out() -> None:
    (past,) = past_runs([record(["r1", "r2"], 30, seen=["r1"])])
    assert past.overrules == ("r1",)


def test_what_was_gone_or_changed_is_over_and_what_was_blocked_is_not() -> None:
    (past,) = past_runs([record([], 0)])
    assert (past.deleted, past.over) == ({"events": 7}, {"events": 8})


def test_whatever_state_a_run_ended_in_its_deletions_are_shown_to_the_guard() -> None:
    assert {RunState.CANCELLED, RunState.ABANDONED, RunState.INTERRUPTED, RunState.CRASHED} <= TAUGHT
