"""Phase 3: prove every permission the run needs, before the first delete. Changes nothing that was there.

The one thing it ever writes is the canary of ``require_conditional=`` (:mod:`safedelete.s3.canary`), which it removes again.

What cannot be proven stops the run as a denial does: the classic failure is a role that may delete rows but not
objects, and it is only ever found by trying.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

import structlog

from safedelete.core.item import ObjectRef, SealedRow, within
from safedelete.core.plan import Plan
from safedelete.core.seal import RowBatch
from safedelete.errors import PreflightError
from safedelete.phases.parts import Part, RowPart
from safedelete.ports import Presence, Prober, Proof, StoredBatch, Verdict

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
    raise PreflightError(
        "Preflight: " + "; ".join(lines) + ".",
        denied=[proof.subject for proof in denied],
        unknown=[proof.subject for proof in unknown],
        remedies=remedies,
        hint="Missing: " + "\n".join(dict.fromkeys(remedies.values())) if remedies else "",
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
    would go, and every object would stay behind in the right one.

    Args:
        parts: The targets.
        batches: Sealed batches that nothing has been asked of yet.

    Raises:
        PreflightError: Of a sample, fewer than half are there, or it could not be asked for. Nothing was deleted.
    """
    wanted = {
        i for i, p in enumerate(parts) if isinstance(p, RowPart) and p.store is not None and not p.missing_ok
    }
    for stored in batches:
        if not wanted:
            return
        part = parts[stored.ref.target]
        if stored.ref.target not in wanted or not isinstance(part, RowPart) or part.store is None:
            continue
        assert isinstance(stored.items, RowBatch)
        rows = stored.items.rows
        # Each once: rows that share an object are answered for by one presence.
        named = dict.fromkeys(ref for row in rows for ref in row.objects if not within(ref, row.prefixes))
        refs = list(named)[:SAMPLE]
        # Below a prefix the listing that sealed it has looked; where it found nothing, there was nothing.
        prefixes = [
            any(within(ref, [prefix]) for ref in row.objects) for row in rows for prefix in row.prefixes
        ]
        sampled = len(refs) + len(prefixes)
        if sampled < FEWEST:
            continue
        wanted.discard(stored.ref.target)
        there = Counter(part.store.presence(refs).values()) if refs else Counter[Presence]()
        present = there[Presence.PRESENT] + sum(prefixes)
        if present * 2 < sampled:
            unknown = there[Presence.UNKNOWN]
            kind = "objects" if not prefixes else "prefixes" if not refs else "objects and prefixes"
            verb = "there" if not prefixes else "there, or have something below them"
            what = f"{present} of {sampled} sampled {kind} that rows of {part.target.name} name are {verb}"
            raise PreflightError(
                f"Preflight: only {what}" + (f", and {unknown} could not be asked for." if unknown else "."),
                unknown=[f"the objects of {part.target.name}"] if unknown else [],
                denied=[] if unknown else [f"the objects of {part.target.name}"],
                hint="Check bucket, prefix, account and endpoint. If the objects went before their rows on purpose (a "
                "lifecycle rule), say S3Keys(..., missing_ok=True).",
            )
