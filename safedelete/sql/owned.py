"""The objects that a row names: read from its columns, and told from values that can name none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    LargeBinary,
    String,
    and_,
    cast,
    func,
    literal,
    not_,
    or_,
    type_coerce,
)
from sqlalchemy.types import TypeDecorator

from safedelete.core.item import ObjectRef
from safedelete.core.keys import MAX_BYTES, refusal
from safedelete.declare.targets import Rows, S3Keys

_URLS: Final = ("s3://", "http://", "https://")


class Spot(NamedTuple):
    """One key expression, and where its values stand in a selected row."""

    keys: S3Keys
    expression: ColumnElement[Any]
    key: int
    etag: int | None
    size: int | None


@dataclass(frozen=True, slots=True)
class Named:
    """What a row names now: its objects, or None where a value can name none."""

    objects: tuple[ObjectRef, ...] | None
    why: str = ""

    def pairs(self) -> frozenset[tuple[str, str]]:
        """Return (bucket, key) of each."""
        return frozenset((ref.bucket, ref.key) for ref in self.objects or ())


class OwnedObjects:
    """The owned objects of one declared target, as columns to select."""

    def __init__(self, rows: Rows) -> None:
        self.spots: list[Spot] = []
        self._columns: list[ColumnElement[Any]] = []
        for keys in rows.owns:
            etag = None if keys.etag is None else self._add(keys.etag)
            size = None if keys.size is None else self._add(keys.size)
            self.spots += [Spot(keys, c, self._add(c), etag, size) for c in keys.columns]

    def __bool__(self) -> bool:
        return bool(self.spots)

    def selected(self) -> list[ColumnElement[Any]]:
        """Return what to SELECT, behind the primary key, for :meth:`read`."""
        return [c.label(f"sd_own_{i}") for i, c in enumerate(self._columns)]

    def read(self, values: Sequence[Any]) -> Named:
        """Return the objects that these column values name."""
        refs: dict[tuple[str, str], ObjectRef] = {}
        for spot in self.spots:
            key = values[spot.key]
            if key is None:
                continue
            why = unusable(key)
            if why:
                return Named(None, why)
            etag = None if spot.etag is None else _quoted(values[spot.etag])
            size = None if spot.size is None else values[spot.size]
            ref = ObjectRef(spot.keys.bucket, key, etag, None, None if size is None else int(size))
            refs.setdefault((ref.bucket, ref.key), ref)
        return Named(tuple(refs.values()))

    def same(self, sealed: Sequence[ObjectRef], now: Named) -> bool:
        """Whether a row still names what was sealed; by ETag too where a column holds it."""
        if now.objects is None:
            return False
        dated = {(s.keys.bucket) for s in self.spots if s.etag is not None}
        return _identity(sealed, dated) == _identity(now.objects, dated)

    def usable(self, dialect: str) -> ColumnElement[bool]:
        """Match rows whose every key is NULL or could name an object; the same rule as :func:`unusable`, in SQL."""
        return and_(*(or_(s.expression.is_(None), not_(_bad(s.expression, dialect))) for s in self.spots))

    def _add(self, expression: ColumnElement[Any]) -> int:
        self._columns.append(expression)
        return len(self._columns) - 1


def unusable(key: object) -> str:
    """Say why a value cannot name an object; empty when it can."""
    if not isinstance(key, str):
        return f"a {type(key).__name__}, not text"
    if not key:
        return "empty"
    if key.lower().startswith(_URLS):
        return "a URL, not a key"
    return refusal(key) or ""


def _bad(expression: ColumnElement[Any], dialect: str) -> ColumnElement[bool]:
    # Under a TypeDecorator the stored text is not the key; reading decides there, and here nothing is left out.
    if isinstance(expression.type, TypeDecorator):
        return expression.is_(None)
    text = type_coerce(expression, String())
    size = func.length(cast(text, LargeBinary())) if dialect == "sqlite" else func.octet_length(text)
    lower = func.lower(text)
    return or_(
        text == "",
        size > MAX_BYTES,
        *(lower.like(f"{url}%") for url in _URLS),
        and_(_dotted(text), _controlled(text, dialect)),
    )


def _dotted(text: ColumnElement[str]) -> ColumnElement[bool]:
    """Match keys with a ``.`` or ``..`` segment."""
    whole = literal("/") + text + literal("/")
    return or_(*(whole.contains(f"/{dots}/", autoescape=True) for dots in (".", "..")))


def _controlled(text: ColumnElement[str], dialect: str) -> ColumnElement[bool]:
    """Match keys with a character that XML cannot carry. What SQLite hides behind a NUL is found when reading."""
    some = "[\x01-\x1f\ufffe\uffff]"
    if dialect == "sqlite":
        return text.op("GLOB", is_comparison=True, return_type=Boolean())(f"*{some}*")
    return text.regexp_match(some)


def _quoted(etag: object) -> str | None:
    if not isinstance(etag, str) or not etag:
        return None
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'


def _identity(refs: Sequence[ObjectRef], dated: set[str]) -> frozenset[tuple[str, str, str | None]]:
    return frozenset((r.bucket, r.key, r.etag if r.bucket in dated else None) for r in refs)
