"""What a test asks of the kit, looked at before anything is made up: a word that names nothing would prove nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis.strategies import SearchStrategy
from sqlalchemy import Column

from safedelete.declare import Purge
from safedelete.errors import ConfigError
from safedelete.testing.promises import PROMISES
from safedelete.testing.scene import Subject, element


def check_purges(purge: Any, beside: Any) -> None:
    """Raise unless one is a purge, and the other are some."""
    if not isinstance(purge, Purge):
        raise ConfigError(
            f"assert_purge_is_safe({type(purge).__name__}): it holds a Purge to its promises, one at a time.",
            hint="Give it a Purge of your job file. What a @job function deletes is tested by through=, with a Purge that says "
            "what should happen.",
        )
    if isinstance(beside, Purge) or not all(isinstance(other, Purge) for other in beside):
        raise ConfigError("beside= takes a list of purges.", hint="beside=[logins, scratch].")


def check_examples(examples: int) -> None:
    """Raise unless there is one."""
    if examples < 1:
        raise ConfigError(f"examples={examples}: at least one is needed.", hint="Leave it out for three.")


def check_words(subject: Subject, *, accept: Any, also_deletes: Any, also_changes: Any) -> None:
    """Raise unless every name is that of a promise, or of a table that there is."""
    tables = sorted({t.fullname for metadata in subject.metadata for t in metadata.tables.values()})
    for argument, given, known, kind in (
        ("accept", accept, list(PROMISES), "promise"),
        ("also_deletes", also_deletes, tables, "table of these purges' metadata"),
        ("also_changes", also_changes, tables, "table of these purges' metadata"),
    ):
        if isinstance(given, str):
            raise ConfigError(f"{argument}={given!r} is no list.", hint=f"{argument}=[{given!r}].")
        unknown = next((word for word in given if word not in known), None)
        if unknown is not None:
            raise ConfigError(f"{argument}={unknown!r} is no {kind}.", hint=f"There are {', '.join(known)}.")


def check_names(names: Any) -> None:
    """Raise unless it is lists of columns, by bucket."""
    if names is None:
        return
    if not isinstance(names, Mapping) or not all(isinstance(v, Sequence) for v in names.values()):
        raise ConfigError(
            "names= takes lists of columns by bucket.", hint='names={"acme-uploads": [Avatar.picture]}.'
        )
    for column in (column for columns in names.values() for column in columns):
        if isinstance(column, str) or not hasattr(element(column), "get_children"):
            raise ConfigError(
                f"names=: {column!r} is no column, nor an SQL expression.",
                hint='names={"acme-uploads": [Avatar.picture]}.',
            )


def check_columns(subject: Subject, columns: Any) -> None:
    """Raise unless each is a column that is filled as the test says, and a strategy."""
    times = [(rows.table, test.cutoff.column) for rows in subject.rows for test in rows.age_tests]
    for given, strategy in columns.items():
        column = element(given)
        if not isinstance(column, Column):
            raise ConfigError(
                f"columns=: {given!r} is no column.",
                hint="Name it as a model's attribute or a table's column: columns={Upload.state: strategy}.",
            )
        name = f"{column.table.fullname}.{column.name}"
        if column.table not in subject.tables:
            raise ConfigError(
                f"columns=: no row of {column.table.fullname} is made up for {subject.purge.name}, so {name} says nothing.",
                hint=f"Filled are {', '.join(t.fullname for t in subject.tables)}.",
            )
        if not isinstance(strategy, SearchStrategy):
            raise ConfigError(
                f"columns=: what may stand in {name} is no Hypothesis strategy, but {strategy!r}.",
                hint="st.sampled_from([...]) for one of several values, st.just(...) for one.",
            )
        if any(column.table is table and word in (column.key, column.name) for table, word in times):
            raise ConfigError(
                f"columns=: {name} tells how old a row is, and is filled around its cutoff whatever a test says.",
                hint="Leave it out; a night of your own sets it by lab.add().",
            )
