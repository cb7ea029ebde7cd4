"""What happens to the rows of a scene while the purge runs: the store refuses some, and an application changes others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import Column, Table

from safedelete.declare.time import Cutoff
from safedelete.testing.documents import read_by
from safedelete.testing.fitting import fitted
from safedelete.testing.scene import Row, RowName, Subject
from safedelete.testing.values import around, bare


def denied_of(draw: st.DrawFn, subject: Subject, rows: Sequence[Row]) -> frozenset[RowName]:
    """Draw rows of which the store refuses to delete an object."""
    owners = {target.table for target in subject.rows if target.owns}
    mine = [row.name for table in owners for row in _likely_due(rows, table)]
    return frozenset(draw(st.sets(st.sampled_from(mine), min_size=1, max_size=2))) if mine else frozenset()


def changes_of(
    draw: st.DrawFn, subject: Subject, rows: Sequence[Row], now: datetime
) -> dict[RowName, dict[str, Any]]:
    """Draw rows that become young, or name another object, and what is written into them."""
    found: dict[RowName, dict[str, Any]] = {}
    for target in subject.rows:
        table = target.table
        # What tells a row from others stays: nobody could say whether it went, or became another.
        free = [c for c in table.columns if c.computed is None and not c.primary_key]
        ways: list[Callable[[int], dict[str, Any]]] = []
        for test in target.age_tests:
            told_by = (c for c in free if test.cutoff.column in (c.key, c.name))
            ways += [partial(_made_young, column, test.cutoff, now) for column in told_by]
        named = [(*keys.columns, keys.prefix) for keys in target.owns]
        renamed = [own for many in named for c in many if isinstance(c, Column) for own, _ in read_by(c)]
        ways += [partial(_renamed, column) for column in renamed if column in free]
        mine = _likely_due(rows, table)
        if mine and ways:
            for row in draw(
                st.lists(st.sampled_from(mine), unique_by=lambda r: r.name, min_size=1, max_size=2)
            ):
                new = draw(st.sampled_from(ways))(rows.index(row) + 1)
                others = set(row.values) - set(new)
                fits = fitted(table, {**row.values, **new}, others, lambda some: draw(st.sampled_from(some)))
                found[row.name] = {name: fits[name] for name in new}
    return found


def _made_young(column: Column[Any], cutoff: Cutoff, now: datetime, number: int) -> dict[str, Any]:
    # A day apart: such a column may be one that no two rows share.
    return {column.name: around(cutoff, now + timedelta(days=number))[-1]}


def _renamed(column: Any, number: int) -> dict[str, Any]:
    most = getattr(bare(column.type), "length", None) or 1000
    return {column.name: next(n for n in (f"renamed-{number}", f"r{number}", "r") if len(n) <= most)}


def _likely_due(rows: Sequence[Row], table: Table) -> list[Row]:
    """Return the rows that were made with a time before the cutoff: the first two and the last two."""
    mine = [row for row in rows if row.table is table]
    return list({row.name: row for row in (*mine[:2], *mine[-2:])}.values())
