"""An object store in memory that can refuse, keep silent and lie, key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import count
from typing import Final

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import DELETED, GONE, ItemOutcome, Outcome
from safedelete.core.plan import TargetPlan, Unknown
from safedelete.errors import StoreError
from safedelete.ports import Gate, Presence

ANCIENT: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Policy(StrEnum):
    """What the store does with a request for one key, instead of what it should."""

    DENIED = "denied"
    """Refuses to delete it."""
    BLOCKED = "blocked"
    """Keeps it under a lock, and says so."""
    SILENT = "silent"
    """Keeps it and does not say what became of it."""
    LOST = "lost"
    """Deletes it and does not say what became of it."""
    LYING = "lying"
    """Says that it was deleted, and keeps it."""
    HIDDEN = "hidden"
    """Deletes as it should, but cannot be asked whether the object is there."""


OVERWRITTEN: Final = ItemOutcome(Outcome.CHANGED, "overwritten", "overwritten since it was sealed")
_SILENCE: Final = ItemOutcome(Outcome.UNKNOWN, "NotAnswered", "the answer does not name it")
_SAID: Final = {
    Policy.DENIED: ItemOutcome(Outcome.FAILED, "AccessDenied", "denied by policy"),
    Policy.BLOCKED: ItemOutcome(Outcome.BLOCKED, "object-lock", "under legal hold"),
    Policy.SILENT: _SILENCE,
    Policy.LOST: _SILENCE,
}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object.

    Attributes:
        etag: With its quotes.
        size: Bytes.
        modified: When it was last written, aware.
    """

    etag: str
    size: int
    modified: datetime


