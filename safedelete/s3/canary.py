"""Find out whether an endpoint honours a condition on ETag, by risking an object made for that purpose.

Several stores accept the condition and delete all the same, and nothing in their answers tells. So where the user allowed it
(``require_conditional=``) a canary is put, and is asked to be deleted under a condition that does not hold, through both
delete requests. If it is still there each time, the condition protects; in any other case nothing is deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from safedelete.declare.targets import Mode
from safedelete.errors import StoreError
from safedelete.ports import Proof, Verdict
from safedelete.s3.client import Connection
from safedelete.s3.codes import SDK_ERRORS, Meaning, code_of, detail_of, meaning_of, status_of
from safedelete.s3.listing import list_versions
from safedelete.s3.remedy import remedy_for
from safedelete.s3.versioning import NO_RETENTION, BucketState
from safedelete.s3.ways import IMPOSSIBLE

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

NAME: Final = ".safedelete-canary-"
"""What a canary's name begins with, in the folder it is put in; 32 hex digits follow."""

BODY: Final = b"safedelete canary"


@dataclass(slots=True)
class Conditions:
    """Of which buckets conditional deletes are demanded, and for which they have been proven. Lives as long as one run.

    Attributes:
        demanded: For each bucket the folder its canary may be put in, with its slash; empty for one of the plan's own.
        proven: Buckets whose endpoint honoured the condition in both delete requests, with what was seen.
    """

    demanded: dict[str, str] = field(default_factory=dict)
    proven: dict[str, str] = field(default_factory=dict)

    def demand(self, bucket: str, wanted: bool | str) -> None:
        """Take in one declaration's ``require_conditional``."""
        if wanted:
            folder = wanted if isinstance(wanted, str) else ""
            self.demanded[bucket] = self.demanded.get(bucket) or folder

    def proof(self, connection: Connection, state: BucketState, mode: Mode | None, folder: str) -> Proof:
        """Prove it for one bucket, once a run. Writes one object of a few bytes, and removes it again.

        Args:
            connection: The endpoint.
            state: What the bucket keeps of a deleted object.
            mode: The declared mode.
            folder: A folder of the plan, with its slash.
        """
        bucket = state.bucket
        subject = f"conditional deletes on s3://{bucket}/"
        if state.versioning != "off" and mode == "purge":
            return Proof(
                subject, Verdict.ALLOWED, "every delete names a version, which cannot be overwritten"
            )
        if bucket in self.proven:
            return Proof(subject, Verdict.ALLOWED, f"proven earlier in this run: {self.proven[bucket]}")
        if state.lock and state.lock != NO_RETENTION:
            why = f"no canary was put: Object Lock ({state.lock}) would keep it"
            return Proof(subject, Verdict.UNKNOWN, why, "Leave require_conditional= out for this bucket.")
        found = _tried(connection.reader, state, self.demanded.get(bucket) or folder, subject)
        if found.verdict is Verdict.ALLOWED:
            self.proven[bucket] = found.detail
        return found


class _StoppedError(Exception):
    """The canary could not be flown: what to tell of it."""

    def __init__(self, verdict: Verdict, said: str, remedy: str = "") -> None:
        super().__init__(said)
        self.verdict, self.said, self.remedy = verdict, said, remedy


def _tried(client: S3Client, state: BucketState, folder: str, subject: str) -> Proof:
    ignored: list[str] = []
    try:
        for request, attempt in (("DeleteObjects", _together), ("DeleteObject", _alone)):
            if not _survives(client, state, folder, request, attempt):
                ignored.append(request)
    except _StoppedError as stopped:
        return Proof(subject, stopped.verdict, stopped.said, stopped.remedy)
    if ignored:
        return Proof(
            subject,
            Verdict.DENIED,
            f"the store ignores the condition in {' and '.join(ignored)}: a canary was deleted under an ETag it did not have",
            "Use a store that honours If-Match in both delete requests, or leave require_conditional= out: an object "
            "overwritten since is then looked for right before it is deleted.",
        )
    return Proof(subject, Verdict.ALLOWED, "a canary survived a delete under another ETag, by both requests")


