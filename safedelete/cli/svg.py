"""Draw one target's runs as an inline SVG: bars, the limit of each run, what was expected, and the days to come. Pure.

Every colour is a CSS class of the page, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from safedelete.cli.chart import Scale, short
from safedelete.cli.series import Point, Series, days_after
from safedelete.core.say import at_most

HEIGHT: Final = 242
LEFT: Final = 50
RIGHT: Final = 8
TOP: Final = 26
BOTTOM: Final = 44
GAP: Final = 0.25
"""Of a bar's column that stays empty beside it."""

CHARACTER: Final = 6.5
"""Width that a character of the texts takes at most, on average."""

WIDEST: Final = 26.0
"""A bar is never wider: three runs are not three walls."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where things lie in one drawing, in its own units.

    Attributes:
        width: Of the whole.
        column: Of one run.
        scale: Of the numbers.
        runs: How many are drawn.
    """

    width: int
    column: float
    scale: Scale
    runs: int

    @property
    def floor(self) -> float:
        """The line the bars stand on."""
        return float(HEIGHT - BOTTOM)

    def x(self, place: float) -> float:
        """Return the left edge of a column."""
        return LEFT + place * self.column

    def y(self, value: float) -> float:
        """Return the height of a number."""
        return self.floor - self.scale.place(value) * (self.floor - TOP)


def drawing(series: Series, *, width: int, most: int, name: str) -> str:
    """Return the SVG element.

    Args:
        series: The runs.
        width: In CSS pixels, as wide as it should be read.
        most: Most runs drawn; the newest.
        name: An id that no other drawing of the page has.
    """
    points = series.points[-most:]
    places = len(points) + (len(series.coming) + 0.6 if series.coming else 0.0)
    column = min(WIDEST, (width - LEFT - RIGHT) / max(places, 1.0))
    values = [p.value for p in points if p.value is not None]
    lines = [v for p in points for v in (p.limit, p.expected) if v is not None]
    frame = Frame(width, column, Scale.of([*values, *series.coming], lines), len(points))
    parts = [
        f'<svg viewBox="0 0 {width} {HEIGHT}" role="img" aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">{escape(series.target)}: {series.unit} found by each run</title>',
        f'<desc id="{name}-d">{escape(described(series))}</desc>',
        *_axis(frame, series.unit),
        *_bars(points, frame, series.unit),
        *_coming(series, frame),
        *_limit(points, frame),
        *_expected(points, frame, series.unit),
        *_limit_said(points, frame, series.unit),
        *_dates(series, points, frame),
        "</svg>",
    ]
    return "\n".join(parts)


def described(series: Series) -> str:
    """Say in words what the drawing shows."""
    if not series.points:
        return "No run yet."
    last = series.points[-1]
    ended = [p for p in series.points if not p.mark and p.value is not None]
    values = sorted(p.value for p in ended if p.value is not None)
    said = f"One run on {last.at:%Y-%m-%d}."
    if len(series.points) > 1:
        said = f"{len(series.points)} runs from {series.points[0].at:%Y-%m-%d} to {last.at:%Y-%m-%d}."
    if len(values) > 1:
        said += f" Successful ones found {values[0]:,} to {values[-1]:,} {series.unit}."
    said += f" The last found {'an unknown number' if last.value is None else f'{last.value:,}'}"
    if last.expected is not None:
        said += f"; {last.expected:,.0f} {'forecast' if last.forecast else 'expected'}"
    if last.limit is not None:
        said += f"; limit {at_most(last.limit)} {series.unit} ({last.rule})"
    said += f"; {last.mark or 'successful'}."
    if series.coming:
        said += f" By the time column, {sum(series.coming):,} become eligible in the next {len(series.coming)} days."
    return said


def _as_points(series: Series) -> list[Point]:
    after = series.after
    if after is None:
        return []
    return [Point(run="", at=days_after(after, n), value=v) for n, v in enumerate(series.coming)]


