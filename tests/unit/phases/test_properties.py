"""Whatever the stores answer and the application does in between: the sums match, and only what was sealed goes."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safedelete.core.outcome import ItemOutcome, Outcome, Tally
from safedelete.errors import SafeDeleteError
from safedelete.testing.memory import Policy
from tests.worlds import BUCKET, World, batches_of, on, photo

FATES = st.sampled_from(["", "keep", "remove", "rename", "lock", "refuse", *Policy])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fates=st.lists(FATES, min_size=1, max_size=9),
    size=st.integers(1, 4),
    may_lock=st.booleans(),
    apart=st.booleans(),
)
def test_every_sealed_item_has_one_outcome_and_nothing_else_goes(
    fates: list[str], size: int, may_lock: bool, apart: bool
) -> None:
    world = World(expired=len(fates), may_lock=may_lock, apart=apart)

    def strike() -> None:
        world.add(500)  # eligible, and never sealed
        for number, fate in enumerate(fates):
            act(world, number, fate)

    before = set(world.table.rows)
    looked = False
    with batches_of(size), suppress(SafeDeleteError):
        world.process(at=on("ledger.move", strike, moment="after")).run()
        looked = True  # a run that was stopped has not looked again, so a lie is not found out
    run = world.last().run
    outcomes = world.outcomes(run)
    assert set(outcomes) == set(range(len(fates)))
    assert world.total(run) == Tally.of(outcomes.values())
    assert world.has_row(500)
    assert world.has_object("500.jpg")
    gone = {key[0] for key in before - set(world.table.rows)}
    assert gone <= set(range(len(fates)))
    for number, fate in enumerate(fates):
        if outcomes[number].state is Outcome.DELETED:
            assert not world.has_row(number)
            assert not world.has_object(f"{number}.jpg") or (fate == Policy.LYING and not looked)
        if not world.has_object(f"{number}.jpg") and world.has_row(number) and fate != "rename":
            assert outcomes[number].state in (Outcome.FAILED, Outcome.UNKNOWN)


def act(world: World, number: int, fate: str) -> None:
    key = (number,)
    if fate == "keep":
        world.table.update(key, kept=True)
    elif fate == "remove":
        world.table.remove(key)
    elif fate == "rename":
        world.objects.put(BUCKET, f"{number}.new")
        world.table.update(key, objects=(photo(f"{number}.new"),))
    elif fate == "lock":
        world.table.lock(key)
    elif fate == "refuse":
        world.table.refusals[key] = ItemOutcome(Outcome.BLOCKED, "referenced", "an order names it")
    elif fate:
        world.objects.policies[BUCKET, f"{number}.jpg"] = Policy(fate)
