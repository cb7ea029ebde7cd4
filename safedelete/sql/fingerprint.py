"""Describe a row target so that equal descriptions select equal rows.

The text is what a plan's fingerprint is made of. It must not depend on the process, on the order of a set, or on the
dialect, and holds the recipe of each cutoff rather than an instant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement

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
        "where": [_expression(p) for p in rows.predicates],
        "owns": [_owned(keys) for keys in rows.owns],
        "may_touch": sorted(rows.may_touch),
        "anytime": rows.anytime,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _owned(keys: S3Keys) -> Mapping[str, Any]:
    return {
        "bucket": keys.bucket,
        "columns": [_expression(c) for c in keys.columns],
        "shared": keys.shared,
        "etag": None if keys.etag is None else _expression(keys.etag),
        "size": None if keys.size is None else _expression(keys.size),
        "mode": keys.mode,
    }


def _expression(expression: ColumnElement[Any]) -> Mapping[str, Any]:
    # Without a dialect SQLAlchemy renders any construct, in one neutral spelling.
    compiled = expression.compile()
    text = " ".join(str(compiled).split())
    return {"sql": text, "values": {name: _value(v, name) for name, v in sorted(compiled.params.items())}}


def _value(value: Any, name: str) -> Any:
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return ["enum", type(value).__name__, value.name]
        case int():
            return value
        case Cutoff():
            return ["cutoff", value.column, value.age.total_seconds(), value.shape, value.zone]
        case float():
            return ["float", value.hex()]
        case Decimal() | UUID():
            return [type(value).__name__, str(value)]
        case datetime() | date() | time():
            return [type(value).__name__, value.isoformat()]
        case timedelta():
            return ["timedelta", value.total_seconds()]
        case bytes():
            return ["bytes", value.hex()]
        case list() | tuple():
            return [_value(v, name) for v in value]
        case set() | frozenset():
            return sorted((_value(v, name) for v in value), key=repr)
        case dict():
            return {str(k): _value(v, name) for k, v in sorted(value.items(), key=lambda kv: str(kv[0]))}
    text = repr(value)
    if " at 0x" in text:
        raise ConfigError(
            f"The predicate's value {name} is a {type(value).__name__}, whose text differs from process to process.",
            hint="Use a plain value (text, number, date, UUID), so that two plans of one definition can be told to be one.",
        )
    return [type(value).__name__, text]
