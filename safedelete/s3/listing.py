"""List a bucket page by page; a listing that is cut short is an error, never the end.

Reads only. What a planner must not mistake for "nothing there": a proxy's page, an answer that says it goes on without
saying where, one that turns in a circle, and one that ignores the prefix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.utils import parse_timestamp

from safedelete.errors import StoreError
from safedelete.s3.codes import SDK_ERRORS, store_error

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class Listed(NamedTuple):
    """One object of a listing; ``modified`` as the client gave it, see :func:`instant`."""

    key: str
    etag: str | None
    size: int
    modified: Any
    storage: str | None = None


class ListedVersion(NamedTuple):
    """One version or delete marker of a listing."""

    key: str
    version: str
    latest: bool
    marker: bool
    etag: str | None
    size: int
    modified: Any
    storage: str | None = None


class Level(NamedTuple):
    """One level of a bucket's tree: the objects that stand in it, and the prefixes of what stands deeper."""

    objects: list[Listed]
    folders: list[str]


def list_objects(
    client: S3Client,
    bucket: str,
    prefix: str,
    *,
    start_after: str | None = None,
    delimiter: str | None = None,
    page_size: int = 1000,
) -> Iterator[list[Listed]]:
    """Yield the current objects under a prefix, a page at a time. Reads only.

    Args:
        client: The client.
        bucket: The bucket.
        prefix: Leading characters of the keys.
        start_after: Leave out keys up to and including this one, in the store's order.
        delimiter: Leave out keys that hold this after the prefix.
        page_size: Keys a page at most, 1 to 1,000.

    Raises:
        StoreError: The store did not answer, or answered what cannot be a listing.
    """
    what = f"Listing s3://{bucket}/{prefix}"
    options: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": page_size}
    if start_after is not None:
        options["StartAfter"] = start_after
    if delimiter is not None:
        options["Delimiter"] = delimiter
    circle = _Circle()
    while True:
        try:
            answer: Mapping[str, Any] = client.list_objects_v2(**options)
        except SDK_ERRORS as error:
            raise store_error(error, what) from error
        truncated = _truncated(answer, what)
        page: list[Listed] = []
        try:
            for item in answer.get("Contents") or ():
                key = item["Key"]
                if not key.startswith(prefix):
                    raise _stray(what, key)
                page.append(_listed(item))
        except KeyError as error:
            raise _lacking(what, str(error)) from error
        yield page
        if not truncated:
            return
        token = answer.get("NextContinuationToken")
        if not token or circle.closes(token):
            raise _cut_short(what, "no continuation token" if not token else "a token it had given before")
        options["ContinuationToken"] = token


def list_level(client: S3Client, bucket: str, prefix: str) -> Level | None:
    """Return what stands right under a prefix, or None where that is more than one page. Reads only.

    Raises:
        StoreError: As for :func:`list_objects`.
    """
    what = f"Listing s3://{bucket}/{prefix}"
    try:
        answer: Mapping[str, Any] = client.list_objects_v2(Bucket=bucket, Prefix=prefix, Delimiter="/")
    except SDK_ERRORS as error:
        raise store_error(error, what) from error
    if _truncated(answer, what):
        return None
    try:
        folders = [item["Prefix"] for item in answer.get("CommonPrefixes") or ()]
        objects = [_listed(item) for item in answer.get("Contents") or ()]
    except KeyError as error:
        raise _lacking(what, str(error)) from error
    for name in (*folders, *(item.key for item in objects)):
        if not name.startswith(prefix):
            raise _stray(what, name)
    return Level(objects, folders)


def list_versions(
    client: S3Client, bucket: str, prefix: str, *, page_size: int = 1000
) -> Iterator[list[ListedVersion]]:
    """Yield every version and delete marker under a prefix, a page at a time, newest first for each key. Reads only.

    Raises:
        StoreError: As for :func:`list_objects`.
    """
    what = f"Listing the versions of s3://{bucket}/{prefix}"
    options: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix, "MaxKeys": page_size}
    circle = _Circle()
    while True:
        try:
            answer: Mapping[str, Any] = client.list_object_versions(**options)
        except SDK_ERRORS as error:
            raise store_error(error, what) from error
        truncated = _truncated(answer, what)
        page: list[ListedVersion] = []
        try:
            page += [_version(item, marker=False) for item in answer.get("Versions") or ()]
            page += [_version(item, marker=True) for item in answer.get("DeleteMarkers") or ()]
        except KeyError as error:
            raise _lacking(what, str(error)) from error
        for entry in page:
            if not entry.key.startswith(prefix):
                raise _stray(what, entry.key)
        yield page
        if not truncated:
            return
        marker = (answer.get("NextKeyMarker"), answer.get("NextVersionIdMarker"))
        if not marker[0] or circle.closes(marker):
            raise _cut_short(what, "no key marker" if not marker[0] else "a key marker it had given before")
        options["KeyMarker"] = marker[0]
        options.pop("VersionIdMarker", None)
        if marker[1]:
            options["VersionIdMarker"] = marker[1]


