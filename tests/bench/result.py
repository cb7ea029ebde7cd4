"""One measured comparison."""

from __future__ import annotations

from typing import TypedDict


class Result(TypedDict):
    """One comparison, both sides measured in the same run.

    ``ratio`` is ours over base, so less is better; ``goal`` is the most of it, None where it is only told.
    """

    name: str
    ours_s: float
    base_s: float
    base: str
    ratio: float
    goal: float | None
    met: bool


def compared(name: str, base: str, our: float, their: float, goal: float | None) -> Result:
    """Return the comparison of two figures of one kind."""
    ratio = our / their if their else float("inf")
    return Result(
        name=name,
        ours_s=our,
        base_s=their,
        base=base,
        ratio=round(ratio, 3),
        goal=goal,
        met=goal is None or ratio <= goal,
    )
