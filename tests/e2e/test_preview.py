"""A plan reads, and no more: every statement and every request is looked at on its way out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import sqlalchemy as sa
from botocore.httpsession import URLLib3Session
from sqlalchemy import Engine, event

from safedelete.testing.servers import READER
from tests.e2e.world import World

READS = re.compile(
    r"\s*(SELECT|SHOW|PRAGMA|EXPLAIN|BEGIN|SET LOCAL|WITH|SAVEPOINT|RELEASE|ROLLBACK)\b", re.IGNORECASE
)
WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|TRUNCATE|GRANT|LOCK)\b")


@contextmanager
def watched() -> Iterator[tuple[list[str], list[str]]]:
    """Collect every SQL statement and every HTTP request of this process."""
    statements: list[str] = []
    requests: list[str] = []

    def executed(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    real = URLLib3Session.send

    def send(self: Any, request: Any) -> Any:
        requests.append(f"{request.method} {request.url}")
        return real(self, request)

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        with mock.patch.object(URLLib3Session, "send", send):
            yield statements, requests
    finally:
        event.remove(Engine, "before_cursor_execute", executed)


@pytest.fixture
def reading(world: World) -> sa.URL:
    """The URL of a role that may only read; SQLite has no roles, so its file is opened read-only."""
    world.ready()
    if world.kind == "sqlite":
        return world.url.set(database=f"file:{world.url.database}", query={"mode": "ro", "uri": "true"})
    return world.role(
        "GRANT SELECT ON uploads, safedelete_run, safedelete_batch, safedelete_meta, safedelete_approval, safedelete_notice, safedelete_lease"
    )


def test_plan_works_for_a_role_and_credentials_that_can_only_read_and_writes_nothing(
    world: World, reading: sa.URL
) -> None:
    with watched() as (statements, requests):
        planned = world.cli(
            "plan", world.folder / "jobs.py", "--json", url=reading, identity=READER, expect=0
        )
    assert planned.document[0]["plan"]["targets"][0]["items"] == 3
    assert statements
    assert [s for s in statements if not READS.match(s) or WRITES.search(s)] == []
    strange = [r for r in requests if not r.startswith(("GET ", "HEAD "))]
    # Asking who one is goes to STS, by POST, and changes nothing.
    assert [r for r in strange if "sts" not in r and f"/{world.bucket}" in r] == []


def test_plan_of_a_prefix_lists_and_writes_nothing(world: World, reading: sa.URL) -> None:
    jobs = world.jobs(source=PREFIX, name="prefix.py")
    with watched() as (statements, requests):
        world.cli("plan", jobs, url=reading, identity=READER)
    assert any("list-type=2" in r for r in requests)
    assert [s for s in statements if not READS.match(s) or WRITES.search(s)] == []
    assert [r for r in requests if not r.startswith(("GET ", "HEAD ")) and f"/{world.bucket}" in r] == []


def test_the_watcher_sees_a_run_delete(world: World) -> None:
    jobs = world.ready()
    with watched() as (statements, requests):
        world.cli("run", jobs, expect=0)
    assert any(WRITES.search(s) for s in statements)
    assert any(r.startswith("POST ") and "?delete" in r for r in requests)


def test_plan_with_permission_proofs_and_a_dry_run_keep_every_row_and_object(world: World) -> None:
    jobs = world.ready()
    world.cli("plan", jobs, "--preflight", expect=0)
    world.cli("run", jobs, "--dry-run", expect=0)
    world.cli("check", jobs, expect=0)
    assert world.rows() == world.objects() == set(range(1, 13))
    assert world.cli("history", jobs, "--json", expect=0).document == []


PREFIX = """
from datetime import timedelta

from safedelete import Guard, Purge, S3Prefix

purge = Purge(
    "scratch",
    S3Prefix("BUCKET", "up/", older_than=timedelta(days=1)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=5),
)
"""
