"""The command line is quick to say what it can do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from safedelete.cli.app import app
from tests.e2e.world import ROOT

HEAVY = ("sqlalchemy", "boto3", "botocore", "rich", "structlog", "tabulate", "safedelete.wiring")

IMPORTED = """
import sys
from safedelete.cli import main
try:
    main({arguments!r})
except SystemExit as ended:
    assert not ended.code, ended.code
print(",".join(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["plan", "--help"], ["version"]])
def test_help_imports_neither_database_nor_store(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(arguments=arguments, heavy=HEAVY)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip()
    assert done.stderr.strip() == ""


def test_help_answers_in_under_three_tenths_of_a_second() -> None:
    spent: list[float] = []
    # The first may compile the modules; processor time, as another process may have the processor, and the least of many
    # tries, as it may have the caches, too.
    while len(spent) < 25 and min(spent, default=1.0) >= 0.3:
        child = subprocess.Popen(
            [sys.executable, "-m", "safedelete", "--help"], env=environment(), stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        spent.append(usage.ru_utime + usage.ru_stime)
    assert min(spent) < 0.3, spent


def test_every_verb_explains_itself() -> None:
    verbs = [
        command.name or (command.callback.__name__ if command.callback else "")
        for command in app.registered_commands
    ]
    assert {"init", "check", "plan", "run", "execute", "approve", "history", "show"} <= set(verbs)
    done = subprocess.run(
        [sys.executable, "-m", "safedelete", "--help"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    for verb in verbs:
        assert f"  {verb} " in done.stdout
