"""The alert rules pass promtool, their own tests hold their thresholds, and a real Prometheus fires them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deploy.conftest import JOBS, Rendering

PROMTOOL = shutil.which("promtool")
TESTS = ("safedelete-reminders.tests.yml", "safedelete-backup.tests.yml")

pytestmark = pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("CI"), reason="there is no promtool here (Debian: prometheus)"
)


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None, "CI needs promtool"
    return subprocess.run([PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_promtool_accepts_the_rules_and_their_tests_pass(project: Path, render: Rendering) -> None:
    render("prometheus")
    folder = project / "deploy"
    checked = promtool(folder, "check", "rules", "--lint-fatal", "safedelete.rules.yml")
    assert checked.returncode == 0, checked.stderr
    assert "12 rules found" in checked.stdout
    tested = promtool(folder, "test", "rules", *TESTS)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def thresholds(text: str) -> list[str]:
    return re.findall(r"(?:expr: .*[<>] |for: )(\d+)", text)


def test_the_tests_catch_every_threshold_that_is_changed(project: Path, render: Rendering) -> None:
    render("prometheus")
    rules = project / "deploy" / "safedelete.rules.yml"
    text = rules.read_text()
    assert len(thresholds(text)) == 8
    places = [match.span(1) for match in re.finditer(r"(?:expr: .*[<>] |for: )(\d+)", text)]
    for start, end in places:
        for factor in (0.5, 10):
            changed = str(int(int(text[start:end]) * factor))
            rules.write_text(text[:start] + changed + text[end:])
            assert promtool(project / "deploy", "test", "rules", *TESTS).returncode != 0, (
                text[start - 60 : end],
                factor,
            )


def test_overdue_is_the_longest_gap_the_timeout_and_the_grace(project: Path, render: Rendering) -> None:
    (project / "jobs.py").write_text(
        JOBS.replace('"*/15 * * * *"', '"cron(30 2 * * ? *)", tz="Europe/Berlin"')
    )
    render("prometheus")
    rules = yaml.safe_load((project / "deploy" / "safedelete.rules.yml").read_text())["groups"][0]["rules"]
    missed = next(r for r in rules if r["alert"] == "SafedeleteMissed" and "reminders" in r["expr"])
    # 47 hours lie between two runs in spring; 5 minutes of timeout, 20 s of grace.
    assert missed["expr"].endswith(f"> {47 * 3600 + 300 + 20}")


def test_every_alert_has_its_labels_and_its_runbook(project: Path, render: Rendering) -> None:
    render("prometheus")
    rules = yaml.safe_load((project / "deploy" / "safedelete.rules.yml").read_text())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == {
        "SafedeleteCrashed",
        "SafedeleteFailed",
        "SafedeleteGuardRefused",
        "SafedeleteMissed",
        "SafedeleteNeverReported",
        "SafedeleteSlow",
    }
    for rule in rules:
        assert rule["labels"]["team"] == "data"
        assert rule["annotations"]["runbook_url"] == f"https://example.com/{rule['alert']}"
