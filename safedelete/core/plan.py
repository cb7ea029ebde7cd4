"""What a plan says: how much would go, of how much, and what goes along with it.

A plan is counts and a picture, not yet the exact items: those are sealed afterwards (``core/seal.py``), and the
plan is decided again on the sealed counts. All instants are aware UTC datetimes; a cutoff is exclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Unknown:
    """A number that could not be had, and why; never to be taken for zero."""

    why: str

    def __str__(self) -> str:
        return f"unknown ({self.why})"


def length(period: timedelta) -> str:
    """Return a retention in words: in days, or, below one, in the largest unit that it fills.

    A retention of an hour in days is 0.0416667, and nobody sees that it should have been 0.5.
    """
    seconds = period.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if not period or abs(seconds) >= size:
            return f"{seconds / size:g} {unit}{'s' * (seconds != size)}"
    return f"{seconds:g} seconds"


Count: TypeAlias = int | Unknown
"""A number of rows, objects or bytes, or the reason there is none."""


CascadeAction: TypeAlias = Literal["delete", "set null", "set default", "block"]


@dataclass(frozen=True, slots=True)
class Cascade:
    """What deleting the planned rows does to one other table.

    Attributes:
        table: The child table, schema-qualified where it is not in the default schema.
        action: What the foreign key does: deletes, alters, or blocks the parent's deletion.
        rows: For ``block``, the number of *planned* rows that are referenced; else, of child rows touched.
        via: The constraint or path, for a person to find it.
    """

    table: str
    action: CascadeAction
    rows: Count
    via: str = ""


@dataclass(frozen=True, slots=True)
class AgeProfile:
    """The target's time column around the cutoff, a day at a time; the guard's look-ahead.

    Day ``d`` counts the rows that match the predicate *without its age test* and whose instant lies in
    ``[cutoff + d days, cutoff + (d + 1) days)``. So ``d < 0`` is eligible tonight, ``d = 0`` becomes eligible
    within the next 24 h, and so on.

    Attributes:
        days: ``(d, rows)`` for each d in ``[-back, ahead)`` with rows > 0, ascending.
        older: Eligible rows older than ``cutoff - back`` days.
        back: Days looked back.
        ahead: Days looked ahead.
    """

    days: tuple[tuple[int, int], ...] = ()
    older: int = 0
    back: int = 60
    ahead: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetPlan:
    """One target's numbers.

    Attributes:
        name: Stable name in findings, ledger and baseline: the table's name, or ``s3://bucket/prefix``.
        kind: Whether the items are rows or objects.
        items: Items this run would delete: all that are eligible, or the portion ``per_run`` allows.
        eligible: Items that match at the cutoff.
        total: Rows of the table, or objects under the prefix.
        objects: Objects that go: those the rows own, or the items themselves.
        bytes: Their size; None where the plan knows no sizes.
        nulls: Rows whose time column is NULL: kept, and counted so that nobody is surprised.
        ageless: Rows that match the predicate *without its age test*; None where there is no age test.
        late: Rows that became eligible out of time: they match at the cutoff of the last successful run, which
            should have left none; None where there is no such run. What that run itself left behind (blocked,
            a portion's rest) is already taken off.
        left: What was taken off: rows that the last run left behind and that match still; None where nothing says.
        cutoff: The instant the items are older than, exclusive; None for a purge without a time.
        period: The retention: how far the cutoff lies behind the plan's instant, or less than a day farther where the time
            column holds dates; None as above.
        cascades: What happens to other tables.
        ages: The day-by-day picture; None where there is no single time column, Unknown where it could not be
            had (no index on a large table, for one).
        conditional: Objects that the plan knows an ETag or VersionId for, so that one overwritten since is kept.
        statement: The predicate as SQL, or the listing in words.
        parameters: Its parameters as they would be sent, rendered for reading.
        first: The first item in key order, rendered.
        last: The last one.
        sample: A few items, rendered.
        objections: Why the numbers above must not be acted on, whatever they are; each refuses.
        notes: What a reader should know (replicas survive, sample too coarse to see a policy, …).
    """

    name: str
    kind: Literal["rows", "objects"]
    items: Count
    eligible: Count
    total: Count
    objects: Count = 0
    bytes: Count | None = None
    nulls: Count = 0
    ageless: Count | None = None
    late: Count | None = None
    left: Count | None = None
    cutoff: datetime | None = None
    period: timedelta | None = None
    cascades: tuple[Cascade, ...] = ()
    ages: AgeProfile | Unknown | None = None
    conditional: Count = 0
    statement: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    first: str = ""
    last: str = ""
    sample: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One purge, counted at one instant.

    Attributes:
        job: The purge's name.
        as_of: The frozen instant that every cutoff derives from.
        fingerprint: Hash of the definition: predicate, retention, targets, keys. Two plans with one fingerprint
            would select the same items from the same data at the same instant.
        targets: In the order of execution.
        portion: ``per_run`` where a backlog is drained N items a run, else None.
        environment: What the ledger is bound to.
        database: Identity of the target database.
        caller: Database role and AWS identity that planned.
        digest: Hash over the sealed items; None until sealed.
    """

    job: str
    as_of: datetime
    fingerprint: str
    targets: tuple[TargetPlan, ...]
    portion: int | None = None
    environment: str = "default"
    database: str = ""
    caller: str = ""
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """An earlier run of the same purge, as far as the guard needs it.

    Attributes:
        run: Its id.
        plan: Its plan as decided on the sealed counts.
        state: The final run state, by value (``succeeded``, ``refused``, …).
        finished_at: When it ended; None where it never did.
        deleted: Items deleted, by target name.
        over: Items sealed that were gone, or did not match any more, when their turn came, by target name.
        teaches: How the run enters the baseline when it succeeded: as one run, as none (``--one-off``), or as two
            (``--usual``).
        overrules: Ids of runs that had the wrong clock, named by the finding SD112 that this run's approval
            accepted; the guard leaves them out for good.
    """

    run: str
    plan: Plan
    state: str
    finished_at: datetime | None = None
    deleted: Mapping[str, int] = field(default_factory=dict)
    over: Mapping[str, int] = field(default_factory=dict)
    teaches: Literal[0, 1, 2] = 1
    overrules: tuple[str, ...] = ()
