"""Pauses between tries grow, stay bounded, and differ from one who met to the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from safedelete.core.effort import CONTENDED, FAILED, UNREACHED, Effort


@pytest.mark.parametrize("effort", [CONTENDED, FAILED, UNREACHED])
def test_pauses_double_up_to_the_longest(effort: Effort) -> None:
    pauses = [effort.pause(failed, 0.0) for failed in range(1, 20)]
    assert pauses[0] == effort.first
    assert all(b == min(effort.most, 2 * a) for a, b in pairwise(pauses))
    assert max(pauses) == effort.most


def test_jitter_shortens_a_pause_by_up_to_half() -> None:
    assert CONTENDED.pause(3, 0.0) == 1.0
    assert CONTENDED.pause(3, 0.5) == 0.75
    assert 0.5 < CONTENDED.pause(3, 0.999) < 0.51


def test_tries_end_well_within_a_usual_lease() -> None:
    for effort in (CONTENDED, FAILED, UNREACHED):
        assert sum(effort.pause(failed, 0.0) for failed in range(1, effort.attempts)) < 30
