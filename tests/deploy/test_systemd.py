"""What is rendered for a host passes systemd's own checks, and says nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from safedelete.deploy.spec import read
from safedelete.deploy.systemd import HARDENING
from safedelete.deploy.systemd import render as systemd_units
from safedelete.deploy.systemd_spec import Systemd
from safedelete.errors import ConfigError
from tests.deploy.conftest import JOBS, TOML, Rendering, made

SYSTEMD = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze here")


def systemd(**more: object) -> Systemd:
    return Systemd.model_validate({**tomllib.loads(TOML)["systemd"], **more})


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
def test_a_job_and_its_alert_are_exposed_by_two_of_ten_at_most(project: Path, render: Rendering) -> None:
    render("systemd")
    assert SYSTEMD is not None
    for name in ("safedelete-backup.service", "safedelete-alert@.service"):
        done = subprocess.run(
            [SYSTEMD, "security", "--offline=true", "--threshold=20", str(project / "deploy" / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-300:]


VALUES = {
    "QUOTES": """say "no" or 'never'""",
    "BACKSLASHES": "C:\\temp\\new \\\\ \\x41 \\",
    "SPECIFIERS": "100% of %n %% %h",
    "DOLLARS": "$HOME ${PATH} $$",
    "LINES": "one\n[Service]\nExecStart=/bin/false\n\ttabbed\n",
    "BLANKS": "  around  ",
    "NOTHING": "",
    "COMMENT": "# ; no comment",
    "OTHERS": "é—日本 a=b;c",
}


@needs_systemd
def test_every_value_arrives_in_the_environment_as_it_was_written(tmp_path: Path) -> None:
    odd = 'pro"duction\\ %n $x'
    spec = systemd(variables=VALUES)
    for name, text in systemd_units([made("backup", "rate(1 hour)")], spec, odd).items():
        (tmp_path / name).write_text(text)
    assert SYSTEMD is not None
    done = subprocess.run(
        [SYSTEMD, "verify", str(tmp_path / "safedelete-backup.service")],
        capture_output=True,
        text=True,
        check=True,
        # It then prints what it has read.
        env={"SYSTEMD_LOG_LEVEL": "debug", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    for name, value in {**VALUES, "SAFEDELETE_ENVIRONMENT": odd}.items():
        assert f"\t\tEnvironment: {name}={value}\n" in done.stdout, name
    assert done.stdout.count("\tEnvironment: ") == len(VALUES) + 1


def test_a_schedule_of_two_lines_stays_on_one(tmp_path: Path) -> None:
    timer = systemd_units([made("backup", "0 4\n* * *")], systemd(), "x")["safedelete-backup.timer"]
    assert "Description=When safedelete backup runs (0 4 * * *)\n" in timer


def test_the_alert_has_the_same_hardening_and_its_own_secrets_only() -> None:
    jobs = [made("backup", "rate(1 hour)")]
    units = systemd_units(jobs, systemd(variables={"A": "b"}), "x")
    own = systemd_units(jobs, systemd(alert_environment_file="/etc/alert.env"), "x")
    service, alert = units["safedelete-backup.service"], units["safedelete-alert@.service"]
    assert service.endswith(HARDENING)
    assert alert.endswith(HARDENING)
    assert "EnvironmentFile=/etc/safedelete.env\n" in service
    assert "Environment" not in alert
    assert "EnvironmentFile=/etc/alert.env\n" in own["safedelete-alert@.service"]


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
    assert "safedelete-backup.timer: is left over" in ended.out
    assert {path: path.read_bytes() for path in rendered(project)} == before


def test_what_is_left_over_is_named_with_what_takes_it_away_which_rendering_does_not(
    project: Path, render: Rendering
) -> None:
    render("systemd")
    (project / "jobs.py").write_text(JOBS.replace('"backup"', '"dump"'))
    left = [project / "deploy" / f"safedelete-backup.{kind}" for kind in ("service", "timer")]
    command = f"git rm {left[0]} {left[1]}"
    first = render("systemd", "--check", expect=10).said
    assert "safedelete render systemd" in first
    assert command in first
    # Rendered as told, all that is left to do is said, by both.
    assert command in render("systemd").out
    again = render("systemd", "--check", expect=10).said
    assert command in again
    assert "timer is disabled" in again
    assert "safedelete render" not in again
    for path in left:
        path.unlink()
    assert "Left over" not in render("systemd").out
    render("systemd", "--check")


def test_what_somebody_else_wrote_is_never_called_left_over(project: Path, render: Rendering) -> None:
    render("systemd")
    (project / "deploy" / "theirs.timer").write_text("[Timer]\n")
    assert "theirs" not in render("systemd").out
    render("systemd", "--check")


# --- safedelete.toml


TEXTFILE = 'variables = { SAFEDELETE_METRICS = "log,textfile:/srv/prom/all.prom" }'


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('environment = "production"', ""), "environment is missing."),
        (("[prometheus]", "[prometheus]\nseverity = 'x'"), "prometheus.severity is not a known key."),
        (("/etc/safedelete.env", "etc/safedelete.env"), "systemd.environment_file is 'etc/safedelete.env'"),
        (('alert = ["/usr/bin/logger"]', "alert = []"), "systemd.alert is []"),
        (("[systemd]", "[systemd"), "is not TOML"),
        (("[systemd]", "[other]"), "other is not a known key."),
        (('"production"', r'"pro\nduction"'), r"environment is 'pro\nduction'"),
        (("/opt/app/retention.py", "/opt/$APP/retention.py"), "systemd.job_file is '/opt/$APP/retention.py'"),
        (("/etc/safedelete.env", "/etc/*.env"), "systemd.environment_file is '/etc/*.env'"),
        (("[systemd]", '[systemd]\nvariables = { A = "\\u001b[2J" }'), "systemd.variables.A is "),
        (("[systemd]", '[systemd]\nvariables = { "A B" = "" }'), "systemd.variables.A B.[key] is 'A B'"),
        (
            ("[systemd]", '[systemd]\nvariables = { SAFEDELETE_ENVIRONMENT = "x" }'),
            "systemd: SAFEDELETE_ENVIRONMENT is set by the rendering",
        ),
        (
            ("[systemd]", f"[systemd]\nuser = 'jobs'\n{TEXTFILE}"),
            "systemd: variables send metrics to textfile:/srv/prom/all.prom, and /srv/prom is not below any path of writable",
        ),
        (
            ("[systemd]", f"[systemd]\nwritable = ['/srv']\n{TEXTFILE}"),
            "make a user that /srv/prom belongs to",
        ),
        (("team =", "team-name ="), "prometheus.labels.team-name.[key] is 'team-name'"),
        (("team =", "__name__ ="), "prometheus.labels.__name__.[key] is '__name__'"),
        (
            ("team =", "environment ="),
            "prometheus.labels.environment.[key] is 'environment': every alert has",
        ),
    ],
)
def test_a_mistake_in_the_settings_is_told_with_file_and_key(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "safedelete.toml"
    path.write_text(TOML.replace(*change))
    with pytest.raises(ConfigError, match=re.escape(str(path))) as error:
        read(path)
    assert said in str(error.value)


def test_a_mistake_in_the_settings_writes_nothing(project: Path, render: Rendering) -> None:
    path = project / "safedelete.toml"
    path.write_text(TOML.replace("[systemd]", "[other]"))
    assert f"{path}: other is not a known key." in render("systemd", expect=2).said
    assert not (project / "deploy").exists()


def test_settings_that_are_not_there_say_what_to_write(project: Path, render: Rendering) -> None:
    (project / "safedelete.toml").unlink()
    assert "Write safedelete.toml beside the job file" in render("systemd", expect=2).said


def test_a_text_file_where_the_job_may_write_is_rendered() -> None:
    variables = {"SAFEDELETE_METRICS": "log,textfile:/srv/prom"}
    spec = systemd(user="jobs", writable=["/srv"], variables=variables)
    service = systemd_units([made("backup", "rate(1 hour)")], spec, "x")["safedelete-backup.service"]
    assert "User=jobs\n" in service
    assert "ReadWritePaths=/srv\n" in service
    assert 'Environment="SAFEDELETE_METRICS=log,textfile:/srv/prom"\n' in service


def test_a_host_without_its_table_says_which(project: Path, render: Rendering) -> None:
    (project / "safedelete.toml").write_text('environment = "x"\n')
    assert "the table [systemd] is missing" in render("systemd", expect=2).said
    render("prometheus")


def test_a_schedule_that_a_timer_cannot_have_writes_nothing(project: Path, render: Rendering) -> None:
    (project / "jobs.py").write_text(JOBS.replace("*/15 * * * *", "rate(7 minutes)"))
    assert "cannot be a systemd timer" in render("systemd", expect=2).said
    assert not (project / "deploy").exists()


@pytest.mark.parametrize(
    "change",
    [
        ("/opt/app/bin/safedelete", "/home/app/venv/bin/safedelete"),
        ("/opt/app/retention.py", "/root/retention.py"),
        ("/usr/bin/logger", "/home/ops/page"),
    ],
)
def test_a_path_that_the_units_hide_is_refused(
    project: Path, render: Rendering, change: tuple[str, str]
) -> None:
    (project / "safedelete.toml").write_text(TOML.replace(*change))
    assert f"{change[1]} is in a home directory" in render("systemd", expect=2).said
