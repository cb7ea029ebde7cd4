"""What lies below the prefixes that rows own, and what a plan should say about their buckets. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from safedelete.core.item import ObjectRef, Prefix
from safedelete.core.plan import Unknown
from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.s3.client import Connection
from safedelete.s3.listing import by_key, list_objects, list_versions
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.versioning import BucketState, notes, read_bucket, ref_of


class OwnedObjectsReader:
    """Reads the buckets that the rows of one target own objects in. Implements ``ports.OwnedReader``.

    Args:
        buckets: For each bucket, how it is reached, the declared mode, and the store that deletes from it.
        lists: Whether rows own prefixes.
        page_size: Keys a listing page.
        workers: Listings at a time.
    """

    def __init__(
        self,
        buckets: Mapping[str, tuple[Connection, Mode | None, S3ObjectStore]],
        *,
        lists: bool,
        page_size: int = 1000,
        workers: int = 8,
    ) -> None:
        self._buckets = dict(buckets)
        self._lists = lists
        self._page_size = page_size
        self._workers = workers
        self._states: dict[str, BucketState] = {}

    @property
    def lists(self) -> bool:
        """Whether rows own prefixes, so that their objects are found by listing."""
        return self._lists

    def below(
        self, prefixes: Sequence[Prefix], *, most: int
    ) -> Mapping[Prefix, tuple[ObjectRef, ...] | None]:
        """List what lies below each prefix: current objects, or every version and marker in purge mode. Reads only.

        Raises:
            StoreError: A listing failed, or the bucket's versioning could not be read.
        """
        for bucket in dict.fromkeys(prefix.bucket for prefix in prefixes):
            self._state(bucket)
        if len(prefixes) == 1:
            return {prefixes[0]: self._below(prefixes[0], most)}
        with ThreadPoolExecutor(self._workers, thread_name_prefix="safedelete-below") as pool:
            found = list(pool.map(lambda prefix: self._below(prefix, most), prefixes))
        return dict(zip(prefixes, found, strict=True))

    def notes(self) -> tuple[str, ...]:
        """Return what a plan should say about the buckets: what survives a delete, and what an overwritten object meets."""
        found: list[str] = []
        for bucket, (_, mode, store) in self._buckets.items():
            try:
                found += notes(self._state(bucket), mode)
            except StoreError as error:
                found.append(f"{bucket}: what it keeps of a deleted object is unknown ({error})")
            found.append(store.protection(bucket))
        return tuple(found)

    def _state(self, bucket: str) -> BucketState:
        if bucket not in self._states:
            state = read_bucket(self._buckets[bucket][0].reader, bucket)
            if isinstance(state, Unknown):
                raise StoreError(f"{state.why}.", hint="Grant the caller this action.")
            self._states[bucket] = state
        return self._states[bucket]

    def _below(self, prefix: Prefix, most: int) -> tuple[ObjectRef, ...] | None:
        found: list[ObjectRef] = []
        for refs in self._pages(prefix):
            found += refs
            if len(found) > most:
                return None
        return tuple(found)

    def _pages(self, prefix: Prefix) -> Iterator[list[ObjectRef]]:
        connection, mode, _ = self._buckets[prefix.bucket]
        if mode == "purge" and self._states[prefix.bucket].versioning != "off":
            pages = list_versions(connection.reader, prefix.bucket, prefix.text, page_size=self._page_size)
            for versions in by_key(pages):
                yield [ref_of(prefix.bucket, version) for version in versions]
            return
        for page in list_objects(connection.reader, prefix.bucket, prefix.text, page_size=self._page_size):
            yield [ObjectRef(prefix.bucket, item.key, item.etag, None, item.size) for item in page]
