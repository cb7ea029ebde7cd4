"""What docs/explanation/evidence.md tells of the matrix, held against what is seen: a page that is out of date fails."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "evidence.md"
HEADING = "## The crash points"


class Told(NamedTuple):
    """A row of the page's table.

    Attributes:
        boundaries: How many a run passed.
        points: How many of them a run was killed at.
    """

    boundaries: int
    points: int


@cache
def told() -> dict[tuple[str, str], Told]:
    """Return the page's numbers by where and what."""
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")][1:]
    found: dict[tuple[str, str], Told] = {}
    for row in rows:
        where, what, boundaries, points = (cell.strip() for cell in row)
        found[where, what] = Told(*(int(number.replace(",", "")) for number in (boundaries, points)))
    return found


def hold(where: str, what: str, seen: Told) -> None:
    """Fail unless the page has these numbers, or nearly: a server's version and its statistics make some difference."""
    if "," in what:
        # A second cause: the page tells of those in words.
        return
    row = told().get((where, what))
    assert row is not None, f"{PAGE.name} has no row for {where} | {what} | {seen.boundaries} | {seen.points}"
    near = all(abs(said - now) <= 3 + 0.15 * now for said, now in zip(row, seen, strict=True))
    assert near, (
        f"{PAGE.name} tells of {row} for {what} on {where}, and seen were {seen}: bring it up to date"
    )
