"""A refused plan is looked at, accepted once with a reason, and executed exactly as it was sealed."""

from __future__ import annotations

import json

import pytest

from tests.e2e.world import World, before_execute


def refused(world: World, options: str = "guard=Guard(max_items=2),") -> tuple[object, str]:
    """Seed three due rows, and have a run of them refused; returns the job file and the run."""
    jobs = world.ready(options=options)
    ran = world.cli("run", jobs, expect=3)
    assert "max_items is 2" in ran.said
    assert "Nothing was deleted." in ran.said
    assert world.rows() == world.objects() == set(range(1, 13))
    (record,) = world.cli("history", jobs, "--json", expect=0).document
    assert record["state"] == "refused"
    assert f"safedelete approve {record['run']}" in ran.said
    return jobs, record["run"]


def test_a_refused_plan_is_executed_once_after_an_approval(world: World) -> None:
    jobs, run = refused(world)
    world.cli("execute", run, "--file", jobs, expect=3)
    approved = world.cli("approve", run, "--reason", "meant so", "--file", jobs, expect=0)
    assert "SD101" in approved.out
    world.cli("execute", run, "--file", jobs, expect=0)
    assert world.rows() == world.objects() == set(range(4, 13))
    again = world.cli("execute", run, "--file", jobs, expect=3)
    assert "succeeded" in again.said
    assert "Nothing was deleted." in again.said
    assert world.rows() == world.objects() == set(range(4, 13))


def test_an_approval_covers_the_sealed_keys_alone(world: World) -> None:
    jobs, run = refused(world)
    world.sql("UPDATE uploads SET expires_at = '2020-01-01 00:00:00' WHERE id = 4")
    world.cli("approve", run, "--reason", "meant so", "--file", jobs, expect=0)
    world.cli("execute", run, "--file", jobs, expect=0)
    assert world.rows() == world.objects() == set(range(4, 13))


@pytest.mark.parametrize(("option", "teaches"), [("--one-off", 0), ("--usual", 2)])
def test_an_approval_says_whether_the_run_is_what_is_usual_now(
    world: World, option: str, teaches: int
) -> None:
    jobs, run = refused(world)
    world.cli("approve", run, "--reason", "meant so", option, "--file", jobs, expect=0)
    assert world.shown(run)["approval"]["teaches"] == teaches
    world.cli("execute", run, "--file", jobs, expect=0)
    assert world.value(f"SELECT teaches FROM safedelete_run WHERE run = '{run}'") == teaches
    assert world.shown(run)["decision"]["approval"]["reason"] == "meant so"


def test_a_definition_changed_after_the_approval_is_refused(world: World) -> None:
    jobs, run = refused(world)
    world.cli("approve", run, "--reason", "meant so", "--file", jobs, expect=0)
    text = jobs.read_text() if hasattr(jobs, "read_text") else ""
    wider = world.folder / "jobs.py"
    wider.write_text(text.replace("uploads.c.hold.is_(False), ", ""))
    stale = world.cli("execute", run, "--file", wider, expect=3)
    assert "definition" in stale.said
    assert world.rows() == world.objects() == set(range(1, 13))


def test_an_approval_does_not_lift_a_limit_that_was_not_broken_then(world: World) -> None:
    jobs, run = refused(world)
    world.cli("approve", run, "--reason", "meant so", "--file", jobs, expect=0)
    tighter = world.jobs("guard=Guard(max_items=2, max_fraction=0.01),")
    denied = world.cli("execute", run, "--file", tighter, expect=3)
    assert "SD102" in denied.said
    assert world.rows() == world.objects() == set(range(1, 13))


def test_a_saved_plan_is_executed_once_and_only_what_it_sealed_goes(world: World) -> None:
    jobs = world.ready()
    saved = world.cli("plan", jobs, "--save", expect=0)
    assert "Nothing was deleted." in saved.out
    (record,) = world.cli("history", jobs, "--json", expect=0).document
    assert record["state"] == "pending"
    assert f"safedelete execute {record['run']}" in saved.out
    world.cli("execute", record["run"], "--file", jobs, expect=0)
    assert world.rows() == world.objects() == set(range(4, 13))
    world.cli("execute", record["run"], "--file", jobs, expect=3)


