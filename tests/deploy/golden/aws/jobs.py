"""A job of each sort, with most of what a declaration can say."""

from datetime import timedelta

from sqlalchemy import BigInteger, Boolean, Column, DateTime, ForeignKey, Integer, MetaData, String, Table

from safedelete import (
    Guard,
    Inventory,
    Purge,
    Rows,
    RunContext,
    S3Keys,
    S3Orphans,
    S3Prefix,
    job,
    older_than,
    past,
)

META = MetaData()
uploads = Table(
    "uploads",
    META,
    Column("id", BigInteger, primary_key=True),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("legal_hold", Boolean),
    Column("s3_key", String(512), unique=True),
    Column("etag", String(64)),
)
shares = Table(
    "shares",
    META,
    Column("id", Integer, primary_key=True),
    Column("upload_id", ForeignKey("uploads.id", ondelete="CASCADE"), index=True),
)
logins = Table(
    "logins",
    META,
    Column("id", BigInteger, primary_key=True),
    Column("at", DateTime(timezone=True), index=True),
)

expired = Purge(
    "expired-uploads",
    Rows(
        uploads,
        past(uploads.c.expires_at),
        uploads.c.legal_hold.is_(False),
        owns=S3Keys(
            "acme-uploads",
            uploads.c.s3_key,
            etag=uploads.c.etag,
            mode="marker",
            require_conditional="canary/",
        ),
        may_touch=["audit_log"],
    ),
    schedule="cron(15 3 * * ? *)",
    timeout=timedelta(minutes=20),
    guard=Guard(max_items=200_000, max_fraction=0.10),
)
old_logins = Purge(
    "old-logins",
    Rows(logins, older_than(logins.c.at, days=90)),
    schedule="15 4 * * TUE",
    tz="Europe/Berlin",
    timeout=timedelta(hours=1),
    per_run=50_000,
    lock="advisory",
)
scratch = Purge(
    "scratch",
    S3Prefix(
        "acme-scratch",
        "tmp/",
        older_than=timedelta(days=7),
        pattern="**/*.log",
        inventory=Inventory("s3://acme-inventory/acme-scratch/daily/"),
    ),
    schedule="rate(6 hours)",
    timeout=timedelta(hours=1),
)
orphans = Purge(
    "orphans",
    S3Orphans(
        "acme-archive",
        "u/",
        referenced_by=[uploads.c.s3_key],
        older_than=timedelta(days=30),
        mode="purge",
    ),
    schedule="cron(30 1 1 * ? *)",
    timeout=timedelta(hours=2),
)


@job("reminders", schedule="*/15 * * * *", timeout=timedelta(minutes=5))
def reminders(run: RunContext) -> None:
    """Send what is due."""
    run.processed(0)
