"""Whatever command a text names can be typed as it is printed: the command line's own parser takes it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click
import pytest
import typer.main

import safedelete.cli
from safedelete.cli import text
from safedelete.cli.app import app
from safedelete.core.decision import Acceptance, Approval, Approved, Refused
from safedelete.core.findings import finding
from safedelete.core.item import ObjectRef
from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.core.run import BatchState, RunState
from safedelete.core.seal import ObjectBatch
from safedelete.errors import ExitCode
from safedelete.ports import BatchRef, RunRecord, StoredBatch
from safedelete.runner.report import Report
from tests.cli.runs import accepted, nights
from tests.e2e.world import World

GROUP = typer.main.get_command(app)
VERBS: dict[str, click.Command] = dict(GROUP.commands)  # type: ignore[attr-defined]

FILES = pytest.mark.parametrize("file", ["'the jobs.py'", None], ids=["a file", "none named"])


def commands(said: str) -> list[list[str]]:
    """Every command in a text, as a shell would read it: to the end of its line, or of what is quoted."""
    found = []
    for line in said.splitlines():
        for match in re.finditer(r"`safedelete ([^`]+)`|safedelete ((?:[a-z-]+) .*)", line):
            words = match[1] or match[2].partition("  (")[0]
            if words.split()[0] in VERBS:
                found.append(shlex.split(words))
    return found


def parse(words: list[str]) -> click.Context:
    """Parse a command without running it; a mistake of usage raises."""
    return VERBS[words[0]].make_context(words[0], words[1:])


def refused() -> RunRecord:
    return nights(40, surge_at=39)[0]


def report(record: RunRecord, **changes: object) -> Report:
    made = Report(
        job=record.job, run=record.run, state=record.state, plan=record.plan, decision=record.decision
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def passed() -> RunRecord:
    return replace(nights(2)[0], state=RunState.PENDING)


def texts(file: str | None) -> Iterator[tuple[str, set[str]]]:
    """What is printed of a run in each of its states, with the verbs that it has to name."""
    stop, go = refused(), passed()
    given = Approval(
        run=stop.run,
        digest="d",
        accepts=(Acceptance(code="SD210"),),
        reason="meant",
        who="ann@desk",
        at=stop.started_at,
        expires_at=stop.started_at + timedelta(hours=3),
    )
    over, soon = stop.started_at + timedelta(hours=24), stop.started_at + timedelta(hours=1)
    yield text.plan(report(stop), file), {"approve"}
    yield text.plan(report(go), file), {"execute"}
    yield text.plan(report(stop, run=None, state=None), file), {"plan"}
    yield text.plan(report(go, run=None, state=None), file), {"run"}
    yield text.refusal(stop, (), file), {"approve"}
    yield text.result(report(go, state=RunState.SUCCEEDED, tally={"t": Tally(deleted=1)}), file), {"show"}
    yield text.result(Report(job="nightly", kind="job", message="2 processed."), file), {"check"}
    yield text.run(stop, None, (), file, soon), {"approve"}
    yield text.run(stop, given, (), file, soon), {"execute"}
    yield text.run(stop, given, (), file, given.expires_at), {"approve"}
    yield text.run(stop, None, (), file, over), {"plan"}
    yield text.run(go, None, (), file, go.started_at), {"execute"}
    yield text.run(replace(go, state=RunState.EXPIRED), None, (), file, soon), {"plan"}
    yield text.run(accepted(stop, "meant"), given, (), file, soon), set()
    yield text.approval(given, file), {"execute"}
    yield "\n".join(text.items(*blocked(), file, everything=False)), {"show"}


def blocked() -> tuple[RunRecord, Iterator[StoredBatch]]:
    """A run of which more items did not go than are listed."""
    refs = tuple(ObjectRef("acme", f"tmp/{number}") for number in range(text.SHOWN + 5))
    kept = dict.fromkeys(range(len(refs)), ItemOutcome(Outcome.CHANGED, "named"))
    run = passed()
    return run, iter([StoredBatch(BatchRef(run.run, 0, 0), BatchState.DONE, ObjectBatch(refs), kept)])


@FILES
def test_every_command_that_is_printed_of_a_run_can_be_typed(file: str | None) -> None:
    for said, verbs in texts(file):
        found = commands(said)
        assert {words[0] for words in found} == verbs, said
        for words in found:
            context = parse(words)
            path = context.params["file"]
            if file is not None:
                assert str(path) == "the jobs.py", "a job file that was named is named again"
            elif words[0] in ("approve", "show"):
                assert path is None, "what found the run without a job file will do so again"
            else:
                assert str(path) == "FILE"


@pytest.mark.parametrize(
    ("state", "hours", "says"),
    [
        (RunState.REFUSED, 23.9, "To accept this plan once: safedelete approve"),
        (RunState.REFUSED, 24, "It waited for an approval for 24 hours, and that is over."),
        (RunState.PENDING, 23.9, "To execute exactly what was sealed: safedelete execute"),
        (RunState.PENDING, 24, "It waited for its execution for 24 hours, and that is over."),
        (RunState.EXPIRED, 30, "24 hours, and that is over."),
    ],
)
def test_show_offers_what_can_be_done_until_its_window_is_over(
    state: RunState, hours: float, says: str
) -> None:
    made = refused() if state is RunState.REFUSED else passed()
    record = replace(made, state=state)
    said = text.run(record, None, (), "jobs.py", record.started_at + timedelta(hours=hours))
    assert says in said
    assert ("safedelete approve" in said or "safedelete execute" in said) == (hours < 24)
    assert ("safedelete plan jobs.py login-events --save" in said) == (hours >= 24)
    assert "Nothing was deleted." in said


def test_a_plan_that_nobody_can_approve_never_waited_for_an_approval() -> None:
    record = refused()
    assert record.decision is not None
    uncounted = replace(record.decision, findings=(finding("SD100", "The history is unknown."),))
    unsealed = replace(record.decision, plan=replace(record.decision.plan, digest=None))
    for decision, why in ((uncounted, "SD100"), (unsealed, "A plan whose keys were not sealed")):
        for hours in (1, 30):
            now = record.started_at + timedelta(hours=hours)
            said = text.run(replace(record, decision=decision), None, (), "jobs.py", now)
            assert said.endswith(f"{why} cannot be approved: repair it, then plan again.")
            assert "waited" not in said


def test_a_plan_that_nobody_can_approve_is_not_offered_to_be_sealed_for_an_approval() -> None:
    record = refused()
    assert record.decision is not None
    report = Report(job=record.job, plan=record.plan, decision=record.decision)
    assert text.plan(report, "jobs.py").endswith("--save")
    uncounted = replace(record.decision, findings=(finding("SD100", "The history is unknown."),))
    said = text.plan(replace(report, decision=uncounted), "jobs.py")
    assert said.endswith("SD100 cannot be approved: repair it, then plan again.")
    assert "--save" not in said


def test_an_approval_that_ended_is_no_longer_offered_for_execution() -> None:
    record = refused()
    assert isinstance(record.decision, Refused)
    decision = accepted(record, "meant").decision
    assert isinstance(decision, Approved)
    given = decision.approval
    assert given is not None
    given = replace(given, expires_at=record.started_at + timedelta(hours=2))
    for hours, verb in ((1.9, "execute"), (2, "approve")):
        said = text.run(record, given, (), "jobs.py", record.started_at + timedelta(hours=hours))
        assert [words[0] for words in commands(said)] == [verb]


def test_every_command_in_the_messages_of_the_command_line_can_be_typed() -> None:
    found = []
    for file in Path(safedelete.cli.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text())
        inside = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                words = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
                words = node.value
            else:
                continue
            # What is filled in is one word, or options of its own.
            words = re.sub(r"(?<=\S)\0", "", words).replace("render \0", "render systemd").replace("\0", "X")
            found += [(file.name, command) for command in commands(words)]
    assert len(found) >= 6
    for name, words in found:
        try:
            parse(words)
        except Exception as error:  # of click, or of the copy that typer brings along
            pytest.fail(f"{name}: safedelete {shlex.join(words)}: {error}")


def test_the_commands_of_each_answer_are_taken_as_they_stand(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),").rename(world.folder / "the jobs.py")
    (approve,) = {tuple(c) for c in commands(world.cli("run", jobs, expect=3).out)}
    run = approve[1]
    (execute,) = commands(world.cli(*approve, expect=0).out)
    assert execute[:2] == ["execute", run]
    (shown,) = commands(world.cli("show", run, "--file", jobs, expect=0).out)
    assert shown == execute
    (show,) = commands(world.cli(*execute, expect=0).out)
    assert commands(world.cli(*show, expect=0).out) == []


def test_an_approval_without_a_reason_is_refused_and_nothing_is_approved(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    run = world.cli("run", jobs, "--json", expect=3).run
    for reason in ("", "  ", "\t\n"):
        denied = world.cli("approve", run, "--file", jobs, "--reason", reason, expect=int(ExitCode.USAGE))
        assert "--reason is empty" in denied.said
        assert "Nothing was deleted." in denied.said
    assert world.shown(run)["approval"] is None
    world.cli("execute", run, "--file", jobs, expect=3)
