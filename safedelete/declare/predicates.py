"""Look at each declared predicate before any database does: what is no condition, or not the one that was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

from sqlalchemy import BinaryExpression, Column, ColumnElement, Exists, Table, and_, false, true, types
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import (
    AsBoolean,
    BindParameter,
    BooleanClauseList,
    ColumnClause,
    Grouping,
    TextClause,
)
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.selectable import SelectBase

from safedelete.declare.time import misplaced
from safedelete.errors import ConfigError

_CLOCKS: Final = frozenset(
    [
        "now",
        "current_timestamp",
        "current_date",
        "current_time",
        "localtimestamp",
        "localtime",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "timeofday",
        "sysdate",
        "sysdatetime",
        "getdate",
        "utc_timestamp",
        "utc_date",
        "utc_time",
        "curdate",
        "curtime",
    ]
)
_CHANCE: Final = frozenset(
    [
        "random",
        "rand",
        "randomblob",
        "gen_random_uuid",
        "uuid",
        "uuid_short",
        "uuid_generate_v1",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
        "setseed",
    ]
)
_STATE: Final = frozenset(
    [
        "nextval",
        "currval",
        "lastval",
        "last_insert_id",
        "last_insert_rowid",
        "changes",
        "total_changes",
        "row_count",
        "found_rows",
        "connection_id",
        "pg_backend_pid",
        "txid_current",
        "pg_current_xact_id",
        "get_lock",
        "release_lock",
        "sleep",
        "pg_sleep",
    ]
)
VOLATILE: Final = _CLOCKS | _CHANCE | _STATE
"""Functions of PostgreSQL, MariaDB, MySQL and SQLite whose answer is another one each time."""

_NOW_ALONE: Final = frozenset({"age", "unix_timestamp"})
"""Functions that mean now where they are given one argument fewer than usual."""
_SQLITE_TIME: Final = frozenset(
    {"date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"}
)

_TEXT_CALL: Final = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(", re.IGNORECASE)
_TEXT_CLOCK: Final = re.compile(
    r"\b(current_(?:date|time|timestamp)|localtime(?:stamp)?|sysdate)\b|('now')", re.IGNORECASE
)
_QUOTED: Final = re.compile(r"'(?!now')(?:[^']|'')*'", re.IGNORECASE)

_WORD: Final = re.compile(r"[^\W\d]\w*")
_NO_NAMES: Final = frozenset(
    [
        "and",
        "or",
        "not",
        "is",
        "in",
        "between",
        "like",
        "true",
        "false",
        "null",
        "case",
        "when",
        "then",
        "else",
        "end",
    ]
)
"""Words of SQL that say nothing about a row by themselves."""

_INNERMOST: Final = re.compile(r"\([^()]*\)")
_OR: Final = re.compile(r"\bx?or\b|\|\|", re.IGNORECASE)

_ALWAYS: Final = frozenset({operators.eq, operators.le, operators.ge})


def check_predicates(predicates: Sequence[Any], table: Table, where: str, *, anytime: bool) -> None:
    """Raise unless each is a boolean expression that reads this table, with its age tests in their place.

    Args:
        predicates: As they were given.
        table: The table they are about.
        where: The target, for messages.
        anytime: Whether a purge without a time was declared; with it a lone ``true()`` empties the table on purpose.

    Raises:
        ConfigError: Names the predicate, and what to write instead.
    """
    for predicate in predicates:
        inner = predicate.__clause_element__() if hasattr(predicate, "__clause_element__") else predicate
        if not isinstance(inner, ColumnElement):
            raise ConfigError(
                f"{where}: {predicate!r} is a {type(predicate).__name__}, not a SQLAlchemy boolean expression.",
                hint="Compare a column, for example Upload.legal_hold.is_(False). SQL as text goes into "
                "sqlalchemy.literal_column('…', sqlalchemy.Boolean).",
            )
        if not isinstance(_plain(inner.type), (types.Boolean, types.NullType)):
            raise ConfigError(
                f"{where}: {inner!s} is of type {inner.type!r}, not a boolean expression.",
                hint="Compare it with a value, for example column == 1.",
            )
        wrong = misplaced(inner)
        if wrong is not None:
            raise ConfigError(
                f"{where}: {_said(wrong)} turns an age test round, or puts it where its meaning "
                "cannot be told; older_than(...) and past(...) may stand under and_() and or_() only.",
                hint="A NOT around an age test would purge everything younger. To keep rows until a time, say "
                "past(column); to purge younger rows on purpose, compare the column yourself, with anytime=True.",
            )
        on_purpose = anytime and len(predicates) == 1 and inner.compare(true())
        if not on_purpose:
            _same_for_every_row(inner, where)
        _volatile(inner, where)
        _mistyped(inner, where)
        _loose(inner, where)
        _unjoined(inner, table, where)


def functions(predicate: ColumnElement[Any]) -> set[str]:
    """Return the names of the functions that a predicate calls, lower case; those in SQL text as far as they show."""
    found: set[str] = set()
    for element in visitors.iterate(predicate):
        if isinstance(element, FunctionElement):
            found.add(str(getattr(element, "name", "")).lower())
        text = _text(element)
        if text:
            found |= {name.lower() for name in _TEXT_CALL.findall(_QUOTED.sub("''", text))}
    return found


def enclosed(predicate: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return a predicate with its SQL text in parentheses.

    What follows a text could belong to it: a comment in it would swallow the other conditions, the sealed keys among them. In
    parentheses such a text is none that a database runs.
    """
    if _text(predicate):
        return Grouping(predicate)
    if isinstance(predicate, AsBoolean) and _text(predicate.element):
        compared: Any = AsBoolean  # SQLAlchemy gives its arguments no types
        return compared(Grouping(predicate.element), predicate.operator, predicate.negate)  # type: ignore[no-any-return]
    if isinstance(predicate, BooleanClauseList) and predicate.operator is operators.and_:
        return and_(*map(enclosed, predicate.clauses))
    return predicate


