"""Create the ledger and bind it: the only place in safedelete that emits DDL.

A deploy step, never part of a run.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Final

from sqlalchemy import Engine, MetaData, Table, insert, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from safedelete.errors import BindingError, LedgerError, LedgerUnreachedError
from safedelete.ledger import tables
from safedelete.ledger.failures import AGAIN, denied, first_line, passing
from safedelete.ports import Binding


def initialise(engine: Engine, binding: Binding, *, adopt: bool) -> Collection[str]:
    """Create what is missing of the ledger, and bind it. Idempotent; deletes nothing.

    Buckets that the ledger is not bound to yet are added. Another environment, or a database that it is not bound to,
    may be a copy: that needs ``adopt``. Tables of another version are refused; none are altered.

    Args:
        engine: The ledger's database.
        binding: Environment, databases (the ledger's own among them) and buckets of the job file.
        adopt: Replace the old binding.

    Returns:
        Names of the tables that were created.

    Raises:
        BindingError: It is bound to something else and ``adopt`` was not said.
        LedgerError: The database refused, or the ledger is of another version.
    """
    created = create(engine, tables.metadata)
    try:
        with engine.begin() as connection:
            m = tables.meta.c
            found: dict[str, str] = {
                row.name: row.value for row in connection.execute(select(m.name, m.value))
            }
            if found.get("version", str(tables.VERSION)) != str(tables.VERSION):
                raise LedgerError(
                    f"The ledger has version {found['version']}; this safedelete writes version {tables.VERSION}.",
                    hint="Install the version of safedelete that wrote it.",
                )
            environment, databases, buckets = _merge(found, binding, adopt=adopt)
            wanted = {
                "version": str(tables.VERSION),
                "environment": environment,
                "databases": json.dumps(sorted(databases)),
                "buckets": json.dumps(sorted(buckets)),
            }
            for name, value in wanted.items():
                if name in found:
                    connection.execute(update(tables.meta).where(m.name == name).values(value=value))
                else:
                    connection.execute(insert(tables.meta).values(name=name, value=value))
    except SQLAlchemyError as error:
        raise _refused(engine, "The ledger could not be bound", error, _TO_BIND) from error
    return created


def create(engine: Engine, metadata: MetaData) -> Collection[str]:
    """Create the tables of a metadata that are missing; returns their names.

    Raises:
        LedgerError: The database refused, for want of a privilege for example; says which tables are missing.
    """
    missing: list[Table] = []
    try:
        there = set(inspect(engine).get_table_names())
        missing = [table for table in metadata.sorted_tables if table.name not in there]
        metadata.create_all(engine, tables=missing)
    except SQLAlchemyError as error:
        names = ", ".join(table.name for table in missing) or "The ledger's tables"
        # MariaDB and MySQL show no table to a role without a right on it.
        hidden = "missing, or hidden from this role" if _dialect(engine) == "mysql" else "missing"
        raise _refused(engine, f"{names}: {hidden}, and could not be created", error, _TO_CREATE) from error
    return [table.name for table in missing]


_TO_CREATE: Final = (
    "Run `safedelete init FILE` as a role that may CREATE TABLE there; or have an administrator apply what "
    "`safedelete init FILE --sql` prints, and run it again, which then only binds them. `safedelete render grants FILE` "
    "writes the rights that each role needs on them."
)
_TO_BIND: Final = "The role that binds needs GRANT SELECT, INSERT, UPDATE ON safedelete_meta, and GRANT SELECT, INSERT ON safedelete_notice."
_READ_ONLY: Final = (
    "The file, or its directory, cannot be written: run `safedelete init FILE` as a user who may."
)


def _refused(engine: Engine, what: str, error: SQLAlchemyError, remedy: str) -> LedgerError:
    """Say what a database did not let `init` do, where, and as whom."""
    whose = f" as {engine.url.username}" if engine.url.username else ""
    message = f"{what} in {engine.url.database}{whose}: {first_line(error)}."
    if passing(error):
        return LedgerUnreachedError(message, hint=AGAIN)
    if denied(error):
        return LedgerError(message, hint=_READ_ONLY if _dialect(engine) == "sqlite" else remedy)
    # Of two that run at once, one finds made what it was about to make.
    hint = "Run it again. Where it says the same, try by hand the statements that `safedelete init FILE --sql` prints."
    return LedgerError(message, hint=hint)


def _dialect(engine: Engine) -> str:
    """Return the dialect's name, MariaDB's as MySQL's."""
    return "mysql" if engine.dialect.name == "mariadb" else engine.dialect.name


def ddl(engine: Engine, *metadatas: MetaData) -> str:
    """Return the DDL of these tables for an engine's dialect, without connecting."""
    found: list[Table] = [table for metadata in metadatas for table in metadata.sorted_tables]
    statements = [str(CreateTable(t).compile(engine)).strip() for t in found]
    statements += [str(CreateIndex(i).compile(engine)).strip() for t in found for i in t.indexes]
    return ";\n\n".join(statements) + ";\n"


def _merge(
    found: dict[str, str], binding: Binding, *, adopt: bool
) -> tuple[str, frozenset[str], frozenset[str]]:
    if adopt or "environment" not in found:
        return binding.environment, binding.databases, binding.buckets
    if found["environment"] != binding.environment:
        raise BindingError(
            f"This ledger belongs to the environment {found['environment']!r}, not to {binding.environment!r}.",
            hint="Say --adopt if it is to belong here from now on. Runs planned elsewhere are then abandoned.",
        )
    databases, buckets = frozenset(json.loads(found["databases"])), frozenset(json.loads(found["buckets"]))
    strange = sorted(binding.databases - databases)
    if strange and databases:
        raise BindingError(
            f"This ledger belongs to {', '.join(sorted(databases))}; {', '.join(strange)} is not among them.",
            hint="A restored dump looks like this. Say --adopt if this database is to be purged from now on.",
        )
    return binding.environment, databases | binding.databases, buckets | binding.buckets
