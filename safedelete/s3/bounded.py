"""Bound how long one answer may take.

The SDK bounds the silence between two bytes and not their number: an answer that comes a byte at a time takes as long as it
likes. A run ends by its deadline all the same; a plan has none.
"""

from __future__ import annotations

import http.client
import io
import time
from typing import TYPE_CHECKING, Any, Final

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

ANSWER_TIMEOUT: Final = 120.0
"""Seconds that an answer may take, beside what its length allows; a silent store is given up much earlier."""

SLOWEST: Final = 10_000
"""Bytes a second: files of an inventory are long, and may take their time."""


def install_bound(client: S3Client, seconds: float) -> None:
    """Have a client of our own give up an answer that takes longer than this, as it gives up a silent one.

    Args:
        client: The client.
        seconds: What an answer may take, beside a second for each :data:`SLOWEST` bytes that have come; above 0.
    """
    # There is no public way to the connections. Where this one is gone, the silence is bounded as before.
    session: Any = getattr(getattr(client, "_endpoint", None), "http_session", None)
    pools = getattr(session, "_pool_classes_by_scheme", None)
    if isinstance(pools, dict):
        pools.update(_pools(seconds))


def _pools(seconds: float) -> dict[str, type]:
    class Response(http.client.HTTPResponse):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.fp = io.BufferedReader(_Bounded(self.fp.detach(), seconds))

    plain = type("Connection", (AWSHTTPConnection,), {"response_class": Response})
    secure = type("SecureConnection", (AWSHTTPSConnection,), {"response_class": Response})
    return {
        "http": type("Pool", (AWSHTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (AWSHTTPSConnectionPool,), {"ConnectionCls": secure}),
    }


class _Bounded(io.RawIOBase):
    """What a socket receives, until it has taken too long."""

    def __init__(self, raw: io.RawIOBase, seconds: float) -> None:
        self._raw = raw
        self._until = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def readinto(self, buffer: Any) -> int | None:
        if time.monotonic() > self._until:
            raise TimeoutError("the answer took too long")
        received = self._raw.readinto(buffer)
        self._until += (received or 0) / SLOWEST
        return received

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
