"""Files for Prometheus: the alert rules, and the unit tests that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from safedelete.deploy.alert_tests import tests_of
from safedelete.deploy.alerts import Alarms, seconds
from safedelete.deploy.as_yaml import as_yaml
from safedelete.deploy.jobs import Deployed
from safedelete.deploy.spec import Prometheus

RULES: Final = "safedelete.rules.yml"

_WIDTH: Final = 1000
"""So that an expression stays on its line."""


def render(jobs: Sequence[Deployed], spec: Prometheus, environment: str) -> Mapping[str, str]:
    """Return the rules, and promtool's unit tests of them, by file name."""
    alarms = [Alarms(job, spec, environment) for job in jobs]
    rules = [rule for mine in alarms for rule in mine.rules()]
    files = {RULES: as_yaml({"groups": [{"name": "safedelete", "rules": rules}]}, width=_WIDTH)}
    for mine in alarms:
        # A file a job: one file has one interval, and jobs of minutes and of months share none.
        files[f"safedelete-{mine.job.name}.tests.yml"] = as_yaml(
            {
                "rule_files": [RULES],
                "evaluation_interval": f"{seconds(mine.step)}s",
                "tests": tests_of(mine, [other for other in alarms if other is not mine]),
            },
            width=_WIDTH,
        )
    return files
