"""Makes and binds the ledger: the deploy step, and the DDL for those who run it themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import MetaData

from safedelete.declare import Declared, Purge
from safedelete.errors import ConfigError
from safedelete.ledger.setup import create, ddl, initialise
from safedelete.ledger.tables import metadata as ledger_tables
from safedelete.locks.lease import metadata as lease_tables
from safedelete.ports import Binding, Notice
from safedelete.sql.engine import Database
from safedelete.wiring.connect import buckets_of, caller_of, opened
from safedelete.wiring.settings import Settings, SystemClock


def init(jobs: Sequence[Declared], *, adopt: bool = False, environment: str | None = None) -> Sequence[str]:
    """Create the ledger's and the lease's tables, and bind the ledger. A deploy step; deletes nothing.

    Args:
        jobs: The job file's; their databases and buckets are bound.
        adopt: Bind it anew though it belongs to something else.
        environment: Name of the environment; else ``$SAFEDELETE_ENVIRONMENT``.

    Returns:
        Names of the tables that were created.

    Raises:
        ConfigError: Neither names the environment.
        LedgerError: A table is missing and the database lets this role create none; or the ledger may not be bound.
    """
    settings = Settings.read()
    named = (environment or "").strip() or settings.environment
    if not named:
        # The name is all that tells a physical copy (a snapshot, a base backup) from its original.
        raise ConfigError(
            "The ledger cannot be bound: the environment has no name.",
            hint="Set SAFEDELETE_ENVIRONMENT, to `production` for example, here and wherever safedelete runs; "
            "`init --environment NAME` binds a ledger for elsewhere.",
        )
    created: list[str] = []
    homes: dict[str, _Home] = {}
    for job in jobs or [None]:  # type: ignore[list-item]  # without a job file: the databases of the environment
        with opened(settings, job, may_create=True) as (database, ledger):
            home = homes.setdefault(ledger.database, _Home(job))
            home.databases.add(database.identity)
            home.jobs += [job] if job is not None else []
            created += create(database.engine, lease_tables)
            if ledger.database != database.identity:
                created += create(ledger.engine, lease_tables)
    for home in homes.values():
        with opened(settings, home.first, may_create=True) as (database, ledger):
            binding = Binding(named, frozenset(home.databases), buckets_of(home.jobs))
            created += initialise(ledger.engine, binding, adopt=adopt)
            for job in home.jobs:
                now = SystemClock().now()
                ledger.say(Notice(kind="declared", subject=job.name, since=now, who=caller_of(database)))
    return list(dict.fromkeys(created))


@dataclass(slots=True)
class _Home:
    """One ledger, with what is bound to it."""

    first: Declared | None
    databases: set[str] = field(default_factory=set)
    jobs: list[Declared] = field(default_factory=list)


def know_roles(jobs: Sequence[Declared]) -> bool:
    """Whether a database that `init` creates tables in has roles, which need rights on them. Connects to nothing."""
    found = [database for database, _ in _wanted(jobs).values()]
    for database in found:
        database.dispose()
    return any(database.engine.dialect.name != "sqlite" for database in found)


def init_sql(jobs: Sequence[Declared]) -> str:
    """Return the DDL that ``init`` would emit, for each database in its own dialect. Connects to nothing."""
    wanted = _wanted(jobs)
    parts = []
    for name, (database, tables) in wanted.items():
        head = f"-- {name}\n" if len(wanted) > 1 else ""
        parts.append(head + ddl(database.engine, *tables))
        database.dispose()
    return "\n".join(parts)


def _wanted(jobs: Sequence[Declared]) -> dict[str, tuple[Database, list[MetaData]]]:
    """Return the databases that tables are wanted in, by name, each with what is wanted there."""
    settings = Settings.read()
    wanted: dict[str, tuple[Database, list[MetaData]]] = {}

    def note(database: Database, tables: MetaData) -> None:
        _, listed = wanted.setdefault(database.name, (database, []))
        if tables not in listed:
            listed.append(tables)

    for job in jobs or [None]:  # type: ignore[list-item]  # without a job file: the database of the environment
        target = Database(job.database if isinstance(job, Purge) else None)
        ledger = target if settings.ledger_url is None else Database(settings.ledger_url)
        note(ledger, ledger_tables)
        note(ledger, lease_tables)
        note(target, lease_tables)
    return wanted
