"""Phase 3: prove every permission the run needs, before the first delete. Changes nothing that was there.

The one thing it ever writes is the canary of ``require_conditional=`` (:mod:`safedelete.s3.canary`), which it removes again.

What cannot be proven stops the run as a denial does: the classic failure is a role that may delete rows but not
objects, and it is only ever found by trying.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final

import structlog

from safedelete.core.item import ObjectRef, SealedRow, within
from safedelete.core.plan import Plan
from safedelete.core.seal import RowBatch
from safedelete.errors import PreflightError
from safedelete.phases.parts import Part, RowPart
from safedelete.ports import ObjectStore, Presence, Prober, Proof, StoredBatch, Verdict

log = structlog.get_logger("safedelete.preflight")

SAMPLE: Final = 100
"""Most objects that are asked for before the first delete: a few seconds of HEADs at worst."""

FEWEST: Final = 5
"""Below this, absent objects say nothing about the place."""

GROUPS: Final = 1000
"""Most (bucket, parent, extension) groups that are probed: one DeleteObjects request holds that many."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """Proof that one plan's permissions were there; only :func:`preflight` makes it.

    Attributes:
        job: The purge.
        fingerprint: The definition that was probed.
        as_of: The plan's instant.
        proofs: Everything that was proven.
    """

    job: str
    fingerprint: str
    as_of: datetime
    proofs: tuple[Proof, ...]


class Groups:
    """Collects one object for each (bucket, parent, extension), as many as one probe can hold."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], ObjectRef] = {}
        self.overflow = False

    def add(self, refs: Iterable[ObjectRef]) -> None:
        """Take in objects; memory stays bounded."""
        for ref in refs:
            parent, _, name = ref.key.rpartition("/")
            place = (ref.bucket, parent, name.rpartition(".")[2] if "." in name else "")
            if place in self._found:
                continue
            if len(self._found) >= GROUPS:
                self.overflow = True
                return
            self._found[place] = ref

    def sample(self) -> tuple[ObjectRef, ...]:
        """Return one object of each group that was seen, at most :data:`GROUPS`."""
        return tuple(self._found.values())

    def notes(self) -> tuple[str, ...]:
        """Say what the sample leaves out; nothing when it holds every group."""
        if not self.overflow:
            return ()
        note = (
            f"The objects lie in more than {GROUPS:,} groups (bucket, folder, extension): permissions were proven on "
            f"one object of the first {GROUPS:,}; a policy on a later folder shows only when its objects are deleted."
        )
        return (note,)


def first_objects(
    pages: Iterable[Sequence[SealedRow] | Sequence[ObjectRef]], *, pages_read: int = 1
) -> Groups:
    """Collect groups from the first pages of a scan, for a probe before anything is sealed. Reads only."""
    groups = Groups()
    for page in islice(pages, pages_read):
        groups.add(_refs(page))
    return groups


def _refs(page: Sequence[SealedRow] | Sequence[ObjectRef]) -> Iterator[ObjectRef]:
    for item in page:
        if isinstance(item, SealedRow):
            yield from item.objects
        else:
            yield item


def prove(as_of: datetime, probers: Sequence[Prober], sample: Sequence[ObjectRef]) -> tuple[Proof, ...]:
    """Run every probe and return what each found. Changes nothing that was there; may put and remove a canary."""
    proofs = tuple(proof for prober in probers for proof in prober.probe(as_of, sample))
    for proof in proofs:
        log.info("permission", subject=proof.subject, verdict=proof.verdict.value, detail=proof.detail)
    return proofs


def require(proofs: Sequence[Proof]) -> None:
    """Raise unless every proof is a yes.

    Raises:
        PreflightError: Names what is denied or unknown, and the statement that is missing.
    """
    denied = [proof for proof in proofs if proof.verdict is Verdict.DENIED]
    unknown = [proof for proof in proofs if proof.verdict is Verdict.UNKNOWN]
    if not denied and not unknown:
        return
    lines = [f"denied: {p.subject} ({p.detail})" if p.detail else f"denied: {p.subject}" for p in denied]
    lines += [f"could not be proven: {p.subject} ({p.detail})" for p in unknown]
    remedies = {proof.subject: proof.remedy for proof in (*denied, *unknown) if proof.remedy}
    hints = ["Missing: " + "\n".join(dict.fromkeys(remedies.values()))] if remedies else []
    if any(proof.subject not in remedies for proof in unknown):
        hints.append(
            "What could not be proven was answered neither yes nor no: look at the answer, and run again."
        )
    raise PreflightError(
        "Preflight: " + "; ".join(lines) + ".",
        denied=[proof.subject for proof in denied],
        unknown=[proof.subject for proof in unknown],
        remedies=remedies,
        hint="\n".join(hints)
        or "The role or the endpoint refuses it: look at the answer, and grant what it names.",
    )


