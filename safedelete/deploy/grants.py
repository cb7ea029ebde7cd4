"""The SQL rights that the jobs need, by role: each table, each column, the ledger, and nothing more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Table
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause, TextClause
from sqlalchemy.sql.selectable import TableClause

from safedelete.declare import Declared, Purge, Rows, S3Orphans
from safedelete.deploy.files import MARK
from safedelete.deploy.spec import Grants
from safedelete.ledger import tables as ledger
from safedelete.locks.lease import table as lease

FILE: Final = "safedelete.grants.sql"

_READ: Final = ("SELECT",)


def render(jobs: Sequence[Declared], spec: Grants) -> Mapping[str, str]:
    """Return the statements by their file name.

    What foreign keys do in tables that the job file does not import is the database's own knowledge: ``safedelete check``
    asks for what is missing then.
    """
    sql = _Sql(spec.dialect)
    wanted = _Wanted()
    for job in jobs:
        if isinstance(job, Purge):
            wanted.purge(job)
    runner = [*wanted.statements(sql, spec.runner), *_ledger(sql, spec.runner, _RUNNER)]
    reader = [*wanted.statements(sql, spec.reader, reading=True), *_ledger(sql, spec.reader, _READER)]
    parts = [
        (
            "Runs the jobs. It cannot write approvals: who runs purges must not be able to approve their own.",
            runner,
        ),
        ("Plans and looks, and deletes nothing.", reader),
        ("Approves refused plans.", _ledger(sql, spec.approver, _APPROVER)),
        ("Pauses jobs, and ends runs at work.", _ledger(sql, spec.operator, _OPERATOR)),
    ]
    text = f"-- {MARK} from the job file and safedelete.toml; change those.\n"
    text += "-- The safedelete_ tables are in the ledger's database, the others and safedelete_lease in the purged one.\n"
    for title, statements in parts:
        text += f"\n-- {title}\n" + "".join(f"{statement};\n" for statement in statements)
        if statements is runner:
            text += "".join(f"-- {line}\n" for line in _by_triggers(jobs))
            text += "".join(f"{line}\n" for line in _hidden(wanted, sql, spec.runner))
    return {FILE: text}


def _by_triggers(jobs: Sequence[Declared]) -> Iterator[str]:
    """Yield a line for each table that triggers may write to: what they do there is not known here."""
    rows = [t for job in jobs if isinstance(job, Purge) for t in job.targets if isinstance(t, Rows)]
    for name, touched in sorted({(t.table.fullname, table) for t in rows for table in t.may_touch}):
        yield (
            f"{touched} (may_touch of {name}): a trigger writes to it with the runner's own rights, unless it has its owner's "
            "(SECURITY DEFINER; on MySQL always). Grant INSERT, or what it does, there too."
        )


def _hidden(wanted: _Wanted, sql: _Sql, role: str) -> Iterator[str]:
    """Yield what makes MariaDB and MySQL say that they hide nothing."""
    if not sql.hides or not wanted.unseen:
        return
    yield "-- These servers hide what a role has no right on. PROCESS finds a hidden table that references a purged one, TRIGGER"
    yield "-- shows what a trigger does. Where you know that there is none, Rows(..., allow_unseen=True) needs neither."
    for _, table in sorted(wanted.unseen.items()):
        yield f"{sql.grant('TRIGGER', table, role)};"
    yield f"GRANT PROCESS ON *.* TO {sql.role(role)};"


_RUNNER: Final = (
    (ledger.meta, _READ),
    (ledger.run, ("SELECT", "INSERT", "UPDATE")),
    (ledger.batch, ("SELECT", "INSERT", "UPDATE", "DELETE")),
    (ledger.approval, _READ),
    (ledger.notice, _READ),
    (lease, ("SELECT", "INSERT", "UPDATE")),
)
_READER: Final = tuple(
    (table, _READ) for table in (ledger.meta, ledger.run, ledger.batch, ledger.approval, ledger.notice)
)
_APPROVER: Final = (
    (ledger.meta, _READ),
    (ledger.run, _READ),
    (ledger.batch, _READ),
    (ledger.approval, ("SELECT", "INSERT")),
    # `history` says whether the job is paused.
    (ledger.notice, _READ),
)
_OPERATOR: Final = (
    (ledger.meta, _READ),
    (ledger.run, _READ),
    (ledger.notice, ("SELECT", "INSERT", "UPDATE")),
)


def _ledger(sql: _Sql, role: str, wanted: Iterable[tuple[Table, tuple[str, ...]]]) -> list[str]:
    return [sql.grant(", ".join(rights), table, role) for table, rights in wanted]


class _Wanted:
    """What the purges read, lock and delete."""

    def __init__(self) -> None:
        self.tables: dict[str, TableClause] = {}
        self.read: dict[str, set[str] | None] = {}
        """Columns by table; None for all of them, where a text hides which."""
        self.locked: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.described: set[str] = set()
        """The tables whose foreign keys and indexes are read."""
        self.unseen: dict[str, TableClause] = {}
        """The purged tables around which nothing may stay unseen."""

    def purge(self, purge: Purge) -> None:
        """Take in a purge."""
        for target in purge.targets:
            if isinstance(target, Rows):
                self._rows(target)
            elif isinstance(target, S3Orphans):
                for column in target.columns:
                    self._expression(column, None)

    def _rows(self, rows: Rows) -> None:
        name = self._table(rows.table)
        self.deleted.add(name)
        self.described.add(name)
        if not rows.allow_unseen:
            self.unseen[name] = rows.table
        keys = list(rows.table.primary_key.columns)
        self._columns(rows.table, keys)
        for expression in rows.predicates:
            self._expression(expression, rows.table)
        for owned in rows.owns:
            for named in (*owned.columns, owned.etag, owned.size, owned.prefix):
                if named is not None:
                    self._expression(named, rows.table)
        if rows.owns:
            # PostgreSQL locks rows for those alone who may change a column of them.
            self.locked[name] = keys[0].name
        self._touched(rows.table, ())

    def _touched(self, parent: Table, way: tuple[Table, ...]) -> None:
        """Take in the tables that refer to this one, as far as cascades go: what is in them is counted.

        Args:
            parent: The table whose rows go.
            way: The tables that cascade into it.
        """
        if parent in way:
            # A circle is walked row by row, and rows are told apart by their keys.
            for table in way:
                self._columns(table, table.primary_key.columns)
            return
        for child in parent.metadata.sorted_tables:
            for key in child.foreign_key_constraints:
                if key.referred_table is not parent:
                    continue
                self._columns(parent, [element.column for element in key.elements])
                self._columns(child, list(key.columns))
                self.described.add(self._table(child))
                if (key.ondelete or "").upper() == "CASCADE":
                    self._touched(child, (*way, parent))

    def _expression(self, expression: ColumnElement[Any], owner: Table | None) -> None:
        whole = False
        touched = set() if owner is None else {self._table(owner)}
        for element in visitors.iterate(expression):
            if isinstance(element, TextClause) or getattr(element, "is_literal", False):
                whole = True
            elif isinstance(element, ColumnClause) and isinstance(element.table, TableClause):
                touched.add(self._table(element.table))
                self._columns(element.table, [element])
            elif isinstance(element, TableClause):
                touched.add(self._table(element))
        if whole:
            self.read.update(dict.fromkeys(touched))

    def _columns(self, table: TableClause, columns: Iterable[ColumnClause[Any] | Column[Any]]) -> None:
        known = self.read.setdefault(self._table(table), set())
        if known is not None:
            known.update(column.name for column in columns)

    def _table(self, table: TableClause) -> str:
        name = table.fullname
        self.tables.setdefault(name, table)
        self.read.setdefault(name, set())
        return name

    def statements(self, sql: _Sql, role: str, *, reading: bool = False) -> Iterator[str]:
        """Yield the statements for a role, by table."""
        schemas = sorted({table.schema for table in self.tables.values() if table.schema})
        if sql.schemas:
            for schema in schemas:
                yield f"GRANT USAGE ON SCHEMA {sql.quote(schema)} TO {sql.role(role)}"
        for name, table in sorted(self.tables.items()):
            columns = self.read[name]
            what = "SELECT" if not columns else f"SELECT ({', '.join(map(sql.quote, sorted(columns)))})"
            yield sql.grant(what, table, role)
            deletes = not reading and name in self.deleted
            if sql.hides and columns and not deletes and name in self.described:
                # A right on columns does not show the table's foreign keys and indexes; this one shows no data.
                yield sql.grant("REFERENCES", table, role)
            if not deletes:
                continue
            yield sql.grant("DELETE", table, role)
            if name in self.locked and sql.locks_by_column:
                yield sql.grant(f"UPDATE ({sql.quote(self.locked[name])})", table, role)


class _Sql:
    """Spells names as a dialect does."""

    def __init__(self, dialect: str) -> None:
        spelling: Any = postgresql if dialect == "postgresql" else mysql
        self._preparer = spelling.dialect().identifier_preparer
        self.schemas = dialect == "postgresql"
        self.locks_by_column = dialect == "postgresql"
        self.hides = dialect == "mysql"

    def quote(self, name: str) -> str:
        """Quote a name where it has to be."""
        return str(self._preparer.quote(name))

    def role(self, role: str) -> str:
        """Spell a role, or for MySQL an account."""
        if not self.hides:
            return self.quote(role)
        user, _, host = role.partition("@")
        return f"'{user}'@'{host or '%'}'"

    def grant(self, rights: str, table: TableClause, role: str) -> str:
        """Return one statement."""
        return f"GRANT {rights} ON {self._preparer.format_table(table)} TO {self.role(role)}"
