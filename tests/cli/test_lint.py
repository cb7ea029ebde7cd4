"""`check` finds each mistake in how jobs are declared and where they will run, by its code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import StubS3
from safedelete.wiring import lint as wiring
from tests.e2e.world import JOBS, World

ROWS_ONLY = JOBS.replace(", owns=OWNS", "")
FUNCTION = """
from datetime import timedelta

from safedelete import job


@job("expired-uploads", schedule="SCHEDULE", timeout=timedelta(minutes=10), OPTIONS)
def sweep(run):
    run.processed(1)
"""


@pytest.fixture
def world(sqlite_url: str, stub_s3: StubS3, tmp_path: Path) -> Iterator[World]:
    stub_s3.create_bucket("acme")
    made = World("sqlite", sa.make_url(sqlite_url), stub_s3, "acme", tmp_path)  # type: ignore[arg-type]
    made.seed(due=1)
    yield made
    made.clean_up()


def codes(world: World, jobs: Path, *options: str, **more: str) -> dict[str, str]:
    world.cli("init", jobs, expect=0)
    checked = world.cli("check", jobs, *options, "--json", **more)
    found = {finding["code"]: finding["severity"] for finding in checked.document["lint"]}
    assert checked.code == (2 if "refuse" in found.values() else 0), checked.err
    return found


def scheduled(world: World, schedule: str, options: str = "") -> Path:
    return world.jobs(options, source=FUNCTION.replace("SCHEDULE", schedule))


def test_a_sound_job_breaks_no_rule_on_any_platform(world: World) -> None:
    jobs = scheduled(world, "cron(15 4 * * ? *)")
    assert codes(world, jobs) == {}
    assert codes(world, jobs, "--platform", "systemd") == {}


def test_a_timeout_below_the_slowest_recent_success_is_told(world: World) -> None:
    jobs = scheduled(world, "rate(1 day)")
    world.cli("init", jobs, expect=0)
    world.cli("run", jobs, expect=0)
    world.sql(
        "UPDATE safedelete_run SET started_at = '2026-01-01T00:00:00.000000+00:00',"
        " finished_at = '2026-01-01T00:11:00.000000+00:00'"
    )
    assert codes(world, jobs) == {"SD402": "warn"}
    world.sql("UPDATE safedelete_run SET resumed_at = '2026-01-01T00:10:00.000000+00:00'")
    assert codes(world, jobs) == {}, "it was resumed, and took a minute of its new deadline"


def test_a_run_during_which_the_clock_was_set_back_says_nothing_about_timeouts(world: World) -> None:
    jobs = scheduled(world, "rate(1 day)")
    world.cli("init", jobs, expect=0)
    world.cli("run", jobs, expect=0)
    world.sql("UPDATE safedelete_run SET finished_at = '2020-01-01T00:00:00.000000+00:00'")
    assert codes(world, jobs) == {}


def test_a_schedule_whose_years_are_over_is_refused(world: World) -> None:
    assert codes(world, scheduled(world, "cron(15 4 * * ? 2020-2025)")) == {"SD411": "refuse"}
    assert codes(world, scheduled(world, "cron(15 4 * * ? 2020-2199)")) == {}


def test_a_timeout_that_fills_the_gap_is_told(world: World) -> None:
    assert codes(world, scheduled(world, "rate(11 minutes)")) == {"SD402": "warn"}


def test_a_grace_beyond_the_platforms_stop_timeout_is_refused(world: World) -> None:
    jobs = scheduled(world, "rate(1 day)", "grace=timedelta(seconds=40)")
    assert codes(world, jobs) == {}
    assert codes(world, jobs, "--platform", "systemd") == {}
    assert codes(world, jobs, "--platform", "kubernetes")["SD403"] == "refuse"
    assert codes(world, jobs, "--stop-timeout", "40") == {"SD403": "refuse"}
    assert codes(world, jobs, "--stop-timeout", "41") == {}


def test_a_local_time_that_a_change_of_the_clocks_skips_is_told(world: World) -> None:
    jobs = scheduled(world, "cron(30 2 * * ? *)", 'tz="Europe/Berlin"')
    assert codes(world, jobs) == {"SD404": "warn"}


def test_a_job_whose_missing_run_the_platform_cannot_tell_is_told(world: World) -> None:
    weekly = scheduled(world, "cron(0 4 ? * MON *)")
    assert "SD405" not in codes(world, weekly, "--platform", "ecs")
    jobs = scheduled(world, "cron(0 4 1 * ? *)")
    assert codes(world, jobs) == {}
    assert codes(world, jobs, "--platform", "ecs")["SD405"] == "warn"


def test_a_purge_without_a_fixed_limit_is_told(world: World) -> None:
    assert codes(world, world.jobs(source=ROWS_ONLY)) == {"SD406": "warn"}


def test_a_lease_shorter_than_one_request_to_the_store_may_take_is_refused(world: World) -> None:
    limited = "guard=Guard(max_items=1_000),"
    owning = world.jobs(limited, name="owning.py")
    world.put("up/000001.bin")
    world.cli("init", owning, expect=0)
    for seconds, found in (("35", True), ("36", False)):
        checked = world.cli("check", owning, "--json", SAFEDELETE_LEASE_SECONDS=seconds)
        assert ("SD407" in {f["code"] for f in checked.document["lint"]}) is found
    rows = world.jobs(limited, source=ROWS_ONLY)
    assert codes(world, rows, SAFEDELETE_LEASE_SECONDS="5") == {}, "a transaction is kept below any lease"


@pytest.mark.parametrize("platform", ["ecs", "kubernetes"])
def test_a_ledger_on_a_containers_own_disk_is_refused(
    platform: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = scheduled(world, "rate(1 day)")
    monkeypatch.setattr(wiring, "_passes_away", lambda _: True)
    assert codes(world, jobs, "--platform", platform) == {"SD408": "refuse"}
    assert codes(world, jobs, "--platform", "systemd") == {}
    monkeypatch.setattr(wiring, "_passes_away", lambda _: False)
    assert codes(world, jobs, "--platform", platform) == {}


@pytest.mark.parametrize(
    ("mounts", "passes"),
    [
        ("22 1 0:30 / / rw - overlay overlay rw", True),
        ("22 1 0:30 / / rw - ext4 /dev/sda rw", True),
        ("22 1 0:30 / / rw - overlay overlay rw\n23 22 0:31 / /data rw - nfs4 efs:/ rw", False),
        ("22 1 0:30 / / rw - ext4 /dev/sda rw\n23 22 0:31 / /data rw shared:1 - tmpfs tmpfs rw", True),
    ],
)
def test_a_disk_is_a_tasks_own_unless_it_is_mounted_and_lasts(
    mounts: str, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounts)
    assert wiring._passes_away(Path("/data/ledger.db")) is passes


def test_two_files_that_share_a_jobs_name_in_one_ledger_are_found_once_both_have_run(world: World) -> None:
    purge = world.jobs("guard=Guard(max_items=1_000),", source=ROWS_ONLY, name="purge.py")
    function = world.jobs(source=FUNCTION.replace("SCHEDULE", "rate(1 day)"), name="function.py")
    world.cli("init", purge, expect=0)
    world.cli("run", function, expect=0)
    assert codes(world, purge) == {}, "it may have been that until today"
    assert world.cli("run", purge).code in (0, 3)
    world.cli("run", function, expect=0)
    assert codes(world, purge) == {"SD409": "refuse"}
    said = world.cli("check", purge, expect=2)
    assert "a function runs under this name too" in said.out
