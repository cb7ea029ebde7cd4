"""Prometheus: a file for node_exporter's textfile collector, or a Pushgateway."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from safedelete.core.event import (
    ENDED,
    ENVIRONMENT_LABEL,
    JOB_LABEL,
    SERIES_CRASHED_AT,
    SERIES_ENDED_AT,
    SERIES_SKIPPED_AT,
    SERIES_STARTED_AT,
    SERIES_SUCCEEDED_AT,
    STARTED,
    WORKED,
    Ending,
    RunEvent,
    lasting,
)
from safedelete.metrics.addresses import without_credentials, without_password

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

TIMES: Final = {
    SERIES_STARTED_AT: "When the last run started, Unix time.",
    SERIES_ENDED_AT: "When the last run ended, Unix time.",
    SERIES_SUCCEEDED_AT: "When the last successful run ended, Unix time.",
    SERIES_SKIPPED_AT: "When a run was last skipped, Unix time.",
    SERIES_CRASHED_AT: "When a run was last found whose process had died, Unix time.",
}

TOLD_BY_TIME: Final = frozenset({STARTED, ENDED[Ending.SKIPPED], ENDED[Ending.CRASHED]})
"""A 1 that stays until the next event, or that the next event overwrites before it is scraped, says nothing."""


class TextfileSink:
    """A file a job and environment in a directory of node_exporter's textfile collector, replaced in one step.

    What an event does not tell is kept from the file as it was: a failed run must not take away when the last
    successful one ended, which the alert on missed runs goes by.

    Args:
        path: The directory; or one file for all jobs, ending in ``.prom``.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = f"textfile:{path}"

    def send(self, event: RunEvent) -> None:
        """Replace the job's file."""
        from prometheus_client import generate_latest

        path = self.path_of(event)
        fresh = generate_latest(registry(event)).decode()
        named = set(_series(fresh))
        # In the same directory, so that the replacement is one step; without .prom, so that it is not collected.
        scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        with _alone(path.parent):
            before = _read(path)
            kept = "".join(block for name, block in _blocks(before) if name not in named)
            others = {name: _of_others(block, event) for name, block in _blocks(before)}
            now = "".join(block + others.get(name, "") for name, block in _blocks(fresh))
            try:
                scratch.write_text(kept + now, encoding="utf-8")
                # The collector is another user's process.
                scratch.chmod(0o644)
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)

    def missing(self) -> str:
        """Say why nothing can be written there; empty where it can. Reads only."""
        home = self.home
        if not home.is_dir():
            return f"{home} is not a directory."
        return "" if os.access(home, os.W_OK | os.X_OK) else f"{home} cannot be written to."

    @property
    def home(self) -> Path:
        """The directory that is written to."""
        return self._path.parent if self._path.suffix == ".prom" else self._path

    def path_of(self, event: RunEvent) -> Path:
        """Return the file of an event's job and environment."""
        if self._path.suffix == ".prom":
            return self._path
        words = "_".join(word for word in ("safedelete", event.environment, event.job) if word)
        return self._path / f"{re.sub(r'[^A-Za-z0-9_-]', '_', words)}.prom"


class PushgatewaySink:
    """A Pushgateway, added to with POST: what an event does not tell stays as it was.

    PUT would replace the whole group, and take the last success away when a run fails.

    Args:
        url: The gateway's address; user and password in it go as basic authentication.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = f"pushgateway:{without_password(url)}"

    def send(self, event: RunEvent) -> None:
        """Push the event's numbers."""
        from prometheus_client import pushadd_to_gateway
        from prometheus_client.exposition import basic_auth_handler, default_handler

        url, credentials = without_credentials(self._url)

        def handler(
            url: str, method: str, timeout: float | None, headers: list[tuple[str, str]], data: bytes
        ) -> Callable[[], None]:
            if credentials is None:
                return default_handler(url, method, timeout, headers, data)
            return basic_auth_handler(url, method, timeout, headers, data, *credentials)

        pushadd_to_gateway(
            url,
            job="safedelete",
            registry=registry(event, pushed=True),
            grouping_key=_whose(event),
            timeout=5,
            handler=handler,
        )


def registry(event: RunEvent, *, pushed: bool = False) -> CollectorRegistry:
    """Return an event's numbers as gauges.

    Args:
        event: The event.
        pushed: The gateway adds the labels of job and environment itself, from the group.
    """
    from prometheus_client import CollectorRegistry, Gauge

    made = CollectorRegistry()
    always = {} if pushed else _whose(event)
    gauges: dict[str, Gauge] = {}

    def put(series: str, meaning: str, labels: dict[str, str], number: float) -> None:
        gauge = gauges.get(series)
        if gauge is None:
            gauge = gauges[series] = Gauge(series, meaning, [*always, *labels], registry=made)
        (gauge.labels(**always, **labels) if always or labels else gauge).set(number)

    for metric, number in lasting(event).items():
        if metric not in TOLD_BY_TIME:
            put(metric.series, metric.meaning, dict(metric.labels), number)
    for series, at in _times(event):
        put(series, TIMES[series], {}, at)
    return made


def _whose(event: RunEvent) -> dict[str, str]:
    return {JOB_LABEL: event.job, ENVIRONMENT_LABEL: event.environment}


def _times(event: RunEvent) -> Iterator[tuple[str, float]]:
    ended_at = event.ended_at or event.started_at
    match event.ending:
        case Ending.SKIPPED:
            yield SERIES_SKIPPED_AT, ended_at.timestamp()
            return
        case Ending.CRASHED:
            yield SERIES_CRASHED_AT, ended_at.timestamp()
            return
    yield SERIES_STARTED_AT, event.started_at.timestamp()
    if event.ending in WORKED:
        yield SERIES_ENDED_AT, ended_at.timestamp()
        if event.ending is Ending.SUCCEEDED:
            yield SERIES_SUCCEEDED_AT, ended_at.timestamp()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep every other process and thread that writes here out meanwhile, or one would put back what another replaced.

    The directory itself is locked, so that no file has to stay beside the collected ones.
    """
    place = os.open(folder, os.O_RDONLY)
    try:
        # A file system without locks is still better written to than not.
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each series of a text with its lines, comments included."""
    name, lines = "", list[str]()
    for line in text.splitlines(keepends=True):
        if line.startswith("# HELP "):
            if lines:
                yield name, "".join(lines)
            name, lines = line.split(" ", 3)[2], []
        lines.append(line)
    if lines:
        yield name, "".join(lines)


def _of_others(block: str, event: RunEvent) -> str:
    """Return a series' numbers of other jobs and environments, where several share one file."""
    own = [f'{name}="{_escaped(value)}"' for name, value in _whose(event).items()]
    lines = block.splitlines(keepends=True)
    return "".join(line for line in lines if line[0] != "#" and not all(label in line for label in own))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _series(text: str) -> Iterator[str]:
    return (name for name, _ in _blocks(text))
