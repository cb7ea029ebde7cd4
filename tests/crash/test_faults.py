"""Whatever breaks around a run, at a random moment: nothing goes that was not sealed, and the next run converges.

A run of the suite draws some of the kinds, ``SAFEDELETE_FAULTS=N`` (`make soak`) lets each kind strike N times. The seed is
printed; ``SAFEDELETE_FAULT_SEED`` is for the same again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from safedelete.testing.servers import Postgres
from tests.backends import GivenDatabase
from tests.crash.conftest import Say
from tests.crash.faults import FAULTS, TWO, Fault, Wired, nothing_went_after, strike
from tests.crash.matrix import WORKERS, Boundary, tried
from tests.crash.world import Lab, Row, Stores

pytestmark = pytest.mark.timeout(3600)
ROUNDS = int(os.environ.get("SAFEDELETE_FAULTS", "0"))
DRAWN = 5
"""Kinds that an ordinary run of the suite tries."""
SEED = int(os.environ.get("SAFEDELETE_FAULT_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)


@pytest.fixture(scope="module")
def labs(
    postgres: Postgres | GivenDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Wired]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Wired(tmp_path_factory.mktemp("wired"), postgres.create_database()))
            for _ in range(WORKERS if ROUNDS else 1)
        ]


def test_a_run_that_meets_trouble_keeps_the_promises_and_the_next_converges(
    labs: list[Wired], say: Say
) -> None:
    labs[0].seed()
    passed: list[str] = []
    labs[0].run(TWO.purge, at_each=passed.append)
    dice = random.Random(SEED)
    kinds = [*FAULTS] * ROUNDS or dice.sample([*FAULTS], DRAWN)
    # Three of four between the last proof of a permission and the last delete, where there is most to lose: seven rows go in
    # four slices, a request each.
    asked = [number for number, label in enumerate(passed) if "DeleteObjects" in label]
    first, last = asked[-9], asked[-1]
    points = [
        Boundary(
            dice.randint(first, last) if dice.random() < 0.75 else dice.randrange(len(passed)),
            name,
            0,
        )
        for name in kinds
    ]
    say(
        f"{len(points)} faults of {len(set(kinds))} kinds at random points of {len(passed)}; SAFEDELETE_FAULT_SEED={SEED}"
    )
    struck: list[str] = []

    def trial(lab: Lab, point: Boundary) -> list[str]:
        # Aimed at the run's last calls it may come too late: a lease that was given back cannot be stolen.
        met, broken = strike(lab, FAULTS[point.label], point.number, must=point.number <= last)
        struck.extend([point.label] if met else [])
        return broken

    assert tried(labs, points, trial) == []
    say(
        f"{len(struck)} of them struck, of {len(set(struck))} kinds, and were survived; the others came too late"
    )


def test_a_fault_that_could_not_strike_is_not_called_survived(labs: list[Wired]) -> None:
    struck, broken = strike(labs[0], Fault(lambda _: False), 0, must=True)
    assert not struck
    assert "the fault never struck" in broken[0]


def test_what_goes_after_the_lock_was_lost_is_noticed() -> None:
    row = Row(due=True, s3_key="a", thumb_key=None)
    places = [("bucket", key) for key in "abc"]
    found = Stores({1: row, 2: row}, dict.fromkeys(places, "etag"))
    now = Stores({1: row}, {places[0]: "etag"})
    assert list(nothing_went_after(found, now, frozenset({places[1]}))) == [
        "row 2 went after the lock was lost",
        "object ('bucket', 'c') went after the lock was lost, and its batch had not begun",
    ]
