"""Every promise has a mutant that can still be tried; `make mutants` tries them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import judged
from tests.mutants.manifest import HERE, ROOT, Mutant, mutants

PROMISES = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)


@pytest.fixture(scope="module")
def there() -> list[Mutant]:
    return mutants()


def test_every_promise_of_the_documentation_has_a_mutant(there: list[Mutant]) -> None:
    text = (ROOT / "docs" / "explanation" / "promises.md").read_text(encoding="utf-8")
    promised = {int(number) for number in PROMISES.findall(text)}
    assert promised == set(range(1, 13))
    assert {mutant.promise for mutant in there} - {None} == promised


def test_every_patch_is_in_the_manifest_and_breaks_the_package_alone(there: list[Mutant]) -> None:
    assert {path.stem for path in HERE.glob("*.patch")} == {mutant.name for mutant in there}
    for mutant in there:
        touched = re.findall(r"^\+\+\+ b/(.+)$", mutant.patch.read_text(encoding="utf-8"), re.MULTILINE)
        assert touched
        assert all(path.startswith("safedelete/") for path in touched), mutant.name


def test_every_patch_still_applies(there: list[Mutant]) -> None:
    # All at once would try each upon the one before.
    refused = {mutant.name: objection for mutant in there if (objection := mutant.apply(ROOT, "--check"))}
    assert refused == {}


def test_a_patch_that_does_not_apply_is_seen(tmp_path: Path, there: list[Mutant]) -> None:
    assert "safedelete" in there[0].apply(tmp_path, "--check")


def test_the_tests_that_have_to_notice_are_there(there: list[Mutant]) -> None:
    missing = {
        test for mutant in there for test in mutant.tests if not (ROOT / test.split("::")[0]).is_file()
    }
    assert missing == set()
    assert all(mutant.tests for mutant in there)


@pytest.mark.parametrize(
    ("status", "said", "verdict"),
    [
        (1, "FAILED tests/x.py::test_y - assert 1 == 2", "caught by tests/x.py::test_y"),
        (1, "FAILED tests/x.py::test_y - safedelete.errors.LedgerError: x", "caught by tests/x.py::test_y"),
        (0, "1 passed", "SURVIVED"),
        (1, "ERROR tests/x.py::test_y - RuntimeError: a fixture fails", "DID NOT RUN"),
        (2, "ERROR tests/x.py - SyntaxError: invalid syntax", "DID NOT RUN"),
        (1, "FAILED tests/x.py::test_y - NameError: name 'child' is not defined", "IS NO MUTANT"),
    ],
)
def test_caught_is_a_mutant_with_which_a_test_fails_and_nothing_else(
    status: int, said: str, verdict: str
) -> None:
    assert judged(status, said).startswith(verdict)
