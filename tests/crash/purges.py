"""The purges whose runs are killed, and what a deployment between two runs may have changed about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal

from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table, case, cast, literal

from safedelete import Guard, Purge, Rows, S3Keys, S3Orphans, S3Prefix, past

JOB = "matrix"
LIMIT = 2
BUCKET, OTHER_BUCKET, VERSIONED, FOLDERS = "acme-uploads", "acme-moved", "acme-versioned", "acme-folders"
"""The last two keep versions."""
PLAIN = "acme-plain-folders"
"""What the last of them holds, without versions."""
PREFIX = "tmp/"
LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2099, 1, 1, tzinfo=UTC)

metadata = MetaData()
uploads = Table(
    "uploads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("s3_key", String(200), nullable=False, unique=True),
    Column("thumb_key", String(200), unique=True),
)
OPEN = Guard(max_items=10_000, max_fraction=1.0)
HURRY = {"timeout": timedelta(seconds=3), "grace": timedelta(seconds=2)}


def _purge(
    *targets: Rows | S3Prefix | S3Orphans,
    guard: Guard = OPEN,
    timeout: timedelta = timedelta(minutes=10),
    **more: Any,
) -> Purge:
    return Purge(JOB, *targets, schedule="rate(1 day)", timeout=timeout, guard=guard, **more)


def _rows(*predicates: object, owns: S3Keys | None = None, guard: Guard = OPEN, **more: Any) -> Purge:
    target = Rows(uploads, past(uploads.c.expires_at), *predicates, owns=owns)  # type: ignore[arg-type]
    return _purge(target, guard=guard, **more)


def _two_keys(bucket: str = BUCKET) -> S3Keys:
    return S3Keys(bucket, uploads.c.s3_key, uploads.c.thumb_key)


def _one_key() -> S3Keys:
    return S3Keys(BUCKET, uploads.c.s3_key)


def _versioned_key(mode: Literal["purge", "marker"] = "purge") -> S3Keys:
    return S3Keys(VERSIONED, uploads.c.s3_key, mode=mode)


def _folder(mode: Literal["purge", "marker"] = "purge") -> S3Keys:
    return S3Keys(FOLDERS, prefix=uploads.c.s3_key, mode=mode)


def _versioned_prefix() -> S3Prefix:
    return S3Prefix(VERSIONED, PREFIX, older_than=timedelta(days=7), mode="purge")


NAMES_FROM = 6
"""Rows from this id on name an object of the prefix by their id; any row may name one by its thumb key."""


def _orphans(bucket: str = BUCKET, mode: Literal["purge", "marker"] | None = None) -> S3Orphans:
    key = literal(PREFIX) + cast(uploads.c.id, String(20)) + literal(".bin")
    return S3Orphans(
        bucket,
        PREFIX,
        referenced_by=[case((uploads.c.id >= NAMES_FROM, key)), uploads.c.thumb_key],
        older_than=timedelta(days=7),
        outside_ok=uploads.c.thumb_key,
        mode=mode,
    )


PURGES: dict[str, Callable[[], Purge]] = {
    "rows": _rows,
    "rows and one object each": lambda: _rows(owns=_one_key()),
    "rows and two objects each": lambda: _rows(owns=_two_keys()),
    "rows and a folder each": lambda: _rows(owns=S3Keys(PLAIN, prefix=uploads.c.s3_key)),
    "prefix": lambda: _purge(S3Prefix(BUCKET, PREFIX, older_than=timedelta(days=7))),
    "orphans": lambda: _purge(_orphans()),
    # --- in a bucket that keeps versions
    "versioned prefix": lambda: _purge(_versioned_prefix()),
    "versioned objects": lambda: _rows(owns=_versioned_key()),
    "hidden objects": lambda: _rows(owns=_versioned_key("marker")),
    "versioned folders": lambda: _rows(owns=_folder()),
    "hidden folders": lambda: _rows(owns=_folder("marker")),
    "versioned orphans": lambda: _purge(_orphans(VERSIONED, "purge")),
    "hidden orphans": lambda: _purge(_orphans(VERSIONED, "marker")),
    # --- the same definitions with a deadline that passes while a test waits
    "rows and two objects each, in a hurry": lambda: _rows(owns=_two_keys(), **HURRY),
    "versioned prefix, in a hurry": lambda: _purge(_versioned_prefix(), **HURRY),
    "versioned objects, in a hurry": lambda: _rows(owns=_versioned_key(), **HURRY),
    "versioned folders, in a hurry": lambda: _rows(owns=_folder(), **HURRY),
    "versioned orphans, in a hurry": lambda: _purge(_orphans(VERSIONED, "purge"), **HURRY),
    "hidden objects, in a hurry": lambda: _rows(owns=_versioned_key("marker"), **HURRY),
    "hidden folders, in a hurry": lambda: _rows(owns=_folder("marker"), **HURRY),
    "hidden orphans, in a hurry": lambda: _purge(_orphans(VERSIONED, "marker"), **HURRY),
    "rows and a folder each, in a hurry": lambda: _rows(owns=S3Keys(PLAIN, prefix=uploads.c.s3_key), **HURRY),
    # --- what a deployment may have made of "rows and two objects each" since
    "another predicate": lambda: _rows(uploads.c.id != 0, owns=_two_keys()),
    "a stricter predicate": lambda: _rows(uploads.c.id > 3, owns=_two_keys()),
    "one key column less": lambda: _rows(owns=_one_key()),
    "owns nothing any more": _rows,
    "another bucket": lambda: _rows(owns=_two_keys(OTHER_BUCKET)),
    "tighter limits": lambda: _rows(owns=_two_keys(), guard=Guard(max_items=LIMIT)),
}

KEEPING_VERSIONS = (
    "versioned prefix",
    "versioned objects",
    "hidden objects",
    "versioned folders",
    "hidden folders",
    "versioned orphans",
    "hidden orphans",
)
"""Those whose bucket keeps versions: a versioned one removes all of them, a hidden one puts a delete marker on top."""


@cache
def target_of(purge: str) -> Rows | S3Prefix | S3Orphans:
    """Return what a purge deletes; each has one target."""
    (target,) = PURGES[purge]().targets
    return target


@cache
def mode_of(purge: str) -> Literal["purge", "marker"] | None:
    """Return what a purge does in a bucket that keeps versions; None where its bucket keeps none, or it owns nothing."""
    target = target_of(purge)
    if not isinstance(target, Rows):
        return target.mode
    return target.owns[0].mode if target.owns else None
