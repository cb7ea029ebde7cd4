"""Follow cascades that form a cycle, a generation at a time, remembering every row seen.

Only keys are held, and only up to a limit: beyond it the numbers are unknown rather than the memory gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, MetaData, Table, and_, column, select

from safedelete.core.item import Key
from safedelete.core.plan import Count, Unknown
from safedelete.sql.backends.base import TableName
from safedelete.sql.keys import KeyColumns
from safedelete.sql.schema import ForeignKey

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

PAGE: Final = 5_000
MAX_SEEN: Final = 2_000_000
"""Most keys held at once, over all tables."""


class _TooManyError(Exception):
    """The walk was given up, and why."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What a walk found.

    Attributes:
        deleted: Rows that cascades delete, by table; the taken rows themselves are not counted.
        others: By foreign key that does not cascade: rows it alters, or the planned rows that it holds.
    """

    deleted: Mapping[TableName, int]
    others: Mapping[ForeignKey, Count]


def walk(
    target: SqlRows,
    connection: Connection,
    taken: ColumnElement[bool],
    values: Mapping[str, Any],
    *,
    hold: bool = False,
) -> Walked | Unknown:
    """Count what goes along with the taken rows. Writes nothing; locks what it follows if told to hold it."""
    try:
        walker = _Walker(target, connection, hold=hold)
        planned = walker.follow(taken, values)
        own = target.schema.table
        deleted = {name: len(found) - (planned if name == own else 0) for name, found in walker.seen.items()}
        others = {fk: walker.other(fk) for fk in walker.reachable if fk.action != "CASCADE"}
    except _TooManyError as error:
        return Unknown(str(error))
    return Walked(deleted, others)


class _Walker:
    def __init__(self, target: SqlRows, connection: Connection, *, hold: bool) -> None:
        self.target = target
        self.hold = hold
        self.schema = target.schema
        self.connection = connection
        self.reachable = self.schema.reachable(self.schema.table)
        self.cascading = [fk for fk in self.reachable if fk.action == "CASCADE"]
        self.tables: dict[TableName, Table] = {self.schema.table: target.table}
        metadata = MetaData()
        for fk in self.reachable:
            if fk.child not in self.tables:
                space, plain = fk.child
                shown = None if space == self.schema.default else space
                self.tables[fk.child] = Table(
                    plain, metadata, schema=shown, autoload_with=connection, resolve_fks=False
                )
        self.keys = {name: KeyColumns(table, connection.dialect) for name, table in self.tables.items()}
        without = [self.schema.display(name) for name, columns in self.keys.items() if not len(columns)]
        if without:
            raise _TooManyError(f"{', '.join(without)} has no primary key to follow a cyclic cascade by")
        self.seen: dict[TableName, set[Key]] = {name: set() for name in self._doomed()}

    def follow(self, taken: ColumnElement[bool], values: Mapping[str, Any]) -> int:
        """Fill ``seen``; return the number of taken rows."""
        planned = 0
        todo: list[tuple[TableName, list[Key]]] = []
        own = self.schema.table
        for page in self._pages(taken, values):
            planned += len(page)
            self._remember(own, page)
            todo.append((own, page))
        while todo:
            name, page = todo.pop()
            for fk in self.cascading:
                if fk.parent == name:
                    children = {child for _, child in self._pairs(fk, page)}
                    fresh = list(children - self.seen[fk.child])
                    self._remember(fk.child, fresh)
                    todo += [(fk.child, part) for part in _parts(fresh)]
        return planned

    def other(self, fk: ForeignKey) -> Count:
        """Count the rows that a foreign key alters, or the planned rows that it holds."""
        doomed_children = self.seen.get(fk.child, set())
        spared: set[Key] = set()
        held: set[Key] = set()
        for part in _parts(list(self.seen[fk.parent])):
            for parent, child in self._pairs(fk, part):
                if child not in doomed_children:
                    spared.add(child)
                    held.add(parent)
        if fk.action in {"SET NULL", "SET DEFAULT"}:
            return len(spared)
        if held and (fk.parent != self.schema.table or self.schema.cascades_into_itself):
            return Unknown(
                f"what {fk.name} holds hangs on a cascade that forms a cycle, which is not counted: delete such rows by "
                "a target of their own before, or break the cycle"
            )
        return len(held)

    def _pairs(self, fk: ForeignKey, parents: list[Key]) -> Iterator[tuple[Key, Key]]:
        """Yield (parent key, child key) for every child of these parents."""
        parent = self.tables[fk.parent].alias("sd_parent")
        child = self.tables[fk.child].alias("sd_child")
        parent_keys = KeyColumns(self.tables[fk.parent], self.connection.dialect, parent)
        child_keys = KeyColumns(self.tables[fk.child], self.connection.dialect, child)
        joined = and_(
            *(
                named_column(parent, up) == named_column(child, down)
                for up, down in zip(fk.referred, fk.columns, strict=True)
            )
        )
        width = len(parent_keys)
        statement = select(*parent_keys.raw(), *child_keys.raw()).where(joined, parent_keys.match(parents))
        if self.hold and fk.action == "CASCADE":
            statement = statement.with_for_update()
        for row in self.connection.execute(statement):
            yield parent_keys.read(row[:width]), child_keys.read(row[width:])

    def _doomed(self) -> list[TableName]:
        return list(dict.fromkeys([self.schema.table, *(fk.child for fk in self.cascading)]))

    def _remember(self, name: TableName, keys: list[Key]) -> None:
        self.seen[name].update(keys)
        if sum(map(len, self.seen.values())) > MAX_SEEN:
            raise _TooManyError(f"a cyclic cascade reaches more than {MAX_SEEN:,} rows")

    def _pages(self, taken: ColumnElement[bool], values: Mapping[str, Any]) -> Iterator[list[Key]]:
        keys = self.keys[self.schema.table]
        last: Key | None = None
        while True:
            statement = select(*keys.selected()).where(taken).order_by(*keys.order()).limit(PAGE)
            if last is not None:
                statement = statement.where(keys.after(last))
            page = [keys.read(row) for row in self.connection.execute(statement, values)]
            if page:
                last = page[-1]
                yield page
            if len(page) < PAGE:
                return


def named_column(source: FromClause, name: str) -> ColumnElement[Any]:
    """Return a column by its name in the database, also where the model leaves it out."""
    for found in source.c:
        if found.name == name:
            return found
    bare: ColumnElement[Any] = column(name, _selectable=source)
    return bare


def _parts(keys: list[Key]) -> Iterator[list[Key]]:
    for start in range(0, len(keys), PAGE):
        yield keys[start : start + PAGE]
