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

from safedelete.core.item import ObjectRef, Prefix, SealedRow, within
from safedelete.core.keys import MAX_BYTES, as_prefix, no_prefix, refusal
from safedelete.declare.targets import Rows, S3Keys

_URLS: Final = ("s3://", "http://", "https://")


class Spot(NamedTuple):
    """One key expression, and where its values stand in a selected row."""

    keys: S3Keys
    expression: ColumnElement[Any]
    key: int
    etag: int | None
    size: int | None
    prefix: bool = False

    @property
    def name(self) -> str:
        """The column's name, else the expression as SQL."""
        return str(getattr(self.expression, "name", None) or self.expression)


@dataclass(frozen=True, slots=True)
class Named:
    """What a row names now: its objects and prefixes, or None where a value can name none."""

    objects: tuple[ObjectRef, ...] | None
    why: str = ""
    prefixes: tuple[Prefix, ...] = ()

    def among(self, refs: Sequence[ObjectRef]) -> frozenset[tuple[str, str]]:
        """Return (bucket, key) of what it names by a key, and of those of these objects that lie below its prefixes."""
        below = [ref for ref in refs if within(ref, self.prefixes)]
        return frozenset((ref.bucket, ref.key) for ref in (*(self.objects or ()), *below))

    def examples(self) -> list[ObjectRef]:
        """Return objects to probe beside; below a prefix one that need not be there."""
        return [*(self.objects or ()), *(ObjectRef(p.bucket, p.text + "object") for p in self.prefixes)]


class OwnedObjects:
    """The owned objects of one declared target, as columns to select."""

    def __init__(self, rows: Rows) -> None:
        self.spots: list[Spot] = []
        self._columns: list[ColumnElement[Any]] = []
        for keys in rows.owns:
            etag = None if keys.etag is None else self._add(keys.etag)
            size = None if keys.size is None else self._add(keys.size)
            self.spots += [Spot(keys, c, self._add(c), etag, size) for c in keys.columns]
            if keys.prefix is not None:
                self.spots.append(Spot(keys, keys.prefix, self._add(keys.prefix), None, None, prefix=True))

        buckets = {spot.keys.bucket for spot in self.spots}
        self._plain = len(buckets) == 1 and len(self._columns) == len(self.spots)
        self._plain &= not any(spot.prefix for spot in self.spots)

    def __bool__(self) -> bool:
        return bool(self.spots)

    def selected(self) -> list[ColumnElement[Any]]:
        """Return what to SELECT, behind the primary key, for :meth:`read`."""
        return [c.label(f"sd_own_{i}") for i, c in enumerate(self._columns)]

    def read(self, values: Sequence[Any]) -> Named:
        """Return the objects that these column values name."""
        refs: dict[tuple[str, str], ObjectRef] = {}
        prefixes: dict[Prefix, None] = {}
        for spot in self.spots:
            key = values[spot.key]
            if key is None:
                continue
            why = unusable(key, prefix=spot.prefix)
            if why:
                return Named(None, why)
            if spot.prefix:
                prefixes[Prefix(spot.keys.bucket, as_prefix(key))] = None
                continue
            etag = None if spot.etag is None else _quoted(values[spot.etag])
            size = None if spot.size is None else values[spot.size]
            ref = ObjectRef(spot.keys.bucket, key, etag, None, None if size is None else int(size))
            refs.setdefault((ref.bucket, ref.key), ref)
        return Named(tuple(refs.values()), "", tuple(prefixes))

    def plainly_same(self, sealed: SealedRow, values: Sequence[Any]) -> bool:
        """Whether column values are, as they stand, the keys that were sealed; False says nothing.

        What was sealed is known to name objects, so equal text need not be read again.
        """
        if not self._plain or sealed.prefixes:
            return False
        keys = [value for value in values if value is not None]
        return keys == [ref.key for ref in sealed.objects]

    def same(self, sealed: SealedRow, now: Named) -> bool:
        """Whether a row still names what was sealed; by ETag too where a column holds it.

        What lies below its prefixes is not asked here: only a listing can say.
        """
        if now.objects is None or set(sealed.prefixes) != set(now.prefixes):
            return False
        dated = {(s.keys.bucket) for s in self.spots if s.etag is not None}
        before = [ref for ref in sealed.objects if not within(ref, sealed.prefixes)]
        after = [ref for ref in now.objects if not within(ref, now.prefixes)]
        return _identity(before, dated) == _identity(after, dated)

    def usable(self, dialect: str) -> ColumnElement[bool]:
        """Match rows whose every key is NULL or could name an object; the same rule as :func:`unusable`, in SQL."""
        return and_(*(or_(s.expression.is_(None), not_(_bad(s, dialect))) for s in self.spots))

    def strange(self, dialect: str) -> list[tuple[str, ColumnElement[bool]]]:
        """Return what a plan tells of values that name no object: a sentence's end, and the rows it is about."""
        found: list[tuple[str, ColumnElement[bool]]] = []
        for spot in self.spots:
            what = "prefix" if spot.prefix else "object"
            found.append((f"name no {what} by {spot.name}, which is NULL", spot.expression.is_(None)))
            if isinstance(spot.expression.type, TypeDecorator):
                continue
            text = type_coerce(spot.expression, String())
            empty = func.trim(text) == "" if spot.prefix else text == ""
            url = or_(*(func.lower(text).like(f"{start}%") for start in _URLS))
            here = or_(
                text.startswith(f"s3://{spot.keys.bucket}/", autoescape=True),
                text.contains(f"//{spot.keys.bucket}.", autoescape=True),
                and_(
                    not_(func.lower(text).like("s3://%")),
                    text.contains(f"/{spot.keys.bucket}/", autoescape=True),
                ),
            )
            kept = f"are kept, for {spot.name}"
            found += [
                (f"{kept} is empty", empty),
                (f"{kept} is a URL into {spot.keys.bucket}, not a key of it", and_(url, here)),
                (
                    f"{kept} is a URL that names another bucket or place than {spot.keys.bucket}",
                    and_(url, not_(here)),
                ),
                (
                    f"{kept} can name no {what} that can be deleted safely",
                    and_(_bad(spot, dialect), not_(empty), not_(url)),
                ),
            ]
        return found

    def _add(self, expression: ColumnElement[Any]) -> int:
        self._columns.append(expression)
        return len(self._columns) - 1


def unusable(key: object, *, prefix: bool = False) -> str:
    """Say why a value cannot name an object, or a prefix; empty when it can."""
    if not isinstance(key, str):
        return f"a {type(key).__name__}, not text"
    if not key:
        return "empty"
    if key.lower().startswith(_URLS):
        return "a URL, not a key"
    return (no_prefix(key) if prefix else refusal(key)) or ""


def _bad(spot: Spot, dialect: str) -> ColumnElement[bool]:
    expression = spot.expression
    # Under a TypeDecorator the stored text is not the key; reading decides there, and here nothing is left out.
    if isinstance(expression.type, TypeDecorator):
        return expression.is_(None)
    text = type_coerce(expression, String())
    size = func.length(cast(text, LargeBinary())) if dialect == "sqlite" else func.octet_length(text)
    lower = func.lower(text)
    none = or_(func.trim(text) == "", text.like("/%")) if spot.prefix else text == ""
    return or_(
        none,
        # A prefix that lacks its slash is given one.
        size > MAX_BYTES - 1 if spot.prefix else size > MAX_BYTES,
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
