"""The rendered S3 statements suffice for a run on a real store that grants its caller nothing else, and are needed."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.deploy.aws.policies import bucket_statements
from safedelete.loader import load
from safedelete.testing.servers import NOBODY, SeaweedFS
from tests.backends import GivenS3
from tests.e2e.world import Ended, run_here

PREFIX = """
from datetime import timedelta
from safedelete import Guard, Purge, S3Prefix

purge = Purge(
    "scratch", S3Prefix("BUCKET", "tmp/", older_than=timedelta(microseconds=1)OPTIONS),
    schedule="15 4 * * *", timeout=timedelta(minutes=5), guard=Guard(max_items=100, min_age=None),
)
"""

ROWS = """
from datetime import timedelta
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table
from safedelete import Guard, Purge, Rows, S3Keys, past

uploads = Table(
    "uploads", MetaData(), Column("id", Integer, primary_key=True), Column("at", DateTime, index=True),
    Column("key", String(99), unique=True),
)
purge = Purge(
    "uploads", Rows(uploads, past(uploads.c.at), owns=S3Keys("BUCKET", uploads.c.keyOPTIONS)),
    schedule="15 4 * * *", timeout=timedelta(minutes=5), guard=Guard(max_items=100),
)
"""


class Site:
    """A bucket that its caller may use by a bucket policy alone, and a database."""

    case: str

    def __init__(
        self, store: SeaweedFS | GivenS3, folder: Path, source: str, *, versioned: bool, options: str
    ) -> None:
        self.store, self.bucket = store, f"sd-{secrets.token_hex(6)}"
        store.create_bucket(self.bucket, versioned=versioned)
        self.admin: Any = store.client()
        self.path = folder / "jobs.py"
        self.path.write_text(source.replace("BUCKET", self.bucket).replace("OPTIONS", options))
        self.purge = load(self.path).one(None)
        self.statements = bucket_statements(self.purge)
        url = f"sqlite:///{folder / 'db.sqlite3'}"
        self.env = {
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_ACCESS_KEY_ID": NOBODY.access_key,
            "AWS_SECRET_ACCESS_KEY": NOBODY.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAFEDELETE_DATABASE_URL": url,
            "SAFEDELETE_ENVIRONMENT": "test",
        }
        self.engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        if source is ROWS:
            self.purge.targets[0].table.metadata.create_all(self.engine)  # type: ignore[union-attr]
        self.fill(source is ROWS)
        assert self.cli("init", str(self.path)).code == 0

    def fill(self, rows: bool) -> None:
        for number in range(3):
            self.admin.put_object(Bucket=self.bucket, Key=f"tmp/{number}.bin", Body=b"x")
        if rows:
            with self.engine.begin() as connection:
                connection.exec_driver_sql(
                    "INSERT INTO uploads SELECT value, datetime('now', (value / 3 * 24 - 1) || ' hours'), "
                    "'tmp/' || value || '.bin' FROM (SELECT 0 AS value UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 "
                    "UNION SELECT 4 UNION SELECT 5)"
                )

    def allow(self, statements: list[dict[str, Any]]) -> None:
        policy = {
            "Version": "2012-10-17",
            "Statement": [{**one, "Principal": {"AWS": [NOBODY.arn]}} for one in statements],
        }
        self.admin.put_bucket_policy(Bucket=self.bucket, Policy=json.dumps(policy))

    def cli(self, *arguments: str) -> Ended:
        return run_here(arguments, self.env)

    def left(self) -> int:
        found = self.admin.list_object_versions(Bucket=self.bucket)
        return len(found.get("Versions", ())) + len(found.get("DeleteMarkers", ()))


CASES = {
    "prefix": (PREFIX, False, ""),
    "prefix, every version": (PREFIX, True, ', mode="purge"'),
    "keys": (ROWS, False, ""),
}


@pytest.fixture(params=CASES)
def site(request: pytest.FixtureRequest, seaweed: SeaweedFS | GivenS3, tmp_path: Path) -> Iterator[Site]:
    source, versioned, options = CASES[request.param]
    site = Site(seaweed, tmp_path, source, versioned=versioned, options=options)
    site.case = request.param
    yield site
    site.store.lift(site.bucket)
    site.engine.dispose()


def without(statements: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the statements without each of their actions in turn."""
    for number, one in enumerate(statements):
        for action in one["Action"]:
            fewer = deepcopy(statements)
            fewer[number]["Action"].remove(action)
            yield action, [left for left in fewer if left["Action"]]


NOT_FELT: dict[str, dict[str, str]] = {
    "prefix": {},
    "prefix, every version": {
        "s3:GetReplicationConfiguration": "SeaweedFS asks for s3:ListBucket in its place",
    },
    "keys": {"s3:ListBucket": "SeaweedFS answers 404, as AWS does not, to whoever may not list"},
}


def test_a_run_succeeds_with_the_rendered_statements_and_each_is_needed(site: Site) -> None:
    for action, fewer in without(site.statements):
        site.allow(fewer)
        ended = site.cli("check", str(site.path))
        # Denied by the preflight, or by a listing before it; never clear.
        assert (ended.code in (7, 9)) is (action not in NOT_FELT[site.case]), (
            action,
            ended.code,
            ended.out,
            ended.said,
        )
    site.allow(site.statements)
    done = site.cli("run", str(site.path), "--json")
    if done.code == 3:
        # The first run of a prefix waits for an approval.
        run = done.run
        approved = site.cli("approve", run, "--file", str(site.path), "--reason", "first")
        assert approved.code == 0, approved.err
        done = site.cli("execute", run, "--file", str(site.path), "--json")
    assert done.code == 0, (done.out, done.err)
    assert site.left() == 0
