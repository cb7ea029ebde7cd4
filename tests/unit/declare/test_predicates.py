"""A predicate that cannot be what was meant is refused when the file loads, with what to write instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped

from safedelete import Purge, Rows, older_than, past
from safedelete.errors import ConfigError

metadata = sa.MetaData()
things = sa.Table(
    "things",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("at", sa.DateTime),
    sa.Column("name", sa.String(20)),
    sa.Column("done", sa.Boolean),
    sa.Column("parts", sa.Integer),
)
holds = sa.Table("holds", metadata, sa.Column("thing_id", sa.Integer), sa.Column("active", sa.Boolean))
c = things.c


class Base(DeclarativeBase):
    metadata = metadata


class Thing(Base):
    __table__ = things
    parts: Mapped[int]


aliased = things.alias()


def declare(*predicates: Any, **options: Any) -> Rows:
    return Rows(things, older_than(c.at, days=90), *predicates, **options)


def refused(*predicates: Any) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        declare(*predicates)
    assert error.value.hint
    return error.value


@pytest.mark.parametrize("other", [holds.c.active.is_(True), holds.c.thing_id == c.id], ids=str)
def test_a_table_that_is_not_joined_is_refused(other: Any) -> None:
    assert "holds" in str(refused(other))


def test_an_exists_that_says_the_same_for_every_row_is_refused() -> None:
    assert "does not mention things" in str(refused(~sa.exists().where(holds.c.active)))
    declare(~sa.exists().where(holds.c.thing_id == c.id))
    declare(c.id.not_in(sa.select(holds.c.thing_id)))
    declare(
        sa.select(sa.func.count()).select_from(holds).where(holds.c.thing_id == c.id).scalar_subquery() == 0,
        c.parts < sa.select(sa.func.count()).select_from(holds).scalar_subquery(),
        sa.literal_column("parts > 1", sa.Boolean),
    )
    declare(~sa.exists(sa.text("1")).where(sa.text("holds.thing_id = things.id")).select_from(holds))


@pytest.mark.parametrize(
    "condition",
    [
        sa.true(),
        sa.literal(1) == sa.literal(1),
        sa.or_(c.done.is_(True), sa.literal(1) == 1),
        sa.not_(sa.false()),
        c.parts == c.parts,
        c.id.not_in([]),
        ~c.name.in_([]),
        Thing.parts == Thing.parts,
        sa.literal_column("1 = 1", sa.Boolean),
        sa.literal_column("(NOT false)", sa.Boolean),
        sa.literal_column("'parts' = 'parts'", sa.Boolean),
        sa.select(sa.func.count()).select_from(holds).scalar_subquery() > 0,
        sa.or_(c.done.is_(True), sa.select(sa.func.max(holds.c.thing_id)).scalar_subquery() > 7),
        sa.literal(1).in_(sa.select(holds.c.thing_id)),
    ],
    ids=str,
)
def test_a_condition_that_is_true_for_every_row_is_refused(condition: Any) -> None:
    assert "every row" in str(refused(condition))


def test_a_table_can_be_emptied_on_purpose() -> None:
    Rows(things, sa.true(), anytime=True)


def test_a_condition_that_never_holds_is_harmless() -> None:
    declare(sa.or_(c.done.is_(True), sa.false()))


@pytest.mark.parametrize(
    "condition",
    [
        c.at < sa.func.now(),
        c.at < sa.func.current_date(),
        sa.func.random() < 0.5,
        c.at < sa.func.datetime("now", "-90 days"),
        sa.func.age(c.at) > timedelta(days=3),
        sa.literal_column("at < now() - interval '90 days'", sa.Boolean),
        sa.literal_column("at < CURRENT_DATE", sa.Boolean),
        sa.and_(sa.text("rand() < 0.5"), c.done),
        sa.exists().where(holds.c.thing_id == c.id, sa.func.nextval("s") > 3),
    ],
    ids=str,
)
def test_a_function_whose_answer_changes_is_refused(condition: Any) -> None:
    assert "answer changes" in str(refused(condition))


@pytest.mark.parametrize(
    "condition",
    [
        sa.func.lower(c.name) == "now",
        sa.func.date(c.at) == "2026-01-01",
        sa.literal_column("name = 'it is now() or never'", sa.Boolean),
        sa.literal_column("lower(name) = 'x'", sa.Boolean),
        sa.func.age(c.at, c.at) > timedelta(days=3),
    ],
    ids=str,
)
def test_other_functions_pass(condition: Any) -> None:
    declare(condition)


@pytest.mark.parametrize(
    "condition",
    [
        c.name == 0,
        c.name.in_(["a", 5]),
        c.parts == "5",
        c.at < 1_700_000_000,
    ],
    ids=str,
)
def test_a_value_of_another_type_than_the_column_is_refused(condition: Any) -> None:
    assert "is compared with" in str(refused(condition))


def test_values_of_the_columns_own_type_pass() -> None:
    declare(
        c.name == "0", c.parts == 5, c.parts > 2.5, c.done.is_(True), c.name.in_(["a"]), c.parts.is_not(None)
    )
    declare(sa.cast(c.name, sa.Integer) == 5)


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("done OR parts > 3", False),
        ("done XOR parts > 3", False),
        ("(done xor parts > 3)", True),
        ("(done OR parts > 3)", True),
        ("(done) or (parts > 3)", False),
        ("name = 'this or that'", True),
        ("done AND (parts > 3 OR (parts < 1 or parts = 2))", True),
    ],
)
def test_an_or_in_text_must_stay_within_parentheses(text: str, fine: bool) -> None:
    condition = sa.literal_column(text, sa.Boolean)
    if fine:
        declare(condition)
    else:
        assert "parentheses" in str(refused(condition))


def test_text_is_asked_for_as_an_expression() -> None:
    assert "literal_column" in refused(sa.text("done")).hint


def test_a_retention_is_no_function() -> None:
    Rows(things, past(c.at))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_replication_lag": 5}, "positive timedelta"),
        ({"max_replication_lag": timedelta(0)}, "positive timedelta"),
        ({"replicas": ["mysql://r/app"]}, "without max_replication_lag"),
        ({"replicas": [5], "max_replication_lag": timedelta(seconds=5)}, "is a int"),
        ({"replicas": [None], "max_replication_lag": timedelta(seconds=5)}, "list of Engines or URLs"),
        ({"pause_when": "busy"}, "a function that returns a reason"),
    ],
)
def test_a_pause_that_could_not_be_asked_for_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Purge("things", declare(), schedule="rate(1 day)", timeout=timedelta(minutes=5), **options)


def test_an_unindexed_foreign_key_is_accepted_by_yes_alone() -> None:
    with pytest.raises(ConfigError, match="allow_unindexed_fk"):
        declare(allow_unindexed_fk="yes")


def test_what_is_unseen_is_accepted_by_yes_alone() -> None:
    with pytest.raises(ConfigError, match="allow_unseen=1; must be True or False"):
        declare(allow_unseen=1)
