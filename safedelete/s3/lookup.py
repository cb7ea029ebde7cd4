"""Find out which of many keys are there, by listing where that is cheaper and by HEAD where it is not.

Reads only. A key is called absent only on a 404 from a bucket that exists, or on a listing of its own folder that went
past the place where it would stand. Listings of a whole subtree are not used for that: stores differ in how they order
``a-b`` and ``a/b``, while names within one folder are in byte order everywhere; and if they are not, HEAD decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from safedelete.errors import StoreError
from safedelete.ports import Presence
from safedelete.s3.codes import SDK_ERRORS, code_of, detail_of, status_of
from safedelete.s3.keys import has_dot_segment, parent, refusal
from safedelete.s3.listing import Listed, list_objects, list_versions

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

WORTH_A_PAGE: Final = 12
"""A page of a listing costs about as much as this many HEADs, in money and in time."""

_SUBTREE_PAGES: Final = 3
_MOST_PAGES: Final = 40
_DIRECTORY_BUCKET: Final = "--x-s3"  # lists in no order at all

Item = TypeVar("Item")
Result = TypeVar("Result")


class Sight(NamedTuple):
    """What was seen of one key or version.

    Attributes:
        presence: Whether it is there.
        etag: Its ETag now, where it is there and has one.
        why: For an unknown presence, the store's answer.
        lock: For a version under Object Lock or legal hold, what holds it.
        modified: Its LastModified as the client gave it, where it is there; see :func:`safedelete.s3.listing.instant`.
    """

    presence: Presence
    etag: str | None = None
    why: str = ""
    lock: str = ""
    modified: Any = None


ABSENT: Final = Sight(Presence.ABSENT)


class Lookup:
    """Looks for keys in the buckets of one endpoint, with a bounded number of threads.

    Args:
        client: The reading client.
        workers: HEADs at a time.
    """

    def __init__(self, client: S3Client, *, workers: int = 8) -> None:
        self._client = client
        self._workers = workers
        self._real_buckets: set[str] = set()

    def find(self, bucket: str, keys: Sequence[str], *, likely: Presence) -> dict[str, Sight]:
        """Look for the current objects of these keys, by the cheapest way. Reads only.

        Args:
            bucket: The bucket.
            keys: The keys, best in the order of a listing.
            likely: What most of them are expected to be; decides what is tried first, not what is found.
        """
        rest = list(dict.fromkeys(keys))
        seen: dict[str, Sight] = {}
        if not bucket.endswith(_DIRECTORY_BUCKET):
            first = self._along if likely is Presence.PRESENT else self._by_subtree
            for way in (first, self._by_folder):
                if len(rest) >= WORTH_A_PAGE:
                    seen |= way(bucket, rest)
                    rest = [key for key in rest if key not in seen]
        return seen | {
            key: sight for (key, _), sight in self.head(bucket, [(key, None) for key in rest]).items()
        }

    def versions(
        self, bucket: str, identities: Sequence[tuple[str, str | None]]
    ) -> dict[tuple[str, str | None], Sight]:
        """Look for these versions, by the cheapest way. Reads only."""
        seen: dict[tuple[str, str | None], Sight] = {}
        if len(identities) >= WORTH_A_PAGE:
            seen = self._versions_below(bucket, identities)
        return seen | self.head(bucket, [identity for identity in identities if identity not in seen])

    def head(
        self, bucket: str, identities: Sequence[tuple[str, str | None]]
    ) -> dict[tuple[str, str | None], Sight]:
        """Ask for each key or version by itself. Reads only."""
        sights = self.each(identities, lambda identity: self._head(bucket, *identity))
        if any(s.presence is Presence.ABSENT for s in sights) and not self._is_real(bucket):
            # A HEAD says 404 for a missing bucket as it does for a missing key.
            why = f"the bucket {bucket} is missing or could not be asked for"
            sights = [
                Sight(Presence.UNKNOWN, why=why) if s.presence is Presence.ABSENT else s for s in sights
            ]
        return dict(zip(identities, sights, strict=True))

    def listed(self, bucket: str, keys: Sequence[str]) -> dict[str, Sight]:
        """Look for each current object in a listing of its own name. Reads only."""
        return dict(zip(keys, self.each(keys, lambda key: self._by_name(bucket, key, None)), strict=True))

    def each(self, items: Sequence[Item], ask: Callable[[Item], Result]) -> list[Result]:
        """Ask for each item, several at a time, and keep the order."""
        if len(items) < 2:
            return [ask(item) for item in items]
        with ThreadPoolExecutor(min(self._workers, len(items)), thread_name_prefix="safedelete-head") as pool:
            return list(pool.map(ask, items))

    def _along(self, bucket: str, keys: Sequence[str]) -> dict[str, Sight]:
        """Read the listing on from before the first key. What it names is there; what it does not name stays open."""
        wanted = set(keys)
        seen: dict[str, Sight] = {}
        folder = _common_folder(keys)
        # From just before the first key, which the listing then names as well.
        pages = list_objects(self._client, bucket, folder, start_after=keys[0][:-1] or None)
        try:
            for _, page in zip(range(len(keys) // 1000 + 2), pages, strict=False):
                found = {item.key: _sight(item) for item in page if item.key in wanted}
                seen |= found
                if len(found) < WORTH_A_PAGE or len(seen) == len(wanted):
                    break
        except StoreError:
            # Not allowed to list, or a broken listing: each key is asked for, and answers for itself.
            return {}
        return seen

    def _by_subtree(self, bucket: str, keys: Sequence[str]) -> dict[str, Sight]:
        """List all that is left under the keys' common folder; settles them only when it comes to its end."""
        folder = _common_folder(keys)
        wanted = set(keys)
        found: dict[str, Sight] = {}
        pages = list_objects(self._client, bucket, folder)
        try:
            for number, page in enumerate(pages, 1):
                if number > _SUBTREE_PAGES:
                    return found
                found |= {item.key: _sight(item) for item in page if item.key in wanted}
        except StoreError:
            return {}
        return dict.fromkeys(keys, ABSENT) | found

    def _versions_below(
        self, bucket: str, identities: Sequence[tuple[str, str | None]]
    ) -> dict[tuple[str, str | None], Sight]:
        """List all versions under the keys' common folder; what is not named is absent only when it comes to its end."""
        wanted = frozenset(identities)
        found: dict[tuple[str, str | None], Sight] = {}
        most = min(max(_SUBTREE_PAGES, len(wanted) // (8 * WORTH_A_PAGE)), _MOST_PAGES)
        pages = list_versions(self._client, bucket, _common_folder([key for key, _ in identities]))
        try:
            for number, page in enumerate(pages, 1):
                if number > most:
                    return found
                for entry in page:
                    if (entry.key, entry.version) in wanted:
                        sight = Sight(Presence.PRESENT, entry.etag, modified=entry.modified)
                        found[entry.key, entry.version] = sight
                if len(found) == len(wanted):
                    return found
        except StoreError:
            return {}
        return dict.fromkeys(wanted, ABSENT) | found

    def _by_folder(self, bucket: str, keys: Sequence[str]) -> dict[str, Sight]:
        """List each folder that holds enough of the keys."""
        folders: dict[str, list[str]] = {}
        for key in keys:
            if not key.endswith("/") and refusal(key) is None:
                folders.setdefault(parent(key), []).append(key)
        seen: dict[str, Sight] = {}
        for folder, members in folders.items():
            if len(members) > WORTH_A_PAGE:
                seen |= self._one_folder(bucket, folder, sorted(members, key=str.encode))
        return seen

    def _one_folder(self, bucket: str, folder: str, wanted: Sequence[str]) -> dict[str, Sight]:
        """Settle keys of one folder as long as each page settles more than HEADs of its price would."""
        seen: dict[str, Sight] = {}
        position = 1  # the listing begins after the first key, which is left to a HEAD
        previous = wanted[0]
        try:
            for page in list_objects(self._client, bucket, folder, start_after=wanted[0], delimiter="/"):
                here: dict[str, Sight] = {}
                for item in page:
                    if item.key.encode() <= previous.encode():
                        # Not in byte order, so being past a key's place means nothing here.
                        return {}
                    previous = item.key
                    here[item.key] = _sight(item)
                passed = position
                while passed < len(wanted) and wanted[passed].encode() <= previous.encode():
                    passed += 1
                for key in wanted[position:passed]:
                    seen[key] = here.get(key, ABSENT)
                few = passed - position < WORTH_A_PAGE
                position = passed
                if position == len(wanted) or (few and len(page) > 0):
                    return seen
        except StoreError:
            return {}
        return seen | dict.fromkeys(wanted[position:], ABSENT)

    def _head(self, bucket: str, key: str, version: str | None) -> Sight:
        why = refusal(key)
        if why is not None and (not key or "surrogate" in why):
            return Sight(Presence.UNKNOWN, why=why)
        if has_dot_segment(key):
            # A proxy may resolve the path of a HEAD to another key, and its answer would be about that one.
            return self._by_name(bucket, key, version)
        options: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if version is not None:
            options["VersionId"] = version
        try:
            answer: Mapping[str, Any] = self._client.head_object(**options)
        except SDK_ERRORS as error:
            status = status_of(error)
            if status == 404:
                return ABSENT
            if status == 405 and version is not None:
                # How a store says that this version is a delete marker.
                return Sight(Presence.PRESENT)
            return Sight(Presence.UNKNOWN, why=f"{code_of(error)}: {detail_of(error)}")
        return Sight(
            Presence.PRESENT, answer.get("ETag"), lock=_lock(answer), modified=answer.get("LastModified")
        )

    def _by_name(self, bucket: str, key: str, version: str | None) -> Sight:
        """Look for one key or version in the listing of what begins with it, where the key itself comes first."""
        try:
            if version is None:
                first = next((page for page in list_objects(self._client, bucket, key) if page), [])
                return next((_sight(o) for o in first if o.key == key), ABSENT)
            for versions in list_versions(self._client, bucket, key):
                if any(v.key == key and v.version == version for v in versions):
                    return Sight(Presence.PRESENT)
        except StoreError as error:
            return Sight(Presence.UNKNOWN, why=str(error))
        return ABSENT

    def _is_real(self, bucket: str) -> bool:
        if bucket in self._real_buckets:
            return True
        try:
            self._client.head_bucket(Bucket=bucket)
        except SDK_ERRORS as error:
            # Forbidden is the answer of a bucket that is there.
            if status_of(error) != 403:
                return False
        self._real_buckets.add(bucket)
        return True


def _sight(item: Listed) -> Sight:
    return Sight(Presence.PRESENT, item.etag, "", "", item.modified)


def _common_folder(keys: Sequence[str]) -> str:
    low, high = min(keys), max(keys)
    length = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return parent(low[:length])


def _lock(answer: Mapping[str, Any]) -> str:
    if answer.get("ObjectLockLegalHoldStatus") == "ON":
        return "under legal hold"
    mode = answer.get("ObjectLockMode")
    return f"locked ({mode}) until {answer.get('ObjectLockRetainUntilDate')}" if mode else ""
