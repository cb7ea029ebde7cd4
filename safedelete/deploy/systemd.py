"""Units for a host: a service and a timer for each job, and one that tells of failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from safedelete.deploy.calendar import on_calendar
from safedelete.deploy.files import MARK
from safedelete.deploy.jobs import Deployed
from safedelete.deploy.systemd_spec import Systemd
from safedelete.errors import ConfigError, ExitCode

MARGIN: Final = timedelta(seconds=60)
"""What a run may take beyond its timeout and grace, to start and to write down how it ended. systemd sets a oneshot no
limit of its own, and a run that hangs keeps its timer from ever starting the next."""

NAMES_END: Final = 255
"""Longest name of a unit, its suffix and instance included."""

HARDENING: Final = """\
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
PrivateUsers=yes
ProtectSystem=strict
ProtectHome=yes
ProtectProc=invisible
ProcSubset=pid
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
UMask=0077
CapabilityBoundingSet=
AmbientCapabilities=
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
"""


def render(jobs: Sequence[Deployed], spec: Systemd, environment: str) -> Mapping[str, str]:
    """Return the units by file name.

    Raises:
        ConfigError: A schedule that systemd cannot express, or a name it would refuse.
    """
    files = {f"{spec.prefix}-alert@.service": _alert(spec)}
    for job in jobs:
        unit = f"{spec.prefix}-{job.name}"
        # The alert's instance is the service's whole name.
        if len(f"{spec.prefix}-alert@{unit}.service.service") > NAMES_END:
            raise ConfigError(
                f"{job.name}: the unit's name {unit} is too long.", hint="Shorten [systemd] prefix."
            )
        files[f"{unit}.service"] = _service(job, spec, unit, environment)
        files[f"{unit}.timer"] = _timer(job, unit)
    return files


def _service(job: Deployed, spec: Systemd, unit: str, environment: str) -> str:
    user = f"User={spec.user}\n" if spec.user else "DynamicUser=yes\n"
    writable = f"ReadWritePaths={' '.join(spec.writable)}\n" if spec.writable else ""
    return f"""\
# {MARK} from the job file and safedelete.toml; change those.
[Unit]
Description=safedelete {job.name}
Wants=network-online.target
After=network-online.target
OnFailure={spec.prefix}-alert@%n.service

[Service]
Type=oneshot
ExecStart={" ".join(spec.command)} run {spec.job_file} {job.name}
{_environment({"SAFEDELETE_ENVIRONMENT": environment, **spec.variables})}EnvironmentFile={spec.environment_file}
# Skipped, because another run holds the lock or the job is paused: not a failure.
SuccessExitStatus={int(ExitCode.SKIPPED)}
# Behind the job's own timeout and grace, for a process that no longer keeps them.
TimeoutStartSec={_seconds(job.timeout + job.grace + MARGIN)}
TimeoutStopSec={_seconds(job.grace + timedelta(seconds=10))}
# The run ends its children itself, within its grace; what is left is killed.
KillMode=mixed
{user}StateDirectory={unit}
WorkingDirectory=%S/{unit}
{writable}{HARDENING}"""


def _timer(job: Deployed, unit: str) -> str:
    times = "".join(f"OnCalendar={text}\n" for text in on_calendar(job.name, job.schedule))
    return f"""\
# {MARK} from the job file and safedelete.toml; change those.
[Unit]
Description=When safedelete {job.name} runs ({" ".join(job.schedule.text.split()).replace("%", "%%")})

[Timer]
Unit={unit}.service
{times}AccuracySec=1s
# A purge that was missed does not run at the next boot, in the middle of the day; `status` and the alerts tell of it.
Persistent=false

[Install]
WantedBy=timers.target
"""


def _alert(spec: Systemd) -> str:
    # Not the jobs' file: whoever is told that a purge failed need not be able to run it.
    file = (
        f"EnvironmentFile={spec.alert_environment_file}\n" if spec.alert_environment_file is not None else ""
    )
    return f"""\
# {MARK} from the job file and safedelete.toml; change those.
[Unit]
Description=Tell of the failure of %i

[Service]
Type=oneshot
ExecStart={" ".join(spec.alert)} %i
{file}TimeoutStartSec=60s
DynamicUser=yes
{HARDENING}"""


def _seconds(span: timedelta) -> str:
    # A bare M would be months.
    return f"{-(-span // timedelta(seconds=1))}s"


def _environment(variables: Mapping[str, str]) -> str:
    """Return the lines that set variables: quoted as a whole, escaped as in C, and ``%`` doubled (systemd.syntax(7))."""
    return "".join(f'Environment="{name}={value.translate(_ESCAPED)}"\n' for name, value in variables.items())


_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"})
