"""Connect a declared job to its database, its buckets, its ledger and its lock."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import random
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from safedelete.declare import Declared, Purge, Rows, S3Endpoint, S3Orphans, S3Prefix
from safedelete.declare.targets import Mode
from safedelete.ledger.store import SqlLedger
from safedelete.phases.parts import Brake, ObjectPart, Part, Progress, RowPart, quiet
from safedelete.ports import Binding, ObjectStore, Prober, Proof, Teller
from safedelete.runner.context import PurgeContext, Setting
from safedelete.runner.pause import cancellation
from safedelete.runner.stop import Asked, deadline, nobody
from safedelete.s3.advice import S3Adviser
from safedelete.s3.below import OwnedObjectsReader
from safedelete.s3.buckets import Buckets
from safedelete.s3.canary import Conditions
from safedelete.s3.client import Connection, connect
from safedelete.s3.orphans import OrphanTarget
from safedelete.s3.pace import DEFAULT_RATE
from safedelete.s3.probe import S3Prober
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.sql import inflight
from safedelete.sql.engine import Database, Timeouts
from safedelete.sql.fingerprint import definition, orphans_definition
from safedelete.sql.lag import ReplicationLag
from safedelete.sql.permissions import SqlProber
from safedelete.sql.referenced import SqlReferences
from safedelete.sql.referenced_probe import ReferenceProber
from safedelete.sql.rows import SqlRows
from safedelete.wiring.beside import acquainted, owners_under
from safedelete.wiring.lock import lock_of
from safedelete.wiring.settings import Settings, SystemClock
from safedelete.wiring.task import described
from safedelete.wiring.telling import Passing
from safedelete.wiring.unfinished import working

CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_run(clock: SystemClock) -> str:
    """Return a run id: 26 letters and digits that sort by time (a ULID)."""
    number = int(clock.now().timestamp() * 1000) << 80 | secrets.randbits(80)
    return "".join(CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))


def new_owner() -> str:
    """Return a name for one run's process: host, process id, and what tells two runs of one process apart."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def caller_of(database: Database) -> str:
    """Return who calls: login and host, and the database's role where there is one. Reads only."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's arbitrary user id has no name.
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()} {database.caller}".strip()


def fingerprint(purge: Purge) -> str:
    """Hash what a purge selects: two plans of one fingerprint take the same items from the same data."""
    targets = []
    for target in purge.targets:
        if isinstance(target, Rows):
            targets.append(definition(target))
        elif isinstance(target, S3Orphans):
            targets.append(orphans_definition(target))
        else:
            targets.append(
                json.dumps(
                    # Conditions come last and only where there are any, so that adding a kind changes no older hash.
                    ["prefix", target.bucket, target.prefix, target.older_than.total_seconds(), target.mode]
                    + ([target.conditions] if target.conditions else []),
                    separators=(",", ":"),
                )
            )
    return hashlib.sha256(json.dumps([targets, purge.per_run], separators=(",", ":")).encode()).hexdigest()


def buckets_of(jobs: Sequence[Declared]) -> frozenset[str]:
    """Return every bucket these jobs delete from."""
    found: set[str] = set()
    for job in jobs:
        for target in job.targets if isinstance(job, Purge) else ():
            found |= {keys.bucket for keys in target.owns} if isinstance(target, Rows) else {target.bucket}
    return frozenset(found)


_open: Final[set[Database]] = set()
"""Databases this process is connected to, for :func:`cancel_statements`."""


def cancel_statements() -> None:
    """Cancel every database statement in flight, from another thread; the transactions roll back. Never raises.

    A job's own engines are reached as well, while :func:`safedelete.sql.inflight.followed` follows them.
    """
    for database in list(_open):
        database.cancel()
    inflight.cancel()


@contextmanager
def opened(
    settings: Settings, job: Declared | None, *, may_create: bool = False
) -> Iterator[tuple[Database, SqlLedger]]:
    """Connect to a job's database and to the ledger."""
    source = job.database if isinstance(job, Purge) else None
    timeouts = _within_lease(settings.lease_seconds)
    elsewhere = settings.ledger_url is not None
    # A ledger may be made; a database whose rows are to be purged or asked, and which is not there, is a mistyped path.
    holds_rows = isinstance(job, Purge) and any(
        isinstance(target, (Rows, S3Orphans)) for target in job.targets
    )
    target = Database(source, timeouts=timeouts, may_create=may_create and not holds_rows)
    ledger = Database(settings.ledger_url, timeouts=timeouts, may_create=may_create) if elsewhere else target
    _open.update({target, ledger})
    try:
        yield target, SqlLedger(ledger.engine, ledger.identity)
    finally:
        _open.difference_update({target, ledger})
        target.dispose()
        ledger.dispose()


