"""One object of the stub store, and what is answered about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime

from safedelete.testing.servers.faults import XML, Answer, Entry, error_body


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object.

    Attributes:
        body: Content.
        etag: MD5 of the content, in hex, without quotes.
        modified: Aware, UTC.
        storage: Its storage class; None for a listing that does not name it.
    """

    body: bytes
    etag: str
    modified: datetime
    storage: str | None = "STANDARD"


def refusal(objects: Mapping[str, StoredObject], entry: Entry) -> str | None:
    """Return the code by which a delete of the current object is refused for its condition; None where it holds."""
    if entry.etag is None:
        return None
    stored = objects.get(entry.key)
    if stored is None:
        return "NoSuchKey"
    return None if entry.etag.strip('"') in ("*", stored.etag) else "PreconditionFailed"


def got(stored: StoredObject | None, *, head: bool) -> Answer:
    """Answer a GET or HEAD of an object."""
    if stored is None:
        return Answer(404) if head else Answer(404, error_body("NoSuchKey", "stub"), XML)
    headers = {
        "ETag": f'"{stored.etag}"',
        "Last-Modified": format_datetime(stored.modified.astimezone(UTC), usegmt=True),
        "Content-Type": "binary/octet-stream",
    }
    if head:
        return Answer(200, b"", headers, announced=len(stored.body))
    return Answer(200, stored.body, headers)
