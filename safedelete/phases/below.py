"""Rows that own everything below a prefix: their objects are found by listing, when planned and once more in the batch.

A column cannot say what lies below a prefix, so the sealed row carries what a listing found then. Right before anything of
the row is deleted the listing is made again: what has appeared since would be left without its row, so the row stays.
Reads only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

import structlog

from safedelete.core.item import Key, ObjectRef, Prefix, SealedRow
from safedelete.core.keys import refusal
from safedelete.core.outcome import ItemOutcome, Outcome
from safedelete.core.plan import Count, TargetPlan, Unknown
from safedelete.errors import StoreError
from safedelete.ports import OwnedReader, RowReader

log = structlog.get_logger("safedelete.below")

MOST_BELOW: Final = 50_000
"""Most objects below one row: they go in one short transaction, and are held in memory."""

ROWS_AT_ONCE: Final = 8
"""Rows whose prefixes are listed together; with :data:`MOST_BELOW`, what bounds memory."""

ROWS_A_BATCH: Final = 250
"""Most rows of a batch whose prefixes are listed again while it holds them."""

OBJECTS_A_BATCH: Final = 1_000
"""Objects after which a batch is closed; a row with more is a batch of its own."""

APPEARED: Final = "appeared"
"""Code of a row below whose prefix something has appeared since it was sealed."""


class Filling:
    """Fills rows with what lies below their prefixes, and counts the rows that cannot be sealed."""

    def __init__(self, reader: OwnedReader) -> None:
        self._reader = reader
        self.left_out: dict[str, int] = {}

    def batches(self, pages: Iterable[Sequence[SealedRow]]) -> Iterator[tuple[SealedRow, ...]]:
        """Yield rows with their objects, in batches that one transaction can delete. Reads only.

        Raises:
            StoreError: A listing failed; what was yielded so far is not the whole.
        """
        waiting: list[SealedRow] = []
        objects = 0
        try:
            for row in self._rows(pages):
                if waiting and (len(waiting) >= ROWS_A_BATCH or objects + len(row.objects) > OBJECTS_A_BATCH):
                    yield tuple(waiting)
                    waiting, objects = [], 0
                waiting.append(row)
                objects += len(row.objects)
        finally:
            # A listing that failed must not leave the table's own connection open.
            if isinstance(pages, Generator):
                pages.close()
        if waiting:
            yield tuple(waiting)
        for why, rows in self.left_out.items():
            log.warning("rows left out and kept", rows=rows, why=why)

    def _rows(self, pages: Iterable[Sequence[SealedRow]]) -> Iterator[SealedRow]:
        for page in pages:
            rows = iter(page)
            while some := list(islice(rows, ROWS_AT_ONCE)):
                found = _listed(some, self._reader)
                for row in some:
                    filled = self._filled(row, found)
                    if filled is not None:
                        yield filled

    def _filled(self, row: SealedRow, found: Mapping[Prefix, Sequence[ObjectRef] | None]) -> SealedRow | None:
        below: dict[ObjectRef, None] = {}
        for prefix in row.prefixes:
            refs = found[prefix]
            if refs is None:
                self._leave(f"more than {MOST_BELOW:,} objects lie below their prefix")
                return None
            if any(refusal(ref.key) is not None for ref in refs):
                self._leave("an object below their prefix can be deleted by no request safely")
                return None
            below |= dict.fromkeys(refs)
        return row._replace(objects=_joined(row.objects, tuple(below))) if below else row

    def _leave(self, why: str) -> None:
        self.left_out[why] = self.left_out.get(why, 0) + 1


class OwningRows:
    """Rows with the objects they own, for planning: what only the store can say is added to the table's own survey.

    Implements ``ports.RowReader``.
    """

    def __init__(self, rows: RowReader, reader: OwnedReader) -> None:
        self._rows = rows
        self._reader = reader

    @property
    def name(self) -> str:
        """The table's name."""
        return self._rows.name

    @property
    def owns_objects(self) -> bool:
        """Whether its rows name objects."""
        return self._rows.owns_objects

    @property
    def shares_objects(self) -> bool:
        """Whether several rows may name one object."""
        return self._rows.shares_objects

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Count rows and what lies below their prefixes. Reads only; a listing that fails makes Unknown counts."""
        found = self._rows.survey(as_of, portion=portion, since=since)
        if self._reader.lists:
            try:
                found = self._with_below(found, as_of, portion)
            except StoreError as error:
                why = Unknown(f"{error} {error.hint}".strip())
                found = replace(found, objects=why, bytes=why, conditional=why)
        return replace(found, notes=(*found.notes, *self._reader.notes()))

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[Sequence[SealedRow]]:
        """Yield the eligible rows with their objects. Reads only."""
        pages = self._rows.scan(as_of, batch=batch, portion=portion)
        return Filling(self._reader).batches(pages) if self._reader.lists else pages

    def _with_below(self, found: TargetPlan, as_of: datetime, portion: int | None) -> TargetPlan:
        filling = Filling(self._reader)
        below = size = 0
        for batch in filling.batches(self._rows.scan(as_of, batch=ROWS_A_BATCH, portion=portion)):
            for row in batch:
                mine = row.below()
                below += len(mine)
                size += sum(ref.size or 0 for ref in mine)
        left = sum(filling.left_out.values())
        notes = [
            f"{rows:,} more row(s) match but are left out and kept: {why}."
            for why, rows in filling.left_out.items()
        ]
        if self.shares_objects:
            notes.append(
                "Objects below equal or nested prefixes are counted once for each row that owns them."
            )
        named = found.objects
        return replace(
            found,
            items=_less(found.items, left),
            eligible=_less(found.eligible, left),
            objects=_plus(named, below),
            # Without size= nothing is known of what columns name, and then nothing of the sum.
            bytes=size if named == 0 else None if found.bytes is None else _plus(found.bytes, size),
            conditional=_plus(found.conditional, below),
            notes=(*found.notes, *notes),
        )


def appeared(rows: Sequence[SealedRow], reader: OwnedReader) -> dict[Key, ItemOutcome]:
    """Return those rows below whose prefixes lies what was not sealed, or was overwritten since. Reads only.

    Raises:
        StoreError: A listing failed. Not known is not "nothing new".
    """
    kept: dict[Key, ItemOutcome] = {}
    for row, refs in _below(rows, reader):
        if refs is None:
            said = f"more than {MOST_BELOW:,} objects lie below the row's prefix by now; the row was kept"
            kept[row.key] = ItemOutcome(Outcome.CHANGED, APPEARED, said)
            continue
        sealed = {(ref.bucket, ref.key, ref.version): ref.etag for ref in row.objects}
        for ref in refs:
            identity = (ref.bucket, ref.key, ref.version)
            where = f"s3://{ref.bucket}/{ref.key}"
            if identity not in sealed:
                said = f"{where} has appeared below the row's prefix since it was sealed; the row was kept"
                kept[row.key] = ItemOutcome(Outcome.CHANGED, APPEARED, said)
            elif (
                ref.version is None and None not in (etags := {ref.etag, sealed[identity]}) and len(etags) > 1
            ):
                said = f"{where} was overwritten since the row was sealed; the row was kept"
                kept[row.key] = ItemOutcome(Outcome.CHANGED, "overwritten", said)
    return kept


def left_below(rows: Mapping[int, SealedRow], reader: OwnedReader) -> dict[int, tuple[ObjectRef, ...] | None]:
    """Return by index what lies below the prefixes of rows that are gone; None for more than fits. Reads only.

    Raises:
        StoreError: A listing failed.
    """
    places = {row.key: index for index, row in rows.items()}
    return {places[row.key]: refs for row, refs in _below(list(rows.values()), reader) if refs != ()}


def _below(
    rows: Sequence[SealedRow], reader: OwnedReader
) -> Iterator[tuple[SealedRow, tuple[ObjectRef, ...] | None]]:
    """Yield each row that has prefixes with what lies below them; with None where that is more than fits."""
    rest = (row for row in rows if row.prefixes)
    while some := list(islice(rest, ROWS_AT_ONCE)):
        found = _listed(some, reader)
        for row in some:
            refs = [found[prefix] for prefix in row.prefixes]
            whole = all(mine is not None for mine in refs)
            yield row, tuple(ref for mine in refs for ref in mine or ()) if whole else None


def _listed(rows: Sequence[SealedRow], reader: OwnedReader) -> Mapping[Prefix, Sequence[ObjectRef] | None]:
    wanted = list(dict.fromkeys(prefix for row in rows for prefix in row.prefixes))
    return reader.below(wanted, most=MOST_BELOW) if wanted else {}


def _joined(named: Sequence[ObjectRef], below: tuple[ObjectRef, ...]) -> tuple[ObjectRef, ...]:
    """Leave out what a column names and the listing names as well, unless the two disagree about its content."""
    listed: dict[tuple[str, str], set[str | None]] = {}
    for ref in below:
        listed.setdefault((ref.bucket, ref.key), set()).add(ref.etag)
    own = [
        ref
        for ref in named
        if (ref.bucket, ref.key) not in listed
        or (ref.etag is not None and ref.etag not in listed[ref.bucket, ref.key])
    ]
    return (*own, *below)


def _plus(count: Count, number: int) -> Count:
    return count if isinstance(count, Unknown) else count + number


def _less(count: Count, number: int) -> Count:
    return count if isinstance(count, Unknown) else max(0, count - number)
