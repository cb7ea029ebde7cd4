"""How S3 lists versions, on moto's buckets: where moto skips what it should list, or says it in a way no client reads.

moto goes by dates, and skips the first key past a marker. Where the version at which a page ended has been deleted
meanwhile it lists nothing more, as if that were the end. It writes keys without the encoding that clients ask for, so that
one with a control character makes the whole page unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any, Final

from safedelete.testing.servers.faults import Answer, Request
from safedelete.testing.servers.version_page import VersionEntry, version_page
from safedelete.testing.strict_rules import error

MOST_LISTED: Final = 1000
"""Entries a page, however many were asked for."""

_Place = tuple[str, str, str]
"""Bucket, key and version."""


class VersionListings:
    """Answers ListObjectVersions, and remembers where its pages ended."""

    def __init__(self) -> None:
        self._older: dict[_Place, frozenset[str]] = {}
        """Of a version that a page ended with, those of its key that come after it in the listing."""

    def answer(self, bucket: Any, request: Request) -> Answer:
        """List a page of versions and markers, by key in the order of UTF-8 bytes, newest first. Reads only."""
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after, below = query.get("key-marker", ""), query.get("version-id-marker", "")
        asked = query.get("max-keys", str(MOST_LISTED))
        if not asked.isdecimal() or (below and not after):
            return error(400, "InvalidArgument")
        older = self._from(bucket, after, below)
        if older is None:
            return error(400, "InvalidArgument")
        limit = min(int(asked), MOST_LISTED)
        shown: list[tuple[str, Any, bool]] = []
        groups: list[str] = []
        ends, more = ("", ""), False
        for key, version, latest in _all(bucket, prefix):
            if key < after or (key == after and str(version.version_id) not in older):
                continue
            cut = key.find(delimiter, len(prefix)) if delimiter else -1
            group = key[: cut + len(delimiter)] if cut >= 0 else ""
            if group and (group == after or group in groups[-1:]):
                continue
            if len(shown) + len(groups) >= limit:
                more = limit > 0
                break
            if group:
                groups.append(group)
                ends = group, ""
            else:
                shown.append((key, version, latest))
                ends = key, str(version.version_id)
        if more and ends[1]:
            self._remember(bucket, *ends)
        listed = (_listed(*entry) for entry in shown)
        return version_page(request, limit, listed, ends if more else None, groups)

    def _from(self, bucket: Any, after: str, below: str) -> frozenset[str] | None:
        """Return which versions of the key at which a page ended were still to come; None where nobody can say."""
        if not below:
            return frozenset()
        names = _names(bucket, after)
        if below in names:
            return frozenset(names[: names.index(below)])
        return self._older.get((bucket.name, after, below))

    def _remember(self, bucket: Any, key: str, version: str) -> None:
        names = _names(bucket, key)
        self._older[bucket.name, key, version] = frozenset(names[: names.index(version)])


def _names(bucket: Any, key: str) -> list[str]:
    return [str(version.version_id) for version in bucket.keys.getlist(key, [])]


def _all(bucket: Any, prefix: str) -> Iterator[tuple[str, Any, bool]]:
    # Python's order of strings is by code point, which is S3's order by UTF-8 byte.
    for key in sorted(key for key in list(bucket.keys) if key.startswith(prefix)):
        versions = bucket.keys.getlist(key, [])
        for version in reversed(versions):
            yield key, version, version is versions[-1]


def _listed(key: str, version: Any, latest: bool) -> VersionEntry:
    name, modified = str(version.version_id), version.last_modified.replace(tzinfo=UTC)
    if not hasattr(version, "etag"):
        return VersionEntry(key, name, latest, modified)
    return VersionEntry(key, name, latest, modified, str(version.etag), version.size, version.storage_class)
