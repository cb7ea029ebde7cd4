"""A process that can be killed at any of its writes, without ending the one that the test runs in."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine, event

from safedelete.testing.memory.watch import Killed
from safedelete.testing.servers.faults import Request
from safedelete.testing.strict_s3 import StrictS3

_DELETES: Final = ("DeleteObject", "DeleteObjects")


class Mortal:
    """Counts the boundaries that a process passes on its way to stores, and lets it die before one of them.

    What is dead reaches no store any more: each further statement and request raises ``Killed`` again, which is no
    ``Exception``, so that nothing recovers from it; open transactions roll back as the server does when a client is gone.

    Args:
        store: The object store.
    """

    def __init__(self, store: StrictS3) -> None:
        self.store = store
        self.boundaries = 0
        """Statements that write, commits and deletes of objects since :meth:`kill_at` was last called, or the start."""
        self._kill_at: int | None = None
        self._kill_next = False
        self._dead = False

    @property
    def dead(self) -> bool:
        """Whether it has died, and was not revived."""
        return self._dead

    def kill_at(self, boundary: int | None) -> None:
        """Let the process die right before a boundary: a statement that writes, a commit, or a delete of objects.

        What dies raises ``safedelete.testing.memory.Killed``, and reaches neither database nor store any more.

        Args:
            boundary: Its number from now on, from 1; None to live.
        """
        self._kill_at, self.boundaries, self._dead, self._kill_next = boundary, 0, False, False

    def kill_after_objects(self) -> None:
        """Let the process die right after the next request that deletes an object, before it can write down anything."""
        self.kill_at(None)
        self._kill_next = True

    def _boundary(self) -> None:
        if self._dead:
            raise Killed
        self.boundaries += 1
        if self._kill_at is not None and self.boundaries >= self._kill_at:
            self._dead = True
            raise Killed

    def _request(self, request: Request) -> None:
        if request.operation in _DELETES:
            self._boundary()
            if self._kill_next and self.store.keys(request.bucket) & set(request.keys):
                self._kill_at = self.boundaries + 1
        elif self._dead:
            raise Killed

    def _watch(self, engine: Engine) -> None:
        def executes(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE"):
                self._boundary()
            elif self._dead and not statement.lstrip().upper().startswith("ROLLBACK"):
                raise Killed

        event.listen(engine, "before_cursor_execute", executes)
        event.listen(engine, "commit", lambda _: self._boundary())
