"""Delete objects so that every key asked for ends in exactly one outcome.

An SDK call that returns says little: HTTP 200 with an empty body, a proxy's page, or an answer that names one key of
three all return without an error. So answers are asked for in full (never ``Quiet``) and are read against the request:
a key counts as deleted only when the answer names it, once, and names nothing that was not asked for.

A store takes a request's keys one after the other, so one request at a time leaves it idle for the most part: a few are
under way at once. The gate is asked immediately before each goes out, and by the caller's thread alone: it may ask the
database over the batch's own connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from safedelete.core.item import ObjectRef
from safedelete.core.outcome import DELETED, GONE, ItemOutcome, Outcome
from safedelete.ports import Clock, Gate
from safedelete.s3.client import gated, renew
from safedelete.s3.codes import (
    NOT_SENT,
    SDK_ERRORS,
    THROTTLED,
    Meaning,
    code_of,
    detail_of,
    meaning_of,
    status_of,
)
from safedelete.s3.effort import Effort
from safedelete.s3.fastdelete import send_delete
from safedelete.s3.keys import Lane, lane, refusal
from safedelete.s3.lanes import HomeGate, side_by_side
from safedelete.s3.pace import Pace, wait_asking

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

OVERWRITTEN: Final = ItemOutcome(Outcome.CHANGED, "overwritten", "overwritten since it was sealed")


class Entry(NamedTuple):
    """One thing to delete, as the request names it."""

    key: str
    version: str | None
    etag: str | None

    @property
    def identity(self) -> Identity:
        """Return what the answer is matched by."""
        return (self.key, self.version)


Identity = tuple[str, str | None]


def delete_objects(
    client: S3Client,
    bucket: str,
    refs: Sequence[ObjectRef],
    *,
    gate: Gate,
    clock: Clock,
    effort: Effort | None = None,
    pace: Pace | None = None,
    markers: bool = False,
) -> dict[ObjectRef, ItemOutcome]:
    """Delete objects of one bucket and account for each. Deletes; idempotent.

    Errors of the store become outcomes; what the gate raises passes through. Of several versions of one key the last
    one given goes only when all the others are gone, so that deleting the current version brings no older one back.

    Args:
        client: A client that sends each request once.
        bucket: The bucket.
        refs: What to delete; the versions of one key oldest first.
        gate: Called immediately before each request, always by the caller's own thread.
        clock: What waits between attempts.
        effort: How hard to try.
        pace: Limits the keys a second.
        markers: Whether a delete marker is what is wanted; else one means that nothing was removed.
    """
    account = _Account(client, bucket, gate, clock, effort or Effort(), pace, markers=markers)
    by_identity: dict[Identity, list[ObjectRef]] = {}
    for ref in refs:
        by_identity.setdefault((ref.key, ref.version or None), []).append(ref)
    entries: dict[Identity, Entry] = {}
    unclear = contradictory(refs)
    for identity, same in by_identity.items():
        why = refusal(identity[0])
        if why is not None:
            account.outcomes[identity] = ItemOutcome(Outcome.FAILED, "refused", why)
        elif same[0] in unclear:
            account.outcomes[identity] = unclear[same[0]]
        else:
            etags = (quoted(ref.etag) for ref in same if ref.etag)
            entries[identity] = Entry(*identity, next(etags, None))
    last = dict(entries.keys())  # of each key the version given last
    several = Counter(key for key, _ in entries)
    current = [e for e in entries.values() if several[e.key] > 1 and last[e.key] == e.version]
    account.delete([e for e in entries.values() if several[e.key] == 1 or last[e.key] != e.version])
    if current:
        account.delete(list(_unless_kept(current, account.outcomes)))
    return {ref: account.outcomes[identity] for identity, same in by_identity.items() for ref in same}


def contradictory(refs: Iterable[ObjectRef]) -> dict[ObjectRef, ItemOutcome]:
    """Return the outcome of objects that are named with different ETags: it is not known which is meant, so none goes."""
    named: dict[tuple[str, str, str | None], dict[str, list[ObjectRef]]] = {}
    loose: dict[tuple[str, str, str | None], list[ObjectRef]] = {}
    for ref in refs:
        identity = (ref.bucket, ref.key, ref.version or None)
        if ref.etag:
            named.setdefault(identity, {}).setdefault(quoted(ref.etag), []).append(ref)
        else:
            loose.setdefault(identity, []).append(ref)
    found: dict[ObjectRef, ItemOutcome] = {}
    for identity, etags in named.items():
        if len(etags) > 1:
            said = f"sealed with {len(etags)} ETags, so it is not known which is meant"
            mine = [ref for same in etags.values() for ref in same] + loose.get(identity, [])
            found |= dict.fromkeys(mine, ItemOutcome(Outcome.FAILED, "two-etags", said))
    return found


def quoted(etag: str) -> str:
    """Return an ETag as it goes on the wire: a column of the user's own often holds it without its quotes."""
    return etag if etag.startswith(('"', "W/")) else f'"{etag}"'


