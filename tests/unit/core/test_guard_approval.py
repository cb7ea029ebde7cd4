"""What a person accepts, and what nobody can."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from safedelete.core.decision import Acceptance, Approval, Approved
from safedelete.core.findings import FINDINGS, finding
from safedelete.core.limits import Guard
from safedelete.core.plan import Unknown
from tests.unit.core.guard_cases import DAY, START, approved, codes, look, measure, nightly, plan, ran, the

HISTORY = nightly([100] * 30)
SURGE = plan(30, 5000, digest="d1")
NIGHT = START + 30 * DAY


WHOLE = {"SD100", "SD110", "SD112"}
"""What is found on the plan as a whole, not on its target."""


def approval(*accepted: str | Acceptance, **changes: Any) -> Approval:
    values: dict[str, Any] = {
        "run": "r",
        "digest": "d1",
        "accepts": tuple(
            a if isinstance(a, Acceptance) else Acceptance(code=a, target="" if a in WHOLE else "events")
            for a in accepted
        ),
        "reason": "spring cleaning",
        "who": "ann",
        "at": NIGHT,
        "expires_at": NIGHT + DAY,
    }
    return Approval(**(values | changes))


def test_accepted_plan_is_approved_with_its_findings_still_on_it() -> None:
    decision = look(SURGE, HISTORY, approval=approval("SD201"))
    assert isinstance(decision, Approved)
    assert decision.approval == approval("SD201")
    assert codes(decision) == ["SD201"]


def test_every_limit_but_the_accepted_one_is_checked_again() -> None:
    decision = look(SURGE, HISTORY, Guard(max_items=4000), approval=approval("SD201"))
    assert codes(decision) == ["SD101", "SD201"]
    assert codes(decision, "warn") == [], "the approval says nothing of SD101"
    assert not approved(decision)
    both = approval("SD201", Acceptance(code="SD101", target="events", limit=4000))
    assert approved(look(SURGE, HISTORY, Guard(max_items=4000), approval=both))


@pytest.mark.parametrize(
    ("accepted", "passes"),
    [
        (Acceptance(code="SD101", target="events", limit=4000), True),
        (Acceptance(code="SD101", target="events", limit=3999), True),
        (Acceptance(code="SD101", target="events", limit=4001), False),
        (Acceptance(code="SD101", target="uploads", limit=4000), False),
        (Acceptance(code="SD101", target="events"), False),
    ],
    ids=["as shown", "raised since", "lowered since", "another target", "no limit shown"],
)
def test_an_approval_holds_for_its_target_and_no_tighter_a_limit(accepted: Acceptance, passes: bool) -> None:
    given = approval("SD201", accepted)
    decision = look(SURGE, HISTORY, Guard(max_items=4000), approval=given)
    assert approved(decision) is passes
    assert ("SD307" in codes(decision, "warn")) is not passes
    if not passes:
        assert "accepts SD101, but not on events as it is now" in the(decision, "SD307").message


def test_an_approval_of_a_wrong_clock_is_for_the_runs_that_were_shown() -> None:
    ahead = [ran(plan(60 + n, 100)) for n in range(2)]
    shown = ",".join(p.run for p in ahead)
    tonight = plan(30, 100, digest="d1")
    seen = Acceptance(code="SD112", limit=shown)
    assert approved(look(tonight, [*HISTORY, *ahead], approval=approval(seen)))
    assert approved(look(tonight, [*HISTORY, ahead[0]], approval=approval(seen))), "fewer than were shown"
    one = Acceptance(code="SD112", limit=ahead[0].run)
    more = look(tonight, [*HISTORY, *ahead], approval=approval(one))
    assert codes(more) == ["SD112"]
    assert "accepts SD112, but not as it is now" in the(more, "SD307").message


def test_what_is_found_is_accepted_as_it_is_found_and_no_wider() -> None:
    refused = look(SURGE, HISTORY, Guard(max_items=4000, max_fraction=0.01, max_bytes=1))
    for found in (f for f in refused.findings if f.severity == "refuse"):
        accepted = Acceptance.of(found)
        assert accepted.covers(found)
        assert not accepted.covers(replace(found, target="other"))
        assert not accepted.covers(replace(found, code="SD210"))


@pytest.mark.parametrize("digest", ["d2", None, ""])
def test_approval_of_another_seal_does_not_apply_and_says_so(digest: str | None) -> None:
    decision = look(plan(30, 5000, digest=digest), HISTORY, approval=approval("SD201"))
    assert not approved(decision)
    assert codes(decision, "warn") == ["SD307"]


def test_unsealed_plan_cannot_be_accepted_even_by_an_approval_without_digest() -> None:
    decision = look(plan(30, 5000, digest=None), HISTORY, approval=approval("SD201", digest=None))
    assert "not sealed" in the(decision, "SD307").message
    assert not approved(decision)


@pytest.mark.parametrize(
    ("now", "passes"),
    [(NIGHT + DAY - timedelta(seconds=1), True), (NIGHT + DAY, False), (NIGHT + 2 * DAY, False)],
)
def test_approval_ends_at_its_expiry_exclusive(now: datetime, passes: bool) -> None:
    decision = look(SURGE, HISTORY, approval=approval("SD201"), now=now)
    assert approved(decision) is passes
    assert ("SD307" in codes(decision, "warn")) is not passes


def test_expiry_goes_by_the_plans_instant_where_no_other_is_given() -> None:
    assert not approved(look(SURGE, HISTORY, approval=approval("SD201", expires_at=NIGHT)))


def test_number_that_nobody_knows_cannot_be_accepted() -> None:
    tonight = plan(30, Unknown("timeout"), digest="d1")
    decision = look(tonight, HISTORY, approval=approval(Acceptance(code="SD100", target="events")))
    assert not approved(decision)
    assert "names SD100: nobody can accept that" in the(decision, "SD307").message


def test_cutoff_in_the_future_cannot_be_accepted() -> None:
    tonight = plan(30, 100, digest="d1", cutoff=NIGHT + DAY)
    decision = look(tonight, HISTORY, approval=approval("SD113", "SD111"))
    assert not approved(decision)


def test_unknown_code_accepts_nothing() -> None:
    assert not approved(look(SURGE, HISTORY, approval=approval("SD999")))


def test_plan_that_needs_no_approval_keeps_the_one_it_was_given() -> None:
    decision = look(plan(30, 100, digest="d1"), HISTORY, approval=approval("SD201"))
    assert isinstance(decision, Approved)
    assert decision.approval is not None


def test_first_run_enters_the_baseline_once_accepted() -> None:
    first = plan(0, 100, total=10_000, digest="d1")
    assert codes(look(first, ())) == ["SD200"]
    assert approved(look(first, (), approval=approval("SD200")))
    assert approved(look(plan(1, 150, total=10_000), [ran(first)]))


def test_surge_is_refused_again_the_night_after_it_was_accepted() -> None:
    accepted = ran(SURGE)
    decision = look(plan(31, 5000), [*HISTORY, accepted])
    assert codes(decision) == ["SD201"]
    assert measure(decision).expected == 100


def test_accepted_definition_is_the_one_to_compare_with_from_then_on() -> None:
    changed = plan(30, 100, fingerprint="two", digest="d1")
    assert codes(look(changed, HISTORY)) == ["SD110"]
    assert approved(look(changed, HISTORY, approval=approval("SD110")))
    assert codes(look(plan(31, 100, fingerprint="two"), [*HISTORY, ran(changed)])) == []


def test_refusals_come_before_warnings() -> None:
    decision = look(plan(30, 5000, total=Unknown("slow")), HISTORY)
    assert [f.severity for f in decision.findings] == ["refuse", "warn"]


@pytest.mark.parametrize("code", FINDINGS)
def test_finding_of_the_table_is_complete(code: str) -> None:
    kind = FINDINGS[code]
    assert code[:2] == "SD"
    assert code[2:].isdigit()
    assert len(code) == 5
    assert kind.title
    assert kind.meaning.endswith(".")
    assert kind.action.endswith(".")
    made = finding(code, "text", severity="refuse")
    assert made.hint == kind.action
    assert made.severity == ("refuse" if kind.severity == "declared" else kind.severity)
    assert (code < "SD300") is (kind.severity != "warn")


def test_code_that_is_not_in_the_table_cannot_be_made() -> None:
    with pytest.raises(KeyError):
        finding("SD999", "text")
