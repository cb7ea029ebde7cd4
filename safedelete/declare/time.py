"""``older_than`` and ``past``: the age tests of a purge, with a cutoff that is filled in once per plan.

Each makes an ordinary SQLAlchemy comparison, so that it can stand anywhere in a predicate. Its right side is a named
bind parameter whose value is a :class:`Cutoff`, a recipe rather than a time. ``resolve`` turns the recipes into values
at a plan's frozen instant; a statement sent without that fails in the driver instead of comparing with "now".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from sqlalchemy import BinaryExpression, ColumnElement, bindparam, types
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BindParameter, BooleanClauseList, Grouping

from safedelete.core.schedule import check_zone
from safedelete.errors import ConfigError

Unit: TypeAlias = Literal["s", "ms"]
Shape: TypeAlias = Literal["aware", "naive", "date", "s", "ms"]
TimeColumn: TypeAlias = "ColumnElement[Any] | InstrumentedAttribute[Any]"

_OLDEST: Final = timedelta(days=365_250)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cutoff:
    """How to get a cutoff from a plan's instant.

    Attributes:
        column: The column's name, for messages.
        age: How far behind the instant; zero for ``past``.
        shape: What the column holds.
        zone: IANA name of the zone that naive values and dates are in; None for UTC.
    """

    column: str
    age: timedelta
    shape: Shape
    zone: str | None = None

    def instant(self, as_of: datetime) -> datetime:
        """Return the cutoff as an aware UTC instant, exclusive.

        That of a date column is the midnight with which the first day begins that is kept.
        """
        instant = as_of.astimezone(UTC) - self.age
        if self.shape != "date":
            return instant
        local = instant.astimezone(self._tzinfo)
        return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)

    def value(self, as_of: datetime) -> datetime | date | int:
        """Return the cutoff in the column's own shape, exclusive.

        A date column compares as dates: a row dated on the cutoff's day is not yet older.
        """
        return self.shaped(self.instant(as_of))

    def shaped(self, instant: datetime) -> datetime | date | int:
        """Return any aware instant in the column's own shape."""
        zone = self._tzinfo
        match self.shape:
            case "aware":
                return instant.astimezone(UTC)
            case "naive":
                return _latest(instant, zone).replace(tzinfo=None)
            case "date":
                return instant.astimezone(zone).date()
            case "s":
                return int(instant.timestamp() // 1)
            case "ms":
                return int(instant.timestamp() * 1000 // 1)

    def later(self, as_of: datetime, days: int) -> datetime | date | int:
        """Return the cutoff some days of 24 hours later, in the column's own shape; of a date column so many dates later."""
        cutoff = self.instant(as_of)
        if self.shape == "date":
            return cutoff.astimezone(self._tzinfo).date() + days * _DAY
        return self.shaped(cutoff + days * _DAY)

    @property
    def _tzinfo(self) -> tzinfo:
        return ZoneInfo(self.zone) if self.zone else UTC


def _latest(instant: datetime, zone: tzinfo) -> datetime:
    """Return an instant's local time; in the first pass of a repeated hour, that of the moment when the hour begins.

    A naive value in such an hour means either of two instants. It counts as the later one, so that no row goes early.
    """
    local = instant.astimezone(zone)
    again = local.replace(fold=1)
    repeated = (local.utcoffset() or timedelta(0)) - (again.utcoffset() or timedelta(0))
    if local.fold or repeated <= timedelta(0):
        return local
    before, after = instant, instant + repeated
    while after - before > timedelta(microseconds=1):
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == local.utcoffset():
            before = middle
        else:
            after = middle
    return after.astimezone(zone)


def older_than(
    column: TimeColumn,
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    weeks: float = 0,
    age: timedelta | None = None,
    tz: str | None = None,
    unit: Unit | None = None,
) -> ColumnElement[bool]:
    """Match rows whose instant lies further back than an age.

    Rows exactly that old do not match yet (exclusive), and neither do rows whose column is NULL; the plan counts those.

    Args:
        column: A timestamp, date, or integer epoch column.
        days: Days of 24 hours; the parts add up.
        hours: Hours.
        minutes: Minutes.
        weeks: Weeks of seven days.
        age: The age as a timedelta, instead of the parts.
        tz: IANA zone of a naive timestamp or date column; UTC unless said.
        unit: ``"s"`` or ``"ms"`` for an integer column that holds a Unix epoch.

    Returns:
        A SQLAlchemy boolean expression for ``Rows``.

    Raises:
        ConfigError: No positive age was given, or the column cannot be compared with an instant.
    """
    parts = _parts(column, days=days, hours=hours, minutes=minutes, weeks=weeks)
    if age is not None and not isinstance(age, timedelta):
        raise ConfigError(
            f"older_than({_name(column)}, age={age!r}): age= takes a timedelta.",
            hint="For example age=timedelta(days=90), or days=90.",
        )
    if age is not None and parts:
        raise ConfigError(
            f"older_than({_name(column)}): give either age= or its parts, not both.",
            hint="For example days=90 alone.",
        )
    total = parts if age is None else age
    if total > _OLDEST:
        raise ConfigError(
            f"older_than({_name(column)}): the age is {total!s}, more than {_OLDEST.days:,} days (1,000 years).",
            hint="Check the unit: days=90 is three months.",
        )
    if total <= timedelta(0):
        raise ConfigError(
            f"older_than({_name(column)}): the age is {total!s}; it must be positive.",
            hint="Say how old a row must be, for example days=90. To match everything already past, use past(column).",
        )
    return _test(column, total, tz=tz, unit=unit, verb="older_than")


def past(column: TimeColumn, *, tz: str | None = None, unit: Unit | None = None) -> ColumnElement[bool]:
    """Match rows whose instant (an expiry) has passed.

    A row that expires at the plan's very instant does not match yet (exclusive); NULL never matches.

    Args:
        column: A timestamp, date, or integer epoch column.
        tz: IANA zone of a naive timestamp or date column; UTC unless said.
        unit: ``"s"`` or ``"ms"`` for an integer column that holds a Unix epoch.

    Returns:
        A SQLAlchemy boolean expression for ``Rows``.

    Raises:
        ConfigError: The column cannot be compared with an instant.
    """
    return _test(column, timedelta(0), tz=tz, unit=unit, verb="past")


@dataclass(frozen=True, slots=True)
class AgeTest:
    """One age test found in a predicate: its bind parameter's name and its recipe."""

    parameter: str
    cutoff: Cutoff


def age_tests(predicates: Iterable[ColumnElement[bool]]) -> tuple[AgeTest, ...]:
    """Find the age tests anywhere in these expressions, in order, each once."""
    return tuple({test.parameter: test for test in _find(predicates)}.values())


def misplaced(predicate: ColumnElement[Any]) -> ColumnElement[Any] | None:
    """Return the part of a predicate in which an age test may mean anything but "older"; None if there is none.

    An age test means what it says under AND and OR alone: a NOT turns it round, and what a CASE, a subquery or a
    comparison makes of it cannot be told.
    """
    if not any(_cutoff(part) for part in visitors.iterate(predicate)):
        return None
    if isinstance(predicate, Grouping):
        inner: Any = predicate.element
        return misplaced(inner)
    if isinstance(predicate, BooleanClauseList) and predicate.operator in (operators.and_, operators.or_):
        return next((found for part in predicate.clauses if (found := misplaced(part)) is not None), None)
    if isinstance(predicate, BinaryExpression) and predicate.operator is operators.lt:
        left: ColumnElement[Any] = predicate.left
        if _cutoff(predicate.right) and not any(_cutoff(part) for part in visitors.iterate(left)):
            return None
    return predicate


def resolve(tests: Iterable[AgeTest], as_of: datetime) -> dict[str, datetime | date | int]:
    """Return the parameters of these tests at a frozen instant."""
    return {test.parameter: test.cutoff.value(as_of) for test in tests}


def _parts(column: TimeColumn, **parts: float) -> timedelta:
    for name, value in parts.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ConfigError(
                f"older_than({_name(column)}, {name}={value!r}): {name}= takes a finite number.",
                hint="For example days=90.",
            )
    try:
        return timedelta(**parts)
    except OverflowError as error:
        raise ConfigError(
            f"older_than({_name(column)}, {parts}): longer than the calendar, {error}.",
            hint="Check the unit: days=90 is three months.",
        ) from error


def _find(predicates: Iterable[ColumnElement[bool]]) -> Iterator[AgeTest]:
    for predicate in predicates:
        for element in visitors.iterate(predicate):
            cutoff = _cutoff(element)
            if isinstance(element, BindParameter) and cutoff is not None:
                yield AgeTest(element.key, cutoff)


def _cutoff(element: object) -> Cutoff | None:
    if isinstance(element, BindParameter) and isinstance(element.value, Cutoff):
        return element.value
    return None


def _test(
    column: TimeColumn, age: timedelta, *, tz: str | None, unit: Unit | None, verb: str
) -> ColumnElement[bool]:
    expression = _expression(column, verb)
    shape = _shape(expression, unit, f"{verb}({_name(column)})")
    if tz is not None:
        if shape not in ("naive", "date"):
            raise ConfigError(
                f"{verb}({_name(column)}, tz={tz!r}): tz= is for naive timestamps and dates; this column is {shape}.",
                hint="Leave tz= out: its values name an instant by themselves.",
            )
        try:
            check_zone(tz)
        except ConfigError as error:
            raise ConfigError(
                f"{verb}({_name(column)}, tz={tz!r}): there is no such time zone.", hint=error.hint
            ) from error
    cutoff = Cutoff(_name(column), age, shape, tz)
    seconds = f"{age.total_seconds():.6f}".rstrip("0").rstrip(".").replace(".", "_")
    name = "".join(c if c.isalnum() else "_" for c in cutoff.column)
    zone = "" if tz is None else "_" + "".join(c if c.isalnum() else "_" for c in tz)
    return expression < bindparam(f"sd_{verb}_{name}_{seconds}{zone}", value=cutoff, type_=expression.type)


def _expression(column: object, verb: str) -> ColumnElement[Any]:
    inner = column.__clause_element__() if hasattr(column, "__clause_element__") else column
    if not isinstance(inner, ColumnElement):
        raise ConfigError(
            f"{verb}({column!r}): the first argument must be a column, for example Upload.created_at; "
            f"it is a {type(column).__name__}.",
            hint="A text or a relationship is none: name the column of the model or table.",
        )
    return inner


def _shape(expression: ColumnElement[Any], unit: Unit | None, where: str) -> Shape:
    kind = expression.type
    if isinstance(kind, types.TypeDecorator):
        kind = kind.impl_instance
    if isinstance(kind, types.Integer):
        if unit not in ("s", "ms"):
            raise ConfigError(
                f'{where}: an integer column needs unit="s" or unit="ms"; unit is {unit!r}.',
                hint="A wrong guess would move the cutoff by a factor of 1,000.",
            )
        return unit
    if unit is not None:
        raise ConfigError(
            f"{where}: unit={unit!r} is for integer columns; this one is {expression.type!r}.",
            hint="Leave unit= out.",
        )
    if isinstance(kind, types.DateTime):
        return "aware" if kind.timezone else "naive"
    if isinstance(kind, types.Date):
        return "date"
    raise ConfigError(
        f"{where}: the column's type is {expression.type!r}; allowed are timestamps, dates and integer epochs.",
        hint="Name another column; text that holds a time cannot be compared with one safely.",
    )


def _name(column: object) -> str:
    return str(getattr(column, "key", None) or getattr(column, "name", None) or column)