def preflight(plan: Plan, probers: Sequence[Prober], sample: Sequence[ObjectRef]) -> Cleared:
    """Prove every permission that executing this plan needs. Changes nothing that was there; may put and remove a canary.

    Args:
        plan: The plan.
        probers: One or more for each target.
        sample: Objects of the plan, one of each group.

    Raises:
        PreflightError: Something is denied, or could not be proven.
    """
    proofs = prove(plan.as_of, probers, sample)
    require(proofs)
    return Cleared(plan.job, plan.fingerprint, plan.as_of, proofs)


def require_objects(parts: Sequence[Part], batches: Iterable[StoredBatch]) -> None:
    """Ask for some of the sealed objects before the first delete: far fewer than rows name means a wrong place. Reads only.

    A store acknowledges the deletion of an object that was never there. In a wrong bucket, account or endpoint every row
    would go, and every object would stay behind in the right one. Each bucket is judged by itself: of rows that own objects
    in two, half are there when one of the two is wrong.

    Args:
        parts: The targets.
        batches: Sealed batches that nothing has been asked of yet; read until every bucket met so far is judged.

    Raises:
        PreflightError: Of a bucket's sample, fewer than half are there, or it could not be asked for. Nothing was deleted.
    """
    wanted = {
        i for i, p in enumerate(parts) if isinstance(p, RowPart) and p.store is not None and not p.missing_ok
    }
    open_samples: dict[tuple[int, str], _Sample] = {}
    judged: set[tuple[int, str]] = set()
    for stored in batches:
        if not wanted:
            return
        target = stored.ref.target
        part = parts[target]
        if target not in wanted or not isinstance(part, RowPart) or part.store is None:
            continue
        assert isinstance(stored.items, RowBatch)
        for row in stored.items.rows:
            for ref in row.objects:
                if (target, ref.bucket) not in judged and not within(ref, row.prefixes):
                    open_samples.setdefault((target, ref.bucket), _Sample()).add(ref)
            for prefix in row.prefixes:
                if (target, prefix.bucket) not in judged:
                    # Below a prefix the listing that sealed it has looked; where it found nothing, there was nothing.
                    something = any(within(ref, [prefix]) for ref in row.objects)
                    open_samples.setdefault((target, prefix.bucket), _Sample()).prefixes.append(something)
        for place in [place for place, sample in open_samples.items() if sample.says_something]:
            judged.add(place)
            open_samples.pop(place).judge(part.target.name, place[1], part.store)
        # A sample of an earlier batch that says nothing yet is filled by the next ones.
        if not any(place[0] == target for place in open_samples) and any(p[0] == target for p in judged):
            wanted.discard(target)


@dataclass(slots=True)
class _Sample:
    """Some of what the rows of one target own in one bucket.

    Attributes:
        refs: Each once: rows that share an object are answered for by one presence.
        prefixes: For each prefix, whether something lies below it.
    """

    refs: dict[ObjectRef, None] = field(default_factory=dict)
    prefixes: list[bool] = field(default_factory=list)

    def add(self, ref: ObjectRef) -> None:
        """Take in an object; memory stays bounded."""
        if len(self.refs) < SAMPLE:
            self.refs[ref] = None

    @property
    def says_something(self) -> bool:
        """Whether it is large enough to be judged by."""
        return len(self.refs) + len(self.prefixes) >= FEWEST

    def judge(self, table: str, bucket: str, store: ObjectStore) -> None:
        """Raise unless at least half is there. Reads only."""
        there = Counter(store.presence(list(self.refs)).values()) if self.refs else Counter[Presence]()
        sampled = len(self.refs) + len(self.prefixes)
        present = there[Presence.PRESENT] + sum(self.prefixes)
        if present * 2 >= sampled:
            return
        unknown = there[Presence.UNKNOWN]
        kind = "objects" if not self.prefixes else "prefixes" if not self.refs else "objects and prefixes"
        verb = "there" if not self.prefixes else "there, or have something below them"
        what = (
            f"{present} of {sampled} sampled {kind} that rows of {table} name in bucket {bucket} are {verb}"
        )
        raise PreflightError(
            f"Preflight: only {what}" + (f", and {unknown} could not be asked for." if unknown else "."),
            unknown=[f"the objects of {table}"] if unknown else [],
            denied=[] if unknown else [f"the objects of {table}"],
            hint="Check bucket, prefix, account and endpoint. If the objects went before their rows on purpose (a "
            "lifecycle rule), say S3Keys(..., missing_ok=True).",
        )
