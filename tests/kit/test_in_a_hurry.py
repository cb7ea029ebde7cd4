"""The kit for whoever is in a hurry: models as applications have them are filled, and what cannot be is said with what to do."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from sqlalchemy import (
    JSON,
    URL,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    Numeric,
    String,
    Table,
    TypeDecorator,
    UniqueConstraint,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from safedelete import Purge, Rows, S3Keys, S3Orphans, S3Prefix, job, older_than, past
from safedelete.errors import ConfigError
from safedelete.testing import Lab, PurgeUnsafeError, assert_purge_is_safe, faults, rows_around
from safedelete.testing.listed import key_below
from safedelete.testing.scene import Scene, due, subject_of
from safedelete.testing.strategies import made_up

B, DAYS = "acme-uploads", timedelta(days=30)


def purge(*targets: Any) -> Purge:
    return Purge("under-test", *targets, schedule="rate(1 day)", timeout=timedelta(minutes=10))


def table(*more: Any, name: str = "files", created: Any = None) -> Table:
    """Return a table of its own with an age, and what a test adds."""
    at = (
        created
        if created is not None
        else Column("created_at", DateTime(timezone=True), nullable=False, index=True)
    )
    return Table(name, MetaData(), Column("id", Integer, primary_key=True), at, *more)


def old(files: Table, *predicates: Any, owns: Any = ()) -> Rows:
    return Rows(files, older_than(files.c.created_at, days=30), *predicates, owns=owns)


def scenes(of: Purge, examples: int = 3, **asked: Any) -> list[Scene]:
    return [scene for scene, _ in made_up(subject_of(of, (), asked.get("names"), None), {}, examples)]


# --- what stands in a row ---


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("v > 0", Integer()),
        ("v >= 10 AND v <= 20", Integer()),
        ("v % 7 = 3", Integer()),
        ("v > 0.5", Float()),
        ("v > 0", Numeric(10, 2)),
        ("v IN ('draft', 'done')", String(10)),
        ("length(v) = 3", String(3)),
        ("v LIKE '%@%'", String(30)),
        ("v = lower(v) AND v <> ''", String(30)),
        ("ended_at >= created_at", Integer()),
        ("(v = 1) = (ended_at IS NOT NULL)", Integer()),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_row_is_made_that_its_check_constraint_lets_in(
    condition: str, kind: Any, purge_lab: Callable[..., Lab]
) -> None:
    files = table(
        Column("v", kind, nullable=False),
        Column("ended_at", DateTime(timezone=True)),
        CheckConstraint(condition),
    )
    under_test = purge(old(files))
    lab = purge_lab(under_test)
    for scene in scenes(under_test, 1):
        lab.fill(scene)
        assert due(lab, under_test.targets[0])  # type: ignore[arg-type]


def test_a_check_that_is_written_beside_its_column_is_met_as_well(purge_lab: Callable[..., Lab]) -> None:
    files = table(Column("amount", Integer, CheckConstraint("amount > 0"), nullable=False))
    lab = purge_lab(under_test := purge(old(files)))
    (scene,) = scenes(under_test, 1)
    lab.fill(scene)
    assert all(row["amount"] > 0 for row in lab.rows(files))


def test_a_key_that_has_to_begin_somewhere_is_still_odd_and_tells_its_row_apart(
    purge_lab: Callable[..., Lab],
) -> None:
    files = table(
        Column("s3_key", String(200), nullable=False, unique=True), CheckConstraint("s3_key LIKE 'u/%'")
    )
    lab = purge_lab(under_test := purge(old(files, owns=S3Keys(B, files.c.s3_key))))
    for scene in scenes(under_test):
        lab.fill(scene)
        keys = {row["s3_key"] for row in lab.rows(files)}
        assert all(key.startswith("u/") for key in keys)
        assert len(keys) > 8


def test_a_condition_that_nobody_here_can_meet_is_told_with_its_column() -> None:
    files = table(Column("v", String(64), nullable=False), CheckConstraint("v = hex(v) AND length(v) = 41"))
    with pytest.raises(ConfigError, match="CHECK constraint failed") as caught:
        assert_purge_is_safe(purge(old(files)), examples=1)
    assert "columns={files.c.v: strategy}" in caught.value.hint


def test_a_column_that_the_database_works_out_is_left_to_it() -> None:
    files = table(
        Column("name", String(40), nullable=False),
        Column("s3_key", String(100), Computed("'k/' || id"), unique=True),
    )
    assert_purge_is_safe(purge(old(files, owns=S3Keys(B, files.c.s3_key))), examples=1)


def test_an_age_that_the_database_works_out_is_what_it_says() -> None:
    expires = Column("expires", Integer, Computed("born + 100"), index=True)
    files = table(Column("born", Integer, nullable=False), created=expires)
    assert_purge_is_safe(purge(Rows(files, past(files.c.expires, unit="s"))), examples=1)


@pytest.mark.parametrize("kind", [JSON(), JSONB()], ids=["json", "jsonb"])
def test_a_document_holds_what_the_purge_reads_of_it(kind: Any) -> None:
    files = table(Column("doc", kind, nullable=False))
    state = files.c.doc["state"].astext if isinstance(kind, JSONB) else files.c.doc["state"].as_string()
    under_test = purge(old(files, state == "done"))
    (scene,) = scenes(under_test, 1)
    states = {row.values["doc"]["state"] for row in scene.rows}
    assert "done" in states
    assert states - {"done"}


def test_objects_that_a_document_names_are_shared_and_looked_after() -> None:
    files = table(Column("doc", JSON, nullable=False))
    key = files.c.doc["file"]["key"].as_string()
    with pytest.raises(PurgeUnsafeError) as caught:
        assert_purge_is_safe(purge(old(files, owns=S3Keys(B, key, shared=False))))
    assert caught.value.promise == "shared"


class Key(TypeDecorator[str]):
    """Text, as far as the kit need know."""

    impl = String
    cache_ok = True


def test_a_key_of_a_type_of_ones_own_is_a_key() -> None:
    files = table(Column("s3_key", Key(100), nullable=False, index=True))
    assert_purge_is_safe(purge(old(files, owns=S3Keys(B, files.c.s3_key))), examples=1)


class Opaque:
    """A value that is equal to itself alone, as many are that an application's types give."""

    def __init__(self, of: Any) -> None:
        self.of = of


