"""``S3Endpoint``: a store that speaks S3 and is not Amazon's, or a way of reaching it that is not the default."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from safedelete.errors import ConfigError

_URL: Final = re.compile(r"https?://[^/\s?#]+/?")
_ACCOUNT: Final = re.compile(r"\d{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Endpoint:
    """Say how a store is reached, as ``client=`` of ``S3Keys`` and ``S3Prefix``; credentials come from boto3's chain.

    One Endpoint may serve any number of targets.

    Attributes:
        url: Scheme, host and port; None for ``$AWS_ENDPOINT_URL_S3`` or ``$AWS_ENDPOINT_URL``, else AWS.
        region: Region name; None for boto3's chain, else ``us-east-1``.
        path_style: Name the bucket in the path (True) or in the host name (False); None for the path everywhere but on
            AWS, since few other stores have a host name for each bucket.
        content_md5: Send Content-MD5 in place of a CRC32 with DeleteObjects. For stores that answer
            ``MissingContentMD5`` or ``InvalidRequest`` to it: older MinIO, NetApp StorageGRID, OVH.
        owner: Account id that each bucket must belong to, the one of an inventory included; sent as
            ExpectedBucketOwner, which AWS enforces and most other stores ignore.

    Raises:
        ConfigError: The URL has no scheme or more than host and port, or the owner is no account id.

    Example:
        ``S3Prefix("scratch", "tmp/", older_than=timedelta(days=7),
        client=S3Endpoint(url="https://minio.acme.example:9000", content_md5=True))``
    """

    url: str | None = None
    region: str | None = None
    path_style: bool | None = None
    content_md5: bool = False
    owner: str | None = None

    def __post_init__(self) -> None:
        if self.url is not None and (not isinstance(self.url, str) or not _URL.fullmatch(self.url)):
            raise ConfigError(
                f"S3Endpoint(url={self.url!r}): must be scheme, host and port, without a bucket.",
                hint='For example S3Endpoint(url="https://minio.acme.example:9000").',
            )
        for name, switch in (("path_style", self.path_style), ("content_md5", self.content_md5)):
            if not isinstance(switch, bool) and not (switch is None and name == "path_style"):
                raise ConfigError(
                    f"S3Endpoint({name}={switch!r}): must be True or False.",
                    hint="Leave it out for the usual way.",
                )
        if self.owner is not None and (not isinstance(self.owner, str) or not _ACCOUNT.fullmatch(self.owner)):
            raise ConfigError(
                f"S3Endpoint(owner={self.owner!r}): must be an account id of 12 digits, as text.",
                hint='For example owner="123456789012".',
            )
