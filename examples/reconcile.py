"""Acme's uploads, looked at from both sides every night, and swept once a week.

safedelete reconcile examples/reconcile.py                  # both sides, now; deletes nothing
safedelete plan      examples/reconcile.py                  # what would the sweep take? deletes nothing
safedelete run       examples/reconcile.py reconcile-uploads
safedelete run       examples/reconcile.py orphaned-uploads
"""

from datetime import timedelta

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import safedelete
from safedelete import Guard, Purge, RunContext, S3Orphans, job


class Base(DeclarativeBase):
    pass


class Upload(Base):
    __tablename__ = "uploads"

    id: Mapped[int] = mapped_column(primary_key=True)
    s3_key: Mapped[str] = mapped_column(String(512), unique=True)
    thumb_key: Mapped[str | None] = mapped_column(String(512), unique=True)


# Every column whose values are keys of this bucket belongs here: one that is left out makes orphans of its objects.
orphans = Purge(
    "orphaned-uploads",
    S3Orphans(
        "acme-uploads",
        "u/",
        referenced_by=[Upload.s3_key, Upload.thumb_key],
        older_than=timedelta(days=7),
    ),
    schedule="cron(30 4 ? * SUN *)",
    timeout=timedelta(hours=1),
    guard=Guard(max_items=50_000, max_fraction=0.05),
)


# Orphans wait for the sweep. A row without its object is a loss, and fails the run.
@job("reconcile-uploads", schedule="cron(45 3 * * ? *)", timeout=timedelta(minutes=30))
def reconcile_uploads(run: RunContext) -> None:
    # Asked within a place too: a large one takes longer than a stop may.
    for place in safedelete.reconcile(orphans, progress=lambda *_: run.checkpoint()):
        if place.unchecked:
            raise RuntimeError(f"{place.place} could not be checked: {place.unchecked}")
        run.processed(place.listed)
        run.failed(place.without_objects.keys)
        for key in place.without_objects.sample:
            run.log.error("a row names an object that is not there", place=place.place, key=key)
