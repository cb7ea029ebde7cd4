"""One purge's whole world: a database, a bucket, a job file, and the command line to run on them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from safedelete.cli import main
from safedelete.declare import Declared
from safedelete.loader import load
from safedelete.testing.servers import ADMIN, RUNNER, Identity

ROOT = Path(__file__).resolve().parents[2]

JOBS = """
from datetime import timedelta

from sqlalchemy import BigInteger, Boolean, Column, DateTime, Integer, MetaData, String, Table

from safedelete import Guard, Purge, Rows, S3Keys, past

uploads = Table(
    "uploads",
    MetaData(),
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("expires_at", DateTime(timezone=True), index=True),
    Column("hold", Boolean, nullable=False),
    Column("s3_key", String(512), unique=True),
    Column("thumb_key", String(512), unique=True),
    Column("etag", String(64)),
)

purge = Purge(
    "expired-uploads",
    Rows(uploads, past(uploads.c.expires_at), uploads.c.hold.is_(False), owns=OWNS),
    schedule="cron(15 3 * * ? *)",
    timeout=timedelta(minutes=10),
    OPTIONS
)
"""

metadata = sa.MetaData()
uploads = sa.Table(
    "uploads",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    sa.Column("expires_at", sa.DateTime(timezone=True), index=True),
    sa.Column("hold", sa.Boolean, nullable=False),
    sa.Column("s3_key", sa.String(512), unique=True),
    sa.Column("thumb_key", sa.String(512), unique=True),
    sa.Column("etag", sa.String(64)),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines() if line.startswith("{")]

    @property
    def said(self) -> str:
        """What a person reads on standard error."""
        return "\n".join(line for line in self.err.splitlines() if not line.startswith("{"))

    @property
    def run(self) -> str:
        """The id of the run that a report in JSON is about."""
        return str(self.document["run"])


@dataclass
class World:
    """A database and a bucket of their own, and the ways to look at them beside safedelete."""

    kind: str
    url: sa.URL
    store: Any
    bucket: str
    folder: Path
    superuser: sa.URL | None = None
    environment: str = "test"
    extra: dict[str, str] = field(default_factory=dict)
    roles: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Another connection's batch holds SQLite's one write lock for moments only.
        wait = {"timeout": 20} if self.kind == "sqlite" else {}
        self.engine = sa.create_engine(self.superuser or self.url, poolclass=NullPool, connect_args=wait)
        self.s3: Any = self.store.client(max_pool_connections=32)

    # --- making it

    def seed(self, due: int = 3, nights: int = 3, *, objects: bool = True, thumbs: bool = False) -> None:
        """Make rows that are due and, for the guard to see coming, as many on each of the next nights."""
        metadata.create_all(self.engine)
        now = datetime.now(UTC)
        rows = [
            {
                "id": 1 + night * due + number,
                "expires_at": now - timedelta(hours=1) + timedelta(days=night),
                "hold": False,
                "s3_key": f"up/{1 + night * due + number:06}.bin",
                "thumb_key": f"th/{1 + night * due + number:06}.png" if thumbs else None,
                "etag": None,
            }
            for night in range(nights + 1)
            for number in range(due)
        ]
        with self.engine.begin() as connection:
            connection.execute(sa.insert(uploads), rows)
        if objects:
            self.put(*(str(r[name]) for r in rows for name in ("s3_key", "thumb_key") if r[name]))

    def put(self, *keys: str, body: bytes = b"x") -> None:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda key: self.s3.put_object(Bucket=self.bucket, Key=key, Body=body), keys))

    def jobs(self, options: str = "", *, owns: str = "", source: str = JOBS, name: str = "jobs.py") -> Path:
        """Write the job file."""
        owns = owns or f'S3Keys("{self.bucket}", uploads.c.s3_key)'
        path = self.folder / name
        path.write_text(
            source.replace("OWNS", owns).replace("OPTIONS", options).replace("BUCKET", self.bucket)
        )
        return path

    def ready(self, due: int = 3, nights: int = 3, options: str = "", **seeding: bool) -> Path:
        """Seed, write the usual job file, and initialise."""
        self.seed(due, nights, **seeding)
        path = self.jobs(options)
        self.cli("init", path, expect=0)
        return path

    def sql(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def role(self, *grants: str) -> sa.URL:
        """Make a role on PostgreSQL that may do just this; returns the URL to log in with."""
        name = f"sd_{os.urandom(5).hex()}"
        self.roles.append(name)
        self.sql(f"CREATE ROLE {name} LOGIN", *(f"{grant} TO {name}" for grant in grants))
        return self.url.set(username=name)

    def runner_role(self, *, may_lock: bool = True) -> sa.URL:
        """Make the role a purge should run as: no DDL, and UPDATE on one column at most."""
        grants = ["GRANT SELECT, DELETE ON uploads"]
        if may_lock:
            grants.append("GRANT UPDATE (s3_key) ON uploads")
        grants += [
            "GRANT SELECT, INSERT, UPDATE ON safedelete_run, safedelete_lease",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON safedelete_batch",
            "GRANT SELECT ON safedelete_meta, safedelete_approval, safedelete_notice",
        ]
        return self.role(*grants)

    def clean_up(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for role in self.roles:
            self.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
        self.engine.dispose()

    # --- looking at it

    def rows(self, since_id: int = 0) -> set[int]:
        with self.engine.connect() as connection:
            return set(connection.execute(sa.select(uploads.c.id).where(uploads.c.id > since_id)).scalars())

    def value(self, statement: str) -> Any:
        with self.engine.connect() as connection:
            return connection.exec_driver_sql(statement).scalar_one()

    def keys(self) -> set[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return {item["Key"] for page in pages for item in page.get("Contents", ())}

    def objects(self, prefix: str = "up/") -> set[int]:
        """Return the numbers of the uploads whose object is there."""
        return {int(key[len(prefix) :].split(".")[0]) for key in self.keys() if key.startswith(prefix)}

    # --- running on it

    def env(self, *, identity: Identity = RUNNER, url: sa.URL | None = None, **more: str) -> dict[str, str]:
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "SAFEDELETE_"))}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "error",
            "AWS_ENDPOINT_URL": self.store.endpoint,
            "AWS_ACCESS_KEY_ID": identity.access_key,
            "AWS_SECRET_ACCESS_KEY": identity.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "SAFEDELETE_DATABASE_URL": (url or self.url).render_as_string(hide_password=False),
            "SAFEDELETE_ENVIRONMENT": self.environment,
            **self.extra,
            **more,
        }

    def cli(
        self,
        *arguments: object,
        expect: int | None = None,
        identity: Identity = RUNNER,
        url: sa.URL | None = None,
        **more: str,
    ) -> Ended:
        """Run a command in this process, which is quicker than a new one and can be hooked into."""
        ended = run_here([str(a) for a in arguments], self.env(identity=identity, url=url, **more))
        if expect is not None:
            assert ended.code == expect, f"exit {ended.code}\n{ended.out}\n{ended.err}"
        return ended

    def start(
        self, *arguments: object, identity: Identity = RUNNER, url: sa.URL | None = None, **more: str
    ) -> subprocess.Popen[str]:
        """Run a command in a process of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "safedelete", *(str(a) for a in arguments)],
            cwd=self.folder,
            env=self.env(identity=identity, url=url, **more),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def job(self, path: Path) -> Declared:
        return load(path).one(None)

    @contextlib.contextmanager
    def inside(self, **more: str) -> Iterator[None]:
        """Have this process see the environment that the command line would."""
        with mock.patch.dict(os.environ, self.env(**more), clear=True):
            yield

    def shown(self, run: str) -> Any:
        """What ``show --items --json`` says of a run."""
        return self.cli("show", run, "--items", "--json", expect=0).document


