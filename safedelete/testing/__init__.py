"""For tests: a strict S3, memory stores, real servers on loopback, fault injection, and a proof for a purge of yours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safedelete.testing.lab import Lab, LabClock
    from safedelete.testing.strict_s3 import StrictS3

_HOME = {
    "Lab": "lab",
    "LabClock": "lab",
    "StrictS3": "strict_s3",
}

__all__ = [
    "Lab",
    "LabClock",
    "StrictS3",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
