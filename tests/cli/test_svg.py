"""The drawing of the page: what is more is drawn higher, and a line lies where its number does."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from safedelete.cli.series import Point, Series
from safedelete.cli.svg import TOP, drawing

START = datetime(2026, 6, 1, 3, tzinfo=UTC)


def drawn(values: list[int], *, limit: float | None = None, expected: float | None = None) -> ET.Element:
    points = [Point(run=str(n), at=START + timedelta(days=n), value=v) for n, v in enumerate(values)]
    points[-1] = replace(points[-1], limit=limit, expected=expected, rule="floor")
    series = Series(target="events", unit="rows", points=tuple(points))
    return ET.fromstring(drawing(series, width=720, most=60, name="c"))


def tops(svg: ET.Element) -> list[float]:
    """The y of each run's bar; y grows downwards."""
    return [float(bar.attrib["y"]) for bar in svg.iter("rect")]


def line(svg: ET.Element) -> float:
    """The y of the last run's limit."""
    (path,) = [path for path in svg.iter("path") if path.attrib["class"] == "limit"]
    found = re.fullmatch(r"M[\d.]+ ([\d.]+)H[\d.]+", path.attrib["d"])
    assert found is not None
    return float(found[1])


def text(svg: ET.Element, kind: str) -> list[ET.Element]:
    return [one for one in svg.iter("text") if kind in one.attrib["class"].split()]


SCALES = pytest.mark.parametrize("largest", [600, 40_000], ids=["linear", "log"])


@SCALES
def test_a_larger_count_is_drawn_higher(largest: int) -> None:
    values = [100, 180, 320, 560, 240, largest]
    found = tops(drawn(values))
    assert sorted(found, reverse=True) == [found[n] for n in (0, 1, 4, 2, 3, 5)]
    assert len(set(found)) == len(found)


@SCALES
def test_a_limit_and_an_expectation_lie_where_a_bar_of_their_number_ends(largest: int) -> None:
    values = [100, 180, 320, 560, 240, largest]
    for number, value in enumerate(values):
        svg = drawn(values, limit=value, expected=value)
        assert line(svg) == tops(svg)[number]
        (dot,) = svg.iter("circle")
        assert float(dot.attrib["cy"]) == tops(svg)[number]


@SCALES
def test_each_number_of_the_axis_stands_where_a_bar_of_that_number_ends(largest: int) -> None:
    svg = drawn([100, 180, 320, 560, 240, largest])
    sizes = {"": 1, "k": 1_000}
    named = {}
    for one in text(svg, "num"):
        found = re.fullmatch(r"([\d.]+)(k?)", one.text or "")
        assert found is not None
        named[round(float(found[1]) * sizes[found[2]])] = float(one.attrib["y"]) - 4
    assert len(named) >= 4
    for number in sorted(named)[1:]:
        same = drawn([100, 180, 320, 560, 240, largest, number])
        if number <= largest:
            assert tops(same)[-1] == pytest.approx(named[number], abs=0.11)


def test_the_limit_is_said_with_its_number_beside_its_line() -> None:
    svg = drawn([100] * 30 + [150], limit=310)
    (said,) = text(svg, "said")
    assert said.text == "limit 310 rows"
    assert 0 < line(svg) - float(said.attrib["y"]) < 8
    assert "end" in said.attrib["class"]


def test_a_limit_above_the_drawing_is_said_at_its_top() -> None:
    svg = drawn([100] * 30, limit=90_000)
    (said,) = text(svg, "said")
    assert said.text == "limit 90,000 rows, above this chart"
    assert float(said.attrib["y"]) < TOP
    assert not [path for path in svg.iter("path") if path.attrib["class"] == "limit"]


def test_beside_few_runs_the_limit_is_said_without_running_into_the_axis() -> None:
    (said,) = text(drawn([100, 110], limit=310), "said")
    assert "end" not in said.attrib["class"]
    assert float(said.attrib["x"]) > 50
