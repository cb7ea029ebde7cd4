"""How S3 writes a page of a bucket's versions and delete markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from safedelete.testing.servers.faults import NAMESPACE, XML, Answer, Request, escaped


class VersionEntry(NamedTuple):
    """One version or delete marker of the page.

    Attributes:
        key: Its key.
        name: Its id.
        latest: Whether it is current.
        modified: Aware.
        etag: In its quotes; None for a delete marker, which has none of what follows either.
        size: Bytes.
        storage: Storage class; empty to leave it out.
    """

    key: str
    name: str
    latest: bool
    modified: datetime
    etag: str | None = None
    size: int = 0
    storage: str = ""


def version_page(
    request: Request,
    limit: int,
    shown: Iterable[VersionEntry],
    ends: tuple[str, str] | None,
    groups: Sequence[str] = (),
) -> Answer:
    """Write one page.

    Args:
        request: What it answers.
        limit: Most entries a page.
        shown: The entries, in the order of the listing.
        ends: Key and version with which it ends, the version empty for a group; None for the last page.
        groups: Common prefixes.
    """
    query = request.query
    url = query.get("encoding-type") == "url"

    def named(text: str) -> str:
        return quote(text, safe="/") if url else escaped(text)

    head = (
        f'<?xml version="1.0" encoding="UTF-8"?><ListVersionsResult xmlns="{NAMESPACE}"><Name>{request.bucket}</Name>'
        f"<Prefix>{named(query.get('prefix', ''))}</Prefix><KeyMarker>{named(query.get('key-marker', ''))}</KeyMarker>"
        f"<VersionIdMarker>{escaped(query.get('version-id-marker', ''))}</VersionIdMarker><MaxKeys>{limit}</MaxKeys>"
        f"{'<EncodingType>url</EncodingType>' if url else ''}<IsTruncated>{str(ends is not None).lower()}</IsTruncated>"
    )
    parts = [head]
    if ends is not None:
        key, version = ends
        parts.append(f"<NextKeyMarker>{named(key)}</NextKeyMarker>")
        parts.append(f"<NextVersionIdMarker>{version}</NextVersionIdMarker>" if version else "")
    parts += [_entry(named(entry.key), entry) for entry in shown]
    parts += [f"<CommonPrefixes><Prefix>{named(group)}</Prefix></CommonPrefixes>" for group in groups]
    return Answer(200, "".join([*parts, "</ListVersionsResult>"]).encode(), XML)


def _entry(named: str, entry: VersionEntry) -> str:
    about = (
        f"<Key>{named}</Key><VersionId>{entry.name}</VersionId><IsLatest>{str(entry.latest).lower()}</IsLatest>"
        f"<LastModified>{entry.modified.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
    )
    if entry.etag is None:
        return f"<DeleteMarker>{about}</DeleteMarker>"
    storage = f"<StorageClass>{entry.storage}</StorageClass>" if entry.storage else ""
    return f"<Version>{about}<ETag>{escaped(entry.etag)}</ETag><Size>{entry.size}</Size>{storage}</Version>"
