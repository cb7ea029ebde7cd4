"""The stores around a run, and everybody else who touches them: the seeder, the writer, and whoever looks afterwards.

Nothing here goes through safedelete, but for decoding the sealed batches that only the ledger has.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from sqlalchemy import Engine, create_engine, delete, insert, select, text, update
from sqlalchemy.pool import NullPool

from safedelete.core.item import ObjectRef
from safedelete.core.seal import ObjectBatch, RowBatch, decode
from safedelete.ledger import tables
from safedelete.locks import lease
from safedelete.testing.servers import StubS3
from tests.conftest import HOST_NAMES, HOST_PREFIXES
from tests.crash.nursery import Ended, Task
from tests.crash.purges import (
    BUCKET,
    FAR_AHEAD,
    FOLDERS,
    LONG_AGO,
    NAMES_FROM,
    OTHER_BUCKET,
    PLAIN,
    PREFIX,
    VERSIONED,
    metadata,
    uploads,
)

ELIGIBLE, KEPT = range(1, 8), range(8, 13)
"""Ids of the rows that are due, in batches of three, and of those that are not."""

BELOW = ("/a.bin", "/b/c.bin")
"""What lies in each row's folder, which is called by its key."""

ROLES = {"sd_other": "SELECT, DELETE, UPDATE", "sd_cannot_lock": "SELECT, DELETE"}
"""Further roles on PostgreSQL, and what each may do to the purged table."""

SESSIONS = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
"""How many other sessions a server has in this database."""

UNCHANGED = {"sqlite": "PRAGMA data_version", "postgresql": "SELECT CAST(txid_current_snapshot() AS TEXT)"}
"""What a database answers alike as long as nobody else has committed anything."""

ROOT = Path(__file__).resolve().parents[2]


class Row(NamedTuple):
    """One row as the database has it."""

    due: bool
    s3_key: str
    thumb_key: str | None


Place = tuple[str, str]
"""Bucket and key."""

HIDDEN = "hidden"
"""In place of the ETag of a key whose newest version is a delete marker."""


class Kept(NamedTuple):
    """One version or marker: its id, whether it is a marker, and whether it is old."""

    name: str
    marker: bool
    old: bool


@dataclass(frozen=True)
class Stores:
    """What the database and the object store hold at one moment."""

    rows: Mapping[int, Row]
    objects: Mapping[Place, str]
    """Every object with its ETag; of a versioned bucket, every key of which any version or marker is there."""
    versions: Mapping[Place, tuple[Kept, ...]] = field(default_factory=dict)
    """Of a versioned bucket every key's versions and markers, oldest first."""

    def shown(self) -> Stores:
        """Return it as whoever knows no versions sees it: what a marker hides is not there."""
        return replace(self, objects={place: etag for place, etag in self.objects.items() if etag != HIDDEN})


class Claim(NamedTuple):
    """What the ledger says about one sealed item: an id or a key, what it named, and what became of it."""

    item: int | str
    named: frozenset[Place]
    state: str
    code: str
    version: str | None = None
    exact: frozenset[tuple[Place, str]] = frozenset()
    """Each object with the version it was sealed with, or else with its ETag."""


@dataclass(frozen=True)
class LedgerRun:
    """One run as the ledger has it."""

    run: str
    state: str
    exit_code: int | None
    reason: str
    claims: tuple[Claim, ...]
    problems: tuple[str, ...]
    """What does not add up in it."""


class Written(NamedTuple):
    """What the writer did."""

    unexpired: int | None = None
    renamed: int | None = None
    deleted: int | None = None
    overwritten: str | None = None
    removed: str | None = None


