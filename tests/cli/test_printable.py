"""Whatever is in a ledger or in a key, reading about it is safe: on a terminal, in JSON, and in a page."""

from __future__ import annotations

import ast
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog

import safedelete.cli
from safedelete.cli import logs
from safedelete.cli.common import exit_for
from safedelete.cli.page import page
from safedelete.errors import LedgerError
from tests.cli.runs import nights
from tests.e2e.world import World

EVIL = "meant so\x1b]0;pwn\x07\x9b2J\u202e"
SPELT = "meant so\\u001b]0;pwn\\u0007\\u009b2J\\u202e"
BARE = ("\x1b", "\x07", "\x9b", "\u202e")


def test_an_approvals_reason_cannot_command_the_terminal_of_whoever_reads_it(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    world.cli("run", jobs, expect=3)
    run = world.cli("history", jobs, "--json", expect=0).document[0]["run"]
    world.cli("approve", run, "--reason", EVIL, "--file", jobs, expect=0)
    told = [world.cli("show", run, "--file", jobs, expect=0).out]
    told.append(world.cli("execute", run, "--file", jobs, expect=0).out)
    for said in told:
        assert SPELT in said
        assert not [c for c in BARE if c in said]
    shown = world.cli("show", run, "--file", jobs, "--json", expect=0)
    assert not [c for c in BARE if c in shown.out]
    assert shown.document["approval"]["reason"] == EVIL


def test_an_error_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    exit_for(LedgerError(f"It said {EVIL}", hint=EVIL))
    said = capsys.readouterr().err
    assert said.count(SPELT) == 2
    assert not [c for c in BARE if c in said]


def test_a_log_line_on_a_terminal_cannot_command_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    before = structlog.get_config()
    try:
        logs.configure(verbose=True)
        structlog.get_logger("x").warning(f"gone {EVIL}", why=EVIL)
    finally:
        structlog.configure(**before)
    said = capsys.readouterr().err
    assert said.count("\\u202e") == 2
    assert "\x1b]0" not in said
    assert "\x07" not in said


def test_what_is_printed_for_a_database_is_left_as_it_is(world: World) -> None:
    printed = world.cli("init", world.jobs(), "--sql", expect=0).out
    assert "CREATE TABLE safedelete_run (\n\trun " in printed
    assert "\\u" not in printed


def test_a_page_has_no_control_character() -> None:
    said = page([(f"evil\x00{EVIL}", nights(3, job=f"evil{EVIL}"))], datetime(2026, 8, 1, tzinfo=UTC))
    assert SPELT in said
    assert not [c for c in (*BARE, "\x00") if c in said]


def test_every_verb_prints_by_the_one_function_that_is_safe() -> None:
    """``typer.echo`` and ``print`` hand on whatever they are given."""
    found = {}
    for file in Path(safedelete.cli.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text())
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        found[file.name] = [call for call in calls if call in ("typer.echo", "print", "click.echo")]
    assert {name: calls for name, calls in found.items() if calls} == {"common.py": ["typer.echo"]}
