"""The objects under a prefix that are older than an age: counted, pictured and listed for a plan.

Reads only. Everything comes from listings, one pass for the survey and one or two for the scan; memory does not grow with
the number of objects, except by one number for each object of a portion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeAlias

from safedelete.core.item import ObjectRef
from safedelete.core.plan import TargetPlan, Unknown
from safedelete.declare.prefix import STANDARD, S3Prefix
from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.s3.client import Connection
from safedelete.s3.count import Count, Found, Oldest
from safedelete.s3.inventory import InventoryReader
from safedelete.s3.keys import refusal
from safedelete.s3.listing import Listed, ListedVersion, by_key, list_versions, written
from safedelete.s3.ranges import list_ranges
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.versioning import BucketState, check_mode, notes, read_bucket, ref_of

Pages: TypeAlias = Iterator[tuple[int, list[Found]]]
"""Pages of a listing, each with the number of its lane; the pages of one lane are in the order of the listing."""

_Chooses: TypeAlias = Callable[[Listed | ListedVersion], bool]


def chooser(declared: S3Prefix) -> _Chooses | None:
    """Return what tells whether pattern, size and storage class hold; None where nothing of that is declared."""
    regex, low, high = declared.pattern_regex, declared.min_size, declared.max_size
    classes, skip = frozenset(declared.storage_classes), len(declared.prefix)
    if regex is None and low is None and high is None and not classes:
        return None

    def chooses(item: Listed | ListedVersion) -> bool:
        return (
            (regex is None or regex.fullmatch(item.key, skip) is not None)
            and (low is None or item.size >= low)
            and (high is None or item.size <= high)
            and (not classes or (item.storage or STANDARD) in classes)
        )

    return chooses


def _any(_: Found) -> bool:
    return True


class PrefixTarget:
    """One ``S3Prefix`` of a purge; implements :class:`safedelete.ports.ObjectTarget`.

    Args:
        declared: The declaration.
        connection: The endpoint it is on.
        store: What deletes its objects; not used for planning.
        page_size: Keys a listing page.
        notes: What a reader of the plan should know of the targets beside it.
    """

    def __init__(
        self,
        declared: S3Prefix,
        connection: Connection,
        store: S3ObjectStore,
        *,
        page_size: int = 1000,
        notes: Sequence[str] = (),
    ) -> None:
        self._declared = declared
        self._notes = tuple(notes)
        self._connection = connection
        self._store = store
        self._page_size = page_size
        self._inventory = (
            None
            if declared.inventory is None
            else InventoryReader(
                connection.reader,
                declared.inventory,
                declared.bucket,
                classes=bool(declared.storage_classes),
            )
        )

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return self._declared.name

    @property
    def store(self) -> S3ObjectStore:
        """What deletes its objects."""
        return self._store

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Count what is eligible by listing the whole prefix. Reads only; idempotent.

        A listing that fails or is cut short makes the counts Unknown, never 0.

        Args:
            as_of: The frozen instant; objects last modified before it minus the age are eligible, exclusive.
            portion: Most items this run takes, oldest first; None for all.
            since: ``as_of`` of the last successful run, for counting objects that it should have taken.

        Raises:
            ConfigError: The bucket is versioned and no mode is declared, or its MFA delete forbids the mode.
        """
        cutoff = self._cutoff(as_of)
        try:
            state = read_bucket(self._connection.reader, self._declared.bucket)
            if isinstance(state, Unknown):
                return self._unknown(as_of, Unknown(state.why))
            mode = check_mode(state, self._declared.mode, self.name)
            count = Count(cutoff, None if since is None else since - self._declared.older_than, portion)
            for _, page in self._pages(mode, as_of, since):
                for found in page:
                    count.add(found)
        except StoreError as error:
            return self._unknown(as_of, Unknown(f"{error} {error.hint}".strip()))
        return self._plan(as_of, state, mode, count)

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[ObjectRef, ...]]:
        """Yield the eligible objects in listing order, with ETag and size. Reads only.

        All versions of one key are in one batch, which may therefore be larger than ``batch``.

        Args:
            as_of: The frozen instant.
            batch: Items a batch, at least 1.
            portion: Most items, oldest first; None for all.

        Raises:
            StoreError: A listing failed; what was yielded so far is not the whole.
            ConfigError: As for :meth:`survey`.
        """
        state = read_bucket(self._connection.reader, self._declared.bucket)
        if isinstance(state, Unknown):
            raise StoreError(f"{self.name}: {state.why}.", hint="Grant the caller this action.")
        mode = check_mode(state, self._declared.mode, self.name)
        take: Callable[[Found], bool] = _any
        if portion is not None:
            oldest = Oldest(portion)
            for _, found in self._eligible(mode, as_of):
                oldest.add(found)
            take = oldest.taker()
        # Each lane of the listing fills batches of its own: the keys of one batch stand close together in the store.
        waiting: dict[int, list[ObjectRef]] = {}
        for lane, found in self._eligible(mode, as_of):
            if not take(found):
                continue
            mine = waiting.setdefault(lane, [])
            if mine and len(mine) + len(found.refs) > batch:
                yield tuple(mine)
                mine.clear()
            mine += found.refs
        for mine in waiting.values():
            if mine:
                yield tuple(mine)

    def _cutoff(self, as_of: datetime) -> datetime:
        return as_of.astimezone(UTC) - self._declared.older_than

    def _eligible(self, mode: Mode | None, as_of: datetime) -> Iterator[tuple[int, Found]]:
        cutoff = self._cutoff(as_of).timestamp()
        for lane, page in self._pages(mode, as_of, None):
            for found in page:
                if found.chosen and found.written < cutoff and refusal(found.refs[0].key) is None:
                    yield lane, found

    def _pages(self, mode: Mode | None, as_of: datetime, since: datetime | None) -> Pages:
        bucket, prefix = self._declared.bucket, self._declared.prefix
        if mode == "purge":
            listing = list_versions(self._connection.reader, bucket, prefix, page_size=self._page_size)
            for versions in by_key(listing):
                yield 0, [self._whole_key(versions)]
            return
        chooses = self._chooses
        for lane, page in self._listed(as_of, since):
            # Millions of times over: no call a key that is not needed.
            yield (
                lane,
                [
                    Found(
                        (ObjectRef(bucket, item.key, item.etag, None, item.size),),
                        written(item.modified),
                        chooses is None or chooses(item),
                    )
                    for item in page
                ],
            )

    def _listed(self, as_of: datetime, since: datetime | None) -> Iterator[tuple[int, list[Listed]]]:
        if self._inventory is not None:
            for page in self._inventory.pages(as_of, since, self._declared.prefix):
                yield 0, page
            return
        yield from list_ranges(
            self._connection.reader, self._declared.bucket, self._declared.prefix, page_size=self._page_size
        )

    def _whole_key(self, versions: Sequence[ListedVersion]) -> Found:
        refs = tuple(ref_of(self._declared.bucket, version) for version in versions)
        # A key is as old as the newest thing that was done to it.
        newest = max(written(version.modified) for version in versions)
        return Found(refs, newest, self._chooses is None or self._chooses_key(versions))

    def _chooses_key(self, versions: Sequence[ListedVersion]) -> bool:
        """Whether a key goes as a whole: each of its versions is chosen; markers have neither size nor class."""
        data = [version for version in versions if not version.marker]
        if not data and (self._declared.conditions.keys() - {"pattern"}):
            return False
        return self._chooses is None or all(map(self._chooses, data or versions))

    @cached_property
    def _chooses(self) -> _Chooses | None:
        return chooser(self._declared)

    def _unknown(self, as_of: datetime, why: Unknown) -> TargetPlan:
        return TargetPlan(
            name=self.name,
            kind="objects",
            items=why,
            eligible=why,
            total=why,
            objects=why,
            bytes=why,
            late=why,
            cutoff=self._cutoff(as_of),
            period=self._declared.older_than,
            ages=why,
            conditional=why,
            statement=self._statement(as_of),
        )

    def _plan(self, as_of: datetime, state: BucketState, mode: Mode | None, count: Count) -> TargetPlan:
        items, size = count.items, count.bytes
        return TargetPlan(
            name=self.name,
            kind="objects",
            items=items,
            eligible=count.eligible,
            total=count.total,
            objects=items,
            bytes=size,
            ageless=count.total - count.refused_refs - count.not_chosen,
            late=count.late,
            cutoff=count.cutoff,
            period=self._declared.older_than,
            ages=count.profile(),
            conditional=items if count.unconditional == 0 else max(0, items - count.unconditional),
            statement=self._statement(as_of),
            parameters={"cutoff": count.cutoff.isoformat(), **self._parameters()},
            first=count.first,
            last=count.last,
            sample=count.sample,
            notes=(*notes(state, mode), *self._own_notes(mode, count)),
        )

    def _statement(self, as_of: datetime) -> str:
        conditions = self._conditions()
        also = f" {conditions}" if conditions else ""
        return f"objects under {self.name}{also} last modified before {self._cutoff(as_of).isoformat()}"

    def _conditions(self) -> str:
        declared = self._declared
        words: list[str] = []
        if declared.pattern is not None:
            words.append(f"whose key goes on as {declared.pattern}")
        if declared.min_size is not None:
            words.append(f"of at least {declared.min_size:,} bytes")
        if declared.max_size is not None:
            words.append(f"of at most {declared.max_size:,} bytes")
        if declared.storage_classes:
            words.append(f"of storage class {' or '.join(declared.storage_classes)}")
        return ", ".join(words)

    def _parameters(self) -> dict[str, str]:
        declared = self._declared
        given: dict[str, object] = dict(declared.conditions)
        if declared.max_delete_rate is not None:
            given["max_delete_rate"] = f"{declared.max_delete_rate:g} keys/s"
        if declared.storage_classes:
            given["storage_class"] = ", ".join(declared.storage_classes)
        if declared.inventory is not None:
            given["inventory"] = declared.inventory.url
        return {name: str(value) for name, value in given.items()}

    def _own_notes(self, mode: Mode | None, count: Count) -> Iterator[str]:
        if count.refused_keys:
            example = count.refused_example
            yield (
                f"{count.refused_keys:,} eligible key(s) cannot be deleted safely by any request and are kept, "
                f"for one {example!r}: {refusal(example)}"
            )
        if count.not_chosen:
            yield (
                f"{count.not_chosen:,} of the {count.total:,} object(s) under the prefix do not meet pattern, size or "
                "storage class, and are kept at any age"
            )
        if self._inventory is not None:
            yield from self._inventory.notes()
        yield from self._notes
        if mode == "purge":
            yield "each item is one version or delete marker; a version written after the plan is kept"
        else:
            yield self._store.protection(self._declared.bucket)
        if count.unconditional:
            yield f"{count.unconditional:,} object(s) were listed without an ETag: one overwritten since would go too"
