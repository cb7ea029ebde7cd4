"""moto's S3 in this process: for where no real server is to be had.

It keeps the flow of a purge honest, not its permissions: it ignores who calls (a denial meant for one identity hits
all of them), ``ETag`` in DeleteObjects, ``Quiet``, and the limit of 1,000 keys. What it does honour, key by key, is a
denial by :meth:`Moto.deny`.
"""

from __future__ import annotations

import atexit
import http.client
import logging
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from safedelete.testing.servers.identity import ADMIN, RUNNER, Identity, s3_client
from safedelete.testing.servers.machine import ServerFailedError, ServerUnavailableError
from safedelete.testing.servers.policies import Buckets

if TYPE_CHECKING:
    from moto.server import ThreadedMotoServer
    from mypy_boto3_s3 import S3Client


class Moto(Buckets):
    """moto's threaded server. Its objects are gone when it stops; two of them in one process share their buckets.

    Args:
        identities: Who the clients say they are; moto lets everybody in.
    """

    name = "moto"

    def __init__(self, identities: Sequence[Identity] = (ADMIN, RUNNER)) -> None:
        super().__init__()
        self.identities = tuple(identities)
        self.port = 0
        self._server: ThreadedMotoServer | None = None
        self._owner = 0
        self._level = logging.NOTSET

    @property
    def endpoint(self) -> str:
        """URL of the S3 API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it is started."""
        return self._server is not None

    def client(self, identity: Identity = ADMIN, **config: Any) -> S3Client:
        """Return a boto3 S3 client (path style, no retries).

        Args:
            identity: Who calls; ignored by moto.
            config: Further arguments of ``botocore.config.Config``.
        """
        return s3_client(self.endpoint, identity, **config)

    def start(self) -> Self:
        """Start it, and return when it listens."""
        if self._server is not None:
            return self
        try:
            from moto.server import ThreadedMotoServer
        except ImportError as error:
            raise ServerUnavailableError(
                f"moto's server cannot be imported: {error}.", hint="pip install 'moto[server]'."
            ) from error
        # Its web server writes a line for every request to stderr.
        logger = logging.getLogger("werkzeug")
        self._level = logger.level
        logger.setLevel(logging.ERROR)
        self._owner = os.getpid()
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        self._server = server
        self.port = int(server.get_host_and_port()[1])
        atexit.register(self.stop)
        return self

    def reset(self) -> None:
        """Forget every bucket and object."""
        self._statements.clear()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", "/moto-api/reset")
            status = connection.getresponse().status
        finally:
            connection.close()
        if status != http.HTTPStatus.OK:
            raise ServerFailedError(f"moto answered {status} to a reset.", hint="Start a new one.")

    def stop(self) -> None:
        """Forget everything and stop listening. Idempotent."""
        server, self._server = self._server, None
        if server is None or self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        try:
            self.reset()
        finally:
            server.stop()
            logging.getLogger("werkzeug").setLevel(self._level)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
