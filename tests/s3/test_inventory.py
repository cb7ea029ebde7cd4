"""An inventory is whole, fresh and of this bucket, or it is no listing; and what it names is looked at again."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from safedelete import Inventory, S3Prefix
from safedelete.core.plan import TargetPlan, Unknown
from safedelete.errors import ConfigError, StoreError
from safedelete.phases.parts import ObjectPart
from safedelete.s3.canary import Conditions
from safedelete.s3.inventory import File, InventoryReader
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.testing.servers import SeaweedFS, StubS3
from safedelete.testing.servers.faults import refusing
from safedelete.wiring.connect import _prefix_part
from tests.s3.support import FakeClock, Gate, reach

NOW = FakeClock().now()
WEEK = timedelta(days=7)
MADE = NOW - timedelta(hours=20)
FOLDER = "to/bkt/daily/"
REPORT = f"{FOLDER}{MADE:%Y-%m-%dT%H-%MZ}/"
URL = f"s3://inv/{REPORT}manifest.json"

Row = dict[str, Any]


def row(key: str, *, days: float = 14, body: bytes = b"x", **extra: Any) -> Row:
    etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return {
        "Bucket": "bkt",
        "Key": key,
        "Size": len(body),
        "LastModifiedDate": NOW - timedelta(days=days),
        "ETag": etag,
        "StorageClass": "STANDARD",
    } | extra


def as_csv(rows: Sequence[Row], *, encode: Callable[[str], str] = quote_plus) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for one in rows:
        when = one["LastModifiedDate"]
        out = one | {"Key": encode(one["Key"]), "LastModifiedDate": f"{when:%Y-%m-%dT%H:%M:%S.000Z}"}
        writer.writerow([str(v).lower() if isinstance(v, bool) else v for v in out.values()])
    return gzip.compress(text.getvalue().encode())


def as_parquet(rows: Sequence[Row]) -> bytes:
    pa = pytest.importorskip("pyarrow", reason="the extra safedelete-purge[inventory] is not installed")
    import pyarrow.parquet as pq

    from safedelete.s3.inventory import _PARQUET

    columns = {_PARQUET[name]: [one[name] for one in rows] for name in rows[0]}
    out = io.BytesIO()
    table = pa.table(columns)
    at = table.schema.get_field_index("last_modified_date")
    table = table.set_column(at, "last_modified_date", table.column(at).cast(pa.timestamp("ms", tz="UTC")))
    pq.write_table(table, out)
    return out.getvalue()


def deliver(
    stub: StubS3,
    *files: bytes,
    kind: str = "CSV",
    columns: Sequence[str] = tuple(row("x")),
    report: str = REPORT,
    **manifest: Any,
) -> None:
    """Put a report where S3 would."""
    entries = []
    for number, body in enumerate(files):
        key = f"{FOLDER}data/{report.split('/')[-2]}-{number}.{'csv.gz' if kind == 'CSV' else 'parquet'}"
        stub.put("inv", key, body)
        entries.append({"key": key, "size": len(body), "MD5checksum": hashlib.md5(body).hexdigest()})
    document = {
        "sourceBucket": "bkt",
        "destinationBucket": "arn:aws:s3:::inv",
        "version": "2016-11-30",
        "creationTimestamp": str(int(MADE.timestamp() * 1000)),
        "fileFormat": kind,
        "fileSchema": ", ".join(columns) if kind == "CSV" else "message s3.inventory {}",
        "files": entries,
    } | manifest
    text = json.dumps(document).encode()
    stub.put("inv", f"{report}manifest.json", text)
    stub.put("inv", f"{report}manifest.checksum", hashlib.md5(text).hexdigest().encode())


def data(number: int) -> str:
    return f"{FOLDER}data/{REPORT.split('/')[-2]}-{number}.csv.gz"


def target(stub: StubS3, inventory: str | Inventory = URL, **conditions: Any) -> PrefixTarget:
    stub.create_bucket("bkt")
    connection = reach(stub)
    declared = S3Prefix("bkt", "p", older_than=WEEK, inventory=inventory, **conditions)
    return PrefixTarget(declared, connection, S3ObjectStore(connection, clock=FakeClock()))


def planned(found: PrefixTarget, since: datetime | None = None) -> TargetPlan:
    return found.survey(NOW, portion=None, since=since)


def scanned(found: PrefixTarget, portion: int | None = None) -> list[str]:
    return [ref.key for refs in found.scan(NOW, batch=1000, portion=portion) for ref in refs]


def why(
    stub: StubS3, inventory: str | Inventory = URL, since: datetime | None = None, **conditions: Any
) -> str:
    """Return why nothing was counted; every count must be unknown, and the scan must raise as well."""
    plan = planned(target(stub, inventory, **conditions), since)
    for count in (plan.items, plan.eligible, plan.total, plan.objects, plan.bytes):
        assert isinstance(count, Unknown)
    if since is None:
        with pytest.raises(StoreError):
            scanned(target(stub, inventory, **conditions))
    assert isinstance(plan.items, Unknown)
    return plan.items.why


ROWS = [
    row("p/a", body=b"12345"),
    row("p/young", days=1),
    row("p/x/b", days=30),
    row("p2/other"),
    row("q"),
]


@pytest.mark.parametrize("kind", ["CSV", "Parquet"])
def test_it_stands_in_for_the_listing(stub: StubS3, kind: str) -> None:
    write = as_csv if kind == "CSV" else as_parquet
    deliver(stub, write(ROWS[:2]), write(ROWS[2:]), kind=kind)
    found = target(stub)
    plan = planned(found)
    assert (plan.items, plan.total, plan.bytes, plan.conditional) == (2, 3, 6, 2)
    assert (plan.first, plan.last) == ("p/a", "p/x/b")
    assert plan.parameters["inventory"] == URL
    assert any(URL in note and "2 file(s)" in note and MADE.isoformat() in note for note in plan.notes)
    assert any("looked at again right before it is deleted" in note for note in plan.notes)
    assert scanned(found) == ["p/a", "p/x/b"]
    assert scanned(found, portion=1) == ["p/x/b"]
    assert stub.counts["ListObjectsV2"] == 0
    assert scanned(target(stub, pattern="*", min_size=2, storage_class="STANDARD")) == ["p/a"]
    assert {r.method for r in stub.requests} == {"GET"}


@pytest.mark.parametrize("encode", [quote_plus, quote, lambda key: quote(key, safe="")])
def test_keys_of_csv_are_decoded_byte_for_byte(stub: StubS3, encode: Callable[[str], str]) -> None:
    names = ["p/a b", "p/c+d", "p/e%41", 'p/"q",z', "p/\n", "p/é/💥", "p/&<>"]
    deliver(stub, as_csv([row(name) for name in names], encode=encode))
    assert scanned(target(stub)) == names


def test_keys_of_parquet_are_taken_as_they_are(stub: StubS3) -> None:
    names = ["p/a b", "p/c+d", "p/e%41", "p/a%20b"]
    deliver(stub, as_parquet([row(name) for name in names]), kind="Parquet")
    assert scanned(target(stub)) == names


@pytest.mark.parametrize("kind", ["CSV", "Parquet"])
def test_of_a_versioned_inventory_only_current_objects_count(stub: StubS3, kind: str) -> None:
    rows = [
        row("p/now", VersionId="v2", IsLatest=True, IsDeleteMarker=False),
        row("p/now", VersionId="v1", IsLatest=False, IsDeleteMarker=False),
        row("p/hidden", VersionId="v3", IsLatest=False, IsDeleteMarker=False),
        row("p/hidden", VersionId="v4", IsLatest=True, IsDeleteMarker=True, Size=0, ETag=""),
    ]
    write = as_csv if kind == "CSV" else as_parquet
    deliver(stub, write(rows), kind=kind, columns=tuple(rows[0]))
    assert scanned(target(stub)) == ["p/now"]


def test_the_order_of_a_report_means_nothing(stub: StubS3) -> None:
    names = [f"p/{(n * 37 + 50) % 101:03}" for n in range(101)]
    deliver(stub, as_csv([row(name) for name in names[:60]]), as_csv([row(name) for name in names[60:]]))
    found = target(stub)
    plan = planned(found)
    assert (plan.items, plan.first, plan.last) == (101, "p/000", "p/100")
    assert list(plan.sample) == sorted(plan.sample)
    assert sorted(scanned(found)) == sorted(names)
    assert {
        ref.etag[0] + ref.etag[-1]
        for refs in found.scan(NOW, batch=9, portion=None)
        for ref in refs
        if ref.etag
    } == {'""'}


def test_of_a_folder_the_newest_finished_report_is_read(stub: StubS3) -> None:
    older = f"{FOLDER}2026-11-01T01-00Z/"
    deliver(stub, as_csv([row("p/older")]), report=older)
    deliver(stub, as_csv([row("p/newest")]))
    stub.put("inv", f"{FOLDER}2026-11-29T01-00Z/manifest.json", b"still being written")
    stub.put("inv", f"{FOLDER}hive/dt=2026-11-30-01-00/symlink.txt", b"")
    assert scanned(target(stub, f"s3://inv/{FOLDER}")) == ["p/newest"]


def test_survey_and_scan_read_one_report_also_when_a_newer_one_arrives(stub: StubS3) -> None:
    deliver(stub, as_csv([row("p/first")]))
    found = target(stub, f"s3://inv/{FOLDER}")
    assert planned(found).items == 1
    deliver(stub, as_csv([row("p/later"), row("p/more")]), report=f"{FOLDER}2026-11-28T23-00Z/")
    assert scanned(found) == ["p/first"]


def test_a_missing_report_or_file_is_unknown(stub: StubS3) -> None:
    stub.create_bucket("inv")
    assert "NoSuchKey" in why(stub)
    assert "no finished inventory report" in why(stub, f"s3://inv/{FOLDER}")
    deliver(stub, as_csv(ROWS[:2]), as_csv(ROWS[2:]))
    stub._buckets["inv"].pop(data(1))
    assert f"{data(1)} failed: NoSuchKey" in why(stub)
    deliver(stub, as_csv(ROWS))
    stub._buckets["inv"].pop(f"{REPORT}manifest.checksum")
    assert "checksum" in why(stub)


@pytest.mark.parametrize("column", ["IsLatest", "IsDeleteMarker"])
@pytest.mark.parametrize("value", [None, "true", 1])
def test_a_version_of_which_it_is_not_known_whether_it_is_current_is_unknown(
    stub: StubS3, column: str, value: object
) -> None:
    odd = row("p/a") | {"VersionId": "v", "IsLatest": True, "IsDeleteMarker": False} | {column: value}
    deliver(stub, as_parquet([odd]), kind="Parquet")
    assert column in why(stub)


def test_a_wrong_checksum_is_unknown(stub: StubS3) -> None:
    deliver(stub, as_csv(ROWS[:2]), as_csv(ROWS[2:]))
    stub.put("inv", data(1), as_csv(ROWS[2:3]))
    assert "MD5" in why(stub)
    deliver(stub, as_csv(ROWS))
    stub.put("inv", f"{REPORT}manifest.checksum", b"0" * 32)
    assert "manifest.checksum says" in why(stub)


def test_a_file_of_the_right_checksum_that_cannot_be_read_is_unknown(stub: StubS3) -> None:
    whole = as_csv(ROWS)
    for body, word in (
        (whole[:-9], "EOFError"),
        (b"no gzip", "BadGzipFile"),
        (gzip.compress(b'"bkt","p/a"\n'), "2 fields"),
        (as_csv([row("p/a", Bucket="other")]), "bucket 'other'"),
        (as_csv([row("p/a", ETag="")]), "no ETag"),
        (as_csv([row("p/a", Size="many")]), "ValueError"),
        (as_csv([row("p/a", Size=-1)]), "'p/a' has -1 bytes"),
        (as_csv([row("p/%zz%ff")], encode=str), "UnicodeDecodeError"),
        (as_csv([row("")]), "without a key"),
    ):
        deliver(stub, body)
        assert word in why(stub), word
    deliver(stub, b"PAR1 or not", kind="Parquet")
    assert "Arrow" in why(stub)


def test_a_file_that_is_longer_than_the_manifest_says_is_not_fetched_to_its_end() -> None:
    sent = 0

    def endless(size: int) -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            assert sent < 10
            yield b"x" * size

    client: Any = SimpleNamespace(get_object=lambda **_: {"Body": SimpleNamespace(iter_chunks=endless)})
    reader = InventoryReader(client, Inventory(URL), "bkt")
    with pytest.raises(StoreError, match="damaged"), reader._fetched(File("k", 10, "0"), "Reading it"):
        pass


def test_an_error_in_the_last_file_leaves_no_short_listing(stub: StubS3) -> None:
    deliver(stub, as_csv(ROWS), as_csv(ROWS), b"no gzip")
    assert "BadGzipFile" in why(stub)


@pytest.mark.parametrize(
    ("manifest", "word"),
    [
        ({"sourceBucket": "foreign"}, "'foreign', not 'bkt'"),
        ({"destinationBucket": "arn:aws:s3:::elsewhere"}, "'elsewhere'"),
        ({"fileFormat": "ORC"}, "'ORC'; CSV and Parquet"),
        ({"version": "2030-01-01"}, "'2030-01-01'"),
        ({"fileSchema": "Bucket, Key, Size"}, "no column LastModifiedDate, ETag"),
        ({"fileSchema": "Bucket, Key, VersionId, Size, LastModifiedDate, ETag"}, "IsLatest, IsDeleteMarker"),
        ({"files": []}, "names 0 files"),
        ({"files": [{"key": "a", "size": 1, "MD5checksum": ""}] * 2}, "names 2 files, 1 of them different"),
        ({"files": None}, "no inventory manifest"),
        ({"creationTimestamp": "yesterday"}, "no inventory manifest"),
        ({"creationTimestamp": str(int((NOW - timedelta(days=3)).timestamp() * 1000))}, "3.0 days before"),
        ({"creationTimestamp": str(int((NOW + timedelta(days=1)).timestamp() * 1000))}, "after this plan"),
    ],
)
def test_a_manifest_that_does_not_fit_is_unknown(stub: StubS3, manifest: dict[str, Any], word: str) -> None:
    deliver(stub, as_csv(ROWS), **manifest)
    assert word in why(stub)


def test_a_manifest_that_is_no_json_is_unknown(stub: StubS3) -> None:
    for text in (b"<html>", b"[]", b"{}", b"[" * 100_000):
        stub.put("inv", f"{REPORT}manifest.json", text)
        stub.put("inv", f"{REPORT}manifest.checksum", hashlib.md5(text).hexdigest().encode() + b"\n")
        assert "no inventory manifest" in why(stub)


def test_storage_classes_need_their_column(stub: StubS3) -> None:
    rows = [{k: v for k, v in row("p/a").items() if k != "StorageClass"}]
    deliver(stub, as_csv(rows), columns=tuple(rows[0]))
    assert scanned(target(stub)) == ["p/a"]
    assert "no column StorageClass" in why(stub, storage_class="STANDARD")
    deliver(stub, as_parquet(rows), kind="Parquet")
    assert "no column StorageClass" in why(stub, storage_class="STANDARD")


def test_an_older_inventory_is_used_where_that_was_said(stub: StubS3) -> None:
    made = NOW - timedelta(days=7)
    deliver(stub, as_csv(ROWS), creationTimestamp=str(int(made.timestamp() * 1000)))
    assert scanned(target(stub, Inventory(URL, max_age=timedelta(days=8)))) == ["p/a", "p/x/b"]


def test_an_inventory_of_before_the_last_run_is_unknown(stub: StubS3) -> None:
    deliver(stub, as_csv(ROWS))
    assert "still names what that run deleted" in why(stub, since=MADE + timedelta(hours=1))
    assert planned(target(stub), since=MADE - timedelta(hours=1)).late == 2


def test_parquet_without_pyarrow_says_what_to_install(stub: StubS3, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(stub, as_parquet(ROWS), kind="Parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="pyarrow") as caught:
        planned(target(stub))
    assert "safedelete-purge[inventory]" in caught.value.hint


def run_on(part: ObjectPart, *, proven: bool, as_of: datetime = NOW) -> dict[str, tuple[str, str]]:
    """Plan from the inventory and delete; return what became of each key."""
    store: Any = part.target.store
    if proven:
        store._conditional = frozenset({store._modes and next(iter(store._modes))})
    (refs,) = part.target.scan(as_of, batch=1000, portion=None)
    return {ref.key: (o.state.value, o.code) for ref, o in store.delete(refs, gate=Gate()).items()}


def part_on(server: StubS3 | SeaweedFS, bucket: str, url: str, clock: Any) -> ObjectPart:
    return _prefix_part(
        S3Prefix(bucket, "p", older_than=WEEK, inventory=url), reach(server), clock, Conditions()
    )


@pytest.mark.parametrize("proven", [False, True])
def test_each_key_is_looked_at_again_before_it_is_deleted(stub: StubS3, *, proven: bool) -> None:
    names = ["p/same", "p/overwritten", "p/rewritten", "p/gone"]
    deliver(stub, as_csv([row(name) for name in names]))
    stub.put("bkt", "p/same", b"x", modified=NOW - 2 * WEEK)
    stub.put("bkt", "p/overwritten", b"another", modified=NOW - timedelta(hours=2))
    stub.put("bkt", "p/rewritten", b"x", modified=NOW - timedelta(hours=2))
    assert run_on(part_on(stub, "bkt", URL, FakeClock()), proven=proven) == {
        "p/same": ("deleted", ""),
        "p/overwritten": ("changed", "overwritten"),
        "p/rewritten": ("changed", "rewritten"),
        "p/gone": ("gone", ""),
    }
    assert stub.keys("bkt") == {"p/overwritten", "p/rewritten"}


def test_a_key_that_cannot_be_looked_at_stays(stub: StubS3) -> None:
    deliver(stub, as_csv([row("p/a")]))
    stub.put("bkt", "p/a", b"x", modified=NOW - 2 * WEEK)
    stub.always(refusing(403, "AccessDenied"), "HeadObject")
    assert run_on(part_on(stub, "bkt", URL, FakeClock()), proven=True) == {"p/a": ("failed", "unverified")}
    assert stub.keys("bkt") == {"p/a"}


class Later(FakeClock):
    """A clock two weeks ahead of the real one, so that what a real store holds is old."""

    def now(self) -> datetime:
        return datetime.now(UTC) + 2 * WEEK


def test_it_stands_in_for_the_listing_of_a_real_store(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    put = weed.client()
    for key in ("p/a b", "p/c+d", "p/x/y", "q/other"):
        put.put_object(Bucket=bucket, Key=key, Body=key.encode())
    listed = put.list_objects_v2(Bucket=bucket)["Contents"]
    rows = [
        row(item["Key"], Bucket=bucket, ETag=item["ETag"].strip('"'), LastModifiedDate=item["LastModified"])
        for item in listed
    ]
    made = Later().now()
    report = StubS3()
    deliver(
        report,
        as_csv(rows),
        sourceBucket=bucket,
        destinationBucket=f"arn:aws:s3:::{bucket}",
        creationTimestamp=str(int(made.timestamp() * 1000)),
    )
    for key, stored in report._buckets["inv"].items():
        put.put_object(Bucket=bucket, Key=key, Body=stored.body)
    put.put_object(Bucket=bucket, Key="p/c+d", Body=b"written since")
    part = part_on(weed, bucket, f"s3://{bucket}/{FOLDER}", Later())
    assert run_on(part, proven=False, as_of=made) == {
        "p/a b": ("deleted", ""),
        "p/c+d": ("changed", "overwritten"),
        "p/x/y": ("deleted", ""),
    }
    left = {item["Key"] for item in put.list_objects_v2(Bucket=bucket)["Contents"]}
    assert {key for key in left if not key.startswith("to/")} == {"p/c+d", "q/other"}
