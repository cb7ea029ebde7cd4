"""Whether two declarations mean one database, or one bucket, as far as can be told without asking either. Pure."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final, TypeAlias

from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

Source: TypeAlias = Engine | URL | str | None
"""Where a purge's rows are; None for the environment's."""

_BACKENDS: Final = {"postgres": "postgresql", "mariadb": "mysql"}
_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
_HARMLESS: Final = frozenset(
    {"sslmode", "ssl_mode", "connect_timeout", "application_name", "charset", "timeout", "sslrootcert"}
)
"""Options of a URL that lead to no other data."""


class Meet(Enum):
    """What two names say about the buckets they mean."""

    SAME = "one bucket"
    APART = "two buckets"
    UNTOLD = "cannot be told"


def same_database(one: Source, other: Source, default: str | None = None) -> bool:
    """Whether two purges provably work on one database, seen by one role. Opens nothing.

    Args:
        one: A purge's database.
        other: The other's.
        default: What None means in this environment, where that is known.
    """
    if one is other or (isinstance(one, str) and one == other):
        return True
    first, second = _address(one, default), _address(other, default)
    return first is not None and first == second


def buckets_meet(one: str, other: str) -> Meet:
    """Say whether two names mean one bucket; an access point hides which bucket it is of."""
    if one == other:
        return Meet.SAME
    hidden = [name for name in (one, other) if name.startswith("arn:") or name.endswith("-s3alias")]
    return Meet.UNTOLD if hidden else Meet.APART


def _address(source: Source, default: str | None) -> tuple[object, ...] | None:
    given = default if source is None else source
    if given is None:
        return None
    try:
        url = given.url if isinstance(given, Engine) else make_url(given)
    except (ArgumentError, ValueError):
        return None
    backend = _BACKENDS.get(url.get_backend_name(), url.get_backend_name())
    query = tuple(sorted((k, v) for k, v in url.query.items() if k not in _HARMLESS))
    if backend == "sqlite":
        path = str(url.database)
        return backend, path if path.startswith("file:") else str(Path(path).resolve()), query
    host = (url.host or "").lower().rstrip(".")
    return backend, host, url.port or _PORTS.get(backend), url.database, url.username, query
