"""What a person reads."""

from __future__ import annotations

from safedelete.core.decision import Approval, Measure
from safedelete.core.plan import AgeProfile, Unknown
from safedelete.core.say import explain, picture, sentence
from tests.unit.core.guard_cases import DAY, START, ages, look, nightly, plan, ran


def test_sentence_holds_everything_that_was_decided_on() -> None:
    measure = Measure(
        target="events",
        measure="items",
        tonight=48_210,
        share=0.344,
        nights=2.0,
        usual_low=1314,
        usual_high=4718,
        runs=59,
        expected=4454,
        limit=7354,
        rule="floor",
        verdict="stop",
    )
    assert sentence(measure, unit="rows") == (
        "tonight 48,210 rows (34.4% of the table) over 2 nights; usual 1,314-4,718 from 59 runs; "
        "about 4,454 expected; limit 7,354 (floor); STOP"
    )


def test_sentence_says_forecast_where_there_was_one() -> None:
    measure = Measure(
        target="t", measure="items", tonight=10, expected=9, forecast=8, limit=20, rule="forecast", runs=1,
        usual_low=1, usual_high=2,
    )  # fmt: skip
    assert sentence(measure) == (
        "tonight 10 items; usual 1-2 from 1 run; 8 forecast; limit 20 (forecast); go"
    )


def test_sentence_of_a_first_run_says_that_there_is_nothing_to_compare_with() -> None:
    measure = Measure(target="t", measure="items", tonight=10, limit=0, rule="no history", verdict="stop")
    assert sentence(measure) == (
        "tonight 10 items; no earlier run to compare with; limit 0 (no history); STOP"
    )


def test_sentence_without_a_number_never_reads_as_zero() -> None:
    measure = Measure(target="t", measure="bytes", tonight=None, verdict="stop")
    assert sentence(measure) == "tonight an unknown number of bytes; STOP"


def test_sentence_of_a_bursty_job_owns_up_to_it() -> None:
    def said(limit: float, expected: float) -> bool:
        return "bursty" in sentence(
            Measure(target="t", measure="items", tonight=1, expected=expected, limit=limit, rule="spread")
        )

    assert said(1000, 100)
    assert not said(999, 100)
    assert not said(1000, 19)


def test_sentence_without_a_limit_says_why() -> None:
    measure = Measure(target="t", measure="objects", tonight=4, rule="portion", verdict="warn")
    assert sentence(measure) == "tonight 4 objects; no limit (portion); go, with a warning"


def test_refusal_says_that_nothing_was_deleted_where_to_look_and_how_to_accept() -> None:
    tonight = plan(30, 5000, ages=ages(100, back=[(-1, 5000)]))
    text = explain(look(tonight, nightly([100] * 30)), run="01JRUN")
    lines = text.splitlines()
    assert lines[0] == "purge refused [SD201]"
    assert lines[1].startswith("events: tonight 5,000 rows (0.5% of the table); usual 100-100 from 29 runs;")
    assert "Nothing was deleted." in lines
    assert "events: cutoff 2025-11-06T03:15+00:00 (exclusive)" in lines
    assert any(line.split()[:3] == ["-1", "day", "5,000"] for line in lines)
    assert "Last runs: safedelete history FILE purge" in lines
    assert 'To accept this plan once: safedelete approve 01JRUN --reason "..."' in lines


def test_refusal_that_cannot_be_accepted_offers_no_command() -> None:
    text = explain(look(plan(30, Unknown("timeout")), nightly([100] * 30)), run="01JRUN")
    assert "SD100 cannot be approved: repair it, then plan again." in text
    assert "safedelete approve" not in text


def test_refusal_without_a_sealed_run_offers_no_command() -> None:
    assert "safedelete approve" not in explain(look(plan(0, 10), ()))


def test_approval_names_who_accepted_what_and_why() -> None:
    tonight = plan(30, 5000, digest="d")
    accepted = Approval(
        run="r", digest="d", codes=("SD201",), reason="audit", who="ann", at=START, expires_at=START + 90 * DAY
    )  # fmt: skip
    text = explain(look(tonight, nightly([100] * 30), approval=accepted))
    assert text.splitlines()[0] == "purge approved by ann [SD201]: audit"
    assert "Nothing was deleted" not in text


def test_nothing_to_delete_reads_so() -> None:
    assert explain(look(plan(0, 0), ())) == "purge approved\nevents: nothing to delete"


def test_warning_of_an_approved_plan_is_read_too() -> None:
    text = explain(look(plan(30, 2), nightly([100] * 30)))
    assert text.splitlines()[0] == "purge approved"
    assert "warning SD206" in text


def test_missing_picture_says_why() -> None:
    refused = look(plan(0, 5, ages=Unknown("no index")), ())
    assert "events: no day-by-day picture: no index" in explain(refused)


def test_every_measure_is_said_with_its_own_target() -> None:
    history = [ran(plan(i, 100, objects=200)) for i in range(20)]
    text = explain(look(plan(20, 100, objects=200), history))
    assert "events: tonight 200 objects; usual 200-200" in text


def test_picture_shows_days_around_the_cutoff_and_adds_up_the_rest() -> None:
    profile = AgeProfile(days=((-20, 7), (-2, 50), (-1, 100), (0, 25), (40, 9)), older=3, back=60, ahead=60)
    lines = picture(profile, START)
    assert lines[0].split() == ["older", "3"]
    assert lines[-1].split() == ["later", "9"]
    bars = {line[2:17].strip(): line.count("#") for line in lines if "day" in line}
    assert (bars["-2 days"], bars["-1 day"], bars["+0 days"]) == (20, 40, 10)
    assert "  --- cutoff 2026-01-05 03:15 ---" in lines


def test_picture_draws_what_lies_far_back_a_week_a_line_at_the_scale_of_a_day() -> None:
    profile = AgeProfile(days=((-20, 70), (-1, 20), (0, 20)), back=60, ahead=60)
    lines = picture(profile, START)
    week = next(line for line in lines if line.startswith("  -21 to -15"))
    assert week.split()[3] == "70"
    assert week.count("#") == 20
    assert "  (13 lines without rows)" in lines
    assert len(lines) < 10


def test_picture_of_nothing_is_drawn_without_bars() -> None:
    lines = picture(AgeProfile(days=(), back=1, ahead=1))
    assert [line.split() for line in lines] == [
        ["-1", "day", "0"],
        ["---", "cutoff", "---"],
        ["+0", "days", "0"],
    ]
