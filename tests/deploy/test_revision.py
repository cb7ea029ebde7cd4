"""Whatever is declared is part of what a definition is known by, or is named as left out, with a reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete.core.limits import Guard
from safedelete.declare import (
    Declared,
    Inventory,
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
from safedelete.deploy.aws.revision import DECLARED, LEFT_OUT, revision_of
from tests.deploy.aws import purge

TABLE = sa.Table(
    "t",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.DateTime),
    sa.Column("k", sa.String(9)),
    sa.Column("l", sa.String(9)),
)
OTHER = sa.Table("u", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True))
AT, KEY, OTHER_KEY = TABLE.c.at, TABLE.c.k, TABLE.c.l
WEEK = timedelta(days=7)


def of(*targets: Any, **options: Any) -> Purge:
    return purge(targets=targets or [S3Prefix("acme", "tmp/", older_than=WEEK)], **options)


def function(name: str = "f", **options: Any) -> Declared:
    def body(run: object) -> None: ...

    body.__qualname__ = name
    given = {"schedule": "rate(1 day)", "timeout": timedelta(minutes=5), **options}
    return job(given.pop("job", "nightly"), **given)(body)


def rows(*predicates: Any, **options: Any) -> Declared:
    return of(Rows(options.pop("entity", TABLE), *(predicates or [past(AT)]), **options))


def keys(*columns: Any, **options: Any) -> Declared:
    owned = S3Keys(options.pop("bucket", "acme"), *(columns or [KEY]), **options)
    return of(Rows(TABLE, past(AT), owns=owned))


def prefix(**options: Any) -> Declared:
    return of(S3Prefix(**{"bucket": "acme", "prefix": "tmp/", "older_than": WEEK, **options}))


def orphans(**options: Any) -> Declared:
    given = {"bucket": "acme", "prefix": "u/", "referenced_by": [KEY, OTHER_KEY], "older_than": WEEK}
    return of(S3Orphans(**{**given, **options}))


def inventory(url: str = "s3://inv/daily/", **options: Any) -> Declared:
    return prefix(inventory=Inventory(url, **options))


def endpoint(**options: Any) -> Declared:
    return prefix(client=S3Endpoint(**options))


def guard(**options: Any) -> Declared:
    return of(guard=Guard(**options))


Change = tuple[Callable[..., Declared], tuple[Any, ...], dict[str, Any]]


def change(make: Callable[..., Declared], *arguments: Any, **options: Any) -> Change:
    return make, arguments, options


CHANGES: Mapping[Any, Mapping[str, Change]] = {
    Purge: {
        "name": change(of, name="weekly"),
        "targets": change(of, S3Prefix("acme", "tmp/", older_than=WEEK), S3Prefix("acme", "x/", older_than=WEEK)),
        "schedule": change(of, schedule="cron(16 3 * * ? *)"),
        "timeout": change(of, timeout=timedelta(minutes=21)),
        "guard": change(of, guard=Guard(max_items=5)),
        "per_run": change(of, per_run=5),
        "tz": change(of, tz="Europe/Berlin"),
        "grace": change(of, grace=timedelta(seconds=21)),
        "resume_within": change(of, resume_within=timedelta(hours=1)),
        "max_sealed": change(of, max_sealed=5),
        "allow_ddl": change(of, allow_ddl=True),
        "max_replication_lag": change(of, max_replication_lag=timedelta(seconds=5)),
        "pause_when": change(of, pause_when=lambda: None),
        "lock": change(of, lock="redis"),
        "elsewhere_ok": change(of, elsewhere_ok=True),
    },
    job: {
        "name": change(function, job="weekly"),
        "schedule": change(function, schedule="rate(2 days)"),
        "timeout": change(function, timeout=timedelta(minutes=6)),
        "tz": change(function, tz="Europe/Berlin"),
        "grace": change(function, grace=timedelta(seconds=21)),
        "allow_ddl": change(function, allow_ddl=True),
        "lock": change(function, lock="redis"),
        "function": change(function, "g"),
    },
    Guard: {
        "max_items": change(guard, max_items=5),
        "max_bytes": change(guard, max_bytes=5),
        "max_fraction": change(guard, max_fraction=0.5),
        "min_age": change(guard, min_age=WEEK),
        "too_few": change(guard, too_few="refuse"),
    },
    Rows: {
        "entity": change(rows, sa.true(), entity=OTHER, anytime=True),
        "predicates": change(rows, older_than(AT, days=3)),
        "owns": change(rows, owns=S3Keys("acme", KEY)),
        "anytime": change(rows, anytime=True),
        "may_touch": change(rows, may_touch=["audit"]),
        "allow_unindexed_fk": change(rows, allow_unindexed_fk=True),
        "allow_unseen": change(rows, allow_unseen=True),
    },
    S3Keys: {
        "bucket": change(keys, bucket="acme-2"),
        "columns": change(keys, OTHER_KEY),
        "prefix": change(keys, prefix=OTHER_KEY),
        "shared": change(keys, shared=False),
        "etag": change(keys, etag=OTHER_KEY),
        "size": change(keys, size=OTHER_KEY),
        "mode": change(keys, mode="purge"),
        "client": change(keys, client=S3Endpoint(region="us-east-1")),
        "missing_ok": change(keys, missing_ok=True),
        "require_conditional": change(keys, require_conditional=True),
    },
    S3Prefix: {
        "bucket": change(prefix, bucket="acme-2"),
        "prefix": change(prefix, prefix="x/"),
        "older_than": change(prefix, older_than=timedelta(days=6)),
        "pattern": change(prefix, pattern="*.log"),
        "min_size": change(prefix, min_size=1),
        "max_size": change(prefix, max_size=1),
        "storage_class": change(prefix, storage_class="STANDARD"),
        "max_delete_rate": change(prefix, max_delete_rate=5),
        "inventory": change(prefix, inventory="s3://inv/daily/"),
        "whole_bucket": change(prefix, prefix="", whole_bucket=True),
        "exact_prefix": change(prefix, exact_prefix=True),
        "mode": change(prefix, mode="purge"),
        "client": change(prefix, client=S3Endpoint()),
        "require_conditional": change(prefix, require_conditional="canary/"),
    },
    S3Orphans: {
        "bucket": change(orphans, bucket="acme-2"),
        "prefix": change(orphans, prefix="x/"),
        "referenced_by": change(orphans, referenced_by=[KEY]),
        "older_than": change(orphans, older_than=timedelta(days=6)),
        "mode": change(orphans, mode="purge"),
        "missing_ok": change(orphans, missing_ok=True),
        "outside_ok": change(orphans, outside_ok=[KEY]),
        "max_delete_rate": change(orphans, max_delete_rate=5),
        "require_conditional": change(orphans, require_conditional=True),
        "whole_bucket": change(orphans, prefix="", whole_bucket=True),
        "exact_prefix": change(orphans, prefix="u", exact_prefix=True),
        "client": change(orphans, client=S3Endpoint()),
    },
    Inventory: {
        "url": change(inventory, "s3://inv/weekly/"),
        "max_age": change(inventory, max_age=timedelta(days=8)),
    },
    S3Endpoint: {
        "url": change(endpoint, url="https://minio.acme.example:9000"),
        "region": change(endpoint, region="eu-central-1"),
        "path_style": change(endpoint, path_style=True),
        "content_md5": change(endpoint, content_md5=True),
        "owner": change(endpoint, owner="123456789012"),
    },
}  # fmt: skip
"""By what is declared, and each of its parameters: another value than the usual one."""


@pytest.mark.parametrize("declared", CHANGES, ids=lambda declared: declared.__name__)
def test_every_parameter_changes_the_revision_or_is_left_out_with_a_reason(declared: Any) -> None:
    parameters = set(inspect.signature(declared).parameters) | ({"function"} if declared is job else set())
    left = set(LEFT_OUT.get(declared, {})) & parameters
    assert set(CHANGES[declared]) == parameters - left, "a new parameter needs a line above"
    for name, (make, arguments, options) in CHANGES[declared].items():
        assert revision_of(make(*arguments, **options)) != revision_of(make()), (
            f"{declared.__name__}({name}=)"
        )


def test_everything_that_can_be_declared_is_looked_at() -> None:
    import safedelete.declare as declare

    made = {getattr(declare, name) for name in declare.__all__} | {Guard}
    classes = {one for one in made if inspect.isclass(one)} - {declare.RunContext}
    assert classes == set(DECLARED)
    assert {one for one in CHANGES if inspect.isclass(one)} | {declare.Job} == classes


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    described = {
        type(one): one for one in (of(), Rows(TABLE, past(AT)), S3Prefix("acme", "x/", older_than=WEEK))
    }
    for kind, names in LEFT_OUT.items():
        assert set(names) <= set(vars(described[kind]))
        assert all(len(reason.split()) > 2 for reason in names.values())


def test_equal_definitions_are_one_whatever_process_declares_them() -> None:
    for make in (of, function, rows, keys, prefix, orphans, inventory, endpoint):
        assert revision_of(make()) == revision_of(make())
    # A client of boto3, an environment's URL: no part of it, and no text of theirs.
    import boto3

    def client() -> Any:
        return boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")

    assert revision_of(prefix(client=client())) == revision_of(prefix(client=client()))
    for url in ("sqlite://", "postgresql://u:hunter2@h/d"):
        assert revision_of(of(database=url)) == revision_of(of())
    assert revision_of(rows(KEY.in_({"a", "b", "c"}), past(AT))) == revision_of(
        rows(KEY.in_(["c", "b", "a"]), past(AT))
    )
