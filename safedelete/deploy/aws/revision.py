"""What a job's definition is known by: one hash of everything that is declared, whatever is declared in time to come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Table

from safedelete.core.limits import Guard
from safedelete.declare import (
    Declared,
    Inventory,
    Job,
    Purge,
    Rows,
    S3Endpoint,
    S3Keys,
    S3Orphans,
    S3Prefix,
)
from safedelete.sql.fingerprint import canonical, expression

DECLARED: Final = (Purge, Job, Guard, Rows, S3Keys, S3Prefix, S3Orphans, Inventory, S3Endpoint)
"""What is described by each of its attributes."""

_ENVIRONMENT: Final = "where it is belongs to the environment, and a URL may hold a password"

LEFT_OUT: Final[Mapping[type, Mapping[str, str]]] = {
    Purge: {
        "database": _ENVIRONMENT,
        "replicas": _ENVIRONMENT,
        "beside": "another job's definition has a revision of its own",
    },
    Rows: {"age_tests": "found in the predicates"},
    S3Prefix: {"pattern_regex": "compiled from the pattern"},
}
"""Attributes that are no part of it, each with its reason; every other one is."""


def revision_of(job: Declared) -> str:
    """Return what a job's definition is known by: equal definitions have equal ones.

    It stands in the task's environment and in the ledger, so that a change of a predicate or a limit is a new revision
    of the task definition, and tells what a run was deployed from. The code of a function is the image's, not its.

    Raises:
        ConfigError: A predicate holds a value that has no stable text.
    """
    text = json.dumps(_described(job, job.name), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _described(value: Any, name: str) -> Any:
    if isinstance(value, DECLARED):
        return [type(value).__name__, {n: _described(v, n) for n, v in _attributes(value).items()}]
    if isinstance(value, (list, tuple)):
        return [_described(inner, name) for inner in value]
    match value:
        case ColumnElement():
            return expression(value)
        case Table():
            key = [[column.name, type(column.type).__name__] for column in value.primary_key.columns]
            return [value.fullname, key]
    if callable(value) or (name == "client" and value is not None):
        # A function by its name, and a client of boto3 by its service: their texts differ from process to process.
        return ["named", getattr(value, "__qualname__", type(value).__name__)]
    return canonical(value, name)


def _attributes(value: Any) -> dict[str, Any]:
    found = {f.name: getattr(value, f.name) for f in fields(value)} if is_dataclass(value) else vars(value)
    left = LEFT_OUT.get(type(value), {})
    return {name: inner for name, inner in found.items() if name not in left}
