"""For tests: a strict S3, memory stores, real servers on loopback, fault injection, and a proof for a purge of yours."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safedelete.testing.dates import LabClock
    from safedelete.testing.lab import Lab
    from safedelete.testing.promises import PROMISES
    from safedelete.testing.safe import PurgeUnsafeError, assert_purge_is_safe
    from safedelete.testing.scene import Scene
    from safedelete.testing.strategies import faults, rows_around
    from safedelete.testing.strict_s3 import StrictS3

_HOME = {
    "Lab": "lab",
    "LabClock": "dates",
    "PROMISES": "promises",
    "PurgeUnsafeError": "safe",
    "Scene": "scene",
    "StrictS3": "strict_s3",
    "assert_purge_is_safe": "safe",
    "faults": "strategies",
    "rows_around": "strategies",
}

__all__ = [
    "PROMISES",
    "Lab",
    "LabClock",
    "PurgeUnsafeError",
    "Scene",
    "StrictS3",
    "assert_purge_is_safe",
    "faults",
    "rows_around",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
