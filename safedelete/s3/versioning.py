"""What a bucket does with a deleted object: nothing is left, an older version is left, or a lock keeps it.

Reads only. On a versioned bucket a plain delete removes no data, also where the object is locked: it succeeds and leaves
a marker. So the mode must be declared, and a state that cannot be read stops the plan rather than being taken for
"not versioned".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from safedelete.core.item import ObjectRef
from safedelete.core.plan import Unknown
from safedelete.declare.targets import Mode
from safedelete.errors import ConfigError, StoreError
from safedelete.s3.codes import SDK_ERRORS, code_of, store_error
from safedelete.s3.listing import ListedVersion, by_key, list_versions

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

NO_RETENTION: Final = "no default retention"
"""How a bucket's lock is described under which an object is kept only where it is locked by itself."""

Versioning: TypeAlias = Literal["off", "enabled", "suspended"]

_STATUS: Final[Mapping[str, Versioning]] = {"": "off", "Enabled": "enabled", "Suspended": "suspended"}


@dataclass(frozen=True, slots=True)
class BucketState:
    """How a bucket keeps what is deleted.

    Attributes:
        bucket: Its name.
        versioning: Off, enabled or suspended.
        mfa_delete: Whether deleting a version needs a person's one-time token.
        lock: Object Lock's default retention in words; empty where the lock is not enabled.
        replicated: Whether objects are copied to another bucket.
    """

    bucket: str
    versioning: Versioning
    mfa_delete: bool = False
    lock: str = ""
    replicated: bool = False


@dataclass(frozen=True, slots=True)
class Denied(Unknown):
    """What is not known of a bucket since a right is missing.

    Attributes:
        action: The IAM action that was denied: a statement that allows another one would repair nothing.
    """

    action: str


def read_bucket(client: S3Client, bucket: str) -> BucketState | Denied:
    """Read a bucket's state. Reads only.

    Returns:
        The state, or why it is not known; that stops a plan.

    Raises:
        StoreError: The bucket is missing, the store cannot be reached, or its answer is not understood.
    """
    try:
        answer = client.get_bucket_versioning(Bucket=bucket)
    except SDK_ERRORS as error:
        if code_of(error) in _NOT_MADE:
            return BucketState(bucket, "off")
        if code_of(error) in _DENIED:
            action = "s3:GetBucketVersioning"
            return Denied(
                f"{action} on {bucket} is denied, so it is not known whether it is versioned", action
            )
        raise store_error(error, f"Reading the versioning of bucket {bucket}") from error
    status = str(answer.get("Status", ""))
    if status not in _STATUS:
        raise StoreError(
            f"The store says {status[:40]!r} of the versioning of bucket {bucket}, which is none of S3's words.",
            hint="Whether anything would be kept of a deleted object is not known: check that the endpoint is an S3 store.",
        )
    versioning = _STATUS[status]
    mfa = answer.get("MFADelete") == "Enabled"
    if versioning == "off":
        # Locks and replication exist on versioned buckets only.
        return BucketState(bucket, versioning, mfa)
    lock = _optional(
        lambda: client.get_object_lock_configuration(Bucket=bucket),
        "ObjectLockConfiguration",
        "s3:GetBucketObjectLockConfiguration",
        bucket,
    )
    if isinstance(lock, Denied):
        return lock
    replication = _optional(
        lambda: client.get_bucket_replication(Bucket=bucket),
        "ReplicationConfiguration",
        "s3:GetReplicationConfiguration",
        bucket,
    )
    if isinstance(replication, Denied):
        return replication
    rules = replication.get("Rules") or ()
    return BucketState(
        bucket, versioning, mfa, _lock_words(lock), any(rule.get("Status") == "Enabled" for rule in rules)
    )


