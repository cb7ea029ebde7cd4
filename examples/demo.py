"""A purge from end to end, on a real S3 server and a SQLite database that are started here and stopped again.

make demo
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from retention import Base, Upload, login_events
from sqlalchemy import create_engine, func, insert, select

from safedelete.testing.servers import RUNNER, UPLOADER, Identity, Moto, SeaweedFS, ServerUnavailableError

HERE = Path(__file__).resolve().parent
WORK = HERE.parent / ".demo"
NIGHTS = 40
UPLOADS_A_NIGHT = 60
LOGINS_A_NIGHT = 50
BOLD, PLAIN = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")


def main() -> None:
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    database = f"sqlite:///{WORK / 'acme.db'}"
    with object_store() as store:
        may_delete = environment(store.endpoint, RUNNER, database)
        may_not_delete = environment(store.endpoint, UPLOADER, database)
        seed(store, database)

        step("Deploy: create the ledger and bind it to this environment.")
        safedelete("init", "retention.py", env=may_delete, expect=0)

        step("Look first: what would go tonight? A plan reads, and deletes nothing.")
        safedelete("plan", "retention.py", env=may_delete, expect=0)

        step("Run it: objects first, then the rows whose objects are acknowledged, then a second look.")
        safedelete("run", "retention.py", "expired-uploads", env=may_delete, expect=0)
        safedelete("run", "retention.py", "login-events", env=may_delete, expect=0)
        counted(store, database)

        step("Wreck the cutoff: somebody writes 9 days where 90 was meant. The guard knows what usual is.")
        wrecked = WORK / "wrecked.py"
        wrecked.write_text((HERE / "retention.py").read_text().replace("days=90", "days=9"))
        safedelete("plan", str(wrecked), "login-events", env=may_delete, expect=3)
        counted(store, database)

        step("Take away one permission: this role may delete the rows, but not the objects.")
        expire_three_more(store, database)
        safedelete("run", "retention.py", "expired-uploads", env=may_not_delete, expect=9)
        counted(store, database)

        step("What happened, from the ledger.")
        safedelete("history", "retention.py", env=may_delete, expect=0)
        safedelete("history", "retention.py", "--html", str(WORK / "history.html"), env=may_delete, expect=0)
    took = time.monotonic() - began
    print(
        f"""
{BOLD}What you just saw{PLAIN} ({took:.0f} s)
  - a plan that counted and decided without deleting anything;
  - a run that deleted exactly what was sealed: rows and objects, key by key, and looked again afterwards;
  - a retention cut from 90 to 9 days, refused before the first delete (exit 3);
  - a role that could delete rows but not objects, stopped by the preflight before the first delete (exit 9):
    without it, the rows would be gone and the files would have stayed, unnoticed;
  - all of it recorded in the ledger.
The servers are stopped. The database, and the page history.html to look at, are left in {WORK.relative_to(Path.cwd()) if WORK.is_relative_to(Path.cwd()) else WORK}.
Next: read examples/retention.py, then docs/tutorial/first-purge.md."""
    )


@contextmanager
def object_store() -> Iterator[SeaweedFS | Moto]:
    """Start a real S3 server; moto's where that has no build for this machine."""
    try:
        server: SeaweedFS | Moto = SeaweedFS()
        server.start()
    except ServerUnavailableError as error:
        print(f"No SeaweedFS here ({error}); moto's server takes its place.")
        server = Moto()
        server.start()
    try:
        yield server
    finally:
        server.stop()


def seed(store: SeaweedFS | Moto, database: str) -> None:
    """Fill forty nights: one of them is due now, the others on the nights to come."""
    print(f"Seeding {NIGHTS} nights of uploads and logins ...")
    for bucket in ("acme-uploads", "acme-scratch"):
        store.create_bucket(bucket)
    now = datetime.now(UTC)
    uploads = []
    for number in range(NIGHTS * UPLOADS_A_NIGHT):
        expires = now - timedelta(days=1) + timedelta(days=number / UPLOADS_A_NIGHT)
        key = f"users/{number % 97:02}/{number:06}.jpg"
        thumb = f"thumbs/{number:06}.webp" if number % 3 == 0 else None
        uploads.append({"expires_at": expires, "legal_hold": False, "s3_key": key, "thumb_key": thumb})
    uploads[5]["legal_hold"] = True
    logins = [
        {
            "created_at": now - timedelta(days=91) + timedelta(days=n / LOGINS_A_NIGHT),
            "user_name": f"user{n % 31}",
        }
        for n in range(NIGHTS * LOGINS_A_NIGHT)
    ]
    keys = [str(u[name]) for u in uploads for name in ("s3_key", "thumb_key") if u[name] is not None]
    put(store, "acme-uploads", keys)
    put(store, "acme-scratch", [f"tmp/{n:03}.bin" for n in range(20)])
    engine = create_engine(database)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Upload), uploads)
        connection.execute(insert(login_events), logins)
    engine.dispose()
    print(f"{len(uploads):,} uploads with {len(keys):,} objects, {len(logins):,} logins.")


def expire_three_more(store: SeaweedFS | Moto, database: str) -> None:
    """Let three more uploads expire."""
    keys = [f"users/late/{n}.jpg" for n in range(3)]
    put(store, "acme-uploads", keys)
    engine = create_engine(database)
    rows = [
        {"expires_at": datetime.now(UTC), "legal_hold": False, "s3_key": key, "thumb_key": None}
        for key in keys
    ]
    with engine.begin() as connection:
        connection.execute(insert(Upload), rows)
    engine.dispose()


def put(store: SeaweedFS | Moto, bucket: str, keys: list[str]) -> None:
    client = store.client(max_pool_connections=16)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: client.put_object(Bucket=bucket, Key=key, Body=b"demo"), keys))


def counted(store: SeaweedFS | Moto, database: str) -> None:
    """Say what is there now, asked from the stores and not from safedelete."""
    engine = create_engine(database)
    with engine.connect() as connection:
        rows = connection.execute(select(func.count()).select_from(Upload)).scalar_one()
        logins = connection.execute(select(func.count()).select_from(login_events)).scalar_one()
    engine.dispose()
    pages = store.client().get_paginator("list_objects_v2").paginate(Bucket="acme-uploads")
    objects = sum(page.get("KeyCount", 0) for page in pages)
    print(f"\n  (in the stores now: {rows:,} uploads, {objects:,} objects, {logins:,} logins)")


def environment(endpoint: str, identity: Identity, database: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SAFEDELETE_"))},
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": identity.access_key,
        "AWS_SECRET_ACCESS_KEY": identity.secret_key,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAFEDELETE_DATABASE_URL": database,
        "SAFEDELETE_ENVIRONMENT": "demo",
    }


def step(text: str) -> None:
    print(f"\n{BOLD}=== {text}{PLAIN}")


def safedelete(*arguments: str, env: Mapping[str, str], expect: int) -> None:
    print(f"\n$ safedelete {' '.join(arguments)}", flush=True)
    log = (WORK / "demo.log").open("ab")
    done = subprocess.run(
        [sys.executable, "-m", "safedelete", *arguments],
        cwd=HERE,
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
    )
    for line in done.stderr.splitlines():
        if line.startswith("{"):
            log.write(line.encode() + b"\n")
        else:
            print(line)
    log.close()
    print(done.stdout, end="")
    print(f"(exit {done.returncode})", flush=True)
    if done.returncode != expect:
        sys.exit(f"The demonstration expected exit {expect}; see {WORK / 'demo.log'}.")


if __name__ == "__main__":
    main()
