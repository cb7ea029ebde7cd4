"""What mutation testing of the guard breaks."""

from __future__ import annotations

import ast

import pytest

from tests.bench.mutants import mutants


def broken(source: str) -> list[str]:
    return [ast.unparse(tree) for _, _, tree in mutants(source)]


@pytest.mark.parametrize("word", ["and", "or"])
def test_each_operand_of_a_condition_is_dropped_once(word: str) -> None:
    other = {"and": "or", "or": "and"}[word]
    assert broken(f"x = a {word} b") == [f"x = a {other} b", "x = b", "x = a"]
    assert broken(f"x = a {word} b {word} c")[1:] == [
        f"x = b {word} c",
        f"x = a {word} c",
        f"x = a {word} b",
    ]


def test_an_operand_within_an_operand_is_dropped_too_and_the_rest_stays_as_it_is() -> None:
    found = broken("x = a and (b or c)")
    assert {"x = a and b", "x = a and c", "x = b or c", "x = a"} <= set(found)
    assert len(found) == len(set(found)) == 6
