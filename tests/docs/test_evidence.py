"""The page of evidence names what is there: each promise with its tests and its mutants, and no other."""

from __future__ import annotations

import re

from tests.docs.test_reference import DOCS
from tests.mutants.manifest import mutants

TESTS = DOCS.parent / "tests"
PAGE = (DOCS / "explanation" / "evidence.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
HOLDING = [row for row in ROWS if "`" in row[1] and row[1].strip("`").endswith(".py")]


def test_every_promise_has_its_row_with_its_name() -> None:
    text = (DOCS / "explanation" / "promises.md").read_text(encoding="utf-8")
    promised = [int(number) for number in re.findall(r"^(\d+)\. \*\*", text, re.MULTILINE)]
    assert [int(row[0].split(".")[0]) for row in HOLDING if row[0][0].isdigit()] == promised


def test_every_test_that_is_named_is_there() -> None:
    named = {name for row in HOLDING for name in re.findall(r"`([^`]+)`", row[1])}
    assert len(named) > 20
    assert {name for name in named if not (TESTS / name).is_file()} == set()


def test_every_mutant_is_named_where_it_belongs_and_its_tests_beside_it() -> None:
    listed = {name: row for row in HOLDING for name in row[2].split(", ")}
    made = {mutant.name: mutant for mutant in mutants()}
    assert listed.keys() == made.keys()
    for name, row in listed.items():
        mutant = made[name]
        if mutant.promise is not None:
            assert row[0].startswith(f"{mutant.promise}. "), name
        held = re.findall(r"`([^`]+)`", row[1])
        assert any(test.split("::")[0].removeprefix("tests/") in held for test in mutant.tests), name


def test_the_number_of_mutants_is_the_one_that_there_is() -> None:
    assert f"| {len(mutants())} of {len(mutants())} | `make mutants` |" in PAGE
