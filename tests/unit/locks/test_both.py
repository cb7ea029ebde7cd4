"""The lease and a second lock are one lock: losing either is losing both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from safedelete.errors import LockLostError
from safedelete.locks.both import HeldTogether, LeaseAnd
from safedelete.testing.memory import MemoryDatabase, MemoryTransaction

PROOFS: dict[str, Callable[[HeldTogether], None]] = {
    "gate": lambda held: held.gate(),
    "fence": lambda held: held.fence(),
    "pin": lambda held: held.pin(MemoryTransaction(MemoryDatabase("main"))),
}


class Half:
    """A lease, or a second lock, that says what it is asked, and may be lost."""

    token = 7

    def __init__(self, name: str, said: list[str]) -> None:
        self.name = name
        self.said = said
        self.lost_after: dict[str, int] = {}

    def _ask(self, what: str) -> None:
        self.said.append(f"{self.name} {what}")
        if what in self.lost_after:
            self.lost_after[what] -= 1
            if self.lost_after[what] < 0:
                raise LockLostError(f"the {self.name} is lost")

    def gate(self) -> None:
        self._ask("gate")

    def fence(self, transaction: object = None) -> None:
        self._ask("fence")

    def pin(self, transaction: object) -> None:
        self._ask("pin")

    def release(self) -> None:
        self.said.append(f"{self.name} release")

    def acquire(self, job: str, *, owner: str) -> Half:
        self._ask("acquire")
        return self


def halves() -> tuple[Half, Half, list[str]]:
    said: list[str] = []
    return Half("lease", said), Half("second", said), said


def held(lease: Half, second: Half) -> HeldTogether:
    found: Any = LeaseAnd(lease, second)  # type: ignore[arg-type]  # halves of one
    together: HeldTogether = found.acquire("purge", owner="me")
    return together


@pytest.mark.parametrize("proof", PROOFS)
@pytest.mark.parametrize("lost", ["lease", "second"])
def test_whichever_is_lost_every_proof_says_so(lost: str, proof: str) -> None:
    lease, second, _ = halves()
    together = held(lease, second)
    PROOFS[proof](together)
    # A second lock cannot be pinned: what its own deadline says counts there.
    word = "gate" if lost == "second" and proof == "pin" else proof
    {"lease": lease, "second": second}[lost].lost_after[word] = 0
    with pytest.raises(LockLostError, match=f"the {lost} is lost"):
        PROOFS[proof](together)


def test_a_second_lock_that_is_lost_while_the_lease_is_pinned_keeps_the_batch_from_its_commit() -> None:
    lease, second, said = halves()
    together = held(lease, second)
    second.lost_after["gate"] = 1
    with pytest.raises(LockLostError):
        PROOFS["pin"](together)
    assert said[-2:] == ["lease pin", "second gate"]


def test_the_lease_is_taken_first_and_given_back_last() -> None:
    lease, second, said = halves()
    held(lease, second).release()
    assert said == ["lease acquire", "second acquire", "second release", "lease release"]
    second.lost_after["acquire"] = 0
    said.clear()
    with pytest.raises(LockLostError):
        held(lease, second)
    assert said == ["lease acquire", "second acquire", "lease release"]
