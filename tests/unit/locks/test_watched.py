"""A lock whose proof breaks in a way nobody foresaw is lost at once, and given back only after that is known."""

from __future__ import annotations

import threading

import pytest

from safedelete.errors import LockLostError
from safedelete.locks.watched import WatchedHold
from safedelete.wiring.settings import SystemClock


class Breaks:
    """A keeper with a bug in it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.hold: WatchedHold | None = None
        self.passed: list[bool] = []
        self.given_back = threading.Event()

    def prove(self) -> str:
        raise self.error

    def give_back(self) -> None:
        assert self.hold is not None
        try:
            self.hold.gate()
            self.passed.append(True)
        except LockLostError:
            self.passed.append(False)
        self.given_back.set()


# pytest tells of what ends a thread; the interpreter itself would say nothing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AttributeError("no 'cursor'"), r"cannot be proven \(AttributeError: no 'cursor'\)"),
        (SystemExit(), "nothing proves it any more"),
    ],
)
def test_a_proof_that_breaks_loses_the_lock_before_it_is_given_back(error: BaseException, words: str) -> None:
    clock, keeper = SystemClock(), Breaks(error)
    hold = keeper.hold = WatchedHold(
        "purge", "advisory lock", keeper, clock=clock, seconds=60, asked=clock.uptime()
    )
    with pytest.raises(LockLostError, match=words):
        hold.fence()
    assert keeper.given_back.wait(5)
    hold._heart.join(5)
    assert keeper.passed == [False]
    with pytest.raises(LockLostError):
        hold.gate()
