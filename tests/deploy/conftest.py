from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from safedelete.declare import Job, job
from safedelete.deploy.jobs import Deployed, deployed
from tests.e2e.world import Ended, run_here

JOBS = """
from datetime import timedelta
from safedelete import job

@job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
def reminders(run):
    pass

@job("backup", schedule="cron(30 1 ? * 2#1 *)", timeout=timedelta(hours=2), tz="Europe/Berlin")
def backup(run):
    pass
"""

TOML = """
environment = "production"

[systemd]
command = ["/usr/bin/env", "/opt/app/bin/safedelete"]
job_file = "/opt/app/retention.py"
environment_file = "/etc/safedelete.env"
alert = ["/usr/bin/logger"]

[prometheus]
labels = { team = "data" }
runbook = "https://example.com/{alert}"
"""


def made(name: str, schedule: str, *, tz: str = "UTC", timeout: timedelta = timedelta(minutes=5)) -> Deployed:
    def nothing(run: object) -> None: ...

    declared = job(name, schedule=schedule, timeout=timeout, tz=tz)(nothing)
    assert isinstance(declared, Job)
    return deployed([declared])[0]


Rendering = Callable[..., Ended]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A job file with its settings."""
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "safedelete.toml").write_text(TOML)
    return tmp_path


@pytest.fixture
def render(project: Path) -> Rendering:
    def run(kind: str, *options: str, expect: int = 0) -> Ended:
        arguments = ["render", kind, str(project / "jobs.py"), "--out", str(project / "deploy"), *options]
        ended = run_here(arguments, {})
        assert ended.code == expect, (ended.code, ended.out, ended.err)
        return ended

    return run
