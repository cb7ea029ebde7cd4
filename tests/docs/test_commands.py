"""Every command that the pages show is one that can be typed: verb, options, extras and systemd's own words."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest
import typer.main

from safedelete.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
}
GROUP = typer.main.get_command(app)
VERBS: dict[str, click.Command] = dict(GROUP.commands)  # type: ignore[attr-defined]
VERB = "|".join(VERBS)


def lines(page: str) -> list[str]:
    """Return the lines of a page's blocks, those that go on joined."""
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    return [line.strip() for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]


def typed(page: str) -> list[list[str]]:
    """Return the commands of a page: those of its blocks, and those that are lists of a task's override."""
    found = []
    for line in lines(page):
        at = re.search(rf"(?:^|[\s;/])safedelete (?:\$\w+ +)?((?:{VERB})\b.*)", line)
        if at is not None and not line.startswith(("from ", "import ")):
            words = shlex.shlex(at[1], posix=True, punctuation_chars=";>|")
            words.whitespace_split = True
            command = list(words)
            ends = [place for place, word in enumerate(command) if word and set(word) <= set(";>|")]
            found.append(command[: min(ends, default=len(command))])
    overridden = PAGES[page].replace('\\"', '"')
    found += [json.loads(one) for one in re.findall(rf'\["(?:{VERB})"[^\]]*\]', overridden)]
    return found


COMMANDS = [(page, command) for page in sorted(PAGES) for command in typed(page)]


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{p}: {' '.join(c)}" for p, c in COMMANDS])
def test_a_command_of_the_pages_is_taken_as_it_is_written(page: str, command: list[str]) -> None:
    verb, *rest = command
    VERBS[verb].make_context(verb, rest)


def test_commands_are_found_in_every_form_that_the_pages_write_them_in() -> None:
    of = {page.rpartition("/")[2]: [command[0] for _, command in COMMANDS if _ == page] for page in PAGES}
    assert of["systemd.md"].count("approve") == 1
    assert {"check", "drift", "run"} <= set(of["pipeline.md"])
    assert {"approve", "execute", "init", "run"} <= set(of["ecs.md"])
    assert of["watch-from-another-host.md"] == ["status", "status"]


# --- extras

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
NEEDS = {
    "postgresql+psycopg": "postgres",
    "textfile:": "prometheus",
    "pushgateway:": "prometheus",
    "render cloudformation": "deploy",
    "render prometheus": "deploy",
    "Apprise address": "apprise",
}
"""What a page may tell to do, and the extra that it takes."""


@pytest.mark.parametrize("page", sorted(PAGES))
def test_every_extra_that_is_named_exists_and_a_page_that_installs_names_each_it_needs(page: str) -> None:
    text = PAGES[page]
    named = {
        extra
        for listed in re.findall(r"(?:safedelete(?:-purge)?|\.)\[([a-z]+(?:,[a-z]+)*)\]", text)
        for extra in listed.split(",")
    }
    assert named <= set(EXTRAS)
    if "pip install" in text and "/how-to/" in page:
        told = named | set(re.findall(r"`([a-z]+)`", text)) | set(re.findall(r"the extra ([a-z]+)", text))
        assert {extra for words, extra in NEEDS.items() if words in text} <= told


# --- systemd-run


SYSTEMD_RUN = shutil.which("systemd-run")
TRANSIENT = [
    (page, line) for page in sorted(PAGES) for line in lines(page) if line.startswith("systemd-run ")
]


@pytest.mark.skipif(SYSTEMD_RUN is None, reason="there is no systemd-run here")
@pytest.mark.parametrize(("page", "line"), TRANSIENT)
def test_systemd_knows_each_option_and_each_setting_of_a_transient_unit(
    page: str, line: str, tmp_path: Path
) -> None:
    assert SYSTEMD_RUN is not None
    told = subprocess.run([SYSTEMD_RUN, "--help"], capture_output=True, text=True, check=True).stdout
    _, *words = shlex.split(line)
    settings = []
    while words[0].startswith("-"):
        option = words.pop(0)
        assert re.search(rf"(?:^|\s){re.escape(option)}\b", told, flags=re.MULTILINE), option
        if option in ("-p", "-E"):
            settings.append(("Environment=" if option == "-E" else "") + words.pop(0))
    # What is run is looked for when the unit is started; here it need not be.
    program, *rest = words
    assert program.startswith("/"), "no shell, and no PATH of one's own"
    command = shlex.join(["/usr/bin/env", *rest])
    unit = tmp_path / "transient.service"
    unit.write_text("\n".join(["[Service]", f"ExecStart={command}", *settings, ""]))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