class Lab:
    """A database, an object store and a nursery of its own; used by one thread at a time.

    Args:
        folder: For the database files of SQLite.
        server: URL of an empty database on PostgreSQL or MariaDB; None for SQLite.
        elsewhere: Whether the ledger is in a database of its own.

    Attributes:
        reached: URL by which a run reaches the database; a test may put a wire between that breaks.
        endpoint: The same of the object store; None for its own.
        variables: Environment variables of a run beside the usual ones.
    """

    def __init__(self, folder: Path, server: str | None = None, *, elsewhere: bool = False) -> None:
        self.folder = folder
        self.url = server or f"sqlite:///{folder / 'acme.db'}"
        self.reached = self.url
        self.endpoint: str | None = None
        self.variables: dict[str, str] = {}
        self.ledger_url = f"sqlite:///{folder / 'ledger.db'}" if elsewhere else None
        self.store = StubS3(record=False)
        # One connection is kept: a server takes longer to make one than to answer. It never counts itself as another's.
        self.engine: Engine = create_engine(self.url, pool_size=1)
        self.ledger = self.engine if self.ledger_url is None else create_engine(self.ledger_url, pool_size=1)
        self._leases = list({self.engine, self.ledger})
        self.recorded: dict[object, Any] = {}
        """What the matrix has recorded here."""
        self._nursery: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store.start()
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(HOST_PREFIXES) and k not in HOST_NAMES
        }
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery"],
            cwd=ROOT,
            env=environment | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._nursery_says("ready")
        metadata.create_all(self.engine)
        self._must(self.run("rows and two objects each", verb="init"))
        for role, rights in ROLES.items():
            if self.has_roles:
                self._let_in(role, rights)
        for purge in ("another bucket", "versioned objects", "versioned folders", "rows and a folder each"):
            self._must(self.run(purge, verb="init"))
        with self.ledger.connect() as connection:
            self._binding = [dict(row._mapping) for row in connection.execute(select(tables.meta))]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._nursery is not None
        self._nursery.communicate()
        self.store.stop()
        for engine in self._leases:
            engine.dispose()

    # --- runs -------------------------------------------------------------------------------------------------------

    def run(
        self,
        purge: str,
        *,
        verb: str = "run",
        kill_at: int | None = None,
        at_each: Callable[[str], object] | None = None,
        from_each: int = 0,
        environment: str = "matrix",
        access_key: str = "runner",
        role: str | None = None,
    ) -> Ended:
        """Run a purge in a child, to its end or to the boundary where it is killed.

        With ``at_each`` the child stands still at each boundary until that returns, from a number on; it does so no more
        once that returns True.
        """
        url = self.reached if role is None else self.reached.replace("//safedelete@", f"//{role}@")
        env = {
            "SAFEDELETE_DATABASE_URL": url,
            "SAFEDELETE_ENVIRONMENT": environment,
            # Its heartbeats, a quarter of this apart, would be boundaries at moments of their own.
            "SAFEDELETE_LEASE_SECONDS": "3600",
            "AWS_ENDPOINT_URL": self.endpoint or self.store.endpoint,
            "AWS_ACCESS_KEY_ID": access_key,
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
            **self.variables,
        }
        if self.ledger_url is not None:
            env["SAFEDELETE_LEDGER_URL"] = self.ledger_url
        assert self._nursery is not None
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(
            json.dumps(Task(purge, env, verb, kill_at, at_each is not None, from_each)) + "\n"
        )
        self._nursery.stdin.flush()
        while True:
            said = json.loads(self._nursery_says())
            if not isinstance(said, str):
                return Ended(*said)
            assert at_each is not None
            self._nursery.stdin.write("off\n" if at_each(said) is True else "on\n")
            self._nursery.stdin.flush()

    def _nursery_says(self, expected: str | None = None) -> str:
        assert self._nursery is not None
        assert self._nursery.stdout is not None
        line = self._nursery.stdout.readline().strip()
        assert line, "the nursery has ended"
        assert expected in (None, line)
        return line

    @property
    def where(self) -> str:
        """Its databases, for a person."""
        names = {"sqlite": "SQLite", "postgresql": "PostgreSQL", "mysql": "MariaDB"}
        apart = "" if self.ledger is self.engine else ", ledger apart"
        return names[self.engine.dialect.name] + apart

    @property
    def has_roles(self) -> bool:
        """Whether other roles can be made here: on a server of our own that asks for no password."""
        return self.url.startswith("postgresql") and "//safedelete@" in self.url

    def _let_in(self, role: str, rights: str) -> None:
        superuser = create_engine(self.url.replace("//safedelete@", "//postgres@"), poolclass=NullPool)
        with superuser.begin() as connection:
            known = connection.execute(
                text("SELECT 1 FROM pg_roles WHERE rolname = :role"), {"role": role}
            ).first()
            if known is None:
                connection.execute(text(f"CREATE ROLE {role} LOGIN"))
            connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"))
            connection.execute(text(f"REVOKE ALL ON uploads FROM {role}"))
            connection.execute(text(f"GRANT {rights} ON uploads TO {role}"))

    @staticmethod
    def _must(ended: Ended) -> None:
        assert ended.status == 0, ended.said

    # --- the seeder, the writer, and time ---------------------------------------------------------------------------

    def seed(self) -> None:
        """Empty everything, bind the ledger as at first, and fill the stores anew."""
        with self.ledger.begin() as connection:
            connection.execute(delete(tables.meta))
            connection.execute(insert(tables.meta), self._binding)
            for table in (tables.run, tables.batch, tables.approval):
                connection.execute(delete(table))
        rows = [
            {
                "id": i,
                "expires_at": LONG_AGO if i in ELIGIBLE else FAR_AHEAD,
                "s3_key": f"u/{i}.jpg",
                "thumb_key": None if i % 3 == 0 else f"t/{i}.webp",
            }
            for i in (*ELIGIBLE, *KEPT)
        ]
        rows[-1]["expires_at"] = None
        with self.engine.begin() as connection:
            connection.execute(delete(uploads))
            connection.execute(insert(uploads), rows)
        for engine in self._leases:
            with engine.begin() as connection:
                connection.execute(delete(lease.table))
        self.store._buckets.clear()
        self.store._sorted.clear()
        self.store._versions.clear()
        for bucket in (VERSIONED, FOLDERS):
            self.store.create_bucket(bucket, versioned=True)
        self.store.create_bucket(PLAIN)
        for bucket in (BUCKET, OTHER_BUCKET, VERSIONED):
            self.store.create_bucket(bucket)
            for row in rows:
                for key in (row["s3_key"], row["thumb_key"]):
                    if key is not None:
                        self.store.put(bucket, str(key), b"old")
            self.store.put(bucket, "loose/1.jpg", b"nobody names it")
        for i in (*ELIGIBLE, *KEPT):
            modified = LONG_AGO if i in ELIGIBLE else datetime.now(UTC)
            for bucket in (BUCKET, VERSIONED):
                self.store.put(bucket, f"{PREFIX}{i}.bin", b"old", modified=modified)
            # A second version of each, of which the newest is what a plan knows the ETag of.
            self.store.put(VERSIONED, f"{PREFIX}{i}.bin", b"old", modified=modified)
            self.store.put(VERSIONED, f"u/{i}.jpg", b"old", modified=modified)
            for name in (*BELOW, BELOW[0]):
                for bucket in (FOLDERS, PLAIN):
                    self.store.put(bucket, f"u/{i}.jpg{name}", b"old", modified=modified)
        for bucket, key in (
            (VERSIONED, f"{PREFIX}3.bin"),
            (VERSIONED, "u/3.jpg"),
            (FOLDERS, f"u/3.jpg{BELOW[1]}"),
        ):
            self.store.versions(bucket).hide(key, LONG_AGO)

    def write(self, number: int) -> Written:
        """Change rows as an application may at any moment: un-expire one, rename another's object, delete a third.

        Prefers rows whose objects are gone already, since those are where a quiet loss could hide.
        """
        now = self.look()
        dice = random.Random(number)
        due = [i for i, row in now.rows.items() if row.due]
        dice.shuffle(due)
        due.sort(key=lambda i: not _has_lost(now, now.rows[i].s3_key))
        order = [0, 1, 2]
        dice.shuffle(order)
        first = due[:3]
        picked = [first[place] if place < len(first) else None for place in order]
        unexpired, renamed, deleted = picked
        with self.engine.begin() as connection:
            if unexpired is not None:
                connection.execute(
                    update(uploads).where(uploads.c.id == unexpired).values(expires_at=FAR_AHEAD)
                )
            if renamed is not None:
                for bucket in (BUCKET, OTHER_BUCKET, VERSIONED):
                    self.store.put(bucket, f"new/{renamed}.jpg", b"new")
                for bucket in (FOLDERS, PLAIN):
                    self.store.put(bucket, f"new/{renamed}.jpg{BELOW[0]}", b"new")
                connection.execute(
                    update(uploads).where(uploads.c.id == renamed).values(s3_key=f"new/{renamed}.jpg")
                )
            if deleted is not None:
                connection.execute(delete(uploads).where(uploads.c.id == deleted))
        return Written(unexpired, renamed, deleted)

    def write_versions(self, number: int, bucket: str = VERSIONED) -> Written:
        """As above; and of rows that are due write one's object anew, hide another's, and show again what a marker hid.

        What is written anew may be of a row that is changed as well; every other time it is another object of its folder,
        where it has one.
        """
        dice = random.Random(number)
        below, fresh = (BELOW[0], "/fresh.bin") if bucket == FOLDERS else ("", "")
        now = self.look()
        due = [i for i, row in now.rows.items() if row.due]
        anew = f"{now.rows[dice.choice(due)].s3_key}{fresh if number % 2 else below}" if due else None
        if anew is not None:
            self.store.put(bucket, anew, b"written again")
        written = self.write(number)
        now = self.look()
        left = [row.s3_key + below for row in now.rows.values() if row.due and row.s3_key + below != anew]
        dice.shuffle(left)
        versions = self.store.versions(bucket)
        if left:
            versions.hide(left.pop())
        for key in left:
            *earlier, newest = versions.of(key) or (None,)
            if earlier and newest is not None and newest.stored is None:
                versions.remove(key, newest.name)
                break
        return written._replace(overwritten=anew)

    def write_below(self, number: int, bucket: str = PLAIN) -> Written:
        """As the first; and in the folder of a row that is due write one object anew, or every other time another one."""
        dice = random.Random(number)
        due = [row.s3_key for row in self.look().rows.values() if row.due]
        anew = f"{dice.choice(due)}{'/fresh.bin' if number % 2 else BELOW[0]}" if due else None
        if anew is not None:
            self.store.put(bucket, anew, b"written again")
        return self.write(number)._replace(overwritten=anew)

    def write_objects(self, number: int, bucket: str = BUCKET) -> Written:
        """Overwrite one object of the prefix, remove another, add a third."""
        dice = random.Random(number)
        due = [f"{PREFIX}{i}.bin" for i in ELIGIBLE]
        dice.shuffle(due)
        self.store.put(bucket, due[0], b"written again")
        client = self.store.client()
        client.delete_object(Bucket=bucket, Key=due[1])
        self.store.put(bucket, f"{PREFIX}fresh.bin", b"fresh")
        return Written(overwritten=due[0], removed=due[1])

    def write_names(self, number: int, bucket: str, there: Collection[Place]) -> Written:
        """As above among the orphans, and let a row come to name a third of them, if there is one left."""
        dice = random.Random(number)
        orphans = [f"{PREFIX}{i}.bin" for i in ELIGIBLE if i < NAMES_FROM]
        dice.shuffle(orphans)
        self.store.put(bucket, orphans[0], b"written again")
        self.store.client().delete_object(Bucket=bucket, Key=orphans[1])
        left = [key for key in orphans[2:] if (bucket, key) in there]
        with self.engine.begin() as connection:
            connection.execute(
                update(uploads).where(uploads.c.id == 12).values(thumb_key=left[0] if left else None)
            )
        return Written(overwritten=orphans[0], removed=orphans[1])

    def let_time_pass(self) -> None:
        """End the dead run's lease, and wait for its database sessions to be noticed as dead.

        The lease is ended by hand: waiting for a minute of it a thousand times would prove nothing more.
        """
        query = SESSIONS.get(self.engine.dialect.name)
        if query is not None:
            for _ in range(500):
                with self.engine.connect() as connection:
                    if connection.execute(text(query)).scalar_one() == 0:
                        break
                time.sleep(0.01)
            else:
                raise AssertionError("a killed run's session is still there after 5 s")
        for engine in self._leases:
            with engine.begin() as connection:
                connection.execute(update(lease.table).values(expires_ms=0))

    @contextmanager
    def locked(self, row: int | None) -> Iterator[None]:
        """Hold one row's lock, as another transaction of the application may all the while a purge runs."""
        if row is None:
            yield
            return
        with self.engine.begin() as connection:
            connection.execute(select(uploads).where(uploads.c.id == row).with_for_update())
            yield

    # --- whoever looks ----------------------------------------------------------------------------------------------

    def look(self) -> Stores:
        """Return what the stores hold now."""
        now = datetime.now(UTC)
        with self.engine.connect() as connection:
            rows = {
                row.id: Row(
                    row.expires_at is not None and row.expires_at.replace(tzinfo=UTC) < now,
                    row.s3_key,
                    row.thumb_key,
                )
                for row in connection.execute(select(uploads))
            }
        return Stores(rows, self._objects(), self._versions())

    @contextmanager
    def camera(self) -> Iterator[Callable[[str], int]]:
        """Give a function that returns a number for everything a run would leave behind if it died now.

        Two moments of one number are one to the run that comes next. The function is told before or after what that is: the
        object store is looked at again where it was a request, and a database where somebody has committed.
        """
        c = lease.table.c
        queries: dict[Engine, list[Any]] = {
            engine: [select(c.job, c.owner, c.token, c.expires_ms > 0)] for engine in self._leases
        }
        queries[self.engine].append(select(uploads))
        queries[self.ledger] += [
            select(t).order_by(*t.primary_key.columns) for t in (tables.run, tables.batch, tables.approval)
        ]
        seen: dict[Engine | None, tuple[object, str]] = {}
        with ExitStack() as stack:
            views = {
                engine: stack.enter_context(engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
                for engine in queries
            }

            def picture(label: str) -> int:
                for engine, view in views.items():
                    asked = UNCHANGED.get(engine.dialect.name)
                    token = object() if asked is None else view.exec_driver_sql(asked).scalar_one()
                    if engine not in seen or seen[engine][0] != token:
                        seen[engine] = token, repr([view.execute(query).all() for query in queries[engine]])
                if None not in seen or " http " in label:
                    found = sorted(self._objects().items()), sorted(self._versions().items())
                    seen[None] = None, repr(found)
                return hash(tuple(what for _, what in seen.values()))

            yield picture

    def _objects(self) -> dict[Place, str]:
        found = {
            (bucket, key): stored.etag
            for bucket, members in self.store._buckets.items()
            for key, stored in dict(members).items()
        }
        # A key that a marker hides is there all the same.
        return dict.fromkeys(self._versions(), HIDDEN) | found

    def _versions(self) -> dict[Place, tuple[Kept, ...]]:
        return {
            (bucket, key): tuple(
                Kept(v.name, v.stored is None, v.modified == LONG_AGO) for v in versions.of(key)
            )
            for bucket, versions in self.store._versions.items()
            for key in dict.fromkeys(key for key, _ in versions.all())
        }

    def sealed_and_said(self) -> list[LedgerRun]:
        """Return every run in the ledger, oldest first."""
        with self.ledger.connect() as connection:
            runs = connection.execute(select(tables.run).order_by(tables.run.c.started_at)).all()
            batches = connection.execute(
                select(tables.batch).order_by(tables.batch.c.target, tables.batch.c.seq)
            ).all()
        return [_ledger_run(run, [batch for batch in batches if batch.run == run.run]) for run in runs]


def _ledger_run(run: Any, batches: list[Any]) -> LedgerRun:
    claims: list[Claim] = []
    problems: list[str] = []
    for batch in batches:
        items = decode(batch.data, batch.sha256)
        outcomes = {int(i): (o[0], o[1]) for i, o in json.loads(batch.outcomes or "{}").items()}
        settled = batch.state == "done"
        for place, (item, refs) in enumerate(named_items(items)):
            state, code = outcomes.get(place, ("deleted" if settled else "open", ""))
            version = refs[0].version if isinstance(items, ObjectBatch) else None
            exact = {((ref.bucket, ref.key), ref.version or str(ref.etag).strip('"')) for ref in refs}
            claims.append(Claim(item, places(refs), state, code, version, frozenset(exact)))
        if settled:
            said = json.loads(batch.tally)[""]
            numbers = {
                name: said[name] for name in ("deleted", "gone", "changed", "blocked", "failed", "unknown")
            }
            counted = dict.fromkeys(numbers, 0)
            for claim in claims[-len(items) :]:
                counted[claim.state] += 1
            if numbers != counted:
                problems.append(f"batch {batch.seq} says {numbers}, its items say {counted}")
        elif run.state in ("succeeded", "failed", "incomplete", "abandoned"):
            problems.append(f"batch {batch.seq} of the {run.state} run is {batch.state}")
    return LedgerRun(run.run, run.state, run.exit_code, run.reason or "", tuple(claims), tuple(problems))


def named_items(items: RowBatch | ObjectBatch) -> list[tuple[int | str, tuple[ObjectRef, ...]]]:
    """Return a sealed batch's items, each with its objects."""
    if isinstance(items, ObjectBatch):
        return [(ref.key, (ref,)) for ref in items.objects]
    return [(row.key[0], tuple(row.objects)) for row in items.rows]


def places(refs: Iterable[ObjectRef]) -> frozenset[Place]:
    return frozenset((ref.bucket, ref.key) for ref in refs)


def _has_lost(now: Stores, key: str) -> bool:
    """Whether an object of a row's is gone in any bucket, or was hidden there since it was seeded."""
    for place in ((BUCKET, key), (VERSIONED, key), (FOLDERS, key + BELOW[0]), (PLAIN, key + BELOW[0])):
        kept = now.versions.get(place)
        if place not in now.objects or (kept and kept[-1].marker and not kept[-1].old):
            return True
    return False
