"""Count what a plan shows about one table target. Reads only: each number is one SELECT in a transaction of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal, or_, select, union
from sqlalchemy.exc import SQLAlchemyError

from safedelete.core.plan import AgeProfile, Cascade, Count, TargetPlan, Unknown
from safedelete.errors import StoreError
from safedelete.sql import predicate
from safedelete.sql.cascades import blast_radius
from safedelete.sql.failures import lost, words

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

SAMPLE: Final = 5
SMALL_TABLE: Final = 50_000
"""Rows up to which a time column without an index is still counted day by day."""
DAYS_AT_ONCE: Final = 30
"""Days counted by one statement, each by its own range of the index."""


class Survey:
    """One target counted at one instant."""

    def __init__(self, target: SqlRows, connection: Connection, as_of: datetime) -> None:
        self.target = target
        self.rows = target.rows
        self.connection = connection
        self.as_of = as_of
        self.values: Mapping[str, Any] = predicate.parameters(target.rows, as_of)
        self.notes: list[str] = []
        self.taken: ColumnElement[bool] = target.sealable()
        self.unfit = False
        """Whether some eligible rows can never be sealed; known once they are counted."""

    def plan(self, *, portion: int | None, since: datetime | None) -> TargetPlan:
        """Return the target's part of a plan."""
        # What can never be sealed is no part of the whole: a portion would seem to leave it for ever.
        items = eligible = self._sealable()
        total = self.count(select(func.count()).select_from(self.rows.table))
        if portion is not None:
            items = items if isinstance(items, Unknown) else min(items, portion)
            self._narrow(portion)
        cutoffs = [t.cutoff.instant(self.as_of) for t in self.target.time_tests]
        cutoff = max(cutoffs) if cutoffs else None
        statement, shown = predicate.rendered(
            self.rows.predicate, self.target.database.engine.dialect, self.values
        )
        sample = self._sample()
        objects, size, conditional = self._objects()
        cascades, warnings = self._cascades()
        self.notes += warnings
        nulls, ageless = self._nulls(), self._ageless()
        self._tell_idle_conditions(total, nulls, ageless)
        return TargetPlan(
            name=self.target.name,
            kind="rows",
            items=items,
            eligible=eligible,
            total=total,
            objects=objects,
            bytes=size,
            nulls=nulls,
            ageless=ageless,
            # Without a time test there is no "then" that could have left none.
            late=None if since is None or not self.target.time_tests else self._late(since),
            cutoff=cutoff,
            period=min((t.cutoff.age for t in self.target.time_tests), default=None),
            cascades=cascades,
            ages=self._ages(total),
            conditional=conditional,
            statement=statement,
            parameters=shown,
            first=sample[0] if sample else "",
            last=self._last(),
            sample=tuple(sample),
            notes=(*self.notes, *self._strange_keys(), *self._unindexed_keys()),
        )

    def _unindexed_keys(self) -> Iterator[str]:
        """Tell of key columns whose sharing has to be looked up without an index, a whole table a batch."""
        if not self.target.shares_objects:
            return
        schema = self.target.schema
        for keys in self.rows.owns:
            for column in (*keys.columns, *([] if keys.prefix is None else [keys.prefix])):
                name = getattr(column, "name", None)
                if name is not None and not schema.has_index(schema.table, [str(name)]):
                    yield (
                        f"{self.target.name}.{name} has no index: every batch reads the whole table to see which objects "
                        "other rows name. Add an index, or say shared=False if no two rows name one object."
                    )

    def count(self, statement: Select[Any], values: Mapping[str, Any] | None = None) -> Count:
        """Return a number, or why there is none; a lost connection or a stop is an error of its own.

        Raises:
            StoreError: The connection was lost.
            InterruptedRunError: A stop cancelled the statement.
        """
        found = self.scalar(statement, values)
        if isinstance(found, Unknown):
            return found
        return 0 if found is None else int(found)

    def scalar(self, statement: Select[Any], values: Mapping[str, Any] | None = None) -> Any:
        """Return the first value of the first row, or an ``Unknown``."""
        row = self._row(statement, values)
        return row if isinstance(row, Unknown) else row[0]

    def _row(
        self, statement: Select[Any], values: Mapping[str, Any] | None = None
    ) -> Sequence[Any] | Unknown:
        try:
            with self.target.database.reading(self.connection):
                return self.connection.execute(statement, values or self.values).one()
        except SQLAlchemyError as error:
            self._unless_cancelled(error)
            if lost(error):
                raise StoreError(
                    f"The connection to {self.target.database.name} was lost while counting {self.target.name}: "
                    f"{words(error)}.",
                    hint="Plan again once the database answers.",
                ) from error
            return Unknown(words(error))

    def _unless_cancelled(self, error: SQLAlchemyError) -> None:
        self.target.database.raise_if_cancelled(error, f"counting {self.target.name}")

    def _number(self, where: ColumnElement[bool]) -> Select[Any]:
        return select(func.count()).select_from(self.rows.table).where(where)

    def _sealable(self) -> Count:
        found = self.count(self._number(self.rows.predicate))
        backend = self.target.database.backend.name
        if not self.target.owned and backend != "sqlite":
            return found
        items = self.count(self._number(self.taken))
        if isinstance(items, int) and isinstance(found, int) and found > items:
            self.unfit = True
            self.notes.append(
                f"{found - items:,} more row(s) match but are left out and kept: a key of theirs is NULL, empty, a URL, "
                "longer than 1,024 bytes, or one that no request can delete safely, and so names no row or object."
            )
        return items

    def _strange_keys(self) -> Iterator[str]:
        """Tell of values in key columns that name no object, by kind."""
        said = self.target.owned.strange(self.target.database.backend.name)
        if not said:
            return
        sums = [func.sum(case((clause, 1), else_=0)) for _, clause in said]
        row = self._row(select(*sums).select_from(self.rows.table).where(self.rows.predicate))
        if isinstance(row, Unknown):
            yield f"How many keys name no object is {row}."
            return
        yield from (f"{int(n):,} matching row(s) {end}." for (end, _), n in zip(said, row, strict=True) if n)

    def _narrow(self, portion: int) -> None:
        if self.target.time_column is None:
            self.notes.append(
                "There is no time column of this table's own: the portion is the first rows by key."
            )
        try:
            where = self.target.portioned(self.connection, self.as_of, portion)
        except SQLAlchemyError as error:
            self._unless_cancelled(error)
            self.notes.append(
                f"The portion's edge is unknown ({words(error)}); what goes along is counted for all."
            )
            return
        if where is not None:
            self.taken = where

    def _nulls(self) -> Count:
        columns = [t.left for t in self.target.time_tests if predicate.belongs(t.left, self.rows.table)]
        if not columns:
            return 0
        unique = {str(c): c for c in columns}
        if len(unique) > 1:
            for name, column in unique.items():
                self.notes.append(f"{name} is NULL in {self.count(self._number(column.is_(None)))} row(s).")
        return self.count(self._number(or_(*(c.is_(None) for c in unique.values()))))

    @cached_property
    def _without_age(self) -> ColumnElement[bool] | Unknown:
        try:
            where = predicate.ageless(self.rows.predicates)
        except predicate.NotDeterminableError as error:
            return Unknown(str(error))
        # Shares and forecasts are of what could go. Asked only where it matters: an index on the time alone no longer suffices.
        return and_(where, *self.target.fit()) if self.unfit else where

    def _ageless(self) -> Count | None:
        if not self.target.time_tests:
            return None
        where = self._without_age
        return where if isinstance(where, Unknown) else self.count(self._number(where))

    def _tell_idle_conditions(self, total: Count, nulls: Count, ageless: Count | None) -> None:
        """Tell where the conditions beside the age test keep no row at all: they may not be what was meant."""
        counts = (total, nulls, ageless)
        beside = any(not predicate.time_tests([p]) for p in self.rows.predicates)
        if beside and all(isinstance(c, int) for c in counts) and total and ageless == total - nulls:  # type: ignore[operator]
            self.notes.append(
                f"Without its age test the predicate matches all {ageless:,} rows that have a time: its other conditions keep none."
            )

    def _late(self, since: datetime) -> Count:
        return self.count(self._number(self.target.sealable()), predicate.parameters(self.rows, since))

    def _ages(self, total: Count) -> AgeProfile | Unknown | None:
        tests = self.target.time_tests
        if len(tests) != 1 or not predicate.belongs(tests[0].left, self.rows.table):
            return None
        where, test = self._without_age, tests[0]
        if isinstance(where, Unknown):
            return where
        name = getattr(test.left, "name", None)
        indexed = name is not None and self.target.schema.has_index(self.target.schema.table, (name,))
        if not indexed and (isinstance(total, Unknown) or total > SMALL_TABLE):
            return Unknown(f"{name or test.left} has no index, and the table has {total} rows")
        empty = AgeProfile()

        def at(days: int) -> ColumnElement[Any]:
            return literal(test.cutoff.later(self.as_of, days), test.left.type)

        older = self.count(self._number(and_(where, test.left < at(-empty.back))))
        if isinstance(older, Unknown):
            return older
        days: list[tuple[int, int]] = []
        for start in range(-empty.back, empty.ahead, DAYS_AT_ONCE):
            span = range(start, min(start + DAYS_AT_ONCE, empty.ahead))
            ranges = [and_(where, test.left >= at(day), test.left < at(day + 1)) for day in span]
            numbers = self._row(select(*(self._number(r).scalar_subquery() for r in ranges)))
            if isinstance(numbers, Unknown):
                return numbers
            days += [(day, int(number)) for day, number in zip(span, numbers, strict=True) if number]
        return AgeProfile(tuple(days), older, empty.back, empty.ahead)

    def _objects(self) -> tuple[Count, Count | None, Count]:
        """Count objects, their bytes, and those with a known ETag."""
        # What lies below a prefix only a listing can count.
        spots = [s for s in self.target.owned.spots if not s.prefix]
        if not spots:
            return 0, None, 0
        shared = self.target.shared
        numbers: list[Count] = []
        sizes: list[Count] = []
        dated: list[Count] = []
        for bucket in dict.fromkeys(s.keys.bucket for s in spots):
            mine = [s for s in spots if s.keys.bucket == bucket]
            named = [
                select(s.expression.label("sd_key")).where(self.taken, s.expression.is_not(None))
                for s in mine
            ]
            if shared:
                whole = (
                    union(*named).subquery("sd_names")
                    if len(named) > 1
                    else named[0].distinct().subquery("sd_names")
                )
                numbers.append(self.count(select(func.count()).select_from(whole)))
            else:
                numbers += [
                    self.count(select(func.count()).select_from(n.subquery("sd_names"))) for n in named
                ]
        for spot in spots:
            held = and_(self.taken, spot.expression.is_not(None))
            if spot.keys.etag is not None:
                dated.append(self.count(self._number(and_(held, spot.keys.etag.is_not(None)))))
            if spot.keys.size is None:
                sizes.append(Unknown(f"no size= for the objects in {spot.keys.bucket}"))
                continue
            without = self.count(self._number(and_(held, spot.keys.size.is_(None))))
            if without != 0:
                sizes.append(Unknown(f"{without} object(s) in {spot.keys.bucket} have no size"))
                continue
            each = select(spot.expression, func.max(spot.keys.size).label("size")).where(held)
            each = (
                each.group_by(spot.expression) if shared else select(spot.keys.size.label("size")).where(held)
            )
            sizes.append(self.count(select(func.sum(each.subquery("sd_sizes").c.size))))
        known = any(s.keys.size is not None for s in spots)
        return _sum(numbers), _sum(sizes) if known else None, _sum(dated)

    def _cascades(self) -> tuple[tuple[Cascade, ...], list[str]]:
        try:
            with self.target.database.connected() as other, self.target.database.reading(other):
                return blast_radius(self.target, other, self.taken, self.count, self.values)
        except SQLAlchemyError as error:
            self._unless_cancelled(error)
            if lost(error):
                raise StoreError(
                    f"The connection to {self.target.database.name} was lost: {words(error)}.",
                    hint="Plan again once the database answers.",
                ) from error
            return (Cascade("(unknown)", "delete", Unknown(words(error)), "foreign keys"),), []

    def _sample(self) -> list[str]:
        return self._rendered(descending=False, limit=SAMPLE)

    def _last(self) -> str:
        found = self._rendered(descending=True, limit=1)
        return found[0] if found else ""

    def _rendered(self, *, descending: bool, limit: int) -> list[str]:
        keys, owned = self.target.keys, self.target.owned
        time = self.target.time_column
        shown = [] if time is None else [time.label("sd_time")]
        order = [c.desc() for c in keys.order()] if descending else list(keys.order())
        statement = (
            select(*keys.selected(), *owned.selected(), *shown)
            .where(self.taken)
            .order_by(*order)
            .limit(limit)
        )
        try:
            with self.target.database.reading(self.connection):
                found = self.connection.execute(statement, self.values).all()
        except SQLAlchemyError as error:
            self._unless_cancelled(error)
            if lost(error):
                raise StoreError(
                    f"The connection to {self.target.database.name} was lost: {words(error)}.",
                    hint="Plan again once the database answers.",
                ) from error
            self.notes.append(f"No sample could be read: {words(error)}.")
            return []
        except (TypeError, ValueError) as error:
            self.notes.append(f"No sample could be read, for a value is none of the model's type: {error}.")
            return []
        lines: list[str] = []
        for row in found:
            key = ", ".join(f"{n}={predicate.show(v)}" for n, v in zip(keys.names, row, strict=False))
            extra = [] if time is None else [f"{getattr(time, 'name', 'time')}={predicate.show(row[-1])}"]
            named = owned.read(row[len(keys) :])
            extra += [f"s3://{ref.bucket}/{ref.key}" for ref in named.objects or ()]
            extra += [f"s3://{prefix.bucket}/{prefix.text}…" for prefix in named.prefixes]
            lines.append(f"{key} ({', '.join(extra)})" if extra else key)
        return lines


def _sum(counts: list[Count]) -> Count:
    total = 0
    for count in counts:
        if isinstance(count, Unknown):
            return count
        total += count
    return total
