"""A key of a versioned bucket that comes back to sight between plan and execution: what of it goes all the same."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table

from safedelete import Guard, Purge, Rows, S3Keys, S3Prefix, past
from safedelete.core.outcome import Tally
from safedelete.testing import Lab

B = "acme-uploads"
KEY = "u/1/a.jpg"
uploads = Table(
    "uploads",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("s3_key", String(200), unique=True),
    Column("folder", String(200), index=True),
    Column("etag", String(64)),
)


def purge(target: Rows | S3Prefix) -> Purge:
    return Purge(
        "uploads",
        target,
        schedule="rate(1 day)",
        timeout=timedelta(minutes=5),
        guard=Guard(max_items=100, max_fraction=1.0),
    )


def owning(keys: S3Keys) -> Purge:
    return purge(Rows(uploads, past(uploads.c.expires_at), owns=keys))


PREFIX = purge(S3Prefix(B, "u/", older_than=timedelta(days=7), mode="purge"))
OWNED = owning(S3Keys(B, uploads.c.s3_key, mode="purge"))
WITH_ETAG = owning(S3Keys(B, uploads.c.s3_key, etag=uploads.c.etag, mode="purge"))
BELOW = owning(S3Keys(B, prefix=uploads.c.folder, mode="purge"))


def hidden(lab: Lab) -> str:
    """Put two versions and a marker, a row that owns them, and let a month pass; return the marker's id."""
    etag = ""
    for body in (b"first", b"second"):
        etag = lab.client.put_object(Bucket=B, Key=KEY, Body=body)["ETag"]
    if lab.metadata:
        lab.add(uploads, id=1, expires_at=lab.clock.now(), s3_key=KEY, folder="u/1", etag=etag)
    marker = lab.client.delete_object(Bucket=B, Key=KEY)["VersionId"]
    lab.clock.advance(days=30)
    return marker


def undeleted(lab: Lab, marker: str) -> None:
    lab.client.delete_object(Bucket=B, Key=KEY, VersionId=marker)
    assert lab.client.get_object(Bucket=B, Key=KEY)["Body"].read() == b"second"


def anew(lab: Lab, _: str) -> None:
    lab.client.put_object(Bucket=B, Key=KEY, Body=b"anew")


def left(lab: Lab) -> list[bytes]:
    """Return what each version holds that is still there, newest first; a marker holds nothing."""
    found = lab.client.list_object_versions(Bucket=B)
    assert "DeleteMarkers" not in found
    return [
        lab.client.get_object(Bucket=B, Key=KEY, VersionId=version["VersionId"])["Body"].read()
        for version in found.get("Versions", ())
    ]


def ran(purge_lab: Callable[..., Lab], purge: Purge, back: Callable[[Lab, str], None]) -> tuple[Lab, Tally]:
    lab = purge_lab(purge)
    marker = hidden(lab)
    return lab, lab.run(purge, between=lambda: back(lab, marker)).total


def test_of_a_listed_key_that_was_undeleted_the_sealed_versions_go_all_the_same(
    purge_lab: Callable[..., Lab],
) -> None:
    lab, total = ran(purge_lab, PREFIX, undeleted)
    assert left(lab) == []
    assert (total.failed, total.unknown, total.changed) == (0, 0, 0)


def test_of_a_listed_key_that_was_written_anew_the_sealed_versions_go_and_the_new_one_stays(
    purge_lab: Callable[..., Lab],
) -> None:
    lab, total = ran(purge_lab, PREFIX, anew)
    assert left(lab) == [b"anew"]
    assert (total.deleted, total.failed, total.unknown) == (3, 0, 0)


@pytest.mark.parametrize("back", [undeleted, anew])
def test_an_owned_key_goes_with_its_row_as_it_is_then(
    purge_lab: Callable[..., Lab], back: Callable[[Lab, str], None]
) -> None:
    lab, total = ran(purge_lab, OWNED, back)
    assert left(lab) == []
    assert lab.rows(uploads) == []
    assert total.deleted == 1


def test_an_owned_key_whose_etag_the_row_knows_goes_undeleted_and_stays_written_anew(
    purge_lab: Callable[..., Lab],
) -> None:
    lab, total = ran(purge_lab, WITH_ETAG, undeleted)
    assert (left(lab), lab.rows(uploads), total.deleted) == ([], [], 1)
    lab.stop()
    lab, total = ran(purge_lab, WITH_ETAG, anew)
    assert (lab.rows(uploads)[0]["id"], total.changed) == (1, 1)
    versions = lab.client.list_object_versions(Bucket=B)
    assert (len(versions["Versions"]), len(versions["DeleteMarkers"])) == (3, 1)


def test_what_lies_below_an_owned_prefix_goes_undeleted_and_stays_with_its_row_written_anew(
    purge_lab: Callable[..., Lab],
) -> None:
    lab, total = ran(purge_lab, BELOW, undeleted)
    assert (left(lab), lab.rows(uploads), total.deleted) == ([], [], 1)
    lab.stop()
    lab, total = ran(purge_lab, BELOW, anew)
    assert (lab.rows(uploads)[0]["id"], total.changed) == (1, 1)
    versions = lab.client.list_object_versions(Bucket=B)
    assert (len(versions["Versions"]), len(versions["DeleteMarkers"])) == (3, 1)
