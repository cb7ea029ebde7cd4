"""A key in another spelling is found whichever side comes first, and also when there are more keys than are remembered."""

from __future__ import annotations

import pytest

from safedelete.core.orphans import Value, meaning
from safedelete.core.spelling import Spellings, spoken

PAIRS = [
    ("u/a%20b", "u/a b"),
    ("u/a+b", "u/a b"),
    ("u/e\u0301", "u/\u00e9"),
    ("u/a ", "u/a"),
    ("u/%c3%a9", "u/e\u0301"),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_either_side_may_come_first(one: str, other: str) -> None:
    first, second = Spellings(), Spellings()
    first.missing(one)
    first.unnamed(other)
    second.unnamed(other)
    second.missing(one)
    assert (first.matches, second.matches) == (1, 1)
    assert (first.example, second.example) == (other, one)


def test_two_keys_are_two() -> None:
    seen = Spellings()
    for key in ("u/a", "u/A", "u/a/", "u/a%2", "u/%zz"):
        seen.missing(key)
    for key in ("u/b", "u/a//", "u/a%", "u/zz"):
        seen.unnamed(key)
    assert seen.matches == 0


def test_bytes_that_are_no_text_are_read_all_the_same() -> None:
    assert spoken("u/%ff") == "u/\ufffd"


def test_more_than_is_remembered_still_shows_what_is_wrong_with_many() -> None:
    seen = Spellings(most=100)
    for number in range(5_000):
        seen.unnamed(f"u/a {number}")
    for number in range(5_000):
        seen.missing(f"u/a%20{number}")
    assert 0 < seen.matches <= 100
    assert max(len(seen._missing._numbers), len(seen._unnamed._numbers)) <= 100


@pytest.mark.parametrize("value", ["f%C3%BC%2F1", "f%c3%bc/1", "fu\u0308/1", " f\u00fc/1"])
def test_a_prefix_in_another_spelling_means_the_prefix(value: str) -> None:
    assert meaning(value, "acme", "f\u00fc/") is Value.UNMATCHED
    assert meaning("fu/1", "acme", "f\u00fc/") is Value.KEY
