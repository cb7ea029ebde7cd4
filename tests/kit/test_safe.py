"""The kit calls a safe purge safe; of one that is unsafe it says which promise breaks, and shows the smallest data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    delete,
    or_,
    select,
)

from examples.retention import logins
from safedelete import Purge, Rows, S3Keys, S3Orphans, older_than
from safedelete.core.item import SealedRow
from safedelete.errors import ConfigError
from safedelete.phases.parts import RowPart
from safedelete.ports import Deletion, Held, RowTransaction
from safedelete.runner import purge as runner
from safedelete.runner import review
from safedelete.testing import Lab, PurgeUnsafeError, assert_purge_is_safe

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


def test_a_purge_of_many_tables_zones_and_shared_objects_is_safe() -> None:
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
            keys = connection.scalars(select(papers.c.s3_key).where(old)).all()
            connection.execute(delete(papers).where(old))
        for key in keys:
            lab.client.delete_object(Bucket="acme-papers", Key=key)

    found = broken(OWNING, through=job, accept=["denied"])
    assert found.promise == "objects-first"
    assert set(tables(found)) == {"papers"}
    assert len(tables(found)) <= 2, "the first object goes, and the second is left behind"


def test_a_promise_that_does_not_exist_cannot_be_accepted() -> None:
    with pytest.raises(ConfigError, match="is no promise"):
        assert_purge_is_safe(logins, accept=["cut-off"])
