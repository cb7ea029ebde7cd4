"""Which places of which buckets a purge's rows name objects in, and how to read both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement

from safedelete.core.item import ObjectRef
from safedelete.core.orphans import Listed
from safedelete.declare import Purge, Rows, S3Orphans
from safedelete.declare.orphans import SLOWEST_UPLOAD
from safedelete.declare.same import Meet, buckets_meet, same_database
from safedelete.declare.targets import check_prefix
from safedelete.errors import ConfigError
from safedelete.phases import reconcile as phase
from safedelete.phases.parts import Progress, quiet
from safedelete.phases.reconcile import Place, Reconciled, Seen
from safedelete.s3.client import Connection
from safedelete.s3.keys import parent
from safedelete.s3.listing import instant, list_objects
from safedelete.s3.store import S3ObjectStore
from safedelete.sql.engine import Database, environment_url
from safedelete.sql.referenced import SqlReferences
from safedelete.wiring.connect import connection_to, opened
from safedelete.wiring.settings import Settings, SystemClock

Columns = tuple[ColumnElement[Any], ...]


@dataclass(frozen=True, slots=True)
class _Side:
    """Columns that name objects of one bucket; without a prefix it is derived from their keys.

    With ``folders``, rows also own whole prefixes there, so that a key which no column names may still be owned.
    """

    bucket: str
    client: object
    columns: Columns
    prefix: str | None
    age: timedelta
    folders: bool = False


def reconcile(
    purge: Purge,
    beside: Sequence[Purge] | None = None,
    *,
    prefixes: Sequence[str] = (),
    progress: Progress = quiet,
) -> list[Reconciled]:
    """Report objects without rows and rows without objects. Reads only; takes no lock and no ledger.

    Args:
        purge: Its ``S3Orphans`` are compared as they are declared. For its ``S3Keys``, the prefix is the longest folder
            that all keys of a column share, and every column of the purges beside it that names objects of the same
            bucket is asked as well.
        beside: The other purges of the job file; those that it was loaded with unless given. Where one that cannot be asked (its database is not provably the same)
            names objects of the same bucket, the place is unchecked, unless the purge says ``elsewhere_ok``.
        prefixes: Prefixes for the ``S3Keys``, in place of derived ones; an empty one means the whole bucket.
        progress: Told how many objects were listed, after every thousand and at the end of each place. What it raises ends the
            comparison: ``progress=lambda *_: run.checkpoint()`` gives a job its stop, deadline and lock.

    Raises:
        ConfigError: The keys of a column share no folder, and no prefix is given.
    """
    sides = list(_sides(purge))
    if not sides:
        return []
    others = [other for other in (purge.beside if beside is None else beside) if other is not purge]
    default = environment_url()
    near = [other for other in others if same_database(purge.database, other.database, default)]
    known = [side for other in (purge, *near) for side in _sides(other)]
    clock = SystemClock()
    reach = _reacher()
    with opened(Settings.read(), purge) as (database, _):
        found: list[Reconciled] = []
        for side in sides:
            if any(other.folders for other in known if other.bucket == side.bucket):
                below = "rows own whole prefixes of this bucket (S3Keys(prefix=)), which a comparison of keys does not see"
                found.append(Reconciled(purge.name, f"s3://{side.bucket}/", unchecked=below))
                continue
            unasked = (
                "" if purge.elsewhere_ok else _unasked(side, known, [o for o in others if o not in near])
            )
            if unasked:
                found.append(Reconciled(purge.name, f"s3://{side.bucket}/", unchecked=unasked))
                continue
            columns = side.columns if side.prefix is not None else _of_bucket(known, side.bucket)
            for prefix in _prefixes(side, database, prefixes):
                if prefix is None:
                    nothing = "no row names a key, so there is no prefix to list; say --prefix"
                    found.append(Reconciled(purge.name, f"s3://{side.bucket}/", unchecked=nothing))
                    continue
                references = SqlReferences(columns, database, side.bucket, prefix)
                place = Place(
                    purge.name,
                    side.bucket,
                    prefix,
                    tuple(column.name for column in references.columns),
                    references,
                    _lister(reach(side.client), side.bucket, prefix),
                    # No mode: what counts here is the current object, whatever older versions there are.
                    S3ObjectStore(reach(side.client), clock=clock).remaining,
                    clock.now() - side.age,
                )
                found.append(phase.reconcile(place, progress))
        return found


def _sides(purge: Purge) -> Iterator[_Side]:
    owned: dict[str, tuple[object, Columns, bool]] = {}
    for target in purge.targets:
        if isinstance(target, S3Orphans):
            yield _Side(target.bucket, target.client, target.columns, target.prefix, target.older_than)
        elif isinstance(target, Rows):
            for keys in target.owns:
                client, columns, folders = owned.get(keys.bucket, (keys.client, (), False))
                owned[keys.bucket] = (client, columns + keys.columns, folders or keys.prefix is not None)
    for bucket, (client, columns, folders) in owned.items():
        yield _Side(bucket, client, columns, None, SLOWEST_UPLOAD, folders)


def _unasked(side: _Side, known: Iterable[_Side], away: Iterable[Purge]) -> str:
    """Say which rows may name objects of the place and cannot be asked: theirs would be reported as without a row."""
    for other in away:
        if any(buckets_meet(side.bucket, its.bucket) is not Meet.APART for its in _sides(other)):
            return (
                f"rows of {other.name} may name objects here, and its database is not provably that of this purge: they "
                "were not asked (elsewhere_ok=True on the purge accepts it)"
            )
    for near in known:
        if buckets_meet(side.bucket, near.bucket) is Meet.UNTOLD and not set(near.columns) <= set(
            side.columns
        ):
            return (
                f"whether {near.bucket!r}, in which rows name objects too, is this bucket cannot be told "
                "(elsewhere_ok=True on the purge accepts it)"
            )
    return ""


def _of_bucket(sides: Iterable[_Side], bucket: str) -> Columns:
    every = [column for side in sides if side.bucket == bucket for column in side.columns]
    return tuple({str(column.compile()) + repr(column.compile().params): column for column in every}.values())


def _prefixes(side: _Side, database: Database, given: Sequence[str]) -> list[str | None]:
    """Return the prefixes to list, none of them below another; None where no row names a key."""
    if side.prefix is not None:
        return [side.prefix]
    if given:
        where = "reconcile --prefix "
        return list(
            _outermost(
                check_prefix(side.bucket, text, where, whole_bucket=not text, exact_prefix=False)
                for text in given
            )
        )
    derived: set[str] = set()
    for column in SqlReferences(side.columns, database, side.bucket, "").edges():
        if column.edges is None:
            continue
        folder = _common_folder(*column.edges)
        if not folder:
            first, last = column.edges
            raise ConfigError(
                f"The keys of {column.name} share no folder: they run from {first[:100]!r} to {last[:100]!r}.",
                hint="Say which part of the bucket is theirs: --prefix PREFIX, several times if need be; --prefix '' is the "
                "whole bucket.",
            )
        derived.add(folder)
    return list(_outermost(derived)) if derived else [None]


def _common_folder(first: str, last: str) -> str:
    """Return the folder that two keys share; what lies between them in order shares it too."""
    pairs = enumerate(zip(first, last, strict=False))
    return parent(first[: next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))])


def _outermost(prefixes: Iterable[str]) -> Iterator[str]:
    last: str | None = None
    for prefix in sorted(set(prefixes)):
        if last is None or not prefix.startswith(last):
            last = prefix
            yield prefix


def _lister(connection: Connection, bucket: str, prefix: str) -> Callable[[], Iterator[Listed[Seen]]]:
    def listing() -> Iterator[Listed[Seen]]:
        for page in list_objects(connection.reader, bucket, prefix):
            for item in page:
                ref = ObjectRef(bucket, item.key, item.etag, None, item.size)
                yield Listed(item.key, Seen(ref, instant(item.modified)))

    return listing


def _reacher() -> Callable[[object], Connection]:
    connections: dict[int, Connection] = {}

    def reach(client: object) -> Connection:
        if id(client) not in connections:
            connections[id(client)] = connection_to(client)
        return connections[id(client)]

    return reach
