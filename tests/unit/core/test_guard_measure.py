"""What a measure says: the lowest limit of all, and a verdict that is the plan's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from safedelete.core.limits import Guard
from safedelete.core.plan import Cascade, Plan, Unknown
from safedelete.core.say import sentence
from tests.unit.core.guard_cases import (
    DAY,
    KEEP,
    START,
    ages,
    approved,
    look,
    measure,
    nightly,
    plan,
    ran,
    target,
    the,
)

USUAL = nightly([100] * 30)


@pytest.mark.parametrize(
    ("limits", "limit", "rule"),
    [
        (Guard(max_items=120), 120, "max_items"),
        (Guard(max_fraction=0.0001), 100, "max_fraction"),
        (Guard(max_items=120, max_fraction=0.0001), 100, "max_fraction"),
        (Guard(max_items=1_000_000), 160, "floor"),
    ],
    ids=["max_items", "max_fraction", "the lower", "looser than usual"],
)
def test_the_limit_that_is_said_is_the_lowest_of_all(limits: Guard, limit: float, rule: str) -> None:
    said = measure(look(plan(30, 90), USUAL, limits))
    assert said.limit == pytest.approx(limit, rel=0.1)
    assert said.rule == rule


def test_a_declared_limit_on_a_portion_is_not_one_on_the_whole() -> None:
    said = measure(look(plan(30, 100, eligible=130, portion=100), USUAL, Guard(max_items=100)))
    assert said.rule != "max_items"


@pytest.mark.parametrize(
    ("tonight", "limits"),
    [
        (plan(30, 100), Guard(max_items=99)),
        (plan(30, 100), Guard(max_fraction=0.00001)),
        (plan(30, 100, bytes=9), Guard(max_bytes=8)),
        (plan(30, 100, fingerprint="two"), Guard()),
        (plan(30, 100, cutoff=START + 30 * DAY - KEEP + timedelta(hours=2)), Guard()),
        (plan(30, 100, objections=("a column names nothing",)), Guard()),
        (plan(30, 100), Guard(min_age=2 * KEEP)),
    ],
    ids=["SD101", "SD102", "SD103", "SD110", "SD111", "SD115", "SD116"],
)
def test_no_sentence_of_a_plan_that_is_refused_ends_in_go(tonight: Plan, limits: Guard) -> None:
    decision = look(tonight, USUAL, limits)
    assert not approved(decision)
    which = "bytes" if limits.max_bytes else "items"
    assert sentence(measure(decision, which)).endswith("; STOP")


def test_a_cascade_above_max_items_says_stop_and_so_does_a_plan_that_is_refused_as_a_whole() -> None:
    taking = (Cascade("lines", "delete", 500),)
    history = nightly([100] * 30, cascades=taking)
    decision = look(plan(30, 100, cascades=taking), history, Guard(max_items=400))
    assert measure(decision, "cascade").verdict == "stop"
    assert measure(decision).verdict == "ok"
    other = look(plan(30, 100, cascades=taking, fingerprint="two"), history)
    assert (measure(other).verdict, measure(other, "cascade").verdict) == ("stop", "ok")


def test_what_a_target_is_refused_for_is_told_by_its_items_alone() -> None:
    history = nightly([100] * 30, objects=200, bytes=1_000)
    decision = look(plan(30, 100, objects=200, bytes=1_000), history, Guard(max_items=99))
    assert {m.measure: m.verdict for m in decision.measures} == {
        "items": "stop",
        "objects": "ok",
        "bytes": "ok",
    }


def test_the_limit_on_bytes_that_is_said_is_the_lower() -> None:
    history = nightly([100] * 30, bytes=1_000)
    assert (
        measure(look(plan(30, 100, bytes=1_000), history, Guard(max_bytes=1_200)), "bytes").rule
        == "max_bytes"
    )
    assert (
        measure(look(plan(30, 100, bytes=1_000), history, Guard(max_bytes=10**9)), "bytes").rule
        != "max_bytes"
    )


def test_a_target_that_is_not_refused_itself_says_go_beside_one_that_is() -> None:
    both = [target(30, name="events"), target(30, 5_000, name="logs")]
    history = [ran(plan(n, targets=[target(n, name="events"), target(n, name="logs")])) for n in range(30)]
    decision = look(plan(30, targets=both), history)
    assert {m.target: m.verdict for m in decision.measures} == {"events": "ok", "logs": "stop"}


def test_runs_that_do_not_count_are_not_called_none_at_all() -> None:
    once = [ran(plan(0, 100, ages=ages(100)), teaches=0)]
    found = the(look(plan(1, 100, fingerprint="two", ages=ages(100)), once), "SD304")
    assert "none of 1 earlier run can be compared with" in found.message
    assert "no earlier run to compare with" in the(look(plan(1, 100, ages=ages(100))), "SD304").message


def test_coming_days_stand_in_for_nothing_where_earlier_runs_say_what_is_usual() -> None:
    decision = look(plan(30, 150, ages=ages(100_000)), USUAL)
    assert "SD304" not in {f.code for f in decision.findings}
    assert measure(decision).expected == 100


def test_what_the_last_run_alone_saw_coming_makes_no_room_for_most_of_the_table() -> None:
    seen = [ran(plan(n, 100, total=10_000, ages=ages(100))) for n in range(29)]
    seen.append(ran(plan(29, 100, total=10_000, ages=ages([6_000, *[100] * 20]))))
    decision = look(plan(30, 6_000, total=10_000), seen)
    assert {f.code for f in decision.findings if f.severity == "refuse"} == {"SD211", "SD114"}


def test_what_is_left_over_is_beside_the_share_of_the_table() -> None:
    history = nightly([1_000] * 29, total=10_000)
    history.append(ran(plan(29, 1_100, total=10_000), deleted=1_000))
    said = measure(look(plan(30, 550, total=1_000), history))
    assert (said.limit, said.rule) == (600, "share of table")


def test_a_peak_that_a_week_of_runs_saw_coming_is_believed_beyond_the_usual_volume() -> None:
    def seen(night: int) -> list[int]:
        coming = [100] * 30
        if night > 0:
            coming[30 - night - 1] = 1_000
        return coming

    history = [ran(plan(n, 100, ages=ages(seen(n)))) for n in range(29)]
    history.append(ran(plan(29, 100, ages=ages([50_000, *[100] * 20]))))
    decision = look(plan(30, 1_000), history)
    assert approved(decision)
    assert measure(decision).rule == "forecast jumped"


def test_a_forecast_that_nothing_bears_out_is_believed_up_to_a_tenth_of_the_table() -> None:
    backlog = ran(plan(0, 5_000, total=10_000, ages=ages([4_000, *[4_000] * 20])))
    decision = look(plan(1, 3_000, total=10_000), [backlog])
    assert {f.code for f in decision.findings if f.severity == "refuse"} == {"SD211"}
    assert measure(decision).limit == 1_000


@pytest.mark.parametrize(
    "odd",
    [{"items": 0, "eligible": 0, "objects": 0}, {"objects": Unknown("timeout")}, {"objects": -1}],
    ids=["nothing taken", "not counted", "damaged"],
)
def test_nights_that_say_nothing_by_the_row_are_left_out_where_a_portion_is_compared_by_the_row(
    odd: dict[str, Any],
) -> None:
    usual = [ran(plan(i, 100, objects=200)) for i in range(30)]
    strange = [ran(plan(30 + i, **{"items": 100, "objects": 200, **odd})) for i in range(3)]
    tonight = plan(33, 50, eligible=100, portion=50, objects=100)
    said = measure(look(tonight, [*usual, *strange]), "objects")
    assert (said.expected, said.runs) == (100, 30)


def test_a_limit_on_bytes_is_none_on_objects() -> None:
    history = nightly([100] * 30, objects=100, bytes=100)
    decision = look(plan(30, 100, objects=100, bytes=100), history, Guard(max_bytes=100))
    assert (measure(decision, "bytes").limit, measure(decision, "bytes").rule) == (100, "max_bytes")
    assert measure(decision, "objects").rule != "max_bytes"
