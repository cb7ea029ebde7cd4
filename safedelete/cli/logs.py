"""Structured log lines on standard error: JSON for machines, readable on a terminal."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

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
            keep,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.WARNING if terminal else logging.INFO
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
