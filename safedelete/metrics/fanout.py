"""Sends each event to every sink at once, and waits for none of them longer than it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import structlog

from safedelete.core.event import RunEvent
from safedelete.metrics.notify import Message, Note
from safedelete.ports.clock import Clock
from safedelete.ports.sink import Sink

log = structlog.get_logger("safedelete.metrics")

SECONDS: Final = 10.0
"""How long all sinks together may take for one event: well within the 20 s of grace after a stop, twice over."""

Posts: TypeAlias = Sequence[tuple[str, Callable[[], None]]]
"""What one receiver is sent: of which job, and what sends it."""


def send(sinks: Sequence[Sink], event: RunEvent, clock: Clock, *, seconds: float = SECONDS) -> None:
    """Send an event to every sink. Never raises. As :func:`send_all`."""
    send_all(sinks, [event], clock, seconds=seconds)


def send_all(
    sinks: Sequence[Sink], events: Sequence[RunEvent], clock: Clock, *, seconds: float = SECONDS
) -> None:
    """Send events to every sink, in their order. Never raises.

    Args:
        sinks: The receivers.
        events: What to send.
        clock: Tells how much of the time is left.
        seconds: How long all sinks together may take for all events together.
    """
    _deliver(
        [(sink.name, [(event.job, partial(sink.send, event)) for event in events]) for sink in sinks],
        clock,
        seconds,
    )


def call(
    notes: Sequence[Note], messages: Sequence[Message], clock: Clock, *, seconds: float = SECONDS
) -> None:
    """Send messages to everybody who is to be called. Never raises. As :func:`send_all`."""
    _deliver(
        [(note.name, [(message.job, partial(note.call, message)) for message in messages]) for note in notes],
        clock,
        seconds,
        _SOMEBODY,
    )


_SINK: Final = ("a metrics sink {}; the run goes on without it", "sink")
_SOMEBODY: Final = ("a message is not delivered: its receiver {}", "to")


def _deliver(
    receivers: Sequence[tuple[str, Posts]],
    clock: Clock,
    seconds: float,
    said: tuple[str, str] = _SINK,
) -> None:
    """Have each receiver's posts sent by a thread of its own.

    So one that hangs holds up neither the others nor the run. A thread that is still busy afterwards is left to itself;
    it is a daemon, and ends with the process at the latest.
    """
    threads = [
        threading.Thread(target=_each, args=(name, posts, said), name=f"safedelete-{name}", daemon=True)
        for name, posts in receivers
    ]
    end = clock.uptime() + seconds
    for thread in threads:
        thread.start()
    for (name, posts), thread in zip(receivers, threads, strict=True):
        thread.join(max(0.0, end - clock.uptime()))
        if thread.is_alive():
            log.warning(said[0].format("hangs"), **{said[1]: name}, job=posts[0][0], seconds=seconds)


def _each(name: str, posts: Posts, said: tuple[str, str]) -> None:
    for job, post in posts:
        try:
            post()
        # Whatever a sink's library raises, the run's result is not its business.
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            log.warning(said[0].format("failed"), **{said[1]: name}, job=job, error=why)