class MemoryObjects:
    """Objects by bucket and key. Implements ``ports.ObjectStore``; unversioned.

    Args:
        chunk: Keys a request.
    """

    def __init__(self, *, chunk: int = 1000) -> None:
        self.chunk = chunk
        self.stored: dict[tuple[str, str], StoredObject] = {}
        self.policies: dict[tuple[str, str], Policy] = {}
        self.requests: list[tuple[str, ...]] = []
        """The keys of each request to delete, in order."""
        self.around: Callable[[str, int], None] | None = None
        """Called with ``before`` or ``after`` and the number of each request to delete; what it raises passes through."""
        self._etags = count(1)

    def seen_by(self, around: Callable[[str, int], None] | None) -> MemoryObjects:
        """Return another client of the same store, whose requests are watched by themselves."""
        other = copy(self)
        other.around = around
        return other

    def put(self, bucket: str, key: str, *, size: int = 1, modified: datetime = ANCIENT) -> None:
        """Write an object, under a new ETag."""
        self.stored[bucket, key] = StoredObject(f'"{next(self._etags):032x}"', size, modified)

    def ref(self, bucket: str, key: str) -> ObjectRef:
        """Return an object as a listing would name it, with ETag and size."""
        found = self.stored[bucket, key]
        return ObjectRef(bucket, key, found.etag, None, found.size)

    def holds(self, ref: ObjectRef) -> bool:
        """Whether there is an object of that key. Reads only."""
        return (ref.bucket, ref.key) in self.stored

    def delete(self, refs: Sequence[ObjectRef], *, gate: Gate) -> Mapping[ObjectRef, ItemOutcome]:
        """Delete exactly these objects. Deletes; idempotent."""
        asked = list(dict.fromkeys(refs))
        outcomes: dict[ObjectRef, ItemOutcome] = {}
        for start in range(0, len(asked), self.chunk):
            part = asked[start : start + self.chunk]
            gate()
            self._tell("before")
            self.requests.append(tuple(ref.key for ref in part))
            outcomes |= {ref: self._delete(ref) for ref in part}
            self._tell("after")
        return outcomes

    def presence(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Say of each object whether it is there. Reads only."""
        return {ref: self._presence(ref) for ref in refs}

    def shown(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Say of each key whether there is an object to be read. Reads only."""
        return {ref: self._presence(ref._replace(version=None)) for ref in refs}

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Return those not known to be absent; one overwritten since is left out. Reads only."""
        seen = {ref: self._presence(ref) for ref in refs}
        return {
            ref: presence
            for ref, presence in seen.items()
            if presence is not Presence.ABSENT
            and not (presence is Presence.PRESENT and self._overwritten(ref))
        }

    def _tell(self, moment: str) -> None:
        if self.around is not None:
            self.around(moment, len(self.requests) + (moment == "before"))

    def _delete(self, ref: ObjectRef) -> ItemOutcome:
        place = (ref.bucket, ref.key)
        policy = self.policies.get(place)
        if policy is Policy.DENIED:
            return _SAID[policy]
        if place not in self.stored or ref.version is not None:
            return GONE
        if self._overwritten(ref):
            return OVERWRITTEN
        if policy in (None, Policy.LOST, Policy.HIDDEN):
            del self.stored[place]
        return _SAID.get(policy, DELETED) if policy is not None else DELETED

    def _presence(self, ref: ObjectRef) -> Presence:
        if self.policies.get((ref.bucket, ref.key)) is Policy.HIDDEN:
            return Presence.UNKNOWN
        there = self.holds(ref) and ref.version is None
        return Presence.PRESENT if there else Presence.ABSENT

    def _overwritten(self, ref: ObjectRef) -> bool:
        found = self.stored.get((ref.bucket, ref.key))
        return found is not None and ref.etag is not None and found.etag != ref.etag


class MemoryPrefix:
    """The objects under a prefix that are older than an age. Implements ``ports.ObjectTarget``.

    Args:
        objects: Where they are.
        bucket: Bucket.
        prefix: Leading characters of the keys.
        older_than: Age; an object exactly that old stays.
    """

    def __init__(self, objects: MemoryObjects, bucket: str, prefix: str, *, older_than: timedelta) -> None:
        self.objects = objects
        self.bucket = bucket
        self.prefix = prefix
        self.older_than = older_than
        self.unlisted = ""
        """Why the listing fails; empty while it works."""

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def store(self) -> MemoryObjects:
        """What deletes its objects."""
        return self.objects

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Count what is eligible. Reads only; idempotent."""
        if self.unlisted:
            why = Unknown(self.unlisted)
            return TargetPlan(name=self.name, kind="objects", items=why, eligible=why, total=why, objects=why)
        every = self._listed()
        eligible = self._eligible(as_of)
        taken = sorted(self._portion(eligible, portion))
        return TargetPlan(
            name=self.name,
            kind="objects",
            items=len(taken),
            eligible=len(eligible),
            total=len(every),
            objects=len(taken),
            bytes=sum(self.objects.stored[self.bucket, key].size for key in taken),
            late=None if since is None else len(self._eligible(since)),
            cutoff=as_of - self.older_than,
            period=self.older_than,
            conditional=len(taken),
            statement=f"older than {self.older_than}",
            first=taken[0] if taken else "",
            last=taken[-1] if taken else "",
        )

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[ObjectRef, ...]]:
        """Yield the eligible objects in the order of their keys, with ETag and size. Reads only."""
        if self.unlisted:
            raise StoreError(f"{self.name} could not be listed: {self.unlisted}.")
        keys = sorted(self._portion(self._eligible(as_of), portion))
        for start in range(0, len(keys), batch):
            yield tuple(self.objects.ref(self.bucket, key) for key in keys[start : start + batch])

    def _listed(self) -> list[str]:
        return [k for b, k in self.objects.stored if b == self.bucket and k.startswith(self.prefix)]

    def _eligible(self, as_of: datetime) -> list[str]:
        cutoff = as_of - self.older_than
        return [key for key in self._listed() if self.objects.stored[self.bucket, key].modified < cutoff]

    def _portion(self, keys: list[str], portion: int | None) -> list[str]:
        if portion is None:
            return keys
        return sorted(keys, key=lambda key: (self.objects.stored[self.bucket, key].modified, key))[:portion]
