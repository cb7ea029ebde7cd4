"""The promises, asked of the stores: what may have changed between two looks, and what the ledger must say about it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from safedelete import Rows, S3Orphans
from tests.crash.purges import NAMES_FROM, PREFIX, mode_of, target_of
from tests.crash.world import Claim, LedgerRun, Place, Row, Stores, Written

FINISHED = {"succeeded", "failed", "incomplete", "abandoned", "refused"}
BAD = {"failed", "unknown"}
GONE = {"deleted", "gone"}
LOUD = {("failed", "dangling"), ("unknown", "unreachable"), ("unknown", "unseen")}


@dataclass(frozen=True)
class Names:
    """Which objects a row owns, by a definition."""

    places: tuple[tuple[str, str], ...]
    """Bucket and column."""
    folders: tuple[tuple[str, str], ...] = ()
    """The same of columns that hold a prefix."""
    by_version: bool = False
    """Whether what lies below a prefix is every version of it, rather than what is current."""

    @classmethod
    def of(cls, purge: str) -> Names:
        target = target_of(purge)
        owned = target.owns if isinstance(target, Rows) else ()
        return cls(
            tuple((keys.bucket, str(column.key)) for keys in owned for column in keys.columns),
            tuple((keys.bucket, str(keys.prefix.key)) for keys in owned if keys.prefix is not None),
            mode_of(purge) == "purge",
        )

    def __call__(self, row: Row, among: Iterable[Place]) -> frozenset[Place]:
        """Return the objects that a row names, and those among some others which lie below its prefix."""
        named = {(bucket, getattr(row, column)) for bucket, column in self.places}
        above = [(bucket, f"{getattr(row, column)}/") for bucket, column in self.folders]
        below = {
            place
            for place in (among if above else ())
            for bucket, prefix in above
            if place[0] == bucket and place[1].startswith(prefix)
        }
        return frozenset(place for place in named | below if place[1] is not None)

    def sealed(self, i: int, there: Stores, runs: Sequence[LedgerRun]) -> bool:
        """Whether a row was sealed as it is there: with the keys it names, and with all that lies below its prefix."""
        mine = self(there.rows[i], there.objects)
        claims = [claim for run in runs for claim in run.claims if claim.item == i]
        if not self.folders:
            return any(mine == claim.named for claim in claims)
        if self.by_version:
            exact = {(place, version.name) for place in mine for version in there.versions[place]}
        else:
            exact = {(place, there.objects[place]) for place in mine}
        # Some of it may have gone since, in a run that died.
        return any(exact <= claim.exact for claim in claims)


def nothing_but_the_sealed_went(
    before: Stores, after: Stores, runs: Sequence[LedgerRun], names: Names
) -> Iterator[str]:
    """Executed ⊆ sealed, and no row is gone while an object of its is still there."""
    for i, row in before.rows.items():
        if i in after.rows:
            if after.rows[i] != row:
                yield f"row {i} was altered: {row}, now {after.rows[i]}"
            continue
        if not row.due:
            yield f"row {i} is gone, though it was not due"
        if not names.sealed(i, before, runs):
            yield f"row {i} is gone, though it was not sealed as it was"
        for place in sorted(names(row, after.objects) & after.objects.keys()):
            yield f"row {i} is gone, and its object {place} is still there"
    if not (names.places or names.folders):
        yield from (f"object {place} is gone" for place in before.objects if place not in after.objects)
        return
    owners = {place: i for i, row in before.rows.items() for place in names(row, before.objects) if row.due}
    gone = {place: f"object {place} is gone" for place in before.objects if place not in after.objects}
    for place, lost in lost_versions(before, after).items():
        gone.setdefault(place, f"{len(lost)} version(s) of {place} are gone")
    for place, what in gone.items():
        owner = owners.get(place)
        if owner is None:
            yield f"{what}, though no row that was due named it"
        elif not names.sealed(owner, before, runs):
            yield f"{what}, though row {owner} was not sealed as it was"


def nothing_but_the_sealed_objects_went(
    before: Stores, after: Stores, runs: Sequence[LedgerRun]
) -> Iterator[str]:
    """As above for a prefix purge: only sealed objects, as they were when they were sealed."""
    sealed = {place for run in runs for claim in run.claims for place in claim.named}
    for place, etag in before.objects.items():
        if place in after.objects:
            continue
        if place not in sealed:
            yield f"object {place} is gone, though it was not sealed"
        if etag != OLD_ETAG:
            yield f"object {place} is gone, though it was overwritten since it was sealed"
    if before.rows != after.rows:
        yield "rows changed"


def nothing_but_the_sealed_versions_went(
    before: Stores, after: Stores, runs: Sequence[LedgerRun]
) -> Iterator[str]:
    """As above for each version and marker."""
    sealed = {exact for run in runs for claim in run.claims for exact in claim.exact}
    for place, lost in lost_versions(before, after).items():
        for version in lost:
            if (place, version) not in sealed:
                yield f"version {version} of {place} is gone, though it was not sealed"
    if before.rows != after.rows:
        yield "rows changed"


def nothing_is_gone_for_good(before: Stores, after: Stores) -> Iterator[str]:
    """Where objects are to be hidden, every version is kept."""
    for place, lost in lost_versions(before, after).items():
        yield f"version(s) {', '.join(lost)} of {place} are gone, which was only to be hidden"


def lost_versions(before: Stores, after: Stores) -> dict[Place, list[str]]:
    """Return the versions and markers that are not there any more."""
    left = {place: {version.name for version in kept} for place, kept in after.versions.items()}
    lost = {
        place: [version.name for version in kept if version.name not in left.get(place, ())]
        for place, kept in before.versions.items()
    }
    return {place: names for place, names in lost.items() if names}


def nothing_old_came_back(before: Stores, after: Stores) -> Iterator[str]:
    """What a newer version or a marker has replaced never shows again."""
    for place, kept in after.versions.items():
        shown, earlier = kept[-1], before.versions.get(place, ())
        if not shown.marker and shown.name in {version.name for version in earlier[:-1]}:
            yield f"version {shown.name} of {place} came back to life"


def named_by_rows(stores: Stores, bucket: str) -> set[Place]:
    """Return the objects of the prefix that a row names, as the purge of orphans has it."""
    keys = [f"{PREFIX}{i}.bin" for i in stores.rows if i >= NAMES_FROM]
    keys += [row.thumb_key for row in stores.rows.values() if row.thumb_key]
    return {(bucket, key) for key in keys}


def no_named_object_went(before: Stores, after: Stores, bucket: str) -> Iterator[str]:
    """What a row names stays, with every version of it."""
    gone = (before.objects.keys() - after.objects.keys()) | lost_versions(before, after).keys()
    for place in sorted(named_by_rows(before, bucket) & gone):
        yield f"object {place} is gone, and a row names it"


OLD_ETAG = "149603e6c03516362a8da23f624db945"
"""Of the content that every seeded object has: b"old"."""


def dangling(stores: Stores, names: Names, ever: frozenset[Place]) -> dict[int, list[Place]]:
    """Return the rows that name an object which was there once and is not any more."""
    lost = {i: sorted((names(row, ever) & ever) - stores.objects.keys()) for i, row in stores.rows.items()}
    return {i: places for i, places in lost.items() if places}


def no_loss_is_quiet(
    after: Stores, runs: Sequence[LedgerRun], names: Names, ever: frozenset[Place], told: Collection[str]
) -> Iterator[str]:
    """A row without its object is failed(dangling) in the ledger, and a process or a run in the ledger ended with more than 0.

    Where its bucket is not declared any more nobody can look, and the ledger says that it does not know.
    """
    for i, places in dangling(after, names, ever).items():
        said = [run for run in runs for c in run.claims if c.item == i and (c.state, c.code) in LOUD]
        if not said:
            found = [(run.state, c.state, c.code) for run in runs for c in run.claims if c.item == i]
            yield f"row {i} is there without {places}, and the ledger says {found}"
        elif not any(run.run in told or run.exit_code == 7 for run in said):
            yield f"row {i} is there without {places}, and nothing ended with anything but 0"


def the_ledger_is_true(after: Stores, runs: Sequence[LedgerRun], written: Sequence[Written]) -> Iterator[str]:
    """Sums match, nothing is left open, and the last word on each item is what the stores show."""
    taken = {item for w in written for item in (w.deleted, w.removed)}
    made = {w.overwritten for w in written}
    last: dict[tuple[int | str, str | None], Claim] = {}
    for run in runs:
        yield from (f"run {run.state}: {problem}" for problem in run.problems)
        if run.state not in FINISHED:
            yield f"a run is left {run.state}"
        if run.state != "refused":
            last |= {(claim.item, claim.version): claim for claim in run.claims}
    for (item, _), claim in last.items():
        if claim.version is not None:
            (place,) = claim.named
            there = claim.version in {version.name for version in after.versions.get(place, ())}
            gone = claim.state in GONE or (claim.state, claim.code) in LOUD
            # Of one that is unknown nothing is claimed: its request was made, and not answered.
            if claim.state == "open" or (claim.state != "unknown" and gone == there):
                yield f"version {claim.version} of {item} is {claim.state} in the ledger, and {there=}"
            continue
        there = item in after.rows if isinstance(item, int) else claim.named <= after.objects.keys()
        if claim.state in GONE and there and item not in made:
            yield f"{item} is {claim.state} in the ledger, and there"
        if claim.state in ("changed", "blocked") and not there and item not in taken:
            yield f"{item} is {claim.state}({claim.code}) in the ledger, and not there"
        if claim.state == "deleted" and any(
            place in after.objects and place[1] not in made for place in claim.named
        ):
            yield f"{item} is deleted in the ledger, and its objects are there"
        if claim.state == "open":
            yield f"{item} has no outcome"


def the_exit_is_right(runs: Sequence[LedgerRun], told: Collection[str], status: int) -> Iterator[str]:
    """7 when something is failed or unknown that nobody has been told of, 4 when a row stayed locked, else 0."""
    if status == 4 and any(c.code == "locked" for c in runs[-1].claims):
        return
    bad = [run for run in runs if run.run not in told and any(c.state in BAD for c in run.claims)]
    untold = [run for run in bad if run.exit_code != 7]
    if status not in (0, 7):
        yield f"it ended with {status}"
    elif status == 7 and not bad:
        yield "it ended with 7, and nothing is failed or unknown"
    elif status == 0 and untold:
        yield f"it ended with 0, and failed or unknown are {[c for r in untold for c in r.claims if c.state in BAD]}"


def all_is_done(after: Stores, purge: str) -> Iterator[str]:
    """Whatever is due is gone, with its objects."""
    target = target_of(purge)
    if isinstance(target, Rows):
        least = 4 if purge == "a stricter predicate" else 0
        yield from (
            f"row {i} is due and still there" for i, row in after.rows.items() if row.due and i >= least
        )
        return
    named = named_by_rows(after, target.bucket) if isinstance(target, S3Orphans) else set()
    for place, etag in after.objects.items():
        if place[0] != target.bucket or place[1] not in OLD_KEYS or place in named:
            continue
        kept = after.versions.get(place, ())
        # Where all versions go, a key is as old as the newest of them.
        if all(version.old for version in kept) if mode_of(purge) == "purge" else etag == OLD_ETAG:
            yield f"{place} is old and still there"


OLD_KEYS = {f"{PREFIX}{i}.bin" for i in range(1, 8)}
