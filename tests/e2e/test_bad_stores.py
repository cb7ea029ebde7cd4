"""A store that is not there, not the right one, or gives up in the middle: nothing goes that should stay, and it is said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from safedelete.testing.servers import READER, RUNNER, UPLOADER
from safedelete.testing.servers.faults import Request, key_errors, refusing
from tests.e2e.world import ADMINISTRATOR, World, before_execute, outcomes
from tests.worlds import batches_of

DUE = {1, 2, 3}


def everything_is_there(world: World) -> None:
    assert world.rows() == world.objects() == set(range(1, 13))


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (404, "NoSuchBucket", "Check the bucket's name"),
        (403, "AccessDenied", "s3:GetBucketVersioning"),
        (301, "PermanentRedirect", "AWS_DEFAULT_REGION"),
        (400, "AuthorizationHeaderMalformed", "AWS_DEFAULT_REGION"),
        (400, "ExpiredToken", "renew them"),
    ],
    ids=["missing", "not-yours", "redirect", "other-region", "expired"],
)
def test_a_bucket_that_is_not_the_right_one_is_found_before_anything_goes(
    stub_world: World, status: int, code: str, hint: str
) -> None:
    jobs = stub_world.ready()
    stub_world.store.always(refusing(status, code), operation="*")
    ran = stub_world.cli("run", jobs, expect=9)
    stub_world.store.behave()
    everything_is_there(stub_world)
    assert hint in ran.said, ran.said
    assert "Nothing was deleted." in ran.said


@pytest.mark.parametrize(("status", "code"), [(405, "MethodNotAllowed"), (403, "AccessDenied")])
def test_a_read_only_endpoint_is_found_before_anything_goes(
    stub_world: World, status: int, code: str
) -> None:
    jobs = stub_world.ready()
    for operation in ("DeleteObjects", "DeleteObject"):
        stub_world.store.always(refusing(status, code), operation=operation)
    stub_world.cli("run", jobs, expect=9)
    everything_is_there(stub_world)


def after(deletes: int, fault: Any) -> Callable[[Request], Any]:
    seen = 0

    def program(request: Request) -> Any:
        nonlocal seen
        if request.operation == "DeleteObjects":
            seen += 1
            return fault if seen > deletes else None
        return None

    return program


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, "ExpiredToken"), (301, "PermanentRedirect"), (405, "MethodNotAllowed"), (503, "SlowDown")],
)
def test_what_gives_up_in_the_middle_keeps_its_rows_and_the_next_run_finishes(
    stub_world: World, status: int, code: str
) -> None:
    jobs = stub_world.ready()

    def give_up() -> None:
        stub_world.store.program = after(1, refusing(status, code))

    with batches_of(1), before_execute(give_up):
        ran = stub_world.cli("run", jobs, "--json", expect=7)
    assert world_left(stub_world) == DUE - {1}
    assert code in ran.err
    stub_world.store.behave()
    with batches_of(1):
        stub_world.cli("run", jobs, expect=0)
    assert world_left(stub_world) == set()


def world_left(world: World) -> set[int]:
    assert world.rows() == world.objects(), "a row and its object go together"
    return world.rows() & DUE


def test_one_key_in_a_thousand_that_is_denied_keeps_its_row_alone(stub_world: World) -> None:
    stub_world.seed(due=1000, nights=3, objects=False)
    for number in range(1, 4001):
        stub_world.store.put(stub_world.bucket, f"up/{number:06}.bin", b"x")
    jobs = stub_world.jobs()
    stub_world.cli("init", jobs, expect=0)
    stub_world.store.always(key_errors({"up/000517.bin": "AccessDenied"}))
    ran = stub_world.cli("run", jobs, "--json", expect=7)
    assert stub_world.rows() == stub_world.objects() == {517, *range(1001, 4001)}
    tally = ran.document["outcomes"]["uploads"]
    assert (tally["deleted"], tally["failed"]) == (999, 1)
    assert ran.document["failed"][0]["objects"] == [f"s3://{stub_world.bucket}/up/000517.bin"]


def test_locked_and_held_versions_keep_their_rows_and_are_blocked(moto_world: World) -> None:
    world = moto_world
    world.bucket = "acme-locked"
    world.store.create_bucket(world.bucket, object_lock=True)
    world.seed()
    until = datetime.now(UTC) + timedelta(days=1)
    world.s3.put_object_retention(
        Bucket=world.bucket, Key="up/000002.bin", Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until}
    )
    world.s3.put_object_legal_hold(Bucket=world.bucket, Key="up/000003.bin", LegalHold={"Status": "ON"})
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", uploads.c.s3_key, mode="purge")')
    world.cli("init", jobs, expect=0)
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    assert any("Object Lock" in note for note in plan["plan"]["targets"][0]["notes"])
    ran = world.cli("run", jobs, "--json", expect=0)
    assert world_left(world) == {2, 3}
    found = outcomes(world.shown(ran.run))
    assert {found[2], found[3]} == {("blocked", "object-lock")}
    world.cli("run", jobs, expect=4)
    assert world_left(world) == {2, 3}, "not retried for ever, and never bypassed"


def test_a_plan_says_that_replicas_survive(moto_world: World) -> None:
    world = moto_world
    for name in ("acme-source", "acme-replica"):
        world.store.create_bucket(name, versioned=True)
    world.bucket = "acme-source"
    rule = {"Status": "Enabled", "Priority": 1, "Destination": {"Bucket": "arn:aws:s3:::acme-replica"}}
    world.s3.put_bucket_replication(
        Bucket=world.bucket,
        ReplicationConfiguration={
            "Role": "arn:aws:iam::123456789012:role/r",
            "Rules": [rule | {"Filter": {"Prefix": ""}, "DeleteMarkerReplication": {"Status": "Disabled"}}],
        },
    )
    world.seed()
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", uploads.c.s3_key, mode="marker")')
    world.cli("init", jobs, expect=0)
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    assert any("copies in other buckets survive" in note for note in plan["plan"]["targets"][0]["notes"])


def test_a_saved_plan_is_not_executed_as_somebody_else(sqlite_world: World) -> None:
    jobs = sqlite_world.ready()
    saved = sqlite_world.cli("plan", jobs, "--save", "--json", expect=0, identity=ADMINISTRATOR).document[0][
        "run"
    ]
    ran = sqlite_world.cli("execute", saved, "--file", jobs, identity=RUNNER)
    assert ran.code != 0
    assert "caller was" in ran.said
    everything_is_there(sqlite_world)


def test_permissions_are_proven_again_when_a_saved_plan_is_executed(sqlite_world: World) -> None:
    jobs = sqlite_world.ready()
    saved = sqlite_world.cli("plan", jobs, "--save", "--json", expect=0).document[0]["run"]
    sqlite_world.store.deny(sqlite_world.bucket)
    sqlite_world.cli("execute", saved, "--file", jobs, expect=9)
    sqlite_world.store.lift(sqlite_world.bucket)
    everything_is_there(sqlite_world)


@pytest.mark.parametrize("identity", [READER, UPLOADER])
def test_who_may_not_delete_is_stopped_by_the_probe(sqlite_world: World, identity: Any) -> None:
    jobs = sqlite_world.ready()
    sqlite_world.store.lift(sqlite_world.bucket)
    sqlite_world.cli("run", jobs, expect=9, identity=identity)
    everything_is_there(sqlite_world)


def test_a_store_that_ignores_conditions_deletes_nothing_where_they_are_required(moto_world: World) -> None:
    moto_world.seed()
    jobs = moto_world.jobs(
        owns=f'S3Keys("{moto_world.bucket}", uploads.c.s3_key, require_conditional="canary/")'
    )
    moto_world.cli("init", jobs, expect=0)
    ran = moto_world.cli("run", jobs, expect=9)
    everything_is_there(moto_world)
    assert "ignores the condition in DeleteObjects" in ran.said
    assert moto_world.keys() == {f"up/{n:06}.bin" for n in range(1, 13)}, "no canary is left"


def test_a_store_that_compares_etags_is_purged_under_its_protection(sqlite_world: World) -> None:
    world = sqlite_world
    world.seed()
    jobs = world.jobs(owns=f'S3Keys("{world.bucket}", uploads.c.s3_key, require_conditional=True)')
    world.cli("init", jobs, expect=0)
    [plan] = world.cli("plan", jobs, "--json", expect=0).document
    assert any("a canary proves" in note for note in plan["plan"]["targets"][0]["notes"])
    ran = world.cli("run", jobs, "--json", expect=0)
    said = {proof["subject"]: proof["verdict"] for proof in ran.document["permissions"]}
    assert said[f"conditional deletes on s3://{world.bucket}/"] == "allowed"
    assert said[f"blind spots on s3://{world.bucket}/"] == "advice"
    assert world.keys() == {f"up/{n:06}.bin" for n in range(4, 13)}


def test_check_prints_what_the_probe_cannot_see(sqlite_world: World) -> None:
    jobs = sqlite_world.ready()
    checked = sqlite_world.cli("check", jobs, expect=0)
    assert "s3:ExistingObjectTag" in checked.out
    assert "advice" in checked.out


PREFIX = """
from datetime import timedelta
from safedelete import Purge, S3Prefix

