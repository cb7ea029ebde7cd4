"""The kit calls a safe purge safe; of one that is unsafe it says which promise breaks, and shows the smallest data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    func,
    insert,
    or_,
    select,
    text,
    update,
)

from examples.retention import logins, scratch
from safedelete import Guard, Purge, Rows, S3Keys, S3Orphans, S3Prefix, older_than
from safedelete.core.item import SealedRow
from safedelete.declare.time import Cutoff
from safedelete.errors import ConfigError
from safedelete.phases.parts import RowPart
from safedelete.ports import Deletion, Held, RowTransaction
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.testing import (
    Lab,
    PurgeUnsafeError,
    Scene,
    assert_purge_is_safe,
    faults,
    rows_around,
)
from safedelete.testing.promises import Night
from safedelete.testing.scene import Row, Subject, due, fill, look
from safedelete.testing.values import has_index, instants

metadata = MetaData()

files = Table(
    "files",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("state", String(20), nullable=False),
    Column("s3_key", String(300), nullable=False, index=True),
)
avatars = Table(
    "avatars",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("picture", String(300), nullable=False),
)

accounts = Table(
    "accounts",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("closed_at", DateTime(timezone=True), index=True),
)
photos = Table(
    "photos",
    accounts.metadata,
    Column("id", Integer, primary_key=True),
    Column("account_id", ForeignKey(accounts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("s3_key", String(300), nullable=False, unique=True),
)

OLD = older_than(files.c.created_at, days=30)


def purge(*targets: Any) -> Purge:
    return Purge("under-test", *targets, schedule="rate(1 day)", timeout=timedelta(minutes=10))


def broken(tested: Purge, **options: Any) -> PurgeUnsafeError:
    with pytest.raises(PurgeUnsafeError) as caught:
        assert_purge_is_safe(tested, examples=1, **options)
    return caught.value


def tables(error: PurgeUnsafeError) -> list[str]:
    assert error.scene is not None
    return [row.table.name for row in error.scene.rows]


# --- safe ones ---


def test_a_purge_of_many_tables_zones_shared_objects_and_rows_that_others_hold_is_safe() -> None:
    own = MetaData()
    owners = Table("owners", own, Column("name", String(20), primary_key=True))
    papers = Table(
        "papers",
        own,
        Column("id", Integer, primary_key=True),
        Column("owner", ForeignKey(owners.c.name), nullable=False),
        Column("stamped", DateTime(), index=True),
        Column("s3_key", String(300), index=True),
    )
    Table(
        "notes",
        own,
        Column("id", Integer, primary_key=True),
        Column("paper", ForeignKey(papers.c.id, ondelete="SET NULL"), index=True),
    )
    # Held for good: no run can finish these, and the last one ends with exit code 4.
    Table(
        "holders",
        own,
        Column("id", Integer, primary_key=True),
        Column("paper", ForeignKey(papers.c.id), nullable=False, index=True),
    )
    age = older_than(papers.c.stamped, days=30, tz="Europe/Berlin")
    assert_purge_is_safe(
        purge(Rows(papers, age, papers.c.owner != "kept", owns=S3Keys("acme-papers", papers.c.s3_key))),
        examples=1,
    )


def test_a_sweep_of_orphans_is_safe() -> None:
    sweep = S3Orphans(
        "acme-files",
        "f/",
        referenced_by=[files.c.s3_key, avatars.c.picture],
        older_than=timedelta(days=7),
        outside_ok=[],
    )
    assert_purge_is_safe(purge(sweep), examples=1)


# --- unsafe ones ---


def test_a_purge_that_forgets_its_cutoff() -> None:
    found = broken(purge(Rows(files, files.c.state == "done", anytime=True)))
    assert found.promise == "cutoff"
    assert tables(found) == ["files"]
    assert "state='done'" in str(found)
    assert "created_at" in found.what


def test_a_cutoff_that_holds_for_some_rows_only() -> None:
    found = broken(purge(Rows(files, or_(OLD, files.c.state == "done"))))
    assert found.promise == "cutoff"
    assert tables(found) == ["files"]
    assert "state='done'" in str(found)


def test_objects_that_are_shared_though_the_purge_says_they_are_not() -> None:
    found = broken(purge(Rows(files, OLD, owns=S3Keys("acme-files", files.c.s3_key, shared=False))))
    assert found.promise == "shared"
    assert tables(found) == ["files", "files"], "one that is due and one that is not"
    assert found.scene is not None
    assert len({row.values["s3_key"] for row in found.scene.rows}) == 1
    assert not found.scene.denied
    assert not found.scene.changes


def test_objects_that_rows_of_a_table_name_which_the_purge_does_not_know() -> None:
    found = broken(
        purge(Rows(files, OLD, owns=S3Keys("acme-files", files.c.s3_key))),
        names={"acme-files": [avatars.c.picture]},
    )
    assert found.promise == "shared"
    assert sorted(tables(found)) == ["avatars", "files"]


def test_a_cascade_into_rows_that_own_objects() -> None:
    tested = purge(Rows(accounts, older_than(accounts.c.closed_at, days=30)))
    found = broken(tested, names={"acme-photos": [photos.c.s3_key]})
    assert found.promise == "cascade"
    assert tables(found) == ["accounts", "photos"]
    allowed = broken(tested, names={"acme-photos": [photos.c.s3_key]}, also_deletes=["photos"])
    assert allowed.promise == "objects-first"
    assert tables(allowed) == ["accounts", "photos"]


def test_a_time_column_without_an_index() -> None:
    bare = Table(
        "bare",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Index("ix_second", "id", "created_at"),
    )
    tested = purge(Rows(bare, older_than(bare.c.created_at, days=30)))
    found = broken(tested)
    assert (found.promise, found.scene) == ("index", None)
    assert 'Index("ix_bare_created_at", bare.created_at)' in str(found)


class RowsFirst:
    """A target that means well: it commits what it deletes at once, to hold no lock while the store is asked."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def begin(self, as_of: datetime) -> RowTransaction:
        hasty: Any = Hasty(self._target, as_of)
        return hasty  # type: ignore[no-any-return]


