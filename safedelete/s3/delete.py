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
from typing import TYPE_CHECKING, Any, Final

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
from safedelete.s3.entry import NOT_ASKED, Entry, Identity, entries_of
from safedelete.s3.fastdelete import send_delete
from safedelete.s3.keys import Lane, lane
from safedelete.s3.lanes import HomeGate, side_by_side
from safedelete.s3.pace import Pace, wait_asking

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import ObjectIdentifierTypeDef

OVERWRITTEN: Final = ItemOutcome(Outcome.CHANGED, "overwritten", "overwritten since it was sealed")


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
    named = entries_of(refs)
    account = _Account(client, bucket, gate, clock, effort or Effort(), pace, markers=markers)
    account.delete_in_order(list(dict.fromkeys(named)))
    return {ref: entry.outcome for ref, entry in zip(refs, named, strict=True)}


def _unless_kept(current: Sequence[Entry], older: Sequence[Entry]) -> Iterator[Entry]:
    kept = {entry.key for entry in older if entry.outcome.state not in (Outcome.DELETED, Outcome.GONE)}
    for entry in current:
        if entry.key not in kept:
            yield entry
        elif entry.outcome is NOT_ASKED:
            entry.outcome = ItemOutcome(
                Outcome.BLOCKED,
                "older-version-kept",
                "an older version of this key stayed, and removing the current one would bring it back",
            )


class _Account:
    """Asks for the entries of one call, and again for those that are worth it."""

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
        self._client = client
        self._bucket = bucket
        self._gate = HomeGate(gate)
        self._clock = clock
        self._effort = effort
        self._pace = pace
        self._markers = markers

    def delete_in_order(self, entries: Sequence[Entry]) -> None:
        """Ask for these; of several versions of one key for the last one given only when the others are gone."""
        last = {entry.key: entry for entry in entries}
        if len(last) == len(entries):
            self.delete(entries)
            return
        several = Counter(entry.key for entry in entries)
        older = [entry for entry in entries if last[entry.key] is not entry]
        self.delete([entry for entry in entries if several[entry.key] == 1] + older)
        current = [entry for entry in last.values() if several[entry.key] > 1]
        self.delete(list(_unless_kept(current, older)))

    def delete(self, entries: Sequence[Entry]) -> None:
        """Ask for these, where nothing is known of them yet, until each is settled or the attempts are used up."""
        batch: list[Entry] = []
        single: list[Entry] = []
        for entry in entries:
            if entry.outcome is NOT_ASKED:
                (batch if lane(entry.key) is Lane.BATCH else single).append(entry)
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
            if any(entry.outcome.code in THROTTLED for entry in again):
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
            entry.doubt("NotAnswered", f"the store answered a delete with HTTP status {status}")
            return [entry]
        entry.settle(self._removed(entry, answer))
        return []

    def _whole(self, chunk: Sequence[Entry], error: Exception) -> list[Entry]:
        """Account for a request that failed as a whole; return what is worth asking for again."""
        code, detail = code_of(error), detail_of(error)
        if isinstance(error, NOT_SENT):
            for entry in chunk:
                entry.fail(code, detail)
            return []
        status = status_of(error)
        meaning = meaning_of(code, status) if status else Meaning.DOUBT
        if len(chunk) == 1 and status and meaning in (Meaning.ABSENT, Meaning.CHANGED):
            return self._one_error(chunk[0], code, detail, status)
        if meaning in (Meaning.DOUBT, Meaning.BUSY):
            for entry in chunk:
                entry.doubt(code, f"the whole request failed: {detail}")
            return list(chunk)
        for entry in chunk:
            entry.fail(code, f"the whole request was rejected: {detail}" if len(chunk) > 1 else detail)
        return []

    def _read(self, chunk: Sequence[Entry], answer: Mapping[str, Any]) -> list[Entry]:
        """Hold an answer against its request; return what is worth asking for again."""
        if _is_plain(chunk, answer):
            for entry in chunk:
                entry.settle(DELETED)
            return []
        asked = {entry.identity: entry for entry in chunk}
        by_key: dict[str, list[Entry]] = {}
        for entry in chunk:
            by_key.setdefault(entry.key, []).append(entry)
        named: dict[Entry, list[tuple[bool, Mapping[str, Any]]]] = {}
        strangers: list[str] = []
        for is_error, item in _items(answer):
            found = _match(item, asked, by_key)
            if found is None:
                strangers.append(repr(item.get("Key"))[:120])
            else:
                named.setdefault(found, []).append((is_error, item))
        if strangers:
            # Something was done that nobody asked for, or another request was answered. Not to be repeated.
            for entry in chunk:
                entry.doubt(
                    "Stranger",
                    f"the answer names {len(strangers)} key(s) not asked for: {strangers[0]}",
                )
            return []
        again: list[Entry] = []
        for entry in chunk:
            answers = named.get(entry, [])
            if len(answers) != 1:
                how = "does not name it" if not answers else f"names it {len(answers)} times"
                entry.doubt("NotAnswered" if not answers else "Contradiction", f"the answer {how}")
                again.append(entry)
                continue
            is_error, item = answers[0]
            if is_error:
                code = str(item.get("Code") or "?")
                again += self._one_error(entry, code, str(item.get("Message") or "")[:300], 0)
            else:
                entry.settle(self._removed(entry, item))
        return again

    def _one_error(self, entry: Entry, code: str, detail: str, status: int) -> list[Entry]:
        meaning = meaning_of(code, status)
        match meaning:
            case Meaning.ABSENT:
                entry.settle(GONE)
            case Meaning.CHANGED if entry.etag is not None and entry.version is None:
                entry.settle(OVERWRITTEN)
            case Meaning.DOUBT:
                entry.doubt(code, detail)
                return [entry]
            case Meaning.BUSY:
                entry.fail(code, detail)
                return [entry]
            case _:
                entry.fail(code, detail)
        return []

    def _removed(self, entry: Entry, item: Mapping[str, Any]) -> ItemOutcome:
        made = item.get("DeleteMarkerVersionId") or ""
        if not (made or item.get("DeleteMarker")):
            return DELETED
        made = made or item.get("VersionId") or ""
        if entry.version is not None and made in ("", entry.version):
            return DELETED  # the version was itself a marker
        if self._markers:
            return ItemOutcome(Outcome.DELETED, "marker", f"hidden behind delete marker {made}")
        return ItemOutcome(
            Outcome.FAILED,
            "marker",
            f"the bucket is versioned: a delete marker ({made}) hides the object, and its data is still there",
        )


def _is_plain(chunk: Sequence[Entry], answer: Mapping[str, Any]) -> bool:
    """Whether an answer says of each entry, in the order of the request, that it is deleted, and nothing else."""
    deleted = answer.get("Deleted") or ()
    return (
        not answer.get("Errors")
        and len(deleted) == len(chunk)
        and all(
            item == {"Key": entry.key} and entry.version is None
            for entry, item in zip(chunk, deleted, strict=True)
        )
    )


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
    exact = asked.get(key if version is None else (key, version))
    if exact is not None:
        return exact
    same = by_key.get(key, ())
    if len(same) == 1 and (version is None or same[0].version is None):
        return same[0]
    return None
