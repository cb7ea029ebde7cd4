"""Notice on MariaDB and MySQL that a foreign key or a trigger has come while a purge runs. Reads only.

PostgreSQL and SQLite say what a delete touched, so whatever came shows there. These servers do not: what cascades take is
counted by the foreign keys that were known, and what triggers write was allowed by those that were seen. Asked after the
delete and before the commit, the server knows of everything that the delete met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import BindParameter, Connection, bindparam, text
from sqlalchemy.exc import DBAPIError

from safedelete.errors import SchemaChangedError
from safedelete.sql.backends.base import TableName
from safedelete.sql.failures import code, lost

_DENIED: Final = ("1227", "1142", "1044")
_TABLES: Final[BindParameter[Any]] = bindparam("tables", expanding=True)
# InnoDB writes names as it writes files.
_INNODB_MARIADB: Final = text(
    "SELECT id, for_name, type FROM information_schema.innodb_sys_foreign"
    " WHERE CONCAT_WS('.', CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', 1) AS BINARY) USING filename),"
    " CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', -1) AS BINARY) USING filename)) IN :tables"
).bindparams(_TABLES)
_INNODB: Final = text(
    "SELECT id, for_name, type FROM information_schema.innodb_foreign"
    " WHERE CONCAT_WS('.', CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', 1) AS BINARY) USING filename),"
    " CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', -1) AS BINARY) USING filename)) IN :tables"
).bindparams(_TABLES)
_VISIBLE: Final = text(
    "SELECT constraint_schema, table_name, constraint_name, delete_rule, update_rule"
    " FROM information_schema.referential_constraints"
    " WHERE CONCAT_WS('.', unique_constraint_schema, referenced_table_name) IN :tables"
).bindparams(_TABLES)
_TRIGGERS: Final = text(
    "SELECT trigger_name, action_timing, action_statement FROM information_schema.triggers"
    " WHERE event_object_schema = :schema AND event_object_table = :name AND event_manipulation = 'DELETE'"
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The foreign keys onto some tables, and the first one's triggers, as a role sees them.

    Attributes:
        tables: The target, and every table that leads to it by foreign keys.
        found: What there is.
        whole: Whether InnoDB was asked, which hides none; it wants PROCESS.
    """

    tables: tuple[TableName, ...]
    found: frozenset[tuple[str, ...]]
    whole: bool

    @classmethod
    def read(cls, connection: Connection, tables: Sequence[TableName]) -> Surroundings:
        """Read them, from InnoDB where the role may."""
        try:
            return cls(tuple(tables), _found(connection, tables, whole=True), whole=True)
        except DBAPIError as error:
            if lost(error) or code(error) not in _DENIED:
                raise
        return cls(tuple(tables), _found(connection, tables, whole=False), whole=False)

    def require_same(self, connection: Connection, name: str) -> None:
        """Raise unless everything is as it was read.

        Args:
            connection: The batch's.
            name: The target's name.

        Raises:
            SchemaChangedError: A foreign key or a trigger has come, gone, or become another one.
        """
        now = _found(connection, self.tables, whole=self.whole)
        if now == self.found:
            return
        what = sorted({" ".join(one[1:3]) for one in now ^ self.found})
        raise SchemaChangedError(
            f"Foreign keys or triggers around {name} have changed since the run began ({', '.join(what)}), and what a delete "
            "takes along is not what was planned. Nothing of this batch was deleted.",
            hint="Plan again: the next run counts what is there then.",
        )


def _found(connection: Connection, tables: Sequence[TableName], *, whole: bool) -> frozenset[tuple[str, ...]]:
    schema, name = tables[0]
    innodb = _INNODB_MARIADB if getattr(connection.dialect, "is_mariadb", False) else _INNODB
    asked = innodb if whole else _VISIBLE
    keys = connection.execute(asked, {"tables": [f"{space}.{table}" for space, table in tables]}).all()
    triggers = connection.execute(_TRIGGERS, {"schema": schema, "name": name}).all()
    found = {("foreign key", *map(str, row)) for row in keys}
    return frozenset(found | {("trigger", *map(str, row)) for row in triggers})
