"""The chart of text: what it shows, that it fits, and that it shows it everywhere."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.cli import chart as charts
from safedelete.cli import page
from safedelete.cli.chart import ASCII, BLOCKS, FAR, LABEL, ROWS, SPREAD, Glyphs, Scale, chart, glyphs, short
from safedelete.cli.series import MARKS, Mark, Point, Series, series
from safedelete.core.plan import TargetPlan, Unknown
from safedelete.core.run import RunState
from tests.cli.runs import nights, plan_of

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
    rows = [line[LABEL + 2 :] for line in lines if shape.side in line[: LABEL + 3]]
    width = max(map(len, rows))
    return [sum(row[c : c + 1] in filled for row in rows if row[c : c + 1]) for c in range(width)]


def test_each_run_has_a_bar_as_high_as_its_count() -> None:
    lines = chart(drawn([100, 200, 300, 400, 0, 600]))
    bars = heights(lines)[::2][:6]
    assert bars == [*sorted(bars[:4]), 0, max(bars)]
    assert bars[5] > bars[3] > bars[0] > 0


def axis(lines: list[str], shape: Glyphs = BLOCKS) -> list[float]:
    """The numbers of the axis, the lowest first: each is what a bar that fills its row stands for."""
    sizes = {"": 1, "k": 1e3, "M": 1e6}
    named = [re.match(rf" *([\d.]+)([kM]?) \{shape.side}", line) for line in lines]
    return [float(found[1]) * sizes[found[2]] for found in named if found][::-1]


def row_of(lines: list[str], word: str, shape: Glyphs = BLOCKS) -> int:
    """The row of the chart beside which a word stands, the lowest being 0."""
    rows = [line for line in lines if line[LABEL + 1 : LABEL + 2] == shape.side][::-1]
    (row,) = [number for number, line in enumerate(rows) if word in line]
    return row


@pytest.mark.parametrize("largest", [600, 40_000], ids=["linear", "log"])
def test_a_larger_count_is_drawn_higher_and_reaches_its_number_on_the_axis(largest: int) -> None:
    values: list[int | None] = [100, 180, 320, 560, 240, largest]
    lines = chart(drawn(values))
    assert ("log scale" in lines[0]) == (largest > 5 * 240)
    bars, scale = heights(lines)[::2][:6], axis(lines)
    assert len(scale) == ROWS
    for value, bar in zip(values, bars, strict=True):
        assert value is not None
        assert bar == 1 or value > scale[bar - 2], "it is not higher than its count"
        assert value <= scale[bar - 1] * 1.05, "it is as high as its count"
    assert sorted(bars) == [bars[n] for n in (0, 1, 4, 2, 3, 5)]


@pytest.mark.parametrize("surge", [150, 5_000], ids=["linear", "log"])
def test_limit_and_expectation_are_drawn_at_their_own_heights(surge: int) -> None:
    lines = chart(drawn([100] * 9 + [surge], limit=310, expected=120))
    scale = axis(lines)
    for word, value in (("limit", 310), ("expected", 120)):
        row = row_of(lines, word)
        assert value <= scale[row] * 1.05
        assert row == 0 or value >= scale[row - 1] * 0.95
    assert row_of(lines, "limit") > row_of(lines, "expected")


def test_the_axis_has_round_numbers() -> None:
    assert axis(chart(drawn([3_000, 3_900, 4_600]))) == [800 * n for n in range(1, 8)]
    assert axis(chart(drawn([5, 6, 7]))) == [1, 2, 3, 4, 5, 6, 7]
    assert axis(chart(drawn([1_300, 1_500]))) == [250 * n for n in range(1, 8)]
    assert axis(chart(drawn([900, 1_000]))) == [150 * n for n in range(1, 8)]
    assert axis(chart(drawn([4_000] * 10 + [48_210]))) == [
        1_800,
        3_200,
        5_600,
        10_000,
        18_000,
        32_000,
        56_000,
    ]
    assert chart(drawn([4_000] * 10 + [48_210]))[ROWS + 1].split()[0] == "1k"


def test_the_title_says_what_is_counted_how_often_and_on_which_scale() -> None:
    assert chart(drawn([100, 110]))[0] == "events: rows found by each of 2 runs up to tonight (linear scale)"
    assert "(log scale)" in chart(drawn([100, 110, 90, 105, 50_000]))[0]


def test_usual_nights_stay_visible_beside_a_surge() -> None:
    lines = chart(drawn([4_000] * 10 + [400_000], limit=7_000, expected=4_100))
    bars = heights(lines)[::2]
    assert bars[0] >= 2
    assert any(line.endswith(" limit 7,000 rows") for line in lines)


@pytest.mark.parametrize("shape", [BLOCKS, ASCII], ids=["blocks", "ascii"])
def test_limit_and_expectation_are_named_where_they_are_drawn(shape: Glyphs) -> None:
    lines = chart(drawn([100] * 9 + [150], limit=300, expected=100), shape)
    (limit,) = [line for line in lines if line.endswith(" limit 300 rows")]
    (expected,) = [line for line in lines if line.endswith(" expected 100 rows")]
    assert shape.limit * 3 in limit
    assert shape.expected in expected
    assert lines.index(limit) < lines.index(expected)


def test_a_limit_far_above_the_runs_is_said_and_not_drawn() -> None:
    for values, limit in (([100] * 10, 100 * SPREAD + 1), ([100] * 10 + [5_000], 5_000 * FAR + 1)):
        lines = chart(drawn([*values], limit=limit, expected=50))
        (said,) = [line for line in lines if "limit" in line]
        assert said.endswith(f" limit {limit:,.0f} rows, above")
        assert lines.index(said) == 1, "beside the top row"
        assert BLOCKS.limit not in "".join(lines)


def test_two_lines_in_one_row_are_both_named_with_their_numbers() -> None:
    lines = chart(drawn([1_000] * 25, limit=1_100, expected=1_090))
    (said,) = [line for line in lines if "limit" in line]
    assert said.endswith(" limit 1.1k, expected")
    assert len(said) <= 80
    few = chart(drawn([1_000] * 3, limit=1_100, expected=1_090))
    assert any(line.endswith(" limit 1,100 rows, expected 1,090 rows") for line in few)


@pytest.mark.parametrize("limit", [None, 90, 400, 501, 1_900, 1e9])
def test_counts_alone_choose_the_scale(limit: float | None) -> None:
    even, uneven = [100] * 9 + [500], [100] * 9 + [501]
    assert "(linear scale)" in chart(drawn([*even], limit=limit, expected=limit))[0]
    assert "(log scale)" in chart(drawn([*uneven], limit=limit, expected=limit))[0]
    assert not Scale.of(even, [] if limit is None else [limit]).logarithmic


def test_runs_that_do_not_count_are_marked_and_the_marks_explained() -> None:
    lines = chart(drawn([100, 900, 100, None, 100], marks={1: "refused", 2: "failed"}))
    text = "\n".join(lines)
    marks = next(line for line in lines if line.split() == ["r", "f", "?"])
    assert marks.index("r") == LABEL + 2 + 2
    assert marks.index("?") == LABEL + 2 + 6
    for word in ("r refused", "f failed", "? not counted"):
        assert word in text


def test_every_state_of_a_run_has_its_mark() -> None:
    assert {state.value: mark for state, mark in MARKS.items()} == {
        "succeeded": "",
        "refused": "refused",
        "expired": "expired",
        "failed": "failed",
        "crashed": "failed",
        "incomplete": "unfinished",
        "interrupted": "unfinished",
        "abandoned": "unfinished",
        "cancelled": "unfinished",
        "pending": "unfinished",
        "running": "unfinished",
        "planning": "unfinished",
    }
    assert set(MARKS) == set(RunState), "a state that nobody has thought of would end history and page"


def test_every_mark_has_its_letter_its_word_and_its_colour() -> None:
    marks = set(MARKS.values())
    assert set(charts.MARKS) == marks
    assert len(set(charts.MARKS.values())) == len(marks)
    assert {charts.NAMES[letter] for mark, letter in charts.MARKS.items() if mark} == marks - {""}
    assert marks <= {name for name, _, _ in page.KEY}
    for mark in marks - {""}:
        assert f".{mark}{{fill:var(--{mark})}}" in page.STYLE
        assert page.STYLE.count(f"--{mark}:#") == 3, "by daylight, in the dark, and on paper"


def test_a_plan_that_expired_is_not_drawn_as_refused() -> None:
    records = nights(5)
    records[2] = replace(records[2], state=RunState.EXPIRED)
    (one,) = series(records)
    assert [p.mark for p in one.points] == ["", "", "expired", "", ""]
    assert "(e expired)" in "\n".join(chart(one))


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


def test_of_a_portion_the_whole_is_drawn() -> None:
    plan = plan_of(1, 500)
    (target,) = plan.targets

    def value(target: TargetPlan, portion: int | None) -> int | None:
        (one,) = series([], replace(plan, targets=(target,), portion=portion))
        return one.points[-1].value

    assert value(replace(target, eligible=10_000), 500) == 10_000
    assert value(replace(target, eligible=10_000), None) == 500, "blocked items are no part of a backlog"
    assert value(replace(target, eligible=Unknown("timeout")), 500) == 500
    assert value(replace(target, items=Unknown("timeout")), 500) is None
