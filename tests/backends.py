"""Where the suite's servers come from: started for it, or named by a ``SAFEDELETE_TEST_…_URL``; never found by chance."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.pool import NullPool

from safedelete.testing.servers.identity import ADMIN, Identity, s3_client
from safedelete.testing.servers.machine import ServerUnavailableError
from safedelete.testing.servers.policies import Buckets


class Startable(Protocol):
    def start(self) -> Self: ...
    def stop(self) -> None: ...


T = TypeVar("T", bound=Startable)


@contextmanager
def started(make: Callable[[], T]) -> Iterator[T]:
    """Start a server for the length of a fixture; skip with the reason where it cannot be had, fail in CI."""
    server = make()
    try:
        server.start()
    except ServerUnavailableError as error:
        cannot_be_had(f"{error} {error.hint}")
    try:
        yield server
    finally:
        server.stop()


def cannot_be_had(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must have every server: {reason}", pytrace=False)
    pytest.skip(reason)


class GivenDatabase:
    """A database server somebody else runs and has given us; we make and drop databases of our own on it."""

    pid = None

    def __init__(self, url: str) -> None:
        self.url = self.superuser_url = url

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        pass

    def create_database(self, name: str | None = None) -> str:
        name = name or f"sd_{secrets.token_hex(6)}"
        self._run(f"CREATE DATABASE {name}")
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def drop_database(self, name: str) -> None:
        force = " WITH (FORCE)" if self.url.startswith("postgresql") else ""
        self._run(f"DROP DATABASE IF EXISTS {name}{force}")

    def _run(self, statement: str) -> None:
        engine = create_engine(self.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))


class GivenRedis:
    """A Redis somebody else runs and has given us, its database number included."""

    pid = None

    def __init__(self, url: str) -> None:
        self.url = url

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        pass


class GivenS3(Buckets):
    """An S3 server somebody else runs: ``http://access-key:secret@host:port``. It has an administrator only."""

    pid = None

    def __init__(self, url: str) -> None:
        super().__init__()
        parts = urlsplit(url)
        self.endpoint = f"{parts.scheme}://{parts.hostname}:{parts.port}"
        self.admin = Identity("admin", parts.username or "", parts.password or "", ("Admin",))
        self.identities = (self.admin,)

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        pass

    def client(self, identity: Identity = ADMIN, **config: Any) -> Any:
        if identity.name != self.admin.name:
            cannot_be_had(f"The S3 server given by SAFEDELETE_TEST_S3_URL has no identity {identity.name!r}.")
        return s3_client(self.endpoint, self.admin, **config)
