"""Refuse boot-time work: connections while a job file loads, and DDL while a job runs.

A job that creates tables or migrates when it starts does so every night, in the middle of production, as whatever
version happens to be installed. So DDL is refused on every SQLAlchemy engine, with the file and line that asked for it.
A DBAPI cursor used directly is out of reach.

Listening on the Engine class costs a host nothing and changes nothing for its other threads: what is refused goes by
a context variable. The listeners are added once and stay, since a host's other threads may be going through the
same list of listeners at that moment; outside of a guarded block they look at one variable and return.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from traceback import walk_stack
from typing import Any, Final

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import Pool
from sqlalchemy.schema import ExecutableDDLElement

from safedelete.errors import ConfigError

_OURS: Final = str(Path(__file__).resolve().parents[1])
_SQLALCHEMY: Final = str(Path(sys.modules["sqlalchemy"].__file__ or "").parent)

_QUOTED: Final = r"""
    | '(?:[^']|'')*'                                # text
    | "(?:[^"]|"")*"                                # a name
"""
_NOISE: Final = {
    "postgresql": r"""
      --[^\n]*                                      # a comment to the end of the line
    | (?P<comment>/\*)                              # one that may hold others
    | (?<!\w)[eE]'(?:[^'\\]|''|\\.)*'                # text in which a backslash escapes; in any other it is a letter
    | (?<![\w$])(?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag)   # dollar-quoted text
