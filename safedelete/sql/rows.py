"""``SqlRows``: one declared table target on one database, as the phases see it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from safedelete.core.item import Key, KeyRows, ObjectRef, SealedRow
from safedelete.core.plan import TargetPlan
from safedelete.declare.targets import Rows
from safedelete.errors import ConfigError, StoreError
from safedelete.sql import predicate
from safedelete.sql.batch import SqlRowTransaction
from safedelete.sql.cascades import create_index, unindexed
from safedelete.sql.engine import Database
from safedelete.sql.failures import translated
from safedelete.sql.keys import KeyColumns, looked_up, stored
from safedelete.sql.lint import require_fit
from safedelete.sql.owned import OwnedObjects
from safedelete.sql.schema import Schema
from safedelete.sql.shared import named
from safedelete.sql.survey import Survey

log = structlog.get_logger("safedelete.sql")

PRESENT_CHUNK = 5_000

PAGE_ATTEMPTS = 5
"""Times a page is read until nothing was deleted between reading it and finding its keys again."""


class SqlRows:
    """One table target: ``RowReader`` and ``RowTarget``.

    Planning calls :meth:`survey` and :meth:`scan`, which send SELECT alone, in read-only transactions.
    """

    def __init__(self, rows: Rows, database: Database) -> None:
        self.rows = rows
        self.database = database
        self.table = rows.table
        self.keys = KeyColumns(rows.table, database.engine.dialect)
        self.owned = OwnedObjects(rows)
        self.time_tests = predicate.time_tests(rows.predicates)
        self.siblings: tuple[SqlRows, ...] = ()
        """The purge's table targets, this one among them, then those of the file's other purges whose rows own objects: a
        cascade must not reach into rows they answer for."""
        self.left_out = 0
        """Rows that the last :meth:`scan` left out because a value of theirs can name no object."""

    @property
    def name(self) -> str:
        """The table's name, as in the plan."""
        return self.rows.name

    @property
    def owns_objects(self) -> bool:
        """Whether its rows name objects."""
        return bool(self.owned)

    @cached_property
    def schema(self) -> Schema:
        """What the database says about this table and those that reference it. Reads only, once."""
        return Schema.read(self.database, self.table)

    @cached_property
    def shared(self) -> bool:
        """Whether several rows may name one object: as declared, else unless the schema rules it out. Reads only."""
        for keys in self.rows.owns:
            if keys.shared is None:
                # A unique prefix may still lie below another one.
                if keys.prefix is not None or len(self.owned.spots) > 1:
                    return True
                if not all(self.schema.is_unique(c) for c in keys.columns):
                    return True
            elif keys.shared:
                return True
        return False

    @property
    def time_column(self) -> ColumnElement[Any] | None:
        """What "oldest" means for a portion: the first age test's column, where it is this table's own."""
        own = [t.left for t in self.time_tests if predicate.belongs(t.left, self.table)]
        return own[0] if own else None

    def survey(self, as_of: datetime, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Count what is eligible and what goes along with it. Reads only; idempotent."""
        self.__dict__.pop("schema", None)
        self.schema.require(self.rows)
        self._refuse_cascades()
        self._refuse_trails()
        self._refuse_scans()
        with self.database.connected() as connection:
            require_fit(self, connection, as_of)
            return Survey(self, connection, as_of).plan(portion=portion, since=since)

    def scan(self, as_of: datetime, *, batch: int, portion: int | None) -> Iterator[Sequence[SealedRow]]:
        """Yield the eligible rows by primary key, ``batch`` at a time. Reads only.

        Each page is a transaction of its own. Rows with a value that can name no object are left out.

        Raises:
            StoreError: The database failed; what was yielded so far stays true.
        """
        self.left_out = 0
        values = predicate.parameters(self.rows, as_of)
        with self.database.connected() as connection, translated(f"reading the eligible rows of {self.name}"):
            where = self.portioned(connection, as_of, portion)
            if where is None:
                return
            page: Select[Any] = select(*self.keys.selected(), *self.owned.selected()).where(where)
            page = page.order_by(*self.keys.order())
            last: Key | None = None
            left = portion
            while left is None or left > 0:
                size = batch if left is None else min(batch, left)
                statement = (page if last is None else page.where(self.keys.after(last))).limit(size)
                found, keys = self._page(connection, statement, values)
                if found:
                    last = keys[-1].key
                    sealed = tuple(self._owning(found, keys)) if self.owned else keys
                    left = None if left is None else left - len(sealed)
                    if sealed:
                        yield sealed
                if len(found) < size:
                    break
        if self.left_out:
            log.warning(
                "rows left out and kept: a key of theirs can name no object",
                target=self.name,
                rows=self.left_out,
            )

    def examples(self, limit: int = 100) -> list[ObjectRef]:
        """Return objects that some rows name, eligible or not, for a probe where nothing is eligible. Reads only."""
        if not self.owned:
            return []
        usable = self.owned.usable(self.database.backend.name)
        statement = select(*self.owned.selected()).where(usable).limit(limit)
        with (
            self.database.connected() as connection,
            translated(f"reading what rows of {self.name} name"),
            self.database.reading(connection),
        ):
            rows = connection.execute(statement).all()
        return [ref for row in rows for ref in self.owned.read(row).examples()]

    def begin(self, as_of: datetime) -> SqlRowTransaction:
        """Open a batch's transaction, with its own statement, lock and idle timeouts.

        Raises:
            BusyError: Another writer holds the database (SQLite).
            StoreError: The database does not answer.
        """
        # Known before, so that no batch holds rows while the schema is read.
        _ = self.schema, self.database.identity
        return SqlRowTransaction(self, as_of)

    def present(self, keys: Sequence[Key]) -> Collection[Key]:
        """Return which of these keys still exist, whatever they look like now. Reads only."""
        statement = select(*self.keys.selected())
        found: set[Key] = set()

        def ask(some: Sequence[Key]) -> Mapping[Key, None]:
            with self.database.reading(connection):
                rows = connection.execute(statement.where(self.keys.match(some)))
                return dict.fromkeys(map(self.keys.read, rows))

        with self.database.connected() as connection, translated(f"looking for rows of {self.name}"):
            for start in range(0, len(keys), PRESENT_CHUNK):
                found.update(looked_up(ask, keys[start : start + PRESENT_CHUNK]))
        return found

    @property
    def shares_objects(self) -> bool:
        """Whether several rows may name one object, so that it goes only with its last row."""
        return self.shared

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row of the table names now. Reads only."""
        with (
            self.database.connected() as connection,
            translated(f"asking which objects {self.name} names"),
            self.database.reading(connection),
        ):
            return named(connection, self.owned, refs)

    def cancel(self) -> None:
        """Cancel the statement in flight, from another thread. Idempotent; never raises."""
        self.database.cancel()

    def sealable(self) -> ColumnElement[bool]:
        """Match the eligible rows that can be sealed."""
        return and_(self.rows.predicate, *self.fit())

    def fit(self) -> list[ColumnElement[bool]]:
        """Return what a row needs to be sealed beside being eligible: a whole key, and no value that can name no object."""
        clauses: list[ColumnElement[bool]] = []
        if self.database.backend.name == "sqlite":
            clauses.append(self.keys.whole())
        if self.owned:
            clauses.append(self.owned.usable(self.database.backend.name))
        return clauses

    def portioned(
        self, connection: Connection, as_of: datetime, portion: int | None
    ) -> ColumnElement[bool] | None:
        """Return what a run takes: everything sealable, or the oldest ``portion`` of it; None when there is nothing.

        The edge of the portion is looked up once and put into the clause, so that paging stays by key.
        """
        where = self.sealable()
        if portion is None:
            return where
        time = self.time_column
        if time is None:
            return where  # no time: the first by key, which is what a limited scan yields
        oldest = (
            select(
                time.label("sd_order"),
                stored(time, self.keys.dialect).label("sd_time"),
                *self.keys.selected(),
            )
            .where(where, time.is_not(None))
            .order_by(time, *self.keys.order())
            .limit(portion)
            .subquery("sd_oldest")
        )
        shown = [c for c in oldest.c if c.name != "sd_order"]
        last = (oldest.c.sd_order, *shown[1:])
        edge = select(*shown).order_by(*(c.desc() for c in last)).limit(1)
        with self.database.reading(connection):
            row = connection.execute(edge, predicate.parameters(self.rows, as_of)).first()
        if row is None:
            return None
        return and_(where, self.keys.up_to(time, row[0], tuple(row[1:])))

    def _page(
        self, connection: Connection, statement: Select[Any], values: Mapping[str, Any]
    ) -> tuple[Sequence[Row[Any]], KeyRows]:
        """Read a page whose every key finds its own row again: one that does not would be called gone when its turn came."""
        for _ in range(PAGE_ATTEMPTS):
            with self.database.reading(connection):
                try:
                    found = connection.execute(statement, values).all()
                except (TypeError, ValueError) as error:
                    # SQLite keeps any value in any column, and the model's type makes nothing of it.
                    raise StoreError(
                        f"A primary key of {self.name} cannot be read as the model's type: {error}.",
                        hint="Correct the column's type in the model, or the row.",
                    ) from error
                keys = KeyRows(self.keys.read_columns(found) if found else ())
                again = select(func.count()).select_from(self.table).where(self.keys.match(keys))
                # Rows may go between the two looks, whoever deletes them; then both are made again.
                if not keys or connection.execute(again).scalar_one() == len(keys):
                    return found, keys
        raise StoreError(
            f"Primary keys of {self.name} do not find their own rows again: the column's values are stored in another form "
            "than the model's type writes (a date or UUID in another spelling, a float of another precision).",
            hint="Correct the column's type in the model. Until then none of these rows can be purged safely.",
        )

    def _refuse_cascades(self) -> None:
        """Raise where deleting this target's rows would take rows that the purge itself answers for, or objects with them."""
        cascades = [fk for fk in self.schema.reachable(self.schema.table) if fk.action == "CASCADE"]
        # Nothing cascades as a rule, and then no other table need be there.
        answered = {rows.schema.table: rows for rows in self.siblings} if cascades else {}
        for fk in cascades:
            other = answered.get(fk.child)
            if other is None:
                continue
            path = f"{self.name} → {other.name} ({', '.join(fk.columns)}) ON DELETE CASCADE"
            if other.owns_objects:
                raise ConfigError(
                    f"Rows({self.name}): {path} takes rows whose objects would stay behind, or that the plan keeps.",
                    hint="Make the foreign key NO ACTION or SET NULL, so that each row goes with its own objects or stays.",
                )
            if other.name not in self.rows.may_touch:
                raise ConfigError(
                    f"Rows({self.name}): {path} takes rows of {other.name} that its own predicate may keep.",
                    hint=f"If they may go with their parent all the same, say may_touch=[{other.name!r}].",
                )

    def _refuse_trails(self) -> None:
        """Raise where altering a child alters rows behind it, which neither a plan nor MariaDB counts."""
        altering = [fk for fk in self.schema.reachable(self.schema.table) if fk.action.startswith("SET")]
        for fk in altering:
            for behind in self.schema.children(fk.child):
                named = self.schema.display(behind.child)
                if behind.trails(fk) and named not in self.rows.may_touch:
                    raise ConfigError(
                        f"Rows({self.name}): {fk.name} sets {', '.join(fk.columns)} of {self.schema.display(fk.child)} to another "
                        f"value, which {named} ({', '.join(behind.columns)}) follows ON UPDATE: no plan counts those rows.",
                        hint=f"Make {behind.name} ON UPDATE NO ACTION, or accept it with may_touch=[{named!r}].",
                    )

    def _refuse_scans(self) -> None:
        """Raise where each deleted row would make the database read a whole child table to find what references it."""
        slow = [] if self.rows.allow_unindexed_fk else unindexed(self.schema)
        if not slow:
            return
        named = "; ".join(
            f"{self.schema.display(fk.child)} ({', '.join(fk.columns)}), by {fk.name}" for fk in slow
        )
        quote = self.database.engine.dialect.identifier_preparer.quote
        wanted = dict.fromkeys(create_index(fk, self.schema, self.database.backend, quote) for fk in slow)
        raise ConfigError(
            f"Rows({self.name}): foreign keys without an index: {named}. Every row deleted from the table that they "
            "reference makes the database read the whole child table.",
            hint="\n".join(
                [*wanted, "Or accept it with allow_unindexed_fk=True, where the child tables stay small."]
            ),
        )

    def _owning(self, found: Sequence[Any], keys: KeyRows) -> Iterator[SealedRow]:
        width = len(self.keys)
        for key, row in zip(keys.keys(), found, strict=True):
            named = self.owned.read(row[width:])
            if named.objects is None:
                self.left_out += 1
            else:
                yield SealedRow(key, named.objects, named.prefixes)
