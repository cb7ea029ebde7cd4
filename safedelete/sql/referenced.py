"""Which keys rows name: streamed in the order of their UTF-8 bytes, and asked for again by equality. Reads only.

The two ways are independent. The order is asked of the database explicitly, in whatever way each one compares bytes, and
the reader proves it. Equality is asked under the column's own collation, which an index serves and which can only find
too much; what it finds is compared byte for byte here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Dialect,
    FromClause,
    LargeBinary,
    String,
    Text,
    and_,
    any_,
    bindparam,
    case,
    cast,
    collate,
    func,
    literal,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.dialects.mysql import CHAR
from sqlalchemy.dialects.postgresql import ARRAY

from safedelete.core.item import ObjectRef
from safedelete.core.orphans import Value, after_all, meaning, mistaken
from safedelete.errors import StoreError
from safedelete.ports import ColumnValues, Values
from safedelete.sql.engine import Database
from safedelete.sql.failures import translated
from safedelete.sql.keys import matching

PAGE: Final = 20_000
"""Keys a page. Without an index in byte order the database sorts once for each page, so they are large."""

CHUNK: Final = 1_000
"""Keys a query by equality: below every database's limit of parameters."""


class Column:
    """One referencing column or expression, on one dialect.

    Args:
        expression: As declared.
        dialect: The database's.
    """

    def __init__(self, expression: ColumnElement[Any], dialect: Dialect) -> None:
        self._dialect = dialect
        self._plain = expression
        self.text: ColumnElement[Any] = type_coerce(expression, String())
        self.source: FromClause = select(expression).get_final_froms()[0]
        self.table = str(getattr(self.source, "fullname", getattr(self.source, "name", self.source)))
        self.name = " ".join(str(expression).split())

    @property
    def bytes(self) -> ColumnElement[Any]:
        """The key as something that the database compares byte by byte."""
        match self._dialect.name:
            case "postgresql":
                # As text: char(n) loses its padding on the way, and citext its case-blindness.
                return collate(cast(self._plain, Text), "C")
            case "sqlite":
                return collate(self.text, "BINARY")
            case _:
                return cast(cast(self._plain, CHAR(charset="utf8mb4")), LargeBinary)

    def bound(self, key: str) -> ColumnElement[Any]:
        """Return a value to compare :attr:`bytes` with."""
        if self._dialect.name in ("postgresql", "sqlite"):
            return literal(key, Text())
        return literal(key.encode(), LargeBinary())

    def read(self, value: Any) -> str:
        """Return a selected key as text."""
        key = self.decoded(value)
        if not isinstance(key, str):
            raise StoreError(
                f"{self.name} holds a {type(key).__name__} where a key should be.",
                hint="Give the SQL expression that makes the key of it.",
            )
        return key

    def decoded(self, value: Any) -> Any:
        """Return a selected value; whatever it is, where it is no text."""
        binary = self._dialect.name not in ("postgresql", "sqlite")
        return value.decode() if binary and isinstance(value, bytes) else value

    def under(self, prefix: str) -> ColumnElement[bool]:
        """Match keys that begin with a prefix."""
        clauses = [self.text.is_not(None), self.bytes >= self.bound(prefix)]
        above = after_all(prefix)
        if above is not None:
            clauses.append(self.bytes < self.bound(above))
        if prefix and self._dialect.name not in ("postgresql", "sqlite"):
            # An index in the column's own order finds at least these.
            clauses.append(self.text.startswith(prefix, autoescape=True))
        return and_(*clauses)

    def equals(self, keys: Sequence[str], charset: str = "utf8mb4") -> Iterator[ColumnElement[bool]]:
        """Yield questions that together match at least these keys.

        Args:
            keys: The keys.
            charset: On MariaDB and MySQL, the column's character set.
        """
        match self._dialect.name:
            case "postgresql":
                # Its text holds no NUL, and would not be asked for one.
                sayable = [key for key in keys if "\0" not in key]
                if sayable:
                    array = bindparam(None, sayable, type_=ARRAY(Text()), unique=True)
                    yield cast(self._plain, Text) == any_(array)
            case "sqlite":
                nul = any("\0" in key for key in keys)
                yield self.text.in_(keys) if nul else matching(self.text, keys, self._dialect)
            case _:
                # A narrower character set refuses to be compared with what it cannot spell; bytes can be, without an index.
                fit = [key for key in keys if charset == "utf8mb4" or key.isascii()]
                if fit:
                    yield self.text.in_(fit)
                if len(fit) < len(keys):
                    yield self.bytes.in_([self.bound(key) for key in keys if key not in set(fit)])

    def charset(self, connection: Connection) -> str:
        """Return the column's character set on MariaDB and MySQL; empty elsewhere, and where there is no row. Reads only."""
        if self._dialect.name in ("postgresql", "sqlite"):
            return ""
        return str(connection.execute(select(func.charset(self._plain)).limit(1)).scalar() or "")

    @property
    def strange(self) -> ColumnElement[bool]:
        """Match values that are no text at all, which only SQLite lets into a text column."""
        kind = func.typeof(self.text)
        return kind.not_in(["text", "null"])


class Edges(NamedTuple):
    """A column's first and last key in byte order; None where it has none."""

    name: str
    edges: tuple[str, str] | None


