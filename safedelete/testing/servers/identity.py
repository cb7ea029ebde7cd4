"""Who may call a test object store, and the boto3 client each of them uses."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boto3.session import Session
    from mypy_boto3_s3 import S3Client


_LOCK = threading.Lock()
_SESSION: list[Session] = []

DELETES = ("s3:DeleteObject", "s3:DeleteObjectVersion")
"""What a purge may do to an object, in the words of a policy."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One caller of a test server. The secrets are made up, and good for that server only.

    Attributes:
        name: The user's name, as bucket policies call it.
        access_key: Access key id.
        secret_key: Secret access key.
        actions: What the server itself grants: ``Admin``, ``Read``, ``Write``, ``List``, ``Tagging``, each for all
            buckets or narrowed to ``Write:bucket`` or ``Write:bucket/prefix/*``.
        denied: What the policy of every bucket made by ``create_bucket`` denies it, since ``Write`` alone includes
            deletion.
    """

    name: str
    access_key: str
    secret_key: str
    actions: Sequence[str]
    denied: Sequence[str] = ()

    @property
    def is_admin(self) -> bool:
        """Whether policies do not bind it reliably."""
        return "Admin" in self.actions

    @property
    def arn(self) -> str:
        """Its name in a bucket policy."""
        return f"arn:aws:iam::000000000000:user/{self.name}"


ADMIN = Identity("admin", "sdadmin", "sdadmin-secret-0001", ("Admin", "Read", "Write", "List", "Tagging"))
"""Makes buckets and fills them. Not for testing denials."""

RUNNER = Identity("runner", "sdrunner", "sdrunner-secret-0001", ("Read", "Write", "List", "Tagging"))
"""What a purge runs as: may delete objects, and is bound by policies."""

READER = Identity("reader", "sdreader", "sdreader-secret-0001", ("Read", "List"))
"""May list and read."""

UPLOADER = Identity("uploader", "sduploader", "sduploader-secret-0001", ("Read", "Write", "List"), DELETES)
"""May read and write, but not delete."""

NOBODY = Identity("nobody", "sdnobody", "sdnobody-secret-0001", ("Read:no-such-bucket",))
"""Known to the server, and allowed nothing."""

IDENTITIES = (ADMIN, RUNNER, READER, UPLOADER, NOBODY)


def s3_client(endpoint: str, identity: Identity, **config: Any) -> S3Client:
    """Return a boto3 S3 client for a server on loopback.

    Path-style addressing, as bucket names do not resolve in DNS there, and no retries unless asked for: a test that
    provokes a failure wants to see the first answer.

    Args:
        endpoint: ``http://127.0.0.1:port``.
        identity: Who calls.
        config: Further arguments of ``botocore.config.Config``.
    """
    import boto3.session
    from botocore.config import Config

    settings: dict[str, Any] = {
        "s3": {"addressing_style": "path"},
        "retries": {"mode": "standard", "total_max_attempts": 1},
        "proxies": {},
        "connect_timeout": 5,
        "read_timeout": 30,
    }
    # One session for all: it has parsed botocore's models once. Making clients of it is not thread-safe; using them is.
    with _LOCK:
        if not _SESSION:
            _SESSION.append(boto3.session.Session())
        return _SESSION[0].client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=identity.access_key,
            aws_secret_access_key=identity.secret_key,
            config=Config(**settings | config),
        )
