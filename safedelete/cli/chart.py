"""Draw the baseline as a chart of text: each run a bar, with what was expected and the limit across. Pure.

A logarithmic scale where the largest count dwarfs the usual one: on a linear one every ordinary night would be the
same empty line, which is what the chart is there to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor, log10
from typing import Final

from safedelete.cli.series import Mark, Point, Series

WIDTH: Final = 80
ROWS: Final = 7
LABEL: Final = 6
RIGHT: Final = 21
PLOT: Final = WIDTH - LABEL - 2 - RIGHT - 1
"""Columns for bars, so that a line of the chart fits a terminal of 80, with what the lines across it are beside it."""

WIDE: Final = PLOT // 2
"""Runs up to which each bar has a gap beside it."""

SPREAD: Final = 5.0
"""Largest count over the median of the runs from which the scale is logarithmic; farther above it no linear one goes."""

FAR: Final = 20.0
"""A limit above this times the largest count is not drawn on a logarithmic scale, either: it catches little but a wiped table."""

STEPS: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""What a row of a linear scale may be worth, times a power of ten, so that the numbers of the axis read well."""

ROWS_A_DECADE: Final = (7, 6, 5, 4, 3, 2.5, 2, 1.5, 1, 1 / 2, 1 / 3)
"""How many rows of a logarithmic scale may be a factor of ten: with most of them, some row stands for a power of ten."""


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

MARKS: Final[Mapping[Mark, str]] = {
    "": " ",
    "refused": "r",
    "expired": "e",
    "failed": "f",
    "unfinished": "u",
}
NAMES: Final = {letter: mark for mark, letter in MARKS.items() if mark} | {"?": "not counted"}


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
    said = _said(last, scale, series.unit, WIDTH - LABEL - 2 - columns)
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
        """Fit the counts, and those lines (limits, expectations) that do not dwarf them.

        The counts alone choose between linear and logarithmic: a generous limit says nothing about how far the nights
        lie apart. One that is far above them would press them into one line: it is then said, not drawn.
        """
        values = sorted(float(count) for count in counts if count)
        if not values:
            return cls(0.0, float(ROWS))
        largest, near = values[-1], values[(len(values) - 1) // 2] * SPREAD
        linear = largest <= near
        far = near if linear else largest * FAR
        most = max([largest, *(line for line in lines if line <= far)])
        if linear:
            return cls(0.0, ROWS * _step(most / ROWS))
        low = 10.0 ** floor(log10(values[0]))
        decades = log10(most / low)
        fitting = next((rows for rows in ROWS_A_DECADE if ROWS / rows >= decades), ROWS_A_DECADE[-1])
        return cls(low, low * 10.0 ** (ROWS / fitting))

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
        """Return the number at the top edge of a row."""
        if not self.logarithmic:
            return short(self.top / ROWS * (row + 1), 2)
        return short(_two_digits(self.low * (self.top / self.low) ** ((row + 1) / ROWS)))

    def ticks(self) -> list[float]:
        """Return the numbers above the bottom that an axis should name, ascending; round ones."""
        if not self.logarithmic:
            return [self.top / ROWS * (row + 1) for row in range(ROWS)]
        first, last = floor(log10(self.low)), ceil(log10(self.top))
        # A line for each power of ten, and two between where there are few.
        parts = (1, 2, 5) if last - first <= 3 else (1,)
        found = chain.from_iterable(
            (part * 10.0**power for part in parts) for power in range(first, last + 1)
        )
        return [value for value in found if self.low < value <= self.top * 1.001]


def short(value: float, digits: int = 1) -> str:
    """Return a number in at most six characters, with that many digits behind the point where there is room."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            scaled = value / size
            return (
                f"{scaled:.0f}{unit}"
                if scaled >= 100
                else f"{scaled:.{digits}f}".rstrip("0").rstrip(".") + unit
            )
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _title(series: Series, count: int, scale: Scale) -> str:
    last = "up to tonight" if series.tonight else "up to the last"
    kind = "log scale" if scale.logarithmic else "linear scale"
    rest = f": {series.unit} found by each of {count} runs {last} ({kind})"
    room = WIDTH - len(rest)
    name = series.target if len(series.target) <= room else f"{series.target[: room - 1]}~"
    return name + rest


def _said(last: Point, scale: Scale, unit: str, room: int) -> dict[int, str]:
    """Say beside each line what it is, with its number: read off the axis it would be a guess."""
    parts: dict[int, list[tuple[str, float, str]]] = {}
    if last.limit is not None:
        above = last.limit > scale.top
        row = ROWS - 1 if above else scale.row(last.limit)
        parts.setdefault(row, []).append(("limit", floor(last.limit), ", above" if above else ""))
    if last.expected:
        word = "forecast" if last.forecast else "expected"
        parts.setdefault(scale.row(last.expected), []).append((word, last.expected, ""))
    return {row: next(_spelt(here, unit, room), "") for row, here in parts.items()}


def _spelt(parts: Sequence[tuple[str, float, str]], unit: str, room: int) -> Iterator[str]:
    """Yield what there is room for, the most telling first."""
    (first, value, after), *others = parts
    texts = (
        [f"{word} {number:,.0f} {unit}{also}" for word, number, also in parts],
        [f"{first} {value:,.0f} {unit}{after}", *(f"{word} {number:,.0f}" for word, number, _ in others)],
        [f"{word} {number:,.0f}{also}" for word, number, also in parts],
        [f"{word} {short(number)}{also}" for word, number, also in parts],
        [f"{first} {short(value)}{after}", *(word for word, _, _ in others)],
        [word for word, _, _ in parts],
    )
    for said in texts:
        text = " " + ", ".join(said)
        if len(text) <= room:
            yield text


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


def _step(value: float) -> float:
    """Return the next number that a row may be worth; whole, as counts are."""
    size = 10.0 ** floor(log10(max(value, 1.0)))
    return next((float(ceil(step * size)) for step in STEPS if value <= step * size), 10 * size)


def _two_digits(value: float) -> float:
    return round(value, 1 - floor(log10(value)))
