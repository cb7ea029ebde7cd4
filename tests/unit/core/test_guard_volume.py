"""Layer 3: what earlier runs took."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from safedelete.core.limits import Guard
from safedelete.core.plan import Cascade, Unknown
from tests.unit.core.guard_cases import DAY, approved, codes, look, measure, nightly, plan, ran, target, the

STEADY = [100, 104, 97, 99, 103, 96, 101] * 6
N = len(STEADY)


def test_usual_night_passes_and_says_its_numbers() -> None:
    found = measure(look(plan(N, 100), nightly(STEADY)))
    assert found.verdict == "ok"
    assert (found.runs, found.nights, found.expected) == (N - 1, 1.0, 100)
    assert found.usual_low is not None
    assert found.usual_high is not None
    assert 96 <= found.usual_low < found.usual_high <= 104


@pytest.mark.parametrize(("items", "passes"), [(150, True), (167, True), (169, False), (1000, False)])
def test_steady_job_is_given_the_headroom_its_spread_asks_for(items: int, passes: bool) -> None:
    decision = look(plan(N, items), nightly(STEADY))
    assert approved(decision) is passes
    assert codes(decision) == ([] if passes else ["SD201"])


def test_refusal_holds_every_number() -> None:
    found = the(look(plan(N, 1000), nightly(STEADY)), "SD201")
    assert found.numbers["items"] == 1000
    assert found.numbers["expected"] == 100
    assert found.numbers["rule"] == "floor"
    assert 150 < float(found.numbers["limit"] or 0) < 250


def test_weekday_is_held_against_its_own_kind() -> None:
    week = [5000, 100, 100, 100, 100, 100, 100]
    history = nightly(week * 6)
    assert approved(look(plan(42, 5000), history))
    assert codes(look(plan(43, 5000), [*history, ran(plan(42, 5000))])) == ["SD201"]


def test_night_that_covers_three_may_take_three_times_as_much() -> None:
    history = nightly(STEADY)
    assert approved(look(plan(N + 2, 300), history))
    assert measure(look(plan(N + 2, 300), history)).expected == pytest.approx(300, rel=0.02)
    assert not approved(look(plan(N, 300), history))


def test_night_after_a_refusal_covers_both_and_is_not_refused_for_that() -> None:
    refused = ran(plan(N, 5000), state="refused", deleted=0)
    assert approved(look(plan(N + 1, 200), [*nightly(STEADY), refused]))


def test_end_of_month_batch_is_refused_at_most_where_it_was_never_seen() -> None:
    # Night 0 is 2026-01-05, ninety days after 2025-10-07: night 24 is the first end of a month by its cutoff.
    days = [plan(i) for i in range(120)]
    ends = {i for i, p in enumerate(days) if (p.targets[0].cutoff - DAY / 2 + DAY).day == 1}  # type: ignore[operator]
    counts = [500 if i in ends else 100 for i in range(120)]
    refused = [i for i in sorted(ends) if not approved(look(plan(i, 500), nightly(counts[:i])))]
    assert len(ends) >= 3
    assert refused == []


def test_batch_in_the_middle_of_the_month_is_known_after_it_was_accepted_once() -> None:
    counts = [100] * 60
    counts[10] = counts[41] = 900
    history = nightly(counts)
    day = plan(71).targets[0].cutoff
    assert day is not None
    third = next(
        i
        for i in range(62, 90)
        if (plan(i).targets[0].cutoff or day).day == (plan(10).targets[0].cutoff or day).day
    )
    assert approved(look(plan(third, 900), [*history, *nightly([100] * (third - 60), first=60)]))
    other = nightly([*[100] * (third - 60), 900], first=60)
    assert codes(look(plan(third + 1, 900), [*history, *other])) == ["SD201"]


def test_catch_up_after_a_quiet_night_passes() -> None:
    history = nightly([*STEADY, 10])
    assert approved(look(plan(N + 1, 190), history))
    found = measure(look(plan(N + 1, 290), history))
    assert (found.rule, found.verdict) == ("after a quiet night", "ok")


def test_small_counts_are_noise_up_to_three_standard_deviations() -> None:
    history = nightly([3] * 60)
    assert approved(look(plan(60, 8), history))
    assert measure(look(plan(60, 8), history)).rule == "small counts"
    assert codes(look(plan(60, 30), history)) == ["SD201"]


def test_one_bad_night_that_slipped_through_moves_nothing() -> None:
    clean = measure(look(plan(60), nightly([100] * 60))).limit
    counts = [100] * 60
    counts[40] = 2000
    dirty = measure(look(plan(60), nightly(counts))).limit
    assert clean is not None
    assert dirty is not None
    assert dirty <= 1.01 * clean


def test_usual_counts_twice_and_one_off_never() -> None:
    def limit(teaches: int) -> float:
        history = nightly([100] * 40)
        history[30] = ran(plan(30, 400), teaches=teaches)
        return measure(look(plan(40), history)).limit or 0.0

    assert limit(0) == pytest.approx(limit(1), rel=0.02)
    assert limit(2) > 2 * limit(1)


@pytest.mark.parametrize(
    "state", ["refused", "failed", "incomplete", "interrupted", "cancelled", "pending", "odd"]
)
def test_only_runs_that_succeeded_teach(state: str) -> None:
    history = nightly([100] * 30)
    others = [ran(plan(30 + i, 4000), state=state, deleted=0) for i in range(20)]
    assert measure(look(plan(50, 100), [*history, *others])) == measure(look(plan(50, 100), history))


def test_runs_of_another_purge_do_not_teach() -> None:
    other = nightly([9000] * 30, job="other")
    assert codes(look(plan(30, 9000), other)) == ["SD200"]


def test_nights_with_nothing_teach_nothing_but_are_remembered_for_too_few() -> None:
    history = nightly([100, 100, 100, 0] * 10)
    found = look(plan(40, 100), history)
    assert measure(found).expected == 100
    assert codes(look(plan(40, 0), history), "warn") == []


def test_far_too_few_warns_or_refuses_as_declared() -> None:
    history = nightly(STEADY)
    assert codes(look(plan(N, 5), history), "warn") == ["SD206"]
    assert approved(look(plan(N, 5), history))
    strict = look(plan(N, 5), history, Guard(too_few="refuse"))
    assert codes(strict) == ["SD206"]
    assert not approved(strict)
    assert codes(look(plan(N, 90), history, Guard(too_few="refuse"))) == []


def test_zero_where_zero_never_was_is_far_too_few() -> None:
    assert codes(look(plan(N, 0), nightly(STEADY), Guard(too_few="refuse"))) == ["SD206"]


def test_what_a_run_that_failed_half_way_deleted_is_not_missing() -> None:
    failed = ran(plan(N, 100), state="failed", deleted=95)
    strict = Guard(too_few="refuse")
    assert codes(look(plan(N + 1, 15), [*nightly(STEADY), failed], strict)) == []
    assert codes(look(plan(N + 1, 15), nightly(STEADY), strict)) == ["SD206"]


def test_slow_creep_warns_once_it_is_four_times_as_much() -> None:
    counts = [round(100 * 1.025**i) for i in range(100)]
    assert codes(look(plan(100, counts[-1]), nightly(counts)), "warn") == ["SD302"]
    assert codes(look(plan(100, 110), nightly([100] * 50 + [110] * 50)), "warn") == []


@pytest.mark.parametrize(
    ("kind", "code", "usual", "tonight"),
    [
        ("objects", "SD202", {"objects": 200}, {"objects": 2000}),
        ("bytes", "SD203", {"bytes": 10**9}, {"bytes": 10**10}),
        (
            "cascade",
            "SD204",
            {"cascades": (Cascade("lines", "set null", 300),)},
            {"cascades": (Cascade("lines", "set null", 3000),)},
        ),
    ],
)
def test_objects_bytes_and_cascades_have_a_baseline_of_their_own(
    kind: str, code: str, usual: dict[str, object], tonight: dict[str, object]
) -> None:
    history = nightly([100] * 30, **usual)
    assert codes(look(plan(30, 100, **usual), history)) == []
    decision = look(plan(30, 100, **tonight), history)
    assert codes(decision) == [code]
    assert measure(decision, kind).verdict == "stop"
    assert measure(decision).verdict == "ok"


def test_cascade_into_a_table_that_no_run_touched_refuses_above_noise() -> None:
    history = nightly([100] * 30)
    few = look(plan(30, cascades=(Cascade("audit", "delete", 20),)), history)
    many = look(plan(30, cascades=(Cascade("audit", "delete", 21),)), history)
    assert codes(few) == []
    assert codes(many) == ["SD204"]
    assert "no earlier run that counts did" in the(many, "SD204").message


def test_parts_of_one_cascaded_table_add_up_and_blocked_rows_are_not_taken() -> None:
    parts = (Cascade("lines", "delete", 50), Cascade("lines", "delete", 70), Cascade("holds", "block", 9000))
    decision = look(plan(30, cascades=parts), nightly([100] * 30, cascades=parts))
    assert measure(decision, "cascade").tonight == 120


def test_objects_under_a_prefix_are_counted_once() -> None:
    history = nightly([100] * 20, kind="objects", objects=100)
    decision = look(plan(20, 100, kind="objects", objects=100), history)
    assert [m.measure for m in decision.measures] == ["items"]


def test_history_may_have_gaps_duplicates_and_damage() -> None:
    history = nightly(STEADY)
    damaged = [
        ran(plan(9, -7), run="negative"),
        ran(plan(18, 10**40), run="absurd"),
        ran(plan(27, Unknown("lost")), run="unknown"),
        replace(history[6], run="naive", plan=replace(history[6].plan, as_of=datetime(2026, 1, 6))),
        history[7],
        history[7],
    ]
    holes = [p for i, p in enumerate(history) if i % 9]
    decision = look(plan(N, 100), [*holes, *damaged])
    assert approved(decision)
    assert the(decision, "SD308").numbers["entries"] == 6
    assert measure(decision).limit == pytest.approx(measure(look(plan(N, 100), holes)).limit, rel=0.2)


def test_twins_that_differ_are_one_run_whatever_their_order() -> None:
    history = nightly(STEADY)
    twin = ran(plan(10, 99_000), run=history[10].run)
    one = look(plan(N, 100), [*history, twin])
    two = look(plan(N, 100), [twin, *history[::-1]])
    assert one.measures == two.measures


def test_runs_of_an_older_definition_still_say_how_much_is_usual() -> None:
    history = [*nightly([100] * 30, fingerprint="old"), ran(plan(30, 8000, fingerprint="one"), teaches=0)]
    assert codes(look(plan(31, 100), history)) == []
    assert codes(look(plan(31, 5000), history)) == ["SD201"]


def test_first_run_under_a_new_definition_covers_an_unknown_time_and_is_no_usual_night() -> None:
    history = nightly([100] * 30, fingerprint="old")
    grown = [*history, ran(plan(30, 8000))]
    assert measure(look(plan(31), grown)).limit == pytest.approx(
        measure(look(plan(31), history)).limit, rel=0.5
    )


def test_a_purge_without_a_time_goes_by_its_runs() -> None:
    history = nightly(STEADY, cutoff=None, period=None)
    assert approved(look(plan(N, 100, cutoff=None, period=None), history))
    assert codes(look(plan(N, 1000, cutoff=None, period=None), history)) == ["SD201"]


def test_two_runs_within_the_hour_are_not_a_surge() -> None:
    assert approved(look(plan(N - 1 + 0.04, 30), nightly(STEADY)))


def test_new_table_that_purged_nothing_so_far_may_take_a_tenth() -> None:
    history = nightly([0] * 20)
    assert approved(look(plan(20, 90, total=1000), history))
    decision = look(plan(20, 101, total=1000), history)
    assert codes(decision) == ["SD201"]
    assert measure(decision).rule == "no usable history"


def test_target_of_the_same_name_elsewhere_in_the_plan_is_found() -> None:
    history = [ran(plan(i, targets=[target(i, 5000, name="a"), target(i, name="events")])) for i in range(20)]
    assert measure(look(plan(20, 100), history)).expected == 100
