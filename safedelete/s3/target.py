"""The objects under a prefix that are older than an age: counted, pictured and listed for a plan.

Reads only. Everything comes from listings, one pass for the survey and one or two for the scan; memory does not grow with
the number of objects, except by one number for each object of a portion.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from safedelete.core.item import ObjectRef
from safedelete.core.plan import AgeProfile, TargetPlan, Unknown
from safedelete.declare.prefix import S3Prefix
from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.s3.client import Connection
from safedelete.s3.keys import refusal
from safedelete.s3.listing import by_key, instant, list_objects, list_versions
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.versioning import BucketState, check_mode, notes, read_bucket, ref_of

SAMPLE: Final = 10
_DAY: Final = 86_400.0


class Found(NamedTuple):
    """One key of the listing: what would be deleted for it, and when it was last written (Unix seconds)."""

    refs: tuple[ObjectRef, ...]
    written: float


class PrefixTarget:
    """One ``S3Prefix`` of a purge; implements :class:`safedelete.ports.ObjectTarget`.

    Args:
        declared: The declaration.
        connection: The endpoint it is on.
        store: What deletes its objects; not used for planning.
        page_size: Keys a listing page.
    """

    def __init__(
        self, declared: S3Prefix, connection: Connection, store: S3ObjectStore, *, page_size: int = 1000
    ) -> None:
        self._declared = declared
        self._connection = connection
        self._store = store
        self._page_size = page_size

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
                return self._unknown(as_of, state)
            mode = check_mode(state, self._declared.mode, self.name)
            count = _Count(cutoff, None if since is None else since - self._declared.older_than, portion)
            for found in self._list(mode):
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
        eligible = self._eligible(mode, as_of)
        if portion is not None:
            oldest = _Oldest(portion)
            for found in eligible:
                oldest.add(found)
            eligible = oldest.among(self._eligible(mode, as_of))
        waiting: list[ObjectRef] = []
        for found in eligible:
            if waiting and len(waiting) + len(found.refs) > batch:
                yield tuple(waiting)
                waiting = []
            waiting += found.refs
        if waiting:
            yield tuple(waiting)

    def _cutoff(self, as_of: datetime) -> datetime:
        return as_of.astimezone(UTC) - self._declared.older_than

    def _eligible(self, mode: Mode | None, as_of: datetime) -> Iterator[Found]:
        cutoff = self._cutoff(as_of).timestamp()
        for found in self._list(mode):
            if found.written < cutoff and refusal(found.refs[0].key) is None:
                yield found

    def _list(self, mode: Mode | None) -> Iterator[Found]:
        bucket, prefix = self._declared.bucket, self._declared.prefix
        if mode == "purge":
            for versions in by_key(
                list_versions(self._connection.reader, bucket, prefix, page_size=self._page_size)
            ):
                # A key is as old as the newest thing that was done to it.
                written = max(instant(v.modified).timestamp() for v in versions)
                yield Found(tuple(ref_of(bucket, v) for v in versions), written)
            return
        for page in list_objects(self._connection.reader, bucket, prefix, page_size=self._page_size):
            for item in page:
                ref = ObjectRef(bucket, item.key, item.etag, None, item.size)
                yield Found((ref,), instant(item.modified).timestamp())

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

    def _plan(self, as_of: datetime, state: BucketState, mode: Mode | None, count: _Count) -> TargetPlan:
        items, size = count.items, count.bytes
        return TargetPlan(
            name=self.name,
            kind="objects",
            items=items,
            eligible=count.eligible,
            total=count.total,
            objects=items,
            bytes=size,
            ageless=count.total - count.refused_refs,
            late=count.late,
            cutoff=count.cutoff,
            period=self._declared.older_than,
            ages=count.profile(),
            conditional=items if count.unconditional == 0 else max(0, items - count.unconditional),
            statement=self._statement(as_of),
            parameters={"cutoff": count.cutoff.isoformat()},
            first=count.first,
            last=count.last,
            sample=tuple(count.sample),
            notes=(*notes(state, mode), *self._own_notes(mode, count)),
        )

    def _statement(self, as_of: datetime) -> str:
        return f"objects under {self.name} last modified before {self._cutoff(as_of).isoformat()}"

    def _own_notes(self, mode: Mode | None, count: _Count) -> Iterator[str]:
        if count.refused_keys:
            example = count.refused_example
            yield (
                f"{count.refused_keys:,} eligible key(s) cannot be deleted safely by any request and are kept, "
                f"for one {example!r}: {refusal(example)}"
            )
        if mode == "purge":
            yield "each item is one version or delete marker; a version written after the plan is kept"
        else:
            yield self._store.protection(self._declared.bucket)
        if count.unconditional:
            yield f"{count.unconditional:,} object(s) were listed without an ETag: one overwritten since would go too"


class _Oldest:
    """Finds how old an object must be to belong to the oldest N, in one pass, and picks those in another.

    A key's versions are taken whole, so the portion may end a little early; a key with more versions than the portion is
    taken alone.
    """

    def __init__(self, portion: int) -> None:
        self._portion = portion
        # The youngest of the oldest so far is on top; ties go to what the listing names first.
        self._heap: list[tuple[float, int, int, int]] = []
        self._held = 0
        self._order = 0
        self.bytes = 0

    @property
    def items(self) -> int:
        return self._held

    def add(self, found: Found) -> None:
        size = sum(ref.size or 0 for ref in found.refs)
        entry = (-found.written, -self._order, len(found.refs), size)
        self._order += 1
        heapq.heappush(self._heap, entry)
        self._held += len(found.refs)
        self.bytes += size
        while self._held > self._portion and len(self._heap) > 1:
            _, _, refs, gone = heapq.heappop(self._heap)
            self._held -= refs
            self.bytes -= gone

    def among(self, again: Iterable[Found]) -> Iterator[Found]:
        """Pick them from a second pass; what was written since is younger and does not get in."""
        if not self._heap:
            return
        youngest = -self._heap[0][0]
        older = sum(entry[2] for entry in self._heap if -entry[0] < youngest)
        room = self._held - older
        for found in again:
            if found.written < youngest:
                yield found
            elif found.written == youngest and len(found.refs) <= room:
                room -= len(found.refs)
                yield found


@dataclass(slots=True)
class _Count:
    """What one pass over the listing adds up to."""

    cutoff: datetime
    previous: datetime | None
    portion: int | None
    back: int = 60
    ahead: int = 60
    total: int = 0
    eligible: int = 0
    all_bytes: int = 0
    unconditional: int = 0
    refused_keys: int = 0
    refused_refs: int = 0
    refused_example: str = ""
    older: int = 0
    first: str = ""
    last: str = ""
    sample: list[str] = field(default_factory=list)
    _late: int = 0
    _days: Counter[int] = field(default_factory=Counter)
    _oldest: _Oldest | None = None
    _edge: float = 0.0
    _previous_edge: float | None = None
    _stride: int = 1

    def __post_init__(self) -> None:
        self._edge = self.cutoff.timestamp()
        self._previous_edge = None if self.previous is None else self.previous.timestamp()
        self._oldest = None if self.portion is None else _Oldest(self.portion)

    def add(self, found: Found) -> None:
        refs = len(found.refs)
        self.total += refs
        key = found.refs[0].key
        written = found.written
        if refusal(key) is not None:
            self.refused_refs += refs
            if written < self._edge:
                self.refused_keys += 1
                self.refused_example = self.refused_example or key
            return
        day = int((written - self._edge) // _DAY)
        if day < -self.back:
            self.older += refs
        elif day < self.ahead:
            self._days[day] += refs
        if written >= self._edge:
            return
        self.eligible += refs
        self.all_bytes += sum(ref.size or 0 for ref in found.refs)
        self.unconditional += sum(ref.etag is None and ref.version is None for ref in found.refs)
        if self._previous_edge is not None and written < self._previous_edge:
            self._late += refs
        if self._oldest is not None:
            self._oldest.add(found)
        self.first = self.first or key
        self.last = key
        self._picture(key)

    def _picture(self, key: str) -> None:
        """Keep a few keys spread over the whole listing."""
        if self.eligible % self._stride == 0:
            self.sample.append(key)
        if len(self.sample) > 2 * SAMPLE:
            self.sample = self.sample[::2]
            self._stride *= 2

    @property
    def items(self) -> int:
        return self.eligible if self._oldest is None else self._oldest.items

    @property
    def bytes(self) -> int:
        return self.all_bytes if self._oldest is None else self._oldest.bytes

    @property
    def late(self) -> int | None:
        return None if self.previous is None else self._late

    def profile(self) -> AgeProfile:
        return AgeProfile(tuple(sorted(self._days.items())), self.older, self.back, self.ahead)
