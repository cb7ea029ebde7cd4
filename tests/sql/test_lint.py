"""A predicate that the database cannot run, or would take to mean something else, is refused when it is planned."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from safedelete import Rows, older_than, past
from safedelete.core.plan import Unknown
from safedelete.errors import ConfigError
from safedelete.ports import Verdict
from safedelete.sql import SqlProber, SqlRows
from tests.sql.acts import survey, target
from tests.sql.conftest import AS_OF, Server, aged


def things(at: Any = None, **columns: Any) -> sa.Table:
    return sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", at or sa.DateTime()),
        *(sa.Column(name, kind) for name, kind in columns.items()),
    )


BROKEN = {
    "syntax": ("at <", "syntax"),
    "column": ("no_such_column = 1", "no_such_column"),
    "function": ("no_such_function(id) = 1", "no_such_function"),
    "table": ("id IN (SELECT x FROM no_such_table)", "no_such_table"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_sql_text_that_cannot_be_run_is_refused_with_the_databases_words(server: Server, broken: str) -> None:
    table = things()
    server.create(table)
    said, words = BROKEN[broken]
    rows = SqlRows(Rows(table, past(table.c.at), sa.literal_column(said, sa.Boolean)), server.open())
    with pytest.raises(ConfigError, match=f"(?i)cannot run the predicate.*{words}"):
        survey(rows)


@pytest.mark.parametrize(
    "said",
    [
        "id > 0 -- all of them",
        "id > 0 /* all",
        "id > 0 GROUP BY id",
        "id > 0 LIMIT 9",
        "id > 0; DELETE FROM things",
        "id > 0 #",
    ],
)
@pytest.mark.parametrize("beside", [True, False])
def test_text_that_would_swallow_the_conditions_behind_it_is_refused_and_nothing_is_tried(
    server: Server, said: str, beside: bool
) -> None:
    table = things()
    server.create(table)
    server.insert(table, {"id": 1, "at": aged(1)}, {"id": 2, "at": aged(1)})
    text = sa.literal_column(said, sa.Boolean)
    predicate = sa.and_(text, table.c.id < 9) if beside else text
    database = server.open()
    tried: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: tried.append(args[2]))
    rows = SqlRows(Rows(table, past(table.c.at), predicate), database)
    with pytest.raises(ConfigError, match="cannot run the predicate"):
        survey(rows)
    probe = {proof.subject: proof for proof in SqlProber(rows).probe(AS_OF, [])}
    assert probe["SELECT on things"].verdict is not Verdict.ALLOWED
    # The probe's DELETE of no row would have been one of all.
    assert not [t for t in tried if said in t and f"({said}" not in t]


def test_a_remark_within_the_text_is_none_of_our_business(server: Server) -> None:
    table = things()
    server.create(table)
    server.insert(table, {"id": 1, "at": aged(1)}, {"id": 2, "at": aged(1)})
    text = sa.literal_column("id > 1 -- the first is the template\n AND id < 9", sa.Boolean)
    assert survey(SqlRows(Rows(table, past(table.c.at), text), server.open())).eligible == 1


def test_a_parameter_without_a_value_is_refused(server: Server) -> None:
    table = things()
    server.create(table)
    rows = SqlRows(
        Rows(table, past(table.c.at), sa.and_(table.c.id > sa.bindparam("floor"), table.c.id < 9)),
        server.open(),
    )
    with pytest.raises(ConfigError, match=r"cannot run the predicate.*floor"):
        survey(rows)


def test_a_right_that_is_missing_is_no_error_of_the_predicate(pg: Server, uploads: sa.Table) -> None:
    pg.create(uploads)
    rows = target(pg, uploads, pg.role("GRANT SELECT (id) ON uploads"))
    assert isinstance(survey(rows).items, Unknown)


@pytest.mark.parametrize(
    ("model", "stored", "options"),
    [
        (sa.DateTime(), "bigint", {}),
        (sa.BigInteger(), "varchar(30)", {"unit": "s"}),
        (sa.Date(), "bigint", {}),
    ],
)
def test_a_time_column_of_another_type_than_the_model_says_is_refused(
    server: Server, model: Any, stored: str, options: dict[str, Any]
) -> None:
    server.sql(f"CREATE TABLE things (id integer PRIMARY KEY, at {stored})")
    table = things(model)
    with pytest.raises(ConfigError, match=r"at is .* in the model and .* in the database"):
        survey(SqlRows(Rows(table, older_than(table.c.at, days=3, **options)), server.open()))


def test_text_where_the_model_says_number_is_refused_where_it_would_be_made_one(maria: Server) -> None:
    maria.sql("CREATE TABLE things (id integer PRIMARY KEY, at datetime, status varchar(9))")
    table = things(status=sa.Integer())
    with pytest.raises(ConfigError, match="status is"):
        survey(SqlRows(Rows(table, past(table.c.at), table.c.status == 0), maria.open()))


def test_a_zone_for_a_column_that_has_one_is_refused(pg: Server) -> None:
    pg.sql("CREATE TABLE things (id integer PRIMARY KEY, at timestamptz)")
    table = things()
    with pytest.raises(ConfigError, match="would move the cutoff"):
        survey(SqlRows(Rows(table, past(table.c.at, tz="Europe/Berlin")), pg.open()))
    survey(SqlRows(Rows(table, past(table.c.at)), pg.open()))


def test_a_function_of_the_databases_own_must_not_be_volatile(pg: Server) -> None:
    pg.sql(
        "CREATE TABLE things (id integer PRIMARY KEY, at timestamp)",
        "CREATE FUNCTION held(n int) RETURNS boolean LANGUAGE sql AS 'SELECT n > 5'",
    )
    table = things()
    rows = SqlRows(Rows(table, past(table.c.at), sa.func.held(table.c.id, type_=sa.Boolean)), pg.open())
    with pytest.raises(ConfigError, match="calls held") as refused:
        survey(rows)
    assert refused.value.hint.endswith("ALTER FUNCTION held STABLE;")
    pg.sql("ALTER FUNCTION held STABLE")
    survey(rows)


def test_conditions_that_keep_no_row_are_told(server: Server, uploads: sa.Table) -> None:
    server.create(uploads)
    server.insert(
        uploads,
        {"id": 1, "expires_at": aged(3), "hold": False},
        {"id": 2, "expires_at": aged(-3), "hold": False},
        {"id": 3, "expires_at": None, "hold": True},
    )
    told = "matches all 2 rows"
    assert any(told in note for note in survey(target(server, uploads, owns=False)).notes)
    alone = SqlRows(Rows(uploads, past(uploads.c.expires_at)), server.open())
    assert not any(told in note for note in survey(alone).notes)
    server.sql("UPDATE uploads SET hold = TRUE WHERE id = 2")
    assert not any("matches all" in note for note in survey(target(server, uploads, owns=False)).notes)


@pytest.mark.parametrize("kind", ["pg", "maria"])
@pytest.mark.parametrize(("minutes", "said"), [(5, "behind"), (-5, "ahead of")])
def test_clocks_that_differ_by_more_than_a_minute_are_found(
    request: pytest.FixtureRequest, uploads: sa.Table, kind: str, minutes: int, said: str
) -> None:
    server: Server = request.getfixturevalue(kind)
    server.create(uploads)
    rows = target(server, uploads)

    def clock(off: timedelta) -> Any:
        return lambda: datetime.now(UTC) + off

    def proof(off: timedelta) -> Any:
        found = SqlProber(rows, clock(off)).probe(AS_OF, [])
        return next(p for p in found if p.subject.startswith("clock of"))

    assert proof(timedelta(seconds=50 if minutes > 0 else -50)).verdict is Verdict.ALLOWED
    found = proof(timedelta(minutes=minutes))
    assert found.verdict is Verdict.DENIED
    assert f"clock is 300 s {said} this host's" in found.detail
    assert found.remedy
