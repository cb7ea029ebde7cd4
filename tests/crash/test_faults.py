"""Whatever breaks around a run, at a random moment: nothing goes that was not sealed, and the next run converges.

A run of the suite draws some of the kinds, ``SAFEDELETE_FAULTS=N`` (`make soak`) lets each kind strike N times, and a
quarter as often where a bucket keeps versions. The seed is printed; ``SAFEDELETE_FAULT_SEED`` is for the same again.
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
from tests.crash.faults import FAULTS, LAST, STRUCK, TWO, Fault, Struck, Wired, nothing_went_after, strike
from tests.crash.matrix import WORKERS, Boundary, Start, tried
from tests.crash.world import Kept, Lab, Row, Stores

pytestmark = pytest.mark.timeout(3600)
ROUNDS = int(os.environ.get("SAFEDELETE_FAULTS", "0"))
DRAWN, DRAWN_VERSIONED, DRAWN_LAST = 5, 2, 1
"""Kinds that an ordinary run of the suite tries; of each purge that removes versions; and of each that is told last."""
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


@pytest.mark.parametrize("start", STRUCK, ids=lambda start: start.purge)
def test_a_run_that_meets_trouble_keeps_the_promises_and_the_next_converges(
    labs: list[Wired], start: Start, say: Say
) -> None:
    versioned = start != TWO
    labs[0].seed()
    passed: list[str] = []
    labs[0].run(start.purge, at_each=passed.append)
    dice = random.Random(f"{SEED} {start.purge}")
    rounds = -(-ROUNDS // 4) if versioned else ROUNDS
    drawn = DRAWN_LAST if start in LAST else DRAWN_VERSIONED if versioned else DRAWN
    kinds = [*FAULTS] * rounds or dice.sample([*FAULTS], drawn)
    # Three of four between the last proof of a permission and the last delete, where there is most to lose.
    # Whether the ledger can be written is proven by writing, too: what counts comes after the last batch was sealed.
    sealed = max(number for number, label in enumerate(passed) if "INSERT INTO safedelete_batch" in label)
    begins = next(n for n, label in enumerate(passed) if n > sealed and "UPDATE safedelete_batch" in label)
    asked = [number for number, label in enumerate(passed) if "DeleteObjects" in label]
    first, last = max(number for number in asked if number < begins), asked[-1]
    points = [
        Boundary(
            dice.randint(first, last) if dice.random() < 0.75 else dice.randrange(len(passed)),
            name,
            0,
        )
        for name in kinds
    ]

    def trial(lab: Lab, point: Boundary) -> Struck:
        # Aimed at the run's last calls it may come too late: a lease that was given back cannot be stolen.
        return strike(lab, start, FAULTS[point.label], point.number, must=point.number <= last)

    seen = tried(labs, points, trial)
    struck = [
        point.label
        for point, case in zip(points, seen.cases, strict=True)
        if isinstance(case, Struck) and case.struck
    ]
    say(
        f"{start.purge}: {len(points)} faults of {len(set(kinds))} kinds at random points of {len(passed)}, of which "
        f"{len(struck)} of {len(set(struck))} kinds struck; {seen}; SAFEDELETE_FAULT_SEED={SEED}"
    )
    assert seen.broken == []


def test_a_fault_that_could_not_strike_is_not_called_survived(labs: list[Wired]) -> None:
    case = strike(labs[0], TWO, Fault(lambda _: False), 0, must=True)
    assert not case.struck
    assert "the fault never struck" in case.broken[0]


def test_what_goes_after_the_lock_was_lost_is_noticed() -> None:
    row = Row(due=True, s3_key="a", thumb_key=None)
    places = [("bucket", key) for key in "abcd"]
    both = (Kept("1", marker=False, old=True), Kept("2", marker=False, old=True))
    found = Stores({1: row, 2: row}, dict.fromkeys(places, "etag"), dict.fromkeys(places[1:], both))
    kept = {places[0]: "etag", places[3]: "etag"}
    now = Stores({1: row}, kept, {places[3]: both[1:]})
    assert list(nothing_went_after(found, now, frozenset({places[1]}))) == [
        "row 2 went after the lock was lost",
        "object ('bucket', 'c') went after the lock was lost, and its batch had not begun",
        "object ('bucket', 'd') went after the lock was lost, and its batch had not begun",
    ]
