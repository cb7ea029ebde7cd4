"""``S3Prefix``: the objects under a prefix that a purge deletes, checked when it is declared."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from safedelete.core.glob import compile_glob
from safedelete.declare.endpoint import S3Endpoint
from safedelete.declare.inventory import Inventory
from safedelete.declare.targets import Mode, check_bucket, check_canary, check_mode, check_prefix
from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

STANDARD: Final = "STANDARD"
"""The storage class of an object whose listing names none."""

STORAGE_CLASSES: Final = (
    STANDARD,
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "GLACIER",
    "DEEP_ARCHIVE",
    "EXPRESS_ONEZONE",
    "OUTPOSTS",
    "SNOW",
    "FSX_OPENZFS",
    "FSX_ONTAP",
)
"""Every storage class that S3 gives an object."""


class S3Prefix:
    """Delete the objects under a prefix that are older than an age, by their LastModified.

    Every condition must hold. Where ``mode="purge"`` takes all versions of a key, the age is that of the newest
    version or marker, and size and storage class must hold for each version: a key goes whole or not at all.

    Args:
        bucket: Bucket name, or an access point's ARN.
        prefix: Key prefix. It means whole path segments: ``tmp`` and ``tmp/`` spare ``tmp2/x``; see ``exact_prefix``.
        older_than: Positive age; an object exactly that old stays (exclusive).
        pattern: Glob on the rest of the key, after the prefix. ``*`` and ``?`` stay within one path segment, ``**`` as a
            whole segment means any number of them, ``[a-z]`` and ``[!a-z]`` are sets; case counts. So ``*.log`` matches
            ``tmp/a.log`` and spares ``tmp/2026/a.log``; ``**/*.log`` matches both.
        min_size: Least bytes, inclusive.
        max_size: Most bytes, inclusive.
        storage_class: One storage class or several, in S3's words (``"STANDARD_IA"``). An object whose listing names
            none is of class ``STANDARD``.
        max_delete_rate: Most keys deleted a second, above 0; None for 2,500. It is halved when the store answers
            SlowDown, once for the requests under way together, and won back by a fiftieth of the full rate with each request that it takes.
        inventory: Take the keys from an S3 Inventory instead of a listing: the URL of its ``manifest.json``, that of
            its folder for the newest one (ends with ``/``), or an :class:`Inventory`.
        whole_bucket: Allow an empty prefix.
        exact_prefix: Take the prefix as plain leading characters, so that ``log-`` matches ``log-2020.txt``.
        mode: For a versioned bucket, and needed there: ``"marker"`` or ``"purge"``.
        client: A boto3 S3 client, or an ``S3Endpoint``, instead of the default chain.
        require_conditional: As for ``S3Keys``; the canary is put under the prefix, or in the folder given here.

    Raises:
        ConfigError: An empty bucket or prefix, a leading slash by mistake, an age that is not positive, a malformed
            pattern, bounds that nothing can meet, an unknown storage class, or a rate of 0.

    Example:
        ``S3Prefix("acme-logs", "app/", older_than=timedelta(days=90), pattern="**/*.gz", min_size=1)``
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        older_than: timedelta,
        pattern: str | None = None,
        min_size: int | None = None,
        max_size: int | None = None,
        storage_class: str | Sequence[str] | None = None,
        max_delete_rate: float | None = None,
        inventory: str | Inventory | None = None,
        whole_bucket: bool = False,
        exact_prefix: bool = False,
        mode: Mode | None = None,
        client: S3Client | S3Endpoint | None = None,
        require_conditional: bool | str = False,
    ) -> None:
        self.bucket = check_bucket(bucket, "S3Prefix")
        self.require_conditional = check_canary(require_conditional, f"S3Prefix({bucket!r}")
        self.prefix = check_prefix(
            bucket, prefix, "S3Prefix", whole_bucket=whole_bucket, exact_prefix=exact_prefix
        )
        where = f"S3Prefix({bucket!r}, {prefix!r})"
        if not isinstance(older_than, timedelta) or older_than <= timedelta(0):
            raise ConfigError(
                f"S3Prefix({bucket!r}, {prefix!r}, older_than={older_than!r}): must be a positive timedelta.",
                hint="For example older_than=timedelta(days=7).",
            )
        self.exact_prefix = exact_prefix
        self.older_than = older_than
        self.pattern = pattern
        self.pattern_regex = _pattern(pattern, where)
        self.min_size, self.max_size = _sizes(min_size, max_size, where)
        self.storage_classes = _classes(storage_class, where)
        self.max_delete_rate = check_rate(max_delete_rate, where)
        self.mode = check_mode(mode, "S3Prefix")
        self.inventory = _inventory(inventory, where, bucket, mode)
        self.client = client

    @property
    def name(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def conditions(self) -> dict[str, Any]:
        """What selects beside prefix and age, by its name; part of the definition's fingerprint, empty where none is."""
        given: dict[str, Any] = {
            "pattern": self.pattern,
            "min_size": self.min_size,
            "max_size": self.max_size,
            "storage_class": list(self.storage_classes) or None,
            "inventory": self.inventory and [self.inventory.url, self.inventory.max_age.total_seconds()],
        }
        return {name: value for name, value in given.items() if value is not None}


def _pattern(pattern: object, where: str) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    if not isinstance(pattern, str):
        raise ConfigError(
            f"{where}: pattern={pattern!r} is a {type(pattern).__name__}; it must be a glob as text.",
            hint='For example pattern="**/*.log".',
        )
    try:
        compiled = compile_glob(pattern)
    except ValueError as error:
        raise ConfigError(
            f"{where}: pattern={pattern!r} is malformed: {error}.",
            hint="'*' and '?' stay within a path segment, '**' means any number of segments, '[a-z]' is a set.",
        ) from error
    if pattern.startswith("/"):
        raise ConfigError(
            f"{where}: pattern={pattern!r} begins with '/', but it is matched after the prefix and its '/'.",
            hint=f"Say pattern={pattern.lstrip('/')!r}.",
        )
    return compiled


def _sizes(least: object, most: object, where: str) -> tuple[int | None, int | None]:
    found: list[int | None] = []
    for name, size in (("min_size", least), ("max_size", most)):
        if size is None:
            found.append(None)
        elif isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ConfigError(
                f"{where}: {name}={size!r}; must be a whole number of bytes, at least 0.",
                hint=f"For example {name}=1024 for a kibibyte.",
            )
        else:
            found.append(size)
    low, high = found
    if low is not None and high is not None and low > high:
        raise ConfigError(
            f"{where}: min_size={low:,} is above max_size={high:,}, which no object meets.",
            hint="Exchange the two.",
        )
    return low, high


def _classes(given: object, where: str) -> tuple[str, ...]:
    if given is None:
        return ()
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, (list, tuple, set, frozenset)) or not several:
        raise ConfigError(
            f"{where}: storage_class={given!r}; must be a storage class or a list of them.",
            hint='For example storage_class=["STANDARD", "STANDARD_IA"].',
        )
    unknown = [name for name in several if name not in STORAGE_CLASSES]
    if unknown:
        raise ConfigError(
            f"{where}: storage_class={unknown[0]!r} is none of S3's.",
            hint=f"S3 has {', '.join(STORAGE_CLASSES)}.",
        )
    return tuple(sorted(set(several)))


