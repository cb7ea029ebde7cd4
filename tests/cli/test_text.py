"""What a person reads holds every number that a decision rests on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from safedelete.cli import text
from safedelete.cli.proven import proofs
from safedelete.ports import Proof, Verdict
from safedelete.runner.report import Report
from tests.cli.runs import accepted, nights
from tests.cli.test_bad_input import SECOND
from tests.e2e.world import World as OnDisk
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


def test_why_a_run_ended_is_said_without_a_loose_end() -> None:
    refused = nights(40, surge_at=39)[0]
    waiting = accepted(refused, "meant")
    ended = replace(waiting, reason="48,210 of 48,210 are gone.")
    said = text.history("login-events", [ended, waiting], limit=2).splitlines()[-2:]
    assert said[0].endswith("accepted by ann@desk: meant; 48,210 of 48,210 are gone.")
    assert said[1].endswith("accepted by ann@desk: meant")


LONG = "DeleteObjects: AccessDenied: User arn:aws:iam::123456789012:user/runner is not authorized to perform this"


@pytest.mark.parametrize("verdict", Verdict)
def test_the_list_of_permissions_fits_eighty_columns_and_keeps_every_word(verdict: Verdict) -> None:
    found = (
        Proof("SELECT on uploads", verdict),
        Proof("s3:GetBucketVersioning on acme", verdict, "versioning off"),
        Proof("s3:DeleteObject on s3://acme/users/late/", verdict, LONG),
    )
    said = proofs(Report(job="expired-uploads", proofs=found))
    lines = said.splitlines()
    assert lines[0] == "expired-uploads: permissions"
    assert max(map(len, lines)) <= 80
    assert lines[1].split(maxsplit=1)[1] == "SELECT on uploads"
    assert lines[2].endswith("s3:GetBucketVersioning on acme: versioning off")
    assert " ".join(lines[4:]).split() == LONG.split()
    assert lines[3].endswith("s3:DeleteObject on s3://acme/users/late/")


def test_a_missing_statement_is_one_line_that_can_be_copied() -> None:
    remedy = '{"Effect": "Allow", "Action": ["s3:DeleteObject"], "Resource": "arn:aws:s3:::acme-uploads/users/late/*"}'
    denied = Proof("s3:DeleteObject on s3://acme-uploads/users/late/", Verdict.DENIED, LONG, remedy)
    assert proofs(Report(job="uploads", proofs=(denied, denied))).endswith(f"\nMissing:\n  {remedy}")


def test_check_fits_eighty_columns(world: OnDisk) -> None:
    said = world.cli("check", world.ready(), expect=0).out
    assert "expired-uploads: permissions" in said
    assert "DELETE on uploads" in said
    listed = said[: said.index("\n  [SD")].splitlines()
    assert [line for line in listed if len(line) > 80 and max(map(len, line.split())) < 60] == []


def test_a_dry_run_says_what_it_has_shown_and_what_it_cannot_show(world: OnDisk) -> None:
    jobs = world.ready(options="guard=Guard(max_items=2),")
    refused = world.cli("run", jobs, "--dry-run", expect=3).out
    world.jobs()
    passed = world.cli("run", jobs, "--dry-run", expect=0).out
    for said in (passed, refused):
        words = " ".join(said[said.index("This was a dry run") :].split())
        assert words.startswith("This was a dry run: nothing was deleted, sealed or recorded. Shown: ")
        assert "Not shown: that every item goes." in words
        assert ("that the ledger can be written" in words) == (said is passed)
        assert ("the guard refuses it" in words) == (said is refused)
    assert "This was a dry run" not in world.cli("plan", jobs, "--preflight", expect=0).out


def test_a_dry_run_of_a_function_says_what_was_not_called(world: OnDisk) -> None:
    jobs = world.ready()
    jobs.write_text(jobs.read_text() + SECOND)
    said = " ".join(world.cli("run", jobs, "reminders", "--dry-run", expect=0).out.split())
    assert "Shown: that the function can be called" in said
    assert "Not shown: what it does without dry_run" in said
    assert said.endswith(f"To prove that: safedelete check {jobs} reminders")
