"""What a delete touched, by table, as far as the database can be made to say.

PostgreSQL keeps statistics a transaction; they go on counting for savepoints that were taken back, so only the difference
around an attempt that stood is added up. SQLite has one counter for all tables, cascades and triggers included;
which tables they were is counted before the rows go. MariaDB and MySQL say nothing: what cascades take is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, text

from safedelete.core.item import Key, KeyRows
from safedelete.sql.backends.base import TableName
from safedelete.sql.cascades import altered_first, taken_with
from safedelete.sql.schema import ForeignKey

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

ELSEWHERE: Final = "(another table)"
"""Where SQLite counts rows that no foreign key of the target explains: a trigger wrote them."""


class Touched:
    """Adds up what the successful attempts of one call touched."""

    def __init__(self, connection: Connection, target: SqlRows) -> None:
        self.connection = connection
        self.target = target
        self._backend = target.database.backend
        # Not nothing: a pooled session's earlier transactions stay in its statistics until it sends them on.
        self._snapshot: Mapping[TableName, int] | None = None
        self._after: Mapping[TableName, int] | None = None
        self._unsaid = False
        self._sum: Counter[str] = Counter()
        self._counted: dict[str, int] = {}
        self._asked = 0
        self._changes: int | None = None
        self._altered_first = 0
        self._broken: frozenset[tuple[Any, ...]] = frozenset()

    def start(self) -> None:
        """Begin adding up anew."""
        self._sum = Counter()

    def result(self) -> Mapping[str, int] | None:
        """Return rows touched by table name; None where the database cannot say.

        Raises:
            SchemaChangedError: What the delete may have met is not what was counted.
        """
        surroundings = self.target.schema.surroundings
        if surroundings is not None:
            surroundings.require_same(self.connection, self.target.name)
        return None if self._unsaid else dict(self._sum)

    def before(self, keys: Sequence[Key] | KeyRows) -> None:
        """Look before an attempt."""
        if self._backend.names_touched:
            if self._snapshot is None:
                self._look()
            return
        self._asked = len(keys)
        self._counted = taken_with(self.target, self.connection, keys)
        self._changes = self._backend.changes(self.connection)
        if self._changes is not None:
            self._altered_first = altered_first(self.target, self.connection, keys)
        self._broken = self._foreign_key_check()

    def check(self) -> None:
        """Look at what the statement did, while it can still be taken back."""
        if self._backend.names_touched:
            self._after = self._backend.touched(self.connection)

    def after(self, deleted: int) -> None:
        """Add what a successful attempt touched."""
        if self._backend.names_touched:
            self._add_difference()
            return
        mine = self.target.name
        self._sum[mine] += deleted
        for table, number in self._counted.items():
            self._sum[table] += number
        now = self._backend.changes(self.connection)
        if now is not None and self._changes is not None:
            rest = now - self._changes - deleted - sum(self._counted.values())
            # They are counted once more, and go with the rest.
            rest -= min(max(rest, 0), self._altered_first)
            if rest > 0 and self.target.schema.cascades_into_itself:
                # A row of this very batch that a cascade took before its own turn is not returned.
                vanished = min(rest, self._asked - deleted)
                self._sum[mine] += vanished
                rest -= vanished
            if rest > 0:
                allowed = self.target.rows.may_touch
                self._sum[allowed[0] if allowed else ELSEWHERE] += rest

    def vanished(self, rows: int) -> None:
        """Add rows of the batch that a cascade took before their own turn, where no counter has seen them."""
        if (
            rows
            and not self._backend.names_touched
            and self._changes is None
            and self.target.schema.cascades_into_itself
        ):
            self._sum[self.target.name] += rows

    def failed(self) -> None:
        """Forget the last look: what was taken back goes on being counted by the server."""
        self._snapshot = None

    def violations(self) -> str:
        """Name foreign keys that SQLite would check at commit only and that are broken now; empty if none."""
        fresh = self._foreign_key_check() - self._broken
        if not fresh:
            return ""
        tables = ", ".join(sorted({str(row[0]) for row in fresh}))
        return f"{len(fresh)} row(s) of {tables} would be left without their parent (deferred foreign key)"

    def _look(self) -> None:
        self._snapshot = self._backend.touched(self.connection)
        self._unsaid = self._unsaid or self._snapshot is None

    def _add_difference(self) -> None:
        before, after = self._snapshot, self._after
        if before is None or after is None:
            self._unsaid = True
            return
        for table, number in after.items():
            if number > before.get(table, 0):
                self._sum[self._name(table)] += number - before.get(table, 0)
        self._snapshot = after

    def _name(self, table: TableName) -> str:
        schema = self.target.schema
        return self.target.name if table == schema.table else schema.display(table)

    def _foreign_key_check(self) -> frozenset[tuple[Any, ...]]:
        if self._backend.name != "sqlite":
            return frozenset()
        found: set[tuple[Any, ...]] = set()
        for table in {fk.child[1] for fk in self._deferred()}:
            # The pragma's argument is a name, bound as a value through its table-valued form.
            rows = self.connection.execute(
                text('SELECT "table", "rowid", "parent", "fkid" FROM pragma_foreign_key_check(:child)'),
                {"child": table},
            )
            found.update(tuple(row) for row in rows)
        return frozenset(found)

    def _deferred(self) -> list[ForeignKey]:
        return [fk for fk in self.target.schema.reachable(self.target.schema.table) if fk.deferred]