class Hasty:
    def __init__(self, target: Any, as_of: datetime) -> None:
        self._begin = lambda: target.begin(as_of)
        self._inner = self._begin()
        self._name = target.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def hold(self, rows: Sequence[SealedRow]) -> Held:
        held: Held = self._inner.hold(rows)
        self._inner.delete(held.rows)
        self._inner.commit()
        self._inner = self._begin()
        return held

    def delete(self, rows: Sequence[SealedRow]) -> Deletion:
        return Deletion(rows=rows, kept={}, touched={self._name: len(rows)})

    def undo(self) -> None:
        pass


papers = Table(
    "papers",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("s3_key", String(300), nullable=False, unique=True),
)
OWNING = purge(
    Rows(papers, older_than(papers.c.created_at, days=30), owns=S3Keys("acme-papers", papers.c.s3_key))
)


def hastily(lab: Lab) -> None:
    with lab.context(OWNING) as ctx:
        parts = [
            replace(part, target=RowsFirst(part.target)) for part in ctx.parts if isinstance(part, RowPart)
        ]
        mine = replace(ctx, parts=parts)
        saved = runner.save(mine)
        assert saved.run is not None
        if saved.exit_code:
            review.approve(ctx.ledger, ctx.clock, saved.run, reason="test", who="test")
        runner.execute_sealed(mine, saved.run)


def test_a_target_of_ones_own_that_deletes_rows_first() -> None:
    found = broken(OWNING, through=hastily)
    assert found.promise == "denied"
    assert tables(found) == ["papers"]
    assert found.scene is not None
    assert len(found.scene.denied) == 1


def test_a_job_of_ones_own_that_deletes_rows_first_and_dies() -> None:
    def job(lab: Lab) -> None:
        old = papers.c.created_at < lab.clock.now() - timedelta(days=30)
        with lab.engine.begin() as connection:
            found = connection.execute(select(papers).where(old)).mappings().all()
            connection.execute(delete(papers).where(old))
        for row in found:
            try:
                lab.client.delete_object(Bucket="acme-papers", Key=row["s3_key"])
            except lab.client.exceptions.ClientError:
                # As long as it lives nothing is amiss: a row whose object is refused is put back.
                with lab.engine.begin() as connection:
                    connection.execute(insert(papers).values(dict(row)))

    found = broken(OWNING, through=job)
    assert found.promise == "objects-first"
    assert "\nKilled " in str(found)
    assert set(tables(found)) == {"papers"}
    assert len(tables(found)) <= 2, "the first object goes, and the second is left behind"


