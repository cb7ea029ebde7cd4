"""``S3Orphans``: objects that no row names, checked when it is declared."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, select, types

from safedelete.declare.endpoint import S3Endpoint
from safedelete.declare.prefix import check_rate
from safedelete.declare.targets import (
    KeyColumn,
    Mode,
    check_bucket,
    check_canary,
    check_mode,
    check_prefix,
)
from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

SLOWEST_UPLOAD: Final = timedelta(hours=24)
"""Youngest age that may be declared.

An upload looks like an orphan until its row is written, which is when it ends; and S3 dates a multipart upload by its
*beginning*. The largest single upload, 5 GiB, takes 24 hours at half a megabit a second. An hour would take a home
connection's upload away while it still runs.
"""


class S3Orphans:
    """Delete the objects under a prefix that no row names and that are older than an age, by their LastModified.

    The bucket's listing is merged with the ordered key columns, and what the listing has and no column names is an orphan.
    Right before each request the database is asked again: an object that a row has come to name meanwhile is kept.

    Args:
        bucket: Bucket name, or an access point's ARN.
        prefix: Key prefix, of whole path segments as for ``S3Prefix``.
        referenced_by: Every column or SQL expression, of any table of the purge's database, whose values are keys in this
            bucket. One that is left out makes orphans of the objects it names. NULL and empty values name nothing.
        older_than: Age of at least :data:`SLOWEST_UPLOAD`, 24 hours; an object exactly that old stays (exclusive).
        whole_bucket: Allow an empty prefix.
        exact_prefix: Take the prefix as plain leading characters, so that ``log-`` matches ``log-2020.txt``.
        mode: For a versioned bucket, and needed there: ``"marker"`` or ``"purge"``.
        client: A boto3 S3 client, or an ``S3Endpoint``, instead of the default chain.
        missing_ok: Accept that rows name objects which are not there. Without it a plan is refused when a column names mostly
            such objects, or more than five and more than 1 % of its keys while there are orphans: that is what a wrong
            bucket, or keys that are stored in another form, look like. A key that is one of the orphans in another
            spelling (URL encoding, Unicode form, white space at an end) is refused all the same.
        outside_ok: Columns of ``referenced_by`` whose values may all lie outside the prefix. Without it such a column is
            refused: ``7.png`` in place of ``u/7.png`` names nothing, and every object it means would be an orphan.
        max_delete_rate: As for ``S3Prefix``.
        require_conditional: As for ``S3Prefix``. Each object is looked at right before its delete in any case, since an
            upload of the same content has the same ETag.

    Raises:
        ConfigError: An empty bucket or prefix, no column, a column that cannot be read as keys, or an age below 24 hours.

    Example:
        ``S3Orphans("acme-uploads", "u/", referenced_by=[Upload.s3_key], older_than=timedelta(days=7))``
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        referenced_by: KeyColumn | Sequence[KeyColumn],
        older_than: timedelta,
        whole_bucket: bool = False,
        exact_prefix: bool = False,
        mode: Mode | None = None,
        client: S3Client | S3Endpoint | None = None,
        missing_ok: bool = False,
        outside_ok: KeyColumn | Sequence[KeyColumn] = (),
        max_delete_rate: float | None = None,
        require_conditional: bool | str = False,
    ) -> None:
        self.bucket = check_bucket(bucket, "S3Orphans")
        self.prefix = check_prefix(
            bucket, prefix, "S3Orphans", whole_bucket=whole_bucket, exact_prefix=exact_prefix
        )
        where = f"S3Orphans({bucket!r}, {prefix!r})"
        if not isinstance(older_than, timedelta) or older_than < SLOWEST_UPLOAD:
            raise ConfigError(
                f"{where}: older_than={older_than!r}; must be a timedelta of at least {SLOWEST_UPLOAD} "
                "(SLOWEST_UPLOAD): an upload whose row is not written yet looks like an orphan, and S3 dates it by its "
                "beginning.",
                hint="Take more than your slowest upload and the longest life of a presigned URL: timedelta(days=7).",
            )
        self.older_than = older_than
        self.columns = _columns(referenced_by, where)
        self.mode = check_mode(mode, "S3Orphans")
        if not isinstance(missing_ok, bool):
            raise ConfigError(
                f"{where}: missing_ok={missing_ok!r}; must be True or False.", hint="Leave it out for False."
            )
        self.missing_ok = missing_ok
        self.max_delete_rate = check_rate(max_delete_rate, where)
        self.require_conditional = check_canary(require_conditional, f"S3Orphans({bucket!r}")
        self.outside_places = _places(outside_ok, self.columns, where)
        self.client = client

    @property
    def name(self) -> str:
        """``orphans of s3://bucket/prefix``."""
        return f"orphans of s3://{self.bucket}/{self.prefix}"


def _columns(given: object, where: str) -> tuple[ColumnElement[Any], ...]:
    several = given if isinstance(given, (list, tuple)) else (given,)
    if not several:
        raise ConfigError(
            f"{where}: referenced_by is empty, so every object would be an orphan.",
            hint="Name every column that holds a key of this bucket: referenced_by=[Upload.s3_key].",
        )
    return tuple(_column(column, where) for column in several)


def _places(given: object, columns: Sequence[ColumnElement[Any]], where: str) -> frozenset[int]:
    """Return where among the columns those are that need name nothing under the prefix."""
    several = given if isinstance(given, (list, tuple)) else (given,)
    found: set[int] = set()
    for each in several:
        column = _column(each, where)
        same = [place for place, known in enumerate(columns) if known is column or known.compare(column)]
        if not same:
            raise ConfigError(
                f"{where}: outside_ok has {' '.join(str(column).split())}, which referenced_by has not.",
                hint="Name it in both.",
            )
        found.update(same)
    return frozenset(found)


def _column(given: Any, where: str) -> ColumnElement[Any]:
    inner = given.__clause_element__() if hasattr(given, "__clause_element__") else given
    if not isinstance(inner, ColumnElement):
        raise ConfigError(
            f"{where}: referenced_by takes columns or SQL expressions; {given!r} is a {type(given).__name__}.",
            hint="For example referenced_by=[Upload.s3_key].",
        )
    froms = select(inner).get_final_froms()
    if len(froms) != 1:
        names = ", ".join(sorted(str(getattr(f, "name", f)) for f in froms)) or "no table"
        raise ConfigError(
            f"{where}: referenced_by has {' '.join(str(inner).split())}, which is of {names}; it must be of one table.",
            hint="Name each table's column by itself.",
        )
    if not isinstance(inner.type, (types.String, types.NullType)) or isinstance(inner.type, types.Enum):
        raise ConfigError(
            f"{where}: referenced_by has {' '.join(str(inner).split())} of type {inner.type!r}; keys are text.",
            hint="Where what is stored is the key itself, say type_coerce(column, String()); else give the SQL expression "
            "that makes the key of it.",
        )
    return inner
