"""Hold one place of a bucket against the rows that name objects in it, both ways. Reads only; no part of a purge.

What differs is looked at a second time before it is called a difference: while one side is read, the other goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from safedelete.core.item import ObjectRef
from safedelete.core.orphans import Listed, Verdict, compare
from safedelete.errors import StoreError
from safedelete.phases.parts import Progress
from safedelete.ports import Presence, References, Values

CHUNK: Final = 1_000
"""Differences looked at together for the second time."""

SAMPLE: Final = 10


@dataclass(frozen=True, slots=True)
class Seen:
    """One object of the listing.

    Attributes:
        ref: The object.
        modified: When it was last written, aware.
    """

    ref: ObjectRef
    modified: datetime


@dataclass(frozen=True, slots=True)
class Place:
    """What is held against what.

    Attributes:
        job: The purge.
        bucket: Bucket.
        prefix: Leading characters of the keys.
        columns: The columns whose values are keys there, in words.
        references: What rows name there.
        listing: Lists the current objects, in byte order.
        remaining: Says which of some objects are not known to be absent.
        young: Objects written at or after this are still being uploaded.
    """

    job: str
    bucket: str
    prefix: str
    columns: tuple[str, ...]
    references: References
    listing: Callable[[], Iterable[Listed[Seen]]]
    remaining: Callable[[Sequence[ObjectRef]], Mapping[ObjectRef, Presence]]
    young: datetime

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(slots=True)
class Difference:
    """What one side has and the other does not.

    Attributes:
        keys: How many.
        bytes: Their size, of objects.
        sample: The first few.
    """

    keys: int = 0
    bytes: int = 0
    sample: list[str] = field(default_factory=list)

    def add(self, ref: ObjectRef) -> None:
        """Count one."""
        self.keys += 1
        self.bytes += ref.size or 0
        if len(self.sample) < SAMPLE:
            self.sample.append(ref.key)


@dataclass(slots=True)
class Reconciled:
    """Both sides of one place.

    Attributes:
        job: The purge.
        place: ``s3://bucket/prefix``.
        columns: The columns that were held against it.
        listed: Objects there.
        named: Of those, named by a row.
        young: Of those, named by none and too young to be missed by one.
        without_rows: Of those, named by none.
        without_objects: Keys that rows name and that are not there.
        values: What the columns hold beside plain keys.
        unchecked: Why the numbers must not be relied on; empty when they may be.
    """

    job: str
    place: str
    columns: tuple[str, ...] = ()
    listed: int = 0
    named: int = 0
    young: int = 0
    without_rows: Difference = field(default_factory=Difference)
    without_objects: Difference = field(default_factory=Difference)
    values: Values = field(default_factory=Values)
    unchecked: str = ""

    @property
    def differs(self) -> bool:
        """Whether anything was found."""
        return bool(self.without_rows.keys or self.without_objects.keys)


def reconcile(place: Place, progress: Progress) -> Reconciled:
    """Compare one place with the rows that name objects in it. Reads only; takes no lock.

    A side that cannot be read makes the place unchecked, never free of differences. What ``progress`` raises ends it.
    """
    found = Reconciled(place.job, place.name, place.columns)
    try:
        found.values = place.references.values()
        _compare(place, found, progress)
        found.unchecked = "; ".join(_doubts(found))
    except StoreError as error:
        found.unchecked = f"{error} {error.hint}".strip()
    return found


def _compare(place: Place, found: Reconciled, progress: Progress) -> None:
    unnamed: list[ObjectRef] = []
    missing: list[ObjectRef] = []
    for verdict, key, seen, _ in compare(place.listing(), place.references.streams()):
        if seen is None:
            missing.append(ObjectRef(place.bucket, key))
            if len(missing) == CHUNK:
                _look_for_objects(place, found, missing)
                missing.clear()
                # Told here too: whoever listens may want to stop, and rows alone may go on for millions.
                progress(f"reconcile {place.name}", found.listed, found.listed)
            continue
        found.listed += 1
        if found.listed % CHUNK == 0:
            progress(f"reconcile {place.name}", found.listed, found.listed)
        if verdict is Verdict.NAMED:
            found.named += 1
        elif seen.modified >= place.young:
            found.young += 1
        else:
            unnamed.append(seen.ref)
            if len(unnamed) == CHUNK:
                _look_for_rows(place, found, unnamed)
                unnamed.clear()
    _look_for_rows(place, found, unnamed)
    _look_for_objects(place, found, missing)
    progress(f"reconcile {place.name}", found.listed, found.listed)


def _look_for_rows(place: Place, found: Reconciled, refs: Sequence[ObjectRef]) -> None:
    """Count those that no row has come to name since its page was read."""
    named = frozenset(place.references.named(refs)) if refs else frozenset()
    found.named += len(named)
    for ref in refs:
        if ref not in named:
            found.without_rows.add(ref)


def _look_for_objects(place: Place, found: Reconciled, refs: Sequence[ObjectRef]) -> None:
    """Count those that have not come since, and that a row still names."""
    if not refs:
        return
    left = place.remaining(refs)
    unseen = next((ref for ref in refs if left.get(ref) is Presence.UNKNOWN), None)
    if unseen is not None:
        raise StoreError(
            f"Whether s3://{unseen.bucket}/{unseen.key} is there could not be asked for.",
            hint="Check the bucket and s3:GetObject on that key, and run it again.",
        )
    absent = [ref for ref in refs if ref not in left]
    named = frozenset(place.references.named(absent)) if absent else frozenset()
    for ref in absent:
        if ref in named:
            found.without_objects.add(ref)


def _doubts(found: Reconciled) -> Iterator[str]:
    values = found.values
    if values.empty:
        yield f"{', '.join(values.empty)} has no row (an empty copy, a wrong database)"
    if values.unmatched:
        yield (
            f"{values.unmatched:,} value(s) may mean an object here and do not spell its key, for one {values.example}"
        )
