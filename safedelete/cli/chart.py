"""Draw the baseline as a chart of text: each run a bar, with what was expected and the limit across. Pure.

A logarithmic scale where the largest number dwarfs the usual one: on a linear one every ordinary night would be the
same empty line, which is what the chart is there to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from safedelete.cli.series import Point, Series

WIDTH: Final = 80
ROWS: Final = 7
LABEL: Final = 7
RIGHT: Final = 9
PLOT: Final = WIDTH - LABEL - 2 - RIGHT - 1
"""Columns for bars, so that a line of the chart fits a terminal of 80."""

WIDE: Final = PLOT // 2
"""Runs up to which each bar has a gap beside it."""

SPREAD: Final = 5.0
"""Largest number over the median of the runs from which the scale is logarithmic."""

FAR: Final = 20.0
"""A limit above this times the largest count is not drawn: it catches little but a wiped table."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a chart.

    Attributes:
        steps: A cell filled from below, from empty to full.
        limit: The limit's line.
        expected: The line of what was expected.
        side: Beside the numbers.
        corner: Where the two axes meet.
        floor: Below the bars.
    """

    steps: str
    limit: str
    expected: str
    side: str
    corner: str
    floor: str


BLOCKS: Final = Glyphs(" ▁▂▃▄▅▆▇█", "╌", "·", "┤", "└", "─")
ASCII: Final = Glyphs(" .:#", "-", ".", "|", "+", "-")

MARKS: Final = {"": " ", "refused": "r", "failed": "f", "unfinished": "u"}
NAMES: Final = {"r": "refused", "f": "failed", "u": "unfinished", "?": "not counted"}


def glyphs(encoding: str | None, terminal: str | None) -> Glyphs:
    """Choose what can be shown.

    Args:
        encoding: Of the stream that is written to; None when it is not known.
        terminal: ``$TERM``; None when it is not set, as in a pipe.
    """
    if terminal in ("dumb", "unknown"):
        return ASCII
    try:
        (BLOCKS.steps + BLOCKS.limit + BLOCKS.expected + BLOCKS.side + BLOCKS.corner + BLOCKS.floor).encode(
            encoding or "ascii"
        )
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def chart(series: Series, shape: Glyphs = BLOCKS) -> list[str]:
    """Draw one target's runs in at most 12 lines of at most 80 columns.

    Returns:
        The lines; none where there is no earlier run to draw beside the last one, or nothing but zeros.
    """
    points = series.points[-PLOT:]
    if len([p for p in points if p.value is not None]) < 2 or not any(p.value for p in points):
        return []
    last = points[-1]
    lines_at = [v for v in (last.limit, last.expected) if v is not None]
    scale = Scale.of([p.value for p in points if p.value is not None], lines_at)
    step = 2 if len(points) <= WIDE else 1
    columns = len(points) * step
    grid = [[" "] * columns for _ in range(ROWS)]
    lines = {scale.row(last.expected): shape.expected} if last.expected else {}
    if last.limit is not None and last.limit <= scale.top:
        lines[scale.row(last.limit)] = shape.limit
    for row, mark in lines.items():
        grid[row] = [mark] * columns
    for number, point in enumerate(points):
        for row, filled in enumerate(scale.bar(point.value, len(shape.steps) - 1)):
            if filled:
                grid[row][number * step] = shape.steps[filled]
    said = _said(last, scale)
    drawn = [
        f"{scale.label(row):>{LABEL}} {shape.side}{''.join(grid[row])}{said.get(row, '')}".rstrip()
        for row in reversed(range(ROWS))
    ]
    return [
        _title(series, len(points), scale),
        *drawn,
        f"{short(scale.low):>{LABEL}} {shape.corner}{shape.floor * columns}",
        *_below(series, points, step, columns),
    ]


class Scale:
    """Where a number lies between the bottom and the top of the chart.

    Args:
        low: The bottom of a logarithmic scale; 0 for a linear one.
        top: The top.
    """

    def __init__(self, low: float, top: float) -> None:
        self.low = low
        self.top = top

    @classmethod
    def of(cls, counts: Sequence[int], lines: Sequence[float]) -> Scale:
        """Fit the counts, and those lines (limits, expectations) that do not dwarf them."""
        values = sorted(float(count) for count in counts if count)
        if not values:
            return cls(0.0, 1.0)
        # A limit far away would press the nights into one line: it is then said, not drawn.
        most = max([*values, *(v for v in lines if v <= max(values) * FAR)])
        middle = values[(len(values) - 1) // 2]
        if most <= middle * SPREAD:
            return cls(0.0, _round_up(most))
        low = 10.0 ** floor(log10(max(1.0, values[0])))
        return cls(low if low < most else most / 10, _round_up(most))

    @property
    def logarithmic(self) -> bool:
        """Whether equal steps are equal ratios."""
        return self.low > 0

    def place(self, value: float) -> float:
        """Return 0 at the bottom, 1 at the top; what lies below the bottom of a logarithmic scale is just above 0."""
        if value <= 0:
            return 0.0
        if not self.logarithmic:
            return min(1.0, value / self.top)
        share = (log10(value) - log10(self.low)) / (log10(self.top) - log10(self.low))
        return min(1.0, max(0.02, share))

    def row(self, value: float) -> int:
        """Return the row a line at this number goes through, the lowest being 0."""
        return min(ROWS - 1, int(self.place(value) * ROWS))

    def bar(self, value: int | None, steps: int) -> list[int]:
        """Return how far each row is filled by a bar; anything above 0 shows."""
        whole = 0 if not value else max(1, round(self.place(value) * ROWS * steps))
        return [min(steps, max(0, whole - row * steps)) for row in range(ROWS)]

    def label(self, row: int) -> str:
        """Return the number at the top edge of a row, for every other row."""
        if row not in (ROWS - 1, ROWS // 2, 1):
            return ""
        share = (row + 1) / ROWS
        return short(self.low * (self.top / self.low) ** share if self.logarithmic else self.top * share)


def short(value: float) -> str:
    """Return a number in at most six characters."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            scaled = value / size
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}".replace(".0", "")
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _title(series: Series, count: int, scale: Scale) -> str:
    last = "up to tonight" if series.tonight else "up to the last"
    kind = "log scale" if scale.logarithmic else "linear scale"
    rest = f": {series.unit} found by each of {count} runs {last} ({kind})"
    room = WIDTH - len(rest)
    name = series.target if len(series.target) <= room else f"{series.target[: room - 1]}~"
    return name + rest


