"""Files for Prometheus: the alert rules, and the unit tests that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import yaml

from safedelete.deploy.alert_tests import tests_of
from safedelete.deploy.alerts import Alarms, seconds
from safedelete.deploy.files import MARK
from safedelete.deploy.jobs import Deployed
from safedelete.deploy.spec import Prometheus

RULES: Final = "safedelete.rules.yml"


def render(jobs: Sequence[Deployed], spec: Prometheus, environment: str) -> Mapping[str, str]:
    """Return the rules, and promtool's unit tests of them, by file name."""
    alarms = [Alarms(job, spec, environment) for job in jobs]
    rules = [rule for mine in alarms for rule in mine.rules()]
    files = {RULES: _yaml({"groups": [{"name": "safedelete", "rules": rules}]})}
    for mine in alarms:
        # A file a job: one file has one interval, and jobs of minutes and of months share none.
        files[f"safedelete-{mine.job.name}.tests.yml"] = _yaml(
            {
                "rule_files": [RULES],
                "evaluation_interval": f"{seconds(mine.step)}s",
                "tests": tests_of(mine, [other for other in alarms if other is not mine]),
            }
        )
    return files


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: object) -> bool:
        """Write out what comes twice: a reader looks for it at its place."""
        return True


def _yaml(document: object) -> str:
    # Wide, so that an expression stays on its line.
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True)
    return f"# {MARK} from the job file and safedelete.toml; change those.\n{text}"