class Boxed(TypeDecorator[Any]):
    """Gives a new one each time."""

    impl = Float
    cache_ok = True

    def process_bind_param(self, value: Any, _dialect: Any) -> Any:
        return value

    def process_result_value(self, value: Any, _dialect: Any) -> Any:
        return Opaque(value)


def test_a_value_that_cannot_be_compared_is_not_called_changed() -> None:
    files = table(Column("box", Boxed(), nullable=False))
    assert_purge_is_safe(purge(old(files)), examples=1)


@pytest.mark.parametrize("primary", [True, False], ids=["primary key", "unique"])
def test_a_time_that_tells_rows_apart_may_be_their_age(primary: bool) -> None:
    at = Column("at", DateTime(timezone=True), primary_key=primary, nullable=False, unique=not primary)
    files = Table("files", MetaData(), at, Column("id", Integer, primary_key=True))
    under_test = purge(Rows(files, older_than(files.c.at, days=30)))
    assert_purge_is_safe(under_test, examples=1)
    for scene in () if primary else scenes(under_test):
        # A change that the table does not take would be none.
        times = [values["at"] for values in scene.changes.values()]
        assert len({*times, *(row.values["at"] for row in scene.rows)}) == len(times) + len(scene.rows)


def test_a_pattern_that_takes_one_name_a_folder_has_objects_of_every_age() -> None:
    target = S3Prefix(B, "logs/", older_than=DAYS, pattern="**/_SUCCESS")
    names = {key_below(target, name) for name in ("1-a.jpg", "2-x//y")}
    assert len(names) == 2
    assert all(target.pattern_regex.fullmatch(name[len("logs/") :]) for name in names)  # type: ignore[union-attr]
    assert_purge_is_safe(purge(target), examples=1)


def test_a_pattern_that_takes_one_name_has_an_object_that_is_due() -> None:
    assert_purge_is_safe(purge(S3Prefix(B, "logs/", older_than=DAYS, pattern="latest")), examples=1)


def test_a_sweep_finds_a_row_that_names_an_object_also_where_none_need_name_any() -> None:
    files = table(Column("s3_key", String(100), unique=True))
    under_test = purge(S3Orphans(B, "", referenced_by=[files.c.s3_key], older_than=DAYS, whole_bucket=True))
    for scene in scenes(under_test, 20):
        assert any(row.values["s3_key"] for row in scene.rows)


