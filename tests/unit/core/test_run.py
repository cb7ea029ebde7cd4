"""The state table holds: only its edges can be walked, and every state can be reached."""

import pytest

from safedelete.core.run import EXECUTABLE, RESUMABLE, TRANSITIONS, UNFINISHED, RunState, transition
from safedelete.errors import LedgerError

EDGES = [(a, b) for a in RunState for b in RunState]
ENDS = {
    RunState.SUCCEEDED,
    RunState.INCOMPLETE,
    RunState.FAILED,
    RunState.ABANDONED,
    RunState.CANCELLED,
    RunState.EXPIRED,
}


@pytest.mark.parametrize(("now", "to"), [e for e in EDGES if e[1] in TRANSITIONS[e[0]]])
def test_a_listed_edge_leads_to_its_state(now: RunState, to: RunState) -> None:
    assert transition(now, to) is to


@pytest.mark.parametrize(("now", "to"), [e for e in EDGES if e[1] not in TRANSITIONS[e[0]]])
def test_an_edge_outside_the_table_raises_and_changes_nothing(now: RunState, to: RunState) -> None:
    before = {state: set(edges) for state, edges in TRANSITIONS.items()}
    with pytest.raises(LedgerError) as caught:
        transition(now, to)
    assert f"{now.value} cannot become {to.value}" in str(caught.value)
    assert caught.value.hint
    assert caught.value.deleted is None
    assert before == TRANSITIONS


def test_every_state_has_a_row_and_can_be_reached() -> None:
    assert set(TRANSITIONS) == set(RunState)
    reached = {RunState.PLANNING}
    frontier = [RunState.PLANNING]
    while frontier:
        fresh = TRANSITIONS[frontier.pop()] - reached
        reached |= fresh
        frontier += fresh
    assert reached == set(RunState)


def test_every_state_leads_to_an_end_and_no_end_leads_on() -> None:
    assert {state for state, edges in TRANSITIONS.items() if not edges} == ENDS
    for state in RunState:
        reached, frontier = {state}, [state]
        while frontier:
            fresh = TRANSITIONS[frontier.pop()] - reached
            reached |= fresh
            frontier += fresh
        assert reached & ENDS


def test_nothing_runs_from_a_state_that_was_refused_by_an_end() -> None:
    assert not any(RunState.RUNNING in TRANSITIONS[state] for state in ENDS)
    assert {s for s in RunState if RunState.RUNNING in TRANSITIONS[s]} == {
        RunState.PLANNING,
        *RESUMABLE,
        *EXECUTABLE,
    }


def test_a_dead_process_can_always_be_recorded_as_crashed() -> None:
    assert {s for s in RunState if RunState.CRASHED in TRANSITIONS[s]} == UNFINISHED


def test_no_state_follows_itself() -> None:
    assert not any(state in edges for state, edges in TRANSITIONS.items())
