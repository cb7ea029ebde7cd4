"""Describe a row target so that equal descriptions select equal rows.

The text is what a plan's fingerprint is made of. It must not depend on the process, on the order of a set, or on the
dialect, and holds the recipe of each cutoff rather than an instant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement

from safedelete.declare.orphans import S3Orphans
from safedelete.declare.targets import Rows, S3Keys
from safedelete.declare.time import Cutoff
from safedelete.errors import ConfigError


def definition(rows: Rows) -> str:
    """Return a target's definition as canonical JSON.

    Raises:
        ConfigError: The predicate holds a value that has no stable text.
    """
    document = {
        "table": rows.table.fullname,
        "key": [[c.name, type(c.type).__name__] for c in rows.table.primary_key.columns],
        "where": [expression(p) for p in rows.predicates],
        "owns": [_owned(keys) for keys in rows.owns],
        "may_touch": sorted(rows.may_touch),
        "anytime": rows.anytime,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def orphans_definition(target: S3Orphans) -> str:
    """Return the definition of a target of orphans as canonical JSON.

    Raises:
        ConfigError: A referencing expression holds a value that has no stable text.
    """
    document = {
        "orphans": [target.bucket, target.prefix],
        # Which columns name an object matters, not in which order they are said.
        "referenced_by": sorted((expression(c) for c in target.columns), key=json.dumps),
        "older_than": target.older_than.total_seconds(),
        "mode": target.mode,
        "missing_ok": target.missing_ok,
    }
    if target.outside_places:
        # Only where there are any, so that a definition without keeps its hash.
        document["outside_ok"] = sorted(
            (expression(target.columns[place]) for place in target.outside_places), key=json.dumps
        )
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _owned(keys: S3Keys) -> Mapping[str, Any]:
    return {
        "bucket": keys.bucket,
        "columns": [expression(c) for c in keys.columns],
        "shared": keys.shared,
        "etag": None if keys.etag is None else expression(keys.etag),
        "size": None if keys.size is None else expression(keys.size),
        "mode": keys.mode,
    } | ({} if keys.prefix is None else {"prefix": expression(keys.prefix)})


def expression(clause: ColumnElement[Any]) -> Mapping[str, Any]:
    """Return an expression's text with its values, in the one spelling that SQLAlchemy has without a dialect.

    Raises:
        ConfigError: It holds a value that has no stable text.
    """
    compiled = clause.compile()
    text = " ".join(str(compiled).split())
    values = {name: canonical(v, name) for name, v in sorted(compiled.params.items())}
    for name, bind in getattr(compiled, "binds", {}).items():
        if bind.expanding and isinstance(values.get(name), list):
            values[name].sort(
                key=repr
            )  # the order of IN (...) selects nothing, and a set's differs by process
    return {"sql": text, "values": values}


_RENDER: Final[Mapping[type, Callable[[Any], Any]]] = {
    type(None): lambda v: v,
    bool: lambda v: v,
    str: lambda v: v,
    int: lambda v: v,
    Cutoff: lambda v: ["cutoff", v.column, v.age.total_seconds(), v.shape, v.zone],
    float: lambda v: ["float", v.hex()],
    Decimal: lambda v: ["decimal", str(v)],
    UUID: lambda v: ["uuid", v.hex],
    datetime: lambda v: ["datetime", v.isoformat()],
    date: lambda v: ["date", v.isoformat()],
    time: lambda v: ["time", v.isoformat()],
    timedelta: lambda v: ["timedelta", v.total_seconds()],
    bytes: lambda v: ["bytes", v.hex()],
}


def canonical(value: Any, name: str) -> Any:
    """Return a value as JSON takes it, the same in every process.

    Args:
        value: Whatever a declaration holds.
        name: What it is called, for the message.

    Raises:
        ConfigError: Its text differs from process to process.
    """
    render = _RENDER.get(type(value))
    if render is not None:
        return render(value)
    if isinstance(value, Enum):
        return ["enum", type(value).__name__, value.name]
    if isinstance(value, (list, tuple)):
        return [canonical(v, name) for v in value]
    if isinstance(value, (set, frozenset)):
        return sorted((canonical(v, name) for v in value), key=repr)
    if isinstance(value, dict):
        return {str(k): canonical(v, name) for k, v in sorted(value.items(), key=lambda item: str(item[0]))}
    return _other(value, name)


def _other(value: Any, name: str) -> Any:
    text = repr(value)
    if " at 0x" in text:
        raise ConfigError(
            f"The predicate's value {name} is a {type(value).__name__}, whose text differs from process to process.",
            hint="Use a plain value (text, number, date, UUID), so that two plans of one definition can be told to be one.",
        )
    return [type(value).__name__, text]
