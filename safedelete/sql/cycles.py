"""Follow cascades that form a cycle, a generation at a time, remembering every row seen.

Only keys are held, and only up to a limit: beyond it the number is unknown rather than the memory gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Connection, FromClause, MetaData, Table, column, select, tuple_

from safedelete.core.item import Key
from safedelete.core.plan import Unknown
from safedelete.sql.backends.base import TableName
from safedelete.sql.keys import KeyColumns

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

PAGE: Final = 5_000
MAX_SEEN: Final = 2_000_000
"""Most keys held at once, over all tables."""


def count_by_walking(
    target: SqlRows, connection: Connection, taken: ColumnElement[bool], values: Mapping[str, Any]
) -> Mapping[TableName, int] | Unknown:
    """Count the rows that cascades delete, by table; the taken rows themselves are not counted. Reads only."""
    schema = target.schema
    cascading = [fk for fk in schema.reachable(schema.table) if fk.action == "CASCADE"]
    tables: dict[TableName, Table] = {schema.table: target.table}
    metadata = MetaData()
    for fk in cascading:
        if fk.child not in tables:
            space, plain = fk.child
            tables[fk.child] = Table(
                plain,
                metadata,
                schema=None if space == schema.default else space,
                autoload_with=connection,
                resolve_fks=False,
            )
    keys = {name: KeyColumns(table, connection.dialect) for name, table in tables.items()}
    without = [schema.display(name) for name, columns in keys.items() if not len(columns)]
    if without:
        return Unknown(f"{', '.join(without)} has no primary key to follow a cyclic cascade by")
    seen: dict[TableName, set[Key]] = {name: set() for name in tables}
    planned = 0
    todo: list[tuple[TableName, list[Key]]] = []
    for page in _pages(connection, keys[schema.table], taken, values):
        planned += len(page)
        seen[schema.table].update(page)
        if sum(map(len, seen.values())) > MAX_SEEN:
            return Unknown(f"a cyclic cascade reaches more than {MAX_SEEN:,} rows")
        todo.append((schema.table, page))
    while todo:
        name, page = todo.pop()
        for fk in cascading:
            if fk.parent != name:
                continue
            parent, child = tables[name], tables[fk.child]
            gone = (
                select(*(named_column(parent, c) for c in fk.referred))
                .where(keys[name].match(page))
                .correlate(None)
            )
            columns = [named_column(child, c) for c in fk.columns]
            source: Any = columns[0] if len(columns) == 1 else tuple_(*columns)
            alias_free = gone if parent is not child else _aliased(parent, keys[name], fk.referred, page)
            statement = select(*keys[fk.child].selected()).where(source.in_(alias_free))
            found = {keys[fk.child].read(row) for row in connection.execute(statement)}
            fresh = list(found - seen[fk.child])
            seen[fk.child].update(fresh)
            if sum(map(len, seen.values())) > MAX_SEEN:
                return Unknown(f"a cyclic cascade reaches more than {MAX_SEEN:,} rows")
            todo += [(fk.child, fresh[i : i + PAGE]) for i in range(0, len(fresh), PAGE)]
    return {name: len(found) - (planned if name == schema.table else 0) for name, found in seen.items()}


def named_column(source: FromClause, name: str) -> ColumnElement[Any]:
    """Return a column by its name in the database, also where the model leaves it out."""
    return next((c for c in source.c if c.name == name), column(name))


def _aliased(table: Table, keys: KeyColumns, referred: tuple[str, ...], page: list[Key]) -> Any:
    # The parent and the child are one table: a subquery of its own keeps the two apart.
    inner = select(*(named_column(table, c) for c in referred)).where(keys.match(page)).correlate(None)
    return select(inner.subquery())


def _pages(
    connection: Connection, keys: KeyColumns, taken: ColumnElement[bool], values: Mapping[str, Any]
) -> Iterator[list[Key]]:
    last: Key | None = None
    while True:
        statement = select(*keys.selected()).where(taken).order_by(*keys.order()).limit(PAGE)
        if last is not None:
            statement = statement.where(keys.after(last))
        page = [keys.read(row) for row in connection.execute(statement, values)]
        if page:
            last = page[-1]
            yield page
        if len(page) < PAGE:
            return
