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
from tests.crash.faults import FAULTS, TWO, Wired, strike
from tests.crash.matrix import WORKERS, Boundary, tried

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
    assert tried(labs, points, lambda lab, point: strike(lab, FAULTS[point.label], point.number)) == []
