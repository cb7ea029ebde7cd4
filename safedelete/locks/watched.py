"""What the locks beside the lease share: one thread that proves them, and a deadline of our own.

All traffic with the lock's server is that thread's, so a server that hangs never blocks a batch for longer than the
deadline allows: whoever asks waits for the next proof, or for the moment at which the lock may no longer be trusted.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

from safedelete.errors import LockLostError
from safedelete.ports import Clock, Transaction

MARGIN: Final = 0.1
"""Share of the lock's length by which our own deadline comes earlier than the server's."""


class SilentError(Exception):
    """The lock's server did not answer; the lock is neither proven nor known to be lost."""


class Keeper(Protocol):
    """The traffic with one lock's server; every call comes from one thread."""

    def prove(self) -> str:
        """Renew the lock; returns why it is lost, or an empty text while it is ours.

        Raises:
            SilentError: The server did not answer.
        """

    def give_back(self) -> None:
        """Free the lock if it is still ours, and disconnect. Never raises."""


class WatchedHold:
    """A held lock that is proven again and again. Implements ``ports.Hold``.

    Args:
        job: Whose lock.
        what: The kind of lock, for messages: ``advisory lock``.
        keeper: Speaks with the server.
        clock: For the deadline; it also counts while the process is suspended.
        seconds: How long the lock may go without being proven.
        asked: The uptime at which the lock was asked for.
    """

    def __init__(
        self, job: str, what: str, keeper: Keeper, *, clock: Clock, seconds: float, asked: float
    ) -> None:
        self._job = job
        self._what = what
        self._keeper = keeper
        self._clock = clock
        self._seconds = seconds
        self._deadline = asked + seconds * (1 - MARGIN)
        self._lost = ""
        self._silent = ""
        self._over = threading.Event()
        self._turn = threading.Condition()
        self._wanted = self._proven = 0
        self._heart = threading.Thread(target=self._watch, name=f"lock-{job}", daemon=True)
        self._heart.start()

    def gate(self) -> None:
        """Raise once the lock is known to be lost, or was not proven in time. No I/O."""
        if self._lost:
            raise self._gone(self._lost)
        late = self._clock.uptime() - self._deadline
        if late >= 0:
            said = f"; its server said: {self._silent}" if self._silent else "; was this process suspended?"
            raise self._gone(f"it was not proven in time ({late:.1f} s late{said})")

    def fence(self, transaction: Transaction | None = None) -> None:  # noqa: ARG002
        """Have the lock proven now; waits for its server until the deadline at most. Reads only."""
        self.gate()
        with self._turn:
            self._wanted += 1
            mine = self._wanted
            self._turn.notify_all()
            while self._proven < mine and not self._lost:
                left = self._deadline - self._clock.uptime()
                if left <= 0:
                    break
                self._turn.wait(left)
        self.gate()

    def release(self) -> None:
        """Let the next run in at once; whoever still holds this object may delete nothing more."""
        self._lost = self._lost or "it was given back"
        self._over.set()
        with self._turn:
            self._turn.notify_all()
        # A server that hangs keeps the thread; the lock then ends with its own time, or with this process.
        self._heart.join(timeout=5)

    def _watch(self) -> None:
        try:
            while self._wait_for_turn():
                if not self._prove():
                    return
        finally:
            # First, so that no batch passes the gate of a lock that somebody else may have by then.
            with self._turn:
                self._lost = self._lost or "nothing proves it any more"
                self._turn.notify_all()
            self._keeper.give_back()

    def _wait_for_turn(self) -> bool:
        with self._turn:
            self._turn.wait_for(
                lambda: self._over.is_set() or self._wanted > self._proven, timeout=self._seconds / 4
            )
        return not self._over.is_set()

    def _prove(self) -> bool:
        """Prove it once; returns whether there is any point in going on."""
        answers, asked = self._wanted, self._clock.uptime()
        try:
            lost = self._keeper.prove()
        except SilentError as error:
            # Not proven is not lost: the deadline decides, and a server that answers again proves it again.
            self._silent = str(error)
            self._over.wait(min(1.0, self._seconds / 20))
            return True
        except Exception as error:
            # A bug, or a driver's error that nobody foresaw: this thread ends, and with it the lock is given back.
            lost = f"it cannot be proven ({type(error).__name__}: {error})"
        with self._turn:
            if lost:
                self._lost = self._lost or lost
            else:
                self._silent = ""
                self._deadline = max(self._deadline, asked + self._seconds * (1 - MARGIN))
                self._proven = answers
            self._turn.notify_all()
        return not lost

    def _gone(self, why: str) -> LockLostError:
        return LockLostError(
            f"The {self._what} of {self._job} is lost: {why}.",
            hint="This run deletes nothing more. The next run goes on from the ledger.",
            deleted=None,
        )