# --- what is unsafe ---


def test_an_object_that_two_tenants_share_is_seen() -> None:
    """That key and tenant are unique together says nothing about the key."""
    files = table(
        Column("tenant", Integer, nullable=False),
        Column("s3_key", String(100), nullable=False),
        UniqueConstraint("tenant", "s3_key"),
    )
    with pytest.raises(PurgeUnsafeError) as caught:
        assert_purge_is_safe(
            purge(old(files, owns=S3Keys(B, files.c.s3_key, shared=False))), accept=["index"]
        )
    assert caught.value.promise == "shared"


def test_an_object_below_two_prefixes_of_which_one_lies_in_the_other() -> None:
    files = table(Column("folder", String(100), nullable=False, unique=True))
    with pytest.raises(PurgeUnsafeError) as caught:
        assert_purge_is_safe(purge(old(files, owns=S3Keys(B, prefix=files.c.folder, shared=False))))
    assert caught.value.promise == "shared"


@pytest.mark.parametrize("first", ["files", "others"])
def test_a_key_that_a_row_of_another_table_names_lies_below_a_prefix_that_is_due(
    first: str, purge_lab: Callable[..., Lab]
) -> None:
    """Whichever of the two tables is filled first."""
    files = table(
        Column("folder", String(100), nullable=False, unique=True), name="files" if first == "files" else "z"
    )
    others = Table(
        "others",
        files.metadata,
        Column("id", Integer, primary_key=True),
        Column("s3_key", String(100), nullable=False, unique=True),
    )
    under_test = purge(old(files, owns=S3Keys(B, prefix=files.c.folder)))
    lab, found = purge_lab(under_test), 0
    for scene in scenes(under_test, names={B: [others.c.s3_key]}):
        lab.fill(scene)
        gone = due(lab, under_test.targets[0])  # type: ignore[arg-type]
        folders = [row.values["folder"] for row in scene.rows if row.name in gone]
        keys = [row.values["s3_key"] for row in scene.rows if row.table is others]
        found += any(key.startswith(f"{folder}/") for key in keys for folder in folders)
    assert found


def test_two_unique_values_that_an_expression_makes_one_key_of() -> None:
    files = table(Column("name", String(100), nullable=False, unique=True))
    owned = S3Keys(B, func.lower(files.c.name), shared=False)
    with pytest.raises(PurgeUnsafeError) as caught:
        assert_purge_is_safe(purge(old(files, owns=owned)))
    assert caught.value.promise == "shared"


def with_child(action: str) -> tuple[Table, Table]:
    files = table()
    notes = Table(
        "notes",
        files.metadata,
        Column("id", Integer, primary_key=True),
        Column("file_id", ForeignKey("files.id", ondelete=action), index=True),
    )
    return files, notes


def test_a_row_of_another_table_that_loses_what_it_refers_to_is_changed() -> None:
    files, _ = with_child("SET NULL")
    with pytest.raises(PurgeUnsafeError, match="file_id was 2, and is None") as caught:
        assert_purge_is_safe(purge(old(files)))
    assert caught.value.promise == "cascade"


def test_it_may_be_changed_where_the_test_says_so() -> None:
    files, _ = with_child("SET NULL")
    assert_purge_is_safe(purge(old(files)), also_changes=["notes"], examples=1)


FILES = table(
    Column("s3_key", String(200), nullable=False, unique=True), Column("state", String(20), nullable=False)
)
OWNED = purge(old(FILES, owns=S3Keys(B, FILES.c.s3_key)))


def cleanup(lab: Lab) -> None:
    """A job as good as any: each object, then its row."""
    limit = FILES.c.created_at < lab.clock.now() - DAYS
    with lab.engine.connect() as connection:
        found = connection.execute(select(FILES.c.id, FILES.c.s3_key).where(limit)).all()
    for number, key in found:
        lab.client.delete_object(Bucket=B, Key=key)
        with lab.engine.begin() as connection:
            connection.execute(delete(FILES).where(FILES.c.id == number))