def _axis(frame: Frame, unit: str) -> Iterator[str]:
    kind = "logarithmic" if frame.scale.logarithmic else "linear"
    yield f'<text class="date" x="0" y="10">{unit} a run ({kind} scale)</text>'
    for value in frame.scale.ticks():
        y = frame.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{frame.width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="num" x="{LEFT - 6}" y="{y + 4:.1f}">{short(value, 2)}</text>'
    low = frame.floor
    yield f'<line class="axis" x1="{LEFT}" x2="{frame.width - RIGHT}" y1="{low:.1f}" y2="{low:.1f}"/>'
    if frame.scale.logarithmic:
        yield f'<text class="num" x="{LEFT - 6}" y="{low + 4:.1f}">{short(frame.scale.low)}</text>'
    else:
        yield f'<text class="num" x="{LEFT - 6}" y="{low + 4:.1f}">0</text>'


def _bars(points: Sequence[Point], frame: Frame, unit: str) -> Iterator[str]:
    bar = frame.column * (1 - GAP)
    for place, point in enumerate(points):
        x = frame.x(place) + frame.column * GAP / 2
        said = "not counted" if point.value is None else f"{point.value:,} {unit}"
        tip = escape(f"{point.at:%Y-%m-%d %H:%M} UTC: {said}{f' ({point.mark})' if point.mark else ''}")
        if point.value is None:
            yield (
                f'<text class="mark" x="{x + bar / 2:.1f}" y="{frame.floor - 4:.1f}">?<title>{tip}</title></text>'
            )
            continue
        top = min(frame.y(point.value), frame.floor - 1.0) if point.value else frame.floor
        kind = point.mark or "done"
        yield (
            f'<rect class="{kind}" x="{x:.1f}" y="{top:.1f}" width="{bar:.1f}" '
            f'height="{frame.floor - top:.1f}"><title>{tip}</title></rect>'
        )
        if point.mark:
            # Told apart without colour as well.
            yield (
                f'<text class="mark" x="{x + bar / 2:.1f}" y="{frame.floor + 11:.1f}">{point.mark[0].upper()}</text>'
            )


def _coming(series: Series, frame: Frame) -> Iterator[str]:
    bar = frame.column * (1 - GAP)
    start = frame.runs + 0.6
    for number, point in enumerate(_as_points(series)):
        value = point.value or 0
        x = frame.x(start + number) + frame.column * GAP / 2
        top = min(frame.y(value), frame.floor - 1.0) if value else frame.floor
        tip = escape(
            f"{point.at:%Y-%m-%d}: {value:,} {series.unit} become eligible within the 24 hours after"
        )
        yield (
            f'<rect class="coming" x="{x:.1f}" y="{top:.1f}" width="{bar:.1f}" '
            f'height="{frame.floor - top:.1f}"><title>{tip}</title></rect>'
        )


def _limit(points: Sequence[Point], frame: Frame) -> Iterator[str]:
    """Draw each run's own limit as a step; one above the chart is left out and stands in the table."""
    path = ""
    pen = False
    for place, point in enumerate(points):
        if point.limit is None or point.limit > frame.scale.top:
            pen = False
            continue
        y = frame.y(point.limit)
        path += f"{'L' if pen else 'M'}{frame.x(place):.1f} {y:.1f}H{frame.x(place + 1):.1f}"
        pen = True
    if path:
        yield f'<path class="limit" d="{path}"/>'


def _limit_said(points: Sequence[Point], frame: Frame, unit: str) -> Iterator[str]:
    """Say the last run's limit beside its line: read off the axis it would be a guess."""
    limit = points[-1].limit if points else None
    if limit is None:
        return
    above = limit > frame.scale.top
    said = f"limit {at_most(limit)} {unit}{', above this chart' if above else ''}"
    y = (TOP if above else frame.y(limit)) - 4
    right = frame.x(frame.runs - 1)
    # To the left of the last bar, which may be the one that is higher, unless the text would run into the axis.
    fits = right - LEFT >= len(said) * CHARACTER
    x, kind = (right, "said end") if fits else (LEFT + 4, "said")
    yield f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{said}</text>'


def _expected(points: Sequence[Point], frame: Frame, unit: str) -> Iterator[str]:
    for place, point in enumerate(points):
        if point.expected:
            x = frame.x(place + 0.5)
            tip = f"{point.expected:,.0f} {unit} {'forecast' if point.forecast else 'expected'}"
            yield (
                f'<circle class="expected" cx="{x:.1f}" cy="{frame.y(point.expected):.1f}" r="2.5">'
                f"<title>{tip}</title></circle>"
            )


def _dates(series: Series, points: Sequence[Point], frame: Frame) -> Iterator[str]:
    y = HEIGHT - BOTTOM + 28
    if not points:
        return
    first, last = points[0].at, points[-1].at
    yield f'<text class="date" x="{frame.x(0):.1f}" y="{y}">{first:%Y-%m-%d}</text>'
    middle = frame.x(frame.runs - 0.5)
    if middle - frame.x(0) > 150:
        yield f'<text class="date end" x="{frame.x(frame.runs):.1f}" y="{y}">{last:%Y-%m-%d}</text>'
    if series.coming:
        x, place = frame.x(frame.runs + 0.3), frame.x(frame.runs + 0.6)
        yield f'<line class="now" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{frame.floor:.1f}"/>'
        room = frame.width - RIGHT - place
        label = f"next {len(series.coming)} days"
        anchor = "date" if room > 75 else "date end"
        yield f'<text class="{anchor}" x="{place if room > 75 else frame.width - RIGHT:.1f}" y="{y + 13}">{label}</text>'
