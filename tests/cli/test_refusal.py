"""What a person is told when the guard refuses: why, beside what, what to look at, and how to accept it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from safedelete.cli.chart import BLOCKS
from tests.e2e.world import Ended, World

SURGE = "'2020-01-01 00:00:00'"


@pytest.fixture
def surged(world: World) -> Path:
    """One ordinary run, and then most of what is left is dated back."""
    jobs = world.ready(due=30, nights=10)
    world.cli("run", jobs, expect=0)
    world.sql(f"UPDATE uploads SET expires_at = {SURGE} WHERE id > 150")
    return jobs.rename(jobs.with_name("the jobs.py"))


def command(refused: Ended) -> list[str]:
    """The command that would accept the plan, as a shell would read it."""
    line = next(line for line in refused.out.splitlines() if "safedelete approve" in line)
    return shlex.split(line.partition("safedelete ")[2])


def test_a_refused_run_says_why_what_to_look_at_and_how_to_accept_it(world: World, surged: Path) -> None:
    refused = world.cli("run", surged, expect=3)
    run = command(refused)[1]
    said = refused.out
    for part in (
        "Guard: REFUSED [",
        "SD212",
        "tonight 180 rows",
        "STOP",
        "What to look at:",
        "  cutoff: uploads older than ",
        "  definition: unchanged since run ",
        "  clock: planned at ",
        "day by day around the cutoff",
        "  older                    180",
        "  last runs",
        "Nothing was deleted.",
        f"safedelete approve {run} --file '{surged}' --reason",
    ):
        assert part in said, part
    assert f"safedelete approve {run} --file '{surged}' --reason" in refused.err


def test_the_command_that_is_printed_is_the_one_that_works(world: World, surged: Path) -> None:
    refused = world.cli("run", surged, expect=3)
    *approve, reason = command(refused)
    assert reason == "..."
    world.cli(*approve, "restored on purpose", expect=0)
    run = approve[1]
    world.cli("execute", run, "--file", surged, expect=0)
    shown = world.cli("show", run, "--file", surged, expect=0).out
    assert "restored on purpose" in shown
    assert "tonight 180 rows" in shown
    assert "safedelete approve" not in shown


def test_a_refused_run_is_a_whole_document_with_json(world: World, surged: Path) -> None:
    document = world.cli("run", surged, "--json", expect=3).document
    assert document["state"] == "refused"
    assert document["decision"]["approved"] is False
    measure = document["decision"]["measures"][0]
    assert measure["tonight"] == 180
    assert measure["limit"] < 180
    assert measure["sentence"].endswith("STOP")
    (target,) = document["plan"]["targets"]
    assert target["late"] == 180
    assert target["ages"]["older"] == 180


def test_show_tells_a_refusal_again_after_its_window_has_ended(world: World, surged: Path) -> None:
    run = world.cli("run", surged, "--json", expect=3).document["run"]
    world.sql(f"UPDATE safedelete_run SET state = 'expired' WHERE run = '{run}'")
    world.cli("plan", surged, expect=3)
    shown = world.cli("show", run, "--file", surged, expect=0).out
    assert "expired" in shown.splitlines()[0]
    assert "tonight 180 rows" in shown
    assert "What to look at:" in shown
    assert "safedelete approve" not in shown


def test_a_plan_that_was_not_sealed_offers_no_approval(world: World, surged: Path) -> None:
    said = world.cli("plan", surged, expect=3).out
    assert "safedelete approve" not in said
    assert f"safedelete plan '{surged}' expired-uploads --save" in said
    saved = world.cli("plan", surged, "--save", expect=3).out
    assert f"--file '{surged}' --reason" in saved


def test_plan_draws_tonight_beside_the_runs_before_it(world: World, surged: Path) -> None:
    said = world.cli("plan", surged, expect=3).out
    start = said.index("uploads: rows found by each of 2 runs up to tonight")
    drawn = said[start:].splitlines()[:11]
    assert any(line.rstrip().endswith("tonight") for line in drawn)
    assert any(set(line) & set(BLOCKS.steps[1:]) or "#" in line for line in drawn)


def test_the_first_night_is_drawn_day_by_day_instead(world: World) -> None:
    jobs = world.ready(due=30, nights=10)
    said = world.cli("plan", jobs, expect=0).out
    assert "found by each of" not in said
    assert "day by day around the cutoff" in said
    assert "--- cutoff " in said


def test_history_draws_what_it_lists(world: World, surged: Path) -> None:
    world.cli("run", surged, expect=3)
    said = world.cli("history", surged, expect=0, TERM="dumb").out
    assert "uploads: rows found by each of 2 runs up to the last" in said
    assert "(r refused)" in said
    said.encode("ascii")
    assert said.index("found by each of") < said.index("started (UTC)")


def test_history_writes_one_page(world: World, surged: Path) -> None:
    world.cli("run", surged, expect=3)
    page = world.folder / "history.html"
    said = world.cli("history", surged, "--html", page, expect=0).out
    assert "1 job(s), 2 run(s)" in said
    text = page.read_text()
    assert "expired-uploads" in text
    assert "SD212" in text
    assert [p.name for p in world.folder.glob("history*")] == ["history.html"]
    world.cli("history", surged, "--html", page, "--json", expect=2)


def test_a_refused_run_that_is_cancelled_can_be_executed_by_nobody(world: World, surged: Path) -> None:
    run = command(world.cli("run", surged, expect=3))[1]
    world.cli("approve", run, "--file", surged, "--reason", "meant", expect=0)
    assert "reason is empty" in world.cli("cancel", run, "--file", surged, "--reason", " ", expect=2).err
    ended = world.cli("cancel", run, "--file", surged, "--reason", "not meant after all", expect=0)
    assert "cancelled" in ended.out
    assert "not meant after all" in ended.out
    assert "cancelled" in world.cli("execute", run, "--file", surged, expect=3).err
    assert "not meant after all" in world.cli("show", run, "--file", surged, expect=0).out


def test_execute_says_how_to_accept_a_plan_that_nobody_has_approved(world: World, surged: Path) -> None:
    run = command(world.cli("run", surged, expect=3))[1]
    denied = world.cli("execute", run, "--file", surged, expect=3)
    assert f"safedelete approve {run} --file '{surged}' --reason" in denied.err
    assert "FILE" not in denied.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("uploads.c.hold.is_(False), ", ""),
            """uploads: the predicate was uploads.expires_at < ? AND uploads.hold IS 0
        uploads: the predicate is  uploads.expires_at < ?""",
        ),
        (
            ("past(uploads.c.expires_at)", "older_than(uploads.c.expires_at, days=3)"),
            "uploads: the retention was 0 days, is 3 days",
        ),
        (
            ("timeout=timedelta(minutes=10),", "timeout=timedelta(minutes=10), per_run=7,"),
            "per_run was none, is 7",
        ),
        (("uploads.c.s3_key)", "uploads.c.s3_key, shared=True)"), "read the same; the owned keys, mode="),
    ],
    ids=["predicate", "retention", "portion", "owned keys"],
)
def test_execute_says_what_the_job_file_says_otherwise_than_the_sealed_plan(
    world: World, surged: Path, change: tuple[str, str], says: str
) -> None:
    run = command(world.cli("run", surged, expect=3))[1]
    world.cli("approve", run, "--file", surged, "--reason", "meant", expect=0)
    before = world.rows()
    other = surged.with_name("other.py")
    text = surged.read_text().replace("import Guard, ", "import older_than, Guard, ")
    other.write_text(text.replace(*change))
    assert other.read_text() != text
    stale = world.cli("execute", run, "--file", other, expect=3)
    assert "The job file does not say what it said when the plan was sealed:" in stale.said
    assert says in stale.said
    assert "Plan again, or execute it with the" in stale.said
    assert world.rows() == before
    world.cli("execute", run, "--file", surged, expect=0)


def test_a_plan_that_is_stale_for_another_reason_is_not_blamed_on_the_job_file(
    world: World, surged: Path
) -> None:
    run = command(world.cli("run", surged, expect=3))[1]
    world.cli("approve", run, "--file", surged, "--reason", "meant", expect=0)
    world.cli("execute", run, "--file", surged, expect=0)
    again = world.cli("execute", run, "--file", surged, expect=3)
    assert "does not say what it said" not in again.said
