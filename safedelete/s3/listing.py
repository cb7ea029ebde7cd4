"""List a bucket page by page; a listing that is cut short is an error, never the end.

Reads only. What a planner must not mistake for "nothing there": a proxy's page, an answer that says it goes on without
saying where, one that turns in a circle, one that ignores the prefix or is about another bucket, and one that names fewer
keys than it counts. What it must not take for an object's age: a time that the store does not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_plus

from safedelete.errors import StoreError
from safedelete.s3.codes import SDK_ERRORS, store_error
from safedelete.s3.course import Course, cut_short

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


LARGEST: Final = 1 << 63
"""Bytes that no object has, and no number of a ledger holds."""

_DATE_ALONE: Final = len("2026-01-01")
_ALIASES: Final = ("-s3alias", "--ol-s3")  # access points, whose answers name the bucket behind them


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
    course = Course(what)
    while True:
        try:
            answer: Mapping[str, Any] = client.list_objects_v2(**options)
        except SDK_ERRORS as error:
            raise store_error(error, what) from error
        truncated = _truncated(answer, what)
        page = _objects(answer, bucket, prefix, what)
        course.take([item.key for item in page])
        yield page
        if not truncated:
            return
        token = answer.get("NextContinuationToken")
        options["ContinuationToken"] = course.onward(token, "continuation token")


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
    except KeyError as error:
        raise _lacking(what, str(error)) from error
    objects = _objects(answer, bucket, prefix, what)
    for name in folders:
        if not isinstance(name, str) or not name.startswith(prefix):
            raise _stray(what, str(name))
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
    course = Course(what)
    while True:
        try:
            answer: Mapping[str, Any] = client.list_object_versions(**options)
        except SDK_ERRORS as error:
            raise store_error(error, what) from error
        truncated = _truncated(answer, what)
        _check_place(answer, bucket, prefix, what)
        page: list[ListedVersion] = []
        try:
            page += [_version(item, what, marker=False) for item in answer.get("Versions") or ()]
            page += [_version(item, what, marker=True) for item in answer.get("DeleteMarkers") or ()]
        except KeyError as error:
            raise _lacking(what, str(error)) from error
        for entry in page:
            if not entry.key.startswith(prefix):
                raise _stray(what, entry.key)
        course.take([(entry.key, entry.version) for entry in page])
        yield page
        if not truncated:
            return
        key, version = answer.get("NextKeyMarker"), answer.get("NextVersionIdMarker")
        course.onward(key and (key, version), "key marker")
        options["KeyMarker"] = key
        options.pop("VersionIdMarker", None)
        if version:
            options["VersionIdMarker"] = version


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
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_time(modified, "which is not a time") from error
    if when <= _NEVER:
        raise _no_time(modified, "which is what programs write for a time that they do not know")
    return when


def written(modified: Any) -> float:
    """Return a listing's LastModified in Unix seconds, above 0.

    Raises:
        StoreError: As for :func:`instant`.
    """
    if type(modified) is str:
        try:
            when = datetime.fromisoformat(modified)
        except ValueError:
            return instant(modified).timestamp()
        if when.tzinfo is not None and when > _NEVER:
            return when.timestamp()
    return instant(modified).timestamp()


_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _parse(text: str) -> datetime:
    # No guessing: a date alone may be a day off, and lenient parsers make a time of "Mon".
    if len(text) <= _DATE_ALONE:
        raise ValueError("it has no time of day")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return parsedate_to_datetime(text)


def _no_time(modified: Any, how: str) -> StoreError:
    return StoreError(
        f"The store gave {modified!r} as an object's LastModified, {how}.",
        hint="An object of unknown age is not an old one. Check that the endpoint is an S3 store and that nothing in between "
        "changes its answers.",
    )


def _utf8(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def _oldest_first(versions: Sequence[ListedVersion]) -> list[ListedVersion]:
    # The sort is stable and listings give the newest first, so equal times keep the order they were written in; what
    # is current goes last whatever the times say.
    upside_down = versions[::-1]
    return sorted(upside_down, key=lambda v: (v.latest, instant(v.modified)))


def _objects(answer: Mapping[str, Any], bucket: str, prefix: str, what: str) -> list[Listed]:
    _check_place(answer, bucket, prefix, what)
    page: list[Listed] = []
    item: Mapping[str, Any] = {}
    try:
        # Millions of times over: what can be asked of the whole page is asked of the whole page.
        for item in answer.get("Contents") or ():
            key = item["Key"]
            if not key.startswith(prefix):
                raise _stray(what, key)
            # An empty ETag is none: no condition can be made of it.
            etag = item.get("ETag") or None
            page.append(Listed(key, etag, item["Size"], item["LastModified"], item.get("StorageClass")))
    except KeyError as error:
        raise _lacking(what, str(error)) from error
    except AttributeError as error:
        raise _odd(what, item) from error
    if page:
        sizes = [entry.size for entry in page]
        if min(sizes) < 0 or max(sizes) >= LARGEST or not {type(entry.etag) for entry in page} <= _ETAG:
            raise _odd(what, next(entry for entry in page if not _is_one(entry.size, entry.etag))._asdict())
    counted = answer.get("KeyCount")
    if isinstance(counted, int) and counted > len(page) + len(answer.get("CommonPrefixes") or ()):
        raise cut_short(what, f"the answer counts {counted:,} keys and names {len(page):,}")
    return page


_ETAG: Final = frozenset({str, type(None)})


def _is_one(size: int, etag: object) -> bool:
    return 0 <= size < LARGEST and type(etag) in _ETAG


def _version(item: Mapping[str, Any], what: str, *, marker: bool) -> ListedVersion:
    key, version, size, etag = item["Key"], item["VersionId"], item.get("Size") or 0, item.get("ETag")
    # Without an id a delete would be of whatever is current.
    named = isinstance(key, str) and isinstance(version, str) and version
    if not named or not _is_one(size, etag):
        raise _odd(what, item)
    return ListedVersion(
        key,
        version,
        bool(item["IsLatest"]),
        marker,
        etag or None,
        size,
        item["LastModified"],
        item.get("StorageClass"),
    )


def _check_place(answer: Mapping[str, Any], bucket: str, prefix: str, what: str) -> None:
    """Raise unless an answer is about this bucket and prefix, as far as it says what it is about."""
    named = answer.get("Name")
    if named and named != bucket and not bucket.startswith("arn:") and not bucket.endswith(_ALIASES):
        raise StoreError(
            f"{what} got the listing of another bucket, {str(named)[:80]!r}.",
            hint="Nothing of it was used: check AWS_ENDPOINT_URL and any proxy or cache in between.",
        )
    under = answer.get("Prefix")
    if under and prefix not in (under, unquote_plus(str(under))):
        raise StoreError(
            f"{what} got the listing of another prefix, {str(under)[:200]!r}.",
            hint="Nothing of it was used: check AWS_ENDPOINT_URL and any proxy or cache in between.",
        )


def _truncated(answer: Mapping[str, Any], what: str) -> bool:
    truncated = answer.get("IsTruncated")
    if not isinstance(truncated, bool):
        raise StoreError(
            f"{what} got an answer that does not say whether it is complete, so it is no listing.",
            hint="Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
        )
    return truncated


def _odd(what: str, entry: Mapping[str, Any]) -> StoreError:
    return StoreError(
        f"{what} got an entry that names no object: {repr(dict(entry))[:300]}.",
        hint="Something that is not S3 answered: check AWS_ENDPOINT_URL and any proxy in between.",
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
