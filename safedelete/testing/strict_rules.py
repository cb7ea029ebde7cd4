"""What S3 does when it is asked to delete, on moto's buckets: where moto is laxer than S3, S3's own rule.

moto takes more than 1,000 keys, ignores ``ETag`` and ``Quiet``, drops an object of an unversioned bucket whatever
version is named, makes no marker for an absent key, and refuses no key that is too long. A purge tested against that
passes for the wrong reason.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from safedelete.testing.servers.faults import NAMESPACE, XML, Answer, Entry, Request, error_body, escaped

MOST_KEYS: Final = 1000
LONGEST_KEY: Final = 1024
"""Bytes of UTF-8."""

ACCOUNT: Final = "123456789012"
"""Who owns every bucket here; moto's own default."""

STATUS: Final = {
    "AccessDenied": 403,
    "InternalError": 500,
    "InvalidArgument": 400,
    "NoSuchKey": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "SlowDown": 503,
}

Denied = Callable[[str, str], bool]
"""Whether deleting a key of a bucket is denied."""

Hidden = Callable[[str, str], None]
"""Told of the bucket and the key that a delete marker was put on top of."""


class Done(NamedTuple):
    """What became of one entry: an error's code, or what the answer says of a deletion."""

    code: str | None = None
    version: str | None = None
    marker: bool = False


def refused(request: Request) -> Answer | None:
    """Return the answer to a request that S3 does not even begin with; None for one that it carries out."""
    owner = request.headers.get("x-amz-expected-bucket-owner", ACCOUNT)
    if owner != ACCOUNT:
        return error(403, "AccessDenied")
    if any(len(key.encode("utf-8", "surrogatepass")) > LONGEST_KEY for key in request.keys):
        return error(400, "KeyTooLongError")
    if request.operation != "DeleteObjects":
        return None
    if (
        request.malformed
        or not 1 <= len(request.entries) <= MOST_KEYS
        or not all(entry.key for entry in request.entries)
    ):
        return error(400, "MalformedXML")
    if not any(name == "content-md5" or name.startswith("x-amz-checksum-") for name in request.headers):
        return error(400, "InvalidRequest")
    return None


def delete_one(
    backend: Any, request: Request, refuse: Mapping[str, str], denied: Denied, hidden: Hidden
) -> Answer:
    """Answer DeleteObject. Deletes from moto's bucket."""
    entry = Entry(request.key, request.query.get("versionId"), request.headers.get("if-match"))
    done = _delete(backend, request, entry, refuse, denied)
    if done.marker and entry.version is None:
        hidden(request.bucket, entry.key)
    if done.code is not None:
        code = "InvalidArgument" if done.code == "NoSuchVersion" else done.code
        return error(STATUS.get(code, 403), code)
    headers = {"x-amz-version-id": done.version} if done.version else {}
    return Answer(204, headers=headers | ({"x-amz-delete-marker": "true"} if done.marker else {}))


def delete_many(
    backend: Any, request: Request, refuse: Mapping[str, str], denied: Denied, hidden: Hidden
) -> Answer:
    """Answer DeleteObjects, entry by entry. Deletes from moto's bucket."""
    quiet = b"<Quiet>true</Quiet>" in request.body
    parts = [f'<?xml version="1.0" encoding="UTF-8"?><DeleteResult xmlns="{NAMESPACE}">']
    for entry in request.entries:
        done = _delete(backend, request, entry, refuse, denied)
        if done.marker and entry.version is None:
            hidden(request.bucket, entry.key)
        named = f"<Key>{escaped(entry.key)}</Key>" + _tag("VersionId", entry.version)
        if done.code is not None:
            parts.append(f"<Error>{named}<Code>{done.code}</Code><Message>{done.code}</Message></Error>")
        elif not quiet:
            marker = "<DeleteMarker>true</DeleteMarker>" if done.marker else ""
            made = _tag("DeleteMarkerVersionId", done.version if done.marker else None)
            parts.append(f"<Deleted>{named}{marker}{made}</Deleted>")
    return Answer(200, "".join([*parts, "</DeleteResult>"]).encode(), XML)


def error(status: int, code: str) -> Answer:
    """Return S3's answer to a request as a whole."""
    return Answer(status, error_body(code, code), XML)


def _tag(name: str, value: str | None) -> str:
    return "" if value is None else f"<{name}>{escaped(value)}</{name}>"


def _delete(backend: Any, request: Request, entry: Entry, refuse: Mapping[str, str], denied: Denied) -> Done:
    from moto.s3.exceptions import AccessDeniedByLock

    bucket = backend.get_bucket(request.bucket)
    code = refuse.get(entry.key) or _refusal(bucket, entry, denied)
    if code is not None:
        return Done(code)
    if not bucket.keys.getlist(entry.key):
        if bucket.is_versioned and entry.version is None:
            return Done(version=_marker_for_nothing(bucket, entry.key), marker=True)
        return Done(version=entry.version)
    try:
        _, meta = backend.delete_object(
            request.bucket,
            entry.key,
            version_id=entry.version if bucket.is_versioned else None,
            bypass=request.headers.get("x-amz-bypass-governance-retention", "").lower() == "true",
        )
    except AccessDeniedByLock:
        return Done("AccessDenied")
    return Done(version=meta.get("version-id"), marker=meta.get("delete-marker") == "true")


def _refusal(bucket: Any, entry: Entry, denied: Denied) -> str | None:
    if denied(bucket.name, entry.key) or _forbidden(bucket, entry):
        return "AccessDenied"
    if bucket.versioning_status == "Suspended":
        # moto would drop every version of the key; S3 drops the null version and adds a marker.
        return "NotImplemented"
    return _condition(bucket, entry)


def _condition(bucket: Any, entry: Entry) -> str | None:
    """Return the code that a version or an ETag is answered with when it is not what is there."""
    if entry.version is not None:
        if entry.etag is not None:
            return "NotImplemented"
        known = entry.version == "null" or (bucket.is_versioned and _is_uuid(entry.version))
        return None if known else "NoSuchVersion"
    if entry.etag is None:
        return None
    current = bucket.keys.get(entry.key)
    if current is None or not hasattr(current, "etag"):
        return "NoSuchKey"
    same = entry.etag.strip('"') in ("*", str(current.etag).strip('"'))
    return None if same else "PreconditionFailed"


def _forbidden(bucket: Any, entry: Entry) -> bool:
    from moto.iam.access_control import PermissionResult

    action = "s3:DeleteObject" if entry.version is None else "s3:DeleteObjectVersion"
    verdict = bucket.get_permission(action, f"arn:aws:s3:::{bucket.name}/{entry.key}")
    return bool(verdict == PermissionResult.DENIED)


def _marker_for_nothing(bucket: Any, key: str) -> str:
    from moto.s3.models import FakeDeleteMarker, FakeKey

    hidden = FakeKey(
        name=key, value=b"", account_id=ACCOUNT, region_name="us-east-1", bucket_name=bucket.name
    )
    bucket.keys[key] = marker = FakeDeleteMarker(key=hidden)
    return marker.version_id


def _is_uuid(text: str) -> bool:
    """Whether it could be a version's id here; moto's are UUIDs."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True
