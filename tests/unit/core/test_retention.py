"""What may be forgotten is out of sight of everything that decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from safedelete.core.baseline import LOOKBACK
from safedelete.core.retention import SIGHT, Past, forgettable
from safedelete.core.run import RunState
from safedelete.runner.context import DRAWN, HISTORY
from safedelete.wiring.lint import RECENT
from safedelete.wiring.operate import LOOKED_AT

S = RunState
NOW = datetime(2026, 3, 1, tzinfo=UTC)
BEFORE = NOW - timedelta(days=400)


def old(
    number: int,
    state: RunState = S.SUCCEEDED,
    *,
    deleted: bool = True,
    untold: bool = False,
    resumes: bool = True,
) -> Past:
    return Past(
        run=f"RUN{number}",
        state=state,
        started_at=BEFORE - timedelta(hours=1 + number),
        deleted=deleted,
        planned=True,
        untold=untold,
        resumes=resumes,
    )


def test_everything_that_looks_back_looks_no_further_than_what_stays() -> None:
    assert max(HISTORY, LOOKBACK, LOOKED_AT, RECENT, DRAWN) <= SIGHT


def test_the_newest_of_a_kind_stay_however_old() -> None:
    runs = [old(number) for number in range(SIGHT + 3)]
    assert [past.run for past in forgettable(runs, BEFORE)] == [f"RUN{SIGHT + n}" for n in range(3)]


@pytest.mark.parametrize("other", [S.REFUSED, S.FAILED, S.EXPIRED, S.CANCELLED, S.ABANDONED])
def test_many_of_another_kind_push_none_out(other: RunState) -> None:
    noise = [old(number, other, deleted=False) for number in range(2 * SIGHT)]
    runs = [*noise, *(old(2 * SIGHT + number) for number in range(SIGHT))]
    assert {past.state for past in forgettable(runs, BEFORE)} == {other}


@pytest.mark.parametrize("state", [S.PLANNING, S.RUNNING, S.INTERRUPTED, S.CRASHED])
def test_a_run_that_is_not_over_stays(state: RunState) -> None:
    assert not list(forgettable([old(number, state) for number in range(SIGHT + 3)], BEFORE))


def test_an_abandoned_run_stays_until_its_failures_are_told() -> None:
    told = [old(number, S.ABANDONED) for number in range(SIGHT + 1)]
    assert len(list(forgettable(told, BEFORE))) == 1
    untold = [old(number, S.ABANDONED, untold=True) for number in range(SIGHT + 1)]
    assert not list(forgettable(untold, BEFORE))


def test_a_run_younger_than_what_is_kept_stays() -> None:
    young = [
        Past(run=f"RUN{n}", state=S.SUCCEEDED, started_at=NOW - n * timedelta(minutes=5)) for n in range(1000)
    ]
    assert not list(forgettable(young, BEFORE))
    assert not list(forgettable([*young, Past(run="X", state=S.FAILED, started_at=BEFORE)], BEFORE))


@pytest.mark.parametrize("state", [S.INTERRUPTED, S.CRASHED])
def test_a_run_of_a_function_is_not_kept_for_a_run_that_would_go_on_with_it(state: RunState) -> None:
    purges = [old(number, state) for number in range(SIGHT + 3)]
    assert not list(forgettable(purges, BEFORE))
    functions = [old(number, state, resumes=False) for number in range(SIGHT + 3)]
    assert len(list(forgettable(functions, BEFORE))) == 3