purge = Purge("scratch", S3Prefix("BUCKET", "tmp/", older_than=timedelta(days=1), require_conditional=True),
              schedule="rate(1 day)", timeout=timedelta(minutes=5))
"""


ORPHANS = """
from datetime import timedelta
from sqlalchemy import Column, Integer, MetaData, String, Table
from safedelete import Purge, S3Orphans

uploads = Table("uploads", MetaData(), Column("id", Integer, primary_key=True), Column("s3_key", String(512)))
purge = Purge("sweep", S3Orphans("BUCKET", "up/", referenced_by=uploads.c.s3_key, older_than=timedelta(days=1),
              require_conditional=True), schedule="rate(1 day)", timeout=timedelta(minutes=5))
"""


@pytest.mark.parametrize("source", [PREFIX, ORPHANS], ids=["prefix", "orphans"])
def test_check_proves_the_condition_below_a_prefix_too(moto_world: World, source: str) -> None:
    moto_world.seed(due=1)
    before = moto_world.keys()
    jobs = moto_world.jobs(source=source)
    moto_world.cli("init", jobs, expect=0)
    checked = moto_world.cli("check", jobs, expect=9)
    assert "ignores the condition in DeleteObjects" in " ".join(checked.out.split())
    assert moto_world.keys() == before
