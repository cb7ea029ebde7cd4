"""Look at each declared predicate before any database does: what is no condition, or not the one that was meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, types

from safedelete.declare.time import misplaced
from safedelete.errors import ConfigError


def check_predicates(predicates: Sequence[Any], where: str) -> None:
    """Raise unless each is a boolean expression with its age tests in their place.

    Args:
        predicates: As they were given.
        where: The target, for messages.

    Raises:
        ConfigError: Names the predicate, and what to write instead.
    """
    for predicate in predicates:
        inner = predicate.__clause_element__() if hasattr(predicate, "__clause_element__") else predicate
        if not isinstance(inner, ColumnElement):
            raise ConfigError(
                f"{where}: {predicate!r} is a {type(predicate).__name__}, not a SQLAlchemy boolean expression.",
                hint="Compare a column, for example Upload.legal_hold.is_(False).",
            )
        if not isinstance(_plain(inner.type), (types.Boolean, types.NullType)):
            raise ConfigError(
                f"{where}: {inner!s} is of type {inner.type!r}, not a boolean expression.",
                hint="Compare it with a value, for example column == 1.",
            )
        wrong = misplaced(inner)
        if wrong is not None:
            raise ConfigError(
                f"{where}: {' '.join(str(wrong).split())} turns an age test round, or puts it where its meaning "
                "cannot be told; older_than(...) and past(...) may stand under and_() and or_() only.",
                hint="A NOT around an age test would purge everything younger. To keep rows until a time, say "
                "past(column); to purge younger rows on purpose, compare the column yourself, with anytime=True.",
            )


def _plain(kind: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    return kind.impl_instance if isinstance(kind, types.TypeDecorator) else kind
