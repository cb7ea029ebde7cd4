"""Mistakes that a strict type checker must find: an ignore that is not needed means that it no longer does."""

from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from safedelete import (
    Guard,
    Inventory,
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
from safedelete.core.plan import Plan
from safedelete.ports import ObjectReader, RowReader


class Base(DeclarativeBase):
    pass


class Upload(Base):
    __tablename__ = "uploads"
    id: Mapped[int] = mapped_column(primary_key=True)
    s3_key: Mapped[str]
    expires_at: Mapped[datetime]


HOUR = timedelta(hours=1)
rows = Rows(Upload, past(Upload.expires_at))

# purges
Purge("no-schedule", rows, timeout=HOUR)  # type: ignore[call-arg]
Purge("no-timeout", rows, schedule="@daily")  # type: ignore[call-arg]
Purge("by-number", rows, schedule="@daily", timeout=1200)  # type: ignore[arg-type]
Purge("by-dict", rows, schedule="@daily", timeout=HOUR, guard={"max_items": 5})  # type: ignore[arg-type]
Purge("by-model", Upload, schedule="@daily", timeout=HOUR)  # type: ignore[arg-type]
Purge("by-word", rows, schedule="@daily", timeout=HOUR, per_run="all")  # type: ignore[arg-type]
Purge("by-number", rows, schedule=3600, timeout=HOUR)  # type: ignore[arg-type]
Purge("misspelt", rows, schedule="@daily", timeout=HOUR, gaurd=Guard())  # type: ignore[call-arg]
Purge(rows, schedule="@daily", timeout=HOUR)  # type: ignore[arg-type]

# guards
Guard(5)  # type: ignore[call-arg]
Guard(max_items="5")  # type: ignore[arg-type]
Guard(max_fraction="10%")  # type: ignore[arg-type]
Guard(too_few="ignore")  # type: ignore[arg-type]
Guard(max_rows=5)  # type: ignore[call-arg]
Guard().max_items = 5  # type: ignore[misc]

# rows
Rows(Upload, True)  # type: ignore[arg-type]
Rows(Upload, "expires_at < now()")  # type: ignore[arg-type]
Rows(Upload, text("expires_at < now()"))  # type: ignore[arg-type]
Rows("uploads", past(Upload.expires_at))  # type: ignore[arg-type]
Rows(Upload, past(Upload.expires_at), owns="acme")  # type: ignore[arg-type]
Rows(Upload, past(Upload.expires_at), anytime="yes")  # type: ignore[arg-type]
older_than(Upload.expires_at, 90)  # type: ignore[call-arg]
older_than("expires_at", days=90)  # type: ignore[arg-type]
older_than(Upload.expires_at, days="90")  # type: ignore[arg-type]
older_than(Upload.expires_at, days=90, unit="us")  # type: ignore[arg-type]
past(Upload.expires_at, days=90)  # type: ignore[call-arg]

# objects
S3Keys(Upload.s3_key)  # type: ignore[arg-type]
S3Keys("acme", "s3_key")  # type: ignore[arg-type]
S3Keys("acme", Upload.s3_key, mode="hide")  # type: ignore[arg-type]
S3Prefix("acme", "tmp/")  # type: ignore[call-arg]
S3Prefix("acme", older_than=HOUR)  # type: ignore[call-arg]
S3Prefix("acme", "tmp/", older_than=7)  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", HOUR)  # type: ignore[call-arg]
S3Orphans("acme", "u/", older_than=HOUR)  # type: ignore[call-arg]
S3Orphans("acme", "u/", referenced_by=[Upload.s3_key])  # type: ignore[call-arg]
S3Orphans("acme", "u/", referenced_by=["s3_key"], older_than=HOUR)  # type: ignore[list-item]
S3Orphans("acme", "u/", referenced_by=[Upload.s3_key], older_than=7)  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", older_than=HOUR, pattern=["*.log"])  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", older_than=HOUR, min_size="1 MB")  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", older_than=HOUR, storage_class=5)  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", older_than=HOUR, max_delete_rate="500/s")  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", older_than=HOUR, inventory=HOUR)  # type: ignore[arg-type]
S3Prefix("acme", "tmp/", older_than=HOUR, client="http://minio:9000")  # type: ignore[arg-type]
Inventory("s3://inventory/acme/daily/", max_age=2)  # type: ignore[arg-type]
Inventory()  # type: ignore[call-arg]
S3Endpoint("http://minio:9000")  # type: ignore[call-arg]
S3Endpoint(content_md5="yes")  # type: ignore[arg-type]


# jobs
@job("no-schedule", timeout=HOUR)  # type: ignore[call-arg]
def without_schedule(run: RunContext) -> None:
    run.checkpoint()


@job("by-number", schedule="@daily", timeout=60)  # type: ignore[arg-type]
def with_number(run: RunContext) -> None:
    run.checkpoint()


@job("locked", schedule="@daily", timeout=HOUR, lock="file")  # type: ignore[arg-type]
def with_no_such_lock(run: RunContext) -> None:
    run.checkpoint()


@job("no-argument", schedule="@daily", timeout=HOUR)  # type: ignore[arg-type]
def without_argument() -> None:
    pass


@job("reads-more", schedule="@daily", timeout=HOUR)
def wrong_use(run: RunContext) -> None:
    run.processed("five")  # type: ignore[arg-type]
    run.dry_run = True  # type: ignore[misc]
    run.delete()  # type: ignore[attr-defined]


# what deletes takes nothing but an approved plan
def execute(decision: Approved) -> None:
    print(decision)


def wrong_order(
    plan: Plan, refused: Refused, either: Decision, rows: RowReader, objects: ObjectReader
) -> None:
    execute(plan)  # type: ignore[arg-type]
    execute(refused)  # type: ignore[arg-type]
    execute(either)  # type: ignore[arg-type]
    execute(None)  # type: ignore[arg-type]
    rows.begin(plan.as_of)  # type: ignore[attr-defined]
    rows.delete(())  # type: ignore[attr-defined]
    objects.store.delete(())  # type: ignore[attr-defined]
    plan.digest = "other"  # type: ignore[misc]
