"""CI's audit of the dependencies never calls a pass what nobody could look up."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from tests.e2e.world import ROOT


@pytest.fixture(scope="module")
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SKIPPED = {"name": "a", "skip_reason": "Dependency not found on PyPI and could not be audited: a (1)"}
CLEAN = {"name": "b", "version": "2", "vulns": []}
BAD = {"name": "c", "version": "3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["4"]}]}
UNFIXED = {"name": "d", "version": "4", "vulns": [{"id": "PYSEC-2"}]}


@pytest.mark.parametrize(
    ("packages", "status", "said"),
    [
        ([SKIPPED], 0, ["NOT AUDITED: none of 1 packages could be asked about. This is not a pass."]),
        ([], 0, ["NOT AUDITED: none of 0 packages could be asked about. This is not a pass."]),
        ([CLEAN], 0, ["audited 1 of 1 packages: 0 known vulnerabilities"]),
        (
            [CLEAN, SKIPPED],
            0,
            ["audited 1 of 2 packages: 0 known vulnerabilities", "NOT AUDITED: the other 1."],
        ),
        (
            [CLEAN, BAD],
            1,
            ["c 3: PYSEC-1, fixed in 4", "audited 2 of 2 packages: 1 known vulnerabilities"],
        ),
        (
            [UNFIXED],
            1,
            [
                "d 4: PYSEC-2, fixed in no version that is told",
                "audited 1 of 1 packages: 1 known vulnerabilities",
            ],
        ),
    ],
)
def test_what_is_said(audit: Any, packages: list[Any], status: int, said: list[str]) -> None:
    assert audit.judge({"dependencies": packages}) == (status, said)


def test_a_service_that_does_not_answer_is_said_and_fails_nothing(
    audit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*_: Any, timeout: float, **__: Any) -> None:
        assert timeout <= 90
        raise audit.subprocess.TimeoutExpired("pip-audit", timeout)

    monkeypatch.setattr(audit.subprocess, "run", never)
    assert audit.main("python") == 0
    assert "NOT AUDITED" in capsys.readouterr().out


def answering(audit: Any, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    done = audit.subprocess.CompletedProcess([], 1, stdout=said, stderr="first\nno route to the index")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: done)


def test_a_vulnerability_of_which_little_is_told_fails_the_audit(
    audit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(audit, monkeypatch, json.dumps({"dependencies": [{"name": "d", "vulns": [{}]}]}))
    assert audit.main("python") == 1
    assert "NOT AUDITED" not in capsys.readouterr().out


def test_an_answer_that_is_none_says_why(
    audit: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(audit, monkeypatch, "")
    assert audit.main("python") == 0
    assert "could not ask (no route to the index)" in capsys.readouterr().out


def test_an_answer_in_another_form_is_an_error_and_no_pass(
    audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(audit, monkeypatch, '{"packages": []}')
    with pytest.raises(KeyError):
        audit.main("python")
