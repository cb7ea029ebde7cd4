"""A job file as the documentation shows it: every line must satisfy a strict type checker."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import boto3
from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table, create_engine, exists, func, or_, true
from sqlalchemy.engine import URL
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from safedelete import (
    Guard,
    Inventory,
    Job,
    Purge,
    Rows,
    RunContext,
    S3Endpoint,
    S3Keys,
    S3Orphans,
    S3Prefix,
    job,
    older_than,
    past,
)
from safedelete.core.decision import Approved, Decision, Refused


class Base(DeclarativeBase):
    pass


class Upload(Base):
    __tablename__ = "uploads"
    id: Mapped[int] = mapped_column(primary_key=True)
    s3_key: Mapped[str]
    thumb_key: Mapped[str | None]
    etag: Mapped[str | None]
    size: Mapped[int]
    legal_hold: Mapped[bool]
    expires_at: Mapped[datetime | None]


class LoginEvent(Base):
    __tablename__ = "login_events"
    id: Mapped[int] = mapped_column(primary_key=True)
    upload_id: Mapped[int]
    created_at: Mapped[datetime]
    epoch: Mapped[int]


audit = Table("audit", MetaData(), Column("id", BigInteger, primary_key=True), Column("at", DateTime))

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
logins = Purge(
    "login-events",
    Rows(LoginEvent, older_than(LoginEvent.created_at, days=90)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=10),
)
scratch = Purge(
    "scratch-objects",
    S3Prefix("acme-scratch", "tmp/", older_than=timedelta(days=7)),
    schedule="15 4 * * *",
    timeout=timedelta(hours=1),
    lock="redis",
)
orphans = Purge(
    "orphaned-uploads",
    S3Orphans(
        "acme",
        "u/",
        referenced_by=[Upload.s3_key, func.concat("thumbs/", Upload.s3_key)],
        older_than=timedelta(days=7),
    ),
    S3Orphans(
        "acme",
        "",
        referenced_by=Upload.s3_key,
        older_than=timedelta(days=7),
        whole_bucket=True,
        mode="purge",
        outside_ok=Upload.s3_key,
        max_delete_rate=500,
        require_conditional="canary/",
    ),
    schedule="rate(1 day)",
    timeout=timedelta(hours=1),
)
several = Purge(
    "several",
    Rows(
        Upload,
        or_(past(Upload.expires_at, tz="Europe/Berlin"), Upload.size > 5),
        ~exists().where(LoginEvent.upload_id == Upload.id),
        owns=[
            S3Keys("acme", Upload.s3_key, etag=Upload.etag, size=Upload.size, shared=False, mode="purge"),
            S3Keys("acme", func.concat("thumbs/", Upload.s3_key), client=boto3.client("s3")),
        ],
        may_touch=["audit"],
    ),
    Rows(audit, older_than(audit.c.at, age=timedelta(days=400))),
    Rows(LoginEvent, older_than(LoginEvent.epoch, hours=36, unit="ms")),
    S3Prefix("acme", "", older_than=timedelta(days=1), whole_bucket=True, client=boto3.client("s3")),
    S3Prefix(
        "acme-logs",
        "app/",
        older_than=timedelta(days=90),
        pattern="**/*.gz",
        min_size=1,
        max_size=5 * 1024**3,
        storage_class=["STANDARD", "STANDARD_IA"],
        max_delete_rate=500,
        inventory=Inventory("s3://acme-inventory/acme-logs/weekly/", max_age=timedelta(days=8)),
    ),
    S3Prefix(
        "acme-scratch",
        "tmp/",
        older_than=timedelta(days=7),
        storage_class="GLACIER",
        inventory="s3://acme-inventory/acme-scratch/daily/",
        client=S3Endpoint(url="https://minio.acme.example:9000", path_style=True, content_md5=True),
    ),
    schedule="Mon..Fri 03:15",
    timeout=timedelta(minutes=20),
    per_run=50_000,
    database=create_engine("sqlite://"),
    tz="Europe/Berlin",
    grace=timedelta(seconds=30),
)
by_url = Purge(
    "by-url",
    Rows(Upload, true(), anytime=True),
    schedule="@daily",
    timeout=timedelta(minutes=1),
    database=URL.create("sqlite"),
)


def due_reminders() -> Iterator[list[int]]:
    yield [1, 2]


@job("reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=15))
def reminders(run: RunContext) -> None:
    for batch in due_reminders():
        run.checkpoint()
        if not run.dry_run:
            run.processed(len(batch))


@job("sweep", schedule="rate(1 hour)", timeout=timedelta(minutes=15))
async def sweep(run: RunContext) -> int:
    run.failed(0)
    return 0


declared: list[Job] = [reminders, sweep]


def execute(decision: Approved) -> str:
    return decision.plan.job


def after(decision: Decision) -> str:
    if isinstance(decision, Refused):
        return ", ".join(finding.code for finding in decision.findings)
    return execute(decision)
