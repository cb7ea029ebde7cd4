"""What stands around a table on MariaDB, MySQL and SQLite that a probing statement cannot see. Reads only.

PostgreSQL's catalog has a module of its own (``catalog.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from safedelete.ports import Proof, Verdict
from safedelete.sql.failures import code, lost
from safedelete.sql.rights import Rights

if TYPE_CHECKING:
    from safedelete.sql.rows import SqlRows

_TRIGGERS: Final = text(
    "SELECT trigger_name, action_timing, action_statement FROM information_schema.triggers"
    " WHERE event_object_schema = COALESCE(:schema, DATABASE()) AND event_object_table = :name"
    " AND event_manipulation = 'DELETE' ORDER BY 1"
)
_TRIGGERS_SQLITE: Final = text(
    "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :name COLLATE NOCASE ORDER BY 1"
)
_HIDDEN_MARIADB: Final = text(
    # InnoDB writes names as it writes files.
    "SELECT CONVERT(CAST(SUBSTRING_INDEX(for_name, '/', 1) AS BINARY) USING filename),"
    " CONVERT(CAST(SUBSTRING_INDEX(for_name, '/', -1) AS BINARY) USING filename)"
    " FROM information_schema.innodb_sys_foreign"
    " WHERE CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', 1) AS BINARY) USING filename) = :schema"
    " AND CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', -1) AS BINARY) USING filename) = :name"
)
_HIDDEN: Final = text(
    "SELECT CONVERT(CAST(SUBSTRING_INDEX(for_name, '/', 1) AS BINARY) USING filename),"
    " CONVERT(CAST(SUBSTRING_INDEX(for_name, '/', -1) AS BINARY) USING filename)"
    " FROM information_schema.innodb_foreign"
    " WHERE CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', 1) AS BINARY) USING filename) = :schema"
    " AND CONVERT(CAST(SUBSTRING_INDEX(ref_name, '/', -1) AS BINARY) USING filename) = :name"
)

_KEEPS_HISTORY: Final = text(
    "SELECT 1 FROM information_schema.tables"
    " WHERE table_schema = :schema AND table_name = :name AND table_type = 'SYSTEM VERSIONED'"
)

_EVENT: Final = re.compile(
    r"\b(?P<when>BEFORE|AFTER)?\s*(?P<what>DELETE|INSERT|UPDATE)\b(?:\s+OF\b.*?)?\s+ON\b",
    re.IGNORECASE | re.DOTALL,
)
_WRITES: Final = re.compile(
    r"\b(?:(?:INSERT|REPLACE)\s+(?:LOW_PRIORITY\s+|DELAYED\s+|HIGH_PRIORITY\s+|IGNORE\s+)*INTO|UPDATE|DELETE\s+FROM|CALL)\s+"
    r"(?P<name>(?:`[^`]+`|[\w$]+)(?:\s*\.\s*(?:`[^`]+`|[\w$]+))?)",
    re.IGNORECASE,
)


def proofs(connection: Connection, target: SqlRows) -> Iterator[Proof]:
    """Yield one proof a question."""
    if target.database.backend.name == "sqlite":
        yield from _triggers_of_sqlite(connection, target)
    else:
        yield from _triggers(connection, target)
        yield from _children(connection, target)
        yield from _history(connection, target)


def _triggers_of_sqlite(connection: Connection, target: SqlRows) -> Iterator[Proof]:
    fired = []
    for name, sql in connection.execute(_TRIGGERS_SQLITE, {"name": target.table.name}):
        event = _EVENT.search(sql)
        if event is not None and event["what"].upper() == "DELETE":
            fired.append(f"{name} ({(event['when'] or 'BEFORE').upper()})")
    if fired:
        yield Proof(
            f"triggers on {target.name}",
            Verdict.ALLOWED,
            f"DELETE fires {', '.join(fired)}. A table that they write to must be named in may_touch=; a row that they keep is "
            "reported as failed.",
        )


def _triggers(connection: Connection, target: SqlRows) -> Iterator[Proof]:
    """Nobody says what a trigger has written, so what it can write must have been allowed before."""
    schema, name = target.schema.table
    found = connection.execute(_TRIGGERS, {"schema": schema, "name": name}).all()
    subject = f"triggers on {target.name}"
    if not found and Rights.read(connection).on("TRIGGER", str(schema), name):
        return
    veiled = [f"{trigger} ({when})" for trigger, when, does in found if does is None]
    if not found or veiled:
        # To a role without the right, one server shows a trigger's name alone, another nothing at all.
        yield _unseen(
            target,
            subject,
            f"DELETE fires {', '.join(veiled)}, and what that does is shown to a role with the TRIGGER right alone."
            if veiled
            else "The server shows triggers to a role with the TRIGGER right alone: one of them could write to any table, and "
            "no plan would count that.",
            f"GRANT TRIGGER ON {_quoted(connection, schema, name)} TO {account(target.database.caller)};",
        )
        return
    written = {_plain(m["name"], schema) for _, _, does in found for m in _WRITES.finditer(str(does))}
    strange = sorted(written - set(target.rows.may_touch))
    fired = ", ".join(f"{trigger} ({when})" for trigger, when, _ in found)
    if not strange:
        yield Proof(subject, Verdict.ALLOWED, f"DELETE fires {fired}.")
        return
    yield Proof(
        subject,
        Verdict.DENIED,
        f"DELETE fires {fired}, which write to {', '.join(strange)} (a procedure counts as what it is called). The server does "
        "not say what a trigger wrote, so it cannot be held to the plan.",
        f"Rows(..., may_touch={sorted(written | set(target.rows.may_touch))!r})",
    )


def _plain(name: str, schema: str | None) -> str:
    space, _, plain = "".join(name.replace("`", "").split()).rpartition(".")
    return f"{space}.{plain}" if space and space != schema else plain


def _children(connection: Connection, target: SqlRows) -> Iterator[Proof]:
    """The server shows no table to a role without a right on it, and deletes from it by a cascade all the same."""
    schema = target.schema
    subject = f"seeing what references {target.name}"
    known = {(fk.child[0] or "", fk.child[1]) for fk in schema.reachable(schema.table)}
    parents = {schema.table, *(fk.child for fk in schema.reachable(schema.table) if fk.action == "CASCADE")}
    question = _HIDDEN_MARIADB if getattr(connection.dialect, "is_mariadb", False) else _HIDDEN
    hidden: set[tuple[str, str]] = set()
    for space, name in parents:
        try:
            answers = connection.execute(question, {"schema": space, "name": name}).all()
        except DBAPIError as error:
            if lost(error) or code(error) not in ("1227", "1142", "1044"):
                raise
            if Rights.read(connection).everywhere("SELECT"):
                break
            yield _unseen(
                target,
                subject,
                "The server shows this role only tables that it has some right on: rows of any other child would go by a "
                "cascade that no plan counts. With PROCESS a hidden one is found.",
                f"GRANT PROCESS ON *.* TO {account(target.database.caller)};",
            )
            return
        hidden |= {(str(where), str(child)) for where, child in answers} - known
    if not hidden:
        yield Proof(subject, Verdict.ALLOWED)
        return
    who = account(target.database.caller)
    yield Proof(
        subject,
        Verdict.DENIED,
        f"{', '.join('.'.join(child) for child in sorted(hidden))} references it, and this role may not see that table.",
        " ".join(
            f"GRANT SELECT ON {_quoted(connection, space, name)} TO {who};" for space, name in sorted(hidden)
        ),
    )


def _history(connection: Connection, target: SqlRows) -> Iterator[Proof]:
    """A row that is deleted from such a table is gone for every query but those that ask for the past."""
    schema = target.schema
    going = {schema.table, *(fk.child for fk in schema.reachable(schema.table) if fk.action == "CASCADE")}
    for space, name in sorted(going, key=str):
        if connection.execute(_KEEPS_HISTORY, {"schema": space, "name": name}).first() is not None:
            yield Proof(
                f"history of {schema.display((space, name))}",
                Verdict.ADVICE,
                "The table keeps its history (WITH SYSTEM VERSIONING): deleted rows stay in it, with all that they held, until "
                "DELETE HISTORY removes them.",
            )


def _unseen(target: SqlRows, subject: str, why: str, remedy: str) -> Proof:
    """What may not be looked at is no yes; that a team knows of the gap and accepts it, only its job file can say."""
    if target.rows.allow_unseen:
        return Proof(subject, Verdict.ADVICE, f"{why} Accepted by allow_unseen=True.", remedy)
    known = "Where you know that there is nothing to be seen, say Rows(..., allow_unseen=True) instead."
    return Proof(subject, Verdict.UNKNOWN, f"{why} {known}", remedy)


def _quoted(connection: Connection, schema: str | None, name: str) -> str:
    quote = connection.dialect.identifier_preparer.quote
    return f"{quote(schema)}.{quote(name)}" if schema else quote(name)


def account(caller: str) -> str:
    """Return ``user@host``, as the server says it, the way GRANT takes it."""
    user, _, host = caller.partition("@")
    return f"'{user}'@'{host or '%'}'"
