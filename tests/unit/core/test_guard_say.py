"""What a person reads."""

from __future__ import annotations

from safedelete.core.decision import Measure
from safedelete.core.plan import AgeProfile
from safedelete.core.say import picture, sentence
from tests.unit.core.guard_cases import START


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
