"""The kit in a scratch database on PostgreSQL, for types, schemas and triggers that SQLite has not."""

from __future__ import annotations

import enum
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import (
    DDL,
    Column,
    DateTime,
    Engine,
    Enum,
    ForeignKey,
    Identity,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    func,
    inspect,
    or_,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, INET, JSONB, TSVECTOR, UUID
from sqlalchemy.pool import NullPool

from safedelete import Guard, Purge, Rows, S3Keys, older_than
from safedelete.errors import BlastRadiusError, ConfigError, ExitCode
from safedelete.testing import Lab, PurgeUnsafeError, assert_purge_is_safe
from safedelete.testing.memory import Killed

B = "acme-uploads"


class State(enum.Enum):
    NEW = "new"
    DONE = "done"


metadata = MetaData(schema="app")
people = Table("people", metadata, Column("id", Integer, Identity(always=True), primary_key=True))
files = Table(
    "files",
    metadata,
    Column("id", UUID(as_uuid=True), server_default=text("gen_random_uuid()"), primary_key=True),
    Column("owner", ForeignKey(people.c.id), nullable=False, index=True),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("state", Enum(State, name="file_state"), nullable=False),
    Column("about", JSONB, nullable=False),
    Column("tags", ARRAY(Text), nullable=False),
    Column("seen_from", INET, nullable=False),
    Column("words", TSVECTOR, nullable=False),
    Column("s3_key", Text, unique=True),
)


def purge(*predicates: Any) -> Purge:
    return Purge(
        "files",
        Rows(files, *predicates, owns=S3Keys(B, files.c.s3_key)),
        schedule="rate(1 day)",
        timeout=timedelta(minutes=5),
        guard=Guard(max_items=1000, max_fraction=1.0),
    )


OLD = older_than(files.c.created_at, days=30)
SAFE = purge(OLD, files.c.state == State.DONE, files.c.about.contains({}))


@pytest.fixture
def scratch(pg_database: str) -> str:
    engine = create_engine(pg_database, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA app"))
    return pg_database


def everything(url: str) -> set[str]:
    engine = create_engine(url, poolclass=NullPool)
    found = inspect(engine)
    types = {kind["name"] for kind in found.get_enums(schema="app")}  # type: ignore[attr-defined]
    return types | {*found.get_table_names(), *found.get_table_names(schema="app")}


def test_a_safe_purge_of_a_database_that_sqlite_could_not_be_is_called_safe_and_leaves_nothing_there(
    scratch: str,
) -> None:
    assert_purge_is_safe(SAFE, url=scratch, examples=1)
    assert everything(scratch) == set()
    # The next test is given the same one.
    with Lab(SAFE, url=scratch) as lab:
        due(lab, "a.jpg")
    assert everything(scratch) == set()


def test_a_purge_that_lost_its_cutoff_is_found_out_there_too(scratch: str) -> None:
    with pytest.raises(PurgeUnsafeError, match="'cutoff'") as caught:
        assert_purge_is_safe(purge(or_(OLD, files.c.state == State.DONE)), url=scratch)
    assert "State.DONE" in str(caught.value)
    assert everything(scratch) == set()


def test_what_only_a_trigger_does_is_found_out(scratch: str) -> None:
    rule = DDL(
        "CREATE FUNCTION app.too_much() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN DELETE FROM app.people WHERE id = OLD.owner AND NOT EXISTS (SELECT FROM app.files); RETURN NULL; END $$"
    )
    fires = DDL(
        "CREATE TRIGGER too_much AFTER DELETE ON app.files FOR EACH ROW EXECUTE FUNCTION app.too_much()"
    )
    drop = DDL("DROP FUNCTION IF EXISTS app.too_much()")
    event.listen(files, "after_create", rule)
    event.listen(files, "after_create", fires)
    event.listen(files, "after_drop", drop)
    try:
        with Lab(SAFE, url=scratch) as lab:
            for key in ("a.jpg", "b.jpg"):
                due(lab, key)
            with pytest.raises(BlastRadiusError, match=r"app\.files"):
                lab.run(SAFE)
            assert len(lab.rows(files)) == 2
    finally:
        event.remove(files, "after_create", rule)
        event.remove(files, "after_create", fires)
        event.remove(files, "after_drop", drop)


def due(lab: Lab, key: str) -> None:
    if not lab.rows(people):
        lab.add(people, id=1)
    lab.add(
        files,
        owner=1,
        created_at=lab.clock.now() - timedelta(days=31),
        state=State.DONE,
        about={"a": [1]},
        tags=["x"],
        seen_from="192.0.2.7",
        words=func.to_tsvector("a b"),
        s3_key=key,
    )
    lab.put(B, key)


def test_a_run_that_dies_there_lets_go_of_its_rows_and_is_finished_by_the_next(
    scratch: str, purge_lab: Callable[..., Lab]
) -> None:
    lab = purge_lab(SAFE, url=scratch)
    due(lab, "a.jpg")
    lab.kill_after_objects()
    with pytest.raises(Killed):
        lab.run(SAFE)
    (left,) = lab.rows(files)
    assert (left["s3_key"], lab.store.keys(B)) == ("a.jpg", set())
    lab.revive()
    report = lab.run(SAFE)
    assert (report.resumed, report.exit_code, lab.rows(files)) == (True, ExitCode.DONE, [])


def test_any_write_of_a_run_can_be_its_last(scratch: str, purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(SAFE, url=scratch)
    for moment in range(2, 100, 6):
        lab.empty()
        for key in ("a.jpg", "b.jpg"):
            due(lab, key)
        lab.kill_at(moment)
        try:
            lab.run(SAFE)
        except Killed:
            lab.revive()
            assert lab.run(SAFE).exit_code is ExitCode.DONE
        else:
            break
        assert (lab.rows(files), lab.store.keys(B)) == ([], set())
    assert moment > 10


def test_a_database_whose_schema_has_the_table_is_no_scratch_database(scratch: str) -> None:
    engine: Engine = create_engine(scratch, poolclass=NullPool)
    metadata.create_all(engine)
    with pytest.raises(ConfigError, match=r"'app\.\w+' already"), Lab(SAFE, url=scratch):
        pass
    assert "files" in everything(scratch)
