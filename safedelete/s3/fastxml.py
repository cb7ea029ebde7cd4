"""Read S3's flat answers: a root, scalars below it, and many small records.

Expat says whether a document is well-formed. Of one that is, and is written plainly (no comments, no CDATA, no empty
elements, no carriage returns), the records are cut out by pattern, which costs a fraction of being called back for every
element. Everything else is read element by element, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final
from xml.parsers import expat

Record = dict[str, Any]

UNREADABLE: Final = (expat.ExpatError, LookupError, ValueError, TypeError)
"""What reading an answer raises that is not what was expected: it is then left to the SDK."""


@dataclass(frozen=True, slots=True)
class Flat:
    """One answer.

    Attributes:
        root: Name of the root element.
        records: The records by their element's name, in the order of the answer.
        scalars: Every other element right below the root, with its own text.
    """

    root: str
    records: dict[str, list[Record]]
    scalars: dict[str, str]


_ENTITY: Final = re.compile(r"&(?:#x([0-9a-fA-F]+)|#([0-9]+)|(amp|lt|gt|quot|apos));")
_NAMED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ODD: Final = (b"<!", b"/>", b"\r", b" >", b"\t>", b"\n>")
_ATTRIBUTE: Final = re.compile(rb"""=\s*["']""")
_HEAD: Final = re.compile(
    rb'\s*(?:<\?xml version=["\']1.0["\'](?: encoding=["\'][Uu][Tt][Ff]-8["\'])?'
    rb'(?: standalone=["\'](?:yes|no)["\'])? ?\?>)?\s*<\w+[^<>]*>'
)


def read_flat(body: bytes, records: tuple[str, ...], fields: Collection[str]) -> Flat:
    """Read an answer; of each record only the named fields, as text.

    Args:
        body: The document.
        records: Names of the elements that are records.
        fields: Names of the elements of a record that are wanted; no element further down has such a name.

    Raises:
        ExpatError: It is not well-formed.
        ValueError: It has a document type declaration (without one there is nothing to expand, and S3 sends none), or says
            something twice: which of the two is meant is not known.
    """
    found = _cut_out(body, records, frozenset(fields))
    return _by_element(body, records, fields) if found is None else found


def _cut_out(body: bytes, records: tuple[str, ...], fields: frozenset[str]) -> Flat | None:
    """Read a plain document; None for any other."""
    head = _HEAD.match(body)
    if head is None or any(odd in body for odd in _ODD) or _ATTRIBUTE.search(body, head.end()):
        return None
    _parser().Parse(body, True)  # noqa: FBT003 - this is how expat is told that there is no more
    pattern = _fields(fields)
    found: dict[str, list[Record]] = {}
    # Every ETag has two; written so they stand for themselves, and nothing else begins with them.
    frame = body.decode("utf-8").replace("&#34;", '"').replace("&quot;", '"')
    entities = "&" in frame
    for name in records:
        found[name] = cut = []
        before, *pieces = frame.split(f"<{name}>")
        rest = [before]
        alike = _alike(pieces[0], name, fields) if pieces else None
        for piece in pieces:
            match = alike and alike.fullmatch(piece)
            if match:
                record: Record = match.groupdict()
                if entities and "&" in piece:
                    record = {key: _unescaped(value) for key, value in record.items()}
                cut.append(record)
                continue
            inside, closed, after = piece.partition(f"</{name}>")
            pairs = pattern.findall(inside)
            record = {key: _unescaped(value) if "&" in value else value for key, value in pairs}
            if not closed or len(record) < len(pairs):
                return None
            cut.append(record)
            rest.append(after)
        frame = "".join(rest)
    # Records that were not cut out stand out in what is left.
    left = _by_element(frame.encode(), records, fields)
    return None if any(left.records.values()) else Flat(left.root, found, left.scalars)


_FLAT: Final = re.compile(r"<(\w+)>[^<]*</\1>")


def _alike(piece: str, name: str, fields: frozenset[str]) -> re.Pattern[str] | None:
    """Return what matches records with the very elements that this one has; most of an answer's are alike."""
    inside, _, _ = piece.partition(f"</{name}>")
    elements = _FLAT.findall(inside)
    return None if len(set(elements)) < len(elements) else _shaped(name, tuple(elements), fields)


@lru_cache(maxsize=64)
def _shaped(name: str, elements: tuple[str, ...], fields: frozenset[str]) -> re.Pattern[str]:
    values = (f"(?P<{element}>[^<]*)" if element in fields else "[^<]*" for element in elements)
    shape = "".join(
        f"<{element}>{value}</{element}>" for element, value in zip(elements, values, strict=True)
    )
    return re.compile(f"{shape}</{name}>")


@cache
def _fields(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"<({'|'.join(sorted(names))})>([^<]*)</")


def _unescaped(text: str) -> str:
    return _ENTITY.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    in_hex, in_decimal, named = match.groups()
    if named:
        return _NAMED[named]
    return chr(int(in_hex, 16) if in_hex else int(in_decimal))


def _parser() -> expat.XMLParserType:
    def doctype(*_: Any) -> None:
        raise ValueError("a document type declaration")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = doctype
    return parser


def _by_element(body: bytes, records: Collection[str], fields: Collection[str]) -> Flat:
    # Called for every element, so these are closures over plain variables.
    depth = 0
    root = ""
    text = ""
    record: Record | None = None
    found: dict[str, list[Record]] = {name: [] for name in records}
    scalars: dict[str, str] = {}

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal depth, root, record, text
        if depth == 1:
            if name in found:
                record = {}
                found[name].append(record)
        elif depth == 0:
            root = name
        depth += 1
        text = ""

    def once(where: dict[str, str], name: str) -> None:
        if name in where:
            raise ValueError(f"{name} is said more than once")
        where[name] = text

    def end(name: str) -> None:
        nonlocal depth, record, text
        depth -= 1
        if depth == 2:
            if record is not None and name in fields:
                once(record, name)
        elif depth == 1:
            if record is not None:
                record = None
            else:
                once(scalars, name)
        text = ""

    def characters(data: str) -> None:
        nonlocal text
        text += data

    parser = _parser()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.Parse(body, True)  # noqa: FBT003 - as above
    return Flat(root, found, scalars)
