"""What a person reads holds every number that a decision rests on."""

from __future__ import annotations

import re
from dataclasses import replace

from safedelete.cli import text
from tests.worlds import BUCKET, World


def prefix_world() -> World:
    world = World(expired=0)
    for number in range(3):
        world.objects.put(BUCKET, f"tmp/{number}")
    for number in range(30):
        world.objects.put(BUCKET, f"tmp/new/{number}", modified=world.clock.now())
    return world


def test_a_plan_shows_its_sample_and_how_many_objects_go_only_if_unchanged() -> None:
    world = prefix_world()
    report = world.process(parts=lambda p: [p.prefix_part()]).run()
    assert report.plan is not None
    (target,) = report.plan.targets
    assert target.conditional == 3
    plan = replace(report.plan, targets=(replace(target, sample=("tmp/1 (1 byte)",)),))
    for said in (text.run(replace(world.last(), plan=plan), None), text.plan(replace(report, plan=plan))):
        assert re.search(r"deleted only if unchanged +3\n", said)
        assert "tmp/1 (1 byte)" in said


def test_a_run_says_what_its_seal_costs() -> None:
    world = World(expired=3)
    report = world.process().run()
    assert report.sealed_bytes
    costs = f"{report.sealed_bytes:,} bytes in the ledger"
    assert costs in text.result(report)
    assert costs in text.run(world.last(), None)
