"""Every outcome is counted once, and sums of sums are sums."""

from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.outcome import DANGLING, LOCKED, ItemOutcome, Outcome, Tally

OUTCOMES = st.builds(
    ItemOutcome, st.sampled_from(Outcome), st.sampled_from(["", LOCKED, DANGLING, "AccessDenied"])
)


@given(st.lists(OUTCOMES))
def test_every_item_is_counted_exactly_once(outcomes: list[ItemOutcome]) -> None:
    tally = Tally.of(outcomes)
    assert tally.total == len(outcomes)
    for state in Outcome:
        assert getattr(tally, state.value) == sum(o.state is state for o in outcomes)


@given(st.lists(OUTCOMES), st.lists(OUTCOMES), st.lists(OUTCOMES))
def test_tallies_of_batches_add_up_to_the_tally_of_the_run(a: list, b: list, c: list) -> None:
    assert Tally.of(a) + Tally.of(b) + Tally.of(c) == Tally.of([*a, *b, *c])
    assert Tally.of(a) + Tally() == Tally.of(a)


@given(st.lists(OUTCOMES))
def test_only_blocked_rows_are_owed_as_locked(outcomes: list[ItemOutcome]) -> None:
    tally = Tally.of(outcomes)
    assert tally.locked == sum(o.state is Outcome.BLOCKED and o.code == LOCKED for o in outcomes)
    assert tally.locked <= tally.blocked


def test_one_failed_or_unknown_item_is_not_clean() -> None:
    good = [ItemOutcome(s) for s in Outcome if s not in (Outcome.FAILED, Outcome.UNKNOWN)]
    assert Tally.of(good).clean
    assert not Tally.of([*good, ItemOutcome(Outcome.UNKNOWN, "timeout")]).clean
    assert not Tally.of([*good, ItemOutcome(Outcome.FAILED, DANGLING)]).clean


def test_numbers_are_given_in_the_order_of_the_fields() -> None:
    assert Tally(1, 2, 3, 4, 5, 6, 7).as_tuple() == (1, 2, 3, 4, 5, 6, 7)
    assert Tally(1, 2, 3, 4, 5, 6, 7).total == 21
