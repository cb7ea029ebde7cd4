"""The alert rules pass promtool, and their own tests hold every threshold and whose series they look at."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from safedelete.deploy.prometheus import RULES, render
from safedelete.deploy.spec import Prometheus
from tests.deploy.conftest import made

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None and not os.environ.get("CI"), reason="there is no promtool here (Debian: prometheus)"
)
# What a name may hold must reach PromQL as it is.
SPEC, ENVIRONMENT = Prometheus(labels={"team": "data"}, runbook="https://example.com/{alert}"), 'a "b" \\'
CRASHED_BY_ITS_OWN_WORD = (
    "expr: time() - max by (job_name, environment) "
    '(safedelete_last_crash_timestamp_seconds{job_name="reminders"}) < 3600'
)
"""As a slow clock's crash is never seen by, and one far ahead for good."""
ALERTS = {"Crashed", "Failed", "GuardRefused", "Missed", "NeverReported", "Slow"}


@pytest.fixture(scope="module")
def files() -> Mapping[str, str]:
    # One that is looked at every minute, and one more seldom.
    return render([made("reminders", "*/15 * * * *"), made("nightly", "0 3 * * *")], SPEC, ENVIRONMENT)


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None, "CI needs promtool"
    # What fails goes to standard error, among the names on standard output.
    return subprocess.run(
        [PROMTOOL, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def failing(folder: Path, cases: Mapping[str, Mapping[str, str]]) -> dict[str, set[str]]:
    """Run the tests of several sets of files in one process; returns the alerts that were not as expected."""
    found: dict[str, set[str]] = {}
    for case, files in cases.items():
        (folder / case).mkdir()
        for name, text in files.items():
            (folder / case / name).write_text(text)
    tests = [f"{case}/{name}" for case, files in cases.items() for name in files if name != RULES]
    done = promtool(folder, "test", "rules", *tests)
    for block in done.stdout.split("Unit Testing:  ")[1:]:
        path, _, rest = block.partition("\n")
        assert rest.lstrip().startswith(("SUCCESS", "FAILED")), block
        alerts = set(re.findall(r"alertname: Safedelete(\w+)", rest))
        assert bool(alerts) == rest.lstrip().startswith("FAILED"), block
        found[path.strip()] = alerts
    assert set(found) == set(tests), done.stdout
    return found


def rules_of(files: Mapping[str, str]) -> list[dict[str, str]]:
    found: list[dict[str, str]] = yaml.safe_load(files[RULES])["groups"][0]["rules"]
    return found


@needs_promtool
def test_promtool_accepts_the_rules_and_their_tests_pass(tmp_path: Path) -> None:
    monthly = made("backup", "cron(30 1 ? * 2#1 *)", tz="Europe/Berlin", timeout=timedelta(hours=2))
    files = render([made("reminders", "*/15 * * * *"), monthly], SPEC, ENVIRONMENT)
    assert failing(tmp_path, {"as-rendered": files}) == {
        f"as-rendered/safedelete-{job}.tests.yml": set() for job in ("reminders", "backup")
    }
    checked = promtool(tmp_path / "as-rendered", "check", "rules", "--lint-fatal", RULES)
    assert checked.returncode == 0, checked.stdout
    assert "12 rules found" in checked.stdout


@needs_promtool
def test_the_tests_catch_every_threshold_that_is_changed(files: Mapping[str, str], tmp_path: Path) -> None:
    threshold = re.compile(r"((?:expr: .*[<>] (?:time\(\) - )?|for: ))(\d+)")
    assert len(threshold.findall(files[RULES])) == 2 * 4

    def times(factor: float) -> Mapping[str, str]:
        changed = threshold.sub(lambda found: f"{found[1]}{int(int(found[2]) * factor)}", files[RULES])
        return {**files, RULES: changed}

    for alerts in failing(tmp_path, {"halved": times(0.5), "tenfold": times(10)}).values():
        assert alerts == {"Crashed", "Missed", "NeverReported", "Slow"}


@needs_promtool
def test_the_tests_catch_a_rule_that_looks_at_anything_but_the_newest_run_of_its_environment(
    files: Mapping[str, str], tmp_path: Path
) -> None:
    # The other job's rules would only be evaluated along.
    alone = render([made("reminders", "*/15 * * * *")], SPEC, ENVIRONMENT)
    tests = "safedelete-reminders.tests.yml"
    mine = {RULES: alone[RULES], tests: files[tests]}
    changes = {
        # pattern, what stands for it, the alerts that must notice
        "any-environment": (r',environment="(?:[^"\\]|\\.)*"', "", {"Failed", "NeverReported", "Slow"}),
        "any-job": (r'job_name="reminders",', "", {"NeverReported"}),
        "any-host": (r" and ignoring .*? == scalar\(max\(.*?\)\)", "", {"Failed", "Slow"}),
        "each-host": (r"max by \(job_name, environment\)", "", ALERTS - {"NeverReported"}),
        "oldest-host": (r"max by", "min by", {"Failed", "Missed"}),
        "any-time": (r" <= time\(\) \+ 300", "", {"Failed", "Missed", "NeverReported"}),
        "forgets": (r"last_over_time\((.*?)\[\d+s\]\)", r"\1", {"Missed"}),
        "shows-shorter": (r"\b3600s", "1800s", {"Crashed"}),
        "shows-longer": (r"\b3600s", "7200s", {"Crashed"}),
        "first-crash-alone": (r"changes\(.*?\) > 0 or ", "", {"Crashed"}),
        "later-crashes-alone": (r" or safedelete_last_crash.*? unless .*? offset 3600s\)", "", {"Crashed"}),
        "by-the-hosts-clock": (r"expr: .*changes.*", CRASHED_BY_ITS_OWN_WORD, {"Crashed"}),
        "no-interruption": (r"failed\|interrupted", "failed", {"Failed"}),
        "no-failure": (r"failed\|interrupted", "interrupted", {"Failed"}),
        "other-end": ('ending="refused"', 'ending="skipped"', {"GuardRefused"}),
    }
    cases = {
        name: {**mine, RULES: re.sub(pattern, other, mine[RULES])}
        for name, (pattern, other, _) in changes.items()
    }
    found = failing(tmp_path, cases)
    for name, (*_, alerts) in changes.items():
        assert found[f"{name}/{tests}"] >= alerts, name


def test_overdue_is_the_longest_gap_the_timeout_and_the_grace() -> None:
    job = made("reminders", "cron(30 2 * * ? *)", tz="Europe/Berlin")
    [missed] = [r for r in rules_of(render([job], SPEC, "x")) if r["alert"] == "SafedeleteMissed"]
    # 47 hours lie between two runs in spring; 5 minutes of timeout, 20 s of grace.
    assert missed["expr"].endswith(f"> {47 * 3600 + 300 + 20}")


def test_every_alert_has_its_labels_and_its_runbook(files: Mapping[str, str]) -> None:
    rules = rules_of(files)
    assert {rule["alert"] for rule in rules} == {f"Safedelete{alert}" for alert in ALERTS}
    for rule in rules:
        assert {("environment", ENVIRONMENT), ("severity", "critical"), ("team", "data")} <= set(
            rule["labels"].items()  # type: ignore[attr-defined]
        )
        assert rule["annotations"]["runbook_url"] == f"https://example.com/{rule['alert']}"  # type: ignore[index]
