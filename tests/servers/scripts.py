"""Programs that the starters' tests run in a process of their own, as another user or to be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import safedelete
from safedelete.testing.servers.machine import Account, reachable

SOURCE = Path(safedelete.__file__).parent.parent
SITE = Path(pytest.__file__).parent.parent


def python(script: str, *, command: tuple[str, ...] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, with warnings as errors."""
    environment = {
        name: os.environ[name]
        for name in ("HOME", "COVERAGE_PROCESS_START", "COVERAGE_FILE")
        if name in os.environ
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [*command, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
        env=environment | {"PATH": path, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(SITE)])},
    )


def python_for(account: Account) -> str | None:
    """Return an interpreter of this version that another account can run, if there is one."""
    for candidate in (
        Path(sys.executable).resolve(),
        Path("/usr/bin/python3"),
        Path("/usr/local/bin/python3"),
    ):
        if not candidate.exists() or not reachable(candidate.resolve(), account):
            continue
        version = subprocess.run(
            [candidate, "-c", "import sys; print(sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        if version.stdout.strip() == str(sys.version_info[:2]):
            return str(candidate)
    return None