def test_a_job_that_writes_into_rows_which_stay() -> None:
    def marks(lab: Lab) -> None:
        cleanup(lab)
        with lab.engine.begin() as connection:
            connection.execute(update(FILES).values(state="looked at"))

    with pytest.raises(PurgeUnsafeError, match="stayed and was changed: its state") as caught:
        assert_purge_is_safe(OWNED, through=marks)
    assert caught.value.promise == "cascade"


def test_a_job_that_empties_objects_which_stay() -> None:
    def empties(lab: Lab) -> None:
        cleanup(lab)
        for found in lab.client.list_objects_v2(Bucket=B).get("Contents", []):
            lab.client.put_object(Bucket=B, Key=found["Key"], Body=b"")

    with pytest.raises(PurgeUnsafeError, match="written anew") as caught:
        assert_purge_is_safe(OWNED, through=empties)
    assert caught.value.promise == "planned"


def test_a_job_that_takes_an_object_which_no_row_names() -> None:
    def tidies(lab: Lab) -> None:
        named = {row["s3_key"] for row in lab.rows(FILES)}
        cleanup(lab)
        for found in lab.client.list_objects_v2(Bucket=B).get("Contents", []):
            if found["Key"] not in named:
                lab.client.delete_object(Bucket=B, Key=found["Key"])

    with pytest.raises(PurgeUnsafeError, match="no target of the purge matches it") as caught:
        assert_purge_is_safe(OWNED, through=tidies)
    assert caught.value.promise == "planned"


def test_a_job_that_may_mark_what_is_due_before_it_goes() -> None:
    def marks(lab: Lab) -> None:
        limit = FILES.c.created_at < lab.clock.now() - DAYS
        with lab.engine.begin() as connection:
            connection.execute(update(FILES).where(limit).values(state="going"))
        cleanup(lab)

    assert_purge_is_safe(OWNED, through=marks, examples=1)


def test_what_a_job_ended_with_is_said_beside_what_it_left() -> None:
    def breaks(lab: Lab) -> None:
        if due(lab, OWNED.targets[0]):  # type: ignore[arg-type]
            raise ValueError("no bucket of that name")

    with pytest.raises(PurgeUnsafeError, match="is due and still there; it ended with ValueError: no bucket"):
        assert_purge_is_safe(OWNED, through=breaks)


def test_a_purge_whose_rows_named_no_object_is_not_called_safe() -> None:
    files = table(Column("s3_key", String(200), index=True))
    under_test = purge(old(files, owns=S3Keys(B, files.c.s3_key)))
    with pytest.raises(
        ConfigError, match=r"no made-up row of files that is due names an object by files\.s3_key"
    ):
        assert_purge_is_safe(under_test, columns={files.c.s3_key: st.none()}, examples=1)


