"""Layer 1: what needs no statistics."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from safedelete.core.findings import FINDINGS
from safedelete.core.guard import decide
from safedelete.core.limits import Guard
from safedelete.core.plan import Cascade, PastRun, Plan, Unknown
from safedelete.errors import ConfigError
from tests.unit.core.guard_cases import (
    DAY,
    KEEP,
    START,
    ages,
    approved,
    codes,
    look,
    measure,
    nightly,
    plan,
    ran,
    target,
    the,
)

USUAL = nightly([100] * 30)
LOST = Unknown("timed out")


@pytest.mark.parametrize(
    ("limits", "changes", "expected"),
    [
        ({"max_items": 100}, {}, []),
        ({"max_items": 99}, {}, ["SD101"]),
        ({"max_fraction": 0.0001}, {}, []),
        ({"max_fraction": 0.000099}, {}, ["SD102"]),
        ({"max_fraction": 0.5}, {"total": LOST}, ["SD100"]),
        ({"max_fraction": 1.0}, {"total": -5}, ["SD100"]),
        ({"max_bytes": 1000}, {"bytes": 1000}, []),
        ({"max_bytes": 999}, {"bytes": 1000}, ["SD103"]),
        ({"max_bytes": 999}, {"bytes": None}, ["SD100"]),
        ({"max_bytes": 999}, {"bytes": LOST}, ["SD100"]),
    ],
)
def test_declared_limit_is_inclusive_and_unknown_breaks_it(
    limits: dict[str, Any], changes: dict[str, Any], expected: list[str]
) -> None:
    decision = look(plan(30, 100, **changes), USUAL, Guard(**limits))
    assert codes(decision) == expected
    assert approved(decision) is not bool(expected)


@pytest.mark.parametrize("field", ["items", "eligible", "objects"])
@pytest.mark.parametrize("value", [LOST, -1, 10**16, True])
def test_a_number_that_is_none_is_never_zero(field: str, value: Any) -> None:
    decision = look(plan(30, **{field: value}), USUAL)
    assert "SD100" in codes(decision)
    assert not approved(decision)


def test_every_broken_limit_is_named_not_only_the_first() -> None:
    limits = Guard(max_items=10, max_fraction=0.00001, max_bytes=5)
    assert codes(look(plan(30, 100, bytes=50), USUAL, limits)) == ["SD101", "SD102", "SD103"]


def test_cascade_is_held_against_max_items_under_its_own_table() -> None:
    cascades = (Cascade("lines", "delete", 60, via="a"), Cascade("lines", "delete", 50, via="b"))
    history = nightly([100] * 30, cascades=cascades)
    decision = look(plan(30, 100, cascades=cascades), history, Guard(max_items=105))
    found = the(decision, "SD101")
    assert (found.target, found.numbers["items"]) == ("lines", 110)


def test_max_items_does_not_count_rows_that_are_only_altered() -> None:
    cascades = (Cascade("lines", "set null", 500),)
    history = nightly([100] * 30, cascades=cascades)
    assert approved(look(plan(30, 100, cascades=cascades), history, Guard(max_items=105)))


@pytest.mark.parametrize("action", ["delete", "set null", "set default", "block"])
def test_cascade_that_could_not_be_counted_refuses(action: Any) -> None:
    cascades = (Cascade("lines", action, LOST), Cascade("lines", "delete", 5))
    decision = look(plan(30, 100, cascades=cascades), USUAL)
    assert codes(decision) == ["SD100"]
    assert "lines" in decision.findings[0].message


def test_a_share_of_what_could_not_be_counted_is_unknown_and_no_defect() -> None:
    decision = look(plan(30, Unknown("timeout")), USUAL, Guard(max_fraction=0.5, max_items=5))
    assert set(codes(decision)) == {"SD100"}


def test_history_that_cannot_be_read_refuses_even_an_empty_plan() -> None:
    decision = look(plan(0, 0), Unknown("ledger is locked"))  # type: ignore[arg-type]
    assert codes(decision) == ["SD100"]
    assert "ledger is locked" in decision.findings[0].message
    assert "Repair the ledger" in decision.findings[0].hint


def test_history_that_cannot_be_read_is_not_called_empty() -> None:
    decision = look(plan(30, 5_000, ages=ages(100)), Unknown("ledger is locked"))  # type: ignore[arg-type]
    assert [f.code for f in decision.findings] == ["SD100"]
    assert (measure(decision).rule, measure(decision).verdict) == ("history not read", "stop")
    assert not any("no earlier run" in f.message for f in decision.findings)


def test_changed_definition_refuses_and_says_what_changed() -> None:
    nine = plan(30, 100, fingerprint="two", cutoff=START + 30 * DAY - 9 * DAY, period=9 * DAY)
    decision = look(nine, USUAL)
    assert codes(decision)[:2] == ["SD110", "SD111"]
    assert "retention 90 days, now 9 days" in the(decision, "SD110").message
    assert the(decision, "SD110").numbers["run"] == "run-29.000"


def test_a_listing_whose_instant_alone_moved_is_no_predicate_that_reads_differently() -> None:
    def prefix(night: int, words: str, days: int, **more: Any) -> Plan:
        cutoff = START + night * DAY - days * DAY
        statement = f"objects under s3://acme/tmp/{words} last modified before {cutoff.isoformat()}"
        return plan(night, cutoff=cutoff, period=days * DAY, statement=statement, kind="objects", **more)

    history = [ran(prefix(n, "", 30)) for n in range(30)]
    shorter = the(look(prefix(30, "", 20, fingerprint="two"), history), "SD110").message
    assert "retention 30 days, now 20 days" in shorter
    assert "reads differently" not in shorter
    wider = the(
        look(prefix(30, " whose key goes on as *.tmp", 30, fingerprint="two"), history), "SD110"
    ).message
    assert "reads differently" in wider


def test_changed_definition_refuses_an_empty_plan_too_or_it_would_pass_unseen_next_time() -> None:
    assert "SD110" in codes(look(plan(30, 0, fingerprint="two"), USUAL))


def test_definition_is_compared_with_the_last_run_that_succeeded() -> None:
    refused = ran(plan(30, 9000, fingerprint="two"), state="refused", deleted=0)
    assert codes(look(plan(31, 100), [*USUAL, refused])) == []
    assert "SD110" in codes(look(plan(31, 100, fingerprint="two"), [*USUAL, refused]))


def test_targets_that_came_and_went_are_named() -> None:
    both = plan(30, fingerprint="two", targets=[target(30, name="lines"), target(30, name="logs")])
    message = the(look(both, USUAL), "SD110").message
    assert "no longer a target: events" in message
    assert "new target: lines, logs" in message


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (timedelta(0), []),
        (timedelta(hours=1), []),
        (timedelta(hours=-1), []),
        (timedelta(hours=1, minutes=1), ["SD111"]),
        (timedelta(hours=-1, minutes=-1), ["SD111"]),
    ],
)
def test_cutoff_moves_with_the_clock_give_or_take_summer_time(shift: timedelta, expected: list[str]) -> None:
    tonight = plan(30, cutoff=START + 30 * DAY - KEEP + shift)
    assert codes(look(tonight, USUAL)) == expected


@pytest.mark.parametrize("beyond", [timedelta(seconds=30), timedelta(microseconds=1)])
def test_a_cutoff_beside_a_full_hour_is_not_that_of_a_date_column(beyond: timedelta) -> None:
    hour = START.replace(minute=0) - KEEP + beyond
    off = plan(1, 100, cutoff=hour + DAY + timedelta(hours=2))
    assert "SD111" in codes(look(off, [ran(plan(0, 100, cutoff=hour))]))
    on_it = plan(1, 100, cutoff=hour - beyond + DAY + timedelta(hours=2))
    assert "SD111" not in codes(look(on_it, [ran(plan(0, 100, cutoff=hour - beyond))]))


def drifting(minutes: int, nights: int) -> list[PastRun]:
    """Return nights whose cutoff moves so many minutes more than the clock, every night."""
    return [
        ran(plan(n, 100, cutoff=START + n * DAY - KEEP + n * timedelta(minutes=minutes)))
        for n in range(nights)
    ]


@pytest.mark.parametrize("minutes", [59, -59, 20])
def test_a_cutoff_that_drifts_by_less_than_an_hour_a_night_is_found_once_it_is_an_hour_off(
    minutes: int,
) -> None:
    nights = 60 // abs(minutes) + 1
    fine, off = drifting(minutes, nights), drifting(minutes, nights + 1)
    assert codes(look(fine[-1].plan, fine[:-1])) == []
    assert codes(look(off[-1].plan, off[:-1])) == ["SD111"]
    assert f"since the run of {START:%Y-%m-%dT%H:%M:%S}" in the(look(off[-1].plan, off[:-1]), "SD111").message


def test_once_a_step_was_accepted_the_cutoff_is_held_against_what_it_was_from_then_on() -> None:
    accepted = drifting(59, 3)
    steady = [ran(plan(n, 100, cutoff=START + n * DAY - KEEP + timedelta(minutes=118))) for n in range(3, 6)]
    assert (
        codes(look(plan(6, 100, cutoff=START + 6 * DAY - KEEP + timedelta(minutes=118)), accepted + steady))
        == []
    )
    back = look(plan(6, 100, cutoff=START + 6 * DAY - KEEP), accepted + steady)
    assert codes(back) == ["SD111"]
    assert "since the last successful run" in the(back, "SD111").message


def test_the_steps_of_clock_and_cutoff_are_told_in_days() -> None:
    off = look(plan(30, 100, cutoff=START + 32 * DAY - KEEP), USUAL)
    assert the(off, "SD111").numbers == {"clock_days": 1.0, "cutoff_days": 3.0}


def test_a_cutoff_of_another_target_is_no_measure() -> None:
    other = [ran(plan(n, targets=[target(n, 100, name="other", cutoff=START)])) for n in range(3)]
    assert "SD111" not in codes(look(plan(3, 100), other))


@pytest.mark.parametrize("total", [Unknown("timeout"), 10**18, -1, 0])
def test_a_night_whose_table_was_not_counted_teaches_no_share(total: Any) -> None:
    history = [*nightly([100] * 30, total=10_000), ran(plan(30, 9_000, total=total), teaches=2)]
    assert "SD114" in codes(look(plan(31, 9_000, total=10_000), history))


def test_a_portion_teaches_no_share_of_the_table() -> None:
    usual = nightly([100] * 30, total=10_000)
    ninety = ran(plan(30, 100, eligible=9_000, total=10_000, portion=100), teaches=2, deleted=9_000)
    assert "SD114" in codes(look(plan(31, 9_000, total=10_000), [*usual, ninety]))
    whole = ran(plan(30, 9_000, total=10_000), teaches=2)
    assert "SD114" not in codes(look(plan(31, 9_000, total=10_000), [*usual, whole]))


def test_cutoff_of_a_date_column_may_move_a_day_at_a_time() -> None:
    midnight = START.replace(hour=0, minute=0) - KEEP
    history = [ran(plan(0, 100, cutoff=midnight)), ran(plan(1, 100, cutoff=midnight + DAY))]
    late = plan(2.9, 100, cutoff=midnight + 2 * DAY)
    assert "SD111" not in codes(look(late, history))
    assert "SD111" in codes(look(plan(2.9, 100, cutoff=midnight + 5 * DAY), history))


def test_cutoff_that_goes_back_is_a_clock_gone_backwards() -> None:
    tonight = plan(30, cutoff=START - KEEP)
    assert codes(look(tonight, USUAL)) == ["SD112", "SD111"]


def test_clock_that_went_backwards_refuses_and_names_the_run() -> None:
    decision = look(plan(10, 100), USUAL)
    found = the(decision, "SD112")
    assert "run-11.000" in found.message
    assert str(found.numbers["runs"]).split(",")[0] == "run-11.000"


def test_run_with_the_wrong_clock_is_left_out_once_a_person_has_said_so() -> None:
    stray = ran(plan(400, 100))
    settled = ran(plan(30, 100), overrules=(stray.run,))
    assert "SD112" in codes(look(plan(31, 100), [*USUAL, stray]))
    assert codes(look(plan(31, 100), [*USUAL, stray, settled])) == []


def test_two_plans_at_one_instant_are_not_a_clock_gone_backwards() -> None:
    assert "SD112" not in codes(look(plan(29, 50), USUAL))


def test_cutoff_in_the_future_refuses_whatever_the_history() -> None:
    tonight = plan(30, cutoff=START + 30 * DAY + timedelta(seconds=1))
    assert "SD113" in codes(look(tonight, USUAL))
    assert "SD113" not in codes(look(plan(30, cutoff=START + 30 * DAY), USUAL))


@pytest.mark.parametrize("total", ["total", "ageless"])
@pytest.mark.parametrize(("of", "expected"), [(200, []), (199, ["SD114"])])
def test_more_than_half_of_the_table_or_of_what_matches_at_any_age_refuses(
    total: str, of: int, expected: list[str]
) -> None:
    assert codes(look(plan(30, 100, **{total: of}), USUAL)) == expected


def test_share_that_was_usual_twice_passes_but_everything_still_refuses() -> None:
    history = nightly([100] * 30, ageless=160)
    assert codes(look(plan(30, 100, ageless=150), history)) == []
    assert codes(look(plan(30, 100, ageless=100), history)) == ["SD114"]


def test_one_large_share_teaches_nothing() -> None:
    history = [*USUAL, ran(plan(30, 100, ageless=110))]
    assert codes(look(plan(31, 100, ageless=150), history)) == ["SD114"]


def test_job_that_always_takes_everything_may_go_on() -> None:
    history = nightly([100] * 30, total=100)
    assert codes(look(plan(30, 100, total=100), history)) == []


def test_empty_table_is_no_share() -> None:
    assert codes(look(plan(30, 0, total=0, ageless=0), nightly([0] * 30, total=0, ageless=0))) == []


@pytest.mark.parametrize("field", ["total", "ageless", "late", "bytes"])
def test_unknown_that_only_loosens_is_told(field: str) -> None:
    decision = look(plan(30, 100, **{field: LOST}), USUAL)
    assert codes(decision, "warn") == ["SD305"]
    assert "timed out" in decision.findings[0].message
    assert approved(decision)


def test_missing_look_ahead_is_told_with_its_reason() -> None:
    decision = look(plan(30, 100, ages=Unknown("no index on created_at")), USUAL)
    assert "no index on created_at" in the(decision, "SD301").message
    assert approved(decision)


def test_uncounted_target_keeps_a_measure_without_a_number() -> None:
    found = measure(look(plan(30, LOST), USUAL))
    assert (found.tonight, found.verdict, found.rule) == (None, "stop", "not counted")


def test_long_gap_is_told() -> None:
    assert codes(look(plan(36.2, 700), USUAL), "warn") == ["SD303"]
    assert codes(look(plan(35.9, 700), USUAL), "warn") == []
    weekly = [ran(plan(7 * i, 700)) for i in range(10)]
    assert codes(look(plan(77, 700), weekly), "warn") == []


@pytest.mark.parametrize(
    "bad",
    [
        {"max_items": 0},
        {"max_items": -1},
        {"max_items": True},
        {"max_bytes": 0},
        {"max_fraction": 0},
        {"max_fraction": 1.01},
        {"max_fraction": -0.1},
        {"too_few": "stop"},
    ],
)
def test_limit_that_could_mean_unlimited_is_no_limit(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Guard(**bad)


def test_each_target_is_judged_by_itself() -> None:
    history = [ran(plan(i, targets=[target(i, name="a"), target(i, 5000, name="b")])) for i in range(20)]
    tonight = plan(20, targets=[target(20, 5000, name="a"), target(20, 100, name="b")])
    decision = look(tonight, history)
    assert [(f.code, f.target) for f in decision.findings] == [("SD201", "a"), ("SD206", "b")]
    assert look(replace(tonight, targets=tonight.targets[::-1]), history).findings[0].target == "a"


def test_clock_finding_does_not_need_a_profile() -> None:
    assert codes(look(plan(30, 100, ages=ages()), USUAL)) == []


@pytest.mark.parametrize(
    ("usual", "tonight", "expected"),
    [
        (160, 134, []),  # 62.5 % twice: a fifth more, 75 %, passes
        (160, 133, ["SD114"]),
        (105, 103, []),  # 95 % twice: 98 % passes, and no more
        (105, 101, ["SD114"]),
    ],
)
def test_learned_share_has_a_fifth_of_room_and_stays_below_everything(
    usual: int, tonight: int, expected: list[str]
) -> None:
    assert codes(look(plan(30, 100, ageless=tonight), nightly([100] * 30, ageless=usual))) == expected


@pytest.mark.parametrize(("rows", "expected"), [(20, []), (19, ["SD114"])])
def test_everything_becomes_usual_only_in_a_table_of_some_size(rows: int, expected: list[str]) -> None:
    history = nightly([rows] * 30, total=rows)
    assert codes(look(plan(30, rows, total=rows), history)) == expected


@pytest.mark.parametrize(("hours", "expected"), [(25, False), (25.5, True)])
def test_date_column_may_lag_a_day_and_the_hour_of_summer_time(hours: float, expected: bool) -> None:
    midnight = START.replace(hour=0, minute=0) - KEEP
    history = [ran(plan(0, 100, cutoff=midnight))]
    assert ("SD111" in codes(look(plan(hours / 24, 100, cutoff=midnight), history))) is expected


def test_message_tells_an_unknown_count_from_an_impossible_one() -> None:
    assert "is -1, which cannot be a count;" in look(plan(30, -1), USUAL).findings[0].message
    assert "is unknown (timed out);" in look(plan(30, LOST), USUAL).findings[0].message
    nothing = look(plan(30, 100), USUAL, Guard(max_bytes=5)).findings[0].message
    assert nothing.endswith("the plan knows no sizes (unknown).")


def test_smaller_of_both_shares_is_the_limit_that_is_told() -> None:
    found = measure(look(plan(30, 90, total=1000, ageless=200), USUAL))
    assert (found.limit, found.rule) == (100, "share of table")
    found = measure(look(plan(30, 90, total=200, ageless=1000), USUAL))
    assert (found.limit, found.rule) == (100, "share of table")


def test_only_two_cutoffs_on_the_full_hour_are_those_of_dates() -> None:
    midnight = START.replace(hour=0, minute=0) - KEEP
    odd = midnight + timedelta(minutes=15)
    for was, now in ((midnight, odd), (odd, midnight)):
        history = [ran(plan(0, 100, cutoff=was))]
        assert "SD111" in codes(look(plan(0.5, 100, cutoff=now), history))


@pytest.mark.parametrize(("minute", "found"), [(15, False), (7, True), (45, True)])
def test_a_day_begins_at_a_quarter_of_some_hours_and_at_no_other_minute(minute: int, found: bool) -> None:
    # A date's cutoff in Nepal may stand for a day, where another one that stands has stopped.
    cutoff = START.replace(hour=18, minute=minute) - KEEP
    assert (
        "SD111" in codes(look(plan(0.5, 100, cutoff=cutoff), [ran(plan(0, 100, cutoff=cutoff))]))
    ) is found


def test_messages_say_of_what_and_how_much() -> None:
    def message(code: str, limits: Guard | None = None, **changes: Any) -> str:
        history = nightly([100] * 30, kind=changes.get("kind", "rows"))
        return the(look(plan(30, 100, **changes), history, limits), code).message

    assert "100 of 150 (66.7% of the table)" in message("SD114", total=150)
    assert "100 of 150 (66.7% of the prefix)" in message("SD114", total=150, kind="objects")
    assert "100 of 150 (66.7% of what matches at any age)" in message("SD114", ageless=150)
    assert "100 of 1,000 (10.0%)" in message("SD102", Guard(max_fraction=0.05), total=1000)
    changed = message("SD110", fingerprint="two", statement="DELETE more")
    assert "(run-29.000, 2026-02-03T03:15:00+00:00)" in changed
    assert changed.endswith("events: the predicate reads differently.")
    unseen = message("SD110", fingerprint="two")
    assert "reads differently" not in unseen
    assert unseen.endswith("the owned keys, mode=, size=, may_touch= or another option differ.")
    assert message("SD110", fingerprint="two", portion=1000).endswith(": per_run none, now 1,000.")


def test_share_of_a_run_that_counts_twice_is_usual_at_once() -> None:
    history = [*USUAL, ran(plan(30, 100, ageless=110), teaches=2)]
    assert codes(look(plan(31, 100, ageless=150), history)) == []


def test_a_cutoff_younger_than_the_floor_is_refused_and_cannot_be_approved() -> None:
    floor = Guard(min_age=timedelta(days=30))
    tonight = plan(30)
    young = replace(tonight, targets=tuple(replace(t, period=timedelta(days=29)) for t in tonight.targets))
    old = replace(tonight, targets=tuple(replace(t, period=timedelta(days=30)) for t in tonight.targets))
    assert "SD116" in codes(decide(young, floor, USUAL))
    assert "SD116" not in codes(decide(old, floor, USUAL))
    assert "SD116" not in codes(decide(young, Guard(), USUAL))
    ageless = replace(tonight, targets=tuple(replace(t, period=None, cutoff=None) for t in tonight.targets))
    assert "SD116" in codes(decide(ageless, floor, USUAL))
    assert "SD116" not in codes(decide(ageless, Guard(), USUAL))
    assert not FINDINGS["SD116"].acceptable


def test_a_prefix_under_which_nothing_lies_is_told_of_and_one_of_young_objects_alone_is_not() -> None:
    def under(total: int) -> tuple[str, ...]:
        made = plan(30)
        empty = replace(made.targets[0], kind="objects", items=0, eligible=0, total=total, objects=0)
        return tuple(f.code for f in decide(replace(made, targets=(empty,)), Guard(), ()).findings)

    assert "SD309" in under(0)
    assert "SD309" not in under(1)
    assert "SD309" not in codes(look(plan(30, 0, total=0), USUAL), "warn"), (
        "an empty table is no misspelt prefix"
    )


def test_two_runs_are_enough_to_show_that_a_share_is_usual_and_unlearned_ones_are_none() -> None:
    usual = [ran(plan(i, 100, ageless=160)) for i in range(2)]
    assert "SD114" not in codes(look(plan(2, 100, ageless=150), usual))
    assert "SD114" in codes(look(plan(2, 100, ageless=150), [usual[0], replace(usual[1], teaches=0)]))


def test_of_two_equal_shares_the_tables_is_told() -> None:
    assert "of the table" in the(look(plan(30, 100, total=150, ageless=150), USUAL), "SD114").message


def test_the_only_row_is_the_whole_table() -> None:
    found = look(plan(30, 1, total=1), USUAL, Guard(max_fraction=0.4))
    assert "1 of 1 (100.0%);" in the(found, "SD102").message
    assert "1 of 1 (100.0% of the table);" in the(found, "SD114").message


@pytest.mark.parametrize(
    ("items", "digest", "expected"), [(100, None, []), (101, None, ["SD104"]), (101, "sealed", [])]
)
def test_plan_that_is_not_sealed_yet_is_held_against_what_may_be_sealed(
    items: int, digest: str | None, expected: list[str]
) -> None:
    assert codes(look(plan(30, items, digest=digest), USUAL, max_sealed=100)) == expected
    both = [target(30, 51), target(30, items - 51, name="lines")]
    history = [ran(plan(i, targets=[target(i, 51), target(i, 49, name="lines")])) for i in range(30)]
    assert codes(look(plan(30, digest=digest, targets=both), history, max_sealed=100)) == expected


def test_a_share_is_told_of_what_is_new_beside_what_was_left_over() -> None:
    history = [ran(plan(i, 300, total=1000), deleted=100) for i in range(3)]
    found = the(look(plan(3, 800, total=1000), history), "SD114")
    assert (
        found.message
        == "events: would delete 600 of 1,000 (60.0% of the table), beside 200 left over; at most 50% passes."
    )
    assert found.numbers == {"items": 800, "left_over": 200, "total": 1000, "most": 0.5}


def test_a_learned_share_is_told_as_it_is() -> None:
    found = the(look(plan(30, 100, ageless=130), nightly([100] * 30, ageless=160)), "SD114")
    assert found.message.endswith("(76.9% of what matches at any age); at most 75% passes.")
    found = the(look(plan(30, 100, ageless=140), nightly([100] * 30, ageless=175)), "SD114")
    assert found.message.endswith("(71.4% of what matches at any age); at most 68.57% passes.")


@pytest.mark.parametrize("total", [1, 50])
def test_a_share_above_everything_is_no_more_than_everything(total: int) -> None:
    # Counted apart, more rows may be found than the table had; and a damaged entry may say anything.
    history = nightly([100] * 30, ageless=total)
    assert codes(look(plan(30, 100, ageless=100), history)) == []
    assert codes(look(plan(30, 100, ageless=99), history)) == ["SD114"]


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu", "Pacific/Chatham", "Australia/Eucla"]
)
@pytest.mark.parametrize("month", [1, 7])
def test_a_day_begins_in_every_zone(zone: str, month: int) -> None:
    midnight = datetime(2025, month, 5, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    history = [ran(plan(0, 100, cutoff=midnight))]
    assert "SD111" not in codes(look(plan(0.9, 100, cutoff=midnight), history))
    assert "SD111" not in codes(look(plan(0.1, 100, cutoff=midnight + DAY), history))
    assert "SD111" in codes(look(plan(0.1, 100, cutoff=midnight + 2 * DAY), history))
