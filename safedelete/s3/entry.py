"""One thing to delete: how a request names it, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import ItemOutcome, Outcome
from safedelete.s3.keys import refusal

NOT_ASKED: Final = ItemOutcome(Outcome.UNKNOWN, "not-asked", "nothing was asked about it")

Identity = str | tuple[str, str]
"""What an answer is matched by: a key, or a key and a version."""


class Entry:
    """One thing to delete: as the request names it, and what has become of it.

    Attributes:
        key: Its key.
        version: Its version; None for whatever is current.
        etag: With its quotes; None where nobody knows it.
        outcome: How it ended, as far as is known.
        doubtful: Whether a request for it got no clear answer.
    """

    __slots__ = ("doubtful", "etag", "key", "outcome", "version")

    def __init__(self, key: str, version: str | None) -> None:
        self.key = key
        self.version = version
        self.etag: str | None = None
        self.outcome = NOT_ASKED
        self.doubtful = False

    @property
    def identity(self) -> Identity:
        """Return what the answer is matched by."""
        return self.key if self.version is None else (self.key, self.version)

    def settle(self, outcome: ItemOutcome) -> None:
        """Take in a clear answer."""
        self.doubtful = False
        self.outcome = outcome

    def doubt(self, code: str, detail: str) -> None:
        """Take in that an answer does not say."""
        self.doubtful = True
        self.outcome = ItemOutcome(Outcome.UNKNOWN, code, detail)

    def fail(self, code: str, detail: str) -> None:
        """Take in that it was refused. Where an earlier request got no clear answer, that does not undo it."""
        if self.doubtful:
            detail = f"after a request without a clear answer: {detail}"
        self.outcome = ItemOutcome(Outcome.UNKNOWN if self.doubtful else Outcome.FAILED, code, detail)


def entries_of(refs: Sequence[ObjectRef]) -> list[Entry]:
    """Return the entry of each object of one bucket; those that name the same object share one.

    What no request can delete safely, and what is not known well enough, has its outcome already.
    """
    unclear = contradictory(refs)
    known: dict[Identity, Entry] = {}
    found: list[Entry] = []
    for ref in refs:
        version = ref.version or None
        identity = ref.key if version is None else (ref.key, version)
        entry = known.get(identity)
        if entry is None:
            entry = known[identity] = Entry(ref.key, version)
            why = refusal(ref.key)
            if why is not None:
                entry.outcome = ItemOutcome(Outcome.FAILED, "refused", why)
            elif unclear:
                entry.outcome = unclear.get(ref, NOT_ASKED)
        if entry.etag is None and ref.etag:
            entry.etag = quoted(ref.etag)
        found.append(entry)
    return found


def contradictory(refs: Sequence[ObjectRef]) -> dict[ObjectRef, ItemOutcome]:
    """Return the outcome of objects that are named with different ETags: it is not known which is meant, so none goes.

    Nor does another version of the same key: it could bring back, or hide, the one that stays.
    """
    if len({ref.key for ref in refs}) == len(refs):
        return {}
    etags: dict[tuple[str, str, str | None], set[str]] = {}
    for ref in refs:
        if ref.etag:
            etags.setdefault((ref.bucket, ref.key, ref.version or None), set()).add(quoted(ref.etag))
    unclear = {(bucket, key): len(found) for (bucket, key, _), found in etags.items() if len(found) > 1}
    return {
        ref: ItemOutcome(
            Outcome.FAILED,
            "two-etags",
            f"sealed with {unclear[ref.bucket, ref.key]} ETags, so it is not known which is meant",
        )
        for ref in refs
        if (ref.bucket, ref.key) in unclear
    }


def quoted(etag: str) -> str:
    """Return an ETag as it goes on the wire: a column of the user's own often holds it without its quotes."""
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'
