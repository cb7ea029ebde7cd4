"""Sinks that write lines: the log's, and CloudWatch's embedded metric format."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

import structlog

from safedelete.core.event import NAMESPACE, RunEvent, dimensions, numbers

log = structlog.get_logger("safedelete.metrics")


class LogSink:
    """One structured log line an event."""

    name = "log"

    def send(self, event: RunEvent) -> None:
        """Write the line."""
        log.info("run started" if event.ending is None else "run ended", **said(event))


class EmfSink:
    """One line of CloudWatch's embedded metric format an event, from which CloudWatch Logs makes the metrics itself.

    Needs no permission and no network: ECS' log driver carries it. The form is that of
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html.

    Args:
        out: Where to write; None for what standard output is at the time.
    """

    name = "emf"

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out

    def send(self, event: RunEvent) -> None:
        """Write the line."""
        out = self._out or sys.stdout
        # In one write: another thread's line must not come in between.
        out.write(json.dumps(emf(event), ensure_ascii=False) + "\n")
        out.flush()


def emf(event: RunEvent) -> dict[str, Any]:
    """Return an event in the embedded metric format."""
    found, whose = numbers(event), dimensions(event.job, event.environment)
    at = event.ended_at or event.started_at
    return {
        "_aws": {
            "Timestamp": int(at.timestamp() * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": NAMESPACE,
                    "Dimensions": [list(whose)],
                    "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric in found],
                }
            ],
        },
        **{metric.name: number for metric, number in found.items()},
        **{key: value for key, value in said(event).items() if key not in ("job",)},
        # Last, for they are looked up here as they have to be spelt there.
        **whose,
    }


def said(event: RunEvent) -> dict[str, Any]:
    """Return an event as plain values, what is not known left out."""
    document: dict[str, Any] = {
        "job": event.job,
        "kind": event.kind,
        "environment": event.environment or None,
        "run": event.run,
        "started_at": event.started_at.isoformat(),
    }
    if event.ending is not None:
        document |= {
            "state": event.ending.value,
            "exit_code": None if event.exit_code is None else int(event.exit_code),
            "ended_at": None if event.ended_at is None else event.ended_at.isoformat(),
            "duration_s": round(event.duration, 3),
            "items": dict(zip(_OUTCOMES, event.items.as_tuple(), strict=False)),
            "bytes": event.planned_bytes,
            "planned_rows": event.planned_rows,
            "planned_objects": event.planned_objects,
            "limit": event.limit,
            "codes": list(event.codes) or None,
            "message": event.message or None,
        }
    return {key: value for key, value in document.items() if value is not None}


_OUTCOMES = ("deleted", "gone", "changed", "blocked", "failed", "unknown")