@contextmanager
def ledger_opened(settings: Settings, job: Declared | None) -> Iterator[tuple[Database, SqlLedger]]:
    """Connect to a job's ledger alone: its target need not be reachable, nor even be known on this host."""
    source = job.database if isinstance(job, Purge) else None
    database = Database(settings.ledger_url or source, timeouts=_within_lease(settings.lease_seconds))
    try:
        yield database, SqlLedger(database.engine, database.identity)
    finally:
        database.dispose()


def one_for_each_ledger(jobs: Sequence[Declared | None], settings: Settings) -> list[Declared | None]:
    """Return one job for each ledger that these keep their runs in."""
    if settings.ledger_url is not None:
        return list(jobs[:1])
    return list(
        {str(job.database) if isinstance(job, Purge) else "": job for job in reversed(jobs)}.values()
    )[::-1]


def _within_lease(seconds: float) -> Timeouts:
    """Return a batch's timeouts, all below the lease: a holder that hangs must not outlive its right to delete."""
    usual = Timeouts()
    return Timeouts(
        statement=min(usual.statement, timedelta(seconds=seconds / 2)),
        lock=min(usual.lock, timedelta(seconds=seconds / 4)),
        idle=min(usual.idle, timedelta(seconds=seconds * 0.75)),
    )


@contextmanager
def context_of(
    purge: Purge,
    *,
    settings: Settings | None = None,
    asked: Asked = nobody,
    progress: Progress = quiet,
    clock: SystemClock | None = None,
    manifest: Path | None = None,
    teller: Teller | None = None,
    connected: tuple[Database, SqlLedger] | None = None,
) -> Iterator[PurgeContext]:
    """Connect everything a purge needs, and close it afterwards; what is given ``connected`` stays open."""
    settings = settings or Settings.read()
    clock = clock or SystemClock()
    with ExitStack() as held:
        database, ledger = connected or held.enter_context(opened(settings, purge))
        parts, callers = _parts(purge, database, clock)
        caller = " ".join([database.caller, *callers]).strip()
        owner = new_owner()
        lock, probers = lock_of(purge, database, ledger, settings, clock)
        # The lock protects the whole purge, so it is proven once, with the first target.
        parts[0] = replace(parts[0], probers=(*parts[0].probers, *probers))
        context = PurgeContext(
            job=purge.name,
            fingerprint=fingerprint(purge),
            guard=purge.guard,
            portion=purge.per_run,
            max_sealed=purge.max_sealed,
            resume_within=purge.resume_within,
            parts=parts,
            ledger=ledger,
            lock=lock,
            clock=clock,
            new_run=lambda: new_run(clock),
            setting=Setting(
                environment=settings.environment,
                database=_where(database),
                caller=caller,
                owner=owner,
                binding=Binding(settings.environment, frozenset({database.identity}), buckets_of([purge])),
                task=described(settings.revision),
            ),
            stop=deadline(
                clock,
                purge.timeout,
                purge.grace,
                asked,
                cancellation(ledger, purge.name, owner, clock),
            ),
            progress=progress,
            jitter=random.SystemRandom().random,
            brakes=_brakes(purge, database, held),
            clocks=_clocks(parts, database),
            manifest=manifest,
            teller=teller or Passing(purge, settings, clock),
        )
        with working(purge.name, context.setting.owner, ledger, clock, context.teller):
            yield context


def _brakes(purge: Purge, database: Database, held: ExitStack) -> tuple[Brake, ...]:
    found: list[Brake] = []
    if purge.max_replication_lag is not None:
        replicas = [Database(source) for source in purge.replicas]
        for replica in replicas:
            _open.add(replica)
            held.callback(_open.discard, replica)
            held.callback(replica.dispose)
        found.append(ReplicationLag(database, purge.max_replication_lag, replicas))
    if purge.pause_when is not None:
        found.append(purge.pause_when)
    return tuple(found)


def _clocks(parts: Sequence[Part], database: Database) -> tuple[Callable[[], Proof], ...]:
    """Return what holds the database's clock against the host's; nothing where they are one."""
    if database.backend.name == "sqlite":
        return ()
    found = [prober.clock for part in parts for prober in part.probers if isinstance(prober, SqlProber)]
    return tuple(found[:1])


def _where(database: Database) -> str:
    """Return the database's identity with the schema that unqualified names mean on this connection."""
    schema = database.engine.dialect.default_schema_name
    return f"{database.identity} {schema}" if schema else database.identity