def check_mode(state: BucketState, mode: Mode | None, where: str) -> Mode | None:
    """Return the mode that holds for a bucket.

    Args:
        state: The bucket's state.
        mode: What the target declares.
        where: The target's name, for messages.

    Raises:
        ConfigError: The bucket is versioned and no mode is declared; the bucket demands MFA; or the mode is one for
            versioned buckets and the bucket is none.
    """
    if state.versioning == "off":
        if mode == "marker":
            raise ConfigError(
                f'{where}: mode="marker" is declared, but bucket {state.bucket} is not versioned: what is deleted '
                "there is gone for good.",
                hint="Turn versioning on if objects are to stay recoverable, or leave mode= out.",
            )
        return None
    if mode is None:
        raise ConfigError(
            f"{where}: bucket {state.bucket} has versioning {state.versioning}, and no mode= is declared.",
            hint='Say mode="marker" to hide objects behind a delete marker (recoverable, still stored and billed), or '
            'mode="purge" to remove every version for good.',
        )
    if state.mfa_delete and mode == "purge":
        raise ConfigError(
            f"{where}: bucket {state.bucket} has MFA delete, so every deleted version needs a person's one-time token.",
            hint='A scheduled job cannot give one. Use mode="marker" with a lifecycle rule, or turn MFA delete off.',
        )
    return mode


def notes(state: BucketState, mode: Mode | None) -> tuple[str, ...]:
    """Return what a reader of the plan should know about the bucket."""
    found: list[str] = []
    if mode == "marker":
        found.append(
            f"bucket {state.bucket} is versioned and mode is marker: objects are hidden, and their data stays until "
            "a lifecycle rule or a purge removes it"
        )
    if state.versioning == "suspended":
        found.append(
            f"bucket {state.bucket} has suspended versioning: a plain delete removes the null version and adds a marker"
        )
    if state.lock:
        found.append(
            f"bucket {state.bucket} has Object Lock ({state.lock}): locked and held versions stay and are counted as "
            "blocked; the lock is never bypassed"
        )
    if state.replicated:
        found.append(f"bucket {state.bucket} is replicated: the copies in other buckets survive")
    return tuple(found)


def versions_of(client: S3Client, bucket: str, keys: Iterable[str]) -> dict[str, tuple[ObjectRef, ...]]:
    """List every version and delete marker of exactly these keys, oldest first. Reads only.

    For rows that own objects of a versioned bucket with ``mode="purge"``: what is sealed are these versions, so a
    version written later is kept.

    Raises:
        StoreError: A listing failed; an unfinished one names no versions at all.
    """
    found: dict[str, tuple[ObjectRef, ...]] = {}
    for key in dict.fromkeys(keys):
        if not key:
            raise StoreError(
                "An empty key would name every object of the bucket; nothing was listed.",
                hint="A row names no object: set its key column to NULL.",
            )
        mine: list[ListedVersion] = []
        for page in list_versions(client, bucket, key):
            mine += [entry for entry in page if entry.key == key]
            if page and all(entry.key != key for entry in page):
                # The key itself is the first of all that begin with it.
                break
        ordered = next(by_key(iter([mine])), [])
        found[key] = tuple(ref_of(bucket, entry) for entry in ordered)
    return found


def ref_of(bucket: str, entry: ListedVersion) -> ObjectRef:
    """Return a listed version as a plan names it; a marker has no ETag."""
    return ObjectRef(bucket, entry.key, entry.etag, entry.version, entry.size)


_NOT_MADE: Final = frozenset({"NotImplemented", "501"})
"""How a store says that it does not have a feature at all."""

_NOT_THERE: Final = _NOT_MADE | {
    "ObjectLockConfigurationNotFoundError",
    "ReplicationConfigurationNotFoundError",
    "NoSuchObjectLockConfiguration",
}
_DENIED: Final = frozenset({"AccessDenied", "403", "AllAccessDisabled"})


def _optional(ask: Any, name: str, action: str, bucket: str) -> Mapping[str, Any] | Denied:
    try:
        answer: Mapping[str, Any] = ask()
    except SDK_ERRORS as error:
        if code_of(error) in _NOT_THERE:
            return {}
        if code_of(error) in _DENIED:
            return Denied(f"{action} on {bucket} is denied, so it is not known what it would keep", action)
        raise store_error(error, f"Reading the {name} of bucket {bucket}") from error
    return answer.get(name) or {}


def _lock_words(configuration: Mapping[str, Any]) -> str:
    if configuration.get("ObjectLockEnabled") != "Enabled":
        return ""
    default: Mapping[str, Any] = (configuration.get("Rule") or {}).get("DefaultRetention") or {}
    if not default:
        return NO_RETENTION
    length = f"{default['Days']} days" if default.get("Days") else f"{default.get('Years')} years"
    return f"{default.get('Mode')} for {length} by default"
