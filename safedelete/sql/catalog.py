"""Ask PostgreSQL's catalog what a probing statement cannot see. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Column, Connection, Table, func, select, text
from sqlalchemy.sql import visitors

from safedelete.ports import Proof, Verdict
from safedelete.sql.backends.base import TableName
from safedelete.sql.backends.postgres import has_unenforced
from safedelete.sql.schema import meant_schema

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

_OID: Final = text(
    "SELECT c.oid, c.relkind::text, pg_get_userbyid(c.relowner), c.relowner, row_security_active(c.oid), n.oid"
    " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :schema AND c.relname = :name"
)
_TRIGGERS: Final = text(
    # Those of the table, and those that one of its partitions has for itself.
    "SELECT tgname, tgtype FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgtype & 8 = 8"
    " AND (tgrelid = :oid OR tgparentid = 0 AND tgtype & 1 = 1"
    " AND tgrelid IN (SELECT relid FROM pg_partition_tree(CAST(:oid AS regclass)))) ORDER BY tgname"
)
_EATERS: Final = text(
    "SELECT t.tgname FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid"
    " WHERE t.tgrelid = :oid AND NOT t.tgisinternal AND t.tgenabled IN ('O', 'A') AND t.tgtype & 3 = 3"
    " AND t.tgtype & :event = :event AND p.prosrc ~* '\\mreturn\\s+null\\M' ORDER BY 1"
)
_RULES: Final = text(
    "SELECT rulename FROM pg_rewrite WHERE ev_class = :oid AND ev_type::text = :event AND ev_enabled IN ('O', 'A')"
)
_UNENFORCED: Final = text(
    "SELECT DISTINCT c.conname FROM pg_trigger AS t JOIN pg_constraint AS c ON c.oid = t.tgconstraint"
    " WHERE t.tgrelid = :oid AND c.contype = 'f' AND c.confrelid = :oid AND t.tgenabled NOT IN ('O', 'A') ORDER BY 1"
)
_IDLE: Final = text(
    "SELECT conname, n.nspname, c.relname FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid"
    " JOIN pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE k.contype = 'f' AND k.confrelid = :oid AND NOT k.conenforced AND k.conparentid = 0 ORDER BY 1"
)
_HEIRS: Final = text(
    "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
    " WHERE i.inhparent = :oid AND NOT c.relispartition ORDER BY 1"
)
_SETTINGS: Final = text(
    "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only'), current_user,"
    " current_setting('track_counts'), current_setting('session_replication_role')"
)
_ROW, _BEFORE = 1, 2
_EVENT: Final = {"DELETE": 8, "UPDATE": 16}
"""By what a foreign key does to the child, as pg_trigger counts it."""
_RULE: Final = {"DELETE": "4", "UPDATE": "2"}
"""The same, as pg_rewrite does."""
_NEEDS: Final = {
    "CASCADE": ("SELECT", "DELETE"),
    "SET NULL": ("SELECT", "UPDATE"),
    "SET DEFAULT": ("SELECT", "UPDATE"),
}


class PostgresCatalog:
    """The catalog around one target."""

    def __init__(self, connection: Connection, target: SqlRows) -> None:
        self.connection = connection
        self.target = target
        self.preparer = connection.dialect.identifier_preparer
        settings = connection.execute(_SETTINGS).one()
        self.recovering, self.read_only, self.role, self.counting, self.acting = settings
        row = self._table(target.schema.table)
        self.oid, self.kind, self.owner, _, self.filtered, _ = row
        self.triggers = [(name, kind) for name, kind in connection.execute(_TRIGGERS, {"oid": self.oid})]
        self.fires_on_nothing = any(not kind & _ROW for _, kind in self.triggers)
        """Whether a statement-level trigger would fire even for a DELETE of no rows."""

    def proofs(self) -> list[Proof]:
        """Return one proof a question."""
        return [
            self._writable(),
            self._counted(),
            self._enforced(),
            self._privilege("DELETE"),
            *self._columns(),
            self._lock(),
            self._row_security(),
            *self._replaced(),
            *self._triggers(),
            *self._foreign_keys(),
            *self._children(),
        ]

    def _table(self, name: TableName) -> Any:
        return self.connection.execute(_OID, {"schema": name[0], "name": name[1]}).one()

    def _quoted(self, name: TableName) -> str:
        schema, table = name
        plain = self.preparer.quote(table)
        return (
            plain
            if schema is None or schema == self.target.schema.default
            else f"{self.preparer.quote(schema)}.{plain}"
        )

    def _grantee(self) -> str:
        return self.preparer.quote(self.role)

    def _writable(self) -> Proof:
        subject = f"read-write server {self.target.database.name}"
        if self.recovering:
            return Proof(
                subject,
                Verdict.DENIED,
                "The server is in recovery: a read replica.",
                "Connect to the primary.",
            )
        if self.read_only == "on":
            return Proof(
                subject,
                Verdict.DENIED,
                "default_transaction_read_only is on for this role, database or server.",
                f"ALTER ROLE {self._grantee()} SET default_transaction_read_only = off;",
            )
        return Proof(subject, Verdict.ALLOWED)

    def _counted(self) -> Proof:
        """Without these counts nobody can say what a delete touched, and so not whether that was planned."""
        subject = f"track_counts on {self.target.database.name}"
        if self.counting == "on":
            return Proof(subject, Verdict.ALLOWED)
        return Proof(
            subject,
            Verdict.DENIED,
            "track_counts is off for this role, database or server, so what a delete touches cannot be held to the plan.",
            f"ALTER ROLE {self._grantee()} SET track_counts = on;",
        )

    def _enforced(self) -> Proof:
        """Foreign keys are triggers, and a session that takes itself for a replica does not fire them."""
        subject = f"session_replication_role on {self.target.database.name}"
        if self.acting != "replica":
            return Proof(subject, Verdict.ALLOWED)
        return Proof(
            subject,
            Verdict.DENIED,
            "session_replication_role is replica for this role, database or server: no foreign key acts, so deleting a row "
            "would leave its children without a parent.",
            f"ALTER ROLE {self._grantee()} SET session_replication_role = origin;",
        )

    def _privilege(self, privilege: str) -> Proof:
        subject = f"{privilege} on {self.target.name}"
        if self._has("has_table_privilege", self.oid, privilege):
            return Proof(subject, Verdict.ALLOWED)
        table = self._quoted(self.target.schema.table)
        return Proof(
            subject,
            Verdict.DENIED,
            f"Role {self.role} lacks {privilege} on {self.target.name}.",
            f"GRANT {privilege} ON {table} TO {self._grantee()};",
        )

    def _columns(self) -> list[Proof]:
        """SELECT on every column that the statements name, of the target and of tables in subqueries."""
        found: list[Proof] = []
        for table, names in self._used().items():
            name, default = table.name, self.target.schema.default
            schema = table.schema or meant_schema(self.connection, table) or default
            shown = (
                self.target.name if table is self.target.table else self.target.schema.display((schema, name))
            )
            subject = f"SELECT on {shown}"
            row = self.connection.execute(_OID, {"schema": schema, "name": name}).first()
            if row is None:
                found.append(
                    Proof(subject, Verdict.DENIED, f"There is no table {shown}.", "Run the migrations first.")
                )
                continue
            if not self._has("has_schema_privilege", row[5], "USAGE"):
                remedy = f"GRANT USAGE ON SCHEMA {self.preparer.quote(str(schema))} TO {self._grantee()};"
                found.append(
                    Proof(
                        subject, Verdict.DENIED, f"Role {self.role} lacks USAGE on schema {schema}.", remedy
                    )
                )
                continue
            missing = [n for n in sorted(names) if not self._has("has_column_privilege", row[0], n, "SELECT")]
            if not missing:
                found.append(Proof(subject, Verdict.ALLOWED))
                continue
            columns = ", ".join(self.preparer.quote(n) for n in missing)
            found.append(
                Proof(
                    subject,
                    Verdict.DENIED,
                    f"Role {self.role} lacks SELECT on {shown} ({', '.join(missing)}).",
                    f"GRANT SELECT ({columns}) ON {self._quoted((schema, name))} TO {self._grantee()};",
                )
            )
        return found

    def _used(self) -> dict[Table, set[str]]:
        target = self.target
        used: dict[Table, set[str]] = {target.table: {c.name for c in target.table.primary_key.columns}}
        expressions = [*target.rows.predicates, *target.owned.selected()]
        for expression in expressions:
            for element in visitors.iterate(expression):
                if isinstance(element, Column) and isinstance(element.table, Table):
                    table = target.table if element.table.fullname == target.table.fullname else element.table
                    used.setdefault(table, set()).add(element.name)
        return used

    def _lock(self) -> Proof:
        subject = f"locking rows of {self.target.name}"
        if self._has("has_any_column_privilege", self.oid, "UPDATE"):
            return Proof(subject, Verdict.ALLOWED)
        key = self.preparer.quote(next(iter(self.target.keys.names)))
        return Proof(
            subject,
            Verdict.ALLOWED,
            "The role may not lock rows (SELECT … FOR UPDATE), so a batch holds them by deleting them uncommitted. Where "
            "an object is denied, its row is free for a moment; one that changes then is reported as dangling.",
            f"GRANT UPDATE ({key}) ON {self._quoted(self.target.schema.table)} TO {self._grantee()};",
        )

    def _row_security(self) -> Proof:
        subject = f"row-level security on {self.target.name}"
        if not self.filtered:
            return Proof(subject, Verdict.ALLOWED)
        return Proof(
            subject,
            Verdict.DENIED,
            f"Policies filter what role {self.role} sees and deletes; rows would be skipped without a word.",
            f"ALTER ROLE {self._grantee()} BYPASSRLS;",
        )

    def _replaced(self) -> list[Proof]:
        """What stands in the table's place: rules, heirs, a foreign table."""
        found: list[Proof] = []
        table = self._quoted(self.target.schema.table)
        for (rule,) in self.connection.execute(_RULES, {"oid": self.oid, "event": _RULE["DELETE"]}):
            found.append(
                Proof(
                    f"rule {rule} on {self.target.name}",
                    Verdict.DENIED,
                    "A rule rewrites DELETE on this table, so a deleted row may still be there.",
                    f"ALTER TABLE {table} DISABLE RULE {self.preparer.quote(rule)};",
                )
            )
        heirs = [name for (name,) in self.connection.execute(_HEIRS, {"oid": self.oid})]
        if heirs:
            found.append(
                Proof(
                    f"inheritance of {self.target.name}",
                    Verdict.DENIED,
                    f"{', '.join(heirs)} inherit from it, and no key is unique over all of them: one key may delete two rows.",
                    "Purge each table by itself, or use partitions.",
                )
            )
        if self.kind == "f":
            found.append(
                Proof(
                    f"kind of {self.target.name}",
                    Verdict.DENIED,
                    "It is a foreign table; what another server deletes cannot be held or rolled back reliably.",
                    "Run the purge on the server that holds the table.",
                )
            )
        return found

    def _triggers(self) -> list[Proof]:
        if not self.triggers:
            return []
        listed = ", ".join(
            f"{name} ({'BEFORE' if kind & _BEFORE else 'AFTER'})" for name, kind in self.triggers
        )
        return [
            Proof(
                f"triggers on {self.target.name}",
                Verdict.ALLOWED,
                f"DELETE fires {listed}. A table that they write to must be named in may_touch=; a row that they keep is "
                "reported as failed.",
            )
        ]

    def _foreign_keys(self) -> list[Proof]:
        """Cascades run as the child's owner, whom a REVOKE may have left without the right."""
        schema = self.target.schema
        found: dict[str, Proof] = {}
        for fk in schema.reachable(schema.table):
            oid, _, owner, owner_oid, _, _ = self._table(fk.child)
            for privilege in _NEEDS.get(fk.action, ("SELECT",)):
                subject = f"{privilege} on {schema.display(fk.child)} by its owner {owner}"
                if self._has("has_table_privilege", owner_oid, oid, privilege):
                    found.setdefault(subject, Proof(subject, Verdict.ALLOWED, f"needed by {fk.name}"))
                else:
                    found[subject] = Proof(
                        subject,
                        Verdict.DENIED,
                        f"{fk.name} ({fk.action}) runs as the child's owner, who lacks {privilege}.",
                        f"GRANT {privilege} ON {self._quoted(fk.child)} TO {self.preparer.quote(owner)};",
                    )
        return list(found.values())

    def _children(self) -> list[Proof]:
        """What keeps a foreign key from doing what it says: nobody is told, and the child stays without its parent."""
        schema = self.target.schema
        found: dict[str, Proof] = {}

        def deny(what: str, detail: str, remedy: str) -> None:
            found[what] = Proof(what, Verdict.DENIED, detail, remedy)

        reachable = schema.reachable(schema.table)
        going = {schema.table, *(fk.child for fk in reachable if fk.action == "CASCADE")}
        for table in sorted(going) if has_unenforced(self.connection) else ():
            for name, space, plain in self.connection.execute(_IDLE, {"oid": self._table(table)[0]}):
                child = self._quoted((space, plain))
                deny(
                    f"foreign key {name} on {schema.display(table)}",
                    f"It is NOT ENFORCED, so deleting a row would leave its children in {child} without a parent, and no plan counts "
                    "them. Where that is meant, drop the constraint: it does nothing.",
                    f"ALTER TABLE {child} ALTER CONSTRAINT {self.preparer.quote(name)} ENFORCED;",
                )
        for fk in reachable:
            parent, child = self._quoted(fk.parent), schema.display(fk.child)
            for (name,) in self.connection.execute(_UNENFORCED, {"oid": self._table(fk.parent)[0]}):
                deny(
                    f"foreign key {name} on {schema.display(fk.parent)}",
                    "Its triggers are disabled, so deleting a row would leave its children without a parent.",
                    f"ALTER TABLE {parent} ENABLE TRIGGER ALL;",
                )
            event = _NEEDS.get(fk.action, ("",))[-1]
            if event not in _EVENT:
                continue
            oid = self._table(fk.child)[0]
            for (name,) in self.connection.execute(_EATERS, {"oid": oid, "event": _EVENT[event]}):
                deny(
                    f"trigger {name} on {child}",
                    f"{fk.name} ({fk.action}) runs through it, and it can return NULL: then the row would stay without its "
                    "parent, and without an error.",
                    f"ALTER TABLE {self._quoted(fk.child)} DISABLE TRIGGER {self.preparer.quote(name)};",
                )
            for (name,) in self.connection.execute(_RULES, {"oid": oid, "event": _RULE[event]}):
                deny(
                    f"rule {name} on {child}",
                    f"{fk.name} ({fk.action}) runs through it, so a row may stay without its parent.",
                    f"ALTER TABLE {self._quoted(fk.child)} DISABLE RULE {self.preparer.quote(name)};",
                )
        return list(found.values())

    def _has(self, function: str, *arguments: Any) -> bool:
        return bool(self.connection.execute(select(getattr(func, function)(*arguments))).scalar_one())
