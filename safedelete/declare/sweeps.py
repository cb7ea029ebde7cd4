"""What a purge must know of the targets beside it: whose rows own objects of the buckets that it deletes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement

from safedelete.declare.orphans import S3Orphans
from safedelete.declare.same import Meet, buckets_meet, same_database
from safedelete.declare.targets import Rows, S3Keys
from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from safedelete.declare.jobs import Purge


def check_sweeps(purges: Sequence[Purge], default: str | None = None) -> None:
    """Refuse a purge that would take what the rows of another target own.

    Args:
        purges: All purges of a file, or one by itself.
        default: The database URL of the environment, where there is one.

    Raises:
        ConfigError: Rows name objects of a sweep's bucket by a column that ``referenced_by`` leaves out, or own whole
            prefixes there, which no comparison of keys finds. Or rows own objects of a purge's bucket, and it cannot ask
            them: they are not provably in its database, or the bucket is said in two ways.
    """
    for purge in purges:
        for owner in purges:
            same = same_database(purge.database, owner.database, default)
            for target in purge.targets:
                if isinstance(target, S3Orphans):
                    _check_sweep(purge, target, owner, same=same)
                elif isinstance(target, Rows):
                    _check_rows(purge, target, owner, same=same)


def _check_sweep(purge: Purge, sweep: S3Orphans, owner: Purge, *, same: bool) -> None:
    for _, keys in _owned(owner):
        meet = buckets_meet(sweep.bucket, keys.bucket)
        if meet is Meet.APART:
            continue
        if meet is Meet.SAME and same:
            _check_columns(purge, sweep, owner, keys)
            continue
        # Where only the bucket is in doubt, asking the column settles it whichever bucket it is.
        asked = same and keys.prefix is None and not _left_out(sweep, keys)
        if not asked and not purge.elsewhere_ok:
            raise _unasked(purge, sweep.name, sweep.bucket, owner, keys, same=same)


def _check_rows(purge: Purge, rows: Rows, owner: Purge, *, same: bool) -> None:
    for other, keys in _owned(owner):
        if other is rows or purge.elsewhere_ok:
            continue
        for bucket in sorted({mine.bucket for mine in rows.owns}):
            meet = buckets_meet(bucket, keys.bucket)
            if meet is Meet.UNTOLD or (meet is Meet.SAME and not same):
                raise _unasked(purge, f"Rows({rows.name})", bucket, owner, keys, same=same)


def _unasked(
    purge: Purge, target: str, bucket: str, owner: Purge, keys: S3Keys, *, same: bool
) -> ConfigError:
    named = ", ".join(_said(column) for column in keys.columns) or "a prefix"
    why = (
        f"whether {keys.bucket!r} and {bucket!r} are one bucket cannot be told"
        if same
        else "its database is not provably that of this purge, which therefore cannot ask"
    )
    return ConfigError(
        f"{purge.name}: {target} may take objects that rows of {owner.name} name by {named}: {why}.",
        hint="Say database= and the bucket in the same way in both. If no object of one is named by a row of the other (each "
        f"has a prefix of its own, say), accept it: Purge({purge.name!r}, ..., elsewhere_ok=True).",
    )


def _owned(purge: Purge) -> Iterator[tuple[Rows, S3Keys]]:
    for target in purge.targets:
        if isinstance(target, Rows):
            yield from ((target, keys) for keys in target.owns)


def _check_columns(purge: Purge, sweep: S3Orphans, owner: Purge, keys: S3Keys) -> None:
    if keys.prefix is not None:
        raise ConfigError(
            f"{purge.name}: {sweep.name} would take what lies below a prefix that rows of {owner.name} own "
            f"({_said(keys.prefix)}): no key names it.",
            hint="Keep what rows own by prefix in a bucket of its own, or name every key in a column.",
        )
    missing = _left_out(sweep, keys)
    if missing:
        raise ConfigError(
            f"{purge.name}: {sweep.name} would take the objects that rows of {owner.name} name by "
            f"{', '.join(missing)}.",
            hint=f"Add it to referenced_by: referenced_by=[…, {', '.join(missing)}].",
        )


def _left_out(sweep: S3Orphans, keys: S3Keys) -> list[str]:
    known = {_said(column) for column in sweep.columns}
    return [_said(column) for column in keys.columns if _said(column) not in known]


def _said(column: ColumnElement[Any]) -> str:
    compiled = column.compile()
    values = " ".join(f"{name}={value!r}" for name, value in sorted(compiled.params.items()))
    return f"{' '.join(str(compiled).split())} {values}".strip()
