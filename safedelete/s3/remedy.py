"""The policy statement that is missing, ready to be pasted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

BUCKET_ACTIONS: Final = frozenset(
    {
        "s3:ListBucket",
        "s3:ListBucketVersions",
        "s3:GetBucketVersioning",
        "s3:GetBucketObjectLockConfiguration",
        "s3:GetReplicationConfiguration",
    }
)
"""Actions whose resource is the bucket, not its objects."""


def remedy_for(actions: Sequence[str], bucket: str, prefix: str, said: str = "") -> str:
    """Return the statement that allows these actions, or what to do where a statement cannot help.

    Args:
        actions: IAM actions, all on the bucket or all on its objects.
        bucket: Bucket name or access point ARN.
        prefix: Leading characters of the keys.
        said: The store's message; it may name an explicit deny, which no other statement overrides.
    """
    if "explicit deny" in said.lower():
        return f"An explicit deny on s3://{bucket}/{prefix} must be lifted; no Allow overrides it."
    return json.dumps(statement(actions, bucket, prefix))


def statement(actions: Sequence[str], bucket: str, prefix: str) -> dict[str, Any]:
    """Return an IAM policy statement that allows these actions and nothing else."""
    arn = bucket if bucket.startswith("arn:") else f"arn:aws:s3:::{bucket}"
    if not BUCKET_ACTIONS.isdisjoint(actions):
        found: dict[str, Any] = {"Effect": "Allow", "Action": sorted(actions), "Resource": arn}
        if prefix and {"s3:ListBucket", "s3:ListBucketVersions"} & set(actions):
            found["Condition"] = {"StringLike": {"s3:prefix": f"{prefix}*"}}
        return found
    objects = f"{arn}/object" if ":accesspoint/" in arn else arn
    return {"Effect": "Allow", "Action": sorted(actions), "Resource": f"{objects}/{prefix}*"}
