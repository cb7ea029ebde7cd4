"""Prove that the caller may delete, by asking to delete what cannot be there.

For each group of planned keys (one folder, one extension) a random sibling that does not exist is "deleted" in the way
the plan's objects would be, through DeleteObjects and through DeleteObject. Both must be allowed: stores have been seen
to let one through and refuse the other, either way round. An existing key is never aimed at: some stores ignore the
condition that was meant to protect it. What is written is the canary of ``require_conditional=`` alone, where that is
declared (:mod:`safedelete.s3.canary`); it is removed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from safedelete.core.item import ObjectRef
from safedelete.declare.targets import Mode
from safedelete.errors import ConfigError, StoreError
from safedelete.ports import Proof, Verdict
from safedelete.s3.canary import Conditions
from safedelete.s3.client import Connection
from safedelete.s3.codes import SDK_ERRORS, Meaning, code_of, detail_of, meaning_of, status_of
from safedelete.s3.groups import MOST_GROUPS, Group, groups_of
from safedelete.s3.keys import Lane, lane, parent
from safedelete.s3.listing import list_objects
from safedelete.s3.remedy import remedy_for
from safedelete.s3.versioning import BucketState, Denied, check_mode, read_bucket
from safedelete.s3.ways import IMPOSSIBLE, Way, actions_of, identifier, way_of

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

REPORTED: Final = 20
"""Denied or unproven folders that are named one by one."""


class Answer(NamedTuple):
    """What one request said about one probe, and the delete marker that it made, if any."""

    verdict: Verdict
    said: str
    marker: str | None = None


class S3Prober:
    """Proves the permissions of a purge on the buckets of one endpoint; implements :class:`safedelete.ports.Prober`.

    Args:
        connection: The endpoint.
        modes: The declared mode of each bucket that the purge deletes from.
        prefixes: (bucket, prefix) of each prefix target: must be listable, and is probed even when nothing is eligible.
        workers: Requests at a time.
        conditions: Of which buckets conditional deletes are demanded; None for none.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        modes: Mapping[str, Mode | None],
        prefixes: Sequence[tuple[str, str]] = (),
        workers: int = 8,
        conditions: Conditions | None = None,
    ) -> None:
        self._connection = connection
        self._modes = dict(modes)
        self._prefixes = tuple(prefixes)
        self._workers = workers
        self._conditions = conditions or Conditions()

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:
        """Prove each permission. Writes no data; a delete marker that a store makes for a probe is removed again.

        Args:
            as_of: Not used; permissions do not depend on the plan's instant.
            sample: Objects of the plan, at least one of each folder and extension; those in other buckets than this
                prober's own are another's to prove.
        """
        del as_of
        proofs: list[Proof] = []
        buckets = dict.fromkeys([*self._modes, *(bucket for bucket, _ in self._prefixes)])
        for bucket in buckets:
            refs = [ref for ref in sample if ref.bucket == bucket]
            prefixes = [prefix for owner, prefix in self._prefixes if owner == bucket]
            proofs += self._bucket(bucket, refs, prefixes)
        return proofs

    @staticmethod
    def blind_spots() -> tuple[str, ...]:
        """Return what these probes cannot see."""
        return (
            "the probe does not see policies that depend on an object's tags (s3:ExistingObjectTag)",
            "the probe does not see locks and holds of single objects",
            "the probe does not see policies by name that are finer than folder and extension",
            f"the probe looks at {MOST_GROUPS:,} folders of a bucket at most",
            "a policy may change between the probe and the delete",
        )

    def _bucket(self, bucket: str, refs: Sequence[ObjectRef], prefixes: Sequence[str]) -> list[Proof]:
        try:
            state = read_bucket(self._connection.reader, bucket)
        except StoreError as error:
            return [Proof(f"s3:GetBucketVersioning on {bucket}", Verdict.UNKNOWN, str(error), error.hint)]
        if isinstance(state, Denied):
            remedy = remedy_for([state.action], bucket, "")
            return [Proof(f"{state.action} on {bucket}", Verdict.UNKNOWN, state.why, remedy)]
        proofs = [
            Proof(f"s3:GetBucketVersioning on {bucket}", Verdict.ALLOWED, f"versioning {state.versioning}")
        ]
        proofs += self._reading(state, refs, prefixes)
        groups, beyond = groups_of(bucket, refs, prefixes)
        if groups:
            proofs += self._deleting(state, groups, refs, prefixes, beyond)
        # Nothing is put where something else already stands in the way.
        if groups and bucket in self._conditions.demanded and not any(proof.stops for proof in proofs):
            mode = self._modes.get(bucket)
            proofs.append(self._conditions.proof(self._connection, state, mode, groups[0].folder))
        return proofs

    def _deleting(
        self,
        state: BucketState,
        groups: Sequence[Group],
        refs: Sequence[ObjectRef],
        prefixes: Sequence[str],
        beyond: int,
    ) -> Iterator[Proof]:
        bucket = state.bucket
        try:
            mode = check_mode(state, self._modes.get(bucket), f"deleting from {bucket}")
        except ConfigError as error:
            yield Proof(f"delete mode of {bucket}", Verdict.DENIED, str(error), error.hint)
            return
        way = way_of(state, mode, knows_etags=bool(prefixes) or any(ref.etag for ref in refs))
        actions = actions_of(way)
        # By the client that repeats what was not answered: asking twice for what is not there harms nothing.
        # A folder that XML cannot say is deleted from by DeleteObject alone, and would spoil the answer for all others.
        in_batches = [group for group in groups if lane(group.sibling) is Lane.BATCH]
        together = probe_together(self._connection.reader, bucket, in_batches, way) if in_batches else {}
        alone = self._alone(bucket, groups, way)
        verdicts: dict[Verdict, dict[str, str]] = {verdict: {} for verdict in Verdict}
        markers = [a.marker for a in (*together.values(), *alone.values()) if a.marker]
        for group in groups:
            verdict, said = both(together.get(group, alone[group]), alone[group])
            verdicts[verdict].setdefault(group.folder, said)
        subject = " and ".join(actions)
        for verdict in (Verdict.DENIED, Verdict.UNKNOWN):
            folders = verdicts[verdict]
            for folder, said in list(folders.items())[:REPORTED]:
                # What was not understood is no statement that is missing.
                remedy = remedy_for(actions, bucket, folder, said) if verdict is Verdict.DENIED else ""
                yield Proof(f"{subject} on s3://{bucket}/{folder}", verdict, said, remedy)
            if len(folders) > REPORTED:
                yield Proof(
                    f"{subject} on {len(folders) - REPORTED:,} more folders of s3://{bucket}/",
                    verdict,
                    "as above",
                )
        if verdicts[Verdict.ALLOWED]:
            sizes = f"{len(groups):,} group(s) of folder and extension, through both delete requests"
            more = f"; {beyond:,} more were not probed" if beyond else ""
            made = f"; {len(markers)} delete marker(s) made by the probe" if markers else ""
            yield Proof(f"{subject} on s3://{bucket}/", Verdict.ALLOWED, f"{sizes}{more}{made}")
        left = [a.said for a in (*together.values(), *alone.values()) if a.marker and "not removed" in a.said]
        if left:
            yield Proof(
                f"markers of the probe in {bucket}",
                Verdict.UNKNOWN,
                f"{len(left)} could not be removed: {left[0]}",
            )

    def _alone(self, bucket: str, groups: Sequence[Group], way: Way) -> dict[Group, Answer]:
        client = self._connection.reader
        with ThreadPoolExecutor(self._workers, thread_name_prefix="safedelete-probe") as pool:
            answers = pool.map(lambda group: probe_alone(client, bucket, group, way), groups)
            return dict(zip(groups, answers, strict=True))

    def _reading(
        self, state: BucketState, refs: Sequence[ObjectRef], prefixes: Sequence[str]
    ) -> Iterator[Proof]:
        client, bucket = self._connection.reader, state.bucket
        purges = self._modes.get(bucket) == "purge" and state.versioning != "off"
        # Keys sealed without a version are listed too, to find theirs.
        listed = [*prefixes, *(ref.key for ref in refs[:1] if purges and ref.version is None)]
        for prefix in listed:
            action = "s3:ListBucketVersions" if purges else "s3:ListBucket"
            try:
                if purges:
                    client.list_object_versions(Bucket=bucket, Prefix=prefix, MaxKeys=1)
                else:
                    client.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
            except SDK_ERRORS as error:
                yield _reading_failed(action, bucket, prefix, error)
            else:
                yield Proof(f"{action} on s3://{bucket}/{prefix}", Verdict.ALLOWED)
        for ref in refs[:1]:
            action = "s3:GetObject" if ref.version is None else "s3:GetObjectVersion"
            options: dict[str, Any] = {"Bucket": bucket, "Key": ref.key}
            if ref.version is not None:
                options["VersionId"] = ref.version
            try:
                client.head_object(**options)
            except SDK_ERRORS as error:
                # An object that went meanwhile was asked for with success; 405 is how a delete marker answers.
                status = status_of(error)
                if status not in (404, 405):
                    yield _reading_failed(action, bucket, parent(ref.key), error)
                    continue
                if status == 404 and ref.version is None and self._lists(bucket, ref.key):
                    # Every object would be called gone, unasked, and its row would go.
                    said = f"HEAD of {ref.key} says 404, and the listing names it"
                    yield Proof(f"{action} on s3://{bucket}/{parent(ref.key)}", Verdict.UNKNOWN, said)
                    continue
            yield Proof(f"{action} on s3://{bucket}/{parent(ref.key)}", Verdict.ALLOWED)
            # Keys that stand for all of their versions are looked for by listing them, which was proven above.
            if not purges or ref.version is not None:
                yield self._missing(bucket, ref)

    def _lists(self, bucket: str, key: str) -> bool:
        """Whether the listing names a key. Reads only; False where it may not be listed, which is proven by itself."""
        try:
            first = next(filter(None, list_objects(self._connection.reader, bucket, key)), [])
        except StoreError:
            return False
        return any(item.key == key for item in first)

    def _missing(self, bucket: str, ref: ObjectRef) -> Proof:
        """Prove that an object which is not there is answered with 404. Reads only.

        Without s3:ListBucket a store says 403 for it, so that every deleted object would be called unknown.
        """
        subject = f"s3:ListBucket on {bucket} (an object that is not there must be answered with 404)"
        [group] = groups_of(bucket, [ref], ())[0]
        options: dict[str, Any] = {"Bucket": bucket, "Key": group.sibling}
        if ref.version is not None:
            options["VersionId"] = "null"
        try:
            self._connection.reader.head_object(**options)
        except SDK_ERRORS as error:
            status = status_of(error)
            if status == 404 or (ref.version is not None and status in (400, 405)):
                return Proof(subject, Verdict.ALLOWED)
            said = f"HEAD of a key that nobody has: {code_of(error)}: {detail_of(error)}"
            if _verdict_of(error) is not Verdict.DENIED:
                return Proof(subject, Verdict.UNKNOWN, said)
            # No condition on s3:prefix: a HEAD names no prefix, so a statement with one does not apply to it.
            return Proof(
                subject, Verdict.DENIED, said, remedy_for(["s3:ListBucket"], bucket, "", detail_of(error))
            )
        return Proof(
            subject, Verdict.UNKNOWN, f"the store says that {group.sibling} exists, which nobody has made"
        )


