"""Refuse an answer that the SDK would make the best of.

It reads what it can find and leaves out the rest: of a proxy's page it makes a bucket without versions, of a word that it does
not know the end of a listing, and of bytes that are no text another object's name. So answers are looked at before it
parses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_plus, unquote_to_bytes

from botocore.parsers import ResponseParserError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_ROOTS: Final = {
    "GetBucketVersioning": ("VersioningConfiguration", "GetBucketVersioningResponse"),  # the second is moto's
    "GetObjectLockConfiguration": ("ObjectLockConfiguration",),
    "GetBucketReplication": ("ReplicationConfiguration",),
}
"""Answers in which everything may be left out, so that nothing tells one from something else but its root's name."""

_TRUNCATED: Final = re.compile(rb"<(?:\w+:)?IsTruncated(?:\s[^>]*)?(?:/>|>([^<]*)<)")
_ENCODING: Final = re.compile(rb"<(?:\w+:)?EncodingType(?:\s[^>]*)?(?:/>|>([^<]*)<)")
_LATEST: Final = re.compile(rb"<(?:\w+:)?IsLatest(?:\s[^>]*)?(?:/>|>([^<]*)<)")
_MARKER: Final = re.compile(rb"<(?:\w+:)?DeleteMarker(?:\s[^>]*)?(?:/>|>([^<]*)<)")
_ROOT: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>)?\s*<(?:\w+:)?(\w+)")


def install_checks(client: S3Client) -> None:
    """Have a client's answers looked at before they are parsed; what cannot be relied on is a ResponseParserError."""
    checks: dict[str, Callable[..., None]] = {
        "ListObjectsV2": _check_listing,
        "ListObjectVersions": _check_versions,
        "DeleteObjects": _check_deleted,
        **{operation: _Root(names).check for operation, names in _ROOTS.items()},
    }
    for operation, check in checks.items():
        client.meta.events.register(
            f"before-parse.s3.{operation}", check, unique_id=f"safedelete-check-{operation}"
        )


def decoded(key: str) -> str:
    """Return a key that was listed in URL encoding.

    Raises:
        ResponseParserError: It is no text: what could not be read would be replaced by what another key may be.
    """
    try:
        return unquote_plus(key, errors="strict")
    except UnicodeDecodeError as error:
        raise ResponseParserError(f"a listed key is not UTF-8: {key[:200]!r}") from error


def _check_listing(response_dict: Any, **_: Any) -> None:
    body = response_dict["body"]
    if response_dict.get("status_code") != 200:
        return
    # Both of its tags; a key may hold the word, too, but no tag.
    found = _TRUNCATED.findall(body) if body.count(b"IsTruncated") > 2 else _first(_TRUNCATED, body)
    if len(found) > 1:
        raise ResponseParserError("whether the listing goes on is said more than once")
    if found and found[0] not in (b"true", b"false"):
        raise ResponseParserError(
            f"whether the listing goes on is said as {_words(found[0])}, which is neither true nor false"
        )
    (encoding,) = _first(_ENCODING, body) or [b""]
    if encoding not in (b"", b"url"):
        raise ResponseParserError(f"its keys are encoded as {_words(encoding)}, which is not known")
    if encoding and b"%" in body:
        try:
            unquote_to_bytes(body).decode()
        except UnicodeDecodeError as error:
            raise ResponseParserError(f"a listed key is not UTF-8: {error}") from error


def _check_versions(response_dict: Any, **_: Any) -> None:
    _check_listing(response_dict)
    _check_truth(_LATEST, "a version is current", response_dict)


def _check_deleted(response_dict: Any, **_: Any) -> None:
    _check_truth(_MARKER, "a delete made a marker", response_dict)


def _check_truth(pattern: re.Pattern[bytes], what: str, response_dict: Any) -> None:
    """Raise where the SDK would take a word that it does not know for "false"."""
    odd = set(pattern.findall(response_dict["body"])) - {b"true", b"false"}
    if odd and response_dict.get("status_code") == 200:
        raise ResponseParserError(
            f"whether {what} is said as {_words(min(odd))}, which is neither true nor false"
        )


def _first(pattern: re.Pattern[bytes], body: bytes) -> list[bytes]:
    found = pattern.search(body)
    return [] if found is None else [found[1] or b""]


def _words(found: bytes) -> str:
    return repr(found[:40].decode("ascii", "replace"))


class _Root:
    """Looks whether an answer is what was asked for."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def check(self, response_dict: Any, **_: Any) -> None:
        if response_dict.get("status_code", 0) >= 300:
            return
        found = _ROOT.match(response_dict["body"])
        said = "nothing" if found is None else found[1].decode("ascii", "replace")
        if said not in self._names:
            raise ResponseParserError(f"{said[:40]} was answered where a {self._names[0]} was asked for")