"""
    + _QUOTED,
    "mysql": r"""
      --(?=\s|\Z)[^\n]*                             # a comment needs a blank; 1--1 is arithmetic
    | \#[^\n]*
    | /\*(?!M?!).*?\*/                              # but not /*! … */, which is executed
    | '(?:[^'\\]|''|\\.)*'
    | "(?:[^"\\]|""|\\.)*"                          # text, too
    | `(?:[^`]|``)*`                                # a name
""",
    "": r"""
      --[^\n]*
    | /\*.*?\*/
    | `(?:[^`]|``)*`
"""
    + _QUOTED,
}
_FAMILY: Final = {"mariadb": "mysql"}
_PATTERNS: Final = {name: re.compile(text, re.VERBOSE | re.DOTALL) for name, text in _NOISE.items()}
_COMMENT: Final = re.compile(r"/\*|\*/")
_ANY: Final = re.compile(r"\b(?:CREATE|ALTER|DROP|TRUNCATE|RENAME|COMMENT|INTO)\b", re.IGNORECASE)
_EXECUTED: Final = re.compile(
    r"""
      EXPLAIN\s*\([^)]*\bANALY[SZ]E\b(?!\s*(?:FALSE|OFF|0))[^)]*\)     # EXPLAIN ANALYZE executes what it explains
    | EXPLAIN\s+(?:VERBOSE\s+)?ANALY[SZ]E\b(?:\s+VERBOSE\b)?
    | SET\s+STATEMENT\b.*?\bFOR\b                                      # MariaDB: variables for one statement
    | /\*M?!\d*
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_DDL: Final = re.compile(
    r"(?P<verb>CREATE|ALTER|DROP|TRUNCATE|RENAME|COMMENT\s+ON)\b(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_QUERY: Final = re.compile(r"(?:SELECT|WITH)\b", re.IGNORECASE)
_INTO: Final = re.compile(
    # After AS and a dot, a name may be any word.
    r"(?P<other>\b(?:INSERT|MERGE|AS)\s+|\.\s*)?\bINTO\b",
    re.IGNORECASE,
)
_TEMPORARY: Final = re.compile(
    r"\s*(?:OR\s+REPLACE\s+)?(?:(?:LOCAL|GLOBAL)\s+)?TEMP(?:ORARY)?\b", re.IGNORECASE
)


@dataclass(slots=True, eq=False)
class _Guard:
    """What one guarded block refuses, and what it has refused."""

    what: str
    hint: str
    connections: bool
    file: str | None = None
    # A thread that ran before a file was loaded does nothing for the file: a heartbeat, say, that renews its lease.
    before: frozenset[threading.Thread] = field(default_factory=lambda: frozenset(threading.enumerate()))
    refused: list[ConfigError] = field(default_factory=list)

    def concerns(self, thread: threading.Thread) -> bool:
        """Return whether a thread may be doing what is refused here."""
        return not (self.connections and thread in self.before)


_here: Final[ContextVar[_Guard | None]] = ContextVar("safedelete_boot_guard", default=None)
_everywhere: list[_Guard] = []
_whole: Final[ContextVar[bool]] = ContextVar("safedelete_whole_process", default=False)
_proving: Final[ContextVar[bool]] = ContextVar("safedelete_proving", default=False)
_listening = False
_starting: Final = threading.Lock()


@contextmanager
def whole_process() -> Iterator[None]:
    """Guard every thread, and not only this one: for the command line, whose process is the job's alone."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


@contextmanager
def refusing_ddl(job: str, *, allowed: bool = False) -> Iterator[None]:
    """Refuse DDL while a job runs.

    Args:
        job: Its name.
        allowed: The job said ``allow_ddl=True``: refuse nothing.

    Raises:
        ConfigError: DDL was tried, even where the job caught what it was told: it would try again every night.
    """
    if allowed:
        yield
        return
    hint = (
        "Make tables and migrate as a deploy step, not in a run. A job that has to (a staging table, a partition) says "
        "allow_ddl=True; temporary tables are allowed in any case."
    )
    with _guarding(_Guard(f"{job} emits DDL while it runs", hint, connections=False)):
        yield


@contextmanager
def refusing_connections(file: Path) -> Iterator[None]:
    """Refuse to open a database connection, and any DDL, while a job file loads.

    Args:
        file: The job file, whose line is told.

    Raises:
        ConfigError: It was tried, even where the file caught what it was told.
    """
    hint = "Declare only; connect inside the job's function. `create_engine` alone is fine."
    with _guarding(_Guard("the job file emits DDL while it loads", hint, connections=True, file=str(file))):
        yield


@contextmanager
def proving() -> Iterator[None]:
    """Let DDL of our own through, which proves a permission and is rolled back."""
    token = _proving.set(True)
    try:
        yield
    finally:
        _proving.reset(token)


@contextmanager
def _guarding(guard: _Guard) -> Iterator[None]:
    _listen()
    token = _here.set(guard)
    if _whole.get():
        _everywhere.append(guard)
    try:
        yield
    finally:
        _here.reset(token)
        if guard in _everywhere:
            _everywhere.remove(guard)
    if guard.refused:
        raise guard.refused[0]


def _listen() -> None:
    global _listening  # noqa: PLW0603  # listeners of a class are the process's
    with _starting:
        if not _listening:
            event.listen(Engine, "do_connect", _on_connect)
            # An Engine with a creator of its own asks nobody before it connects.
            event.listen(Pool, "connect", _on_connect)
            event.listen(Engine, "before_cursor_execute", _on_execute)
            _listening = True


def _now() -> _Guard | None:
    if _proving.get():
        return None
    mine = _here.get()
    if mine is not None:
        return mine
    thread = threading.current_thread()
    return next((guard for guard in reversed(_everywhere) if guard.concerns(thread)), None)


def _on_connect(*_: Any) -> None:
    guard = _now()
    if guard is not None and guard.connections:
        _refuse(guard, "the job file opens a database connection while it loads")


def _on_execute(
    connection: Connection, _cursor: Any, statement: str, _parameters: Any, context: Any, _many: bool
) -> None:
    guard = _now()
    if guard is None:
        return
    compiled = getattr(context, "compiled", None)
    element = getattr(compiled, "statement", None)
    verb = ddl_verb(statement, connection.dialect.name)
    if verb is None and isinstance(element, ExecutableDDLElement) and not _TEMPORARY.search(statement):
        verb = type(element).__name__
    if verb is not None:
        _refuse(guard, f"{guard.what} ({verb})")


def _refuse(guard: _Guard, what: str) -> None:
    error = ConfigError(f"{what}{_where(guard.file)}.", hint=guard.hint, deleted=0 if guard.file else None)
    guard.refused.append(error)
    raise error


def _where(file: str | None) -> str:
    """Say which line did it: the innermost that is neither ours nor SQLAlchemy's, and the line of the given file."""
    by = ""
    for frame, line in walk_stack(None):
        name = frame.f_code.co_filename
        if name == file:
            return f" (line {line}{by})"
        if not by and not name.startswith((_OURS, _SQLALCHEMY, "<")):
            by = f", by {name}:{line}"
            if file is None:
                break
    return f" ({by.removeprefix(', by ')})" if by else ""


def ddl_verb(text: str, dialect: str) -> str | None:
    """Return the word that makes a text DDL, or None; comments, quoted text and temporary tables do not count.

    Args:
        text: One statement or several.
        dialect: SQLAlchemy's name of the database: what is quoted, and what a comment, differs.
    """
    if _ANY.search(text) is None:
        return None
    family = _FAMILY.get(dialect, dialect)
    for statement in _bare(text, family).split(";"):
        verb = _verb(statement, family)
        if verb is not None:
            return verb
    return None


def _bare(text: str, family: str) -> str:
    """Return a text without its comments and without what it quotes."""
    noise = _PATTERNS.get(family, _PATTERNS[""])
    parts: list[str] = []
    at = 0
    while (found := noise.search(text, at)) is not None:
        parts.append(text[at : found.start()])
        at = _past_comment(text, found.end()) if found.groupdict().get("comment") else found.end()
    return " ".join([*parts, text[at:]])


def _past_comment(text: str, at: int) -> int:
    """Return where a comment ends that begins before a place, and may hold others."""
    depth = 1
    for found in _COMMENT.finditer(text, at):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return len(text)


def _verb(statement: str, family: str) -> str | None:
    statement = _stripped(statement)
    while (executed := _EXECUTED.match(statement)) is not None:
        statement = _stripped(statement[executed.end() :])
    found = _DDL.match(statement)
    if found is not None:
        verb = " ".join(found["verb"].upper().split())
        temporary = verb in ("CREATE", "DROP") and _TEMPORARY.match(found["rest"])
        return None if temporary else verb
    # MySQL's INTO fills a variable or a file.
    if family != "mysql" and _QUERY.match(statement):
        for into in _INTO.finditer(statement):
            if into["other"] is None and not _TEMPORARY.match(statement, into.end()):
                return "SELECT INTO"
    return None


def _stripped(statement: str) -> str:
    return statement.lstrip(" \t\r\n\f\v(")
