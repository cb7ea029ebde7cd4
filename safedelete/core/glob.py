"""Glob patterns for object keys, compiled to a regular expression that no key can slow down.

Keys are not paths of a file system, but they are read as such: ``*`` stays within one segment, so that a pattern
never reaches deeper than it says. Lazy parts are atomic, so matching takes time in proportion to key and pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Return a glob as a regular expression; use it with ``fullmatch``.

    ``*`` matches any characters but ``/``, and a segment that is only ``*`` wants at least one; ``?`` matches one
    character but ``/``; ``[a-z]`` and ``[!a-z]`` one of, or none of, a set; ``**`` as a whole segment matches any
    number of segments. Case counts, and a leading dot is a character like any other.

    Raises:
        ValueError: The pattern is empty or malformed; the message says where.
    """
    if not pattern:
        raise ValueError("it is empty")
    segments = pattern.split("/")
    parts: list[str] = []
    # Between two "**" stands a run of segments of fixed length; the first place it fits leaves the most behind it.
    runs = [list(run) for deep, run in groupby(segments, lambda segment: segment == "**") if not deep]
    opens, closes = segments[0] == "**", segments[-1] == "**"
    for number, run in enumerate(runs):
        text = "/".join(_segment(segment) for segment in run)
        first, last = number == 0, number == len(runs) - 1
        after = r"\Z" if last and not closes else "/"
        if first and not opens:
            parts.append(text + after)
        elif last and not closes:
            parts.append(rf"(?:[^/]*/)*{text}\Z")
        else:
            parts.append(f"(?>(?:[^/]*/)*?{text}/)")
    if closes:
        parts.append(r".*\Z")
    return re.compile("".join(parts), re.DOTALL)


def _segment(segment: str) -> str:
    if segment == "*":
        return "[^/]+"
    if "**" in segment:
        raise ValueError(f"'**' stands for whole segments, and {segment!r} holds more")
    literals: list[str] = [""]
    for piece in _pieces(segment):
        if piece == "*":
            literals.append("")
        else:
            literals[-1] += piece
    if len(literals) == 1:
        return literals[0]
    head, *middle, tail = literals
    return head + "".join(f"(?>[^/]*?{literal})" for literal in middle if literal) + "[^/]*" + tail


def _pieces(segment: str) -> Iterator[str]:
    position = 0
    while position < len(segment):
        char = segment[position]
        position += 1
        if char == "*":
            yield "*"
        elif char == "?":
            yield "[^/]"
        elif char == "[":
            text, position = _set(segment, position)
            yield text
        else:
            yield re.escape(char)


def _set(segment: str, start: int) -> tuple[str, int]:
    """Translate a set that begins after its bracket; return it with where it ends."""
    negated = segment[start : start + 1] == "!"
    begin = start + negated
    # A bracket that comes first is a member, as in every shell.
    end = segment.find("]", begin + 1)
    if end < 0:
        raise ValueError(f"the set {segment[start - 1 :]!r} is not closed by ']' within its segment")
    members = segment[begin:end]
    text = ""
    position = 0
    while position < len(members):
        low = high = members[position]
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            high = members[position + 2]
            position += 2
        position += 1
        if low > high:
            raise ValueError(
                f"the range {low}-{high} of {segment[start - 1 : end + 1]!r} is the wrong way round"
            )
        text += re.escape(low) if low == high else f"{re.escape(low)}-{re.escape(high)}"
    return (f"[^/{text}]" if negated else f"(?!/)[{text}]"), end + 1
