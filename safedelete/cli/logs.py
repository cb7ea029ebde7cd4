"""Structured log lines on standard error: JSON for machines, readable on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from safedelete.core.printable import printable
from safedelete.core.redact import redact, scrubbed
from safedelete.metrics.tail import keep


def configure(*, verbose: bool) -> None:
    """Send log lines to standard error."""
    terminal = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _scrub,
            keep,
            *([_plain] if terminal else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.WARNING if terminal else logging.INFO
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _plain(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Let nothing that is logged command the terminal; the renderer's own colours come later. JSON escapes by itself."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in line.items()}


def _scrub(_logger: object, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Hide what looks like a secret, also in what a job's function logs."""
    for name, value in line.items():
        if isinstance(value, str):
            line[name] = scrubbed(value)
        elif isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
            line[name] = redact(value)[0]
    return line