def test_a_promise_that_does_not_exist_cannot_be_accepted() -> None:
    with pytest.raises(ConfigError, match="is no promise"):
        assert_purge_is_safe(logins, accept=["cut-off"])


def by_hand(lab: Lab, *also: Any, table: Table = files) -> None:
    """What the purge of a table by its age would do, and then something else."""
    with lab.engine.begin() as connection:
        connection.execute(delete(table).where(table.c.created_at < lab.clock.now() - timedelta(days=30)))
        for statement in also:
            connection.execute(statement)


def test_a_job_that_does_nothing_never_finishes() -> None:
    found = broken(purge(Rows(files, OLD)), through=lambda lab: None)
    assert found.promise == "converges"
    assert tables(found) == ["files"]


def test_a_job_that_takes_old_rows_which_the_purge_does_not_match() -> None:
    found = broken(purge(Rows(files, OLD, files.c.state == "done")), through=by_hand)
    assert found.promise == "planned"
    assert tables(found) == ["files"]
    assert "state='done'" not in str(found)


def test_a_job_that_is_never_through_with_it() -> None:
    def job(lab: Lab) -> None:
        by_hand(lab, update(files).values(state=files.c.state + "!"))

    found = broken(purge(Rows(files, OLD)), through=job, also_changes=["files"])
    assert found.promise == "idempotent"
    assert tables(found) == ["files"]


def test_a_purge_that_its_own_guard_never_lets_run() -> None:
    refused = Purge(
        "under-test",
        Rows(files, OLD),
        schedule="rate(1 day)",
        timeout=timedelta(minutes=10),
        guard=Guard(min_age=timedelta(days=60)),
    )
    found = broken(refused)
    assert found.promise == "runs"
    assert "SD116" in found.what
    assert tables(found) == [], "no data is needed for that"


def test_a_changed_row_that_goes_is_told() -> None:
    tested = purge(Rows(files, OLD))
    now = datetime(2026, 3, 1, tzinfo=UTC)
    row = Row(files, {"id": 1, "created_at": now - timedelta(days=31), "state": "", "s3_key": "a"})
    scene = Scene(now, (row,))
    with Lab(tested) as lab:
        subject = Subject(tested, (), {}, lab.metadata)
        fill(lab, subject, scene)
        before, owed = look(lab, subject), due(lab, subject.rows[0])
        assert owed == {row.name}
        lab.tell(delete(files))
        after = look(lab, subject)
        assert list(Night(subject, scene, before, after, owed).broken()) == []
        (told,) = Night(subject, scene, before, after, owed, altered=owed).broken()
        assert told.promise == "changed"


def test_what_is_made_up_has_every_tie_and_takes_the_users_word_for_a_column() -> None:
    seen: list[Scene] = []

    @settings(max_examples=3, phases=[Phase.generate], database=None, deadline=None, derandomize=True)
    @given(
        rows_around(
            purge(Rows(files, OLD, owns=S3Keys("acme-files", files.c.s3_key))),
            columns={files.c.state: st.just("users")},
        )
    )
    def each(scene: Scene) -> None:
        seen.append(scene)

    each()
    for scene in seen:
        cutoff = scene.now - timedelta(days=30)
        times = {row.values["created_at"] for row in scene.rows}
        tick = timedelta(microseconds=1)
        assert {cutoff, cutoff - tick, cutoff + tick, cutoff - timedelta(hours=1)} <= times
        assert {row.values["state"] for row in scene.rows} == {"users"}
        assert scene.denied
        assert scene.changes
        assert not scene.denied & set(scene.changes), "a changed row would be kept without being denied"


def test_an_hour_that_is_repeated_is_among_the_instants() -> None:
    berlin = Cutoff("stamped", timedelta(days=30), "naive", "Europe/Berlin")
    local = {
        berlin.instant(now).astimezone(ZoneInfo("Europe/Berlin")).replace(tzinfo=None).isoformat()
        for now in instants([berlin])
    }
    assert {"2026-10-25T02:30:00", "2026-03-29T01:30:00", "2026-03-29T03:30:00"} <= local