def run_here(arguments: Sequence[str], env: Mapping[str, str]) -> Ended:
    """Call the command line's main function."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, env, clear=True),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main(arguments)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return Ended(code, out.getvalue(), err.getvalue())


def ended(process: subprocess.Popen[str], timeout: float = 60) -> Ended:
    """Wait for a process of :meth:`World.start`."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end within {timeout} s\n{out}\n{err}") from None
    return Ended(process.returncode, out, err)


def outcomes(document: Any) -> dict[int, tuple[str, str]]:
    """Return outcome and code by upload number, from ``show --items --json``."""
    return {item["key"][0]: (item["outcome"], item["code"]) for item in document["items"]}


@contextlib.contextmanager
def before_execute(action: Callable[[], object]) -> Iterator[None]:
    """Do something when guard and preflight have said yes and nothing is deleted yet."""
    from safedelete.runner import purge

    real = purge.execute

    def hooked(*arguments: Any, **options: Any) -> None:
        action()
        real(*arguments, **options)

    with mock.patch.object(purge, "execute", hooked):
        yield


@contextlib.contextmanager
def before_verify(action: Callable[[], object]) -> Iterator[None]:
    """Do something when all is deleted and nothing has been looked at again yet."""
    from safedelete.runner import purge

    real = purge.verify

    def hooked(*arguments: Any, **options: Any) -> int:
        action()
        return real(*arguments, **options)

    with mock.patch.object(purge, "verify", hooked):
        yield


ADMINISTRATOR = ADMIN
