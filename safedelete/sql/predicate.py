"""Take a declared predicate apart: its age tests, its parameters at an instant, and what it is without its age tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from sqlalchemy import BinaryExpression, ColumnElement, Dialect, Table, and_, or_, select
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BindParameter, BooleanClauseList, Grouping

from safedelete.declare.targets import Rows
from safedelete.declare.time import Cutoff, resolve
from safedelete.errors import ConfigError


class NotDeterminableError(Exception):
    """The predicate is not a plain AND/OR around its age tests."""


@dataclass(frozen=True, slots=True)
class TimeTest:
    """An age test with the expression that it tests."""

    left: ColumnElement[Any]
    parameter: str
    cutoff: Cutoff


def time_tests(predicates: Iterable[ColumnElement[bool]]) -> tuple[TimeTest, ...]:
    """Find the age tests anywhere in these expressions, each once.

    Raises:
        ConfigError: Two of them share a parameter but not a meaning, so that one would get the other's cutoff.
    """
    found: dict[str, TimeTest] = {}
    for test in _walk(predicates):
        known = found.setdefault(test.parameter, test)
        if known.cutoff != test.cutoff:
            raise ConfigError(
                f"Two age tests on columns named {test.cutoff.column!r} have one age but hold time in different ways "
                f"({known.cutoff.shape} and {test.cutoff.shape}).",
                hint="Give one of the columns a label, or write their ages in slightly different ways.",
            )
    return tuple(found.values())


def belongs(expression: ColumnElement[Any], table: Table) -> bool:
    """Whether an expression reads this table alone."""
    froms = select(expression).get_final_froms()
    return bool(froms) and all(f is table for f in froms)


def parameters(rows: Rows, as_of: datetime) -> Mapping[str, datetime | date | int]:
    """Return the parameters to send with any statement that holds the predicate."""
    return resolve(rows.age_tests, as_of)


def ageless(predicates: Sequence[ColumnElement[bool]]) -> ColumnElement[bool]:
    """Return the predicate with each age test true for every row that has a time.

    NULL times still never match: with no retention at all, a row without an instant would be kept as well.

    Raises:
        NotDeterminableError: An age test stands under a NOT, in a CASE or in a subquery.
    """
    return and_(*(_without_age(p) for p in predicates))


def rendered(
    predicate: ColumnElement[bool], dialect: Dialect, values: Mapping[str, Any]
) -> tuple[str, dict[str, str]]:
    """Return the predicate as SQL, and its parameters as text, for a person to read."""
    compiled = predicate.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    shown = {
        name: show(values[name] if isinstance(value, Cutoff) and name in values else value)
        for name, value in compiled.params.items()
    }
    return " ".join(str(compiled).split()), shown


def show(value: Any) -> str:
    """Return a value as text for a plan."""
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return value if isinstance(value, str) else repr(value)


def _walk(predicates: Iterable[ColumnElement[bool]]) -> Iterator[TimeTest]:
    for predicate in predicates:
        for element in visitors.iterate(predicate):
            if isinstance(element, BinaryExpression) and isinstance(element.right, BindParameter):
                cutoff = _cutoff(element.right)
                if cutoff is not None:
                    yield TimeTest(element.left, str(element.right.key), cutoff)


def _cutoff(element: object) -> Cutoff | None:
    if isinstance(element, BindParameter) and isinstance(element.value, Cutoff):
        return element.value
    return None


def _without_age(element: ColumnElement[Any]) -> ColumnElement[Any]:
    if not any(_cutoff(part) for part in visitors.iterate(element)):
        return element
    if isinstance(element, Grouping):
        inner: Any = element.element
        return _without_age(inner)
    if isinstance(element, BooleanClauseList) and element.operator in (operators.and_, operators.or_):
        join = and_ if element.operator is operators.and_ else or_
        return join(*(_without_age(part) for part in element.clauses))
    if isinstance(element, BinaryExpression) and element.operator is operators.lt and _cutoff(element.right):
        left: ColumnElement[Any] = element.left
        return left.is_not(None)
    raise NotDeterminableError(
        "an age test stands under a NOT, in a CASE or in a subquery, so the predicate without it is not defined"
    )
