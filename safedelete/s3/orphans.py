"""The objects under a prefix that no row names and that are older than an age. Reads only.

A prefix target whose listing is merged with what rows name: everything else about it (counting, portions, versions, how
an overwritten object is kept) is that of a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from safedelete.core.item import ObjectRef
from safedelete.core.orphans import FEW, HALF, SMALL, Listed, Verdict, compare
from safedelete.core.plan import TargetPlan
from safedelete.core.spelling import Spellings
from safedelete.declare.orphans import S3Orphans
from safedelete.declare.prefix import S3Prefix
from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.ports import References, Values
from safedelete.s3.client import Connection
from safedelete.s3.listing import Listed as ListedObject
from safedelete.s3.listing import list_objects
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import Pages, PrefixTarget


class OrphanTarget(PrefixTarget):
    """One ``S3Orphans`` of a purge; implements :class:`safedelete.ports.ObjectTarget`.

    Args:
        declared: The declaration.
        references: What rows name under its prefix.
        connection: The endpoint it is on.
        store: What deletes its objects; not used for planning.
        page_size: Keys a listing page.
    """

    def __init__(
        self,
        declared: S3Orphans,
        references: References,
        connection: Connection,
        store: S3ObjectStore,
        *,
        page_size: int = 1000,
    ) -> None:
        self._orphans = declared
        self._references = references
        self._seen = Seen()
        everything = S3Prefix(
            declared.bucket,
            declared.prefix,
            older_than=declared.older_than,
            whole_bucket=not declared.prefix,
            exact_prefix=bool(declared.prefix),
            mode=declared.mode,
            max_delete_rate=declared.max_delete_rate,
            client=declared.client,
        )
        super().__init__(everything, connection, store, page_size=page_size)

    @property
    def name(self) -> str:
        """``orphans of s3://bucket/prefix``."""
        return self._orphans.name

    @property
    def references(self) -> References:
        """What rows name under the prefix."""
        return self._references

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[tuple[ObjectRef, ...]]:
        """Yield the orphans in listing order, with ETag and size. Reads only.

        Raises:
            StoreError: The listing or the database failed, or one of them is not in byte order.
                Also when what rows name can no longer be held against the listing.
        """
        yield from super().scan(as_of, batch=batch, portion=portion)
        # A table that was emptied since the plan was counted, a column that was filled with URLs.
        objections = self._objections()
        if objections:
            raise StoreError(
                f"{self.name}: {'; '.join(objections)}.",
                hint="Plan again; the plan says what is to be repaired.",
            )

    def _listed(self, as_of: datetime, since: datetime | None) -> Iterator[tuple[int, list[ListedObject]]]:
        # Not by ranges at a time: the comparison needs the order of one listing.
        del as_of, since
        for page in list_objects(
            self._connection.reader, self._orphans.bucket, self._orphans.prefix, page_size=self._page_size
        ):
            yield 0, page

    def _pages(self, mode: Mode | None, as_of: datetime, since: datetime | None) -> Pages:
        seen = self._seen = Seen(self._references.values())
        pages = super()._pages(mode, as_of, since)
        listed = (Listed(found.refs[0].key, found) for _, page in pages for found in page)
        for verdict, key, found, columns in compare(listed, self._references.streams()):
            seen.add(verdict, key, columns, 0 if found is None else len(found.refs))
            if found is not None and verdict is Verdict.UNNAMED:
                yield 0, [found]

    def _statement(self, as_of: datetime) -> str:
        return f"{super()._statement(as_of)} that no row names".replace(self.name, self._place, 1)

    @property
    def _place(self) -> str:
        return f"s3://{self._orphans.bucket}/{self._orphans.prefix}"

    def _plan(self, *arguments: Any) -> TargetPlan:
        plan, seen = super()._plan(*arguments), self._seen
        compared = (
            f"{seen.named_keys:,} of {seen.listed_keys:,} listed keys are named by a row; of the keys that rows name, "
            f"{seen.missing_keys:,} are not listed"
        )
        notes = [compared]
        if seen.values.blank:
            notes.append(f"{seen.values.blank:,} referencing value(s) are NULL or empty and name nothing")
        if seen.values.elsewhere:
            notes.append(f"{seen.values.elsewhere:,} referencing value(s) name an object of another bucket")
        notes += [
            f"{column.values - column.under:,} of the {column.values:,} value(s) of {column.name} lie outside the prefix"
            for column in seen.values.columns
            if column.under < column.values
        ]
        notes.append(
            "each object is asked for again in the database right before the request that deletes it; a row written in "
            "the moment between the two is reported as dangling"
        )
        return replace(
            plan,
            total=seen.listed_refs,
            # Most orphans are old ones: their share of all orphans says nothing about the age.
            ageless=None,
            objections=self._objections(),
            notes=(*plan.notes, *notes),
        )

    def _objections(self) -> tuple[str, ...]:
        declared = self._orphans
        return tuple(
            self._seen.objections(
                declared.prefix, missing_ok=declared.missing_ok, outside_ok=declared.outside_places
            )
        )


