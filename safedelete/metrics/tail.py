"""The last log lines, for a ping to send along."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from typing import Any, Final

LINES: Final = 100

_kept: Final[deque[str]] = deque(maxlen=LINES)


def keep(_logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remember a line, and pass it on: a processor of structlog's, before the one that renders."""
    values = " ".join(
        f"{key}={value}" for key, value in line.items() if key not in ("event", "timestamp", "level")
    )
    _kept.append(
        f"{line.get('timestamp', '')} {line.get('level', method)} {line.get('event', '')} {values}".strip()
    )
    return line


def tail() -> str:
    """Return the last lines."""
    return "\n".join(_kept)
