"""Write a DeleteObjects request and read its answer without the SDK's generic serializer and parser.

These take more than half of what a delete costs this process. Signing, checksums, sending and error handling stay the
SDK's. The SDK is asked for a delete of nothing, and the hook puts the real body in its place: should the hook not be
called, what goes on the wire names no key at all. An answer that is not plain is left to the SDK to parse or to reject.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet
from xml.sax.saxutils import escape

from safedelete.s3.fastxml import UNREADABLE, Record, read_flat

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
_FIELDS: Final = frozenset({"Key", "VersionId", "DeleteMarker", "DeleteMarkerVersionId", "Code", "Message"})
_TRUTH: Final = {"true": True, "false": False}

_body: ContextVar[bytes | None] = ContextVar("safedelete_s3_delete_body", default=None)
_installed: WeakSet[Any] = WeakSet()


def install_fast_delete(client: S3Client) -> None:
    """Have a client of our own send and read deletes the fast way."""
    events = client.meta.events
    events.register("before-call.s3.DeleteObjects", _put_body, unique_id="safedelete-fast-delete")
    # As for listings: called before the SDK looks for an error in the whole answer.
    events.register("before-parse.*.DeleteObjects", _take_records, unique_id="safedelete-fast-deleted")
    _installed.add(client)


def send_delete(
    client: S3Client, bucket: str, objects: Sequence[ObjectIdentifierTypeDef]
) -> Mapping[str, Any]:
    """Send one verbose DeleteObjects request and return its answer. Deletes.

    Raises:
        ClientError: And whatever else the SDK raises.
    """
    if client not in _installed:
        return client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": False})
    token = _body.set(_document(objects))
    try:
        return client.delete_objects(Bucket=bucket, Delete={"Objects": [], "Quiet": False})
    finally:
        _body.reset(token)


def _document(objects: Sequence[ObjectIdentifierTypeDef]) -> bytes:
    """Return the request's body; keys that XML cannot carry never come here, see :mod:`safedelete.s3.keys`."""
    parts = [f'<Delete xmlns="{_NAMESPACE}">']
    for entry in objects:
        key = escape(entry["Key"])
        version, etag = entry.get("VersionId"), entry.get("ETag")
        parts.append(
            f"<Object><Key>{key}</Key>"
            f"{'' if version is None else f'<VersionId>{escape(version)}</VersionId>'}"
            f"{'' if etag is None else f'<ETag>{escape(etag)}</ETag>'}</Object>"
        )
    parts.append("<Quiet>false</Quiet></Delete>")
    # A parser turns these into a newline when they are not escaped.
    return "".join(parts).replace("\r", "&#xD;").replace("\n", "&#xA;").encode()


def _put_body(params: Any, **_: Any) -> None:
    body = _body.get()
    if body is not None:
        params["body"] = body


def _take_records(response_dict: Any, customized_response_dict: Any, **_: Any) -> None:
    if response_dict.get("status_code") != 200:
        return
    try:
        flat = read_flat(response_dict["body"], ("Deleted", "Error"), _FIELDS)
        deleted, errors = flat.records["Deleted"], flat.records["Error"]
        for item in deleted:
            if "DeleteMarker" in item:
                item["DeleteMarker"] = _TRUTH[item["DeleteMarker"]]
    except UNREADABLE:
        return
    if flat.root != "DeleteResult" or flat.scalars:
        return
    response_dict["body"] = b"<DeleteResult/>"
    kinds: tuple[tuple[str, list[Record]], ...] = (("Deleted", deleted), ("Errors", errors))
    customized_response_dict.update({name: records for name, records in kinds if records})
