"""What the row tests do again and again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from safedelete import Rows, S3Keys, past
from safedelete.core.item import Key, SealedRow
from safedelete.core.plan import TargetPlan
from safedelete.sql import SqlRows
from tests.sql.conftest import AS_OF, Server, aged


def target(
    server: Server, uploads: sa.Table, role: str | None = None, *, owns: bool = True, **options: Any
) -> SqlRows:
    rows = Rows(
        uploads,
        past(uploads.c.expires_at),
        uploads.c.hold.is_(False),
        owns=S3Keys("acme-uploads", uploads.c.s3_key) if owns else None,
        **options,
    )
    return SqlRows(rows, server.open(role))


def fill(server: Server, uploads: sa.Table, count: int) -> None:
    server.create(uploads)
    server.insert(
        uploads,
        *({"id": i, "expires_at": aged(count - i + 1), "s3_key": f"k/{i}"} for i in range(1, count + 1)),
    )


def sealed(rows: SqlRows, batch: int = 1000) -> list[SealedRow]:
    return [row for page in rows.scan(AS_OF, batch=batch, portion=None) for row in page]


def ids(rows: Sequence[SealedRow]) -> list[int]:
    return [row.key[0] for row in rows]


def left(server: Server) -> list[int]:
    return [row[0] for row in server.rows("SELECT id FROM uploads ORDER BY id")]


def children(server: Server, action: str) -> None:
    server.sql(
        f"CREATE TABLE notes (id integer PRIMARY KEY, upload_id bigint REFERENCES uploads (id) {action})",
        "CREATE INDEX notes_upload ON notes (upload_id)",
        "INSERT INTO notes VALUES (1, 2), (2, 2), (3, 4)",
    )


def survey(rows: SqlRows, portion: int | None = None, since: datetime | None = None) -> TargetPlan:
    return rows.survey(AS_OF, portion=portion, since=since)


def keys(rows: SqlRows, batch: int = 100, portion: int | None = None) -> list[Key]:
    return [row.key for page in rows.scan(AS_OF, batch=batch, portion=portion) for row in page]
