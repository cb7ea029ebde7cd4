"""What deleting rows does to other tables, found by walking the foreign keys.

Where the cascades form no cycle, each number is one query: a child row goes when a parent of its goes, whatever the
number of paths that lead to it, so the sets nest as subqueries and a diamond is counted once. Cycles (a table that
cascades into itself, for one) need the walk in ``cycles.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Select,
    Table,
    case,
    column,
    func,
    or_,
    select,
    true,
    tuple_,
)
from sqlalchemy import table as light_table

from safedelete.core.item import Key, KeyRows
from safedelete.core.plan import Cascade, CascadeAction, Count, Unknown
from safedelete.errors import StoreError
from safedelete.sql.backends.base import Backend, TableName
from safedelete.sql.cycles import named_column, walk
from safedelete.sql.schema import ForeignKey, Schema

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

MOST_LETTERS: Final = 63
"""Of a name, on PostgreSQL; the other servers take one more."""

_ALTERS: dict[str, CascadeAction] = {"SET NULL": "set null", "SET DEFAULT": "set default"}


class BlastRadius:
    """The foreign keys around one set of rows of a target, as queries."""

    def __init__(self, schema: Schema, target: Table, taken: ColumnElement[bool]) -> None:
        self.schema = schema
        self.target = target
        self.taken = taken
        self.reachable = schema.reachable(schema.table)
        self.cascading = [fk for fk in self.reachable if fk.action == "CASCADE"]
        self.cyclic = self._has_cycle()

    def doomed_tables(self) -> list[TableName]:
        """Return the tables that cascades reach, nearest first."""
        return list(dict.fromkeys(fk.child for fk in self.cascading))

    def deleted(self, child: TableName) -> Select[Any]:
        """Count the rows of a table that cascades delete."""
        source = self._source(child)
        return select(func.count()).select_from(source).where(self._doomed(child, source))

    def altered(self, fk: ForeignKey) -> Select[Any]:
        """Count the rows that a SET NULL or SET DEFAULT alters; those that are deleted anyway are not among them."""
        source = self._source(fk.child)
        return (
            select(func.count())
            .select_from(source)
            .where(self._references(fk, source), self._spared(fk.child, source))
        )

    def altered_first(self, fk: ForeignKey) -> Select[Any]:
        """Count the rows that a SET NULL or SET DEFAULT may alter before they are deleted themselves."""
        source = self._source(fk.child)
        return (
            select(func.count())
            .select_from(source)
            .where(self._references(fk, source), self._doomed(fk.child, source))
        )

    def blocked(self, fk: ForeignKey) -> Select[Any]:
        """Count the planned rows that a RESTRICT or NO ACTION foreign key holds, directly or below a cascade."""
        held = self._holds(self.schema.table, self.target, fk)
        return select(func.count()).select_from(self.target).where(self.taken, held)

    def _doomed(self, name: TableName, source: FromClause) -> ColumnElement[bool]:
        clauses = [self._references(fk, source) for fk in self.cascading if fk.child == name]
        if name == self.schema.table:
            keys = list(self.target.primary_key.columns)
            planned = select(*keys).where(self.taken).correlate(None)
            clauses.append(_row([source.c[c.name] for c in keys]).in_(planned))
        return or_(*clauses)

    def _references(self, fk: ForeignKey, source: FromClause) -> ColumnElement[bool]:
        if fk.parent == self.schema.table:
            gone = select(*(named_column(self.target, c) for c in fk.referred)).where(self.taken)
        else:
            parent = self._source(fk.parent)
            gone = select(*(parent.c[c] for c in fk.referred)).where(self._doomed(fk.parent, parent))
        orphaned: ColumnElement[bool] = _row([source.c[c] for c in fk.columns]).in_(gone.correlate(None))
        return orphaned

    def _spared(self, name: TableName, source: FromClause) -> ColumnElement[bool]:
        if name != self.schema.table and name not in self.doomed_tables():
            return true()
        # A NULL foreign key makes the test NULL; such a row is spared.
        return case((self._doomed(name, source), 1), else_=0) == 0

    def _holds(self, name: TableName, source: FromClause, fk: ForeignKey) -> ColumnElement[bool]:
        clauses: list[ColumnElement[bool]] = []
        if name == fk.parent:
            child = self._source(fk.child)
            holding = select(*(child.c[c] for c in fk.columns)).where(self._spared(fk.child, child))
            clauses.append(_row([named_column(source, c) for c in fk.referred]).in_(holding.correlate(None)))
        for step in self.cascading:
            if step.parent == name and self._leads_to(step.child, fk.parent):
                child = self._source(step.child)
                below = select(*(child.c[c] for c in step.columns)).where(self._holds(step.child, child, fk))
                clauses.append(
                    _row([named_column(source, c) for c in step.referred]).in_(below.correlate(None))
                )
        return or_(*clauses)

    def _leads_to(self, start: TableName, goal: TableName) -> bool:
        return start == goal or any(
            self._leads_to(fk.child, goal) for fk in self.cascading if fk.parent == start
        )

    def _source(self, name: TableName) -> FromClause:
        schema, plain = name
        used = {c for fk in self.reachable if fk.child == name for c in fk.columns}
        used |= {c for fk in self.reachable if fk.parent == name for c in fk.referred}
        used |= set(self.schema.primary_keys.get(name, ()))
        if name == self.schema.table:
            used |= {c.name for c in self.target.primary_key.columns}
        shown = None if schema == self.schema.default else schema
        return light_table(plain, *(column(c) for c in sorted(used)), schema=shown).alias()

    def _has_cycle(self) -> bool:
        steps: dict[TableName, set[TableName]] = {}
        for fk in self.cascading:
            steps.setdefault(fk.parent, set()).add(fk.child)
        state: dict[TableName, bool] = {}

        def visit(name: TableName) -> bool:
            state[name] = True
            for child in steps.get(name, ()):
                if state.get(child) or (child not in state and visit(child)):
                    return True
            state[name] = False
            return False

        return visit(self.schema.table)


def blast_radius(
    target: SqlRows,
    connection: Connection,
    taken: ColumnElement[bool],
    count: Callable[[Select[Any]], Count],
    values: Any,
    *,
    hold: bool = False,
) -> tuple[tuple[Cascade, ...], list[str]]:
    """Return what happens to other tables when these rows go, and what a reader should know. Reads only.

    Args:
        target: The target.
        connection: Where to read, for cascades that form a cycle.
        taken: Which of its rows.
        count: Runs a counting query.
        values: The parameters of ``taken``.
        hold: Lock those of the counted rows that have children of their own, so that none can come after the count.
    """
    schema = target.schema
    radius = BlastRadius(schema, target.table, taken)
    found: list[Cascade] = []
    walked = walk(target, connection, taken, values, hold=hold) if radius.cyclic else None
    parents = {fk.parent for fk in radius.reachable} if hold else frozenset[TableName]()
    for name in radius.doomed_tables():
        if walked is None:
            counting = radius.deleted(name)
            rows: Count = count(counting.with_for_update() if name in parents else counting)
        else:
            rows = walked if isinstance(walked, Unknown) else walked.deleted[name]
        found.append(Cascade(schema.display(name), "delete", rows, _via(radius.cascading, name)))
    for fk in radius.reachable:
        if fk.action == "CASCADE":
            continue
        if walked is None:
            rows = count(radius.altered(fk) if fk.action in _ALTERS else radius.blocked(fk))
        else:
            rows = walked if isinstance(walked, Unknown) else walked.others[fk]
        found.append(Cascade(schema.display(fk.child), _ALTERS.get(fk.action, "block"), rows, fk.name))
    notes = [
        f"{schema.display(fk.child)} ({', '.join(fk.columns)}) has no index: each row deleted from "
        f"{schema.display(fk.parent)} makes the database read all of {schema.display(fk.child)} ({fk.name})."
        for fk in unindexed(schema)
    ]
    return tuple(found), notes


def unindexed(schema: Schema) -> list[ForeignKey]:
    """Return the foreign keys whose child column has no index, so that each deleted row scans the child."""
    return [fk for fk in schema.reachable(schema.table) if not schema.has_index(fk.child, fk.columns)]


def create_index(fk: ForeignKey, schema: Schema, backend: Backend, quote: Callable[[str], str]) -> str:
    """Return the statement that gives a foreign key's child column its index.

    Args:
        fk: The foreign key.
        schema: Where it is.
        backend: Whose words to use.
        quote: Quotes a name where it needs it.
    """
    space, table = fk.child
    columns = ", ".join(quote(c) for c in fk.columns)
    where = quote(table) if space in (None, schema.default) else f"{quote(str(space))}.{quote(table)}"
    name = quote("_".join(("ix", table, *fk.columns))[:MOST_LETTERS])
    return f"CREATE INDEX {'CONCURRENTLY ' if backend.name == 'postgresql' else ''}{name} ON {where} ({columns});"


def taken_with(target: SqlRows, connection: Connection, keys: Sequence[Key] | KeyRows) -> dict[str, int]:
    """Count, by table, the rows that foreign keys delete or alter along with these keys. Writes nothing.

    Raises:
        StoreError: It could not be counted.
        DBAPIError: Another transaction holds a row that would be counted.
    """
    if not target.schema.reachable(target.schema.table):
        return {}

    def count(statement: Select[Any]) -> Count:
        return int(connection.execute(statement).scalar_one())

    hold = target.database.backend.counts_first
    found, _ = blast_radius(target, connection, target.keys.match(keys), count, {}, hold=hold)
    numbers: dict[str, int] = {}
    for cascade in found:
        if cascade.action == "block":
            continue
        if isinstance(cascade.rows, Unknown):
            raise StoreError(
                f"What goes along with rows of {target.name} in {cascade.table} is {cascade.rows}.",
                hint="Repair what kept it from being counted, then plan again.",
            )
        if cascade.rows:
            numbers[cascade.table] = numbers.get(cascade.table, 0) + cascade.rows
    return numbers


def altered_first(target: SqlRows, connection: Connection, keys: Sequence[Key] | KeyRows) -> int:
    """Count how often a row that goes may be altered before: by which foreign key it is reached first is the database's affair.

    Reads only.
    """
    radius = BlastRadius(target.schema, target.table, target.keys.match(keys))
    doomed = {target.schema.table, *radius.doomed_tables()}
    altering = [fk for fk in radius.reachable if fk.action in _ALTERS and fk.child in doomed]
    if not altering:
        return 0
    if radius.cyclic:
        walked = walk(target, connection, target.keys.match(keys), {})
        # Who names whom is not known of these; each of them can be altered once by each key.
        going = {} if isinstance(walked, Unknown) else walked.deleted
        return sum(going.get(fk.child, 0) + len(keys) * (fk.child == target.schema.table) for fk in altering)
    return sum(int(connection.execute(radius.altered_first(fk)).scalar_one()) for fk in altering)


def _via(cascading: Sequence[ForeignKey], child: TableName) -> str:
    return ", ".join(fk.name for fk in cascading if fk.child == child)


def _row(columns: Sequence[ColumnElement[Any]]) -> Any:
    return columns[0] if len(columns) == 1 else tuple_(*columns)
