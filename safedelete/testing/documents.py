"""JSON documents: which of their values a purge reads, and documents that hold such values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import BinaryExpression, Column, ColumnElement
from sqlalchemy.sql import operators, visitors
from sqlalchemy.sql.elements import BindParameter

Path: TypeAlias = tuple[str, ...]
"""The names that lead to one value of a document, from the outermost."""

Read: TypeAlias = tuple[Column[Any], Path]
"""A column, and what is read of its document; of any other column nothing is, and the path is empty."""

_POSTGRESQL: Final = ("->", "->>", "#>", "#>>")


def read_by(expression: ColumnElement[Any]) -> Iterator[Read]:
    """Yield every column that an expression reads, with the path where it takes a value out of a document.

    A path through an array is left out: what has no name is not made up.
    """
    within: set[Any] = set()
    for element in visitors.iterate(expression):
        if element in within:
            continue
        if isinstance(element, Column):
            yield _own(element), ()
        elif isinstance(element, BinaryExpression) and takes_out(element):
            within |= set(visitors.iterate(element))
            found = _read(element)
            if found is not None:
                yield found


def _read(element: Any) -> Read | None:
    path: list[Any] = []
    while isinstance(element, BinaryExpression) and takes_out(element):
        if not isinstance(element.right, BindParameter):
            return None
        step = element.right.value
        path[:0] = step if isinstance(step, (list, tuple)) else [step]
        element = element.left
    if not isinstance(element, Column) or not all(isinstance(step, str) for step in path):
        return None
    return _own(element), tuple(path)


def _own(column: Column[Any]) -> Column[Any]:
    """Return a column as its table has it: in an expression of a model's attributes it is a copy."""
    return next((own for own in column.table.columns if hash(own) == hash(column)), column)


def takes_out(element: BinaryExpression[Any]) -> bool:
    """Whether an expression takes a value out of a document."""
    found: Any = element.operator
    return (
        found in (operators.json_getitem_op, operators.json_path_getitem_op)
        or getattr(found, "opstring", None) in _POSTGRESQL
    )


def document(values: Mapping[Path, Any]) -> dict[str, Any]:
    """Return a document with each value at the end of its path."""
    made: dict[str, Any] = {}
    for path in sorted(values, key=len):
        place = made
        for name in path[:-1]:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[path[-1]] = values[path]
    return made
