"""What a person is told to look at: each line says both of the things it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from safedelete.cli import text
from safedelete.cli.differs import UNSEEN, differences
from safedelete.cli.look import attention, sentences
from safedelete.core.decision import Approved, Measure, Refused
from safedelete.core.plan import Plan
from safedelete.core.run import RunState
from safedelete.ports import RunRecord
from tests.cli.runs import PERIOD, START, nights, plan_of


def looked_at(plan: Plan, past: Sequence[RunRecord]) -> dict[str, str]:
    """The lines that compare, by what they compare."""
    lines = attention(plan, Refused(plan=plan), past)
    return {
        word: line.partition(": ")[2]
        for line in lines
        for word in ("cutoff", "definition", "clock")
        if line.startswith(f"  {word}: ")
    }


def with_cutoff(plan: Plan, **moved: float) -> Plan:
    (target,) = plan.targets
    assert target.cutoff is not None
    return replace(plan, targets=(replace(target, cutoff=target.cutoff + timedelta(**moved)),))


@pytest.mark.parametrize(
    ("moved", "said"),
    [
        ({}, "so it moved 1.00 days on"),
        ({"days": 81}, "so it moved 82.00 days on"),
        ({"days": -4}, "so it moved 3.00 days back"),
        ({"days": -1, "hours": -3}, "so it moved 3.00 hours back"),
        ({"days": -1, "seconds": 20}, "so it moved 20 seconds on"),
    ],
)
def test_the_cutoff_line_says_how_far_it_moved_and_which_way(moved: dict[str, float], said: str) -> None:
    assert looked_at(with_cutoff(plan_of(12, 5), **moved), nights(12))["cutoff"].endswith(said)


@pytest.mark.parametrize(
    ("period", "said"),
    [
        (timedelta(days=90), "(90 days)"),
        (timedelta(days=1), "(1 day)"),
        (timedelta(hours=36), "(1.5 days)"),
        (timedelta(hours=1), "(1 hour)"),
        (timedelta(minutes=20), "(20 minutes)"),
        (timedelta(seconds=5), "(5 seconds)"),
    ],
)
def test_a_retention_below_a_day_is_not_told_in_fractions_of_one(period: timedelta, said: str) -> None:
    plan = plan_of(12, 5)
    (target,) = plan.targets
    plan = replace(plan, targets=(replace(target, period=period),))
    assert said in looked_at(plan, ())["cutoff"]


def test_the_clock_is_held_against_the_last_run_that_succeeded() -> None:
    past = nights(12)
    for number, state in ((0, RunState.FAILED), (1, RunState.REFUSED), (2, RunState.EXPIRED)):
        past[number] = replace(past[number], state=state)
    said = looked_at(plan_of(12, 5), past)
    assert said["clock"] == (
        f"planned at 2026-06-13 03:15:00Z, 4.00 days after the last successful run ({past[3].run})"
    )
    assert said["definition"] == f"unchanged since run {past[3].run}"


def test_a_clock_that_went_backwards_is_told_with_both_instants_to_the_second() -> None:
    past = nights(12)
    plan = replace(plan_of(12, 5), as_of=START + timedelta(days=11, seconds=-30))
    said = looked_at(plan, past)["clock"]
    assert said == (
        f"planned at 2026-06-12 03:14:30Z, 23.99 hours after the last successful run ({past[1].run}); "
        f"but run {past[0].run} has succeeded at 2026-06-12 03:15:00Z, 30 seconds LATER than that"
    )
    assert "LATER" not in looked_at(plan_of(12, 5), past)["clock"]


def test_a_changed_definition_is_said_line_by_line() -> None:
    past = nights(3)
    plan = plan_of(3, 5)
    (target,) = plan.targets
    plan = replace(plan, fingerprint="g", targets=(replace(target, period=timedelta(days=9)),), portion=500)
    lines = attention(plan, Refused(plan=plan), past)
    start = lines.index(f"  definition: CHANGED since run {past[0].run}")
    assert lines[start + 1 : start + 3] == [
        "    login_events: the retention was 90 days, is 9 days",
        "    per_run was none, is 500",
    ]


def test_differences_name_what_changed_and_nothing_else() -> None:
    then = plan_of(1, 5)
    (target,) = then.targets
    target = replace(target, statement="t.at < %(sd_past_at_0)s AND t.kind = %(kind_1)s")
    values = {"sd_past_at_0": "2026-06-02T03:15:00+00:00", "kind_1": "draft"}
    then = replace(then, targets=(replace(target, parameters=values),))

    def now(**changes: object) -> Plan:
        return replace(then, targets=(replace(then.targets[0], **changes),))  # type: ignore[arg-type]

    assert differences(then, then) == [UNSEEN]
    aged = now(
        period=PERIOD / 2,
        statement="t.at < %(sd_older_than_at_3888000)s AND t.kind = %(kind_1)s",
        parameters={"sd_older_than_at_3888000": "2026-04-18T03:15:00+00:00", "kind_1": "draft"},
    )
    assert differences(then, aged) == ["login_events: the retention was 90 days, is 45 days"]
    assert differences(then, now(parameters=values | {"kind_1": "final"})) == [
        "login_events: :kind_1 was draft, is final"
    ]
    lost = now(statement="t.at < %(sd_past_at_0)s", parameters={"sd_past_at_0": values["sd_past_at_0"]})
    assert differences(then, lost) == [
        "login_events: the predicate was t.at < %(sd_past_at_0)s AND t.kind = %(kind_1)s",
        "login_events: the predicate is  t.at < %(sd_past_at_0)s",
        "login_events: :kind_1 was draft, is not there",
    ]
    assert differences(then, now(name="logins")) == [
        "login_events is no target any more",
        "logins is a new target",
    ]
    assert differences(replace(then, portion=1_000), then) == ["per_run was 1,000, is none"]


def test_the_day_in_the_statement_of_a_prefix_is_no_difference() -> None:
    then = plan_of(1, 5)
    (target,) = then.targets
    words = "objects under s3://acme/tmp/ last modified before "
    then, now = (
        replace(then, targets=(replace(target, kind="objects", statement=words + at),))
        for at in ("2026-06-02T03:15:00+00:00", "2026-06-03T03:15:00.123456+00:00")
    )
    assert differences(then, now) == [UNSEEN]


@pytest.mark.parametrize(("kind", "place"), [("rows", "table"), ("objects", "prefix")])
def test_a_share_is_of_the_table_or_of_the_prefix(kind: str, place: str) -> None:
    plan = plan_of(1, 5)
    plan = replace(plan, targets=(replace(plan.targets[0], kind=kind),))  # type: ignore[arg-type]
    measure = Measure(target="login_events", measure="items", tonight=5, share=0.5, rule="floor", limit=9)
    ((_, said),) = sentences(Approved(plan=plan, measures=(measure,)))
    assert said == f"tonight 5 {kind} (50.0% of the {place}); limit 9 (floor); go"
    assert f"(50.0% of the {place})" in text.decision(Approved(plan=plan, measures=(measure,)))


def test_on_a_backlog_what_is_left_over_is_not_called_a_forecast() -> None:
    plan = plan_of(1, 500)

    def said(**numbers: float) -> str:
        measure = Measure(
            target="login_events", measure="items", tonight=9_000, limit=9_012, rule="forecast", **numbers
        )
        ((_, sentence),) = sentences(Approved(plan=plan, measures=(measure,)))
        return sentence

    assert "; about 9,000 expected (9,000 left over, no new ones forecast); " in said(
        expected=9_000, forecast=0.2
    )
    assert "; about 9,150 expected (9,000 left over, 150 new ones forecast); " in said(
        expected=9_150, forecast=150
    )
    assert "; 150 forecast; " in said(expected=150, forecast=150)
    assert "; about 150 expected; " in said(expected=150)


def test_where_no_forecast_was_made_it_is_said_so() -> None:
    plan = plan_of(1, 500)
    measure = Measure(
        target="login_events", measure="items", tonight=2_600, limit=2_860, rule="no usable history"
    )
    ((_, said),) = sentences(Approved(plan=plan, measures=(measure,)))
    assert said == "tonight 2,600 rows; no forecast was made; limit 2,860 (no usable history); go"