def _unless_kept(current: Sequence[Entry], outcomes: dict[Identity, ItemOutcome]) -> Iterator[Entry]:
    kept = {
        key for (key, _), outcome in outcomes.items() if outcome.state not in (Outcome.DELETED, Outcome.GONE)
    }
    for entry in current:
        if entry.key in kept:
            outcomes[entry.identity] = ItemOutcome(
                Outcome.BLOCKED,
                "older-version-kept",
                "an older version of this key stayed, and removing the current one would bring it back",
            )
        else:
            yield entry


class _Account:
    """The outcomes of one call, and what is still to be asked for."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        gate: Gate,
        clock: Clock,
        effort: Effort,
        pace: Pace | None,
        *,
        markers: bool,
    ) -> None:
        self.outcomes: dict[Identity, ItemOutcome] = {}
        self._client = client
        self._bucket = bucket
        self._gate = HomeGate(gate)
        self._clock = clock
        self._effort = effort
        self._pace = pace
        self._markers = markers
        self._doubtful: set[Identity] = set()

    def delete(self, entries: Sequence[Entry]) -> None:
        """Ask for these until each is settled or the attempts are used up."""
        batch = [e for e in entries if lane(e.key) is Lane.BATCH]
        single = [e for e in entries if lane(e.key) is Lane.SINGLE]
        self._rounds(batch, self._effort.size(len(batch)), self._ask_many)
        self._rounds(single, 1, self._ask_one)

    def _rounds(
        self, entries: Sequence[Entry], size: int, ask: Callable[[Sequence[Entry]], list[Entry]]
    ) -> None:
        todo = list(entries)
        for attempt in range(self._effort.attempts):
            if not todo:
                return
            if attempt:
                wait_asking(self._effort.wait(attempt), self._clock, self._gate)
            todo = side_by_side(
                self._chunks(todo, size),
                self._effort.lanes,
                self._admit,
                partial(self._send, ask),
                self._gate,
            )
            size = max(1, size // 4)

    def _send(self, ask: Callable[[Sequence[Entry]], list[Entry]], chunk: Sequence[Entry]) -> list[Entry]:
        sent = self._clock.uptime()
        with gated(self._gate):
            again = ask(chunk)
        if self._pace is not None:
            if any(self.outcomes[entry.identity].code in THROTTLED for entry in again):
                self._pace.halve(sent)
            else:
                self._pace.recover()
        return again

    def _chunks(self, todo: Sequence[Entry], size: int) -> Iterator[Sequence[Entry]]:
        start = 0
        while start < len(todo):
            # Asked anew for each: a store that turns requests away is sent smaller ones from then on.
            chunk = todo[start : start + (size if self._pace is None else min(size, self._pace.most))]
            start += len(chunk)
            yield chunk

    def _admit(self, chunk: Sequence[Entry]) -> None:
        """Wait for its turn, and ask the gate, which raises when it must not be sent."""
        if self._pace is not None:
            self._pace.take(len(chunk), self._gate)
        renew(self._client)
        self._gate()

    def _ask_many(self, chunk: Sequence[Entry]) -> list[Entry]:
        objects: list[ObjectIdentifierTypeDef] = []
        for entry in chunk:
            identifier: ObjectIdentifierTypeDef = {"Key": entry.key}
            if entry.version is not None:
                # A version cannot be overwritten, and S3 rejects a condition beside it.
                identifier["VersionId"] = entry.version
            elif entry.etag is not None:
                identifier["ETag"] = entry.etag
            objects.append(identifier)
        try:
            answer = send_delete(self._client, self._bucket, objects)
        except SDK_ERRORS as error:
            return self._whole(chunk, error)
        return self._read(chunk, answer)

    def _ask_one(self, chunk: Sequence[Entry]) -> list[Entry]:
        (entry,) = chunk
        options: dict[str, Any] = {"Bucket": self._bucket, "Key": entry.key}
        if entry.version is not None:
            options["VersionId"] = entry.version
        elif entry.etag is not None:
            options["IfMatch"] = entry.etag
        try:
            answer: Mapping[str, Any] = self._client.delete_object(**options)
        except SDK_ERRORS as error:
            return self._whole(chunk, error)
        status = (answer.get("ResponseMetadata") or {}).get("HTTPStatusCode")
        if status != 204:
            # The answer has no body that could be read; a 200 is what a proxy's own page looks like.
            self._doubt(entry, "NotAnswered", f"the store answered a delete with HTTP status {status}")
            return [entry]
        self._settle(entry, self._removed(entry, answer))
        return []

    def _whole(self, chunk: Sequence[Entry], error: Exception) -> list[Entry]:
        """Account for a request that failed as a whole; return what is worth asking for again."""
        code, detail = code_of(error), detail_of(error)
        if isinstance(error, NOT_SENT):
            for entry in chunk:
                self._fail(entry, code, detail)
            return []
        status = status_of(error)
        meaning = meaning_of(code, status) if status else Meaning.DOUBT
        if len(chunk) == 1 and status and meaning in (Meaning.ABSENT, Meaning.CHANGED):
            return self._one_error(chunk[0], code, detail, status)
        if meaning in (Meaning.DOUBT, Meaning.BUSY):
            for entry in chunk:
                self._doubt(entry, code, f"the whole request failed: {detail}")
            return list(chunk)
        for entry in chunk:
            self._fail(entry, code, f"the whole request was rejected: {detail}" if len(chunk) > 1 else detail)
        return []

    def _read(self, chunk: Sequence[Entry], answer: Mapping[str, Any]) -> list[Entry]:
        """Hold an answer against its request; return what is worth asking for again."""
        asked = {entry.identity: entry for entry in chunk}
        by_key: dict[str, list[Entry]] = {}
        for entry in chunk:
            by_key.setdefault(entry.key, []).append(entry)
        named: dict[Identity, list[tuple[bool, Mapping[str, Any]]]] = {}
        strangers: list[str] = []
        for is_error, item in _items(answer):
            found = _match(item, asked, by_key)
            if found is None:
                strangers.append(repr(item.get("Key"))[:120])
            else:
                named.setdefault(found.identity, []).append((is_error, item))
        if strangers:
            # Something was done that nobody asked for, or another request was answered. Not to be repeated.
            for entry in chunk:
                self._doubt(
                    entry,
                    "Stranger",
                    f"the answer names {len(strangers)} key(s) not asked for: {strangers[0]}",
                )
            return []
        again: list[Entry] = []
        for entry in chunk:
            answers = named.get(entry.identity, [])
            if len(answers) != 1:
                how = "does not name it" if not answers else f"names it {len(answers)} times"
                self._doubt(entry, "NotAnswered" if not answers else "Contradiction", f"the answer {how}")
                again.append(entry)
                continue
            is_error, item = answers[0]
            if is_error:
                code = str(item.get("Code") or "?")
                again += self._one_error(entry, code, str(item.get("Message") or "")[:300], 0)
            else:
                self._settle(entry, self._removed(entry, item))
        return again

    def _one_error(self, entry: Entry, code: str, detail: str, status: int) -> list[Entry]:
        meaning = meaning_of(code, status)
        match meaning:
            case Meaning.ABSENT:
                self._settle(entry, GONE)
            case Meaning.CHANGED if entry.etag is not None and entry.version is None:
                self._settle(entry, OVERWRITTEN)
            case Meaning.DOUBT:
                self._doubt(entry, code, detail)
                return [entry]
            case Meaning.BUSY:
                self._fail(entry, code, detail)
                return [entry]
            case _:
                self._fail(entry, code, detail)
        return []

    def _removed(self, entry: Entry, item: Mapping[str, Any]) -> ItemOutcome:
        made = item.get("DeleteMarkerVersionId") or ""
        if entry.version is not None or not (made or item.get("DeleteMarker")):
            return DELETED
        made = made or item.get("VersionId") or ""
        if self._markers:
            return ItemOutcome(Outcome.DELETED, "marker", f"hidden behind delete marker {made}")
        return ItemOutcome(
            Outcome.FAILED,
            "marker",
            f"the bucket is versioned: a delete marker ({made}) hides the object, and its data is still there",
        )

    def _settle(self, entry: Entry, outcome: ItemOutcome) -> None:
        self._doubtful.discard(entry.identity)
        self.outcomes[entry.identity] = outcome

    def _doubt(self, entry: Entry, code: str, detail: str) -> None:
        self._doubtful.add(entry.identity)
        self.outcomes[entry.identity] = ItemOutcome(Outcome.UNKNOWN, code, detail)

    def _fail(self, entry: Entry, code: str, detail: str) -> None:
        # An earlier request for this key got no clear answer. That a later one was rejected does not undo it.
        doubtful = entry.identity in self._doubtful
        state = Outcome.UNKNOWN if doubtful else Outcome.FAILED
        if doubtful:
            detail = f"after a request without a clear answer: {detail}"
        self.outcomes[entry.identity] = ItemOutcome(state, code, detail)


def _items(answer: Mapping[str, Any]) -> Iterable[tuple[bool, Mapping[str, Any]]]:
    for item in answer.get("Deleted") or ():
        yield False, item
    for item in answer.get("Errors") or ():
        yield True, item


def _match(
    item: Mapping[str, Any], asked: Mapping[Identity, Entry], by_key: Mapping[str, Sequence[Entry]]
) -> Entry | None:
    """Find what an item of the answer is about.

    Some stores leave the version out of an error, or name the version that was current where none was asked for; the
    key settles it as long as it was asked for once.
    """
    key, version = item.get("Key"), item.get("VersionId") or None
    if not isinstance(key, str):
        return None
    exact = asked.get((key, version))
    if exact is not None:
        return exact
    same = by_key.get(key, ())
    if len(same) == 1 and (version is None or same[0].version is None):
        return same[0]
    return None
