"""The size of a transaction follows its time, quickly down and slowly up, and never beyond what is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.pace import FIRST, GENTLEST, SHARPEST, TARGET, Pace


def settled(seconds_a_row: float, fixed: float = 0.0, *, start: int = FIRST, steps: int = 200) -> list[int]:
    """The sizes on a server of this speed, with everything left that a slice could take."""
    pace, sizes = Pace(start), []
    for _ in range(steps):
        sizes.append(pace.size)
        pace = pace.after(pace.size, fixed + pace.size * seconds_a_row)
    return sizes


@pytest.mark.parametrize("each", [1e-5, 1e-4, 2e-3, 0.1])
@pytest.mark.parametrize("fixed", [0.0, 0.05])
def test_transactions_come_to_last_about_the_target(each: float, fixed: float) -> None:
    size = settled(each, fixed)[-1]
    assert 0.5 * TARGET <= fixed + size * each <= 1.3 * TARGET


def test_a_server_that_needs_longer_for_one_row_gets_one_at_a_time() -> None:
    assert settled(3.0)[-1] == 1


@given(st.integers(1, 20_000), st.lists(st.floats(0, 60), max_size=20))
def test_one_time_never_more_than_halves_and_never_more_than_grows_by_a_quarter(
    start: int, times: list[float]
) -> None:
    pace = Pace(start)
    for seconds in times:
        before = pace.size
        pace = pace.after(before, seconds)
        assert max(1, int(before * SHARPEST)) <= pace.size <= before * GENTLEST + 1


def test_one_slow_answer_among_quick_ones_costs_little() -> None:
    pace = Pace(1000)
    for _ in range(2):
        pace = pace.after(pace.size, 0.05)
    slow = pace.after(pace.size, 1.0)
    assert slow.size > pace.size * SHARPEST


def test_a_failure_halves_and_forgets_what_was_quick() -> None:
    pace = Pace(1000).after(1000, 0.01).halved()
    assert pace == Pace(625)
    for _ in range(20):
        pace = pace.halved()
    assert pace.size == 1


@given(st.integers(1, 30_000), st.integers(1, 30_000))
def test_what_is_left_is_taken_in_equal_parts_and_never_more_than_there_is(size: int, left: int) -> None:
    whole, taken = left, []
    while left:
        taken.append(Pace(size).take(left))
        left -= taken[-1]
    assert sum(taken) == whole
    assert max(taken) <= size
    assert max(taken) - min(taken) <= len(taken)