def _said(last: Point, scale: Scale) -> dict[int, str]:
    said: dict[int, str] = {}
    if last.expected:
        said[scale.row(last.expected)] = " forecast" if last.forecast else " expected"
    if last.limit is not None and last.limit <= scale.top:
        row = scale.row(last.limit)
        said[row] = " limit" if row not in said else " limit/" + said[row].strip()[:3] + "."
    return {row: text[: RIGHT + 1] for row, text in said.items()}


def _below(series: Series, points: Sequence[Point], step: int, columns: int) -> list[str]:
    marks = ["?" if p.value is None else MARKS[p.mark] for p in points]
    indent = " " * (LABEL + 2)
    first, end = f"{points[0].at:%m-%d}", "tonight" if series.tonight else f"{points[-1].at:%m-%d}"
    room = max(columns, len(first) + len(end) + 1)
    dates = f"{indent}{first}{end:>{room - len(first)}}"
    key = ", ".join(f"{m} {NAMES[m]}" for m in dict.fromkeys(marks) if m in NAMES)
    if not key:
        return [dates]
    row = f"{indent}{(' ' * (step - 1)).join(marks)}".rstrip()
    if len(dates) + len(key) + 4 <= WIDTH:
        return [row, f"{dates}  ({key})"]
    return [row, dates, f"{indent}({key})"]


def _round_up(value: float) -> float:
    """Return the next number of one and a half digits, so that the axis reads well."""
    size = 10.0 ** floor(log10(max(value, 1.0)))
    for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10):
        if value <= factor * size:
            return float(ceil(factor * size))
    return 10 * size
