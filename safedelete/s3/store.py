"""The object store of one endpoint: deletes with an account of every object, and looks for what is left.

Given to the execute and verify phases only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import GONE, ItemOutcome, Outcome
from safedelete.core.plan import Unknown
from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.ports import Clock, Gate, Presence
from safedelete.s3.client import Connection
from safedelete.s3.delete import OVERWRITTEN, delete_objects
from safedelete.s3.effort import Effort
from safedelete.s3.entry import contradictory, quoted
from safedelete.s3.listing import written
from safedelete.s3.lookup import ABSENT, Lookup, Sight
from safedelete.s3.pace import DEFAULT_RATE, Pace
from safedelete.s3.purge import purge_keys
from safedelete.s3.versioning import Versioning, read_bucket, versions_of

LOCKED: Final = "object-lock"
"""Code of a version that Object Lock or a legal hold keeps."""

NULL: Final = "null"
"""The version that is written over while versioning is suspended; every other one stays as it was written."""

_MAY_BE_LOCKED: Final = frozenset({"AccessDenied", "403", "InvalidRequest"})
"""How stores refuse to delete a locked version; MinIO says the last."""

REWRITTEN: Final = ItemOutcome(
    Outcome.CHANGED, "rewritten", "written again since it was sealed, with the same content"
)


class S3ObjectStore:
    """Deletes from the buckets of one endpoint.

    Args:
        connection: The endpoint.
        clock: What waits.
        modes: The declared mode of each bucket; None, or a bucket left out, for an unversioned one.
        conditional: Buckets whose endpoint has been proven to honour a condition on ETag in both delete requests; asked at
            each delete, so that it may fill while a preflight proves them. For every other bucket an object with a known
            ETag is looked at again right before it is deleted.
        demanded: Buckets from which nothing is deleted before that is proven.
        max_delete_rate: Keys a second.
        effort: How hard a delete tries.
        workers: HEADs at a time.
        min_age: An object that the look finds written within this time is kept, also where its ETag is still the one
            that was sealed: the same content was written again.
        always_look: Look at each object right before it is deleted also where the endpoint honours conditions, because
            what was planned is old.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        modes: Mapping[str, Mode | None] | None = None,
        conditional: Collection[str] = (),
        demanded: Collection[str] = (),
        max_delete_rate: float = DEFAULT_RATE,
        effort: Effort | None = None,
        workers: int = 8,
        min_age: timedelta | None = None,
        always_look: bool = False,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._modes = dict(modes or {})
        self._conditional = conditional
        self._demanded = demanded
        self._pace = Pace(max_delete_rate, clock)
        self._effort = effort or Effort()
        self._lookup = Lookup(connection.reader, workers=workers)
        self._versioning: dict[str, Versioning] = {}
        self._min_age = min_age
        self._always_look = always_look

    def delete(self, refs: Sequence[ObjectRef], *, gate: Gate) -> Mapping[ObjectRef, ItemOutcome]:
        """Delete exactly these objects. Deletes; idempotent; see :class:`safedelete.ports.ObjectStore`."""
        # Before any of them is looked at: the one whose ETag holds would go, and the rows of the others lose their object.
        outcomes = contradictory(refs)
        for bucket, members in _by_bucket([ref for ref in refs if ref not in outcomes]).items():
            outcomes |= self._delete(bucket, members, gate)
        return {ref: outcomes[ref] for ref in refs}

    def presence(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Ask for each object (HEAD). Reads only."""
        seen: dict[ObjectRef, Presence] = {}
        for bucket, members in _by_bucket(refs).items():
            whole = self._whole(bucket, members)
            single = [ref for ref in members if ref not in whole]
            sights = self._lookup.head(bucket, list(dict.fromkeys((r.key, r.version) for r in single)))
            seen |= {ref: sights[ref.key, ref.version].presence for ref in single}
            seen |= {ref: sight.presence for ref, sight in self._versions(bucket, whole).items()}
        return seen

    def shown(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Ask of each key for what is current (HEAD): what a marker hides is not there. Reads only."""
        seen: dict[ObjectRef, Presence] = {}
        for bucket, members in _by_bucket(refs).items():
            sights = self._lookup.head(bucket, [(key, None) for key in dict.fromkeys(r.key for r in members)])
            seen |= {ref: sights[ref.key, None].presence for ref in members}
        return seen

    def remaining(self, refs: Sequence[ObjectRef]) -> Mapping[ObjectRef, Presence]:
        """Return those not known to be absent, by listing or HEAD, whichever is cheaper. Reads only.

        What was overwritten since it was sealed is not a residue and is left out.
        """
        left: dict[ObjectRef, Presence] = {}
        since = self._since()
        for bucket, members in _by_bucket(refs).items():
            for ref, sight in self._see(bucket, members, Presence.ABSENT).items():
                if _is_left(ref, sight, since):
                    left[ref] = sight.presence
        return left

    def protection(self, bucket: str) -> str:
        """Return how an object of a bucket that was overwritten since it was planned is kept, for the plan's notes."""
        if bucket in self._conditional and not self._always_look:
            return (
                f"{bucket}: the store itself compares ETags (proven), so an object overwritten since is kept"
            )
        also = "" if self._min_age is None else ", and its age as well"
        if bucket in self._conditional:
            return f"{bucket}: each ETag is compared by a look right before the delete{also}, and by the store itself (proven)"
        if bucket in self._demanded:
            return (
                f"{bucket}: require_conditional: before the first delete a canary proves that the store itself compares "
                "ETags, so that an object overwritten since is kept; else nothing is deleted"
            )
        return (
            f"{bucket}: ETags are sent with each delete and compared by a look right before it{also}; that the store "
            "compares them too is not proven, which leaves a moment between the look and the delete"
        )

    def _since(self) -> float | None:
        """Return since when an object must have been written to be too young, in Unix seconds."""
        return None if self._min_age is None else (self._clock.now() - self._min_age).timestamp()

    def _see(self, bucket: str, refs: Sequence[ObjectRef], likely: Presence) -> dict[ObjectRef, Sight]:
        whole = self._whole(bucket, refs)
        plain = [ref for ref in refs if ref.version is None and ref not in whole]
        current = self._lookup.find(bucket, [ref.key for ref in plain], likely=likely)
        versions = self._lookup.versions(
            bucket, list(dict.fromkeys((ref.key, ref.version) for ref in refs if ref.version is not None))
        )
        seen = {ref: current[ref.key] for ref in plain} | self._versions(bucket, whole)
        return {ref: versions[ref.key, ref.version] if ref.version else seen[ref] for ref in refs}

    def _whole(self, bucket: str, refs: Sequence[ObjectRef]) -> frozenset[ObjectRef]:
        """Return the keys that stand for all of their versions."""
        keys = frozenset(ref for ref in refs if ref.version is None)
        if not keys or self._modes.get(bucket) != "purge":
            return frozenset()
        # Where that is not known, listing the versions decides; where that fails too, nothing is deleted or called absent.
        return frozenset() if self._state(bucket) == "off" else keys

    def _state(self, bucket: str) -> Versioning | None:
        """Return a bucket's versioning, None while it is not known."""
        if bucket not in self._versioning:
            try:
                state = read_bucket(self._connection.reader, bucket)
            except StoreError:
                return None
            if isinstance(state, Unknown):
                return None
            self._versioning[bucket] = state.versioning
        return self._versioning[bucket]

    def _versions(self, bucket: str, refs: Collection[ObjectRef]) -> dict[ObjectRef, Sight]:
        """Look for any version of each key: a marker hides what is still there."""
        ordered = list(refs)
        return dict(
            zip(ordered, self._lookup.each(ordered, lambda ref: self._any_version(bucket, ref)), strict=True)
        )

    def _any_version(self, bucket: str, ref: ObjectRef) -> Sight:
        try:
            found = versions_of(self._connection.reader, bucket, [ref.key])[ref.key]
        except StoreError as error:
            return Sight(Presence.UNKNOWN, why=str(error))
        return Sight(Presence.PRESENT, found[-1].etag or ref.etag) if found else ABSENT

    def _delete(self, bucket: str, refs: Sequence[ObjectRef], gate: Gate) -> dict[ObjectRef, ItemOutcome]:
        whole = self._whole(bucket, refs)
        if not whole:
            return self._delete_single(bucket, refs, gate)
        outcomes = purge_keys(
            self._connection.reader,
            bucket,
            [ref for ref in refs if ref in whole],
            lambda versions: self._delete_single(bucket, versions, gate),
            each=self._lookup.each,
        )
        return outcomes | self._delete_single(bucket, [ref for ref in refs if ref not in whole], gate)

    def _delete_single(
        self, bucket: str, refs: Sequence[ObjectRef], gate: Gate
    ) -> dict[ObjectRef, ItemOutcome]:
        watched = self._watched(bucket, refs)
        # All that name a key go together: a row that does not know its ETag must not take it from one that does.
        plain: dict[str, list[ObjectRef]] = {}
        for ref in refs:
            if ref.version is None and ref in watched:
                plain.setdefault(ref.key, [])
        rest: list[ObjectRef] = []
        for ref in refs:
            (plain[ref.key] if ref.version is None and ref.key in plain else rest).append(ref)
        outcomes: dict[ObjectRef, ItemOutcome] = {}
        for some in self._in_time(list(plain.values())):
            outcomes |= self._look_and_delete(bucket, some, watched, gate)
        if rest:
            outcomes |= self._look_and_delete(bucket, rest, watched, gate)
        return outcomes | self._locked(bucket, outcomes)

    def _watched(self, bucket: str, refs: Sequence[ObjectRef]) -> frozenset[ObjectRef]:
        """Return those that may have been written over since, so that they are looked at right before they are deleted."""
        looks = self._always_look or bucket not in self._conditional
        found = {ref for ref in refs if looks and ref.etag is not None and ref.version is None}
        null = [ref for ref in refs if ref.etag is not None and ref.version == NULL]
        # S3 takes no condition beside a version, so that no proof helps here.
        if null and self._state(bucket) != "enabled":
            found.update(null)
        return frozenset(found)

    def _in_time(self, groups: Sequence[Sequence[ObjectRef]]) -> Iterator[list[ObjectRef]]:
        """Cut into what is deleted within about a second: what a look tells is old after that."""
        start = 0
        while start < len(groups):
            some = groups[start : start + self._pace.most]
            start += len(some)
            yield [ref for group in some for ref in group]

    def _look_and_delete(
        self, bucket: str, refs: Sequence[ObjectRef], watched: frozenset[ObjectRef], gate: Gate
    ) -> dict[ObjectRef, ItemOutcome]:
        since = self._since()
        marks = self._modes.get(bucket) == "marker"
        before: dict[tuple[str, str | None], ItemOutcome] = {}
        sights = self._see(bucket, [r for r in refs if r in watched], Presence.PRESENT)
        # Something in between may answer so for whatever is asked, and a row would go, and its object stay. So the delete is
        # asked all the same, but for one that would only put a marker there: then the listing decides.
        unseen = {ref for ref, sight in sights.items() if sight.presence is Presence.ABSENT}
        if marks:
            listed = self._lookup.listed(bucket, [ref.key for ref in unseen])
            sights |= {ref: _by_listing(listed[ref.key]) for ref in unseen}
            unseen = set()
        for ref, sight in sights.items():
            if ref in unseen:
                continue
            outcome = _before(ref, sight, since)
            if outcome is not None:
                before[ref.key, ref.version] = outcome
        # What of a key could not be checked stays, and would come back to life should the others go.
        unchecked = {key: outcome for (key, _), outcome in before.items() if outcome.state is Outcome.FAILED}
        outcomes = {
            ref: unchecked[ref.key] if ref.key in unchecked else before[ref.key, ref.version]
            for ref in refs
            if ref.key in unchecked or (ref.key, ref.version) in before
        }
        answered = delete_objects(
            self._connection.deleter,
            bucket,
            [ref for ref in refs if ref not in outcomes],
            gate=gate,
            clock=self._clock,
            effort=self._effort,
            pace=self._pace,
            markers=marks,
        )
        return outcomes | answered | {ref: _unseen(answered[ref]) for ref in unseen if ref in answered}

    def _locked(self, bucket: str, outcomes: Mapping[ObjectRef, ItemOutcome]) -> dict[ObjectRef, ItemOutcome]:
        """Tell a version that a lock keeps, which is no failure, from one that the caller may not delete."""
        denied = [
            ref
            for ref, outcome in outcomes.items()
            if ref.version is not None and outcome.state is Outcome.FAILED and outcome.code in _MAY_BE_LOCKED
        ]
        sights = self._lookup.head(bucket, [(ref.key, ref.version) for ref in denied])
        return {
            ref: ItemOutcome(Outcome.BLOCKED, LOCKED, sights[ref.key, ref.version].lock)
            for ref in denied
            if sights[ref.key, ref.version].lock
        }


def _before(ref: ObjectRef, sight: Sight, since: float | None) -> ItemOutcome | None:
    """Return the outcome of an object that must not, or need not, be deleted after all."""
    if sight.presence is Presence.ABSENT:
        return GONE
    if sight.presence is Presence.UNKNOWN:
        return ItemOutcome(
            Outcome.FAILED,
            "unverified",
            f"kept: whether it was overwritten since it was sealed could not be checked ({sight.why})",
        )
    if ref.etag is not None and sight.etag is None:
        return ItemOutcome(
            Outcome.FAILED, "unverified", "kept: the store does not tell its ETag, by which it was sealed"
        )
    if _is_another(ref, sight):
        return OVERWRITTEN
    try:
        return REWRITTEN if _is_younger(sight, since) else None
    except StoreError as error:
        return ItemOutcome(Outcome.FAILED, "unverified", f"kept: its age could not be checked ({error})")


def _by_listing(listed: Sight) -> Sight:
    """Return what to make of a HEAD that found nothing, by what the listing says."""
    if listed.presence is not Presence.PRESENT:
        return listed
    return Sight(Presence.UNKNOWN, why="a HEAD does not find it, and the listing names it")


def _unseen(answer: ItemOutcome) -> ItemOutcome:
    """Return the outcome of an object that a look did not find, by what the delete said of it."""
    if answer.state in (Outcome.DELETED, Outcome.CHANGED):
        return GONE  # some stores say of what is not there that they deleted it, or that it is another
    if answer.state is Outcome.FAILED:
        said = answer.detail or answer.code
        return ItemOutcome(
            Outcome.UNKNOWN, answer.code, f"a look did not find it, and its delete failed: {said}"
        )
    return answer


def _is_younger(sight: Sight, since: float | None) -> bool:
    """Whether an object was written too lately to be taken.

    Raises:
        StoreError: Its time cannot be read, so it is not known to be old.
    """
    return since is not None and sight.presence is Presence.PRESENT and written(sight.modified) >= since


def _is_left(ref: ObjectRef, sight: Sight, since: float | None) -> bool:
    if sight.presence is Presence.ABSENT or _is_another(ref, sight):
        return False
    try:
        return ref.version not in (None, NULL) or not _is_younger(sight, since)
    except StoreError:
        return True


def _is_another(ref: ObjectRef, sight: Sight) -> bool:
    return (
        ref.version in (None, NULL)
        and ref.etag is not None
        and sight.presence is Presence.PRESENT
        and sight.etag not in (None, ref.etag)
        and quoted(sight.etag) != quoted(ref.etag)
    )


def _by_bucket(refs: Sequence[ObjectRef]) -> dict[str, list[ObjectRef]]:
    buckets: dict[str, list[ObjectRef]] = {}
    for ref in refs:
        buckets.setdefault(ref.bucket, []).append(ref)
    return buckets
