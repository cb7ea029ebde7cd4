"""The chart of text: what it shows, that it fits, and that it shows it everywhere."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.cli.chart import ASCII, BLOCKS, FAR, Glyphs, chart, glyphs, short
from safedelete.cli.series import Mark, Point, Series, series
from tests.cli.runs import nights

START = datetime(2026, 6, 1, 3, tzinfo=UTC)


def drawn(
    values: list[int | None],
    *,
    limit: float | None = None,
    expected: float | None = None,
    marks: dict[int, Mark] | None = None,
) -> Series:
    points = [
        Point(run=str(n), at=START + timedelta(days=n), value=v, mark=(marks or {}).get(n, ""))
        for n, v in enumerate(values)
    ]
    points[-1] = replace(points[-1], limit=limit, expected=expected)
    return Series(target="events", unit="rows", points=tuple(points), tonight=True)


def heights(lines: list[str], shape: Glyphs = BLOCKS) -> list[int]:
    """How many cells of each column are at least partly filled."""
    filled = set(shape.steps[1:])
    rows = [line[9:] for line in lines if shape.side in line[:10]]
    width = max(map(len, rows))
    return [sum(row[c : c + 1] in filled for row in rows if row[c : c + 1]) for c in range(width)]


def test_each_run_has_a_bar_as_high_as_its_count() -> None:
    lines = chart(drawn([100, 200, 300, 400, 0, 600]))
    bars = heights(lines)[::2][:6]
    assert bars == [*sorted(bars[:4]), 0, max(bars)]
    assert bars[5] > bars[3] > bars[0] > 0


def test_the_title_says_what_is_counted_how_often_and_on_which_scale() -> None:
    assert chart(drawn([100, 110]))[0] == "events: rows found by each of 2 runs up to tonight (linear scale)"
    assert "(log scale)" in chart(drawn([100, 110, 90, 105, 50_000]))[0]


def test_usual_nights_stay_visible_beside_a_surge() -> None:
    lines = chart(drawn([4_000] * 10 + [400_000], limit=7_000, expected=4_100))
    bars = heights(lines)[::2]
    assert bars[0] >= 2
    assert any(line.rstrip().endswith("limit") for line in lines)


@pytest.mark.parametrize("shape", [BLOCKS, ASCII], ids=["blocks", "ascii"])
def test_limit_and_expectation_are_named_where_they_are_drawn(shape: Glyphs) -> None:
    lines = chart(drawn([100] * 9 + [150], limit=300, expected=100), shape)
    (limit,) = [line for line in lines if line.endswith(" limit")]
    (expected,) = [line for line in lines if line.endswith(" expected")]
    assert shape.limit * 3 in limit
    assert shape.expected in expected
    assert lines.index(limit) < lines.index(expected)


def test_a_limit_that_only_catches_wipes_is_not_drawn() -> None:
    lines = chart(drawn([100] * 10, limit=100 * FAR * 2, expected=100))
    assert not any("limit" in line for line in lines)
    assert "linear" in lines[0]


def test_runs_that_do_not_count_are_marked_and_the_marks_explained() -> None:
    lines = chart(drawn([100, 900, 100, None, 100], marks={1: "refused", 2: "failed"}))
    text = "\n".join(lines)
    marks = next(line for line in lines if line.split() == ["r", "f", "?"])
    assert marks.index("r") == 9 + 2
    assert marks.index("?") == 9 + 6
    for word in ("r refused", "f failed", "? not counted"):
        assert word in text


def test_nothing_is_drawn_where_there_is_nothing_to_compare() -> None:
    assert chart(drawn([5])) == []
    assert chart(drawn([0, 0, 0])) == []
    assert chart(drawn([None, 5])) == []


@pytest.mark.parametrize("shape", [BLOCKS, ASCII], ids=["blocks", "ascii"])
@given(
    values=st.lists(st.none() | st.integers(0, 10**13), min_size=1, max_size=200),
    limit=st.none() | st.floats(0, 1e14),
    expected=st.none() | st.floats(0, 1e14),
)
def test_it_fits_twelve_lines_of_eighty_columns_whatever_the_numbers(
    shape: Glyphs, values: list[int | None], limit: float | None, expected: float | None
) -> None:
    rng = random.Random(len(values))
    marks = {n: rng.choice(["", "refused", "failed", "unfinished"]) for n in range(len(values))}
    lines = chart(replace(drawn(values, limit=limit, expected=expected, marks=marks), target="t" * 70), shape)
    assert len(lines) <= 12
    assert all(len(line) <= 80 for line in lines)
    if shape is ASCII:
        "".join(lines).encode("ascii")


@pytest.mark.parametrize(
    ("encoding", "terminal", "expected"),
    [
        ("utf-8", "xterm-256color", BLOCKS),
        ("utf-8", None, BLOCKS),
        ("utf-8", "dumb", ASCII),
        ("ascii", "xterm", ASCII),
        ("iso-8859-1", "xterm", ASCII),
        ("no-such-encoding", "xterm", ASCII),
        (None, None, ASCII),
    ],
)
def test_blocks_are_drawn_only_where_they_can_be_shown(
    encoding: str | None, terminal: str | None, expected: Glyphs
) -> None:
    assert glyphs(encoding, terminal) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (0.5, "0.5"),
        (999, "999"),
        (1_000, "1k"),
        (7_354, "7.4k"),
        (2_500_000, "2.5M"),
        (4.2e13, "42T"),
    ],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert short(value) == expected


def test_a_series_is_made_of_what_each_run_was_told_at_the_time() -> None:
    (one,) = series(nights(12, surge_at=9))
    assert [p.mark for p in one.points] == [""] * 9 + ["refused"] + [""] * 2
    surge = one.points[9]
    assert surge.value == 48_210
    assert surge.forecast
    assert surge.limit is not None
    assert surge.limit < 48_210
    assert surge.verdict == "stop"
    assert len(one.coming) == 14
    assert one.points == tuple(sorted(one.points, key=lambda p: p.at))
