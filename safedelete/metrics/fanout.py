"""Sends each event to every sink at once, and waits for none of them longer than it may take."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import structlog

from safedelete.core.event import RunEvent
from safedelete.ports.clock import Clock
from safedelete.ports.sink import Sink

log = structlog.get_logger("safedelete.metrics")

SECONDS: Final = 10.0
"""How long all sinks together may take for one event: well within the 20 s of grace after a stop, twice over."""


def send(sinks: Sequence[Sink], event: RunEvent, clock: Clock, *, seconds: float = SECONDS) -> None:
    """Send an event to every sink. Never raises. As :func:`send_all`."""
    send_all(sinks, [event], clock, seconds=seconds)


def send_all(
    sinks: Sequence[Sink], events: Sequence[RunEvent], clock: Clock, *, seconds: float = SECONDS
) -> None:
    """Send events to every sink, in their order. Never raises.

    Each sink has a thread of its own, so that one that hangs holds up neither the others nor the run. A thread that is
    still busy afterwards is left to itself; it is a daemon, and ends with the process at the latest.

    Args:
        sinks: The receivers.
        events: What to send.
        clock: Tells how much of the time is left.
        seconds: How long all sinks together may take for all events together.
    """
    threads = [
        threading.Thread(target=_each, args=(sink, events), name=f"safedelete-{sink.name}", daemon=True)
        for sink in sinks
    ]
    end = clock.uptime() + seconds
    for thread in threads:
        thread.start()
    for sink, thread in zip(sinks, threads, strict=True):
        thread.join(max(0.0, end - clock.uptime()))
        if thread.is_alive():
            log.warning(
                "a metrics sink hangs; the run goes on without it",
                sink=sink.name,
                job=events[0].job,
                seconds=seconds,
            )


def _each(sink: Sink, events: Sequence[RunEvent]) -> None:
    for event in events:
        _one(sink, event)


def _one(sink: Sink, event: RunEvent) -> None:
    try:
        sink.send(event)
    # Whatever a sink's library raises, the run's result is not its business.
    except Exception as error:
        log.warning(
            "a metrics sink failed; the run goes on without it",
            sink=sink.name,
            job=event.job,
            error=f"{type(error).__name__}: {error}",
        )
