"""Listing by ranges names what one listing names: no more, no less, the same each time, or it fails as a whole."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safedelete.errors import StoreError
from safedelete.s3 import ranges
from safedelete.s3.listing import Listed, list_objects
from safedelete.s3.ranges import LOOK, list_ranges
from safedelete.testing.servers import SeaweedFS, StubS3
from safedelete.testing.servers.faults import Request, answering, refusing
from tests.s3.support import reach


def by_ranges(client: Any, bucket: str, prefix: str, **options: Any) -> list[Listed]:
    return [item for _, page in list_ranges(client, bucket, prefix, **options) for item in page]


def serially(client: Any, bucket: str, prefix: str) -> list[Listed]:
    return [item for page in list_objects(client, bucket, prefix) for item in page]


def same(client: Any, bucket: str, prefix: str, **options: Any) -> bool:
    return sorted(by_ranges(client, bucket, prefix, **options)) == sorted(serially(client, bucket, prefix))


def ranged(stub: StubS3) -> bool:
    """Whether the last listing was cut: then some request named the prefix of a range."""
    return (
        any(r.query.get("delimiter") for r in stub.requests)
        and len({r.query.get("prefix") for r in stub.requests if r.operation == "ListObjectsV2"}) > 1
    )


def filled(stub: StubS3, folders: int = 6, each: int = 9) -> StubS3:
    for folder in range(folders):
        for number in range(each):
            stub.put("bkt", f"p/{folder}/{number}")
    return stub


def test_a_large_prefix_is_listed_by_its_folders(stub: StubS3) -> None:
    filled(stub)
    stub.put("bkt", "p/direct")
    stub.put("bkt", "p/")
    stub.put("bkt", "p2/other")
    client = reach(stub).reader
    assert same(client, "bkt", "p/", page_size=3)
    assert ranged(stub)
    assert len(by_ranges(client, "bkt", "p/", page_size=3)) == 6 * 9 + 2


def test_a_small_prefix_costs_no_request_more(stub: StubS3) -> None:
    filled(stub, each=3)
    by_ranges(reach(stub).reader, "bkt", "p/", page_size=6)
    assert stub.counts["ListObjectsV2"] == 3
    assert not ranged(stub)


def test_folders_with_less_than_a_page_each_are_listed_in_one_go(stub: StubS3) -> None:
    for number in range(40):
        stub.put("bkt", f"p/{number:02}/only")
    assert same(reach(stub).reader, "bkt", "p/", page_size=2)
    assert {r.query["prefix"] for r in stub.requests} == {"p/"}


def test_a_single_folder_is_cut_where_it_branches(stub: StubS3) -> None:
    for folder in "xy":
        for number in range(9):
            stub.put("bkt", f"p/only/{folder}/{number}")
    for key in ("p/only/a", "p/only/", "p/direct"):
        stub.put("bkt", key)
    assert same(reach(stub).reader, "bkt", "p/", page_size=2)
    assert {"p/only/x/", "p/only/y/"} <= {r.query["prefix"] for r in stub.requests}


def test_a_prefix_without_a_folder_or_with_too_many_names_is_listed_in_one_go(stub: StubS3) -> None:
    for number in range(20):
        stub.put("bkt", f"flat/{number:02}")
    for number in range(1001):
        stub.put("bkt", f"wide/{number:04}")
    client = reach(stub).reader
    for prefix in ("flat/", "wide/"):
        stub.requests.clear()
        assert same(client, "bkt", prefix, page_size=2)
        assert {r.query["prefix"] for r in stub.requests} == {prefix}


keys = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "a-", "", "+ %", "é", ".."]), min_size=1, max_size=4).map(
        "/".join
    ),
    max_size=40,
    unique=True,
)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys, st.sampled_from(["p/", "", "p/a", "p/a/"]), st.integers(1, 4), st.integers(2, 4))
def test_it_names_exactly_what_one_listing_names(
    stub: StubS3, names: list[str], prefix: str, page: int, workers: int
) -> None:
    stub._buckets.clear()
    stub._sorted.clear()
    stub.create_bucket("bkt")
    for name in names:
        stub.put("bkt", f"p/{name}")
    client = reach(stub).reader
    assert same(client, "bkt", prefix, page_size=page, workers=workers)


def test_on_a_real_store_it_names_what_one_listing_names(weed: SeaweedFS, bucket: str) -> None:
    weed.create_bucket(bucket)
    put = weed.client()
    for folder in ("a", "a-b", "b/c", "b/d", "ü"):
        for number in range(4):
            put.put_object(Bucket=bucket, Key=f"p/{folder}/{number}", Body=b"x")
    for key in ("p/top", "p/a.txt", "p/marker/", "q/other"):
        put.put_object(Bucket=bucket, Key=key, Body=b"")
    client = reach(weed).reader
    assert same(client, bucket, "p/", page_size=2)
    assert same(client, bucket, "", page_size=2)
    assert {item.key for item in by_ranges(client, bucket, "p/", page_size=2)} >= {
        "p/top",
        "p/a.txt",
        "p/b/c/3",
    }


def test_the_order_does_not_depend_on_which_range_answers_first(stub: StubS3) -> None:
    filled(stub)
    client = reach(stub).reader
    plain = list(list_ranges(client, "bkt", "p/", page_size=3))

    def slow(folder: str) -> None:
        def program(request: Request) -> None:
            if request.query.get("prefix") == folder:
                time.sleep(0.02)

        stub.program = program

    for folder in ("p/0/", "p/3/", "p/5/"):
        slow(folder)
        assert list(list_ranges(client, "bkt", "p/", page_size=3)) == plain
    for lane in {lane for lane, _ in plain}:
        names = [item.key for number, page in plain if number == lane for item in page]
        assert names == sorted(names), "a lane is in the order of the listing"
    assert len({lane for lane, _ in plain}) == 6


@pytest.mark.parametrize(
    "fault", [refusing(403, "AccessDenied"), answering(200, b"<html></html>"), answering(200, b"")]
)
@pytest.mark.parametrize("place", ["p/0/", "p/5/"])
def test_an_error_in_one_range_fails_the_listing(stub: StubS3, fault: Any, place: str) -> None:
    filled(stub)
    seen: Counter[str] = Counter()

    def program(request: Request) -> Any:
        prefix = request.query.get("prefix", "")
        seen[prefix] += 1
        return fault if prefix == place and seen[prefix] == 2 else None

    stub.program = program
    with pytest.raises(StoreError):
        by_ranges(reach(stub).deleter, "bkt", "p/", page_size=3)


def test_an_error_while_looking_for_the_folders_fails_the_listing(stub: StubS3) -> None:
    filled(stub)
    stub.program = lambda r: refusing(403, "AccessDenied") if r.query.get("delimiter") else None
    with pytest.raises(StoreError, match="AccessDenied"):
        by_ranges(reach(stub).reader, "bkt", "p/", page_size=3)


def test_a_store_that_knows_no_delimiter_is_listed_in_one_go(stub: StubS3) -> None:
    filled(stub)

    def program(request: Request) -> Any:
        if not request.query.get("delimiter"):
            return None
        return answering(
            200,
            b"<ListBucketResult><IsTruncated>false</IsTruncated><CommonPrefixes><Prefix>p/0/</Prefix></CommonPrefixes>"
            b"<CommonPrefixes><Prefix>p/1/</Prefix></CommonPrefixes></ListBucketResult>",
        )

    stub.program = program
    # It leaves folders out that the plain listing has shown, so it is not believed.
    assert len(by_ranges(reach(stub).reader, "bkt", "p/", page_size=5)) == 54


def test_ranges_are_listed_at_the_same_time(stub: StubS3) -> None:
    filled(stub)
    together = threading.Barrier(4, timeout=10)
    met = threading.Event()

    def program(request: Request) -> None:
        if request.query.get("prefix") in ("p/0/", "p/1/", "p/2/", "p/3/") and not met.is_set():
            together.wait()
            met.set()

    stub.program = program
    assert len(by_ranges(reach(stub).reader, "bkt", "p/", page_size=3, workers=4)) == 54
    assert met.is_set()


class Endless:
    """A client whose folders hold any number of keys, made when asked for."""

    def __init__(self, folders: int, pages: int) -> None:
        self.folders, self.pages = folders, pages

    def list_objects_v2(self, **options: Any) -> Any:
        prefix, at = options["Prefix"], int(options.get("ContinuationToken", 0))
        if options.get("Delimiter"):
            folders = [{"Prefix": f"p/{n}/"} for n in range(self.folders)]
            return {"IsTruncated": False, "CommonPrefixes": folders}
        folder = prefix if prefix != "p/" else "p/0/"
        when = "2026-01-01T00:00:00Z"
        contents = [
            {"Key": f"{folder}{at:05}{n:04}", "ETag": '"e"', "Size": 1, "LastModified": when}
            for n in range(1000)
        ]
        more = at + 1 < self.pages or prefix == "p/"
        return {"IsTruncated": more, "Contents": contents, "NextContinuationToken": str(at + 1)}


def peak(pages: int) -> int:
    client: Any = Endless(5, pages)
    tracemalloc.start()
    try:
        count = sum(len(page) for _, page in list_ranges(client, "bkt", "p/", workers=4))
        assert count == 5 * pages * 1000
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_keys() -> None:
    peak(1)
    few, many = peak(4), peak(40)
    assert many < 1.5 * few, (few, many)


def test_a_consumer_that_stops_leaves_no_thread_behind(stub: StubS3) -> None:
    filled(stub)
    found: Iterator[Any] = list_ranges(reach(stub).reader, "bkt", "p/", page_size=3)
    next(found)
    found.close()  # type: ignore[attr-defined]
    for thread in [t for t in threading.enumerate() if t.name.startswith("safedelete-list")]:
        thread.join(5)
        assert not thread.is_alive()


def test_how_far_it_looks_is_what_the_tests_assume() -> None:
    assert (LOOK, ranges.WORKERS) == (4, 8)
