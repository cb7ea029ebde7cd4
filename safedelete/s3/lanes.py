"""Send requests to a store side by side, a few at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from queue import SimpleQueue
from typing import Any, TypeVar

from safedelete.ports import Gate

Part = TypeVar("Part")
Answer = TypeVar("Answer")


class HomeGate:
    """A gate that only the thread it was made by asks, since what it asks may belong to that thread.

    A lane whose request is about to be sent a second time has it asked for it, and waits for the answer.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._inbox: SimpleQueue[_Question | Future[Any]] = SimpleQueue()
        self._closed: BaseException | None = None

    def __call__(self) -> None:
        """Ask the gate; raises what it raises."""
        if threading.get_ident() == self._home:
            self._gate()
            return
        question = _Question()
        with self._lock:
            if self._closed is not None:
                raise self._closed
            self._inbox.put(question)
        question.answer.result()

    def watch(self, request: Future[Any]) -> None:
        """Have :meth:`ended` return a request when it has ended."""
        request.add_done_callback(self._inbox.put)

    def ended(self) -> Future[Any]:
        """Wait for one of the watched requests to end, and ask the gate for those under way meanwhile."""
        while True:
            found = self._inbox.get()
            if isinstance(found, Future):
                return found
            try:
                self._gate()
            except BaseException as error:  # it is raised in the lane, and comes back with its request
                found.answer.set_exception(error)
            else:
                found.answer.set_result(None)

    def close(self, why: BaseException) -> None:
        """Let nothing pass any more, neither those that ask already nor those that will."""
        with self._lock:
            self._closed = why
            while not self._inbox.empty():
                found = self._inbox.get()
                if isinstance(found, _Question):
                    found.answer.set_exception(why)


class _Question:
    """One lane's wish to pass."""

    def __init__(self) -> None:
        self.answer: Future[None] = Future()


def side_by_side(
    parts: Iterable[Part],
    lanes: int,
    admit: Callable[[Part], None],
    send: Callable[[Part], list[Answer]],
    gate: HomeGate,
) -> list[Answer]:
    """Send each part by a thread, once it is admitted; a single part by the caller's own.

    Args:
        parts: What to send. A next one is asked for when a lane is free.
        lanes: Requests under way at once.
        admit: Called by the caller's thread immediately before a part goes out: what it asks may belong to that
            thread, and one that stands idle takes the part at once. When it raises, nothing more is sent.
        send: Sends a part, and returns what is to be returned of it.
        gate: What a lane may ask; made by the caller's thread.

    Returns:
        What came of all parts, in the order in which they ended.

    Raises:
        Exception: What ``admit`` or ``send`` raised, when everything under way has ended.
    """
    waiting = iter(parts)
    first = next(waiting, None)
    if first is None:
        return []
    second = next(waiting, None)
    if second is None:
        admit(first)
        return send(first)
    found: list[Answer] = []
    under_way = 0
    with ThreadPoolExecutor(lanes, thread_name_prefix="safedelete-delete") as pool:
        try:
            for part in chain((first, second), waiting):
                if under_way == lanes:
                    found += gate.ended().result()
                    under_way -= 1
                admit(part)
                gate.watch(pool.submit(send, part))
                under_way += 1
            for _ in range(under_way):
                found += gate.ended().result()
        except BaseException as error:
            # Whoever is under way may be about to ask, and nobody would answer.
            gate.close(error)
            raise
    return found
