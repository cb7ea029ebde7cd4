"""``S3Prefix``: the objects under a prefix that a purge deletes, checked when it is declared."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from safedelete.declare.targets import Mode, check_bucket, check_mode
from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


class S3Prefix:
    """Delete the objects under a prefix that are older than an age, by their LastModified.

    Args:
        bucket: Bucket name, or an access point's ARN.
        prefix: Key prefix. It means whole path segments: ``tmp`` and ``tmp/`` spare ``tmp2/x``; see ``exact_prefix``.
        older_than: Positive age; an object exactly that old stays (exclusive).
        whole_bucket: Allow an empty prefix.
        exact_prefix: Take the prefix as plain leading characters, so that ``log-`` matches ``log-2020.txt``.
        mode: For a versioned bucket, and needed there: ``"marker"`` or ``"purge"``.
        client: A boto3 S3 client instead of the default chain.

    Raises:
        ConfigError: An empty bucket or prefix, a leading slash by mistake, or an age that is not positive.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        older_than: timedelta,
        whole_bucket: bool = False,
        exact_prefix: bool = False,
        mode: Mode | None = None,
        client: S3Client | None = None,
    ) -> None:
        self.bucket = check_bucket(bucket, "S3Prefix")
        if not isinstance(prefix, str):
            raise ConfigError(f"S3Prefix({bucket!r}, {prefix!r}): the prefix must be text.")
        if prefix.startswith("/") and not exact_prefix:
            raise ConfigError(
                f"S3Prefix({bucket!r}, {prefix!r}): a key seldom starts with '/'; a leading slash matches nothing else.",
                hint="Leave it out, or say exact_prefix=True if your keys do start with it.",
            )
        if not prefix and not whole_bucket:
            raise ConfigError(
                f"S3Prefix({bucket!r}, ''): an empty prefix means every object of the bucket.",
                hint="Name a prefix, or say whole_bucket=True if you mean it.",
            )
        if prefix and whole_bucket:
            raise ConfigError(
                f"S3Prefix({bucket!r}, {prefix!r}): whole_bucket=True goes with an empty prefix only.",
                hint="Leave whole_bucket out to delete below the prefix.",
            )
        if not isinstance(older_than, timedelta) or older_than <= timedelta(0):
            raise ConfigError(
                f"S3Prefix({bucket!r}, {prefix!r}, older_than={older_than!r}): must be a positive timedelta.",
                hint="For example older_than=timedelta(days=7).",
            )
        self.exact_prefix = exact_prefix
        self.prefix = prefix if exact_prefix or not prefix or prefix.endswith("/") else prefix + "/"
        self.older_than = older_than
        self.mode = check_mode(mode, "S3Prefix")
        self.client = client

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}"