def _together(client: S3Client, bucket: str, key: str) -> bool:
    """Whether DeleteObjects says that the condition does not hold."""
    answer: Mapping[str, Any] = client.delete_objects(
        Bucket=bucket, Delete={"Objects": [{"Key": key, "ETag": IMPOSSIBLE}], "Quiet": False}
    )
    errors = answer.get("Errors") or ()
    if not errors:
        return False
    code = str(errors[0].get("Code") or "?")
    if len(errors) == 1 and meaning_of(code, 0) is Meaning.CHANGED:
        return True
    said = f"DeleteObjects under a condition: {code}: {errors[0].get('Message') or ''}".rstrip(": ")
    raise _StoppedError(_verdict(code, 0), said)


def _alone(client: S3Client, bucket: str, key: str) -> bool:
    """Whether DeleteObject says that the condition does not hold."""
    client.delete_object(Bucket=bucket, Key=key, IfMatch=IMPOSSIBLE)
    return False


def _survives(
    client: S3Client,
    state: BucketState,
    folder: str,
    request: str,
    attempt: Callable[[S3Client, str, str], bool],
) -> bool:
    bucket = state.bucket
    key = f"{folder}{NAME}{uuid.uuid4().hex}"
    where = f"s3://{bucket}/{key}"
    try:
        client.put_object(Bucket=bucket, Key=key, Body=BODY)
    except SDK_ERRORS as error:
        _remove(client, state, key)  # a lost answer does not mean that nothing was put
        verdict = _verdict(code_of(error), status_of(error))
        raise _StoppedError(
            verdict,
            f"the canary {where} could not be put: {code_of(error)}: {detail_of(error)}",
            remedy_for(["s3:PutObject"], bucket, folder, detail_of(error))
            if verdict is Verdict.DENIED
            else "",
        ) from error
    try:
        refused = _refused(client, bucket, key, request, attempt)
        there = _there(client, bucket, key)
    finally:
        _remove(client, state, key)
    # Still there, but not because the store said so: it may only be slow to show what it did.
    return refused and there


def _refused(
    client: S3Client, bucket: str, key: str, request: str, attempt: Callable[[S3Client, str, str], bool]
) -> bool:
    try:
        return attempt(client, bucket, key)
    except SDK_ERRORS as error:
        code, status = code_of(error), status_of(error)
        if status and meaning_of(code, status) is Meaning.CHANGED:
            return True
        said = f"{request} under a condition: {code}: {detail_of(error)}"
        raise _StoppedError(_verdict(code, status), said) from error


def _there(client: S3Client, bucket: str, key: str) -> bool:
    try:
        client.head_object(Bucket=bucket, Key=key)
    except SDK_ERRORS as error:
        if status_of(error) == 404:
            return False
        said = f"the canary s3://{bucket}/{key} could not be looked for: {code_of(error)}: {detail_of(error)}"
        raise _StoppedError(_verdict(code_of(error), status_of(error)), said) from error
    return True


def _remove(client: S3Client, state: BucketState, key: str) -> None:
    """Remove every trace of a canary: on a versioned bucket its versions and markers, one by one."""
    bucket = state.bucket
    try:
        if state.versioning == "off":
            client.delete_object(Bucket=bucket, Key=key)
            return
        for page in list_versions(client, bucket, key):
            for entry in page:
                if entry.key == key:
                    client.delete_object(Bucket=bucket, Key=key, VersionId=entry.version)
    except (*SDK_ERRORS, StoreError) as error:
        raise _StoppedError(
            Verdict.UNKNOWN,
            f"the canary s3://{bucket}/{key} could not be removed: {code_of(error)}: {detail_of(error)}",
            "Delete it by hand, with its versions; it is a few bytes and named as a canary.",
        ) from error


def _verdict(code: str, status: int) -> Verdict:
    return Verdict.DENIED if meaning_of(code, status) is Meaning.DENIED else Verdict.UNKNOWN