def test_faults_come_by_name() -> None:
    schedules: list[str] = []

    @settings(max_examples=20, phases=[Phase.generate], database=None, deadline=None, derandomize=True)
    @given(faults("503 SlowDown", "reset"))
    def each(schedule: list[Any]) -> None:
        schedules.append(repr(schedule))

    each()
    assert any("503 SlowDown" in schedule for schedule in schedules)
    assert any("None" in schedule for schedule in schedules)


# --- what shows nothing is not called safe ---


def test_a_purge_that_had_nothing_to_delete_is_not_called_safe() -> None:
    long = func.length(files.c.state) == 12
    with pytest.raises(ConfigError, match=r"no made-up row matches files.* nothing was shown"):
        assert_purge_is_safe(purge(Rows(files, OLD, long)), examples=1, through=lambda lab: None)
    with pytest.raises(PurgeUnsafeError, match="'converges'"):
        assert_purge_is_safe(
            purge(Rows(files, OLD, long)),
            examples=1,
            through=lambda lab: None,
            columns={files.c.state: st.sampled_from(["x" * 12, "x"])},
        )


def test_a_job_whose_objects_stay_never_finishes() -> None:
    found = broken(scratch, through=lambda lab: None)
    assert found.promise == "converges"
    assert "s3://acme-scratch/" in found.what
    assert found.scene is not None
    assert len(found.scene.objects) == 1


def test_a_job_that_ends_badly_on_a_good_night_has_not_finished() -> None:
    def job(lab: Lab) -> None:
        by_hand(lab)
        raise OSError("no space left")

    found = broken(purge(Rows(files, OLD)), through=job)
    assert found.promise == "converges"
    assert "OSError: no space left" in found.what


def test_a_job_that_cannot_be_killed_is_not_called_crash_safe() -> None:
    def job(lab: Lab) -> None:
        engine = create_engine(lab.url)
        with engine.begin() as connection:
            connection.execute(delete(files).where(files.c.created_at < lab.clock.now() - timedelta(days=30)))
        engine.dispose()

    with pytest.raises(ConfigError, match="could not be killed"):
        assert_purge_is_safe(purge(Rows(files, OLD)), through=job, examples=1)


def owned(table: Table, *columns: Any, **more: Any) -> Purge:
    age = older_than(table.c.created_at, days=30)
    return purge(Rows(table, age, owns=S3Keys("acme-papers", *columns, **more)))


def keeping_what_is_refused(lab: Lab, keys: Any) -> None:
    """Delete the objects of each old paper and then the paper, but where the store refuses one."""
    old = papers.c.created_at < lab.clock.now() - timedelta(days=30)
    with lab.engine.connect() as connection:
        found = connection.execute(select(papers.c.id, papers.c.s3_key).where(old)).all()
    for number, key in found:
        try:
            for each in keys(lab, key):
                lab.client.delete_object(Bucket="acme-papers", Key=each)
        except lab.client.exceptions.ClientError:
            continue
        with lab.engine.begin() as connection:
            connection.execute(delete(papers).where(papers.c.id == number))


@pytest.mark.parametrize("whole", [False, True], ids=["key", "prefix"])
def test_a_job_that_takes_whatever_begins_with_a_key(whole: bool) -> None:
    tested = owned(papers, prefix=papers.c.s3_key) if whole else owned(papers, papers.c.s3_key)

    def begins(lab: Lab, key: str) -> list[str]:
        listed = lab.client.list_objects_v2(Bucket="acme-papers", Prefix=key)
        return [item["Key"] for item in listed.get("Contents", ())]

    def exact(lab: Lab, key: str) -> list[str]:
        others = [row["s3_key"] for row in lab.rows(papers) if row["s3_key"] != key]
        mine = [found for found in begins(lab, f"{key}/") if whole]
        return [found for found in mine if not any(found.startswith(f"{o}/") for o in others)] or [key]

    assert_purge_is_safe(tested, examples=1, through=lambda lab: keeping_what_is_refused(lab, exact))
    found = broken(tested, through=lambda lab: keeping_what_is_refused(lab, begins))
    assert found.promise == "shared"
    assert tables(found) == ["papers", "papers"]