def family(kind: types.TypeEngine[Any]) -> str:
    """Return what sort of value a column type holds; empty where that cannot be told, as for a type of the user's own."""
    if isinstance(kind, types.TypeDecorator):
        return ""
    for sort, kinds in _FAMILIES.items():
        if isinstance(kind, kinds):
            return sort
    return ""


_FAMILIES: Final[dict[str, tuple[type[types.TypeEngine[Any]], ...]]] = {
    "boolean": (types.Boolean,),
    "uuid": (types.Uuid,),
    "number": (types.Integer, types.Numeric),
    "text": (types.String,),
    "timestamp": (types.DateTime,),
    "date": (types.Date,),
    "binary": (types._Binary,),  # noqa: SLF001 - the only name that BLOB and VARBINARY share
}

_COERCED: Final = frozenset(
    {
        ("text", "number"),
        ("text", "boolean"),
        ("number", "text"),
        ("timestamp", "number"),
        ("date", "number"),
    }
)
"""Column and value that some database compares all the same, by making a number of the text: ``'abc' = 0`` is true."""


def _value_family(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float, Decimal)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "date" if isinstance(value, date) else ""


def _same_for_every_row(predicate: ColumnElement[Any], where: str) -> None:
    """Raise where a condition, or one side of an AND or OR, does not depend on the row."""
    for part in _conditions(predicate):
        if part.compare(false()):
            continue
        if _is_comparison_with_itself(part):
            raise ConfigError(
                f"{where}: {_said(part)} compares a column with itself, which is true for every row that has a value.",
                hint="Compare it with the value that was meant.",
            )
        if _is_not_in_nothing(part):
            raise ConfigError(
                f"{where}: {_said(part)} excludes an empty list, so it is true for every row.",
                hint="If the list was looked up, find out why it came back empty; leave the condition out where nothing is protected.",
            )
        if not any(_reads(element) for element in visitors.iterate(part)):
            raise ConfigError(
                f"{where}: {_said(part)} reads no column, so it is the same for every row.",
                hint="Leave it out, or name the column that was meant.",
            )


def _conditions(predicate: ColumnElement[Any]) -> Iterator[ColumnElement[Any]]:
    if isinstance(predicate, Grouping):
        inner: Any = predicate.element
        yield from _conditions(inner)
    elif isinstance(predicate, BooleanClauseList):
        for part in predicate.clauses:
            yield from _conditions(part)
    else:
        yield predicate


def _reads(element: object) -> bool:
    # What a function knows cannot be told from here, nor what a name in text means; text without a name reads nothing.
    text = _text(element)
    if text:
        return any(word.lower() not in _NO_NAMES for word in _WORD.findall(_QUOTED.sub("''", text)))
    return isinstance(element, (ColumnClause, SelectBase, FunctionElement))


def _is_comparison_with_itself(part: ColumnElement[Any]) -> bool:
    if not isinstance(part, BinaryExpression) or part.operator not in _ALWAYS:
        return False
    return isinstance(part.left, Column) and part.left.compare(part.right)


