"""A prefix target takes what its pattern, its sizes and its storage classes say, and spares the rest at any age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete import Purge, S3Orphans, S3Prefix
from safedelete.core.plan import TargetPlan
from safedelete.s3.canary import Conditions
from safedelete.s3.listing import ListedVersion
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.testing.servers import SeaweedFS, StubS3
from safedelete.testing.servers.faults import LIES
from safedelete.wiring.connect import _prefix_part, fingerprint
from tests.s3.support import QUICK, FakeClock, Gate, reach

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
WEEK = timedelta(days=7)
OLD = NOW - 2 * WEEK


def declared(prefix: str = "p", bucket: str = "bkt", **conditions: Any) -> S3Prefix:
    return S3Prefix(bucket, prefix, older_than=WEEK, **conditions)


def target(stub: StubS3, prefix: str = "p", **conditions: Any) -> PrefixTarget:
    connection = reach(stub)
    return PrefixTarget(
        declared(prefix, **conditions), connection, S3ObjectStore(connection, clock=FakeClock())
    )


def planned(found: PrefixTarget) -> TargetPlan:
    return found.survey(NOW, portion=None, since=None)


def scanned(found: PrefixTarget) -> list[str]:
    return [ref.key for refs in found.scan(NOW, batch=1000, portion=None) for ref in refs]


def test_a_pattern_is_matched_after_the_prefix(stub: StubS3) -> None:
    for key in ("p/a.log", "p/x/a.log", "p/a.txt", "p/p/a.log", "p/"):
        stub.put("bkt", key, modified=OLD)
    assert scanned(target(stub, pattern="*.log")) == ["p/a.log"]
    assert scanned(target(stub, pattern="**/*.log")) == ["p/a.log", "p/p/a.log", "p/x/a.log"]
    assert scanned(target(stub, pattern="*")) == ["p/a.log", "p/a.txt"], "a folder's own marker has no name"
    assert len(scanned(target(stub, pattern="**"))) == 5


def test_a_pattern_goes_on_from_an_exact_prefix(stub: StubS3) -> None:
    for key in ("log-2020.txt", "log-2021.gz", "logs"):
        stub.put("bkt", key, modified=OLD)
    assert scanned(target(stub, "log-", exact_prefix=True, pattern="20??.txt")) == ["log-2020.txt"]


def test_sizes_are_inclusive(stub: StubS3) -> None:
    for size in (0, 9, 10, 11, 20, 21):
        stub.put("bkt", f"p/{size:02}", b"x" * size, modified=OLD)
    assert scanned(target(stub, min_size=10, max_size=20)) == ["p/10", "p/11", "p/20"]
    assert scanned(target(stub, max_size=0)) == ["p/00"]
    assert scanned(target(stub, min_size=0, max_size=9)) == ["p/00", "p/09"]
    assert planned(target(stub, min_size=10, max_size=20)).bytes == 41


def test_an_object_without_a_storage_class_is_standard(stub: StubS3) -> None:
    for name, storage in (("a", None), ("b", "STANDARD"), ("c", "STANDARD_IA"), ("d", "GLACIER")):
        stub.put("bkt", f"p/{name}", modified=OLD, storage=storage)
    assert scanned(target(stub, storage_class="STANDARD")) == ["p/a", "p/b"]
    assert scanned(target(stub, storage_class=["GLACIER", "STANDARD_IA"])) == ["p/c", "p/d"]


def test_all_conditions_must_hold_and_the_plan_shows_them(stub: StubS3) -> None:
    stub.put("bkt", "p/yes.gz", b"12345", modified=OLD)
    stub.put("bkt", "p/young.gz", b"12345", modified=NOW)
    stub.put("bkt", "p/short.gz", b"1", modified=OLD)
    stub.put("bkt", "p/other.txt", b"12345", modified=OLD)
    stub.put("bkt", "p/cold.gz", b"12345", modified=OLD, storage="GLACIER")
    plan = planned(
        target(stub, pattern="*.gz", min_size=2, max_size=5000, storage_class="STANDARD", max_delete_rate=500)
    )
    assert (plan.items, plan.total, plan.ageless, plan.first, plan.last) == (1, 5, 2, "p/yes.gz", "p/yes.gz")
    assert plan.statement == (
        "objects under s3://bkt/p/ whose key goes on as *.gz, of at least 2 bytes, of at most 5,000 bytes, "
        "of storage class STANDARD last modified before 2026-05-25T12:00:00+00:00"
    )
    assert {name: plan.parameters[name] for name in ("pattern", "min_size", "max_size", "storage_class")} == {
        "pattern": "*.gz",
        "min_size": "2",
        "max_size": "5000",
        "storage_class": "STANDARD",
    }
    assert plan.parameters["max_delete_rate"] == "500 keys/s"
    assert any(note.startswith("3 of the 5 object(s)") for note in plan.notes)


def version(number: int, size: int, *, marker: bool = False, storage: str = "STANDARD") -> ListedVersion:
    return ListedVersion("p/a", f"v{number}", False, marker, None if marker else '"e"', size, OLD, storage)


@pytest.mark.parametrize(
    ("conditions", "versions", "goes"),
    [
        ({"min_size": 5}, [version(1, 9), version(2, 9)], True),
        ({"min_size": 5}, [version(1, 1), version(2, 9)], False),
        ({"min_size": 5}, [version(1, 9), version(2, 0, marker=True)], True),
        ({"min_size": 5}, [version(1, 0, marker=True)], False),
        ({"max_size": 5}, [version(1, 0, marker=True)], False),
        ({"pattern": "a"}, [version(1, 0, marker=True)], True),
        ({"pattern": "b"}, [version(1, 9)], False),
        ({"storage_class": "GLACIER"}, [version(1, 9, storage="GLACIER"), version(2, 9)], False),
        ({}, [version(1, 0, marker=True)], True),
    ],
)
def test_a_key_of_several_versions_goes_whole_or_not_at_all(
    stub: StubS3, conditions: dict[str, Any], versions: list[ListedVersion], *, goes: bool
) -> None:
    assert target(stub, mode="purge", **conditions)._whole_key(versions).chosen is goes


def hashed(**conditions: Any) -> str:
    purge = Purge("x", declared(**conditions), schedule="@daily", timeout=timedelta(hours=1))
    return fingerprint(purge)


def test_every_condition_is_part_of_the_definition() -> None:
    # A definition of before there were conditions keeps its hash, and with it its approvals and its history.
    assert hashed() == "b2d578b0f3aae1e4a25b177dfc977f4559abda0f58f7bad3ac672e541c5a1959"
    hashes = [
        hashed(),
        hashed(pattern="*"),
        hashed(pattern="**"),
        hashed(min_size=1),
        hashed(max_size=1),
        hashed(storage_class="GLACIER"),
        hashed(storage_class=["GLACIER", "STANDARD"]),
        hashed(inventory="s3://inv/bkt/daily/"),
        hashed(inventory="s3://inv/bkt/weekly/"),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hashed(storage_class=["STANDARD", "GLACIER"]) == hashes[6], "the order of classes means nothing"
    assert hashed(max_delete_rate=5) == hashes[0], "how fast it deletes selects nothing"


def test_a_declared_rate_is_what_the_store_deletes_by(stub: StubS3) -> None:
    clock: Any = FakeClock()
    part = _prefix_part(declared(max_delete_rate=100), reach(stub), clock, Conditions())
    store: Any = part.target.store
    store._effort = QUICK
    for number in range(300):
        stub.put("bkt", f"p/{number:03}", modified=OLD)
    refs = [ref for batch in part.target.scan(NOW, batch=1000, portion=None) for ref in batch]
    for start in range(0, 300, 100):
        store.delete(refs[start : start + 100], gate=Gate())
    assert clock.time >= 2.0, "one second's keys are free, the other two hundred take two"
    assert not stub.keys("bkt")


def test_slow_down_halves_the_declared_rate_and_it_is_won_back_slowly(stub: StubS3) -> None:
    clock: Any = FakeClock()
    part = _prefix_part(declared(max_delete_rate=1000), reach(stub), clock, Conditions())
    store: Any = part.target.store
    store._effort = QUICK
    for number in range(40):
        stub.put("bkt", f"p/{number:02}", modified=OLD)
    (refs,) = part.target.scan(NOW, batch=1000, portion=None)
    stub.script(LIES["503 SlowDown"], LIES["503 SlowDown"])
    store.delete(refs[:1], gate=Gate())
    assert store._pace.rate == 250 + 20
    rates = []
    for ref in refs[1:]:
        store.delete([ref], gate=Gate())
        rates.append(store._pace.rate)
    assert rates[:2] == [290, 310]
    assert rates[-1] == 1000, "never above what was declared"


@pytest.mark.parametrize("proven", [False, True])
def test_what_was_written_again_with_the_same_content_stays(stub: StubS3, proven: bool) -> None:
    """Also on an endpoint that compares ETags: the same bytes have the same one."""
    clock: Any = FakeClock()
    now = clock.now()
    for name in "abc":
        stub.put("bkt", f"p/{name}", b"same", modified=now - 2 * WEEK)
    conditions = Conditions(proven={"bkt": "by a canary"} if proven else {})
    part = _prefix_part(declared(), reach(stub), clock, conditions)
    (refs,) = part.target.scan(now, batch=1000, portion=None)
    stub.put("bkt", "p/a", b"same", modified=now)
    stub.put("bkt", "p/b", b"same", modified=now - WEEK - timedelta(seconds=1))
    outcomes = part.target.store.delete(refs, gate=Gate())
    assert {ref.key: (o.state.value, o.code) for ref, o in outcomes.items()} == {
        "p/a": ("changed", "rewritten"),
        "p/b": ("deleted", ""),
        "p/c": ("deleted", ""),
    }
    assert stub.keys("bkt") == {"p/a"}
    assert not part.target.store.remaining(refs), "what was written again is no residue"


def test_conditions_select_on_a_real_store(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    put = weed.client()
    for key, size in (("p/a.log", 5), ("p/b.log", 500), ("p/x/c.log", 5), ("p/d.txt", 5)):
        put.put_object(Bucket=bucket, Key=key, Body=b"x" * size)
    connection = reach(weed)
    found = PrefixTarget(
        declared(bucket=bucket, pattern="*.log", max_size=100, storage_class="STANDARD"),
        connection,
        S3ObjectStore(connection, clock=FakeClock()),
    )
    later = datetime.now(UTC) + 2 * WEEK
    (refs,) = found.scan(later, batch=1000, portion=None)
    assert [ref.key for ref in refs] == ["p/a.log"]
    found.store.delete(refs, gate=Gate())
    left = put.list_objects_v2(Bucket=bucket)["Contents"]
    assert [item["Key"] for item in left] == ["p/b.log", "p/d.txt", "p/x/c.log"]


def test_what_selects_no_orphan_leaves_the_fingerprint_of_a_sweep_as_it_was() -> None:
    column = sa.Table("uploads", sa.MetaData(), sa.Column("s3_key", sa.String)).c.s3_key

    def hashed(**options: Any) -> str:
        target = S3Orphans("bkt", "p/", referenced_by=column, older_than=WEEK, **options)
        return fingerprint(Purge("j", target, schedule="rate(1 day)", timeout=timedelta(minutes=5)))

    assert hashed() == hashed(max_delete_rate=5) == hashed(require_conditional=True)
    assert len({hashed(), hashed(outside_ok=column), hashed(missing_ok=True)}) == 3
