"""A run waits while there is a reason to, goes on when it has passed, and stops when nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import structlog

from safedelete.core.run import RunState
from safedelete.errors import ExitCode, IncompleteError, LockLostError, StoreError
from safedelete.phases.pause import UNASKED
from tests.worlds import World, batches_of


def reasons(world: World, seconds: float, said: str = "a backup runs") -> Callable[[], str | None]:
    """Give a reason for some seconds, from the first question on."""
    first: list[float] = []

    def ask() -> str | None:
        first.append(world.clock.uptime())
        return said if world.clock.uptime() - first[0] < seconds else None

    return ask


def test_a_run_waits_until_the_reason_has_passed_and_keeps_its_lease() -> None:
    world = World(expired=3)
    with structlog.testing.capture_logs() as logs:
        report = world.process(brakes=(reasons(world, 300),)).run()
    assert report.exit_code is ExitCode.DONE
    assert world.clock.uptime() >= 300, "far longer than a lease"
    told = [entry for entry in logs if entry["event"] == "paused"]
    assert {entry["reason"] for entry in told} == {"a backup runs"}
    assert 4 <= len(told) <= 6, "once a minute"
    assert any(entry["event"] == "going on" for entry in logs)


def test_nothing_is_deleted_while_a_run_is_paused() -> None:
    world = World(expired=4)
    seen: list[int] = []

    def ask() -> str | None:
        seen.append(sum(world.has_row(n) for n in range(4)))
        return "busy" if len(seen) % 3 else None

    with batches_of(2):
        world.clock.advance(1)
        world.process(brakes=(ask,)).run()
    assert seen[:3] == [4, 4, 4]


def test_the_deadline_holds_while_a_run_is_paused_and_the_reason_is_told() -> None:
    world = World(expired=3)
    process = world.process(brakes=(lambda: "a backup runs",), timeout=timedelta(minutes=10))
    with pytest.raises(IncompleteError, match=r"timeout of 0:10:00.*paused for 600 s: a backup runs"):
        process.run()
    assert world.last().state is RunState.INTERRUPTED
    assert world.has_row(0)
    assert world.process("host:2").run().total.deleted == 3


def test_a_stop_is_heard_while_a_run_is_paused() -> None:
    world = World(expired=3)

    def asked() -> str | None:
        return "SIGTERM" if world.clock.uptime() > 5 else None

    with pytest.raises(IncompleteError, match="SIGTERM"):
        world.process(brakes=(lambda: "busy",), asked=asked).run()
    assert world.clock.uptime() < 7


def test_a_lease_that_is_lost_while_a_run_is_paused_ends_it() -> None:
    world = World(expired=3)

    def ask() -> str | None:
        world.clock.freeze(120)
        return "busy"

    with pytest.raises(LockLostError):
        world.process(brakes=(ask,)).run()
    assert world.has_row(0)


def broken() -> str | None:
    raise RuntimeError("no route to host")


def unknown() -> str | None:
    raise StoreError("No replica is connected.")


def odd() -> str | None:
    return 5  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("brake", "words"), [(broken, "no route to host"), (unknown, "No replica"), (odd, "answer was 5")]
)
def test_a_question_that_nobody_answers_pauses_for_a_while_and_then_stops_the_run(
    brake: Callable[[], str | None], words: str
) -> None:
    world = World(expired=3)
    with pytest.raises(IncompleteError, match=f"could not be checked.*{words}"):
        world.process(brakes=(brake,)).run()
    assert UNASKED <= world.clock.uptime() < UNASKED + 5
    assert world.last().state is RunState.INTERRUPTED
    assert world.has_row(0)
    assert world.process("host:2").run().total.deleted == 3


def test_a_question_that_fails_for_a_moment_only_costs_that_moment() -> None:
    world = World(expired=3)
    times = [0]

    def ask() -> str | None:
        times[0] += 1
        return broken() if times[0] < 5 else None

    assert world.process(brakes=(ask,)).run().exit_code is ExitCode.DONE


def test_an_answer_holds_for_a_second() -> None:
    world = World(expired=6)
    times = [0]

    def ask() -> str | None:
        times[0] += 1
        return None

    with batches_of(2):
        world.process(brakes=(ask,)).run()
    assert times[0] == 1
