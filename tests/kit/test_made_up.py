"""What is made up for a purge has rows on every side of what it asks for, and what is expected of it asks for no less."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Enum,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    and_,
    func,
    or_,
)

from safedelete import Purge, Rows, S3Keys, S3Orphans, S3Prefix, older_than
from safedelete.errors import ConfigError
from safedelete.testing.listed import key_below
from safedelete.testing.promises import Night, listing, young
from safedelete.testing.scene import Scene, Snapshot, Subject
from safedelete.testing.strategies import instants_of, made_up
from safedelete.testing.strict_s3 import Kept
from safedelete.testing.values import constants

NOW = datetime(2026, 3, 1, 3, 15, tzinfo=UTC)
TICK = timedelta(microseconds=1)
DAY = timedelta(days=1)

things = Table(
    "things",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("created_at", DateTime(timezone=True), nullable=False, index=True),
    Column("updated_at", DateTime(timezone=True), nullable=False),
    Column("state", String(40), nullable=False),
    Column("size", Integer, nullable=False),
    Column("noted", String(40)),
    Column("s3_key", String(300), nullable=False, index=True),
    Column("s3_etag", String(40)),
    Column("s3_size", BigInteger),
)
OLD = older_than(things.c.created_at, days=30)


def purge(*targets: Any) -> Purge:
    return Purge("under-test", *targets, schedule="rate(1 day)", timeout=timedelta(minutes=10))


def subject(*targets: Any) -> Subject:
    tables = {target.table.metadata for target in targets if isinstance(target, Rows)}
    return Subject(purge(*targets), (), {}, tuple(tables))


def scene_of(*targets: Any, **columns: Any) -> Scene:
    ((scene, _),) = made_up(subject(*targets), columns.get("columns", {}), 1)
    return scene


# --- rows ---


@pytest.mark.parametrize(
    ("predicate", "column", "matches"),
    [
        (things.c.size > 100, "size", lambda v: v > 100),
        (things.c.size < 100, "size", lambda v: v < 100),
        (things.c.size >= 100, "size", lambda v: v >= 100),
        (things.c.size.between(7, 9), "size", lambda v: 7 <= v <= 9),
        (things.c.size.in_([7, 9]), "size", lambda v: v in (7, 9)),
        (things.c.state.like("tmp_%.log"), "state", lambda v: v.startswith("tmp") and v.endswith(".log")),
        (things.c.state.startswith("tmp-"), "state", lambda v: v.startswith("tmp-")),
        (things.c.state.contains("-x-"), "state", lambda v: "-x-" in v),
        (things.c.noted.is_(None), "noted", lambda v: v is None),
    ],
    ids=["above", "below", "least", "between", "one-of", "like", "beginning", "containing", "null"],
)
def test_the_first_value_made_up_for_a_comparison_meets_it(
    predicate: Any, column: str, matches: Callable[[Any], bool]
) -> None:
    values = constants([predicate])[column]
    assert matches(values[0])
    scene = scene_of(Rows(things, OLD, predicate))
    assert {matches(row.values[column]) for row in scene.rows} >= {True}


def test_what_lies_to_either_side_of_a_bound_is_there_too() -> None:
    assert set(constants([things.c.size >= 100])["size"]) == {99, 100, 101}


def times(scene: Scene, table: Table, column: str) -> set[Any]:
    return {row.values[column] for row in scene.rows if row.table is table}


@pytest.mark.parametrize("referring", [False, True], ids=["numbers", "foreign keys"])
def test_a_table_whose_rows_two_columns_tell_apart_has_rows_on_both_sides_of_the_cutoff(
    referring: bool,
) -> None:
    metadata = MetaData()
    left = Table("left", metadata, Column("id", Integer, primary_key=True))
    Table("right", metadata, Column("id", Integer, primary_key=True))
    pair = Table(
        "pair",
        metadata,
        Column("one", *([ForeignKey(left.c.id)] if referring else []), type_=Integer, primary_key=True),
        Column("two", *([ForeignKey("right.id")] if referring else []), type_=Integer, primary_key=True),
        Column("at", DateTime(timezone=True), nullable=False, index=True),
    )
    scene = scene_of(Rows(pair, older_than(pair.c.at, days=30)))
    cutoff = scene.now - timedelta(days=30)
    assert {cutoff - TICK, cutoff, cutoff + TICK} <= times(scene, pair, "at")
    assert len([row for row in scene.rows if row.table is pair]) >= 9


def test_rows_around_the_cutoff_that_find_no_room_are_told() -> None:
    kinds = Table(
        "kinds",
        MetaData(),
        Column("kind", Enum("a", "b", name="kind"), primary_key=True),
        Column("at", DateTime(timezone=True), nullable=False, index=True),
    )
    with pytest.raises(ConfigError, match="No row of kinds with at="):
        scene_of(Rows(kinds, older_than(kinds.c.at, days=30)))
    with pytest.raises(ConfigError, match="No row of things"):
        scene_of(Rows(things, OLD), columns={things.c.id: st.just(1)})


def test_of_two_ages_on_one_column_neither_is_forgotten() -> None:
    done = and_(things.c.state == "done", OLD)
    failed = and_(things.c.state == "failed", older_than(things.c.created_at, days=90))
    target = Rows(things, or_(done, failed))
    scene = scene_of(target)
    ties = {scene.now - timedelta(days=days) for days in (30, 90)}
    assert ties <= times(scene, things, "created_at")
    row = {"created_at": NOW - timedelta(days=60), "updated_at": NOW - timedelta(days=60)}
    assert "created_at" in young(target, row, NOW)
    assert young(target, row | {"created_at": NOW - timedelta(days=91)}, NOW) == ""


def test_every_age_has_to_be_reached_that_is_declared() -> None:
    both = Rows(things, OLD, older_than(things.c.updated_at, days=7))
    row = {"created_at": NOW - 31 * DAY, "updated_at": NOW - 7 * DAY}
    assert "exclusive" in young(both, row, NOW)
    assert young(both, row | {"updated_at": NOW - 8 * DAY}, NOW) == ""
    scene = scene_of(both)
    assert {scene.now - 7 * DAY, scene.now - 7 * DAY + TICK} <= times(scene, things, "updated_at")


def test_a_row_without_a_declared_age_is_young_while_any_of_its_times_is_to_come() -> None:
    forgotten = Rows(things, things.c.state == "done", anytime=True)
    row = {"created_at": NOW - DAY, "updated_at": NOW + DAY}
    assert "updated_at" in young(forgotten, row, NOW)
    assert "created_at" in young(forgotten, {"created_at": NOW, "updated_at": NOW - DAY}, NOW)
    assert young(forgotten, row | {"updated_at": NOW - DAY}, NOW) == ""


def test_an_age_of_an_expression_has_its_ties_in_the_columns_it_may_go_by() -> None:
    target = Rows(things, older_than(func.coalesce(things.c.updated_at, things.c.created_at), days=500))
    scene = scene_of(target)
    assert scene.now - 500 * DAY - TICK in times(scene, things, "created_at")
    assert young(target, {"created_at": NOW - DAY, "updated_at": None}, NOW) == ""


def test_what_a_row_says_of_its_object_is_so() -> None:
    owned = S3Keys("acme-things", things.c.s3_key, etag=things.c.s3_etag, size=things.c.s3_size)
    for row in scene_of(Rows(things, OLD, owns=owned)).rows:
        assert (row.values["s3_etag"], row.values["s3_size"]) == ("9dd4e461268c8034f5c8564e155c67a6", 1)


def test_some_rows_name_objects_where_a_target_lists() -> None:
    scene = scene_of(
        Rows(things, OLD, owns=S3Keys("acme-things", things.c.s3_key)),
        S3Prefix("acme-things", "tmp/", older_than=DAY),
    )
    below = {row.values["s3_key"].startswith("tmp/") for row in scene.rows}
    assert below == {True, False}


def test_each_example_is_at_the_next_instant() -> None:
    age = older_than(things.c.created_at, days=30)
    stamped = Table(
        "stamped",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("at", DateTime(), nullable=False, index=True),
    )
    zoned = older_than(stamped.c.at, days=30, tz="Europe/Berlin")
    for target in (Rows(things, age), Rows(stamped, zoned)):
        mine = subject(target)
        assert [scene.now for scene, _ in made_up(mine, {}, 3)] == instants_of(mine)[:3]
    second = instants_of(mine)[1] - 30 * DAY
    assert second.isoformat() == "2026-10-25T00:30:00+00:00", "02:30 in Berlin, an hour before 02:30"


# --- objects ---


@pytest.mark.parametrize(
    ("conditions", "unmet"),
    [
        ({"pattern": "**/*.log"}, {"unlike"}),
        ({"pattern": "20[0-9]?/[!a]*.gz"}, {"unlike"}),
        ({"min_size": 10_000_000_000}, {"too-small"}),
        ({"max_size": 100, "min_size": 10}, {"too-small", "too-large"}),
        ({"max_size": 0}, {"too-large"}),
        ({"storage_class": ["STANDARD_IA", "GLACIER"]}, {"of-another-class"}),
    ],
    ids=["deep", "glob", "above", "between", "empty", "class"],
)
def test_each_condition_of_a_prefix_has_objects_that_meet_it_and_one_that_does_not(
    conditions: dict[str, Any], unmet: set[str]
) -> None:
    target = S3Prefix("acme-scratch", "tmp/", older_than=7 * DAY, **conditions)
    scene = scene_of(target)
    kept = {
        (o.bucket, o.key): Kept("", o.modified, size=o.size, storage_class=o.storage_class)
        for o in scene.objects
    }
    there = Snapshot({}, kept, {})
    why = {place[1]: listing(target, place, there, scene.now) for place in kept}
    assert sum(reason == "" for reason in why.values()) == 2, "long due, and due by a second"
    outside = {key for key, reason in why.items() if reason is None}
    assert "tmp2/beside" in outside
    assert all(any(name in key for key in outside) for name in unmet)
    assert len(outside) == 1 + len(unmet)


def test_a_key_that_a_pattern_takes_can_be_made_of_any_name() -> None:
    for pattern in ("*", "**", "a/**", "**/*.log", "[ab]?/x*", "a*b*c"):
        target = S3Prefix("acme-scratch", "tmp/", older_than=DAY, pattern=pattern)
        assert target.pattern_regex is not None
        assert target.pattern_regex.fullmatch(key_below(target, "1-é ü.txt").removeprefix("tmp/")), pattern


def test_an_object_that_is_gone_is_missed_by_the_row_whose_prefix_it_lay_below() -> None:
    place, row = ("acme-things", "u/7/a.jpg"), ("things", (7,))
    below = {row: frozenset({("acme-things", "u/7/")})}
    there = Snapshot({row: {}}, {place: Kept("", NOW - 400 * DAY)}, {row: frozenset({place})}, below)
    gone = Snapshot({row: {}}, {}, {row: frozenset()}, below)
    sweep = S3Orphans("acme-things", "u/", referenced_by=[things.c.s3_key], older_than=DAY)
    night = Night(subject(sweep), Scene(NOW), there, gone, frozenset())
    assert [broken.promise for broken in night.broken()][:1] == ["shared"]
