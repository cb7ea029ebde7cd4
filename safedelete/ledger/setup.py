"""Create the ledger and bind it: the only place in safedelete that emits DDL.

A deploy step, never part of a run.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from sqlalchemy import Engine, MetaData, Table, insert, inspect, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from safedelete.errors import BindingError, LedgerError
from safedelete.ledger import tables
from safedelete.ledger.failures import first_line
from safedelete.ports import Binding


def initialise(engine: Engine, binding: Binding, *, adopt: bool) -> Collection[str]:
    """Create what is missing of the ledger, and bind it. Idempotent; deletes nothing.

    Buckets that the ledger is not bound to yet are added. Another environment, or a database it is not bound to, may be a
    copy: that needs ``adopt``.

    Args:
        engine: The ledger's database.
        binding: Environment, databases (the ledger's own among them) and buckets of the job file.
        adopt: Replace the old binding.

    Returns:
        Names of the tables that were created.

    Raises:
        BindingError: It is bound to something else and ``adopt`` was not said.
        LedgerError: The database refused, or the ledger is of a newer version.
    """
    try:
        created = create(engine, tables.metadata)
        with engine.begin() as connection:
            m = tables.meta.c
            found: dict[str, str] = {
                row.name: row.value for row in connection.execute(select(m.name, m.value))
            }
            if found.get("version", str(tables.VERSION)) != str(tables.VERSION):
                raise LedgerError(
                    f"The ledger has version {found['version']}; this safedelete writes version {tables.VERSION}.",
                    hint="Install the newer safedelete.",
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
        raise LedgerError(
            f"The ledger could not be created: {first_line(error)}.",
            hint="`safedelete init` needs a role that may CREATE TABLE; `safedelete init --sql` prints the DDL instead.",
        ) from error
    return created


def create(engine: Engine, metadata: MetaData) -> Collection[str]:
    """Create the tables of a metadata that are missing; returns their names."""
    there = set(inspect(engine).get_table_names())
    missing = [table for table in metadata.sorted_tables if table.name not in there]
    metadata.create_all(engine, tables=missing)
    return [table.name for table in missing]


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
