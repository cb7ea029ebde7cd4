"""Phase 4: write the exact keys into the ledger, batch by batch, and count again what was written.

Deletes nothing. The guard decides a second time on the sealed counts, so that whatever changed between counting and
sealing is decided on too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from safedelete.core.item import KeyRows, ObjectRef, SealedRow
from safedelete.core.plan import Count, Plan, TargetPlan
from safedelete.core.seal import ObjectBatch, RowBatch, digest
from safedelete.errors import RefusedError
from safedelete.phases.parts import ObjectPart, Part, Progress, RowPart, Stop
from safedelete.phases.preflight import Groups
from safedelete.ports import BatchRef, Ledger

ROWS_A_BATCH: Final = 20_000
"""Rows without objects: most of one transaction, which takes less wherever that many take too long."""

OWNERS_A_BATCH: Final = 5_000
"""Rows with objects: as above; after a crash the objects of at most these are in doubt."""

OBJECTS_A_BATCH: Final = 4_000
"""Objects alone: as many DeleteObjects requests as are under way at once."""


TOO_MANY: Final = "SD104"
"""Finding of a plan with more items than may be sealed."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed plan: its counts are those of the keys in the ledger, and its digest is over them."""

    plan: Plan
    bytes: int
    groups: Groups


@dataclass(slots=True)
class _Sum:
    items: int = 0
    objects: int = 0
    size: int | None = 0
    conditional: int = 0

    def add(self, refs: Sequence[ObjectRef]) -> None:
        self.objects += len(refs)
        for ref in refs:
            self.conditional += ref.etag is not None or ref.version is not None
            if ref.size is None:
                self.size = None
            elif self.size is not None:
                self.size += ref.size


def seal(
    plan: Plan,
    parts: Sequence[Part],
    ledger: Ledger,
    run: str,
    *,
    max_sealed: int,
    stop: Stop,
    progress: Progress,
) -> Sealed:
    """Seal every eligible item of every target. Writes to the ledger; deletes nothing.

    Args:
        plan: The plan that was counted.
        parts: Its targets.
        ledger: Where to.
        run: The run's id.
        max_sealed: Most items in all.
        stop: Checked between batches.
        progress: Told after each batch.

    Returns:
        The plan on sealed counts, with its digest, and what the seal costs in the ledger.

    Raises:
        RefusedError: More than ``max_sealed`` items; nothing was deleted.
    """
    spent = total = 0
    expected = sum(t.items for t in plan.targets if isinstance(t.items, int))
    groups = Groups()
    targets = []
    for index, (part, target) in enumerate(zip(parts, plan.targets, strict=True)):
        counts = _Sum()
        for seq, batch in enumerate(_scan(plan, part)):
            stop.before()
            total += len(batch)
            if total > max_sealed:
                ledger.drop_seal(run)
                raise RefusedError(
                    f"{plan.job}: more than {max_sealed:,} items would be sealed; max_sealed is {max_sealed:,}.",
                    findings=(TOO_MANY,),
                    hint="Drain the backlog with per_run=N, or raise max_sealed in the job file.",
                )
            spent += ledger.seal(BatchRef(run, index, seq), batch)
            refs = _objects(batch)
            counts.items += len(batch)
            counts.add(refs)
            groups.add(refs)
            progress("seal", total, expected)
        targets.append(_counted(target, counts, part))
    sealed = replace(plan, targets=tuple(targets))
    return Sealed(
        replace(sealed, digest=digest(plan.fingerprint, plan.as_of, ledger.checksums(run))), spent, groups
    )


def pages(plan: Plan, part: Part) -> Iterator[Sequence[SealedRow] | Sequence[ObjectRef]]:
    """Yield what would be sealed, a batch at a time. Reads only."""
    for batch in _scan(plan, part):
        yield batch.objects if isinstance(batch, ObjectBatch) else batch.rows


def _objects(batch: RowBatch | ObjectBatch) -> Sequence[ObjectRef]:
    if isinstance(batch, ObjectBatch):
        return batch.objects
    if isinstance(batch.rows, KeyRows):
        return ()
    return tuple(chain.from_iterable(row.objects for row in batch.rows))


def _scan(plan: Plan, part: Part) -> Iterator[RowBatch | ObjectBatch]:
    if isinstance(part, ObjectPart):
        for refs in part.target.scan(plan.as_of, batch=OBJECTS_A_BATCH, portion=plan.portion):
            yield ObjectBatch(refs)
        return
    size = OWNERS_A_BATCH if part.target.owns_objects else ROWS_A_BATCH
    for rows in part.reader.scan(plan.as_of, batch=size, portion=plan.portion):
        yield RowBatch(rows)


def _counted(target: TargetPlan, counts: _Sum, part: Part) -> TargetPlan:
    objects: Count = counts.objects
    size: Count | None = target.bytes if counts.size is None or counts.objects == 0 else counts.size
    if isinstance(part, RowPart) and part.target.shares_objects and isinstance(target.objects, int):
        # The same object sealed with several rows is one object; the survey counted distinct keys, and their bytes once.
        objects, size = target.objects, target.bytes
    return replace(target, items=counts.items, objects=objects, bytes=size, conditional=counts.conditional)
