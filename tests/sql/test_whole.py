"""Rows that own nothing go by one statement where that takes just them; where it would not, row by row as ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.item import Key, KeyRows, SealedRow
from safedelete.core.outcome import GONE, ItemOutcome, Outcome
from safedelete.core.seal import RowBatch, decode, encode
from safedelete.ports import Deletion
from safedelete.sql import SqlRows
from safedelete.sql.keys import MOST_RUNS, RUN_FROM, _runs
from tests.sql.acts import fill, ids, left, target
from tests.sql.conftest import AS_OF, Server, aged

ROWS = 150


def pages(rows: SqlRows) -> KeyRows:
    (page,) = rows.scan(AS_OF, batch=1000, portion=None)
    assert isinstance(page, KeyRows)
    return page


@contextmanager
def statements(rows: SqlRows) -> Iterator[list[str]]:
    """Note every DELETE that is sent meanwhile."""
    seen: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE"):
            seen.append(statement)

    sa.event.listen(rows.database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(rows.database.engine, "before_cursor_execute", note)


def purged(rows: SqlRows, page: Sequence[SealedRow]) -> tuple[Deletion, dict[Key, ItemOutcome]]:
    batch = rows.begin(AS_OF)
    held = batch.hold(page)
    done = batch.delete(held.rows)
    batch.commit()
    return done, dict(held.missing) | dict(done.kept)


def another(server: Server, uploads: sa.Table, number: int) -> None:
    server.insert(uploads, {"id": number, "expires_at": aged(3), "s3_key": f"k/{number}"})


def test_gap_free_rows_go_by_one_range(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, ROWS)
    rows = target(server, uploads, owns=False)
    page = pages(rows)
    with statements(rows) as sent:
        done, kept = purged(rows, page)
    assert len(sent) == 1
    assert "BETWEEN" in sent[0]
    assert "RETURNING" not in sent[0]
    assert (len(done.rows), kept, done.touched) == (ROWS, {}, {"uploads": ROWS})
    assert left(server) == []


def test_a_row_that_came_into_a_gap_stays(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, ROWS)
    server.sql("DELETE FROM uploads WHERE id IN (50, 51, 90)")
    rows = target(server, uploads, owns=False)
    page = pages(rows)
    another(server, uploads, 50)
    with statements(rows) as sent:
        purged(rows, page)
    assert len(sent) == 1
    assert left(server) == [50]


def test_a_row_that_left_is_told_from_one_that_came_though_their_number_is_the_same(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, ROWS)
    server.sql("DELETE FROM uploads WHERE id = 50")
    rows = target(server, uploads, owns=False)
    page = pages(rows)
    another(server, uploads, 50)
    server.sql("UPDATE uploads SET hold = true WHERE id = 60", "DELETE FROM uploads WHERE id = 70")
    done, kept = purged(rows, page)
    assert left(server) == [50, 60]
    assert kept[60,].state is Outcome.CHANGED
    assert kept[70,] == GONE
    assert len(done.rows) == ROWS - 3
    assert done.touched == {"uploads": ROWS - 3}


def test_keys_with_many_gaps_go_as_what_they_are(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, 3 * ROWS)
    server.sql("DELETE FROM uploads WHERE id % 3 = 0")
    rows = target(server, uploads, owns=False)
    page = pages(rows)
    another(server, uploads, 30)
    done, kept = purged(rows, page)
    assert (len(done.rows), kept, left(server)) == (2 * ROWS, {}, [30])


def test_a_row_that_the_database_refuses_is_named_and_takes_no_other_with_it(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, ROWS)
    server.sql(
        "CREATE TABLE notes (id integer PRIMARY KEY, upload_id bigint,"
        " FOREIGN KEY (upload_id) REFERENCES uploads (id))",
        "INSERT INTO notes VALUES (1, 77)",
    )
    rows = target(server, uploads, owns=False)
    _, kept = purged(rows, pages(rows))
    assert [(key, o.code) for key, o in kept.items()] == [((77,), "referenced")]
    assert left(server) == [77]


def test_a_trigger_that_keeps_a_row_is_found_out(server: Server, uploads: sa.Table) -> None:
    fill(server, uploads, ROWS)
    if server.kind == "mariadb":
        pytest.skip("a MariaDB trigger cannot keep a row without an error")
    if server.kind == "postgresql":
        server.sql(
            "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN IF OLD.id = 7 THEN RETURN NULL; END IF; RETURN OLD; END $$",
            "CREATE TRIGGER keep BEFORE DELETE ON uploads FOR EACH ROW EXECUTE FUNCTION keep()",
        )
    else:
        server.sql(
            "CREATE TRIGGER keep BEFORE DELETE ON uploads WHEN OLD.id = 7 BEGIN SELECT RAISE(IGNORE); END"
        )
    rows = target(server, uploads, owns=False)
    _, kept = purged(rows, pages(rows))
    assert [(key, o.code) for key, o in kept.items()] == [((7,), "kept")]
    assert left(server) == [7]


def test_what_a_trigger_takes_beside_is_told(pg: Server, uploads: sa.Table) -> None:
    """As many rows as were asked for by the statement's count, and one more by the server's own."""
    fill(pg, uploads, ROWS)
    rows = target(pg, uploads, owns=False)
    page = pages(rows)
    another(pg, uploads, 1000)
    pg.sql(
        "CREATE FUNCTION more() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN DELETE FROM uploads WHERE id = 1000; RETURN OLD; END $$",
        "CREATE TRIGGER more BEFORE DELETE ON uploads FOR EACH ROW WHEN (OLD.id = 7) EXECUTE FUNCTION more()",
    )
    done, _ = purged(rows, page)
    assert done.touched == {"uploads": ROWS + 1}
    assert len(done.rows) == ROWS


def test_a_value_between_two_whole_numbers_stays(sqlite: Server) -> None:
    uploads = sa.Table(
        "uploads",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger(), primary_key=True),
        sa.Column("expires_at", sa.DateTime(), index=True),
        sa.Column("hold", sa.Boolean(), nullable=False, default=False),
        sa.Column("s3_key", sa.String(200)),
    )
    fill(sqlite, uploads, ROWS)
    rows = target(sqlite, uploads, owns=False)
    page = pages(rows)
    sqlite.sql("INSERT INTO uploads SELECT 7.5, expires_at, hold, s3_key FROM uploads WHERE id = 7")
    purged(rows, page)
    assert left(sqlite) == [7.5]


def test_taken_back_rows_can_be_held_against_what_is_asked_for_then(
    server: Server, uploads: sa.Table
) -> None:
    fill(server, uploads, ROWS)
    rows = target(server, uploads, owns=False)
    page = pages(rows)
    batch = rows.begin(AS_OF)
    batch.delete(batch.hold(page).rows)
    batch.undo()
    assert ids(batch.delete(list(page)[:3]).rows) == [1, 2, 3]
    batch.commit()
    assert left(server) == list(range(4, ROWS + 1))


# --- the pieces ---


@given(st.sets(st.integers(-300, 300), min_size=RUN_FROM))
def test_runs_hold_just_the_numbers_they_were_made_of(numbers: set[int]) -> None:
    values = sorted(numbers)
    runs = _runs(values)
    holes = sum(b - a > 1 for a, b in pairwise(values))
    assert bool(runs) == (holes < MOST_RUNS)
    if runs:
        assert [n for first, last in runs for n in range(first, last + 1)] == values


@pytest.mark.parametrize(
    "values",
    [
        list(range(RUN_FROM - 1)),
        [*range(200, 0, -1)],
        [*range(150), 149],
        [*range(150), 150.0],
        [True, *range(2, 150)],
        [*range(0, 300, 2)],
    ],
    ids=["few", "descending", "twice", "not whole", "a bool", "gaps"],
)
def test_what_is_no_run_is_none(values: list[Any]) -> None:
    assert _runs(values) == []


@given(st.lists(st.tuples(st.integers(), st.text()), min_size=1, max_size=20))
def test_rows_as_columns_are_sealed_as_rows_are(keys: list[Key]) -> None:
    rows = tuple(SealedRow(key) for key in keys)
    columns = KeyRows([list(column) for column in zip(*keys, strict=True)])
    assert encode(RowBatch(columns)) == encode(RowBatch(rows))
    blob = encode(RowBatch(columns))
    back = decode(blob.data, blob.sha256)
    assert isinstance(back, RowBatch)
    assert isinstance(back.rows, KeyRows)
    assert back == RowBatch(rows) == RowBatch(columns)
    assert tuple(back.rows) == rows
    assert back.rows[-1] == rows[-1]
    assert tuple(back.rows[1:3]) == rows[1:3]
    assert back.rows.keys() == keys


def test_a_batch_on_sqlite_does_not_copy_the_whole_wal_back(sqlite: Server, uploads: sa.Table) -> None:
    fill(sqlite, uploads, ROWS)
    sqlite.sql("PRAGMA journal_mode=WAL")
    rows = target(sqlite, uploads, owns=False)
    purged(rows, pages(rows))
    wal = Path(f"{rows.database.url.database}-wal")
    assert wal.stat().st_size > 0
    rows.database.dispose()
    assert not wal.exists()
