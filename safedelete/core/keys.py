"""Which object keys can be deleted safely by some request, and why the others cannot."""

from __future__ import annotations

import re
from typing import Final

MAX_BYTES: Final = 1024
"""Longest key of S3, in UTF-8 bytes; one longer key fails a whole DeleteObjects request."""

# Every C0 control is taken, also the three that XML allows: a parser may hand a carriage return back as a newline,
# and then the answer names another key than the one asked for.
NOT_XML: Final = re.compile("[\x00-\x1f\ufffe\uffff]")


def refusal(key: str) -> str | None:
    """Return why a key cannot be deleted safely by any request, or None.

    Asked when planning, so that such a key, or the row that names it, is counted apart and never sealed.
    """
    if not key:
        return "the key is empty"
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        return "the key holds a lone surrogate, which UTF-8 cannot carry"
    if size > MAX_BYTES:
        return f"the key has {size:,} bytes; S3 allows {MAX_BYTES:,}"
    if NOT_XML.search(key) and has_dot_segment(key):
        return (
            "the key has both a control character (which only a single delete can carry) and a '.' or '..' segment "
            "(which a proxy may resolve in a single delete)"
        )
    return None


def has_dot_segment(key: str) -> bool:
    """Whether a URL with this key in its path could be resolved to another one."""
    return any(segment in (".", "..") for segment in key.split("/"))


def as_prefix(text: str) -> str:
    """Return a stored prefix with its slash: "a/b" and "a/b/" are one place, and neither reaches "a/bc"."""
    return text if text.endswith("/") else text + "/"


def no_prefix(text: str) -> str | None:
    """Return why a text cannot be a prefix that a row owns, or None.

    What would reach a whole bucket, or would silently match nothing, is never taken for a prefix.
    """
    if not text.strip(" "):
        return "the prefix is empty"
    if text.startswith("/"):
        return "the prefix starts with a slash, which hardly any key does"
    return refusal(text + "/")


def ancestors(key: str) -> list[str]:
    """Return every prefix that a key lies below, the shortest first."""
    return [key[: i + 1] for i, character in enumerate(key) if character == "/"]
