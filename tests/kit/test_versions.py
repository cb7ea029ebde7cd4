"""The kit in buckets that keep versions: what is to be removed goes with all of them, what is to be hidden keeps them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table, delete, select

from safedelete import Purge, Rows, S3Keys, S3Orphans, S3Prefix, older_than
from safedelete.core.outcome import Outcome
from safedelete.errors import ExitCode
from safedelete.testing import Lab, PurgeUnsafeError, assert_purge_is_safe
from safedelete.testing.memory import Killed

Mode = Literal["purge", "marker"]
B, DAYS = "acme-versioned", timedelta(days=30)

files = Table(
    "files",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("s3_key", String(300), nullable=False, unique=True),
    Column("thumb_key", String(300), unique=True),
)


def purge(*targets: Any) -> Purge:
    return Purge("under-test", *targets, schedule="rate(1 day)", timeout=timedelta(minutes=10))


def rows(mode: Mode, *columns: Any, **more: Any) -> Purge:
    owned = S3Keys(B, *columns, mode=mode, **more)
    return purge(Rows(files, older_than(files.c.created_at, days=30), owns=owned))


def orphans(mode: Mode, older_than: timedelta = DAYS) -> Purge:
    return purge(S3Orphans(B, "f/", referenced_by=[files.c.s3_key], older_than=older_than, mode=mode))


SAFE = {
    "two keys, removed": rows("purge", files.c.s3_key, files.c.thumb_key),
    "a key, hidden": rows("marker", files.c.s3_key),
    "a folder, removed": rows("purge", prefix=files.c.s3_key),
    "a folder, hidden": rows("marker", prefix=files.c.s3_key),
    "a prefix, removed": purge(S3Prefix(B, "tmp/", older_than=DAYS, mode="purge")),
    "orphans, removed": orphans("purge"),
    "orphans, hidden": orphans("marker"),
}


@pytest.mark.parametrize("name", SAFE)
def test_a_purge_of_a_versioned_bucket_is_safe(name: str) -> None:
    assert_purge_is_safe(SAFE[name], examples=1)


def job(lab: Lab, versions: Any) -> None:
    """Delete the object of each row that is due, or its versions, and then the row; keep what is refused."""
    old = files.c.created_at < lab.clock.now() - DAYS
    with lab.engine.connect() as connection:
        found = connection.execute(select(files.c.id, files.c.s3_key).where(old)).all()
    for number, key in found:
        try:
            for version in versions(lab, key):
                lab.client.delete_object(Bucket=B, Key=key, **version)
        except lab.client.exceptions.ClientError:
            continue
        with lab.engine.begin() as connection:
            connection.execute(delete(files).where(files.c.id == number))


def the_current_one(_lab: Lab, _key: str) -> list[dict[str, str]]:
    return [{}]


def each_of_them(lab: Lab, key: str) -> list[dict[str, str]]:
    listed = lab.client.list_object_versions(Bucket=B, Prefix=key)
    every = [*listed.get("Versions", ()), *listed.get("DeleteMarkers", ())]
    return [{"VersionId": item["VersionId"]} for item in every if item["Key"] == key]


def broken(tested: Purge, versions: Any) -> PurgeUnsafeError:
    with pytest.raises(PurgeUnsafeError) as caught:
        assert_purge_is_safe(tested, examples=1, through=lambda lab: job(lab, versions))
    return caught.value


def test_a_job_that_leaves_the_versions_beneath_a_marker_has_not_deleted_the_object() -> None:
    found = broken(rows("purge", files.c.s3_key), the_current_one)
    assert found.promise == "objects-first"
    assert found.scene is not None
    assert len(found.scene.rows) == 1
    assert_purge_is_safe(
        rows("marker", files.c.s3_key), examples=1, through=lambda lab: job(lab, the_current_one)
    )


def test_a_job_that_removes_versions_which_were_only_to_be_hidden_is_found_out() -> None:
    found = broken(rows("marker", files.c.s3_key), each_of_them)
    assert found.promise == "recoverable"
    assert found.scene is not None
    assert len(found.scene.rows) == 1
    assert_purge_is_safe(
        rows("purge", files.c.s3_key), examples=1, through=lambda lab: job(lab, each_of_them)
    )


@pytest.mark.parametrize("older_than", [DAYS, 2 * DAYS], ids=["resumed", "abandoned"])
def test_a_row_that_names_an_orphan_of_which_only_the_older_version_had_gone_lacks_nothing(
    older_than: timedelta, purge_lab: Callable[..., Lab]
) -> None:
    sweep, then = orphans("purge"), orphans("purge", older_than)
    lab = purge_lab(sweep)
    for number, key in enumerate(("f/kept", "f/kept-too", "f/kept-as-well", "f/lost"), start=1):
        for _ in range(2):
            lab.put(B, key, age=timedelta(days=90))
        if key != "f/lost":
            lab.add(files, id=number, created_at=lab.clock.now(), s3_key=key)
    lab.kill_after_objects()
    with pytest.raises(Killed):
        lab.run(sweep)
    lab.revive()
    assert "f/lost" in lab.store.keys(B), "it died with the first request, which takes what is not current"
    lab.add(files, id=9, created_at=lab.clock.now(), s3_key="f/lost")
    report = lab.run(then)
    assert "f/lost" in lab.store.keys(B)
    with lab.context(then) as ctx:
        runs = [record.run for record in ctx.ledger.runs(then.name, limit=9)]
        outcomes = [o for run in runs for stored in ctx.ledger.batches(run) for o in stored.outcomes.values()]
    gone = [o.detail for o in outcomes if o.state is Outcome.GONE]
    assert any(detail.endswith("a row has come to name it") for detail in gone), gone
    assert not [o for o in outcomes if o.state is Outcome.FAILED]
    assert report.exit_code == ExitCode.DONE
