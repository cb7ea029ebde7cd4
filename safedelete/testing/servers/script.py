"""What a store in this process answers instead of the truth, and when: one request at a time, or always."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from safedelete.testing.servers.faults import Answer, Fault, Request

ANY = "*"
"""Every operation."""


class Scripted:
    """A store that answers by a program, a script, a standing fault, or honestly, asked in this order.

    Every method may be called from any thread, while it serves.

    Args:
        latency: Seconds added before each answer.
        record: Keep every request in :attr:`requests`; off for benchmarks, where only :attr:`counts` is kept.
    """

    def __init__(self, *, latency: float = 0.0, record: bool = True) -> None:
        self.latency = latency
        self.record = record
        self.requests: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.program: Callable[[Request], Fault | None] | None = None
        """Asked first, for every request; may act (kill a connection, move a clock) before it answers None."""
        self._lock = threading.RLock()
        self._scripts: dict[str, deque[Fault | None]] = {}
        self._always: dict[str, Fault] = {}

    def script(self, *faults: Fault | None, operation: str = "DeleteObjects") -> None:
        """Answer the next requests of an operation by these faults, one each; None is an honest answer."""
        with self._lock:
            self._scripts.setdefault(operation, deque()).extend(faults)

    def always(self, fault: Fault, operation: str = "DeleteObjects") -> None:
        """Answer every request of an operation by this fault, once its script is used up."""
        with self._lock:
            self._always[operation] = fault

    def behave(self) -> None:
        """Forget the program, every script and every fault."""
        with self._lock:
            self.program = None
            self._scripts.clear()
            self._always.clear()

    def answer(self, request: Request) -> Answer:
        """Answer one request, by the program, the script, the standing fault, or honestly."""
        with self._lock:
            request = self._counted(request)
            program = self.program
        fault = program(request) if program is not None else None
        if fault is None:
            fault = self._scripted(request.operation)

        def honest(*, refuse: Mapping[str, str] = {}) -> Answer:
            with self._lock:
                return self._honest(request, refuse)

        answer = honest() if fault is None else fault(request, honest)
        if not self.latency:
            return answer
        return replace(answer, delay=answer.delay + self.latency)

    def _honest(self, request: Request, refuse: Mapping[str, str]) -> Answer:
        raise NotImplementedError

    def _counted(self, request: Request) -> Request:
        self.counts[request.operation] += 1
        if not self.record:
            return request
        request = replace(request, number=len(self.requests) + 1)
        self.requests.append(request)
        return request

    def _scripted(self, operation: str) -> Fault | None:
        with self._lock:
            for name in (operation, ANY):
                if self._scripts.get(name):
                    return self._scripts[name].popleft()
            return self._always.get(operation) or self._always.get(ANY)
