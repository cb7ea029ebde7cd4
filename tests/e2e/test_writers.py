"""A writer changes rows in the very moment their objects are being deleted: nothing is ever lost quietly."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import ItemOutcome
from safedelete.s3.store import S3ObjectStore
from tests.e2e.world import World, before_execute, outcomes

NEVER = "2099-01-01 00:00:00"


@contextmanager
def writing_while_objects_go(world: World, statement: str) -> Iterator[threading.Thread]:
    """Start a writer once the objects are deleted and their batch is still open; it runs into the batch's locks."""
    failures: list[BaseException] = []

    def write() -> None:
        try:
            world.sql(statement)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    real = S3ObjectStore.delete

    def hooked(
        self: S3ObjectStore, refs: Sequence[ObjectRef], **options: Any
    ) -> Mapping[ObjectRef, ItemOutcome]:
        answers = real(self, refs, **options)
        if not writer.ident:
            writer.start()
            wait_until_blocked(world, writer)
        return answers

    with mock.patch.object(S3ObjectStore, "delete", hooked):
        yield writer
    writer.join(30)
    assert not writer.is_alive()
    assert failures == []


def wait_until_blocked(world: World, writer: threading.Thread) -> None:
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' "
        "AND query LIKE 'UPDATE uploads%%'"
    )
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if not writer.is_alive() or world.value(waiting):
            return
        time.sleep(0.01)
    raise AssertionError("the writer neither ended nor waits for a lock")


def nothing_was_lost_quietly(world: World, run: str) -> None:
    """A row that is gone has no object, a row that stays has its own, or is told to have lost it."""
    rows, objects, said = world.rows(), world.objects(), outcomes(world.shown(run))
    for number in said:
        if number in rows and number not in objects:
            assert said[number] == ("failed", "dangling"), number
        if number not in rows:
            assert number not in objects, number
    assert set(said) == {1, 2, 3}


@pytest.mark.parametrize("may_lock", [True, False], ids=["row locks", "no UPDATE privilege"])
def test_denied_row_that_is_renewed_in_that_moment_keeps_its_object(pg_world: World, may_lock: bool) -> None:
    world = pg_world
    jobs = world.ready()
    role = world.runner_role(may_lock=may_lock)
    world.cli("plan", jobs, "--preflight", url=role, expect=0)
    with (
        before_execute(lambda: world.store.deny(world.bucket, ["up/000002.bin"])),
        writing_while_objects_go(world, f"UPDATE uploads SET expires_at = '{NEVER}' WHERE id = 2"),
    ):
        ran = world.cli("run", jobs, "--json", url=role, expect=7)
    nothing_was_lost_quietly(world, ran.run)
    assert world.rows() & {1, 2, 3} == world.objects() & {1, 2, 3} == {2}
    assert world.value("SELECT expires_at > '2098-01-01' FROM uploads WHERE id = 2")


@pytest.mark.parametrize("may_lock", [True, False], ids=["row locks", "no UPDATE privilege"])
def test_row_renewed_after_its_object_went_is_deleted_or_told_as_dangling(
    pg_world: World, may_lock: bool
) -> None:
    world = pg_world
    jobs = world.ready()
    role = world.runner_role(may_lock=may_lock)
    with (
        before_execute(lambda: world.store.deny(world.bucket, ["up/000002.bin"])),
        writing_while_objects_go(world, f"UPDATE uploads SET expires_at = '{NEVER}' WHERE id = 1"),
    ):
        ran = world.cli("run", jobs, "--json", url=role, expect=7)
    nothing_was_lost_quietly(world, ran.run)
    assert 2 in world.rows()
    assert 2 in world.objects()
    if may_lock:
        assert outcomes(world.shown(ran.run))[1] == ("deleted", "")


def test_row_held_by_another_transaction_stays_with_its_object(pg_world: World) -> None:
    world = pg_world
    jobs = world.ready()
    with world.engine.connect() as other:
        other.exec_driver_sql("SELECT 1 FROM uploads WHERE id = 2 FOR UPDATE")
        ran = world.cli("run", jobs, "--json", expect=4)
        assert world.rows() & {1, 2, 3} == world.objects() & {1, 2, 3} == {2}
    assert outcomes(world.shown(ran.run))[2] == ("blocked", "locked")
    world.cli("run", jobs, expect=0)
    assert not world.rows() & {1, 2, 3}
    assert not world.objects() & {1, 2, 3}
