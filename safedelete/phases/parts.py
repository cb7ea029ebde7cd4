"""A purge's targets as the phases are handed them, and the two ways a run can be asked to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from safedelete.core.plan import Cascade, TargetPlan
from safedelete.phases.below import OwningRows
from safedelete.ports import (
    Clock,
    Lease,
    Ledger,
    ObjectReader,
    ObjectTarget,
    OwnedReader,
    Prober,
    References,
    RowReader,
    RowTarget,
)
from safedelete.ports import ObjectStore as Store


@dataclass(frozen=True, slots=True)
class RowPart:
    """A table target, with the store of the objects its rows own.

    Attributes:
        target: The table.
        store: Where owned objects are; None where rows own none.
        probers: What proves the permissions it needs.
        may_touch: Tables that triggers may write to.
        missing_ok: Whether most objects may be gone before their rows.
        owned: Reads the buckets of owned objects; None where rows own none.
        sharing: Other tables, of this purge or another of its file, whose rows name objects in the same buckets.
    """

    target: RowTarget
    store: Store | None
    probers: tuple[Prober, ...] = ()
    may_touch: frozenset[str] = frozenset()
    sharing: tuple[RowTarget, ...] = ()
    missing_ok: bool = False
    owned: OwnedReader | None = None

    @property
    def reader(self) -> RowReader:
        """The table for planning, with what only the store can say of its rows' objects."""
        return self.target if self.owned is None else OwningRows(self.target, self.owned)


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """A target of objects alone.

    Attributes:
        target: The objects.
        probers: What proves the permissions it needs.
        references: Where its objects are orphans, what rows name: asked before each request.
    """

    target: ObjectTarget
    probers: tuple[Prober, ...] = ()
    references: References | None = None

    @property
    def reader(self) -> ObjectReader:
        """The prefix for planning."""
        return self.target


Part: TypeAlias = RowPart | ObjectPart

Brake: TypeAlias = Callable[[], str | None]
"""Returns why the run should pause, or None; whatever it raises means that this cannot be told."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a phase's name, items done, and items in all."""


def quiet(_phase: str, _done: int, _total: int) -> None:
    """Report no progress."""


class Stop:
    """How a run learns that it has to end; both checks are plain reads.

    Args:
        between: Raises between batches once the deadline has passed, or a stop or cancellation was asked for.
        within: Raises inside a batch only when its last moment has come, so that a batch in flight is finished
            rather than left in doubt.
        before: As ``between``, while nothing has been deleted yet, so that what it raises can say so.
    """

    def __init__(
        self,
        between: Callable[[], None],
        within: Callable[[], None],
        before: Callable[[], None] | None = None,
    ) -> None:
        self.between = between
        self.within = within
        self.before = before or between


def never() -> None:
    """Never stop."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What executing needs beside the targets."""

    ledger: Ledger
    lease: Lease
    clock: Clock
    stop: Stop
    progress: Progress
    jitter: Callable[[], float] = lambda: 0.0
    """In [0, 1): how much of half a pause to leave out."""
    brakes: Sequence[Brake] = ()
    """Asked before each batch for a reason to pause."""


@dataclass(slots=True)
class Radius:
    """What one target's deletions may touch beside the rows they name, and what they have touched so far.

    Attributes:
        own: The target's table name.
        extra: Rows of its own that may go beside the named ones: those that a planned cascade takes.
        allowed: Rows each other table may lose or have altered, as planned.
        free: Tables that triggers may write to without a count.
        spent: What was touched in committed batches; of its own table, beside the named rows.
    """

    own: str
    extra: int
    allowed: Mapping[str, int]
    free: frozenset[str]
    spent: dict[str, int] = field(default_factory=dict)

    @classmethod
    def planned(cls, plan: TargetPlan, *, free: frozenset[str]) -> Radius:
        """Take the limits from a plan; a cascade whose size is unknown allows none."""
        allowed: dict[str, int] = {}
        for cascade in plan.cascades:
            if cascade.action != "block":
                allowed[cascade.table] = allowed.get(cascade.table, 0) + _rows(cascade)
        return cls(plan.name, allowed.pop(plan.name, 0), allowed, free)

    def broken_by(self, touched: Mapping[str, int], *, named: int) -> str:
        """Say what in this batch lies outside the plan; empty when nothing does.

        Args:
            touched: Rows touched by table, as the database says.
            named: Rows of its own that the batch deleted by name.
        """
        for table, rows in touched.items():
            if table in self.free:
                continue
            beside = self._beside(table, rows, named)
            limit = self.extra if table == self.own else self.allowed.get(table)
            total = self.spent.get(table, 0) + beside
            if beside and limit is None:
                return f"{beside:,} row(s) of {table} were touched; the plan names no such table"
            if beside and limit is not None and total > limit:
                which = "row(s) beside the sealed ones" if table == self.own else "row(s)"
                return f"{total:,} {which} of {table} would have been touched; the plan allows {limit:,}"
        return ""

    def spend(self, touched: Mapping[str, int], *, named: int) -> None:
        """Take a committed batch off what is allowed."""
        for table, rows in touched.items():
            self.spent[table] = self.spent.get(table, 0) + self._beside(table, rows, named)

    def _beside(self, table: str, rows: int, named: int) -> int:
        return max(0, rows - named) if table == self.own else rows


def _rows(cascade: Cascade) -> int:
    return cascade.rows if isinstance(cascade.rows, int) else 0
