"""Which way a key can be deleted safely, if any, and what a value in a key column is.

Keys are never normalised: two that look alike are two objects. What differs is the wire. A DeleteObjects request is an
XML document, which cannot carry control characters: one such key spoils the whole request. A single DeleteObject puts
the key into the URL's path, where a proxy may resolve ``..`` and so name another object.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

MAX_BYTES: Final = 1024
"""Longest key of S3, in UTF-8 bytes; one longer key fails a whole DeleteObjects request."""

# Every C0 control is taken, also the three that XML allows: a parser may hand a carriage return back as a newline,
# and then the answer names another key than the one asked for.
_NOT_XML: Final = re.compile("[\x00-\x1f\ufffe\uffff]")


class Lane(StrEnum):
    """How a key is deleted."""

    BATCH = "batch"
    SINGLE = "single"


def refusal(key: str) -> str | None:
    """Return why a key cannot be deleted safely by any request, or None.

    Called when planning, so that such a key is reported and never sealed.
    """
    if not key:
        return "the key is empty"
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return "the key holds a lone surrogate, which UTF-8 cannot carry"
    if size > MAX_BYTES:
        return f"the key has {size:,} bytes; S3 allows {MAX_BYTES:,}"
    if _NOT_XML.search(key) and has_dot_segment(key):
        return (
            "the key has both a control character (which only a single delete can carry) and a '.' or '..' segment "
            "(which a proxy may resolve in a single delete)"
        )
    return None


def lane(key: str) -> Lane:
    """Return how a key that is not refused is deleted."""
    return Lane.SINGLE if _NOT_XML.search(key) else Lane.BATCH


def has_dot_segment(key: str) -> bool:
    """Whether a URL with this key in its path could be resolved to another one."""
    return any(segment in (".", "..") for segment in key.split("/"))


def parent(key: str) -> str:
    """Return everything up to and including the last slash; empty for a key without one."""
    return key[: key.rfind("/") + 1]


class KeyKind(StrEnum):
    """What a value found in a key column is."""

    KEY = "key"
    NULL = "null"
    """The row owns no object here."""
    EMPTY = "empty"
    """An empty or blank string: neither an object nor a prefix."""
    URL = "url"
    """``https://…``: whose object that is can only be guessed."""
    S3_URL = "s3-url"
    """``s3://`` with this very bucket."""
    FOREIGN = "foreign-bucket"
    """``s3://`` with another bucket."""
    NOT_TEXT = "not-text"
    REFUSED = "refused"
    """A key that no request can delete safely, see :func:`refusal`."""


_URL: Final = re.compile(r"^(?:https?|ftp|file|gs|arn)://|^arn:", re.IGNORECASE)


def classify(value: object, bucket: str) -> KeyKind:
    """Return what a value of a key column is; anything but ``KEY`` and ``NULL`` is reported and never guessed at.

    Args:
        value: The value as the driver gave it.
        bucket: The bucket that the column's keys are declared to be in.
    """
    if value is None:
        return KeyKind.NULL
    if not isinstance(value, str):
        return KeyKind.NOT_TEXT
    if not value.strip():
        return KeyKind.EMPTY
    head, separator, rest = value.partition("://")
    if separator and head.lower() in ("s3", "s3a", "s3n"):
        return KeyKind.S3_URL if rest.partition("/")[0] == bucket else KeyKind.FOREIGN
    if _URL.match(value):
        return KeyKind.URL
    return KeyKind.REFUSED if refusal(value) else KeyKind.KEY
