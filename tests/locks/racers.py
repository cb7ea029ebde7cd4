"""Two processes that start one job together, round after round, without starting an interpreter for each."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

import safedelete
from safedelete.declare import Job, RunContext, job
from safedelete.errors import LockHeldError
from safedelete.locks.both import LeaseAnd
from safedelete.ports import SecondLock
from safedelete.wiring.connect import opened
from safedelete.wiring.lock import lock_of
from safedelete.wiring.settings import Settings, SystemClock

PATIENCE = 60.0


class Seen(NamedTuple):
    """What one process saw of one round."""

    worked: bool
    said: str


class Racers:
    """The two, for as many heats as are asked for."""

    def __init__(self) -> None:
        # Not forked: neither process may share a connection, a thread or a random state with the other.
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(2)
        # Kept, for they end with the last who knows them: a process that is still starting does not yet.
        self._shared = (self._barrier, context.Value("i", 0), context.Value("i", 0))
        pipes = [context.Pipe() for _ in range(2)]
        self._ends = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=_racer, args=(theirs, *self._shared)) for _, theirs in pipes
        ]

    def __enter__(self) -> Self:
        for process in self._processes:
            process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(5)
            process.kill()
            process.join()

    def race(self, env: Mapping[str, str], rounds: int, *, alone: bool = False) -> list[tuple[Seen, Seen]]:
        """Have both start at the same moment, ``rounds`` times; returns what each saw of each round.

        Args:
            env: The environment of both.
            rounds: How often.
            alone: Take the second lock without the lease, which else decides every round before it.
        """
        self._barrier.reset()
        for end in self._ends:
            end.send((dict(env), rounds, alone))
        found: list[Any] = []
        for end in self._ends:
            assert end.poll(PATIENCE + rounds * 5), "a racer does not come in"
            found.append(end.recv())
        assert all(isinstance(one, list) for one in found), found
        return list(zip(*found, strict=True))


def _racer(end: Connection, barrier: Any, inside: Any, refused: Any) -> None:
    def work(checkpoint: Callable[[], None]) -> None:
        with inside.get_lock():
            inside.value += 1
        # Until the other has been refused, so that no round is decided by one being slow; or is inside as well.
        while inside.value + refused.value < 2:
            checkpoint()
            time.sleep(0.002)

    @job("raced", schedule="rate(1 day)", timeout=timedelta(minutes=5))
    def raced(run: RunContext) -> None:
        work(run.checkpoint)

    def once(*, alone: bool) -> Seen:
        if barrier.wait(PATIENCE) == 0:
            inside.value = refused.value = 0
        barrier.wait(PATIENCE)
        try:
            if alone:
                with second_lock(raced) as lock:
                    held = lock.acquire("raced", owner="racer")
                    work(held.gate)
                    held.release()
            else:
                safedelete.run(raced)
        except LockHeldError as error:
            with refused.get_lock():
                refused.value += 1
            return Seen(worked=False, said=str(error))
        return Seen(worked=True, said="")

    while True:
        try:
            env, rounds, alone = end.recv()
        except EOFError:
            return
        os.environ.clear()
        os.environ.update(env)
        try:
            end.send([once(alone=alone) for _ in range(rounds)])
        except BaseException as error:
            barrier.abort()
            end.send(f"{type(error).__name__}: {error}")


@contextmanager
def second_lock(declared: Job) -> Iterator[SecondLock]:
    settings = Settings.read()
    with opened(settings, declared) as (database, ledger):
        lock, _ = lock_of(declared, database, ledger, settings, SystemClock())
        assert isinstance(lock, LeaseAnd)
        yield lock._second