def test_a_job_that_minds_only_whether_the_store_refused_everything() -> None:
    two = Table(
        "two",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("created_at", DateTime(timezone=True), nullable=False, index=True),
        Column("s3_key", String(300), nullable=False, unique=True),
        Column("thumb_key", String(300), nullable=False, unique=True),
    )

    def job(lab: Lab) -> None:
        old = two.c.created_at < lab.clock.now() - timedelta(days=30)
        with lab.engine.connect() as connection:
            found = connection.execute(select(two.c.id, two.c.s3_key, two.c.thumb_key).where(old)).all()
        for number, *keys in found:
            done = 0
            for key in keys:
                with suppress(lab.client.exceptions.ClientError):
                    lab.client.delete_object(Bucket="acme-papers", Key=key)
                    done += 1
            if done:
                with lab.engine.begin() as connection:
                    connection.execute(delete(two).where(two.c.id == number))

    tested = owned(two, two.c.s3_key, two.c.thumb_key)
    assert_purge_is_safe(tested, examples=1)
    found = broken(tested, through=job)
    assert found.promise == "denied"
    assert tables(found) == ["two"]


def test_a_cascade_to_rows_of_the_same_table_that_may_be_younger() -> None:
    tree = Table(
        "tree",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("above", ForeignKey("tree.id", ondelete="CASCADE"), index=True),
        Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    )
    found = broken(purge(Rows(tree, older_than(tree.c.created_at, days=30))))
    assert found.promise == "runs"
    assert "takes rows of tree that its own predicate may keep" in found.what


def test_a_table_whose_columns_have_keys_beside_their_names_is_filled_and_read() -> None:
    odd = Table(
        "odd",
        MetaData(),
        Column("ID", Integer, primary_key=True, key="id"),
        Column("created at", DateTime(timezone=True), nullable=False, index=True, key="created_at"),
        Column("s3 key", String(300), unique=True, key="s3_key"),
    )
    assert_purge_is_safe(owned(odd, odd.c.s3_key), examples=1)
    found = broken(purge(Rows(odd, or_(older_than(odd.c.created_at, days=30), odd.c.id > 2))))
    assert found.promise == "cutoff"


@pytest.mark.parametrize(
    ("made", "serves"),
    [
        (lambda table: Index("ix", table.c.created_at), True),
        (lambda table: Index("ix", table.c.created_at.desc().nulls_last()), True),
        (lambda table: Index("ix", table.c.created_at, postgresql_using="brin"), True),
        (lambda table: Index("ix", table.c.created_at, postgresql_using="hash"), False),
        (lambda table: Index("ix", func.date(table.c.created_at)), False),
        (lambda table: Index("ix", text("id"), table.c.created_at), False),
    ],
    ids=["plain", "descending", "block range", "hash", "of an expression", "behind another"],
)
def test_an_index_counts_where_it_begins_with_the_time_itself_and_has_an_order(
    made: Callable[[Table], Index], serves: bool
) -> None:
    bare = Table(
        "bare",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("created_at", DateTime(timezone=True), nullable=False),
    )
    made(bare)
    assert has_index(bare.c.created_at) is serves


def test_a_prefix_that_lists_what_rows_name_takes_it_from_them() -> None:
    found = broken(
        purge(S3Prefix("acme-files", "tmp/", older_than=timedelta(days=1))),
        names={"acme-files": [avatars.c.picture]},
    )
    assert found.promise == "shared"
    assert "s3://acme-files/'tmp/" in found.what


@pytest.mark.parametrize("forgotten", ["pattern", "least size"])
def test_a_job_that_forgets_a_condition_of_its_prefix(forgotten: str) -> None:
    logs = purge(S3Prefix("acme-logs", "app/", older_than=timedelta(days=7), pattern="*.gz", min_size=100))

    def job(lab: Lab, forgotten: str = "") -> None:
        for (bucket, key), kept in lab.store.contents().items():
            named = forgotten == "pattern" or (key.endswith(".gz") and "/" not in key[4:])
            large = forgotten == "least size" or kept.size >= 100
            old = kept.modified < lab.clock.now() - timedelta(days=7)
            if key.startswith("app/") and old and named and large:
                with suppress(lab.client.exceptions.ClientError):
                    lab.client.delete_object(Bucket=bucket, Key=key)

    assert_purge_is_safe(logs, examples=1, through=job)
    found = broken(logs, through=lambda lab: job(lab, forgotten))
    assert found.promise == "planned"
