"""Every mistake in a job file is refused when it loads, naming the argument, what was given and what is allowed."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    text,
    true,
    type_coerce,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from safedelete import (
    Guard,
    Inventory,
    Job,
    Purge,
    Rows,
    S3Endpoint,
    S3Keys,
    S3Orphans,
    S3Prefix,
    job,
    older_than,
    past,
)
from safedelete.declare.orphans import SLOWEST_UPLOAD
from safedelete.declare.time import resolve
from safedelete.errors import ConfigError, ExitCode


class Base(DeclarativeBase):
    pass


class Upload(Base):
    __tablename__ = "uploads"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    s3_key: Mapped[str] = mapped_column(String)
    thumb_key: Mapped[str | None] = mapped_column(String)
    size: Mapped[int] = mapped_column(BigInteger)
    etag: Mapped[str] = mapped_column(String)
    legal_hold: Mapped[bool] = mapped_column(Boolean)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime)
    epoch: Mapped[int] = mapped_column(BigInteger)
    day: Mapped[datetime] = mapped_column(Date)


class Owner(Base):
    __tablename__ = "owners"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    upload_id: Mapped[int] = mapped_column(ForeignKey("uploads.id"))
    seen_at: Mapped[datetime] = mapped_column(DateTime)


class Animal(Base):
    __tablename__ = "animals"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    kind: Mapped[str] = mapped_column(String)
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}  # noqa: RUF012


class Dog(Animal):
    __mapper_args__ = {"polymorphic_identity": "dog"}  # noqa: RUF012


class Whispered(TypeDecorator[str]):
    impl = String
    cache_ok = True


class Sealed(Base):
    __tablename__ = "sealed"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    s3_key: Mapped[str] = mapped_column(Whispered)


KEYLESS = Table("log_lines", MetaData(), Column("at", DateTime), Column("raw", LargeBinary))
WEEK = timedelta(days=7)
HOUR = timedelta(hours=1)
OLD = older_than(Upload.created_at, days=90)


def rows() -> Rows:
    return Rows(Upload, OLD)


def orphans(bucket: str = "acme", prefix: str = "u/", **changes: Any) -> S3Orphans:
    return S3Orphans(bucket, prefix, **({"referenced_by": [Upload.s3_key], "older_than": WEEK} | changes))


def purge(*targets: Any, **changes: Any) -> Purge:
    given: dict[str, Any] = {"schedule": "cron(15 3 * * ? *)", "timeout": HOUR} | changes
    return Purge(
        changes.pop("name", "uploads"),
        *(targets or (rows(),)),
        **{k: v for k, v in given.items() if k != "name"},
    )


def prefix(**changes: Any) -> S3Prefix:
    return S3Prefix("acme", "tmp/", older_than=WEEK, **changes)


Mistake = tuple[str, Callable[[], object], tuple[str, ...]]
MISTAKES: list[Mistake] = [
    # retention
    (
        "no retention",
        lambda: older_than(Upload.created_at),
        ("older_than(created_at)", "0:00:00", "positive"),
    ),
    (
        "zero retention",
        lambda: older_than(Upload.created_at, days=0),
        ("older_than(created_at)", "0:00:00", "positive"),
    ),
    ("negative retention", lambda: older_than(Upload.created_at, days=-90), ("-90 days", "positive")),
    (
        "parts that cancel out",
        lambda: older_than(Upload.created_at, days=1, hours=-24),
        ("0:00:00", "positive"),
    ),
    ("negative age", lambda: older_than(Upload.created_at, age=-WEEK), ("-7 days", "positive")),
    ("age and parts", lambda: older_than(Upload.created_at, age=WEEK, days=7), ("age=", "not both")),
    ("age as a number", lambda: older_than(Upload.created_at, age=90), ("90", "timedelta")),  # type: ignore[arg-type]
    ("days as a text", lambda: older_than(Upload.created_at, days="90"), ("days='90'", "number")),  # type: ignore[arg-type]
    ("days not a number", lambda: older_than(Upload.created_at, days=float("nan")), ("days=nan", "number")),
    ("days without end", lambda: older_than(Upload.created_at, days=float("inf")), ("days=inf", "number")),
    (
        "days beyond the calendar",
        lambda: older_than(Upload.created_at, days=10**7),
        ("10000000 days", "1,000 years"),
    ),
    ("days as a switch", lambda: older_than(Upload.created_at, days=True), ("days=True", "number")),
    # time columns
    (
        "text column",
        lambda: past(Upload.s3_key),
        ("past(s3_key)", "String()", "timestamps, dates and integer"),
    ),
    ("text instead of a column", lambda: past("expires_at"), ("'expires_at'", "str", "column")),  # type: ignore[arg-type]
    ("integer without unit", lambda: older_than(Upload.epoch, days=1), ("epoch", 'unit="s"', "None")),
    ("integer with a bad unit", lambda: past(Upload.epoch, unit="us"), ("epoch", "'us'", 'unit="ms"')),  # type: ignore[arg-type]
    ("unit on a timestamp", lambda: past(Upload.created_at, unit="s"), ("unit='s'", "integer columns")),
    ("zone on an aware column", lambda: past(Upload.created_at, tz="UTC"), ("tz='UTC'", "naive", "aware")),
    ("unknown zone", lambda: past(Upload.expires_at, tz="Mars/X"), ("tz='Mars/X'", "no such time zone")),
    ("empty zone", lambda: past(Upload.expires_at, tz=""), ("tz=''", "no such time zone")),
    ("zone of another type", lambda: past(Upload.expires_at, tz=3), ("tz=3", "no such time zone")),  # type: ignore[arg-type]
    # rows
    (
        "no time test",
        lambda: Rows(Upload, Upload.legal_hold.is_(False)),
        ("Rows(uploads)", "time test", "anytime"),
    ),
    ("no predicate", lambda: Rows(Upload), ("Rows(uploads)",)),
    ("no predicate at any time", lambda: Rows(Upload, anytime=True), ("no predicate", "every row")),
    ("anytime not a switch", lambda: Rows(Upload, true(), anytime="yes"), ("anytime='yes'", "True or False")),  # type: ignore[arg-type]
    ("no primary key", lambda: Rows(KEYLESS, past(KEYLESS.c.at)), ("Rows(log_lines)", "no primary key")),
    ("class without a table", lambda: Rows(dict, OLD), ("dict", "ORM model or a Table")),
    ("name instead of a table", lambda: Rows("uploads", OLD), ("'uploads'", "ORM model or a Table", "str")),  # type: ignore[arg-type]
    ("an inherited table", lambda: Rows(Dog, true(), anytime=True), ("Dog", "inherits")),
    ("predicate is a bool", lambda: Rows(Upload, OLD, True), ("True", "bool", "boolean expression")),  # type: ignore[arg-type]
    ("predicate is a text", lambda: Rows(Upload, OLD, "id > 3"), ("'id > 3'", "str", "boolean expression")),  # type: ignore[arg-type]
    ("predicate is text()", lambda: Rows(Upload, OLD, text("id > 3")), ("TextClause", "boolean expression")),  # type: ignore[arg-type]
    ("predicate is a select", lambda: Rows(Upload, OLD, select(Upload.id)), ("Select", "boolean expression")),  # type: ignore[arg-type]
    (
        "predicate is a number column",
        lambda: Rows(Upload, OLD, Upload.size),
        ("uploads.size", "BigInteger()", "boolean"),
    ),  # type: ignore[arg-type]
    (
        "predicate of another table",
        lambda: Rows(Upload, OLD, Owner.id == 3),
        ("Rows(uploads)", "owners", "every pair"),
    ),
    ("a join by hand", lambda: Rows(Upload, OLD, Owner.upload_id == Upload.id), ("owners", "every pair")),
    ("time test of another table", lambda: Rows(Upload, past(Owner.seen_at)), ("owners", "every pair")),
    ("owns a text", lambda: Rows(Upload, OLD, owns="acme"), ("owns=", "S3Keys")),  # type: ignore[arg-type]
    ("owns a number", lambda: Rows(Upload, OLD, owns=3), ("owns=", "given 3", "S3Keys")),  # type: ignore[arg-type]
    ("owns by another table", lambda: Rows(Upload, OLD, owns=S3Keys("acme", Owner.id)), ("'acme'", "owners")),
    (
        "etag of another table",
        lambda: Rows(Upload, OLD, owns=S3Keys("acme", Upload.s3_key, etag=Owner.id)),
        ("'acme'", "owners"),
    ),
    ("may_touch is one text", lambda: Rows(Upload, OLD, may_touch="audit"), ("may_touch='audit'", "list")),
    # keys and prefixes
    ("keys in no bucket", lambda: S3Keys("", Upload.s3_key), ("S3Keys('')", "empty")),
    ("keys in a blank bucket", lambda: S3Keys("  ", Upload.s3_key), ("S3Keys('  ')", "empty")),
    ("keys in a URL", lambda: S3Keys("s3://acme", Upload.s3_key), ("'s3://acme'", "3 to 63")),
    ("keys in None", lambda: S3Keys(None, Upload.s3_key), ("S3Keys(None)", "empty")),  # type: ignore[arg-type]
    ("keys in a path", lambda: S3Keys("acme/uploads", Upload.s3_key), ("'acme/uploads'", "3 to 63")),
    ("keys in a bucket and a newline", lambda: S3Keys("acme\n", Upload.s3_key), ("'acme\\n'", "3 to 63")),
    ("no key column", lambda: S3Keys("acme"), ("S3Keys('acme')", "at least one column")),
    ("prefix as text", lambda: S3Keys("acme", prefix="up/"), ("'up/'", "prefix=", "column")),  # type: ignore[arg-type]
    (
        "an ETag for a prefix",
        lambda: S3Keys("acme", prefix=Upload.s3_key, etag=Upload.etag),
        ("etag= and size=", "0 key columns"),
    ),
    (
        "a prefix of another table",
        lambda: Rows(Upload, OLD, owns=S3Keys("acme", prefix=Owner.id)),
        ("'acme'", "owners"),
    ),
    (
        "a canary in no folder",
        lambda: S3Keys("acme", Upload.s3_key, require_conditional="canary"),
        ("require_conditional='canary'", "ends with a slash"),
    ),
    (
        "a canary in the root",
        lambda: S3Prefix("acme", "tmp/", older_than=timedelta(days=1), require_conditional="/"),
        ("require_conditional='/'", "folder"),
    ),
    ("key column as text", lambda: S3Keys("acme", "s3_key"), ("'s3_key'", "str", "column")),  # type: ignore[arg-type]
    (
        "shared not a switch",
        lambda: S3Keys("acme", Upload.s3_key, shared="no"),
        ("shared='no'", "True, False"),
    ),  # type: ignore[arg-type]
    (
        "unknown mode",
        lambda: S3Keys("acme", Upload.s3_key, mode="hide"),
        ("mode='hide'", '"marker" or "purge"'),
    ),  # type: ignore[arg-type]
    (
        "one etag for two keys",
        lambda: S3Keys("acme", Upload.s3_key, Upload.thumb_key, etag=Upload.etag),
        ("etag=", "2 key columns"),
    ),
    ("prefix in no bucket", lambda: S3Prefix("", "tmp/", older_than=WEEK), ("S3Prefix('')", "empty")),
    (
        "empty prefix",
        lambda: S3Prefix("acme", "", older_than=WEEK),
        ("S3Prefix('acme', '')", "whole_bucket=True"),
    ),
    ("no prefix", lambda: S3Prefix("acme", None, older_than=WEEK), ("None", "prefix")),  # type: ignore[arg-type]
    ("slash as prefix", lambda: S3Prefix("acme", "/", older_than=WEEK), ("'/'", "exact_prefix=True")),
    (
        "a prefix and the whole bucket",
        lambda: S3Prefix("acme", "tmp/", older_than=WEEK, whole_bucket=True),
        ("'tmp/'", "whole_bucket"),
    ),
    (
        "prefix of age zero",
        lambda: S3Prefix("acme", "tmp/", older_than=0 * WEEK),
        ("older_than=datetime.timedelta(0)", "positive"),
    ),
    ("prefix of negative age", lambda: S3Prefix("acme", "tmp/", older_than=-WEEK), ("days=-7", "positive")),
    ("prefix of age 7", lambda: S3Prefix("acme", "tmp/", older_than=7), ("older_than=7", "timedelta")),  # type: ignore[arg-type]
    (
        "prefix with unknown mode",
        lambda: S3Prefix("acme", "t/", older_than=WEEK, mode="x"),
        ("mode='x'", '"marker"'),
    ),  # type: ignore[arg-type]
    # orphans
    ("orphans at a rate of 0", lambda: orphans(max_delete_rate=0), ("max_delete_rate=0", "above 0")),
    (
        "orphans with a canary in no folder",
        lambda: orphans(require_conditional="canary"),
        ("S3Orphans('acme', require_conditional='canary'", "ends with a slash"),
    ),
    (
        "orphans with a column of another place that is not asked",
        lambda: orphans(outside_ok=Upload.thumb_key),
        ("outside_ok has", "referenced_by has not"),
    ),
    ("orphans in no bucket", lambda: orphans(bucket=""), ("S3Orphans('')", "empty")),
    ("orphans under no prefix", lambda: orphans(prefix=""), ("S3Orphans('acme', '')", "whole_bucket=True")),
    ("orphans under a slash", lambda: orphans(prefix="/u"), ("'/u'", "exact_prefix=True")),
    ("orphans of age 7", lambda: orphans(older_than=7), ("older_than=7", "timedelta")),
    ("orphans of any age", lambda: orphans(older_than=None), ("older_than=None", "1 day, 0:00:00")),
    (
        "orphans younger than an upload takes",
        lambda: orphans(older_than=SLOWEST_UPLOAD - timedelta(seconds=1)),
        ("seconds=86399", "at least 1 day", "SLOWEST_UPLOAD", "days=7"),
    ),
    ("orphans of nothing", lambda: orphans(referenced_by=[]), ("referenced_by is empty", "s3_key")),
    ("orphans of a name", lambda: orphans(referenced_by=["s3_key"]), ("'s3_key'", "a str")),
    ("orphans of a model", lambda: orphans(referenced_by=[Upload]), ("referenced_by", "columns")),
    (
        "orphans of a number",
        lambda: orphans(referenced_by=[Upload.size]),
        ("uploads.size", "BigInteger", "text"),
    ),
    (
        "orphans of a decorated column",
        lambda: orphans(referenced_by=[Sealed.s3_key]),
        ("sealed.s3_key", "type_coerce(column, String())"),
    ),
    ("orphans of a literal", lambda: orphans(referenced_by=[literal("x")]), ("no table", "one table")),
    (
        "orphans of two tables in one",
        lambda: orphans(referenced_by=[func.concat(Upload.s3_key, Animal.kind)]),
        ("animals, uploads", "by itself"),
    ),
    ("orphans with unknown mode", lambda: orphans(mode="x"), ("mode='x'", '"marker"')),
    ("orphans missing maybe", lambda: orphans(missing_ok="yes"), ("missing_ok='yes'", "True or False")),
    ("the same orphans twice", lambda: purge(orphans(), orphans()), ("orphans of s3://acme/u/", "twice")),
    ("pattern as a number", lambda: prefix(pattern=3), ("pattern=3", "glob as text")),
    ("empty pattern", lambda: prefix(pattern=""), ("pattern=''", "it is empty")),
    ("pattern that is not closed", lambda: prefix(pattern="[a"), ("pattern='[a'", "not closed")),
    ("pattern the wrong way round", lambda: prefix(pattern="[9-0]"), ("pattern='[9-0]'", "wrong way round")),
    ("pattern of half a **", lambda: prefix(pattern="a**"), ("pattern='a**'", "whole segments")),
    ("pattern that begins with a slash", lambda: prefix(pattern="/*.log"), ("'/*.log'", "pattern='*.log'")),
    ("size of -1", lambda: prefix(min_size=-1), ("min_size=-1", "at least 0")),
    ("size of 1.5", lambda: prefix(max_size=1.5), ("max_size=1.5", "whole number")),
    ("size of True", lambda: prefix(min_size=True), ("min_size=True", "whole number")),
    ("sizes that exclude each other", lambda: prefix(min_size=6, max_size=5), ("min_size=6", "max_size=5")),
    ("unknown class", lambda: prefix(storage_class="COLD"), ("'COLD'", "STANDARD_IA")),
    ("class in small letters", lambda: prefix(storage_class=["standard"]), ("'standard'", "none of S3's")),
    ("no class", lambda: prefix(storage_class=[]), ("storage_class=[]", "list of them")),
    ("class as a number", lambda: prefix(storage_class=3), ("storage_class=3", "list of them")),
    ("rate of 0", lambda: prefix(max_delete_rate=0), ("max_delete_rate=0", "above 0")),
    ("negative rate", lambda: prefix(max_delete_rate=-1.0), ("max_delete_rate=-1.0", "above 0")),
    ("endless rate", lambda: prefix(max_delete_rate=float("inf")), ("max_delete_rate=inf", "above 0")),
    ("rate of no number", lambda: prefix(max_delete_rate=float("nan")), ("max_delete_rate=nan", "above 0")),
    ("rate as text", lambda: prefix(max_delete_rate="5/s"), ("max_delete_rate='5/s'", "keys a second")),
    (
        "inventory as a path",
        lambda: prefix(inventory="inv/manifest.json"),
        ("'inv/manifest.json'", "s3:// URL"),
    ),
    (
        "inventory of another file",
        lambda: prefix(inventory="s3://inv/a.csv"),
        ("'s3://inv/a.csv'", "manifest.json"),
    ),
    ("inventory of no folder", lambda: prefix(inventory="s3://inv/"), ("'s3://inv/'", "s3:// URL")),
    ("inventory in no bucket", lambda: prefix(inventory="s3://I/x/"), ("'I'", "3 to 63")),
    ("inventory as a number", lambda: prefix(inventory=3), ("inventory=3", "Inventory")),
    (
        "inventory of age 0",
        lambda: Inventory("s3://inv/x/", max_age=0 * WEEK),
        ("max_age=datetime.timedelta(0)", "positive"),
    ),
    (
        "inventory of versions",
        lambda: prefix(inventory="s3://inv/x/", mode="purge"),
        ('mode="purge"', "day old"),
    ),
    (
        "inventory of an access point",
        lambda: S3Prefix(
            "arn:aws:s3:eu-west-1:123456789012:accesspoint/x", "p", older_than=WEEK, inventory="s3://inv/x/"
        ),
        ("access point", "Name the bucket itself"),
    ),
    ("endpoint without a scheme", lambda: S3Endpoint(url="minio:9000"), ("'minio:9000'", "https://")),
    (
        "endpoint with a bucket",
        lambda: S3Endpoint(url="http://minio/acme"),
        ("'http://minio/acme'", "without a bucket"),
    ),
    ("endpoint of style path", lambda: S3Endpoint(path_style="path"), ("path_style='path'", "True or False")),  # type: ignore[arg-type]
    ("endpoint of unclear MD5", lambda: S3Endpoint(content_md5=None), ("content_md5=None", "True or False")),  # type: ignore[arg-type]
    ("endpoint of a named owner", lambda: S3Endpoint(owner="acme"), ("owner='acme'", "12 digits")),
    # guard
    ("guard of 0 items", lambda: Guard(max_items=0), ("max_items=0", "at least 1")),
    ("guard of -1 items", lambda: Guard(max_items=-1), ("max_items=-1", "at least 1")),
    ("guard of 1.5 items", lambda: Guard(max_items=1.5), ("max_items=1.5", "whole number")),  # type: ignore[arg-type]
    ("guard of True items", lambda: Guard(max_items=True), ("max_items=True", "whole number")),
    ("guard of 0 bytes", lambda: Guard(max_bytes=0), ("max_bytes=0", "at least 1")),
    ("guard of nothing", lambda: Guard(max_fraction=0), ("max_fraction=0", "above 0 and at most 1")),
    ("guard of 10 for 10 %", lambda: Guard(max_fraction=10), ("max_fraction=10", "at most 1")),
    ("guard of 1.01", lambda: Guard(max_fraction=1.01), ("max_fraction=1.01", "at most 1")),
    ("guard of not a number", lambda: Guard(max_fraction=float("nan")), ("max_fraction=nan", "at most 1")),
    ("guard of a negative share", lambda: Guard(max_fraction=-0.1), ("max_fraction=-0.1", "above 0")),
    ("guard with an unknown word", lambda: Guard(too_few="stop"), ("too_few='stop'", '"warn" or "refuse"')),  # type: ignore[arg-type]
    # purges
    ("empty name", lambda: purge(name=""), ("Purge('')", "1 to 64")),
    ("name with blanks", lambda: purge(name="my purge"), ("'my purge'", "a-z, 0-9")),
    ("name in capitals", lambda: purge(name="Uploads"), ("'Uploads'", "a-z")),
    ("name with a dash at its end", lambda: purge(name="uploads-"), ("'uploads-'", "either end")),
    ("name and a newline", lambda: purge(name="uploads\n"), ("'uploads\\n'", "1 to 64")),
    ("name too long", lambda: purge(name="a" * 65), ("1 to 64",)),
    ("name of another type", lambda: purge(name=None), ("None", "1 to 64")),
    ("no target", lambda: Purge("x", schedule="@daily", timeout=HOUR), ("Purge('x')", "at least one target")),
    ("a model as target", lambda: purge(Upload), ("Upload", "Rows, S3Prefix and S3Orphans")),
    ("the same table twice", lambda: purge(rows(), rows()), ("uploads", "twice")),
    (
        "the same prefix twice",
        lambda: purge(S3Prefix("acme", "tmp", older_than=WEEK), S3Prefix("acme", "tmp/", older_than=HOUR)),
        ("s3://acme/tmp/", "twice"),
    ),
    ("guard as a dict", lambda: purge(guard={"max_items": 5}), ("guard=", "Guard", "max_items")),
    ("no schedule", lambda: purge(schedule=""), ("schedule=''", "crontab")),
    ("schedule of None", lambda: purge(schedule=None), ("schedule=None", "crontab")),
    ("impossible day", lambda: purge(schedule="0 3 30 2 *"), ("'0 3 30 2 *'", "no such day")),
    ("impossible hour", lambda: purge(schedule="0 25 * * *"), ("Purge('uploads')", "'25'", "0 to 23")),
    ("unknown zone of a purge", lambda: purge(tz="Mars/Olympus"), ("tz='Mars/Olympus'", "no time zone")),
    ("zone of a purge of another type", lambda: purge(tz=None), ("tz=None", "no time zone")),
    ("timeout of 0", lambda: purge(timeout=timedelta(0)), ("timeout=datetime.timedelta(0)", "positive")),
    ("timeout as a number", lambda: purge(timeout=1200), ("timeout=1200", "timedelta")),
    (
        "timeout reaches the next run",
        lambda: purge(timeout=timedelta(days=1)),
        ("timeout=1 day, 0:00:00", "1 day, 0:00:00"),
    ),
    (
        "timeout reaches the next run in spring only",
        lambda: purge(schedule="15 3 * * *", tz="Europe/Berlin", timeout=timedelta(hours=23)),
        ("timeout=23:00:00", "23:00:00"),
    ),
    ("timeout of a rate", lambda: purge(schedule="rate(1 hour)"), ("timeout=1:00:00", "'rate(1 hour)'")),
    ("grace of 0", lambda: purge(grace=timedelta(0)), ("grace=datetime.timedelta(0)", "positive")),
    ("negative resume window", lambda: purge(resume_within=-HOUR), ("resume_within=", "positive")),
    ("per_run of 0", lambda: purge(per_run=0), ("per_run=0", "at least 1")),
    ("per_run of True", lambda: purge(per_run=True), ("per_run=True", "whole number")),
    ("max_sealed of 0", lambda: purge(max_sealed=0), ("max_sealed=0", "at least 1")),
    ("max_sealed of None", lambda: purge(max_sealed=None), ("max_sealed=None", "at least 1")),
    ("database of another type", lambda: purge(database=5), ("database=5", "Engine")),
    ("database without a URL", lambda: purge(database="not a url"), ("database=", "no URL")),
    ("lock of no kind", lambda: purge(lock="file"), ("lock='file'", "'advisory', 'redis'")),
    (
        "advisory lock on SQLite",
        lambda: purge(lock="advisory", database="sqlite:///app.db"),
        ('lock="advisory"', "no advisory locks"),
    ),
    # jobs
    (
        "job's lock",
        lambda: job("x", schedule="@daily", timeout=HOUR, lock="cron"),
        ("lock='cron'", "'lease'"),
    ),  # type: ignore[arg-type]
    ("job's name", lambda: job("My Job", schedule="@daily", timeout=HOUR), ("job('My Job')", "a-z")),
    ("job's schedule", lambda: job("x", schedule="soon", timeout=HOUR), ("job('x')", "'soon'")),
    ("job's timeout", lambda: job("x", schedule="@daily", timeout=timedelta(0)), ("job('x')", "timeout=")),
    ("job's grace", lambda: job("x", schedule="@daily", timeout=HOUR, grace=5), ("grace=5", "timedelta")),  # type: ignore[arg-type]
    (
        "job's zone",
        lambda: job("x", schedule="@daily", timeout=HOUR, tz="Nope"),
        ("tz='Nope'", "no time zone"),
    ),
    ("job of no function", lambda: job("x", schedule="@daily", timeout=HOUR)(3), ("3", "function")),  # type: ignore[arg-type]
    # arguments that belong elsewhere
    (
        "age of a purge",
        lambda: purge(anytime=True),
        ("Purge('uploads'): there is no argument anytime=", "Rows(..., anytime=...)"),
    ),
    ("limit of a purge", lambda: purge(max_items=5), ("no argument max_items=", "Guard(..., max_items=...)")),
    (
        "mode of a purge",
        lambda: purge(mode="marker"),
        ("no argument mode=", "S3Keys(..., mode=...) or S3Prefix(..., mode=...) or S3Orphans(..., mode=...)"),
    ),
    ("misspelt", lambda: purge(gaurd=Guard()), ("no argument gaurd=", "Was guard= meant?")),
    (
        "never heard of",
        lambda: purge(zzz=1),
        ("no argument zzz=", "It takes name, schedule, timeout, guard, "),
    ),
    (
        "age of a job",
        lambda: job("x", schedule="@daily", timeout=HOUR, anytime=True),  # type: ignore[call-arg]
        ("job('x'): there is no argument anytime=", "Rows(..., anytime=...)"),
    ),
    (
        "job of a generator",
        lambda: job("x", schedule="@daily", timeout=HOUR)(yielding),
        ("job('x')", "a generator", "runs none of it"),
    ),
    (
        "job of an asynchronous generator",
        lambda: job("x", schedule="@daily", timeout=HOUR)(yielding_later),
        ("job('x')", "a generator"),
    ),
    (
        "job of a function without an argument",
        lambda: job("x", schedule="@daily", timeout=HOUR)(lambda: None),  # type: ignore[arg-type, misc]
        ("job('x')", "one argument, the run", "def reminders(run)"),
    ),
    (
        "job of a function of two arguments",
        lambda: job("x", schedule="@daily", timeout=HOUR)(lambda run, date: None),  # type: ignore[arg-type, misc]
        ("one argument", "'date'"),
    ),
    (
        "timeout that no calendar holds",
        lambda: job("x", schedule="cron(0 0 1 1 ? 2030)", timeout=timedelta.max),
        ("timeout=", "at most 3,653 days"),
    ),
    ("grace that no calendar holds", lambda: purge(grace=timedelta.max), ("grace=", "at most 3,653 days")),
]


def yielding(run: object) -> Iterator[object]:
    yield run


async def yielding_later(run: object) -> AsyncIterator[object]:
    yield run


@pytest.mark.parametrize(("declare", "says"), [m[1:] for m in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_a_config_error_that_says_what_and_what_is_allowed(
    declare: Callable[[], object], says: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        declare()
    whole = f"{caught.value} {caught.value.hint}"
    for words in says:
        assert words in whole
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.deleted == 0


def test_the_declarations_of_the_design_are_accepted() -> None:
    uploads = Purge(
        "expired-uploads",
        Rows(
            Upload,
            past(Upload.expires_at),
            Upload.legal_hold.is_(False),
            owns=S3Keys("acme-uploads", Upload.s3_key, Upload.thumb_key),
        ),
        schedule="cron(15 3 * * ? *)",
        timeout=timedelta(minutes=20),
        guard=Guard(max_items=200_000, max_fraction=0.10),
    )
    assert [target.name for target in uploads.targets] == ["uploads"]
    scratch = Purge(
        "scratch-objects",
        S3Prefix("acme-scratch", "tmp/", older_than=WEEK),
        schedule="15 4 * * *",
        timeout=HOUR,
    )
    assert scratch.targets[0].name == "s3://acme-scratch/tmp/"

    @job("reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=15))
    def reminders(run: object) -> object:
        return run

    assert isinstance(reminders, Job)
    assert reminders(None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "declare",
    [
        lambda: Rows(Upload.__table__, OLD),
        lambda: Rows(Upload, or_(OLD, Upload.legal_hold)),
        lambda: Rows(Upload, Upload.legal_hold, OLD),
        lambda: Rows(Upload, true(), anytime=True),
        lambda: Rows(Upload, OLD, ~exists().where(Owner.upload_id == Upload.id)),
        lambda: Rows(Upload, OLD, Upload.id.in_(select(Owner.upload_id))),
        lambda: Rows(
            Upload,
            OLD,
            owns=[S3Keys("acme", Upload.s3_key, etag=Upload.etag), S3Keys("acme", Upload.thumb_key)],
        ),
        lambda: Rows(Upload, OLD, owns=S3Keys("acme", func.concat("thumbs/", Upload.s3_key))),
        lambda: Rows(Upload, OLD, may_touch=["audit"]),
        lambda: S3Prefix("acme", "", older_than=WEEK, whole_bucket=True),
        lambda: orphans(referenced_by=Upload.s3_key, older_than=SLOWEST_UPLOAD),
        lambda: orphans(referenced_by=[Upload.s3_key, func.concat("th/", Upload.thumb_key), Animal.kind]),
        lambda: orphans(referenced_by=[type_coerce(Sealed.s3_key, String())]),
        lambda: purge(orphans(), S3Prefix("acme", "u/", older_than=WEEK)),
        lambda: prefix(pattern="**/*.[jp][ps]g", min_size=0, max_size=0, storage_class="GLACIER"),
        lambda: prefix(storage_class=("STANDARD", "STANDARD_IA"), max_delete_rate=0.5),
        lambda: prefix(inventory="s3://inv/to/acme/daily/", mode="marker"),
        lambda: prefix(inventory=Inventory("s3://inv/a/manifest.json", max_age=2 * WEEK)),
        lambda: prefix(client=S3Endpoint(url="https://minio:9000/", path_style=False, content_md5=True)),
        lambda: S3Endpoint(owner="123456789012", region="eu-central-1"),
        lambda: S3Keys("arn:aws:s3:eu-west-1:123456789012:accesspoint/x", Upload.s3_key),
        lambda: Guard(max_fraction=1, max_items=1),
        lambda: purge(timeout=timedelta(hours=22), schedule="15 3 * * *", tz="Europe/Berlin"),
        lambda: purge(schedule="03:15 Europe/Berlin", database="postgresql://db/app"),
        lambda: purge(S3Prefix("acme", "tmp/", older_than=WEEK), S3Prefix("acme", "tmp2/", older_than=WEEK)),
        lambda: purge(S3Prefix("acme", "a/", older_than=WEEK), S3Prefix("other", "a/b/", older_than=WEEK)),
    ],
)
def test_what_is_right_is_accepted(declare: Callable[[], object]) -> None:
    assert declare() is not None


def test_a_prefix_means_whole_path_segments_unless_said_exactly() -> None:
    assert S3Prefix("acme", "tmp", older_than=WEEK).prefix == "tmp/"
    assert S3Prefix("acme", "log-", older_than=WEEK, exact_prefix=True).prefix == "log-"


@pytest.mark.parametrize(
    ("column", "options", "cutoff"),
    [
        (Upload.created_at, {}, datetime(2026, 3, 28, 23, 30, tzinfo=UTC)),
        (Upload.expires_at, {}, datetime(2026, 3, 28, 23, 30)),
        (Upload.expires_at, {"tz": "Europe/Berlin"}, datetime(2026, 3, 29, 0, 30)),
        (Upload.day, {}, datetime(2026, 3, 28).date()),
        (Upload.day, {"tz": "Europe/Berlin"}, datetime(2026, 3, 29).date()),
        (Upload.epoch, {"unit": "s"}, 1_774_740_600),
        (Upload.epoch, {"unit": "ms"}, 1_774_740_600_000),
    ],
)
def test_a_cutoff_takes_the_shape_of_its_column(column: Any, options: dict[str, Any], cutoff: object) -> None:
    at = datetime(2026, 3, 29, 23, 30, tzinfo=UTC)
    target = Rows(Upload, older_than(column, days=1, **options))
    assert list(resolve(target.age_tests, at).values()) == [cutoff]


@pytest.mark.parametrize(
    ("options", "at", "cutoff"),
    [
        ({}, "2026-03-29T23:30", "2026-03-28T00:00"),
        ({}, "2026-03-29T00:00", "2026-03-28T00:00"),
        ({"tz": "Europe/Berlin"}, "2026-03-29T23:30", "2026-03-28T23:00"),
        ({"tz": "Europe/Berlin"}, "2026-03-31T03:15", "2026-03-29T22:00"),
        ({"tz": "Asia/Kolkata"}, "2026-03-29T20:00", "2026-03-28T18:30"),
        # On the day that summer time begins in Beirut, there is no midnight.
        ({"tz": "Asia/Beirut"}, "2026-03-30T03:15", "2026-03-28T22:00"),
    ],
)
def test_the_cutoff_of_a_date_column_is_the_midnight_that_its_first_day_to_stay_begins_with(
    options: dict[str, Any], at: str, cutoff: str
) -> None:
    target = Rows(Upload, older_than(Upload.day, days=1, **options))
    (test,) = target.age_tests
    as_of = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert test.cutoff.instant(as_of) == datetime.fromisoformat(cutoff).replace(tzinfo=UTC)
    kept = (as_of - timedelta(days=1)).astimezone(ZoneInfo(options.get("tz", "UTC"))).date()
    assert test.cutoff.value(as_of) == kept
    for days in (-400, -1, 0, 1, 2, 60, 400):
        assert test.cutoff.later(as_of, days) == kept + timedelta(days=days)


def test_days_after_a_cutoff_are_days_of_24_hours_where_a_column_holds_times() -> None:
    target = Rows(Upload, older_than(Upload.expires_at, days=1, tz="Europe/Berlin"))
    (test,) = target.age_tests
    as_of = datetime(2026, 3, 29, 23, 30, tzinfo=UTC)
    assert test.cutoff.later(as_of, 0) == datetime(2026, 3, 29, 0, 30)
    assert test.cutoff.later(as_of, 1) == datetime(2026, 3, 30, 1, 30)


def test_a_password_in_a_bad_database_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        purge(database="postgresql://app:hunter2@db:port/app")
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "predicate",
    [
        ~OLD,
        not_(past(Upload.expires_at)),
        not_(and_(OLD, Upload.legal_hold)),
        and_(Upload.legal_hold, or_(~OLD, Upload.size > 5)),
        case((OLD, false()), else_=true()),
        false() == OLD,
        OLD.is_(False),
        exists().where(Owner.upload_id == Upload.id, OLD),
        Upload.id.in_(select(Owner.upload_id).where(OLD)),
    ],
)
@pytest.mark.parametrize("options", [{}, {"anytime": True}])
def test_an_age_test_that_may_mean_younger_is_refused(predicate: Any, options: dict[str, bool]) -> None:
    with pytest.raises(ConfigError, match="age test") as caught:
        Rows(Upload, predicate, **options)
    assert caught.value.hint


@pytest.mark.parametrize(
    "predicate",
    [
        and_(OLD, Upload.legal_hold),
        or_(OLD, and_(past(Upload.expires_at), ~Upload.legal_hold)),
        and_(or_(OLD, Upload.legal_hold).self_group(), Upload.size > 5),
        ~~OLD,
    ],
)
def test_age_tests_stand_under_and_and_or(predicate: Any) -> None:
    assert Rows(Upload, predicate).age_tests


@pytest.mark.parametrize(
    ("other", "what"),
    [({"mode": "marker"}, "mode='purge'"), ({"mode": "purge", "client": object()}, "clients")],
)
def test_one_bucket_has_one_mode_and_one_client(other: dict[str, Any], what: str) -> None:
    one = S3Keys("acme", Upload.s3_key, mode="purge")
    with pytest.raises(ConfigError, match=what):
        Rows(Upload, OLD, owns=[one, S3Keys("acme", Upload.thumb_key, **other)])
    Rows(Upload, OLD, owns=[one, S3Keys("acme", Upload.thumb_key, mode="purge")])
    Rows(Upload, OLD, owns=[one, S3Keys("other", Upload.thumb_key, **other)])
