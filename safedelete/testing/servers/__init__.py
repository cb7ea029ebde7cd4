"""Servers on loopback for tests and for the demonstration: started here, and stopped with whoever started them.

Each is a context manager with ``start()`` and ``stop()``, chooses its own free ports, and keeps its data in a folder
that goes when it stops. None touches a server that was running already.

Example:
    >>> from safedelete.testing.servers import StubS3
    >>> with StubS3() as store:
    ...     _ = store.put("acme-uploads", "a.txt", b"x")
    ...     answer = store.client().delete_objects(
    ...         Bucket="acme-uploads", Delete={"Objects": [{"Key": "a.txt"}]}
    ...     )
    >>> store.keys("acme-uploads")
    set()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safedelete.testing.servers.identity import ADMIN, NOBODY, READER, RUNNER, UPLOADER, Identity
    from safedelete.testing.servers.machine import ServerFailedError, ServerUnavailableError
    from safedelete.testing.servers.mariadb import MariaDB
    from safedelete.testing.servers.moto import Moto
    from safedelete.testing.servers.postgres import Postgres
    from safedelete.testing.servers.redis import Redis
    from safedelete.testing.servers.seaweedfs import SeaweedFS
    from safedelete.testing.servers.stub_s3 import StubS3

_HOME = {
    "ADMIN": "identity",
    "Identity": "identity",
    "MariaDB": "mariadb",
    "Moto": "moto",
    "NOBODY": "identity",
    "Postgres": "postgres",
    "READER": "identity",
    "RUNNER": "identity",
    "Redis": "redis",
    "SeaweedFS": "seaweedfs",
    "ServerFailedError": "machine",
    "ServerUnavailableError": "machine",
    "StubS3": "stub_s3",
    "UPLOADER": "identity",
}

__all__ = [
    "ADMIN",
    "NOBODY",
    "READER",
    "RUNNER",
    "UPLOADER",
    "Identity",
    "MariaDB",
    "Moto",
    "Postgres",
    "Redis",
    "SeaweedFS",
    "ServerFailedError",
    "ServerUnavailableError",
    "StubS3",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