def _parts(purge: Purge, database: Database, clock: SystemClock) -> tuple[list[Part], list[str]]:
    connections: dict[int, Connection] = {}

    def reach(client: object) -> Connection:
        if id(client) not in connections:
            connections[id(client)] = connection_to(client)
        return connections[id(client)]

    parts: list[Part] = []
    # One an endpoint for the whole purge, so that one canary a bucket is enough; and for this run only. Two endpoints may
    # each have a bucket of one name.
    conditions: defaultdict[int, Conditions] = defaultdict(Conditions)
    for target in purge.targets:
        if isinstance(target, S3Prefix):
            notes = owners_under(purge, target)
            mine = conditions[id(target.client)]
            parts.append(_prefix_part(target, reach(target.client), clock, mine, notes))
        elif isinstance(target, S3Orphans):
            parts.append(
                _orphan_part(target, database, reach(target.client), clock, conditions[id(target.client)])
            )
        else:
            parts.append(_row_part(target, database, reach, clock, conditions))
    return acquainted(purge, parts, database), sorted(
        {connection.describe_caller() for connection in connections.values()}
    )


def connection_to(client: object) -> Connection:
    """Connect as a target declares it: by a client, by an endpoint, or by the default chain."""
    if isinstance(client, S3Endpoint):
        return connect(
            endpoint_url=client.url,
            region=client.region,
            path_style=client.path_style,
            content_md5=client.content_md5,
            owner=client.owner,
        )
    return connect(client)  # type: ignore[arg-type]  # a declared client, or None


def _prefix_part(
    target: S3Prefix,
    connection: Connection,
    clock: SystemClock,
    conditions: Conditions,
    notes: Sequence[str] = (),
) -> ObjectPart:
    store, probers = _listed(target, connection, clock, conditions)
    return ObjectPart(PrefixTarget(target, connection, store, notes=notes), probers)


def _orphan_part(
    target: S3Orphans,
    database: Database,
    connection: Connection,
    clock: SystemClock,
    conditions: Conditions,
) -> ObjectPart:
    store, probers = _listed(target, connection, clock, conditions)
    references = SqlReferences(target.columns, database, target.bucket, target.prefix)
    return ObjectPart(
        OrphanTarget(target, references, connection, store),
        (ReferenceProber(references), *probers),
        references,
    )


def _listed(
    target: S3Prefix | S3Orphans, connection: Connection, clock: SystemClock, conditions: Conditions
) -> tuple[S3ObjectStore, tuple[Prober, ...]]:
    """Return the store and the probers of a target whose objects are found by listing, and are judged by their age."""
    modes: dict[str, Mode | None] = {target.bucket: target.mode}
    conditions.demand(target.bucket, target.require_conditional)
    store = S3ObjectStore(
        connection,
        clock=clock,
        modes=modes,
        conditional=conditions.proven,
        demanded=conditions.demanded,
        max_delete_rate=target.max_delete_rate or DEFAULT_RATE,
        min_age=target.older_than,
        # No condition tells the same bytes, written again, from the old ones: their ETag is the same. Only the date says
        # that the object is young once more, that a new row has picked it up perhaps.
        always_look=True,
    )
    prefixes = [(target.bucket, target.prefix)]
    return store, (
        S3Prober(connection, modes=modes, prefixes=prefixes, conditions=conditions),
        S3Adviser(connection, modes=modes, prefixes=prefixes),
    )


def _row_part(
    target: Rows,
    database: Database,
    reach: Callable[[object], Connection],
    clock: SystemClock,
    conditions: Mapping[int, Conditions],
) -> RowPart:
    stores: dict[str, ObjectStore] = {}
    probers: list[Prober] = []
    owned: dict[str, tuple[Connection, Mode | None, S3ObjectStore]] = {}
    for keys in target.owns:
        own = conditions[id(keys.client)]
        own.demand(keys.bucket, keys.require_conditional)
        if keys.bucket in stores:
            continue
        modes: dict[str, Mode | None] = {keys.bucket: keys.mode}
        connection = reach(keys.client)
        store = S3ObjectStore(
            connection, clock=clock, modes=modes, conditional=own.proven, demanded=own.demanded
        )
        stores[keys.bucket] = store
        owned[keys.bucket] = (connection, keys.mode, store)
        probers.append(S3Prober(connection, modes=modes, conditions=own))
        probers.append(S3Adviser(connection, modes=modes))
    rows = SqlRows(target, database)
    return RowPart(
        rows,
        Buckets(stores) if stores else None,
        (SqlProber(rows, clock.now), *probers),
        frozenset(target.may_touch),
        missing_ok=any(keys.missing_ok for keys in target.owns),
        owned=OwnedObjectsReader(owned, lists=any(keys.prefix is not None for keys in target.owns))
        if owned
        else None,
    )