def test_the_manifest_is_whole_before_the_first_delete(world: World) -> None:
    jobs = world.ready()
    path = world.folder / "manifest.jsonl"
    seen: list[list[object]] = []

    def look() -> None:
        seen.append([json.loads(line) for line in path.read_text().splitlines()])
        assert world.rows() == world.objects() == set(range(1, 13))

    with before_execute(look):
        world.cli("run", jobs, "--manifest", path, expect=0)
    assert seen == [
        [
            {
                "target": "uploads",
                "key": [n],
                "objects": [{"bucket": world.bucket, "key": f"up/{n:06}.bin"}],
            }
            for n in (1, 2, 3)
        ]
    ]


def test_a_manifest_that_cannot_be_written_stops_the_run_before_the_first_delete(world: World) -> None:
    jobs = world.ready()
    failed = world.cli("run", jobs, "--manifest", world.folder / "missing" / "manifest.jsonl", expect=2)
    assert "manifest" in failed.said
    assert world.rows() == world.objects() == set(range(1, 13))


def test_the_plan_is_logged_before_the_first_delete_and_every_other_outcome_after_it(world: World) -> None:
    jobs = world.ready()
    world.sql("UPDATE uploads SET hold = " + ("false" if world.kind == "postgresql" else "0"))
    marks: list[str] = []

    def look() -> None:
        import sys

        marks.append(sys.stderr.getvalue())  # type: ignore[attr-defined]  # the captured stream
        world.store.deny(world.bucket, ["up/000002.bin"])
        world.sql("UPDATE uploads SET expires_at = '2099-01-01 00:00:00' WHERE id = 3")

    with before_execute(look):
        ran = world.cli("run", jobs, expect=7)
    plans = [json.loads(line) for line in marks[0].splitlines() if '"plan"' in line]
    sealed = [line for line in plans if line["event"] == "plan" and line["digest"]]
    assert sealed, "the sealed plan is logged before the first delete"
    (line,) = sealed
    assert (line["items"], line["eligible"], line["total"]) == (3, 3, 12)
    assert line["cutoff"]
    assert "expires_at <" in line["statement"]
    assert any(name.startswith("sd_past_expires_at") for name in line["parameters"])
    assert line["first"].startswith("id=1 ")
    assert line["last"].startswith("id=3 ")
    assert len(line["sample"]) == 3
    kept = {
        entry["item"]: (entry["outcome"], entry["code"])
        for entry in ran.log
        if entry["event"] == "not deleted"
    }
    assert kept == {
        f"2 s3://{world.bucket}/up/000002.bin": ("failed", "AccessDenied"),
        f"3 s3://{world.bucket}/up/000003.bin": ("changed", "predicate"),
    }
    assert all(line.startswith("{") for line in ran.err.splitlines() if line)


def test_no_secret_is_ever_printed(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    password = "hunter2-planted"
    url = world.url.set(password=password) if world.kind == "postgresql" else world.url
    said = []
    for verb in (
        ["init", jobs],
        ["check", jobs],
        ["plan", jobs, "--json"],
        ["run", jobs],
        ["history", jobs],
        ["--verbose", "run", jobs],
    ):
        done = world.cli(*verb, url=url)
        said.append(done.out + done.err)
    if world.kind == "postgresql":
        for wrong in (url.set(port=1), url.set(username="nobody_here"), url.set(database="none_such")):
            done = world.cli("run", jobs, url=wrong)
            assert done.code in (7, 8)
            said.append(done.out + done.err)
    denied = world.cli("run", jobs, AWS_ACCESS_KEY_ID="unknown-key", AWS_SECRET_ACCESS_KEY="planted-secret")
    said.append(denied.out + denied.err)
    text = "\n".join(said)
    assert len(text) > 1000
    for secret in (password, "sdrunner-secret-0001", "planted-secret"):
        assert secret not in text
