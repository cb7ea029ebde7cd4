"""What a purge's targets must know of one another, and of the other purges of their file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement

from safedelete.declare import Purge, Rows, S3Keys, S3Prefix
from safedelete.declare.same import Meet, buckets_meet, same_database
from safedelete.phases.parts import Part, RowPart
from safedelete.sql.engine import Database, environment_url
from safedelete.sql.referenced import SqlReferences
from safedelete.sql.referenced_probe import ReferenceProber
from safedelete.sql.rows import SqlRows


def acquainted(purge: Purge, parts: Sequence[Part], database: Database) -> list[Part]:
    """Tell each table target of the others: of cascades into them, and of objects that their rows name as well.

    Of the other purges of the file, only rows that own objects matter: a cascade into any other table is counted and shown.
    """
    rows = {
        id(part): part.target
        for part in parts
        if isinstance(part, RowPart) and isinstance(part.target, SqlRows)
    }
    beside = list(_beside(purge))
    # Those that own objects come last, since of two targets of one table the last is the one that is remembered.
    siblings = (*rows.values(), *(SqlRows(other, database) for other in beside))
    for target in rows.values():
        target.siblings = siblings
    found: list[Part] = []
    for part in parts:
        own = rows.get(id(part))
        if isinstance(part, RowPart) and own is not None:
            mine = {keys.bucket for keys in own.rows.owns}
            others = [t for t in rows.values() if t is not own and mine & _buckets(t.rows)]
            asked = [_asked(own.rows, other) for other in beside if mine & _buckets(other)]
            away = [SqlRows(other, database) for other in asked if other is not None]
            probers = [ReferenceProber(_references(other, database)) for other in away]
            found.append(replace(part, sharing=(*others, *away), probers=(*part.probers, *probers)))
        else:
            found.append(part)
    return found


def owners_under(purge: Purge, target: S3Prefix) -> list[str]:
    """Return notes about rows that own objects of a prefix's bucket: the prefix takes objects by their age alone."""
    notes: list[str] = []
    for other in (purge, *purge.beside):
        for rows in other.targets:
            meets = isinstance(rows, Rows) and any(
                buckets_meet(target.bucket, keys.bucket) is not Meet.APART for keys in rows.owns
            )
            if meets:
                notes.append(
                    f"rows of {rows.name} (purge {other.name}) own objects of this bucket: one that lies under the prefix goes "
                    "by its age alone, and the row that names it stays"
                )
    return notes


def _beside(purge: Purge) -> Iterator[Rows]:
    default = environment_url()
    for other in purge.beside:
        if same_database(purge.database, other.database, default):
            yield from (target for target in other.targets if isinstance(target, Rows) and target.owns)


def _buckets(rows: Rows) -> set[str]:
    return {keys.bucket for keys in rows.owns}


def _asked(own: Rows, other: Rows) -> Rows | None:
    """Return what is to be asked of another target; None where a target asks the same columns itself.

    Of its own table a target asks its own columns in the batch's transaction, which no longer sees the rows that it has
    deleted. Another connection would still see them, and every object would seem to be named.
    """
    if other.table.fullname != own.table.fullname:
        return other
    known = {_said(c) for keys in own.owns for c in _columns(keys)}
    kept = [keys for each in other.owns if (keys := _without(each, known)) is not None]
    if not kept:
        return None
    reduced = copy(other)
    reduced.owns = tuple(kept)
    return reduced


def _without(keys: S3Keys, known: set[str]) -> S3Keys | None:
    reduced = copy(keys)
    reduced.columns = tuple(column for column in keys.columns if _said(column) not in known)
    if keys.prefix is not None and _said(keys.prefix) in known:
        reduced.prefix = None
    return reduced if _columns(reduced) else None


def _columns(keys: S3Keys) -> tuple[ColumnElement[Any], ...]:
    return keys.columns if keys.prefix is None else (*keys.columns, keys.prefix)


def _said(column: ColumnElement[Any]) -> str:
    compiled = column.compile()
    return f"{compiled} {sorted(compiled.params.items())!r}"


def _references(rows: SqlRows, database: Database) -> SqlReferences:
    columns = [column for keys in rows.rows.owns for column in _columns(keys)]
    return SqlReferences(columns, database, rows.rows.owns[0].bucket, "")
