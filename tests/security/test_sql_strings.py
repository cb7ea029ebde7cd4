"""No SQL is built from strings: identifiers are SQLAlchemy's to quote, values are bound, and the few exceptions say why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

import safedelete
from safedelete import Purge, Rows, older_than, run
from safedelete.wiring import init

PACKAGE = Path(safedelete.__file__).parent

RAW = {"text", "exec_driver_sql", "literal_column", "DDL"}
"""Calls whose first argument reaches a database as it is: it has to be written out in the source."""

EXECUTING = {
    "execute",
    "executemany",
    "executescript",
    "scalar",
    "scalars",
    "op",
    "prefix_with",
    "suffix_with",
}
"""Calls whose first argument may be an expression, but no text that was put together."""

ALLOWED = {
    ("sql/backends/mysql.py", "open_"): "a fixed column of the question, or nothing",
    (
        "sql/backends/sqlite.py",
        "connection.get_execution_options().get(BEGIN, 'BEGIN')",
    ): "an option that this module sets, to literals",
    ("sql/backends/sqlite.py", "wait:d"): "a number, formatted as one: PRAGMA takes no bound value",
    ("sql/backends/sqlite.py", "WAL_PAGES:d"): "a constant of the module, formatted as a number",
    (
        "sql/lag.py",
        "statement",
    ): "the statement that the job file itself declares with lag=: a job file is code",
    (
        "testing/fitting.py",
        "check.condition",
    ): "a CHECK of the models under test, asked of an SQLite in memory that holds nothing",
    ("sql/referenced_probe.py", "question"): "a literal of the table of questions in the same module",
    ("locks/advisory.py", "question"): "literals of the calls in the same class",
}
"""File and what is inserted, with the reason why nobody else can choose it."""


def findings(source: str, path: str = "x.py") -> Iterator[tuple[str, str]]:
    """Yield (file, what is inserted) for each text that reaches a database without being written out."""
    if not any(f"{name}(" in source for name in RAW | EXECUTING):
        return
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for scope in [tree, *functions]:
        # A function's own statements, so that a name means what it was given in there.
        built = {
            target.id
            for node in own(scope)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name) and (is_built(node.value) or isinstance(node, ast.AugAssign))
        }
        for node in own(scope):
            if isinstance(node, ast.Call) and node.args:
                name = called(node)
                first = node.args[0]
                raw = name in RAW and not is_written_out(first)
                put_together = is_built(first) or (isinstance(first, ast.Name) and first.id in built)
                if raw or (name in EXECUTING and put_together):
                    yield from ((path, what) for what in inserted(first))


def own(scope: ast.AST) -> Iterator[ast.AST]:
    stack = list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            stack += ast.iter_child_nodes(node)


def called(node: ast.Call) -> str:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def is_written_out(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_built(node: ast.expr) -> bool:
    """Whether an expression puts a text together: f-string, %, +, format(), join(), replace()."""
    match node:
        case ast.JoinedStr():
            return any(isinstance(part, ast.FormattedValue) for part in node.values)
        case ast.BinOp(op=ast.Add() | ast.Mod(), left=left, right=right):
            return is_text(left) or is_text(right)
        case ast.Call(func=ast.Attribute(value=value, attr="format" | "join" | "replace" | "format_map")):
            return is_text(value)
        case ast.IfExp(body=body, orelse=orelse):
            return is_built(body) or is_built(orelse)
    return False


def is_text(node: ast.expr) -> bool:
    return is_written_out(node) or is_built(node)


def inserted(node: ast.expr) -> list[str]:
    if isinstance(node, ast.JoinedStr):
        parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        return [
            ast.unparse(p.value) + (f":{ast.unparse(p.format_spec)[2:-1]}" if p.format_spec else "")
            for p in parts
        ]
    return [ast.unparse(node)]


def test_every_text_that_reaches_a_database_is_written_out_or_has_its_reason() -> None:
    found = {
        place
        for path in PACKAGE.rglob("*.py")
        # The servers that the tests start are given names that these make themselves.
        if "testing/servers" not in path.as_posix()
        # There text() is a message's own, and nothing there knows a database.
        and not path.as_posix().endswith("metrics/notify.py")
        for place in findings(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE).as_posix())
    }
    assert found - ALLOWED.keys() == set(), "bind the value, or let SQLAlchemy quote the name"
    assert ALLOWED.keys() - found == set(), "no longer there: take it off the list"


@pytest.mark.parametrize(
    "source",
    [
        "c.execute(text(f'DELETE FROM {t}'))",
        "c.execute(text('DELETE FROM %s' % t))",
        "c.execute(text('DELETE FROM ' + t))",
        "c.execute(text('DELETE FROM {}'.format(t)))",
        "c.execute(sa.text(','.join(names)))",
        "c.exec_driver_sql(f'DROP TABLE {t}')",
        "c.exec_driver_sql(statement)",
        "cursor.execute(f'PRAGMA x={n}')",
        "def f(c, t):\n    q = 'DELETE FROM ' + t\n    c.execute(q)",
        "def f(c, t):\n    q = 'DELETE'\n    q += t\n    c.execute(q)",
        "select(literal_column(name))",
        "column.op(f'{sign}')(1)",
        "select(t).prefix_with('/* %s */' % hint)",
    ],
)
def test_a_text_that_is_put_together_is_found(source: str) -> None:
    assert list(findings(source)), source


@pytest.mark.parametrize(
    "source",
    [
        "c.execute(text('SELECT :a'), {'a': value})",
        "c.execute(select(t).where(t.c.x == value))",
        "c.execute(text('SELECT 1 '\n 'FROM x'))",
        "column.op('GLOB')(f'*{some}*')",
    ],
)
def test_what_is_bound_or_quoted_by_sqlalchemy_passes(source: str) -> None:
    assert list(findings(source)) == [], source


HOSTILE = (
    'x"; DROP TABLE victim; --',
    "x'); DELETE FROM victim; --",
    "`x`",
    "a b",
    "select",
    "ä%s",
    ":cutoff",
    "%(a)s",
    "[x]",
)
NAMES = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12),
)


@settings(max_examples=6, deadline=None)
@given(table=NAMES, column=NAMES, key=NAMES)
def test_no_name_and_no_key_is_ever_read_as_sql(table: str, column: str, key: str) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        url = f"sqlite:///{folder}/app.db"
        patch.setenv("SAFEDELETE_DATABASE_URL", url)
        patch.setenv("SAFEDELETE_ENVIRONMENT", "test")
        metadata = sa.MetaData()
        victim = sa.Table("victim", metadata, sa.Column("id", sa.Integer, primary_key=True))
        name = sa.Column(f"k {column}", sa.String(200), primary_key=True)
        at = sa.Column(f"t {column}", sa.DateTime, index=True)
        odd = sa.Table(f"o {table}", metadata, name, at)
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        metadata.create_all(engine)
        due = [*HOSTILE, f"due {key}"]
        now = datetime.now(UTC).replace(tzinfo=None)
        with engine.begin() as connection:
            connection.execute(sa.insert(victim).values(id=1))
            for number in range(40):
                values = {name: due[number] if number < len(due) else f"kept {number}", at: now}
                values[at] -= timedelta(days=31 if number < len(due) else 1)
                connection.execute(sa.insert(odd).values(values))
        purge = Purge(
            "odd", Rows(odd, older_than(at, days=30)), schedule="rate(1 day)", timeout=timedelta(minutes=1)
        )
        init([purge])
        report = run(purge)
        assert report.tally[report.plan.targets[0].name].deleted == len(due)
        with engine.connect() as connection:
            left = connection.execute(sa.select(name)).scalars().all()
            assert sorted(left) == sorted(f"kept {number}" for number in range(len(due), 40))
            assert connection.execute(sa.select(victim.c.id)).scalars().all() == [1]
