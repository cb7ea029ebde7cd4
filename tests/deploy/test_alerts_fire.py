"""A real Prometheus, the rendered rules, and the file that a real run leaves: silence and failure raise an alarm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from safedelete.core.event import Ending
from safedelete.errors import ExitCode
from safedelete.metrics.prometheus import TextfileSink
from tests.backends import started
from tests.deploy.conftest import Rendering
from tests.deploy.prometheus import Prometheus, collector
from tests.e2e.world import run_here
from tests.metrics.conftest import event

FAILING = """
from datetime import timedelta
from safedelete import job

@job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
def reminders(run):
    run.failed(1)

@job("backup", schedule="rate(1 hour)", timeout=timedelta(minutes=5))
def backup(run):
    pass

@job("digest", schedule="rate(1 hour)", timeout=timedelta(minutes=5))
def digest(run):
    pass
"""


def tell(sink: TextfileSink, how: Ending, job: str, at: datetime, environment: str = "production") -> None:
    sink.send(event(how, ExitCode.DONE, job=job, environment=environment, started_at=at, ended_at=at))


def test_a_failed_and_a_missed_run_each_fire_and_a_healthy_job_does_not(
    project: Path, render: Rendering, tmp_path: Path
) -> None:
    (project / "jobs.py").write_text(FAILING)
    render("prometheus")
    folder = tmp_path / "textfiles"
    folder.mkdir()
    env = {
        "SAFEDELETE_DATABASE_URL": f"sqlite:///{tmp_path}/app.db",
        "SAFEDELETE_ENVIRONMENT": "production",
        "SAFEDELETE_METRICS": f"textfile:{folder}",
    }
    jobs = str(project / "jobs.py")
    assert run_here(["init", jobs], env).code == 0
    assert run_here(["run", jobs, "reminders"], env).code == 7
    assert run_here(["run", jobs, "digest"], env).code == 0
    # A failure stays one while later starts find the job paused, and so does a crash whatever the next run does.
    assert run_here(["pause", jobs, "reminders", "--reason", "INC-1"], env).code == 0
    assert run_here(["run", jobs, "reminders"], env).code == 5
    now = datetime.now(UTC)
    send = partial(tell, TextfileSink(folder))
    send(Ending.CRASHED, "digest", now)
    assert run_here(["run", jobs, "digest"], env).code == 0
    # Two hours ago the backup ran for the last time; another environment's, a minute ago.
    send(Ending.SUCCEEDED, "backup", now - timedelta(hours=2))
    send(Ending.SUCCEEDED, "backup", now - timedelta(minutes=1), environment="staging")
    send(Ending.SUCCEEDED, "reminders", now + timedelta(minutes=1), environment="staging")
    with (
        collector(folder) as target,
        started(lambda: Prometheus(project / "deploy" / "safedelete.rules.yml", target)) as prometheus,
    ):
        there = prometheus.wait_for(
            ("SafedeleteFailed", "reminders"), ("SafedeleteCrashed", "digest"), ("SafedeleteMissed", "backup")
        )
    assert {alert for alert, state in there.items() if state == "firing"} == {
        ("SafedeleteFailed", "reminders"),
        ("SafedeleteCrashed", "digest"),
        ("SafedeleteMissed", "backup"),
    }
    # It has never succeeded; whether that is too long shows later.
    assert there.get(("SafedeleteNeverReported", "reminders")) == "pending"
