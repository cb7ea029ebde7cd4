"""The guard on a real database, night after night: first nights, surges, changed definitions, wrong clocks, races."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from safedelete import wiring
from safedelete.cli import text
from safedelete.core.decision import Approved, Decision, Refused
from safedelete.errors import PreflightError, RefusedError, StalePlanError
from safedelete.sql import survey
from tests.e2e.nights import A_NIGHT, Nights

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFEDELETE_ENVIRONMENT", "test")
    # The purge's clock is moved on by nights, and the database's is not.
    monkeypatch.setattr("safedelete.sql.permissions.MOST_SKEW", timedelta(days=1000))


@pytest.fixture(params=["postgresql", "sqlite"])
def nights(request: pytest.FixtureRequest) -> Nights:
    return Nights(request.getfixturevalue("pg_database" if request.param == "postgresql" else "sqlite_url"))


@pytest.fixture
def one(sqlite_url: str) -> Nights:
    """On one database, where the database makes no difference."""
    return Nights(sqlite_url)


def codes(decision: Decision | None) -> set[str]:
    assert decision is not None
    return {f.code for f in decision.findings}


# --- the first night


def test_first_night_without_a_time_column_waits_for_an_approval(nights: Nights) -> None:
    nights.fill(days=4)
    nights.sql("UPDATE events SET done = TRUE WHERE id <= 40")
    purge = nights.init(nights.timeless())
    before = nights.rows()

    run, found = nights.refused(purge)
    assert set(found) == {"SD200"}
    assert found["SD200"].numbers["items"] == 40

    nights.approve(purge, run)
    assert nights.execute(purge, run).total.deleted == 40
    assert nights.rows() == before - 40

    nights.pass_night()
    nights.sql("UPDATE events SET done = TRUE WHERE id <= 75")
    second = nights.run(purge)
    assert second.total.deleted == 35
    assert not codes(second.decision) & {"SD212", "SD300"}, "without a time there is no out of time"


def test_first_night_with_a_time_column_stands_on_the_columns_own_days(nights: Nights) -> None:
    nights.fill()
    purge = nights.init(nights.purge())

    first = nights.run(purge)
    assert "SD304" in codes(first.decision)
    assert first.total.deleted == A_NIGHT
    shown = text.run(nights.record(purge, first.run or ""), None)
    assert "day by day around the cutoff" in shown

    nights.pass_night()
    second = nights.run(purge)
    assert second.total.deleted == A_NIGHT
    assert "SD304" not in codes(second.decision)
    assert second.decision is not None
    assert second.decision.measures[0].forecast == pytest.approx(A_NIGHT, rel=0.05)


def test_first_night_on_a_backlog_is_refused_and_shows_its_days(nights: Nights) -> None:
    nights.fill(days=150)
    purge = nights.init(nights.purge())
    run, found = nights.refused(purge)
    assert "SD205" in found
    shown = text.refusal(*wiring.story(purge, run), "'my jobs.py'")
    assert "day by day around the cutoff" in shown
    assert f"safedelete approve {run} --file 'my jobs.py' --reason" in shown


# --- a surge


def test_a_surge_is_refused_approved_executed_once_and_refused_again_the_night_after(nights: Nights) -> None:
    nights.fill()
    purge = nights.init(nights.purge())
    nights.usual(purge, 6)
    nights.surge(3_000)

    run, found = nights.refused(purge)
    assert "SD210" in found
    nights.approve(purge, run)
    before = nights.rows()
    # What arrives after the plan was refused was not looked at by whoever approved it.
    nights.surge(7)
    assert nights.execute(purge, run).total.deleted == 3_000 + A_NIGHT
    assert nights.rows() == before + 7 - 3_000 - A_NIGHT
    with pytest.raises(StalePlanError, match="succeeded"):
        nights.execute(purge, run)
    with pytest.raises(StalePlanError, match="only a refused plan"):
        nights.approve(purge, run)

    nights.pass_night()
    nights.surge(3_000)
    again, found = nights.refused(purge)
    assert again != run
    assert "SD210" in found


def test_rows_dated_back_by_one_update_are_counted_and_named_as_such(nights: Nights) -> None:
    nights.fill()
    purge = nights.init(nights.purge())
    nights.usual(purge, 3)
    moved = nights.sql(
        "UPDATE events SET created_at = :old WHERE id BETWEEN 3001 AND 8000",
        old=nights.clock.now() - timedelta(days=200),
    )
    assert moved == 5_000

    run, found = nights.refused(purge)
    assert found["SD212"].numbers["late"] == 5_000
    assert "5,000 items became eligible out of time" in found["SD212"].message
    shown = text.refusal(*wiring.story(purge, run))
    picture = shown[shown.index("day by day around the cutoff") :].split()
    assert picture[picture.index("older") + 1] == "5,000"


def test_a_retention_changed_from_90_to_9_days_is_refused(nights: Nights) -> None:
    nights.fill()
    usual = nights.init(nights.purge())
    nights.usual(usual, 3)
    wrecked = nights.purge(days=9)

    run, found = nights.refused(wrecked)
    assert {"SD110", "SD111", "SD114"} <= set(found)
    assert "SD212" not in found, "no row was dated back"
    assert "retention 90 days, now 9 days" in found["SD110"].message
    shown = text.refusal(*wiring.story(wrecked, run))
    assert "(9 days); last time" in shown
    assert "definition: CHANGED since run" in shown

    # The refused plan has taught nothing: the right definition passes as ever.
    assert nights.run(usual).total.deleted == A_NIGHT


# --- a backlog


def test_a_backlog_is_drained_portion_by_portion_and_never_teaches(nights: Nights) -> None:
    nights.fill(days=100)
    purge = nights.init(nights.purge(per_run=400))
    run, _ = nights.refused(purge)
    nights.approve(purge, run)
    first = nights.execute(purge, run)
    assert first.total.deleted == 400

    portions = [400]
    for _ in range(7):
        nights.pass_night()
        report = nights.run(purge)
        if report.total.deleted < 400:
            break
        portions.append(report.total.deleted)
        assert "SD306" in codes(report.decision)
        assert not codes(report.decision) & {"SD212", "SD300"}, "the rest of a backlog is not out of time"
        assert report.decision is not None
        assert report.decision.measures[0].usual_high is None, "a portion taught what usual is"
    assert len(portions) >= 4
    for _ in range(2):
        nights.pass_night()
        report = nights.run(purge)
        assert report.total.deleted == A_NIGHT
        assert "SD306" not in codes(report.decision)


# --- approvals


def test_two_approvals_and_two_executions_at_once_execute_once(
    nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.fill(days=4)
    nights.sql("UPDATE events SET done = TRUE WHERE id <= 300")
    jobs = tmp_path / "jobs.py"
    jobs.write_text(
        "from tests.e2e.nights import events\n"
        "from datetime import timedelta\nfrom safedelete import Purge, Rows\n"
        "purge = Purge('events', Rows(events, events.c.done.is_(True), anytime=True),"
        f" schedule='rate(1 day)', timeout=timedelta(minutes=5), database={nights.url!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    purge = nights.init(nights.timeless())
    run, _ = nights.refused(purge)
    before = nights.rows()

    def both(*arguments: str) -> list[tuple[int, str]]:
        command = [sys.executable, "-m", "safedelete", *arguments, "--file", str(jobs)]
        processes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        ended = [process.communicate(timeout=60) for process in processes]
        return [(p.returncode, out + err) for p, (out, err) in zip(processes, ended, strict=True)]

    approved = both("approve", run, "--reason", "looked at it")
    assert 0 in [code for code, _ in approved], approved
    executed = both("execute", run)
    assert sorted(code for code, _ in executed)[0] == 0, executed
    assert sorted(code for code, _ in executed)[1] in (3, 5), executed
    assert nights.rows() == before - 300
    assert [r.state.value for r in wiring.history(purge)] == ["succeeded"]


def test_an_approval_that_expired_executes_nothing(one: Nights) -> None:
    one.fill(days=150)
    purge = one.init(one.purge())
    run, _ = one.refused(purge)
    one.approve(purge, run, hours=2)
    one.pass_night(2 / 24)
    before = one.rows()
    with pytest.raises(StalePlanError, match="expired at"):
        one.execute(purge, run)
    assert one.rows() == before


def test_a_plan_older_than_its_window_executes_nothing_whatever_its_approval_says(one: Nights) -> None:
    one.fill(days=150)
    purge = one.init(one.purge())
    run, _ = one.refused(purge)
    one.approve(purge, run, hours=100)
    one.pass_night(1.01)
    before = one.rows()
    with pytest.raises(StalePlanError, match="waits at most"):
        one.execute(purge, run)
    assert one.rows() == before


def test_an_approved_plan_whose_definition_changed_since_executes_nothing(one: Nights) -> None:
    one.fill(days=150)
    purge = one.init(one.purge())
    run, _ = one.refused(purge)
    one.approve(purge, run)
    before = one.rows()
    with pytest.raises(StalePlanError, match="definition was"):
        one.execute(one.purge(days=80), run)
    assert one.rows() == before


def test_a_refused_plan_that_nobody_approved_executes_nothing(one: Nights) -> None:
    one.fill(days=150)
    purge = one.init(one.purge())
    run, _ = one.refused(purge)
    before = one.rows()
    with pytest.raises(RefusedError, match="nobody has approved") as refused:
        one.execute(purge, run)
    assert refused.value.run == run
    assert one.rows() == before


def test_a_run_accepted_as_a_one_off_never_teaches(one: Nights) -> None:
    one.fill()
    purge = one.init(one.purge())
    one.usual(purge, 3)
    one.surge(3_000)
    run, _ = one.refused(purge)
    one.approve(purge, run, teaches=0)
    one.execute(purge, run)
    one.pass_night()
    report = one.run(purge)
    assert report.total.deleted == A_NIGHT
    assert report.decision is not None
    assert report.decision.measures[0].runs == 3


# --- the clock


def test_after_a_run_by_a_wrong_clock_one_approval_sets_things_right(nights: Nights) -> None:
    nights.fill()
    purge = nights.init(nights.purge())
    nights.usual(purge, 2)
    nights.pass_night(3)
    wrong = nights.run(purge)
    assert "SD111" not in codes(wrong.decision)
    nights.pass_night(-3)

    run, found = nights.refused(purge)
    assert found["SD112"].numbers["runs"] == wrong.run
    nights.approve(purge, run)
    assert isinstance(nights.execute(purge, run).decision, Approved)

    # That run is left out for good: neither its clock nor what it would make late is asked about again.
    for _ in range(5):
        nights.pass_night()
        report = nights.run(purge)
        assert not codes(report.decision) & {"SD112", "SD212", "SD300"}


def test_a_plan_is_not_saved_by_a_clock_that_the_database_contradicts(
    pg_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = Nights(pg_database)
    nights.fill()
    purge = nights.init(nights.purge())
    monkeypatch.setattr("safedelete.sql.permissions.MOST_SKEW", timedelta(minutes=1))
    nights.pass_night(20)
    with pytest.raises(PreflightError, match="behind this host's"):
        nights.save(purge)
    nights.pass_night(-20)
    assert not wiring.history(purge)
    assert nights.save(purge).run is not None


def test_a_plan_saved_by_a_wrong_clock_is_not_executed_by_a_right_one(one: Nights) -> None:
    one.fill()
    purge = one.init(one.purge())
    one.usual(purge, 4)
    one.pass_night(20)
    saved = one.save(purge)
    one.pass_night(-20)
    before = one.rows()
    assert saved.run is not None
    with pytest.raises(StalePlanError, match="clock was ahead"):
        one.execute(purge, saved.run)
    assert one.rows() == before


# --- what cannot be read, what cannot be had


def test_a_history_that_cannot_be_read_refuses_and_cannot_be_approved(nights: Nights) -> None:
    nights.fill()
    purge = nights.init(nights.purge())
    last = nights.usual(purge, 2)[-1]
    nights.sql("UPDATE safedelete_run SET plan = '{\"job\": 1' WHERE run = :run", run=last.run)

    assert isinstance(nights.plan(purge).decision, Refused)
    run, found = nights.refused(purge)
    assert set(found) == {"SD100"}
    assert last.run is not None
    assert last.run in found["SD100"].message
    with pytest.raises(RefusedError, match="cannot be approved"):
        nights.approve(purge, run)
    assert "SD100 cannot be approved" in text.refusal(*wiring.story(purge, run))


def test_a_time_column_without_an_index_on_a_large_table_costs_the_forecast_and_not_the_night(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.fill(days=20)
    nights.sql("UPDATE events SET seen_at = created_at")
    monkeypatch.setattr(survey, "SMALL_TABLE", 100)
    purge = nights.init(nights.purge(column="seen_at", days=19))
    run, found = nights.refused(purge)
    assert set(found) == {"SD200"}, "without days there is nothing to compare a first night with"
    nights.approve(purge, run)
    nights.execute(purge, run)

    nights.pass_night()
    report = nights.run(purge)
    assert report.total.deleted == A_NIGHT
    assert report.decision is not None
    (warned,) = [f for f in report.decision.findings if f.code == "SD301"]
    assert warned.severity == "warn"
    assert "seen_at has no index" in warned.message
