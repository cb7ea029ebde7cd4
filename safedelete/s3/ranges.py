"""List a large prefix by several key ranges at a time, where its keys show how to cut it.

Reads only. A store answers a listing page by page, so one listing waits most of its time. The ranges are the
sub-folders of the prefix, as the store itself names them: unlike bounds of our own that does not rest on the order in
which it lists, and no key can be in two of them or in none. What comes out is what one listing would give, by page
from each range in turn; which of them answered first does not show. An error in any range ends them all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from safedelete.s3.listing import Listed, list_level, list_objects

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

WORKERS: Final = 8
"""Ranges at a time; the SDK keeps ten connections unless told otherwise."""

LOOK: Final = 4
"""Pages of a plain listing that are read first: most prefixes end within them, and they show how finely it is cut."""

_DEPTH: Final = 4

Page: TypeAlias = list[Listed]


def list_ranges(
    client: S3Client, bucket: str, prefix: str, *, page_size: int = 1000, workers: int = WORKERS
) -> Iterator[tuple[int, Page]]:
    """Yield the current objects under a prefix, a page at a time, each with the number of its lane. Reads only.

    The pages of one lane come in the order of the listing, those of different lanes in turn; there are at most as many
    lanes as workers. Memory is a page for each lane.

    Args:
        client: The client; used by several threads.
        bucket: The bucket.
        prefix: Leading characters of the keys.
        page_size: Keys a page at most, 1 to 1,000.
        workers: Ranges at a time; 1 for a plain listing.

    Raises:
        StoreError: A range could not be listed to its end; what was yielded so far is not the whole.
    """
    pages = list_objects(client, bucket, prefix, page_size=page_size)
    first = list(islice(pages, LOOK))
    cut = _cut(client, bucket, prefix, first) if len(first) == LOOK and workers > 1 else None
    if cut is None:
        for page in first:
            yield 0, page
        for page in pages:
            yield 0, page
        return
    direct, folders = cut
    if direct:
        yield 0, direct
    ranges = (list_objects(client, bucket, folder, page_size=page_size) for folder in folders)
    yield from _in_turn(ranges, workers)


def _cut(client: S3Client, bucket: str, prefix: str, first: list[Page]) -> tuple[Page, list[str]] | None:
    """Return what stands above the ranges and the ranges' own prefixes; None where cutting would not pay."""
    direct: Page = []
    folder = prefix
    for _ in range(_DEPTH):
        level = list_level(client, bucket, folder)
        if level is None:
            return None
        direct += level.objects
        if len(level.folders) != 1:
            break
        (folder,) = level.folders
    else:
        return None
    folders = level.folders
    if not folders or any(_deeper(name, folder) for name in folders) or len(set(folders)) < len(folders):
        return None
    # A range costs a request even when it is small. The first pages tell how many keys a range has.
    homes = set(folders)
    standing = {item.key for item in direct}
    seen: set[str] = set()
    for page in first:
        for item in page:
            if item.key not in standing:
                if not item.key.startswith(folder):
                    return None
                seen.add(folder + item.key[len(folder) :].partition("/")[0] + "/")
    # Should the store's two ways of listing differ in what they name, neither is made up for by the other.
    return (direct, folders) if seen <= homes and len(seen) <= len(first) else None


def _deeper(name: str, folder: str) -> bool:
    return not name.endswith("/") or "/" in name[len(folder) : -1] or len(name) == len(folder)


def _in_turn(ranges: Iterable[Iterator[Page]], workers: int) -> Iterator[tuple[int, Page]]:
    waiting = iter(ranges)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="safedelete-list")
    try:
        turns: deque[tuple[int, Iterator[Page], Future[Page | None]]] = deque(
            (lane, pages, pool.submit(next, pages, None))
            for lane, pages in enumerate(islice(waiting, workers))
        )
        while turns:
            lane, pages, ahead = turns.popleft()
            page = ahead.result()
            if page is not None:
                turns.append((lane, pages, pool.submit(next, pages, None)))
                yield lane, page
                continue
            following = next(waiting, None)
            if following is not None:
                turns.append((lane, following, pool.submit(next, following, None)))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