def probe_together(client: S3Client, bucket: str, groups: Sequence[Group], way: Way) -> dict[Group, Answer]:
    """Ask for all groups' siblings in one DeleteObjects. Deletes nothing that exists."""
    siblings = {group.sibling: group for group in groups}
    objects = [identifier(key, way) for key in siblings]
    try:
        answer: Mapping[str, Any] = client.delete_objects(
            Bucket=bucket, Delete={"Objects": objects, "Quiet": False}
        )
    except SDK_ERRORS as error:
        whole = Answer(_verdict_of(error), f"DeleteObjects: {code_of(error)}: {detail_of(error)}")
        return dict.fromkeys(groups, whole)
    found: dict[Group, list[Answer]] = {group: [] for group in groups}
    for item in answer.get("Deleted") or ():
        group = siblings.get(item.get("Key"))
        if group is not None:
            marker = item.get("DeleteMarkerVersionId") if way != "null-version" else None
            found[group].append(_allowed(client, bucket, item["Key"], marker, "DeleteObjects"))
    for item in answer.get("Errors") or ():
        group = siblings.get(item.get("Key"))
        if group is not None:
            code = str(item.get("Code") or "?")
            said = f"DeleteObjects: {code}: {item.get('Message') or ''}".rstrip(": ")
            found[group].append(Answer(_verdict(code), said))
    unanswered = Answer(Verdict.UNKNOWN, "DeleteObjects did not answer for it exactly once")
    return {group: answers[0] if len(answers) == 1 else unanswered for group, answers in found.items()}