# --- what is asked of the kit ---


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"columns": {"state": st.just("a")}}, "columns=: 'state' is no column"),
        ({"columns": {FILES.c.state: ["a"]}}, "no Hypothesis strategy"),
        ({"columns": {table(name="others").c.id: st.just(1)}}, "no row of others is made up"),
        ({"columns": {FILES.c.created_at: st.none()}}, "tells how old a row is"),
        ({"names": {B: FILES.c.s3_key}}, "names= takes lists"),
        ({"names": {B: ["s3_key"]}}, "'s3_key' is no column"),
        ({"also_deletes": ["note"]}, "also_deletes='note' is no table"),
        ({"also_deletes": "files"}, "also_deletes='files' is no list"),
        ({"also_changes": ["note"]}, "also_changes='note' is no table"),
        ({"accept": "index"}, "accept='index' is no list"),
        ({"examples": 0}, "examples=0"),
        ({"beside": OWNED}, "beside= takes a list"),
        ({"url": 5}, "url= takes a database's URL"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_word_that_means_nothing_is_told_and_what_to_say_instead(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        assert_purge_is_safe(OWNED, **asked)
    assert caught.value.hint


def test_what_is_no_purge_is_told() -> None:
    @job("reminders", schedule="rate(1 day)", timeout=timedelta(minutes=1))
    def reminders(run: Any) -> None: ...

    for given in (reminders, [OWNED], OWNED.targets[0]):
        with pytest.raises(ConfigError, match="holds a Purge to its promises"):
            assert_purge_is_safe(given)  # type: ignore[arg-type]


def test_a_fault_that_does_not_exist_is_told() -> None:
    with pytest.raises(ConfigError, match="no fault 'slow'"):
        faults("slow")


def test_what_to_do_next_is_in_the_traceback() -> None:
    """A test, a host and a log show nothing else."""
    with pytest.raises(ConfigError) as caught:
        assert_purge_is_safe(OWNED, accept=["nothing"])
    assert f"Hint: {caught.value.hint}" in "".join(traceback.format_exception(caught.value))


# --- a lab ---


class Base(DeclarativeBase):
    """Models as an application has them."""


class Upload(Base):
    """One of whose columns has another name in the database."""

    __tablename__ = "uploads"

    id: Mapped[int] = mapped_column(primary_key=True)
    written: Mapped[datetime] = mapped_column("created_at", DateTime(timezone=True), index=True)
    key: Mapped[str] = mapped_column("s3_key", String(100), unique=True)


class Report(Base):
    """One that SQLite cannot have, and that nothing here deletes."""

    __tablename__ = "reports"

    id: Mapped[int] = mapped_column(primary_key=True)
    pages: Mapped[list[str]] = mapped_column(ARRAY(String))


UPLOADS = purge(Rows(Upload, older_than(Upload.written, days=30), owns=S3Keys(B, Upload.key)))


def test_a_model_s_keys_are_made_up_as_a_table_s_are() -> None:
    """In an expression of a model's attributes a column is a copy of the table's own."""
    found = scenes(UPLOADS, 6)
    rows = [row.values for row in found[0].rows]
    assert rows[2]["s3_key"] == f"{rows[0]['s3_key']}2"
    assert any("s3_key" in values for scene in found for values in scene.changes.values())


def test_a_row_may_be_added_as_a_model_or_by_its_attributes(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(UPLOADS)
    lab.add(Upload(id=1, written=lab.clock.now(), key="a"))
    lab.add(Upload, id=2, written=lab.clock.now(), key="b")
    lab.add(Upload, id=3, created_at=lab.clock.now(), s3_key="c")
    assert [row["s3_key"] for row in lab.rows(Upload)] == ["a", "b", "c"]


def test_a_column_that_does_not_exist_is_told(purge_lab: Callable[..., Lab]) -> None:
    with pytest.raises(ConfigError, match="uploads has no column 's3key'") as caught:
        purge_lab(UPLOADS).add(Upload, id=1, s3key="a")
    assert "id, created_at, s3_key" in caught.value.hint


def test_a_table_that_sqlite_cannot_have_is_missed_only_where_it_is_needed(
    purge_lab: Callable[..., Lab],
) -> None:
    lab = purge_lab(UPLOADS)
    lab.run(UPLOADS)
    with pytest.raises(ConfigError, match="cannot have reports") as caught:
        lab.add(Report(id=1, pages=[]))
    assert "url=" in caught.value.hint
    files = table(Column("pages", ARRAY(String), nullable=False))
    with pytest.raises(ConfigError, match="cannot have files"):
        assert_purge_is_safe(purge(old(files)))


def test_a_scene_that_was_made_up_can_be_put_into_a_lab(purge_lab: Callable[..., Lab]) -> None:
    lab = purge_lab(UPLOADS)
    (scene,) = scenes(UPLOADS, 1)
    lab.fill(scene)
    assert lab.clock.now() == scene.now
    assert len(lab.rows(Upload)) == len(scene.rows)
    assert lab.store.keys(B) == {row["s3_key"] for row in lab.rows(Upload)} | {o.key for o in scene.objects}
    assert isinstance(rows_around(UPLOADS), st.SearchStrategy)


def test_a_date_without_a_zone_is_no_instant() -> None:
    with pytest.raises(ConfigError, match="no time zone"):
        Lab(UPLOADS, now=datetime(2026, 1, 1))


def test_an_access_point_is_told_not_to_be_there(purge_lab: Callable[..., Lab]) -> None:
    point = "arn:aws:s3:eu-central-1:123456789012:accesspoint/tmp"
    with pytest.raises(ConfigError, match="no access points"):
        purge_lab(purge(S3Prefix(point, "tmp/", older_than=DAYS)))


def test_a_base_is_as_good_as_its_metadata_and_a_url_as_its_text() -> None:
    url = URL.create("postgresql+psycopg", "me", "secret", "127.0.0.1", 1, "scratch")
    assert "secret" in str(Lab(UPLOADS, metadata=Base, url=url)._url)  # type: ignore[arg-type]
