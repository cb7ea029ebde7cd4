"""A purge of a prefix deletes what was listed, and nothing that was written since."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import StubS3
from tests.e2e.world import World, before_execute

JOBS = """
from datetime import timedelta

from safedelete import Guard, Purge, S3Prefix

purge = Purge(
    "scratch",
    S3Prefix("acme", "up/", older_than=timedelta(days=7)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=5),
    guard=Guard(max_items=100),
)
"""


@pytest.fixture
def store() -> Iterator[StubS3]:
    with StubS3() as stub:
        now = datetime.now(UTC)
        for number in range(12):
            modified = now - timedelta(days=7, hours=1) + timedelta(days=number // 3)
            stub.put("acme", f"up/{number + 1:06}.bin", b"old", modified=modified)
        # Neither under the prefix: a sibling that only begins alike, and another folder.
        for key in ("up2/000001.bin", "keep/000001.bin"):
            stub.put("acme", key, b"old", modified=now - timedelta(days=99))
        yield stub


@pytest.fixture
def world(store: StubS3, tmp_path: Path) -> Iterator[World]:
    url = sa.make_url(f"sqlite:///{tmp_path / 'ledger.db'}")
    made = World("sqlite", url, store, "acme", tmp_path)  # type: ignore[arg-type]  # a stub has what is used here
    yield made
    made.clean_up()


def test_what_is_old_goes_and_everything_else_stays(world: World, store: StubS3) -> None:
    jobs = world.jobs(source=JOBS)
    world.cli("init", jobs, expect=0)
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["outcomes"]["s3://acme/up/"]["deleted"] == 3
    assert world.objects() == set(range(4, 13))
    assert {"up2/000001.bin", "keep/000001.bin"} <= store.keys("acme")


def test_object_overwritten_since_it_was_listed_is_kept(world: World, store: StubS3) -> None:
    jobs = world.jobs(source=JOBS)
    world.cli("init", jobs, expect=0)
    with before_execute(lambda: store.put("acme", "up/000002.bin", b"new")):
        ran = world.cli("run", jobs, "--json", expect=0)
    assert world.objects() & {1, 2, 3} == {2}
    assert world.s3.get_object(Bucket="acme", Key="up/000002.bin")["Body"].read() == b"new"
    items = {item["key"][0]: (item["outcome"], item["code"]) for item in world.shown(ran.run)["items"]}
    assert items["s3://acme/up/000002.bin"] == ("changed", "overwritten")


def test_object_written_after_the_seal_is_not_deleted(world: World, store: StubS3) -> None:
    jobs = world.jobs(source=JOBS)
    world.cli("init", jobs, expect=0)
    old = datetime.now(UTC) - timedelta(days=30)
    with before_execute(lambda: store.put("acme", "up/000099.bin", b"x", modified=old)):
        world.cli("run", jobs, expect=0)
    assert world.objects() == set(range(4, 13)) | {99}


def test_conditions_are_planned_shown_and_kept_to_by_the_command(world: World, store: StubS3) -> None:
    declared = 'older_than=timedelta(days=7), pattern="*[12].bin", max_size=3, max_delete_rate=100'
    jobs = world.jobs(source=JOBS.replace("older_than=timedelta(days=7)", declared))
    store.put("acme", "up/deep/000001.bin", b"old", modified=datetime.now(UTC) - timedelta(days=99))
    world.cli("init", jobs, expect=0)
    planned = world.cli("plan", jobs, "--json", expect=0)
    (target,) = planned.document[0]["plan"]["targets"]
    assert (target["items"], target["total"]) == (2, 13)
    assert target["parameters"]["pattern"] == "*[12].bin"
    assert "whose key goes on as *[12].bin, of at most 3 bytes" in target["statement"]
    ran = world.cli("run", jobs, "--json", expect=0)
    assert ran.document["outcomes"]["s3://acme/up/"]["deleted"] == 2
    assert {"up/000003.bin", "up/000012.bin", "up/deep/000001.bin"} <= store.keys("acme")
    assert not {"up/000001.bin", "up/000002.bin"} & store.keys("acme")
