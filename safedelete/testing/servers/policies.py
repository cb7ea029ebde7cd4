"""Change who may do what to which objects while a store is running, by its bucket policies."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from safedelete.testing.servers.identity import ADMIN, DELETES, Identity

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class Buckets(ABC):
    """Makes buckets and sets their policies. A change holds from the next request on."""

    identities: tuple[Identity, ...]

    def __init__(self) -> None:
        self._statements: dict[str, list[dict[str, object]]] = defaultdict(list)

    @abstractmethod
    def client(self, identity: Identity = ADMIN, **config: Any) -> S3Client:
        """Return a boto3 S3 client for one of the identities."""

    def create_bucket(self, bucket: str, *, versioned: bool = False, object_lock: bool = False) -> None:
        """Make a bucket, with the standing denials of the identities in its policy.

        Args:
            bucket: 3 to 63 characters.
            versioned: Turn versioning on.
            object_lock: Make it with object lock, which turns versioning on too.
        """
        admin = self.client()
        admin.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=object_lock)
        if versioned:
            admin.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        self._put(bucket)

    def deny(
        self,
        bucket: str,
        keys: Sequence[str] = ("*",),
        actions: Sequence[str] = DELETES,
        *,
        identity: Identity | None = None,
    ) -> None:
        """Deny actions on the keys that match, on top of what is denied already.

        Args:
            bucket: The bucket.
            keys: Key patterns; ``*`` stands for any characters, ``/`` included.
            actions: ``s3:DeleteObject``, ``s3:ListBucket`` and so on.
            identity: Whom; None for everybody but the administrators, so that a test can still clean up.
        """
        whom = [identity] if identity else [i for i in self.identities if not i.is_admin]
        self._add(bucket, "Deny", keys, actions, whom)

    def allow(
        self,
        bucket: str,
        keys: Sequence[str] = ("*",),
        actions: Sequence[str] = DELETES,
        *,
        identity: Identity,
    ) -> None:
        """Grant one identity actions on the keys that match, beyond its own. A denial still wins.

        Args:
            bucket: The bucket.
            keys: Key patterns, as for :meth:`deny`.
            actions: As for :meth:`deny`.
            identity: Whom.
        """
        self._add(bucket, "Allow", keys, actions, [identity])

    def lift(self, bucket: str) -> None:
        """Take back every :meth:`deny` and :meth:`allow` on a bucket."""
        self._statements.pop(bucket, None)
        self._put(bucket)

    def _add(
        self, bucket: str, effect: str, keys: Sequence[str], actions: Sequence[str], whom: Sequence[Identity]
    ) -> None:
        self._statements[bucket].append(_statement(bucket, effect, keys, actions, whom))
        self._put(bucket)

    def _put(self, bucket: str) -> None:
        standing = [_statement(bucket, "Deny", ("*",), i.denied, [i]) for i in self.identities if i.denied]
        statements = standing + self._statements.get(bucket, [])
        if statements:
            policy = {"Version": "2012-10-17", "Statement": statements}
            self.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        else:
            self.client().delete_bucket_policy(Bucket=bucket)


def _statement(
    bucket: str, effect: str, keys: Sequence[str], actions: Sequence[str], whom: Sequence[Identity]
) -> dict[str, object]:
    arn = f"arn:aws:s3:::{bucket}"
    return {
        "Effect": effect,
        "Principal": {"AWS": [identity.arn for identity in whom]},
        "Action": list(actions),
        # The bucket itself too, for s3:ListBucket and its like.
        "Resource": [arn, *(f"{arn}/{key}" for key in keys)],
    }
