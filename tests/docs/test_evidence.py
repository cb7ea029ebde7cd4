"""The page of evidence names what is there: each promise with its tests and its mutants, and no other."""

from __future__ import annotations

import re

from tests.crash.evidence import told
from tests.crash.faults import FAULTS
from tests.crash.purges import KEEPING_VERSIONS
from tests.crash.test_faults import DRAWN, DRAWN_LAST, DRAWN_VERSIONED
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


def test_every_figure_is_a_number_with_the_command_that_shows_it_again() -> None:
    section = PAGE.split("## The numbers, and how to see them again")[1].split("\n#")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 6
    for what, *rest in rows:
        assert len(rest) == 2, what
        assert re.match(r"\D{0,60}\d", rest[0]), f"{what}: no number in {rest[0]!r}"
        assert re.search(r"`[^`]+`", rest[1]), f"{what}: no command in {rest[1]!r}"


def test_the_kinds_of_faults_are_as_many_as_there_are() -> None:
    (row,) = [row for row in ROWS if row[0].startswith("faults at random")]
    assert f"each of the {len(FAULTS)} kinds" in row[1]
    assert f"draws {DRAWN} kinds, and {DRAWN_VERSIONED} for each" in row[2]
    assert f"({DRAWN_LAST} for each of the last)" in row[2]
    assert f"each of the {len(FAULTS)} strike" in row[2]


def test_the_crash_points_are_as_many_as_their_table_has() -> None:
    points = f"{sum(row.points for row in told().values()):,}"
    assert f"**{points} crash points**" in PAGE
    (row,) = [row for row in ROWS if row[0].startswith("kill -9")]
    assert row[1].startswith(f"{points} points")


def test_every_purge_that_is_killed_has_its_crash_points_and_no_other() -> None:
    killed = {what.split(",")[0] for _, what in told()}
    unversioned = {"rows", "rows and two objects each", "rows and a folder each", "prefix", "orphans"}
    assert killed == {*unversioned, *KEEPING_VERSIONS}
    for name in KEEPING_VERSIONS:
        assert {where for where, what in told() if what == name} == {"SQLite", "PostgreSQL"}
