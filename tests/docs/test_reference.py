"""The reference says what the code does: every verb, option, code, finding, state and variable, and nothing that is not there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import click
import pytest
import typer.main

import safedelete
from safedelete.cli.app import app
from safedelete.core import fixed, look, volume
from safedelete.core.decision import Measure
from safedelete.core.event import (
    METRICS,
    SERIES_CRASHED_AT,
    SERIES_ENDED_AT,
    SERIES_SKIPPED_AT,
    SERIES_STARTED_AT,
    SERIES_SUCCEEDED_AT,
    STARTED,
)
from safedelete.core.findings import FINDINGS
from safedelete.core.lint import RULES
from safedelete.core.outcome import Outcome
from safedelete.core.run import RunState
from safedelete.core.volume import Usual
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.spec import Grants, Prometheus, Spec, Systemd
from safedelete.errors import ExitCode
from safedelete.metrics.parse import KNOWN
from safedelete.wiring import Settings
from tests.cli.runs import nights

DOCS = Path(__file__).resolve().parents[2] / "docs"
EVERY = {**FINDINGS, **RULES}
GROUP = typer.main.get_command(app)


def page(name: str) -> str:
    return (DOCS / name).read_text()


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {title.strip(): body for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def verbs() -> dict[str, click.Command]:
    assert isinstance(GROUP, click.Group) or hasattr(GROUP, "commands")
    return dict(GROUP.commands)  # type: ignore[attr-defined]


def options_of(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        if type(parameter).__name__ != "TyperArgument" and parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name != "--help"
    }


def test_every_verb_is_documented_and_every_documented_verb_exists() -> None:
    assert set(sections(page("reference/cli.md"))) == set(verbs())


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_every_option_of_a_verb_is_documented_and_no_other(verb: str) -> None:
    body = sections(page("reference/cli.md"))[verb]
    table = "\n".join(line for line in body.splitlines() if line.startswith("|"))
    documented = set(re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", table))
    assert documented == options_of(verbs()[verb])


def test_the_global_options_are_documented() -> None:
    head = page("reference/cli.md").split("\n## ")[0]
    assert options_of(GROUP) <= set(re.findall(r"(--?[a-z][a-z-]*)", head))


def test_every_exit_code_is_documented_under_its_name() -> None:
    rows = re.findall(r"^\| (\d+) \| ([a-z ]+) \|", page("reference/exit-codes.md"), flags=re.MULTILINE)
    assert {int(code): name for code, name in rows} == {
        int(code): code.name.lower().replace("_", " ") for code in ExitCode
    }


def test_every_finding_has_its_section_with_the_words_of_the_table() -> None:
    found = sections(page("reference/findings.md"))
    titles = {f"{code}: {kind.title}" for code, kind in EVERY.items()}
    assert titles == set(found)
    for code, kind in EVERY.items():
        body = " ".join(found[f"{code}: {kind.title}"].split())
        assert kind.meaning in body, code
        assert kind.action in body, code
        assert f"*{kind.severity}" in body, code
        assert ("cannot be approved" in body) == (
            not kind.acceptable or "cannot be approved" in kind.action
        ), code


def rules() -> set[str]:
    """Every word for a rule that sets a limit, wherever the core writes one: beside its number, or as ``rule``."""
    found = {measure.rule for measure in (Measure(target="", measure="", tonight=None),)} | {Usual().rule}
    for source in (look, volume, fixed.ceilings):
        for node in ast.walk(ast.parse(inspect.getsource(source))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Tuple) and len(node.elts) == 2:
                # Constants alone: pairs of words are other things.
                values = [] if isinstance(node.elts[0], ast.Constant) else [node.elts[1]]
            elif isinstance(node, ast.Call):
                values = [keyword.value for keyword in node.keywords if keyword.arg == "rule"]
                if isinstance(node.func, ast.Name) and node.func.id == "_Bound":
                    values.append(node.args[1])
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "rule":
                chosen = node.value
                values = [chosen.body, chosen.orelse] if isinstance(chosen, ast.IfExp) else [chosen]
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.add(value.value)
                elif isinstance(value, ast.JoinedStr) and isinstance(value.values[0], ast.Constant):
                    found.add(f"{value.values[0].value}…")
    return found - {""}


def test_every_rule_that_sets_a_limit_is_explained_and_no_other() -> None:
    section = page("how-to/read-the-chart.md").partition("## What set the limit")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert set(documented) == rules()


def test_the_rules_of_real_nights_are_among_those_explained() -> None:
    spoken = {m.rule for r in nights(90, surge_at=70) if r.decision for m in r.decision.measures}
    assert len(spoken) >= 2
    for rule in spoken:
        head, comma, tail = rule.partition(", ")
        assert {f"{head}, …", tail} <= rules() if comma else rule in rules()


def test_every_state_and_outcome_is_documented() -> None:
    text = page("reference/states.md")
    first, second = text.split("## States of a run")
    assert set(re.findall(r"^\| `([a-z]+)` \|", first, flags=re.MULTILINE)) == {o.value for o in Outcome}
    assert set(re.findall(r"^\| `([a-z]+)` \|", second, flags=re.MULTILINE)) == {s.value for s in RunState}


def test_every_variable_that_is_read_is_documented() -> None:
    read = {f"SAFEDELETE_{name.upper()}" for name in Settings.model_fields} | {"SAFEDELETE_DEBUG"}
    documented = set(re.findall(r"`(SAFEDELETE_[A-Z_]+)`", page("reference/environment.md")))
    assert documented == read


def test_every_metric_is_documented_under_both_its_names() -> None:
    text = page("reference/metrics.md")
    rows = [line.split("|") for line in text.partition("## Names")[2].splitlines() if line.startswith("|")][
        2:
    ]
    names = {
        name for row in rows for name in re.findall(r"`(\w+)`", row[1]) if not row[1].strip().startswith("(")
    }
    series = {name for row in rows for name in re.findall(r"`(safedelete_\w+)", row[2])}
    assert names == {metric.name for metric in METRICS}
    assert series == {metric.series for metric in METRICS if metric is not STARTED} | {
        SERIES_STARTED_AT,
        SERIES_ENDED_AT,
        SERIES_SUCCEEDED_AT,
        SERIES_SKIPPED_AT,
        SERIES_CRASHED_AT,
    }


def test_every_sink_is_documented() -> None:
    table = page("reference/metrics.md").partition("## Sinks")[2].partition("## ")[0]
    rows = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([^`]+)`", rows)) == set(KNOWN.replace(" or ", ", ").split(", "))


def test_every_key_of_the_settings_is_documented() -> None:
    keys = set()
    for name in Spec.model_fields:
        part = {"systemd": Systemd, "prometheus": Prometheus, "ecs": Ecs, "grants": Grants}.get(name)
        keys |= {name} if part is None else {f"{name}.{key}" for key in part.model_fields}
    documented = re.findall(r"^\| `([a-z_.]+)` \|", page("reference/safedelete-toml.md"), flags=re.MULTILINE)
    assert set(documented) == keys


def test_every_code_in_the_source_is_in_a_table_and_every_code_of_the_tables_is_used() -> None:
    import safedelete

    source = Path(safedelete.__file__).parent
    used = {code for file in source.rglob("*.py") for code in re.findall(r'"(SD\d{3})"', file.read_text())}
    assert used == set(EVERY)


def test_the_glossary_is_in_alphabetical_order() -> None:
    words = [
        w.split(",")[0].lower()
        for w in re.findall(r"^\*\*([^*]+)\*\*", page("glossary.md"), flags=re.MULTILINE)
    ]
    assert words == sorted(words)


def test_every_verb_that_is_a_function_is_listed_for_hosts() -> None:
    sentence = (
        page("how-to/inside-a-host.md").partition("Every verb is a function:")[2].partition(". Each")[0]
    )
    listed = {name.removeprefix("safedelete.") for name in re.findall(r"`([a-z_.]+)`", sentence)}
    assert listed == {name for name, home in safedelete._HOME.items() if home == "safedelete.wiring"}


def test_every_verb_of_the_command_line_that_reports_is_a_function() -> None:
    # These are about files of a deployment, not about runs.
    apart = {"version", "render", "drift"}
    verbs = {
        command.name or (command.callback.__name__ if command.callback else "")
        for command in app.registered_commands
    }
    assert {verb.replace("-", "_") for verb in verbs - apart} <= set(safedelete.__all__)
