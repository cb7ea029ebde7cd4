"""What a sweep of orphans must know of the jobs beside it: every column that names objects of its bucket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement

from safedelete.declare.jobs import Declared, Purge
from safedelete.declare.orphans import S3Orphans
from safedelete.declare.targets import Rows, S3Keys
from safedelete.errors import ConfigError


def check_sweeps(jobs: Iterable[Declared]) -> None:
    """Refuse a sweep that would take what the rows of another target own.

    Args:
        jobs: All jobs of a file; purges of another database than the sweep's are left out, since it cannot ask there.

    Raises:
        ConfigError: Rows name objects of a sweep's bucket by a column that ``referenced_by`` leaves out, or own whole
            prefixes there, which no comparison of keys finds.
    """
    purges = [job for job in jobs if isinstance(job, Purge)]
    for purge in purges:
        near = [other for other in purges if str(other.database) == str(purge.database)]
        for sweep in purge.targets:
            if isinstance(sweep, S3Orphans):
                for owner, keys in _owned(near, sweep.bucket):
                    _check(purge, sweep, owner, keys)


def _owned(purges: Iterable[Purge], bucket: str) -> Iterator[tuple[Purge, S3Keys]]:
    for purge in purges:
        for target in purge.targets:
            if isinstance(target, Rows):
                yield from ((purge, keys) for keys in target.owns if keys.bucket == bucket)


def _check(purge: Purge, sweep: S3Orphans, owner: Purge, keys: S3Keys) -> None:
    if keys.prefix is not None:
        raise ConfigError(
            f"{purge.name}: {sweep.name} would take what lies below a prefix that rows of {owner.name} own "
            f"({_said(keys.prefix)}): no key names it.",
            hint="Keep what rows own by prefix in a bucket of its own, or name every key in a column.",
        )
    known = {_said(column) for column in sweep.columns}
    missing = [_said(column) for column in keys.columns if _said(column) not in known]
    if missing:
        raise ConfigError(
            f"{purge.name}: {sweep.name} would take the objects that rows of {owner.name} name by "
            f"{', '.join(missing)}.",
            hint=f"Add it to referenced_by: referenced_by=[…, {', '.join(missing)}].",
        )


def _said(column: ColumnElement[Any]) -> str:
    compiled = column.compile()
    values = " ".join(f"{name}={value!r}" for name, value in sorted(compiled.params.items()))
    return f"{' '.join(str(compiled).split())} {values}".strip()
