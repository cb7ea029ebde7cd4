"""Planning counts exactly, pages without missing a row, says unknown where it cannot count, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
import structlog
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from safedelete import Rows, S3Keys, older_than, past
from safedelete.core.item import Key, ObjectRef
from safedelete.core.plan import AgeProfile, Unknown
from safedelete.errors import ConfigError, StoreError
from safedelete.sql import Database, SqlRows
from tests.sql.acts import keys, survey
from tests.sql.conftest import AS_OF, Server, aged


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def sent(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", sent)
    try:
        yield seen
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", sent)


def seed(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    server.insert(
        uploads,
        {
            "id": 1,
            "expires_at": aged(10),
            "hold": False,
            "s3_key": "a",
            "thumb_key": "ta",
            "etag": "e1",
            "size": 10,
        },
        {
            "id": 2,
            "expires_at": aged(0.5),
            "hold": False,
            "s3_key": "b",
            "thumb_key": None,
            "etag": None,
            "size": 20,
        },
        {
            "id": 3,
            "expires_at": aged(-0.5),
            "hold": False,
            "s3_key": "c",
            "thumb_key": None,
            "etag": "e3",
            "size": 40,
        },
        {
            "id": 4,
            "expires_at": aged(400),
            "hold": True,
            "s3_key": "d",
            "thumb_key": None,
            "etag": "e4",
            "size": 80,
        },
        {
            "id": 5,
            "expires_at": None,
            "hold": False,
            "s3_key": "e",
            "thumb_key": None,
            "etag": "e5",
            "size": 1,
        },
        {
            "id": 6,
            "expires_at": aged(100),
            "hold": False,
            "s3_key": None,
            "thumb_key": "tf",
            "etag": "e6",
            "size": 5,
        },
    )


def declared(uploads: sa.Table, **owns: Any) -> Rows:
    keys_ = (
        S3Keys("acme-uploads", uploads.c.s3_key, **owns)
        if owns
        else S3Keys("acme-uploads", uploads.c.s3_key, uploads.c.thumb_key)
    )
    return Rows(uploads, past(uploads.c.expires_at), uploads.c.hold.is_(False), owns=keys_)


def test_survey_counts_what_goes_and_what_stays(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    plan = survey(SqlRows(declared(uploads), server.open()), since=AS_OF - timedelta(days=5))
    assert (plan.eligible, plan.items, plan.total, plan.nulls, plan.ageless, plan.late) == (3, 3, 6, 1, 4, 2)
    assert (plan.objects, plan.bytes, plan.conditional) == (4, None, 0)
    assert plan.cutoff == AS_OF
    assert plan.period == timedelta(0)
    assert plan.ages == AgeProfile(days=((-10, 1), (-1, 1), (0, 1)), older=1)
    assert plan.first.startswith("id=1 ")
    assert plan.last.startswith("id=6 ")
    assert "expires_at <" in plan.statement
    assert "2026-03-01T12:00:00" in plan.parameters.values()
    assert plan.cascades == ()


def test_survey_adds_up_sizes_and_etags(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    owns = {"etag": uploads.c.etag, "size": uploads.c.size}
    plan = survey(SqlRows(declared(uploads, **owns), server.open()))
    assert (plan.objects, plan.bytes, plan.conditional) == (2, 30, 1)
    rows = [
        r
        for page in SqlRows(declared(uploads, **owns), server.open()).scan(AS_OF, batch=9, portion=None)
        for r in page
    ]
    assert rows[0].objects == (ObjectRef("acme-uploads", "a", '"e1"', None, 10),)
    assert rows[2].objects == ()


def test_missing_size_makes_the_bytes_unknown(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    server.sql("UPDATE uploads SET size = NULL WHERE id = 2")
    plan = survey(SqlRows(declared(uploads, size=uploads.c.size), server.open()))
    assert isinstance(plan.bytes, Unknown)


def test_shared_objects_are_counted_once(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    server.sql("UPDATE uploads SET s3_key = 'same' WHERE id IN (1, 2)")
    assert survey(SqlRows(declared(uploads, shared=True), server.open())).objects == 1
    assert survey(SqlRows(declared(uploads, shared=False), server.open())).objects == 2


def test_schema_says_whether_objects_are_shared(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    database = server.open()
    assert SqlRows(declared(uploads, size=uploads.c.size), database).shared
    server.sql("CREATE UNIQUE INDEX one_key ON uploads (s3_key)")
    assert not SqlRows(declared(uploads, size=uploads.c.size), database).shared


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "s3://acme-uploads/x",
        "HTTPS://host/x",
        "é" * 600,
        "../a\x01b",
        "a/../b\r",
        "a\x1f/.",
        "é\ufffe/./x",
    ],
)
def test_row_whose_key_names_no_object_is_left_out_and_counted(
    server: Server, uploads: sa.Table, bad: str
) -> None:
    seed(server, uploads)
    with server.admin.begin() as connection:
        connection.execute(uploads.update().where(uploads.c.id == 2).values(s3_key=bad))
    rows = SqlRows(declared(uploads), server.open())
    plan = survey(rows)
    assert (plan.eligible, plan.items) == (2, 2)
    assert plan.ageless == 3, "what can never go would make a lost age test look like a smaller share"
    assert plan.ages == AgeProfile(days=((-10, 1), (0, 1)), older=1), "and would be forecast every night"
    assert any(note.startswith("1 more row(s)") and "left out" in note for note in plan.notes)
    assert keys(rows) == [(1,), (6,)]
    assert rows.left_out == 0  # by the statement itself, so that a portion is filled with others


def test_a_row_that_can_never_be_sealed_is_no_rest_of_a_portion(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    with server.admin.begin() as connection:
        connection.execute(uploads.update().where(uploads.c.id == 2).values(s3_key=""))
    plan = survey(SqlRows(declared(uploads), server.open()), portion=2, since=AS_OF)
    assert (plan.items, plan.eligible, plan.late) == (2, 2, 2)


@pytest.mark.parametrize("odd", ["a\x01b", "a/..b/c", "..a/\t", "a/../b", "_./%", "…/é"])
def test_an_odd_key_that_can_be_deleted_is_taken(server: Server, uploads: sa.Table, odd: str) -> None:
    seed(server, uploads)
    with server.admin.begin() as connection:
        connection.execute(uploads.update().where(uploads.c.id == 2).values(s3_key=odd))
    rows = SqlRows(declared(uploads), server.open())
    assert (survey(rows).items, keys(rows)) == (3, [(1,), (2,), (6,)])


def test_rows_that_only_reading_finds_unusable_are_told_of(sqlite: Server, uploads: sa.Table) -> None:
    class Stored(sa.types.TypeDecorator[str]):
        impl = sa.String
        cache_ok = True

        def process_result_value(self, value: Any, dialect: sa.Dialect) -> Any:
            return "" if value == "b" else value

    seed(sqlite, uploads)
    decorated = sa.Table(
        "uploads",
        sa.MetaData(),
        *(
            sa.Column(c.name, Stored() if c.name == "s3_key" else c.type, primary_key=c.primary_key)
            for c in uploads.c
        ),
    )
    rows = SqlRows(declared(decorated), sqlite.open())
    with structlog.testing.capture_logs() as logs:
        assert keys(rows) == [(1,), (6,)]
    assert [(entry["log_level"], entry["rows"]) for entry in logs] == [("warning", 1)]


def test_a_portion_is_the_oldest_rows_in_key_order(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    # Ids run against time, with ties.
    server.insert(
        uploads, *({"id": i, "expires_at": aged(i // 2 + 1), "s3_key": f"k{i}"} for i in range(1, 41))
    )
    server.insert(uploads, {"id": 99, "expires_at": None, "s3_key": "none"})
    rows = SqlRows(declared(uploads), server.open())
    assert keys(rows, batch=4, portion=6) == [(i,) for i in (34, 36, 37, 38, 39, 40)]
    plan = survey(rows, portion=6)
    assert (plan.items, plan.eligible, plan.objects) == (6, 40, 6)
    assert plan.first.startswith("id=34")


@pytest.mark.parametrize(
    "written", ["%Y-%m-%d %H:%M:%S.%f+00:00", "%Y-%m-%dT%H:%M:%S+00:00", "%Y-%m-%d %H:%M:%S.%fZ"]
)
def test_a_portion_ends_at_what_sqlite_holds_however_it_was_written(
    sqlite: Server, uploads: sa.Table, written: str
) -> None:
    """Another program's spelling of an instant compares as the text it is."""
    sqlite.create(uploads)
    sqlite.insert(uploads, *({"id": i, "expires_at": aged(1), "s3_key": f"k{i}"} for i in range(1, 41)))
    with sqlite.admin.begin() as connection:
        for i in range(1, 41):
            at = (aged(50 - i // 2) + timedelta(microseconds=123456)).strftime(written)
            connection.execute(
                sa.text("UPDATE uploads SET expires_at = :at WHERE id = :id"), {"at": at, "id": i}
            )
    rows = SqlRows(declared(uploads), sqlite.open())
    assert keys(rows, batch=4, portion=6) == [(i,) for i in range(1, 7)]
    assert survey(rows, portion=6).items == 6


def test_three_hundred_rows_in_pages_while_a_writer_inserts(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    server.insert(
        uploads, *({"id": 2 * i, "expires_at": aged(1 + i % 7), "s3_key": f"k{i}"} for i in range(1, 301))
    )
    rows = SqlRows(declared(uploads), server.open())
    seen: list[Key] = []
    pages = 0
    for page in rows.scan(AS_OF, batch=100, portion=None):
        pages += 1
        seen += [row.key for row in page]
        server.insert(
            uploads,
            {"id": 2 * pages - 1, "expires_at": aged(3), "s3_key": "before"},
            {"id": 10_000 + pages, "expires_at": aged(-3), "s3_key": "young"},
        )
    assert seen == [(2 * i,) for i in range(1, 301)]
    assert pages == 3


def test_ids_not_in_time_order_are_all_found(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    server.insert(
        uploads,
        *({"id": i, "expires_at": aged((i * 7919) % 101 - 50), "s3_key": None} for i in range(1, 102)),
    )
    expected = [(i,) for i in range(1, 102) if (i * 7919) % 101 - 50 > 0]
    assert keys(SqlRows(declared(uploads), server.open()), batch=10) == expected


def test_planning_sends_no_write_and_needs_only_select(pg: Server, uploads: sa.Table) -> None:
    seed(pg, uploads)
    pg.sql(
        "CREATE TABLE notes (id int PRIMARY KEY, upload_id bigint REFERENCES uploads (id) ON DELETE CASCADE)",
        "CREATE INDEX ON notes (upload_id)",
    )
    role = pg.role("GRANT SELECT ON uploads, notes")
    rows = SqlRows(declared(uploads), pg.open(role))
    with statements(rows.database) as seen:
        plan = survey(rows, portion=2, since=AS_OF)
        assert len(keys(rows, portion=2)) == 2
        rows.present([(1,)])
    assert not any(
        isinstance(n, Unknown) for n in (plan.eligible, plan.total, plan.ageless, plan.cascades[0].rows)
    )
    assert seen
    assert {s.split()[0].upper() for s in seen} <= {"SELECT", "SHOW", "WITH"}


def test_planning_sends_no_write_to_sqlite(sqlite: Server, uploads: sa.Table) -> None:
    seed(sqlite, uploads)
    rows = SqlRows(declared(uploads), sqlite.open())
    with statements(rows.database) as seen:
        survey(rows, portion=2, since=AS_OF)
        assert len(keys(rows, portion=2)) == 2
    assert {s.split()[0].upper() for s in seen} <= {"SELECT", "PRAGMA", "WITH", "BEGIN"}
    assert not any(s.split()[-1] == "IMMEDIATE" for s in seen)


def test_a_reading_transaction_refuses_a_write(server: Server, uploads: sa.Table) -> None:
    seed(server, uploads)
    database = server.open()
    with database.reading() as connection, pytest.raises(sa.exc.DBAPIError, match=r"(?i)read.?only"):
        connection.execute(uploads.delete())


def test_a_count_that_fails_is_unknown_and_never_zero(pg: Server, uploads: sa.Table) -> None:
    seed(pg, uploads)
    role = pg.role("GRANT SELECT (id, expires_at, hold) ON uploads")
    plan = survey(SqlRows(declared(uploads), pg.open(role)))
    assert plan.total == 6
    for number in (plan.eligible, plan.items, plan.objects):
        assert isinstance(number, Unknown)
        assert "permission denied" in number.why


def test_row_level_security_makes_counts_unknown(pg: Server, uploads: sa.Table) -> None:
    seed(pg, uploads)
    role = pg.role("GRANT SELECT ON uploads")
    pg.sql("ALTER TABLE uploads ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON uploads USING (id = 1)")
    rows = SqlRows(declared(uploads), pg.open(role))
    plan = survey(rows)
    assert isinstance(plan.eligible, Unknown)
    assert "row-level security" in plan.eligible.why
    with pytest.raises(StoreError, match="row-level security"):
        keys(rows)


def test_table_or_column_that_is_not_there_is_named(server: Server, uploads: sa.Table) -> None:
    rows = SqlRows(declared(uploads), server.open())
    if server.kind == "sqlite":
        server.sql("CREATE TABLE other (id int)")
    with pytest.raises(ConfigError, match="no table uploads"):
        survey(rows)
    server.sql("CREATE TABLE uploads (id int PRIMARY KEY, expires_at timestamp, hold boolean)")
    with pytest.raises(ConfigError, match="no column s3_key, thumb_key"):
        survey(rows)


def test_view_in_the_tables_place_is_refused(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    server.sql(
        "ALTER TABLE uploads RENAME TO real_uploads", "CREATE VIEW uploads AS SELECT * FROM real_uploads"
    )
    with pytest.raises(ConfigError, match="is a view"):
        survey(SqlRows(declared(uploads), server.open()))


def test_age_profile_of_an_unindexed_large_table_is_unknown(
    server: Server, uploads: sa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed(server, uploads)
    monkeypatch.setattr("safedelete.sql.survey.SMALL_TABLE", 5)
    assert isinstance(survey(SqlRows(declared(uploads), server.open())).ages, AgeProfile)
    server.sql("DROP INDEX ix_uploads_expires_at" + (" ON uploads" if server.kind == "mariadb" else ""))
    assert isinstance(survey(SqlRows(declared(uploads), server.open())).ages, Unknown)


@pytest.mark.parametrize("change", ["2026-10-25", "2026-03-29"])
def test_age_profile_of_a_date_column_counts_each_date_once_whenever_the_clocks_change(
    server: Server, change: str
) -> None:
    visits = sa.Table(
        "visits",
        sa.MetaData(),
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("day", sa.Date(), index=True),
    )
    kept = date.fromisoformat(change) - timedelta(days=5)
    server.create(visits)
    server.insert(visits, *({"id": i, "day": kept + timedelta(days=i - 100)} for i in range(1, 200)))
    # Half an hour after midnight: so many times 24 hours later it may be the evening before.
    as_of = datetime.combine(kept + timedelta(days=1), time(0, 30), ZoneInfo("Europe/Berlin")).astimezone(UTC)
    rows = SqlRows(Rows(visits, older_than(visits.c.day, days=1, tz="Europe/Berlin")), server.open())
    plan = rows.survey(as_of, portion=None, since=None)
    assert plan.cutoff == datetime.combine(kept, time(), ZoneInfo("Europe/Berlin"))
    assert plan.period == timedelta(days=1)
    assert plan.items == 99
    assert isinstance(plan.ages, AgeProfile)
    assert plan.ages.days == tuple((d, 1) for d in range(-60, 60))
    assert plan.ages.older == 39


def test_ageless_counts_every_row_that_has_a_time_on_either_side_of_an_or(
    server: Server, uploads: sa.Table
) -> None:
    seed(server, uploads)
    either = Rows(uploads, sa.or_(past(uploads.c.expires_at), uploads.c.hold.is_(True)))
    plan = survey(SqlRows(either, server.open()))
    assert (plan.eligible, plan.ageless) == (4, 5)


def test_orm_model_with_a_predicate_over_another_table(server: Server) -> None:
    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "items"
        id: Mapped[int] = mapped_column(primary_key=True)
        at: Mapped[datetime] = mapped_column(sa.DateTime(timezone=True))
        key: Mapped[str | None] = mapped_column("object_key", sa.String(99))

    class Hold(Base):
        __tablename__ = "holds"
        id: Mapped[int] = mapped_column(primary_key=True)
        item_id: Mapped[int]

    Base.metadata.create_all(server.admin)
    with server.admin.begin() as connection:
        connection.execute(
            sa.insert(Item.__table__),
            [{"id": i, "at": AS_OF - timedelta(days=i), "object_key": f"o/{i}"} for i in range(1, 6)],
        )
        connection.execute(sa.insert(Hold), [{"id": 1, "item_id": 4}])
    rows = SqlRows(
        Rows(
            Item,
            older_than(Item.at, days=2),
            ~sa.exists().where(Hold.item_id == Item.id),
            owns=S3Keys("acme-items", Item.key),
        ),
        server.open(),
    )
    plan = survey(rows)
    assert (plan.eligible, plan.ageless, plan.objects) == (2, 4, 2)
    assert isinstance(plan.ages, Unknown | AgeProfile)
    sealed = next(iter(rows.scan(AS_OF, batch=10, portion=None)))
    assert [r.key for r in sealed] == [(3,), (5,)]
    batch = rows.begin(AS_OF)
    assert batch.delete(batch.hold(sealed).rows).touched == {"items": 2}
    batch.commit()
