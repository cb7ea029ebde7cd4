"""The versions of one bucket of the stub store: what a versioned bucket keeps, hides and brings back."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from safedelete.testing.servers.faults import NAMESPACE, XML, Answer, Entry, Request, error_body, escaped
from safedelete.testing.servers.stub_object import StoredObject, got, refusal
from safedelete.testing.servers.version_page import VersionEntry, version_page

_MAX_KEYS = 1000
_NAME = re.compile(r"v(\d+)")


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a key, or a delete marker.

    Attributes:
        name: Its id.
        stored: The object; None for a marker.
        modified: Aware, UTC.
    """

    name: str
    stored: StoredObject | None
    modified: datetime


class Versions:
    """Every version of every key of one bucket, with the view of it that knows no versions.

    Args:
        shown: What an unversioned look sees, by key; kept up to date.
    """

    def __init__(self, shown: dict[str, StoredObject]) -> None:
        self._shown = shown
        self._kept: dict[str, list[Version]] = {}
        self._sorted: list[str] = []
        self._made = 0

    def write(self, key: str, stored: StoredObject) -> Version:
        """Keep a new version, which is current from now on."""
        return self._add(key, stored, stored.modified)

    def hide(self, key: str, modified: datetime | None = None) -> Version:
        """Put a delete marker on top of a key, also of one that has no version."""
        return self._add(key, None, modified or datetime.now(UTC))

    def remove(self, key: str, name: str) -> Version | None:
        """Remove one version or marker for good; whatever lies below it is current from then on."""
        kept = self._kept.get(key, [])
        found = next((version for version in kept if version.name == name), None)
        if found is not None:
            kept.remove(found)
            if not kept:
                del self._kept[key]
                self._sorted.remove(key)
            self._show(key)
        return found

    def of(self, key: str) -> tuple[Version, ...]:
        """Return the versions and markers of a key, oldest first."""
        return tuple(self._kept.get(key, ()))

    def all(self) -> Iterator[tuple[str, Version]]:
        """Yield every version and marker in the order of a listing: by key, newest first."""
        for key in self._sorted:
            for version in reversed(self._kept[key]):
                yield key, version

    # --- the wire's side ---

    def answer(self, request: Request, refuse: Mapping[str, str]) -> Answer | None:
        """Answer what is about versions; None for what an unversioned bucket answers alike."""
        name = request.query.get("versionId")
        match request.operation:
            case "GetBucketVersioning":
                status = f'<VersioningConfiguration xmlns="{NAMESPACE}"><Status>Enabled</Status></VersioningConfiguration>'
                return Answer(200, status.encode(), XML)
            case "ListObjectVersions":
                return self._list(request)
            case "DeleteObjects" if not request.malformed and 1 <= len(request.entries) <= _MAX_KEYS:
                return self._delete_objects(request, refuse)
            case "DeleteObject":
                return self._delete(request, name)
            case "GetObject" | "HeadObject" if name is not None:
                return self._get(request.key, name, head=request.operation == "HeadObject")
        return None

    def _get(self, key: str, name: str, *, head: bool) -> Answer:
        found = next((version for version in self.of(key) if version.name == name), None)
        if found is not None and found.stored is None:
            return Answer(405, headers={"x-amz-delete-marker": "true"})
        return got(None if found is None else found.stored, head=head)

    def _delete(self, request: Request, name: str | None) -> Answer:
        if name is not None:
            found = self.remove(request.key, name)
            marker = {"x-amz-delete-marker": "true"} if found is not None and found.stored is None else {}
            return Answer(204, headers={"x-amz-version-id": name, **marker})
        code = refusal(self._shown, Entry(request.key, etag=request.headers.get("if-match")))
        if code is not None:
            return Answer(412 if code == "PreconditionFailed" else 404, error_body(code, "stub"), XML)
        made = self.hide(request.key)
        return Answer(204, headers={"x-amz-version-id": made.name, "x-amz-delete-marker": "true"})

    def _delete_objects(self, request: Request, refuse: Mapping[str, str]) -> Answer:
        quiet = b"<Quiet>true</Quiet>" in request.body
        parts = [f'<?xml version="1.0" encoding="UTF-8"?><DeleteResult xmlns="{NAMESPACE}">']
        for entry in request.entries:
            code = refuse.get(entry.key) or (None if entry.version else refusal(self._shown, entry))
            asked = f"<VersionId>{entry.version}</VersionId>" if entry.version else ""
            if code is not None:
                parts.append(
                    f"<Error><Key>{escaped(entry.key)}</Key>{asked}<Code>{code}</Code><Message>stub</Message></Error>"
                )
                continue
            marker = ""
            made = self.remove(entry.key, entry.version) if entry.version else self.hide(entry.key)
            if made is not None and made.stored is None:
                marker = f"<DeleteMarker>true</DeleteMarker><DeleteMarkerVersionId>{made.name}</DeleteMarkerVersionId>"
            if not quiet:
                parts.append(f"<Deleted><Key>{escaped(entry.key)}</Key>{asked}{marker}</Deleted>")
        return Answer(200, "".join([*parts, "</DeleteResult>"]).encode(), XML)

    def _list(self, request: Request) -> Answer:
        query = request.query
        prefix, limit = query.get("prefix", ""), min(int(query.get("max-keys", _MAX_KEYS)), _MAX_KEYS)
        after, below = query.get("key-marker", ""), query.get("version-id-marker", "")
        if below and (not after or not _NAME.fullmatch(below)):
            return Answer(400, error_body("InvalidArgument", "stub"), XML)
        page: list[tuple[str, Version]] = []
        more = False
        for key, version in self.all():
            if not key.startswith(prefix) or not _is_past(key, version, after, below):
                continue
            if len(page) == limit:
                more = True
                break
            page.append((key, version))
        ends = (page[-1][0], page[-1][1].name) if more else None
        return version_page(request, limit, (self._listed(*entry) for entry in page), ends)

    def _listed(self, key: str, version: Version) -> VersionEntry:
        latest, stored = self._kept[key][-1] is version, version.stored
        if stored is None:
            return VersionEntry(key, version.name, latest, version.modified)
        etag, size = f'"{stored.etag}"', len(stored.body)
        return VersionEntry(key, version.name, latest, version.modified, etag, size, stored.storage or "")

    # --- inside ---

    def _add(self, key: str, stored: StoredObject | None, modified: datetime) -> Version:
        self._made += 1
        version = Version(f"v{self._made:06}", stored, modified)
        if key not in self._kept:
            insort(self._sorted, key)
        self._kept.setdefault(key, []).append(version)
        self._show(key)
        return version

    def _show(self, key: str) -> None:
        kept = self._kept.get(key)
        newest = kept[-1].stored if kept else None
        if newest is None:
            self._shown.pop(key, None)
        else:
            self._shown[key] = newest


def _is_past(key: str, version: Version, after: str, below: str) -> bool:
    """Whether a version stands after the place where a page ended, whether what stood there is still there or not."""
    if key != after:
        return key > after
    return bool(below) and _number(version.name) < _number(below)


def _number(name: str) -> int:
    """Return which of the bucket's versions one is: a key's newest, which is listed first, has its highest."""
    found = _NAME.fullmatch(name)
    assert found is not None, name
    return int(found.group(1))
