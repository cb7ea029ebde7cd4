"""What differs between database servers, one file a server."""

from __future__ import annotations

from safedelete.errors import ConfigError
from safedelete.sql.backends.base import Backend, Timeouts
from safedelete.sql.backends.mysql import MySQL
from safedelete.sql.backends.postgres import Postgres
from safedelete.sql.backends.sqlite import SQLite

__all__ = ["Backend", "MySQL", "Postgres", "SQLite", "Timeouts", "backend_for"]


def backend_for(dialect: str) -> Backend:
    """Return the backend of a SQLAlchemy dialect by its name."""
    match dialect:
        case "postgresql":
            return Postgres()
        case "sqlite":
            return SQLite()
        case "mysql" | "mariadb":
            return MySQL()
    raise ConfigError(
        f"The database dialect {dialect!r} is not supported.",
        hint="Supported are PostgreSQL (psycopg), MariaDB and MySQL (PyMySQL) and SQLite.",
    )