class Seen:
    """What one comparison came upon."""

    def __init__(self, values: Values | None = None) -> None:
        self.values = values or Values()
        self.listed_keys = self.listed_refs = self.named_keys = self.missing_keys = 0
        self.named_by: Counter[int] = Counter()
        self.missing_by: Counter[int] = Counter()
        self.spellings = Spellings()

    def add(self, verdict: Verdict, key: str, columns: Sequence[int], refs: int) -> None:
        """Count one key, what is listed for it, and the columns that name it."""
        self.listed_refs += refs
        match verdict:
            case Verdict.NAMED:
                self.named_keys += 1
                self.named_by.update(columns)
            case Verdict.MISSING:
                self.missing_keys += 1
                self.missing_by.update(columns)
                self.spellings.missing(key)
            case Verdict.UNNAMED:
                self.spellings.unnamed(key)
        self.listed_keys += verdict is not Verdict.MISSING

    def objections(self, prefix: str, *, missing_ok: bool, outside_ok: Collection[int] = ()) -> Iterator[str]:
        """Say why the orphans of this comparison must not be taken for orphans.

        Args:
            prefix: The prefix compared.
            missing_ok: Accept that rows name what is not listed.
            outside_ok: Places of columns that need name nothing under the prefix.
        """
        values, names = self.values, self.named_keys + self.missing_keys
        if values.empty:
            yield (
                f"{', '.join(values.empty)} has no row, so nothing says which objects are still needed (an empty copy, a "
                "wrong database, a restore under way)"
            )
        elif self.named_keys == 0 and self.listed_keys:
            yield (
                f"not one of {self.listed_keys:,} listed keys is named by a row, and rows name {names:,} others under the "
                "prefix (a wrong prefix, bucket or database)"
            )
        for place, column in enumerate(values.columns):
            if column.values and not column.under and place not in outside_ok:
                yield (
                    f"{column.name} holds {column.values:,} value(s) and none begins with {prefix!r}, so it names nothing "
                    "here (keys without their folder, or of another place; outside_ok= accepts a column of another place)"
                )
        if not missing_ok:
            yield from self._missing()
        if self.spellings.matches:
            yield (
                f"{self.spellings.matches:,} key(s) that rows name and that are not listed spell a listed one in another "
                f"way (URL encoding, composed and decomposed letters, white space at an end), for one "
                f"{self.spellings.example[:200]!r}"
            )
        if values.unmatched:
            yield (
                f"{values.unmatched:,} referencing value(s) may mean an object here and do not spell its key, for one "
                f"{values.example}: the object it means would be called an orphan"
            )

    def _missing(self) -> Iterator[str]:
        unnamed = self.listed_keys - self.named_keys
        for place, missing in sorted(self.missing_by.items()):
            named = self.named_by[place]
            names = named + missing
            if named < HALF * names or (unnamed and missing > max(FEW, SMALL * names)):
                yield (
                    f"only {named:,} of the {names:,} keys that {self._name(place)} holds under the prefix are in the "
                    f"bucket, and {unnamed:,} object(s) there have no row (a wrong bucket, or keys stored in another form "
                    "than they are listed; missing_ok=True accepts it)"
                )

    def _name(self, place: int) -> str:
        columns = self.values.columns
        return columns[place].name if place < len(columns) else f"referencing column {place + 1}"
