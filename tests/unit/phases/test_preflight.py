"""Permissions are proven before the first delete; what cannot be proven stops the run as a denial does."""

from __future__ import annotations

import pytest

from safedelete.cli import text
from safedelete.cli.document import report_document
from safedelete.core.run import RunState
from safedelete.errors import ExitCode, PreflightError
from safedelete.phases.preflight import GROUPS, Groups
from safedelete.ports import Verdict
from safedelete.runner import purge
from safedelete.testing.memory import Policy
from tests.worlds import BUCKET, World, photo


@pytest.mark.parametrize("verdict", [Verdict.DENIED, Verdict.UNKNOWN])
def test_a_permission_that_is_not_proven_stops_the_run(verdict: Verdict) -> None:
    world = World(expired=3)
    process = world.process()
    process.prober.verdicts = {"DELETE on uploads": verdict}
    with pytest.raises(PreflightError, match="DELETE on uploads") as caught:
        process.run()
    assert (caught.value.exit_code, caught.value.deleted) == (ExitCode.PREFLIGHT, 0)
    assert caught.value.remedies == {"DELETE on uploads": "GRANT DELETE on uploads"}
    assert all(world.has_row(n) and world.has_object(f"{n}.jpg") for n in range(3))
    assert world.objects.requests == []
    assert (world.last().state, world.last().exit_code) == (RunState.FAILED, ExitCode.PREFLIGHT)
    assert not list(world.ledger.batches(world.last().run))


def test_denied_and_unknown_are_told_apart() -> None:
    world = World(expired=1)
    process = world.process()
    process.prober.verdicts = {"a": Verdict.DENIED, "b": Verdict.UNKNOWN, "c": Verdict.ALLOWED}
    with pytest.raises(PreflightError) as caught:
        process.run()
    assert (caught.value.denied, caught.value.unknown) == (("a",), ("b",))


def test_a_denied_object_of_the_first_page_stops_the_run_before_it_seals() -> None:
    world = World(expired=3)
    world.objects.policies[BUCKET, "0.jpg"] = Policy.DENIED
    process = world.process()
    with pytest.raises(PreflightError, match="s3:DeleteObject"):
        process.run()
    assert "ledger.seal" not in process.watch.calls


def test_a_group_that_only_the_seal_has_seen_is_probed_before_the_first_delete() -> None:
    world = World(expired=3)
    world.add(900, objects=["other/denied.png"])
    world.objects.policies[BUCKET, "other/denied.png"] = Policy.DENIED
    process = world.process(portion=None)
    with pytest.raises(PreflightError):
        process.run()
    assert world.objects.requests == []
    assert photo("other/denied.png") in process.prober.samples[-1]


def test_a_ledger_that_cannot_be_written_stops_the_run_before_anything_is_recorded() -> None:
    world = World(expired=3)
    world.ledger.denied = frozenset({"UPDATE on batches"})
    process = world.process()
    with pytest.raises(PreflightError, match="UPDATE on batches"):
        process.run()
    assert process.watch.calls == ["ledger.verify", "lock.acquire", "ledger.probe", "lease.release"]


def test_a_dry_run_proves_and_changes_nothing() -> None:
    world = World(expired=3)
    process = world.process()
    assert purge.dry_run(process.ctx).exit_code is ExitCode.DONE
    assert not [
        c for c in process.watch.calls if c in ("ledger.begin", "ledger.seal", "lock.acquire", "rows.begin")
    ]
    process.prober.verdicts = {"a": Verdict.UNKNOWN}
    with pytest.raises(PreflightError):
        purge.dry_run(process.ctx)


def test_a_plan_without_proofs_calls_nothing_that_writes_or_probes() -> None:
    world = World(expired=3)
    process = world.process()
    report = purge.plan(process.ctx)
    assert report.exit_code is ExitCode.DONE
    assert set(process.watch.calls) == {"ledger.verify", "ledger.history", "ledger.runs", "rows.survey"}
    assert process.prober.samples == []


def test_one_object_of_each_folder_and_extension_is_sampled() -> None:
    groups = Groups()
    groups.add([photo(k) for k in ("a/1.jpg", "a/2.jpg", "a/1.png", "b/1.jpg", "a/noext")])
    assert [ref.key for ref in groups.sample()] == ["a/1.jpg", "a/1.png", "b/1.jpg", "a/noext"]
    assert not groups.overflow


def test_more_groups_than_a_probe_holds_are_told() -> None:
    groups = Groups()
    groups.add(photo(f"{n}/x.jpg") for n in range(GROUPS))
    assert not groups.overflow
    groups.add([photo("one-more/x.jpg")])
    assert groups.overflow
    assert len(groups.sample()) == GROUPS


def test_a_run_says_that_it_has_not_probed_every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safedelete.phases.preflight.GROUPS", 2)
    world = World(expired=0)
    for number in range(3):
        world.add(number, objects=[f"{number}/x.jpg"])
    report = world.process().run()
    (note,) = report.notes
    assert "more than 2 groups" in note
    assert note in text.result(report)
    assert report_document(report)["notes"] == [note]
    assert not Groups().notes()
