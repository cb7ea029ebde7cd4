"""The ledger's tables.

Instants are ISO 8601 text in UTC: readable in any SQL shell, sortable, and the same on every database. The lease
alone counts milliseconds, by the database's own clock.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import LONGBLOB, LONGTEXT

VERSION: Final = 4
"""Version of the tables below; ``init`` writes it, and everything else compares it."""

metadata: Final = MetaData()

_TEXT: Final = Text().with_variant(LONGTEXT(), "mysql", "mariadb")
_BLOB: Final = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")

_OF_OUR_OWN: Final[dict[str, Any]] = {
    f"{server}_{option}": value
    for server in ("mysql", "mariadb")
    for option, value in (("engine", "InnoDB"), ("charset", "utf8mb4"))
}
"""Whatever the server's or the database's default: tables with transactions, and texts in any language."""

meta: Final = Table(
    "safedelete_meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", _TEXT, nullable=False),
    comment="safedelete: version of these tables, and the environment, databases and buckets they are bound to",
    **_OF_OUR_OWN,
)

run: Final = Table(
    "safedelete_run",
    metadata,
    Column("run", String(32), primary_key=True),
    Column("job", String(64), nullable=False),
    Column("kind", String(8), nullable=False),
    Column("state", String(16), nullable=False),
    Column("started_at", String(32), nullable=False),
    Column("finished_at", String(32)),
    Column("owner", String(255), nullable=False),
    Column("plan", _TEXT),
    Column("decision", _TEXT),
    Column("tally", _TEXT),
    Column("reason", _TEXT),
    Column("exit_code", Integer),
    Column("sealed_bytes", BigInteger, nullable=False, default=0),
    Column("teaches", Integer, nullable=False, default=1),
    Column("resumed_at", String(32)),
    Column("task", _TEXT),
    Index("safedelete_run_by_job", "job", "started_at"),
    comment="safedelete: one row a run, with its plan, decision and outcome sums",
    **_OF_OUR_OWN,
)

batch: Final = Table(
    "safedelete_batch",
    metadata,
    Column("run", String(32), primary_key=True),
    Column("target", Integer, primary_key=True, autoincrement=False),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    Column("item_count", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("data", _BLOB, nullable=False),
    Column("tally", _TEXT),
    Column("outcomes", _TEXT),
    Column("pending", _TEXT),
    comment="safedelete: sealed keys, a batch a row, and every outcome other than deleted",
    **_OF_OUR_OWN,
)

approval: Final = Table(
    "safedelete_approval",
    metadata,
    Column("run", String(32), primary_key=True),
    Column("at", String(32), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("accepts", _TEXT, nullable=False),
    Column("reason", _TEXT, nullable=False),
    Column("who", String(255), nullable=False),
    Column("expires_at", String(32), nullable=False),
    Column("teaches", Integer, nullable=False),
    comment="safedelete: one-time approvals of refused plans; grant writing to approvers only",
    **_OF_OUR_OWN,
)

notice: Final = Table(
    "safedelete_notice",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("subject", String(64), primary_key=True),
    Column("since", String(32), primary_key=True),
    Column("who", String(255), nullable=False),
    Column("reason", _TEXT, nullable=False),
    Column("ended_at", String(32)),
    Column("ended_by", String(255)),
    comment="safedelete: jobs that were declared or paused, runs that shall end; a run itself only reads it",
    **_OF_OUR_OWN,
)
