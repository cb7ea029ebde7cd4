"""What is rendered for a host passes systemd's own checks, and says nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.conftest import JOBS, TOML, Rendering

SYSTEMD = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")


def rendered(project: Path) -> list[Path]:
    return sorted((project / "deploy").iterdir())


@needs_systemd
def test_systemd_has_nothing_to_say_about_the_units(project: Path, render: Rendering) -> None:
    render("systemd")
    assert SYSTEMD is not None
    units = rendered(project)
    assert [unit.name for unit in units] == [
        "safedelete-alert@.service",
        "safedelete-backup.service",
        "safedelete-backup.timer",
        "safedelete-reminders.service",
        "safedelete-reminders.timer",
    ]
    done = subprocess.run(
        [SYSTEMD, "verify", "--recursive-errors=yes", *map(str, units)],
        capture_output=True,
        text=True,
        check=False,
        cwd=project / "deploy",
    )
    # It ends with 0 after most mistakes; what it prints is what counts.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_systemd
def test_a_mistake_in_a_unit_would_be_noticed(project: Path, render: Rendering) -> None:
    render("systemd")
    assert SYSTEMD is not None
    unit = project / "deploy" / "safedelete-backup.service"
    unit.write_text(unit.read_text().replace("TimeoutStartSec", "TimeoutStartSecs"))
    done = subprocess.run(
        [SYSTEMD, "verify", "--recursive-errors=yes", str(unit)], capture_output=True, text=True, check=False
    )
    assert "TimeoutStartSecs" in done.stderr


@needs_systemd
@pytest.mark.parametrize("name", ["safedelete-backup.service", "safedelete-alert@.service"])
def test_a_job_is_exposed_by_two_of_ten_at_most(project: Path, render: Rendering, name: str) -> None:
    render("systemd")
    assert SYSTEMD is not None
    done = subprocess.run(
        [SYSTEMD, "security", "--offline=true", "--threshold=20", str(project / "deploy" / name)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:]


def test_a_run_ends_before_systemd_ends_it_and_a_skip_is_no_failure(project: Path, render: Rendering) -> None:
    render("systemd")
    lines = (project / "deploy" / "safedelete-backup.service").read_text().splitlines()
    assert "ExecStart=/usr/bin/env /opt/app/bin/safedelete run /opt/app/retention.py backup" in lines
    # Two hours, 20 s of grace, and a minute.
    assert "TimeoutStartSec=7280s" in lines
    assert "TimeoutStopSec=30s" in lines
    assert "SuccessExitStatus=5" in lines
    assert "OnFailure=safedelete-alert@%n.service" in lines


def test_the_same_input_renders_the_same_bytes(project: Path, render: Rendering) -> None:
    render("systemd")
    before = {path.name: path.read_bytes() for path in rendered(project)}
    again = render("systemd", "--out", str(project / "again"))
    assert {path.name: path.read_bytes() for path in (project / "again").iterdir()} == before
    assert "0 of them as they were" in again.out
    assert "5 of them as they were" in render("systemd").out


# --- files


def test_a_file_that_was_not_rendered_is_left_alone_and_so_are_the_others(
    project: Path, render: Rendering
) -> None:
    (project / "deploy").mkdir()
    mine = project / "deploy" / "safedelete-backup.service"
    mine.write_text("[Unit]\n# mine\n")
    said = render("systemd", expect=2).said
    assert str(mine) in said
    assert "--force" in said
    assert rendered(project) == [mine]
    render("systemd", "--force")
    assert "# mine" not in mine.read_text()


def test_check_names_what_differs_what_is_missing_and_what_is_left_over(
    project: Path, render: Rendering
) -> None:
    render("systemd")
    assert render("systemd", "--check").said == ""
    (project / "jobs.py").write_text(JOBS.replace("*/15 ", "*/30 ").replace('"backup"', '"dump"'))
    before = {path: path.read_bytes() for path in rendered(project)}
    ended = render("systemd", "--check", expect=10)
    assert "-OnCalendar=*-*-* *:00,15,30,45:00 UTC" in ended.out
    assert "+OnCalendar=*-*-* *:00,30:00 UTC" in ended.out
    assert "safedelete-dump.timer: is missing" in ended.out
    assert "safedelete-backup.timer: was rendered for a job that is no longer declared" in ended.out
    assert {path: path.read_bytes() for path in rendered(project)} == before


# --- safedelete.toml


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('environment = "production"', ""), "environment is missing."),
        (("[prometheus]", "[prometheus]\nseverity = 'x'"), "prometheus.severity is not a known key."),
        (("/etc/safedelete.env", "etc/safedelete.env"), "systemd.environment_file is 'etc/safedelete.env'"),
        (('alert = ["/usr/bin/logger"]', "alert = []"), "systemd.alert is []"),
        (("[systemd]", "[systemd"), "is not TOML"),
        (("[systemd]", "[other]"), "other is not a known key."),
    ],
)
def test_a_mistake_in_the_settings_is_told_with_file_and_key(
    project: Path, render: Rendering, change: tuple[str, str], said: str
) -> None:
    path = project / "safedelete.toml"
    path.write_text(TOML.replace(*change))
    ended = render("systemd", expect=2)
    assert said in ended.said
    assert str(path) in ended.said
    assert not (project / "deploy").exists()


def test_settings_that_are_not_there_say_what_to_write(project: Path, render: Rendering) -> None:
    (project / "safedelete.toml").unlink()
    assert "Write safedelete.toml beside the job file" in render("systemd", expect=2).said


def test_a_host_without_its_table_says_which(project: Path, render: Rendering) -> None:
    (project / "safedelete.toml").write_text('environment = "x"\n')
    assert "the table [systemd] is missing" in render("systemd", expect=2).said
    render("prometheus")


def test_a_schedule_that_a_timer_cannot_have_writes_nothing(project: Path, render: Rendering) -> None:
    (project / "jobs.py").write_text(JOBS.replace("*/15 * * * *", "rate(7 minutes)"))
    assert "cannot be a systemd timer" in render("systemd", expect=2).said
    assert not (project / "deploy").exists()
