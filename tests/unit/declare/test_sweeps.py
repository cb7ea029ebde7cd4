"""A sweep of orphans that would take what another target's rows own is refused when the file loads."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table, func

from safedelete import Purge, Rows, S3Keys, S3Orphans, past
from safedelete.declare.sweeps import check_sweeps
from safedelete.errors import ConfigError

uploads = Table(
    "uploads",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("expires_at", DateTime),
    Column("s3_key", String),
    Column("thumb_key", String),
)
WEEK = timedelta(days=7)


def rows(owns: S3Keys, *, database: str | None = None) -> Purge:
    target = Rows(uploads, past(uploads.c.expires_at), owns=owns)
    return Purge(
        "expired-uploads", target, schedule="rate(1 day)", timeout=timedelta(minutes=5), database=database
    )


def sweep(*columns: object) -> Purge:
    target = S3Orphans("acme", "u/", referenced_by=list(columns), older_than=WEEK)  # type: ignore[arg-type]
    return Purge("sweep", target, schedule="rate(1 day)", timeout=timedelta(minutes=5))


def test_a_column_that_names_objects_and_is_left_out_is_named() -> None:
    both = rows(S3Keys("acme", uploads.c.s3_key, uploads.c.thumb_key))
    with pytest.raises(ConfigError, match=r"by uploads\.thumb_key\.") as error:
        check_sweeps([sweep(uploads.c.s3_key), both])
    assert "referenced_by=[…, uploads.thumb_key]" in error.value.hint
    check_sweeps([sweep(uploads.c.s3_key, uploads.c.thumb_key), both])


def test_two_expressions_that_differ_in_a_value_alone_are_two() -> None:
    owned = rows(S3Keys("acme", func.concat("u/", uploads.c.s3_key)))
    check_sweeps([sweep(func.concat("u/", uploads.c.s3_key)), owned])
    with pytest.raises(ConfigError):
        check_sweeps([sweep(func.concat("t/", uploads.c.s3_key)), owned])


def test_what_rows_own_by_prefix_cannot_be_swept_around() -> None:
    with pytest.raises(ConfigError, match="own"):
        check_sweeps([sweep(uploads.c.s3_key), rows(S3Keys("acme", prefix=uploads.c.s3_key))])


def test_another_bucket_and_another_database_are_left_out() -> None:
    check_sweeps(
        [
            sweep(uploads.c.s3_key),
            rows(S3Keys("acme-other", uploads.c.thumb_key)),
            rows(S3Keys("acme", uploads.c.thumb_key), database="sqlite:///other.db"),
        ]
    )
