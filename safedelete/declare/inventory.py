"""``Inventory``: an S3 Inventory report as the list of a prefix's objects, checked when it is declared."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from safedelete.declare.targets import check_bucket
from safedelete.errors import ConfigError

_URL: Final = re.compile(r"s3://([^/]+)/(.+)", re.DOTALL)


class Inventory:
    """Name an S3 Inventory report that stands in for listing a bucket.

    An inventory is a day or more old. So each object it names is looked at again right before it is deleted, and stays
    when its ETag is another one or it was written since.

    Args:
        url: ``s3://bucket/path/manifest.json`` for one report, or the folder of all of them, that of the
            configuration's name, ending with ``/``: then the newest is taken.
        max_age: Oldest inventory that is used, by when S3 began to make it; an older one refuses the run. Positive.

    Raises:
        ConfigError: The URL is not one of these, or the age is not positive.

    Example:
        ``S3Prefix("acme-logs", "app/", older_than=timedelta(days=90),
        inventory=Inventory("s3://acme-inventory/acme-logs/weekly/", max_age=timedelta(days=8)))``
    """

    def __init__(self, url: str, *, max_age: timedelta = timedelta(days=2)) -> None:
        found = _URL.fullmatch(url) if isinstance(url, str) else None
        if found is None or not url.endswith(("/", "/manifest.json")):
            raise ConfigError(
                f"Inventory({url!r}): must be the s3:// URL of a manifest.json, or of the folder of reports.",
                hint='For example Inventory("s3://acme-inventory/acme-logs/daily/").',
            )
        if not isinstance(max_age, timedelta) or max_age <= timedelta(0):
            raise ConfigError(
                f"Inventory({url!r}, max_age={max_age!r}): must be a positive timedelta.",
                hint="For example max_age=timedelta(days=8) for a weekly inventory.",
            )
        self.url = url
        self.bucket = check_bucket(found[1], "Inventory")
        self.key = found[2]
        self.max_age = max_age

    @property
    def newest(self) -> bool:
        """Whether the URL is that of a folder, of which the newest report is meant."""
        return self.url.endswith("/")
