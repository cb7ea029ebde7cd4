"""What Acme deletes, and when. Copy this file, then change the models, the buckets and the ages.

export SAFEDELETE_ENVIRONMENT=production    # a copy of the database must be called something else
safedelete init  examples/retention.py      # once per deployment: creates the ledger
safedelete plan  examples/retention.py      # what would go tonight? deletes nothing
safedelete run   examples/retention.py expired-uploads
"""

from datetime import datetime, timedelta

from sqlalchemy import Column, DateTime, Integer, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from safedelete import Guard, Purge, Rows, S3Keys, S3Prefix, older_than, past


class Base(DeclarativeBase):
    metadata = MetaData()


class Upload(Base):
    """A file of a user's. The row says when it expires; the bytes are in S3."""

    __tablename__ = "uploads"

    id: Mapped[int] = mapped_column(primary_key=True)
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True), index=True)
    legal_hold: Mapped[bool] = mapped_column(default=False)
    s3_key: Mapped[str] = mapped_column(String(512), unique=True)
    thumb_key: Mapped[str | None] = mapped_column(String(512), unique=True)


login_events = Table(
    "login_events",
    Base.metadata,
    Column("id", Integer, primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("user_name", String(64), nullable=False),
)


# Rows and the objects they own: the objects go first, and a row goes only when S3 has acknowledged its own.
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

# Rows alone.
logins = Purge(
    "login-events",
    Rows(login_events, older_than(login_events.c.created_at, days=90)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=10),
    guard=Guard(max_items=500_000),
)

# Objects alone.
scratch = Purge(
    "scratch-objects",
    S3Prefix("acme-scratch", "tmp/", older_than=timedelta(days=7)),
    schedule="15 4 * * *",
    timeout=timedelta(hours=1),
    guard=Guard(max_items=100_000),
)