def _is_not_in_nothing(part: ColumnElement[Any]) -> bool:
    if not isinstance(part, BinaryExpression) or part.operator is not operators.not_in_op:
        return False
    right: Any = part.right
    return isinstance(right, BindParameter) and right.expanding and not right.value


def _volatile(predicate: ColumnElement[Any], where: str) -> None:
    for element in visitors.iterate(predicate):
        name = _changing(element)
        if name:
            raise ConfigError(
                f"{where}: the predicate calls {name}, whose answer changes from one statement to the next, so the rows that "
                "were planned and decided on would not be those that match later.",
                hint="For a time, say older_than(column, days=...) or past(column): their cutoff is frozen once for each plan. "
                "Any other value is computed in the job file, or in a column.",
            )


def _changing(element: object) -> str:
    if isinstance(element, FunctionElement):
        name = str(getattr(element, "name", "")).lower()
        values = [c.value for c in element.clauses if isinstance(c, BindParameter)]
        arguments = len(list(element.clauses))
        if name in _SQLITE_TIME and (not arguments or any(str(v).lower() == "now" for v in values)):
            return f"{name}('now')"
        if name in VOLATILE or (name in _NOW_ALONE and arguments == (1 if name == "age" else 0)):
            return f"{name}()"
        return ""
    text = _text(element)
    if not text:
        return ""
    bare = _QUOTED.sub("''", text)
    called = next((name for name in _TEXT_CALL.findall(bare) if name.lower() in VOLATILE), "")
    clock = _TEXT_CLOCK.search(bare)
    return f"{called}()" if called else clock.group(0) if clock else ""


def _text(element: object) -> str:
    if isinstance(element, TextClause):
        return element.text
    if isinstance(element, ColumnClause) and element.is_literal:
        return str(element.name)
    return ""


def _mistyped(predicate: ColumnElement[Any], where: str) -> None:
    for element in visitors.iterate(predicate):
        if not isinstance(element, BinaryExpression):
            continue
        for column, other in ((element.left, element.right), (element.right, element.left)):
            if not isinstance(column, Column) or not isinstance(other, BindParameter):
                continue
            given = other.value if isinstance(other.value, (list, tuple)) else [other.value]
            for value in given:
                if (family(column.type), _value_family(value)) in _COERCED:
                    raise ConfigError(
                        f"{where}: {column.name} holds {family(column.type)} ({column.type!r}) and is compared with {value!r}, "
                        f"which is {_value_family(value)}.",
                        hint="Some databases turn the text into a number first, and then '' or 'abc' equals 0. Give a value of "
                        "the column's own type, or cast() on purpose.",
                    )


def _loose(predicate: ColumnElement[Any], where: str) -> None:
    """Raise where an OR in SQL text would reach beyond the text: it binds less tightly than the AND beside it."""
    for element in visitors.iterate(predicate):
        bare = _QUOTED.sub("''", _text(element))
        while (shorter := _INNERMOST.sub("", bare)) != bare:
            bare = shorter
        if _OR.search(bare):
            raise ConfigError(
                f"{where}: the text {_text(element)!r} holds an OR or XOR without parentheses, so it would take effect beside the other "
                "conditions instead of under them.",
                hint="Put the text into parentheses, or use sqlalchemy.or_().",
            )


def _unjoined(predicate: ColumnElement[Any], table: Table, where: str) -> None:
    for element in visitors.iterate(predicate):
        if not isinstance(element, Exists) and not _asks_elsewhere(element, predicate):
            continue
        inside = list(visitors.iterate(element))
        if any(_text(part) for part in inside if part is not element and not _is_star(part)):
            continue
        if not any(
            isinstance(p, Column) and getattr(p.table, "fullname", "") == table.fullname for p in inside
        ):
            raise ConfigError(
                f"{where}: {_said(element)} does not mention {table.fullname}, so it says the same for every row.",
                hint="Join it: sqlalchemy.exists().where(Other.id == ThisTable.other_id). A switch for the whole purge is "
                "Purge(..., pause_when=...).",
            )


def _asks_elsewhere(element: Any, predicate: ColumnElement[Any]) -> bool:
    """Whether this is a whole condition, one side of an AND or OR, that holds a query."""
    if not any(element is part for part in _conditions(predicate)):
        return False
    return any(isinstance(part, SelectBase) for part in visitors.iterate(element))


def _is_star(element: object) -> bool:
    return isinstance(element, ColumnClause) and element.is_literal and str(element.name) in ("*", "1")


def _said(expression: object) -> str:
    return " ".join(str(expression).split())


def _plain(kind: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    return kind.impl_instance if isinstance(kind, types.TypeDecorator) else kind
