"""What machines read: every document parses, and holds every number that the tables show."""

from __future__ import annotations

import json

from tests.e2e.world import World, before_execute

TALLY = {"deleted", "gone", "changed", "blocked", "failed", "unknown", "locked"}


def test_a_plan_holds_every_count_and_what_the_guard_made_of_it(world: World) -> None:
    jobs = world.ready()
    (document,) = world.cli("plan", jobs, "--json", "--preflight", expect=0).document
    (target,) = document["plan"]["targets"]
    assert (target["items"], target["eligible"], target["total"], target["objects"]) == (3, 3, 12, 3)
    assert (target["nulls"], target["cascades"], target["bytes"]) == (0, [], None)
    assert target["first"].startswith("id=1 ")
    assert target["cutoff"] == document["plan"]["as_of"]
    assert document["decision"]["approved"] is True
    measure = document["decision"]["measures"][0]
    assert (measure["tonight"], measure["share"]) == (3, 0.25)
    assert measure["limit"] >= 3
    assert {"verdict", "subject", "detail", "remedy"} <= document["permissions"][0].keys()
    assert document["exit_code"] == 0


def test_a_refused_plan_is_a_whole_document_too(world: World) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    (document,) = world.cli("plan", jobs, "--json", expect=3).document
    assert document["exit_code"] == 3
    assert document["decision"]["approved"] is False
    (finding,) = [f for f in document["decision"]["findings"] if f["severity"] == "refuse"]
    assert finding["code"] == "SD101"
    assert finding["numbers"] == {"items": 3, "max_items": 2}


def test_a_run_holds_its_outcomes_by_target(world: World) -> None:
    jobs = world.ready()
    renew = "UPDATE uploads SET expires_at = '2099-01-01 00:00:00' WHERE id = 2"
    with before_execute(lambda: world.sql(renew)):
        document = world.cli("run", jobs, "--json", expect=0).document
    tally = document["outcomes"]["uploads"]
    assert tally.keys() == TALLY
    assert (tally["deleted"], tally["changed"]) == (2, 1)
    assert document["sealed_bytes"] > 0
    assert document["plan"]["digest"]
    shown = world.shown(document["run"])
    assert shown["outcomes"] == document["outcomes"]
    assert [item["outcome"] for item in shown["items"]] == ["deleted", "changed", "deleted"]
    (record,) = world.cli("history", jobs, "--json", expect=0).document
    assert record["outcomes"] == document["outcomes"]
    assert record["exit_code"] == 0


def test_show_without_items_lists_those_that_stayed(world: World) -> None:
    jobs = world.ready()
    renew = "UPDATE uploads SET expires_at = '2099-01-01 00:00:00' WHERE id = 2"
    with before_execute(lambda: world.sql(renew)):
        run = world.cli("run", jobs, "--json", expect=0).run
    (item,) = world.cli("show", run, "--json", expect=0).document["items"]
    assert (item["key"], item["outcome"], item["objects"]) == ([2], "changed", ["s3://acme/up/000002.bin"])


def test_check_lists_every_permission(world: World) -> None:
    jobs = world.ready()
    whole = world.cli("check", jobs, "--json", expect=0).document
    (document,) = whole["permissions"]
    assert all(finding["code"].startswith("SD4") for finding in whole["lint"])
    subjects = {proof["subject"] for proof in document["permissions"]}
    assert any(subject.startswith("s3:DeleteObject") for subject in subjects)
    assert any("safedelete_batch" in subject for subject in subjects)
    advice = {proof["subject"] for proof in document["permissions"] if proof["verdict"] == "advice"}
    assert advice == {f"blind spots on s3://{world.bucket}/"}
    assert {proof["verdict"] for proof in document["permissions"]} == {"allowed", "advice"}


def test_standard_output_is_the_document_and_nothing_else(world: World) -> None:
    jobs = world.ready()
    for verb in (["plan", jobs], ["check", jobs], ["run", jobs], ["history", jobs]):
        done = world.cli(*verb, "--json", expect=0)
        json.loads(done.out)
        for line in done.err.splitlines():
            json.loads(line)
