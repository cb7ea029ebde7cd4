"""Acme's nightly backup: dump the database into a file, upload it, look whether it arrived whole.

export BACKUP_BUCKET=acme-backups           # beside SAFEDELETE_DATABASE_URL and SAFEDELETE_ENVIRONMENT
safedelete init   examples/backup.py        # once per deployment
safedelete run    examples/backup.py
safedelete status examples/backup.py        # exit 1 when last night's is missing; ask it from another host

PostgreSQL is dumped by pg_dump, which must be installed; SQLite by its own online backup.
"""

import os
import sqlite3
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import boto3
from boto3.s3.transfer import TransferConfig
from sqlalchemy import URL, make_url

from safedelete import RunContext, job

PAGES = 1000


@job("database-backup", schedule="cron(0 2 * * ? *)", timeout=timedelta(hours=1))
def backup(run: RunContext) -> None:
    """Back one database up. The deadline's day is the key, so that a second try replaces the first."""
    url = make_url(os.environ["SAFEDELETE_DATABASE_URL"])
    bucket = os.environ.get("BACKUP_BUCKET", "acme-backups")
    name = Path(url.database or "database").name
    key = f"{name}/{run.deadline:%Y-%m-%d}.dump"
    with TemporaryDirectory(prefix="backup-") as folder:
        file = Path(folder) / "dump"
        dump(run, url, file)
        if run.dry_run:
            run.log.info("would upload", bucket=bucket, key=key)
            return
        upload(run, file, bucket, key)
    run.processed(1)


def dump(run: RunContext, url: URL, file: Path) -> None:
    """Write the whole database to a file."""
    if url.get_backend_name() == "sqlite":
        copy_sqlite(run, Path(url.database or ""), file)
        return
    if url.get_backend_name() not in ("postgres", "postgresql"):
        raise RuntimeError(f"This example dumps PostgreSQL and SQLite, not {url.get_backend_name()}.")
    # The password goes by the environment: an argument is what everybody on the host can read. What the URL asks of TLS
    # (sslmode, sslrootcert) holds for the dump too.
    password = {"PGPASSWORD": str(url.password)} if url.password else {}
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, url.query)
    run.exec(
        ["pg_dump", "--format=custom", f"--file={file}", f"--dbname={plain.render_as_string()}"], env=password
    )


def copy_sqlite(run: RunContext, source: Path, file: Path) -> None:
    """Copy a database that is in use, a thousand pages at a time."""
    if run.dry_run:
        run.log.info("would copy", source=str(source))
        return
    old, new = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True), sqlite3.connect(file)
    try:
        old.backup(new, pages=PAGES, progress=lambda _status, _left, _total: run.checkpoint())
    finally:
        old.close()
        new.close()


def upload(run: RunContext, file: Path, bucket: str, key: str) -> None:
    """Upload a file, and fail unless the store has all of it."""
    s3 = boto3.client("s3")
    one_thread = TransferConfig(use_threads=False)
    s3.upload_file(str(file), bucket, key, Config=one_thread, Callback=lambda _bytes: run.checkpoint())
    size, there = file.stat().st_size, s3.head_object(Bucket=bucket, Key=key)["ContentLength"]
    if size != there:
        raise RuntimeError(f"s3://{bucket}/{key} has {there:,} bytes; the dump has {size:,}.")
    run.log.info("uploaded", bucket=bucket, key=key, bytes=size)
