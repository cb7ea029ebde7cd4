"""What a process holds is not looked at again and again while a run lasts, and is collected as ever afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from safedelete.core.run import RunState
from safedelete.runner import purge
from safedelete.runner.heap import OWN, settled_heap
from safedelete.testing.memory import Call
from tests.worlds import World


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    assert gc.get_freeze_count() <= OWN
    yield
    gc.unfreeze()


def test_what_was_alive_before_a_run_is_left_out_of_collections_until_its_end() -> None:
    seen: list[int] = []

    def look(_: Call) -> None:
        seen.append(gc.get_freeze_count())

    report = purge.run(World().process(at=look).ctx)
    assert report.total.deleted == 6
    assert min(seen) > OWN
    assert gc.get_freeze_count() <= OWN


def test_a_run_that_ends_by_an_error_leaves_the_heap_as_it_found_it() -> None:
    def fail(_: Call) -> None:
        raise RuntimeError("the store is on fire")

    with pytest.raises(RuntimeError):
        purge.run(World().process(at=fail).ctx)
    assert gc.get_freeze_count() <= OWN


def test_saving_and_executing_a_plan_settle_the_heap_as_well() -> None:
    seen: list[int] = []

    def look(_: Call) -> None:
        seen.append(gc.get_freeze_count())

    world = World()
    saved = purge.save(world.process(at=look).ctx)
    assert saved.state is RunState.PENDING
    assert min(seen) > OWN
    seen.clear()
    assert purge.execute_sealed(world.process(at=look).ctx, str(saved.run)).total.deleted == 6
    assert min(seen) > OWN


def test_a_host_that_has_frozen_its_own_heap_keeps_it_frozen() -> None:
    gc.freeze()
    theirs = gc.get_freeze_count()
    purge.run(World().process().ctx)
    assert OWN < gc.get_freeze_count() <= theirs
    with settled_heap():
        pass
    assert OWN < gc.get_freeze_count() <= theirs
