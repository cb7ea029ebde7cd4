"""A sweep of orphans that would take what another target's rows own is refused when the file loads."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table, create_engine, func

from safedelete import Purge, Rows, S3Keys, S3Orphans, past
from safedelete.declare.same import same_database
from safedelete.declare.sweeps import check_sweeps
from safedelete.errors import ConfigError
from safedelete.loader import load

uploads = Table(
    "uploads",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("expires_at", DateTime),
    Column("s3_key", String),
    Column("thumb_key", String),
)
WEEK = timedelta(days=7)


def rows(owns: S3Keys, *, database: Any = None) -> Purge:
    target = Rows(uploads, past(uploads.c.expires_at), owns=owns)
    return Purge(
        "expired-uploads", target, schedule="rate(1 day)", timeout=timedelta(minutes=5), database=database
    )


def sweep(*columns: object, **options: Any) -> Purge:
    target = S3Orphans("acme", "u/", referenced_by=list(columns), older_than=WEEK)  # type: ignore[arg-type]
    return Purge("sweep", target, schedule="rate(1 day)", timeout=timedelta(minutes=5), **options)


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


def test_another_bucket_is_left_out() -> None:
    check_sweeps([sweep(uploads.c.s3_key), rows(S3Keys("acme-other", uploads.c.thumb_key))])


@pytest.mark.parametrize("column", [uploads.c.s3_key, uploads.c.thumb_key])
def test_rows_that_cannot_be_asked_are_not_rows_that_name_nothing(column: Any) -> None:
    """A column of that name is in another database another column."""
    away = rows(S3Keys("acme", column), database="sqlite:///other.db")
    with pytest.raises(ConfigError, match="cannot ask") as error:
        check_sweeps([sweep(uploads.c.s3_key), away])
    assert "elsewhere_ok=True" in error.value.hint
    check_sweeps([sweep(uploads.c.s3_key, elsewhere_ok=True), away])
    # What is in this database counts all the same.
    with pytest.raises(ConfigError, match="thumb_key"):
        check_sweeps([sweep(uploads.c.s3_key, elsewhere_ok=True), rows(S3Keys("acme", uploads.c.thumb_key))])


URL = "postgresql+psycopg://app@db.example/app"


@pytest.mark.parametrize(
    ("one", "other", "default"),
    [
        (URL, URL, None),
        (None, None, None),
        (None, URL, URL),
        (URL, None, "postgresql://app:secret@DB.example:5432/app"),
        (URL, "postgres://app:secret@db.example:5432/app?sslmode=require", None),
        (create_engine(URL), URL, None),
        ("mariadb+pymysql://app@db/app", "mysql://app@db:3306/app?charset=utf8mb4", None),
        ("sqlite:///app.db", "sqlite:///./app.db", None),
    ],
)
def test_one_database_said_in_two_ways_is_one(one: Any, other: Any, default: str | None) -> None:
    assert same_database(one, other, default)
    owner = rows(S3Keys("acme", uploads.c.thumb_key), database=other)
    with pytest.raises(ConfigError, match=r"by uploads\.thumb_key\."):
        check_sweeps([sweep(uploads.c.s3_key, database=one), owner], default)


@pytest.mark.parametrize(
    ("one", "other", "default"),
    [
        (None, URL, None),
        (None, URL, "no url"),
        (URL, "postgresql+psycopg://app@db.example/app2", None),
        (URL, "postgresql+psycopg://app@db2.example/app", None),
        (URL, "postgresql+psycopg://app@db.example:5433/app", None),
        (URL, "postgresql+psycopg://other@db.example/app", None),
        (URL, URL + "?options=-csearch_path%3Dother", None),
        (URL, "mysql+pymysql://app@db.example/app", None),
    ],
)
def test_what_may_be_another_database_is_not_called_the_same(
    one: Any, other: Any, default: str | None
) -> None:
    assert not same_database(one, other, default)
    assert not same_database(other, one, default)


def test_an_access_point_hides_its_bucket() -> None:
    point = "arn:aws:s3:eu-west-1:123456789012:accesspoint/uploads"
    with pytest.raises(ConfigError, match="one bucket cannot be told"):
        check_sweeps([sweep(uploads.c.s3_key), rows(S3Keys(point, uploads.c.thumb_key))])
    # A column that is asked anyway spares its objects in whichever bucket they are.
    check_sweeps([sweep(uploads.c.s3_key), rows(S3Keys(point, uploads.c.s3_key))])
    check_sweeps([sweep(uploads.c.s3_key, elsewhere_ok=True), rows(S3Keys(point, uploads.c.thumb_key))])


def test_a_purge_is_checked_without_a_file_too() -> None:
    orphans = S3Orphans("acme", "u/", referenced_by=uploads.c.s3_key, older_than=WEEK)
    owner = Rows(uploads, past(uploads.c.expires_at), owns=S3Keys("acme", uploads.c.thumb_key))
    with pytest.raises(ConfigError, match="thumb_key"):
        Purge("both", owner, orphans, schedule="rate(1 day)", timeout=timedelta(minutes=5))


def test_rows_of_two_databases_that_own_objects_of_one_bucket_are_refused() -> None:
    here, there = (
        rows(S3Keys("acme", uploads.c.s3_key), database=f"sqlite:///{name}.db") for name in ("one", "two")
    )
    with pytest.raises(ConfigError, match=r"Rows\(uploads\) may take objects that rows of"):
        check_sweeps([here, there])
    apart = rows(S3Keys("acme-other", uploads.c.s3_key), database="sqlite:///two.db")
    check_sweeps([here, apart])


def test_the_purges_of_a_file_know_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = tmp_path / "jobs.py"
    jobs.write_text(FILE)
    monkeypatch.setenv("SAFEDELETE_DATABASE_URL", "sqlite:///app.db")
    loaded = load(jobs).jobs
    one, other = loaded["one"], loaded["two"]
    assert isinstance(one, Purge)
    assert one.beside == (other,)
    monkeypatch.setenv("SAFEDELETE_DATABASE_URL", "sqlite:///another.db")
    with pytest.raises(ConfigError, match="cannot ask"):
        load(jobs)


FILE = """
from datetime import timedelta
from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table
from safedelete import Purge, Rows, S3Keys, past

made = [
    Table(name, MetaData(), Column("id", Integer, primary_key=True), Column("at", DateTime), Column("key", String))
    for name in ("one", "two")
]
one, two = (
    Purge(
        table.name,
        Rows(table, past(table.c.at), owns=S3Keys("acme", table.c.key)),
        schedule="rate(1 day)",
        timeout=timedelta(minutes=5),
        database=database,
    )
    for table, database in zip(made, (None, "sqlite:///app.db"))
)
"""