def probe_alone(client: S3Client, bucket: str, group: Group, way: Way) -> Answer:
    """Ask for one group's sibling in a DeleteObject. Deletes nothing that exists."""
    key = group.sibling
    options: dict[str, Any] = {"Bucket": bucket, "Key": key}
    match way:
        case "null-version":
            options["VersionId"] = "null"
        case "impossible-etag":
            options["IfMatch"] = IMPOSSIBLE
        case "any-etag":
            options["IfMatch"] = "*"
        case "plain":
            pass
    try:
        answer: Mapping[str, Any] = client.delete_object(**options)
    except SDK_ERRORS as error:
        return Answer(_verdict_of(error), f"DeleteObject: {code_of(error)}: {detail_of(error)}")
    status = (answer.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    if status != 204:
        return Answer(Verdict.UNKNOWN, f"DeleteObject: answered with HTTP status {status}")
    marker = answer.get("VersionId") if way != "null-version" and answer.get("DeleteMarker") else None
    return _allowed(client, bucket, key, marker, "DeleteObject")


def both(together: Answer, alone: Answer) -> tuple[Verdict, str]:
    """Join the two answers: allowed only when both are, denied when either is."""
    verdicts = (together.verdict, alone.verdict)
    if verdicts == (Verdict.ALLOWED, Verdict.ALLOWED):
        return Verdict.ALLOWED, together.said
    verdict = Verdict.DENIED if Verdict.DENIED in verdicts else Verdict.UNKNOWN
    if together.verdict is alone.verdict:
        return verdict, together.said
    return verdict, f"the two delete requests disagree: {together.said}; {alone.said}"


def _allowed(client: S3Client, bucket: str, key: str, marker: str | None, request: str) -> Answer:
    if not marker:
        return Answer(Verdict.ALLOWED, f"{request}: allowed")
    # The store ignored the condition and, the key being absent, left a marker behind: only that is removed.
    try:
        client.delete_object(Bucket=bucket, Key=key, VersionId=marker)
    except SDK_ERRORS as error:
        return Answer(
            Verdict.ALLOWED, f"{request}: marker {marker} of {key} not removed: {code_of(error)}", marker
        )
    return Answer(Verdict.ALLOWED, f"{request}: allowed; its marker was removed again", marker)


def _verdict(code: str, status: int = 0) -> Verdict:
    match meaning_of(code, status):
        case Meaning.ABSENT | Meaning.CHANGED:
            return Verdict.ALLOWED
        case Meaning.DENIED:
            return Verdict.DENIED
        case _:
            return Verdict.UNKNOWN


def _verdict_of(error: Exception) -> Verdict:
    status = status_of(error)
    return _verdict(code_of(error), status) if status else Verdict.UNKNOWN


def _reading_failed(action: str, bucket: str, prefix: str, error: Exception) -> Proof:
    code = code_of(error)
    denied = _verdict_of(error) is Verdict.DENIED
    return Proof(
        f"{action} on s3://{bucket}/{prefix}",
        Verdict.DENIED if denied else Verdict.UNKNOWN,
        f"{code}: {detail_of(error)}",
        remedy_for([action], bucket, prefix, detail_of(error)) if denied else "",
    )