def check_rate(rate: object, where: str) -> float | None:
    """Return how many keys may be deleted a second, or None, or say what is allowed."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < math.inf:
        raise ConfigError(
            f"{where}: max_delete_rate={rate!r}; must be keys a second, above 0.",
            hint="For example max_delete_rate=500. S3 itself bears about 3,500 a second for each prefix.",
        )
    return float(rate)


def _inventory(given: object, where: str, bucket: str, mode: Mode | None) -> Inventory | None:
    if given is None:
        return None
    found = Inventory(given) if isinstance(given, str) else given
    if not isinstance(found, Inventory):
        raise ConfigError(
            f"{where}: inventory={given!r} is a {type(given).__name__}; must be a URL or an Inventory.",
            hint='For example inventory="s3://acme-inventory/acme-logs/daily/".',
        )
    if bucket.startswith("arn:"):
        raise ConfigError(
            f"{where}: an inventory names its bucket, which cannot be compared with an access point's ARN.",
            hint="Name the bucket itself, or leave inventory= out.",
        )
    if mode == "purge":
        raise ConfigError(
            f'{where}: inventory= does not go with mode="purge": removing every version of a key needs all of them as '
            "they are now, and an inventory is a day old.",
            hint='Leave inventory= out, or say mode="marker" and let a lifecycle rule remove noncurrent versions.',
        )
    return found
