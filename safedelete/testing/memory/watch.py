"""Stand between a run and its ports: record every call, and end the process at any of them.

A run that is killed gets no chance to tidy up: from that instant every further call ends it again, its open
transactions are rolled back as a server does when a client is gone, and its lease is renewed no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, cast, runtime_checkable

T = TypeVar("T")

Moment = Literal["before", "after"]


class Killed(BaseException):
    """The process died here. Not an ``Exception``, so that nothing under test recovers from it."""


@runtime_checkable
class Connected(Protocol):
    """What ends when its process does."""

    def disconnect(self) -> None:
        """End without tidying up."""


@dataclass(frozen=True, slots=True)
class Call:
    """One instant beside a call to a port.

    Attributes:
        point: Its number, from 1; a call has one before and one after it.
        name: Port and method, ``rows.begin``.
        moment: Whether the call has been made.
        arguments: Its positional arguments.
    """

    point: int
    name: str
    moment: Moment
    arguments: tuple[Any, ...]


class Watch:
    """Wraps the ports of one process.

    Args:
        at: Called at every point; what it raises is raised instead of the call, or instead of its answer. ``Killed``
            ends the process.

    Example:
        >>> from safedelete.testing.memory import MemoryDatabase, MemoryLedger
        >>> watch = Watch()
        >>> ledger = watch.over("ledger", MemoryLedger(MemoryDatabase()))
        >>> len(ledger.runs(None, limit=1))
        0
        >>> watch.calls
        ['ledger.runs']
    """

    def __init__(self, at: Callable[[Call], None] | None = None) -> None:
        self.at = at
        self.points = 0
        self.calls: list[str] = []
        """Names of the calls made, in order."""
        self.dead = False
        self._connected: list[Connected] = []

    def over(self, name: str, port: T) -> T:
        """Return a stand-in for a port; what its methods open is watched as well."""
        return cast("T", _StandIn(self, name, port))

    def request(self, moment: str, number: int) -> None:
        """Take part in ``MemoryObjects.around``, so that each request is a point of its own."""
        if moment == "before":
            self.calls.append("objects.request")
        self.reach("objects.request", "before" if moment == "before" else "after", (number,))

    def reach(self, name: str, moment: Moment, arguments: tuple[Any, ...]) -> None:
        """Pass one point."""
        if self.dead:
            raise Killed
        self.points += 1
        if self.at is None:
            return
        try:
            self.at(Call(self.points, name, moment, arguments))
        except Killed:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process: nothing it opened lives on, and nothing it calls answers."""
        self.dead = True
        for opened in self._connected:
            opened.disconnect()

    def opened(self, name: str, method: str, answer: Any) -> Any:
        """Watch what a call has opened."""
        if not isinstance(answer, Connected):
            return answer
        self._connected.append(answer)
        return _StandIn(
            self, {"begin": "batch", "open": "batch", "acquire": "lease"}.get(method, name), answer
        )


class _StandIn:
    def __init__(self, watch: Watch, name: str, port: Any) -> None:
        self._watch = watch
        self._name = name
        self._port = port

    def __getattr__(self, attribute: str) -> Any:
        watch, name = self._watch, f"{self._name}.{attribute}"
        found = getattr(self._port, attribute)
        if attribute == "store":
            return _StandIn(watch, "objects", found)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            bare = tuple(_bare(value) for value in args)
            watch.reach(name, "before", bare)
            watch.calls.append(name)
            answer = found(*bare, **{key: _bare(value) for key, value in kwargs.items()})
            # Noted first: what a call has opened ends too when the process dies before it has the answer.
            answer = watch.opened(self._name, attribute, answer)
            watch.reach(name, "after", bare)
            return answer

        return call


def _bare(value: Any) -> Any:
    return value._port if isinstance(value, _StandIn) else value  # noqa: SLF001  # our own
