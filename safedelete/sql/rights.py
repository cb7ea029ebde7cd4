"""What MariaDB and MySQL say that a role may do, where an empty answer would otherwise mean two things. Reads only.

The servers hide what a role has no right to see, and do not say that they do. So an empty answer is believed only where the
role is known to see everything that is asked for. That is read from its grants, as evidence for a yes alone: wildcards, roles
that are not active and rights that are revoked in part have ways of their own, and whatever is not plain is no evidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

_NAME: Final = r"`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\""
_COLUMNS: Final = re.compile(rf" \((?:(?:{_NAME})(?:, )?)+\)")
_GRANT: Final = re.compile(
    rf"GRANT (?P<rights>[A-Z ,]+) ON (?P<schema>\*|{_NAME})\.(?P<table>\*|{_NAME}) TO .*", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Rights:
    """The grants of one session's role, and of the roles that are active in it.

    Attributes:
        grants: The rights, the schema (a pattern, unless a table is named) and the table of each; ``*`` for all.
        narrowed: Whether something is taken away again from a wide grant (MySQL's partial revokes).
    """

    grants: tuple[tuple[frozenset[str], str, str], ...]
    narrowed: bool = False

    @classmethod
    def read(cls, connection: Connection) -> Rights:
        """Read them."""
        lines = [str(line) for line in connection.execute(text("SHOW GRANTS")).scalars()]
        found = []
        for line in lines:
            # A right on some columns says nothing about the others.
            if match := _GRANT.fullmatch(_COLUMNS.sub(" OF SOME COLUMNS", line)):
                rights = frozenset(match["rights"].split(", "))
                found.append((rights, _plain(match["schema"]), _plain(match["table"])))
        return cls(tuple(found), any(line.startswith(("REVOKE ", "DENY ")) for line in lines))

    def everywhere(self, right: str) -> bool:
        """Whether the role plainly has a right on every table of the server."""
        return not self.narrowed and any(
            _has(rights, right) for rights, schema, table in self.grants if schema == table == "*"
        )

    def on(self, right: str, schema: str, table: str) -> bool:
        """Whether the role plainly has a right on a table."""
        if any(_has(r, right) for r, space, name in self.grants if (space, name) == (schema, table)):
            return True
        # Of several patterns that fit, the server takes one; which, is its affair.
        fitting = [r for r, space, name in self.grants if name == "*" != space and _fits(schema, space)]
        whole = bool(fitting) and all(_has(rights, right) for rights in fitting)
        return self.everywhere(right) or (whole and not self.narrowed)


def _has(rights: frozenset[str], right: str) -> bool:
    return not rights.isdisjoint((right, "ALL PRIVILEGES"))


def _plain(name: str) -> str:
    return name if name == "*" else name[1:-1].replace(name[0] * 2, name[0])


def _fits(schema: str, pattern: str) -> bool:
    spelt = re.sub(
        r"\\(?P<literal>[_%])|(?P<wild>[_%])|(?P<other>.)",
        lambda m: m["literal"] or {"_": ".", "%": ".*", None: re.escape(m["other"] or "")}[m["wild"]],
        pattern,
        flags=re.DOTALL,
    )
    return re.fullmatch(spelt, schema, re.DOTALL) is not None
