"""Which way a key can be deleted safely, if any.

Keys are never normalised: two that look alike are two objects. What differs is the wire. A DeleteObjects request is an
XML document, which cannot carry control characters: one such key spoils the whole request. A single DeleteObject puts
the key into the URL's path, where a proxy may resolve ``..`` and so name another object.
"""

from __future__ import annotations

from enum import StrEnum

from safedelete.core.keys import MAX_BYTES, NOT_XML, has_dot_segment, refusal

__all__ = ["MAX_BYTES", "Lane", "has_dot_segment", "lane", "parent", "refusal"]


class Lane(StrEnum):
    """How a key is deleted."""

    BATCH = "batch"
    SINGLE = "single"


def lane(key: str) -> Lane:
    """Return how a key that is not refused is deleted."""
    return Lane.SINGLE if NOT_XML.search(key) else Lane.BATCH


def parent(key: str) -> str:
    """Return everything up to and including the last slash; empty for a key without one."""
    return key[: key.rfind("/") + 1]
