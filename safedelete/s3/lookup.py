"""Find out which of many keys are there, by listing where that is cheaper and by HEAD where it is not.

Reads only. A key is called absent only on a 404 from a bucket that exists, or on a listing of its own folder that went
past the place where it would stand. Listings of a whole subtree are not used for that: stores differ in how they order
``a-b`` and ``a/b``, while names within one folder are in byte order everywhere; and if they are not, HEAD decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from safedelete.errors import StoreError
from safedelete.ports import Presence
from safedelete.s3.codes import SDK_ERRORS, code_of, detail_of, status_of
from safedelete.s3.keys import parent, refusal
from safedelete.s3.listing import list_objects

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

WORTH_A_PAGE: Final = 12
"""A page of a listing costs about as much as this many HEADs, in money and in time."""

_DIRECTORY_BUCKET: Final = "--x-s3"

Item = TypeVar("Item")
Result = TypeVar("Result")


class Sight(NamedTuple):
    """What was seen of one key or version.

    Attributes:
        presence: Whether it is there.
        etag: Its ETag now, where it is there and has one.
        why: For an unknown presence, the store's answer.
        lock: For a version under Object Lock or legal hold, what holds it.
    """

    presence: Presence
    etag: str | None = None
    why: str = ""
    lock: str = ""


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

    def find(self, bucket: str, keys: Iterable[str]) -> dict[str, Sight]:
        """Look for the current objects of these keys, by the cheaper way. Reads only."""
        seen: dict[str, Sight] = {}
        folders: dict[str, list[str]] = {}
        single: list[str] = []
        for key in dict.fromkeys(keys):
            if key.endswith("/") or refusal(key) or bucket.endswith(_DIRECTORY_BUCKET):
                single.append(key)
            else:
                folders.setdefault(parent(key), []).append(key)
        for folder, members in folders.items():
            if len(members) < WORTH_A_PAGE:
                single += members
                continue
            listed, rest = self._by_listing(bucket, folder, sorted(members, key=str.encode))
            seen |= listed
            single += rest
        seen |= {key: sight for (key, _), sight in self.head(bucket, [(key, None) for key in single]).items()}
        return seen

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

    def each(self, items: Sequence[Item], ask: Callable[[Item], Result]) -> list[Result]:
        """Ask for each item, several at a time, and keep the order."""
        if len(items) < 2:
            return [ask(item) for item in items]
        with ThreadPoolExecutor(min(self._workers, len(items)), thread_name_prefix="safedelete-head") as pool:
            return list(pool.map(ask, items))

    def _by_listing(
        self, bucket: str, folder: str, wanted: Sequence[str]
    ) -> tuple[dict[str, Sight], list[str]]:
        """Settle keys of one folder while a page settles more than HEADs of its price would; return the rest too."""
        seen: dict[str, Sight] = {}
        first = wanted[0]
        position = 1  # the listing begins after the first key, which is left to a HEAD
        previous = first
        etags: dict[str, str | None] = {}
        pages = list_objects(self._client, bucket, folder, start_after=first, delimiter="/")
        try:
            for page in pages:
                for item in page:
                    if item.key.encode() <= previous.encode():
                        # Not in byte order, so "past its place" means nothing here.
                        return {}, list(wanted)
                    previous = item.key
                    etags[item.key] = item.etag
                settled = position
                while settled < len(wanted) and wanted[settled].encode() <= previous.encode():
                    settled += 1
                for key in wanted[position:settled]:
                    seen[key] = Sight(Presence.PRESENT, etags[key]) if key in etags else ABSENT
                enough = settled - position >= WORTH_A_PAGE
                position = settled
                etags.clear()
                if position == len(wanted) or not enough:
                    # An unfinished listing says nothing of what comes after; a finished one falls out of the loop.
                    if position == len(wanted):
                        return seen, [first]
                    break
            else:
                return seen | dict.fromkeys(wanted[position:], ABSENT), [first]
        except StoreError:
            # Not allowed to list, or the listing is broken: each key is asked for instead, and answers for itself.
            return {}, list(wanted)
        return seen, [first, *wanted[position:]]

    def _head(self, bucket: str, key: str, version: str | None) -> Sight:
        options: dict[str, Any] = {"Bucket": bucket, "Key": key}
        if version is not None:
            options["VersionId"] = version
        why = refusal(key)
        if why is not None and (not key or "surrogate" in why):
            return Sight(Presence.UNKNOWN, why=why)
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
        return Sight(Presence.PRESENT, answer.get("ETag"), lock=_lock(answer))

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


def _lock(answer: Mapping[str, Any]) -> str:
    if answer.get("ObjectLockLegalHoldStatus") == "ON":
        return "under legal hold"
    mode = answer.get("ObjectLockMode")
    return f"locked ({mode}) until {answer.get('ObjectLockRetainUntilDate')}" if mode else ""