def by_key(pages: Iterator[list[ListedVersion]]) -> Iterator[list[ListedVersion]]:
    """Yield all versions and markers of each key together, oldest first and the current one last. Reads only.

    An answer names versions and markers in two lists, and a key's own may be spread over pages, so a key is complete
    once a later page names none of it.
    """
    open_keys: dict[str, list[ListedVersion]] = {}
    for page in pages:
        if not page:
            continue
        here: dict[str, list[ListedVersion]] = {}
        for entry in page:
            here.setdefault(entry.key, []).append(entry)
        # In key order, so that what is planned comes out in the order of the listing.
        for key in sorted(here, key=_utf8):
            open_keys.setdefault(key, []).extend(here[key])
        # Each of the two lists may end within a key. Which key that is the lists say themselves: not every store lists in
        # byte order, and half a key would look older than it is, and its current version could go before the others.
        ends = {entry.marker: entry.key for entry in page}.values()
        # Those behind one that may go on wait for it, a page at most: whoever compares the listing needs its order.
        for key in list(open_keys):
            if key in ends:
                break
            yield _oldest_first(open_keys.pop(key))
    for versions in open_keys.values():
        yield _oldest_first(versions)


def instant(modified: Any) -> datetime:
    """Return a listing's LastModified as an aware UTC datetime.

    Raises:
        StoreError: It is not a time; an object of unknown age is not an old one.
    """
    try:
        when = modified if isinstance(modified, datetime) else _parse(modified)
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreError(
            f"The store gave {modified!r} as an object's LastModified, which is not a time.",
            hint="Check that the endpoint is an S3 store and that nothing in between changes its answers.",
        ) from error
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)


def written(modified: Any) -> float:
    """Return a listing's LastModified in Unix seconds.

    Raises:
        StoreError: As for :func:`instant`.
    """
    if type(modified) is str:
        try:
            when = datetime.fromisoformat(modified)
        except ValueError:
            return instant(modified).timestamp()
        if when.tzinfo is not None:
            return when.timestamp()
    return instant(modified).timestamp()


def _parse(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return parse_timestamp(text)


def _utf8(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _oldest_first(versions: Sequence[ListedVersion]) -> list[ListedVersion]:
    # The sort is stable and listings give the newest first, so equal times keep the order they were written in; what
    # is current goes last whatever the times say.
    upside_down = versions[::-1]
    return sorted(upside_down, key=lambda v: (v.latest, instant(v.modified)))


def _listed(item: Mapping[str, Any]) -> Listed:
    return Listed(item["Key"], item.get("ETag"), item["Size"], item["LastModified"], item.get("StorageClass"))


def _version(item: Mapping[str, Any], *, marker: bool) -> ListedVersion:
    return ListedVersion(
        item["Key"],
        item["VersionId"],
        bool(item["IsLatest"]),
        marker,
        item.get("ETag"),
        item.get("Size") or 0,
        item["LastModified"],
        item.get("StorageClass"),
    )


class _Circle:
    """Tells when a listing turns in a circle, and keeps one place of it at a time: there may be millions.

    The place kept is replaced by the first, second, fourth, eighth … one, so a circle is noticed within its third turn.
    """

    def __init__(self) -> None:
        self._kept: object = None
        self._given = 0

    def closes(self, place: object) -> bool:
        """Take in the place where the listing goes on; return whether it is the one kept."""
        self._given += 1
        if place == self._kept:
            return True
        if self._given & (self._given - 1) == 0:
            self._kept = place
        return False


def _truncated(answer: Mapping[str, Any], what: str) -> bool:
    truncated = answer.get("IsTruncated")
    if not isinstance(truncated, bool):
        raise StoreError(
            f"{what} got an answer that does not say whether it is complete, so it is no listing.",
            hint="Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
        )
    return truncated


def _cut_short(what: str, how: str) -> StoreError:
    return StoreError(
        f"{what} was cut short: the store says there is more, and gave {how}.",
        hint="The listing is incomplete and was not used. Run again; if it stays, report it to the store's makers.",
    )


def _stray(what: str, key: str) -> StoreError:
    return StoreError(
        f"{what} got the key {key[:200]!r}, which is not under that prefix.",
        hint="The store ignores the prefix; nothing of its answer was used.",
    )


def _lacking(what: str, field: str) -> StoreError:
    return StoreError(
        f"{what} got an entry without {field}.",
        hint="Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
    )