class SqlReferences:
    """The keys under one prefix that some columns hold. Implements ``ports.References``. Reads only.

    Args:
        columns: Columns or SQL expressions, each of one table.
        database: Where they are.
        bucket: The bucket their values are keys of.
        prefix: Leading characters of the keys that matter.
        page: Keys a page.
    """

    def __init__(
        self,
        columns: Sequence[ColumnElement[Any]],
        database: Database,
        bucket: str,
        prefix: str,
        *,
        page: int = PAGE,
    ) -> None:
        self.database = database
        self.columns = tuple(Column(c, database.engine.dialect) for c in columns)
        self._bucket = bucket
        self._prefix = prefix
        self._page = page

    def values(self) -> Values:
        """Count what the columns hold beside plain keys. Reads only; idempotent."""
        rows: dict[str, int] = {}
        blank = elsewhere = unmatched = 0
        example = ""
        held: list[ColumnValues] = []
        with self.database.connected() as connection:
            for column in self.columns:
                before = elsewhere
                doing = f"counting what {column.name} holds"
                odd = _odd(column, mistaken(self._bucket, self._prefix), self.database.backend.name)
                counts = select(
                    func.count(),
                    func.sum(case((or_(column.text.is_(None), column.text == ""), 1), else_=0)),
                    func.sum(case((odd, 1), else_=0)),
                    func.sum(case((column.under(self._prefix), 1), else_=0)),
                ).select_from(column.source)
                with translated(doing), self.database.reading(connection):
                    total, nothing, suspects, under = connection.execute(counts).one()
                    rows[column.table] = int(total)
                    blank += int(nothing or 0)
                    # Each distinct value once, a page of them at a time.
                    found: Iterable[Any] = (
                        connection.execute(
                            select(column.bytes, func.count()).where(odd).group_by(column.bytes),
                            execution_options={"yield_per": CHUNK},
                        )
                        if suspects
                        else ()
                    )
                    for value, number in found:
                        text = column.decoded(value)
                        match meaning(text, self._bucket, self._prefix):
                            case Value.ELSEWHERE:
                                elsewhere += number
                            case Value.UNMATCHED:
                                unmatched += number
                                example = example or f"{str(text)[:200]!r} in {column.name}"
                            case Value.KEY:
                                pass
                plain = int(total) - int(nothing or 0) - (elsewhere - before)
                held.append(ColumnValues(column.name, plain, int(under or 0)))
        return Values(
            tuple(sorted(table for table, number in rows.items() if number == 0)),
            blank,
            elsewhere,
            unmatched,
            example,
            tuple(held),
        )

    def streams(self) -> Sequence[Iterator[str]]:
        """Return the keys under the prefix, one stream for each column, in byte order. Reads only."""
        return [self._stream(column) for column in self.columns]

    def named(self, refs: Sequence[ObjectRef]) -> Collection[ObjectRef]:
        """Return those objects that a row names now, byte for byte. Reads only."""
        wanted = sorted({ref.key for ref in refs if ref.bucket == self._bucket})
        found: set[str] = set()
        with translated("asking what rows name"), self.database.reading() as connection:
            for column in self.columns:
                with translated(f"asking which objects {column.name} names"):
                    charset = column.charset(connection)
                    for start in range(0, len(wanted), CHUNK):
                        for some in column.equals(wanted[start : start + CHUNK], charset):
                            # Distinct as bytes: as texts, one spelling would be left of those that a collation takes for one.
                            rows = connection.execute(select(column.bytes).where(some).distinct())
                            found.update(column.read(value) for value in rows.scalars())
        return [ref for ref in refs if ref.bucket == self._bucket and ref.key in found]

    def edges(self) -> Sequence[Edges]:
        """Return each column's first and last key in byte order. Reads only."""
        found: list[Edges] = []
        for column in self.columns:
            statement = select(func.min(column.bytes), func.max(column.bytes)).where(
                column.text.is_not(None), column.text != ""
            )
            with (
                translated(f"looking for the first and last key of {column.name}"),
                self.database.reading() as connection,
            ):
                first, last = connection.execute(statement).one()
            found.append(
                Edges(column.name, None if first is None else (column.read(first), column.read(last)))
            )
        return found

    def _stream(self, column: Column) -> Iterator[str]:
        page = select(column.bytes).where(column.under(self._prefix)).order_by(column.bytes).limit(self._page)
        last: str | None = None
        while True:
            statement = page if last is None else page.where(column.bytes > column.bound(last))
            with (
                translated(f"reading the keys of {column.name} in byte order"),
                self.database.reading() as connection,
            ):
                keys = [column.read(value) for value in connection.execute(statement).scalars()]
            # An empty value is no key; under an empty prefix it comes first.
            yield from (key for key in keys if key)
            if len(keys) < self._page:
                return
            last = keys[-1]


def _odd(column: Column, beginnings: Sequence[str], dialect: str) -> ColumnElement[bool]:
    """Match values worth a look: everything with ``://``, and what begins like a key with the bucket before it."""
    suspects: list[ColumnElement[bool]] = [column.text.contains("://", autoescape=True)]
    suspects += [column.text.startswith(text, autoescape=True) for text in beginnings]
    if dialect == "sqlite":
        suspects.append(column.strange)
    return or_(*suspects)
