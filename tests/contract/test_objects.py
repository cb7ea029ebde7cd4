"""The contracts of the object ports on memory, the stub store, moto and SeaweedFS."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from safedelete.declare import S3Prefix
from safedelete.s3.client import connect
from safedelete.s3.probe import S3Prober
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.testing import StrictS3
from safedelete.testing.memory import MemoryObjects, MemoryPrefix, MemoryProber, Policy
from safedelete.testing.servers import ADMIN, RUNNER
from safedelete.wiring.settings import SystemClock
from tests.contract.objects import Bucket, ObjectStoreContract


def in_s3(server: Any, name: str, identity: Any) -> Bucket:
    connection = connect(server.client(identity))
    store = S3ObjectStore(connection, clock=SystemClock())
    admin = server.client(ADMIN)
    bodies = count()

    def put(key: str) -> None:
        admin.put_object(Bucket=name, Key=key, Body=f"body {next(bodies)}".encode())

    def keys() -> set[str]:
        return {item["Key"] for item in admin.list_objects_v2(Bucket=name).get("Contents", ())}

    declared = S3Prefix(name, "tmp/", older_than=timedelta(days=1))
    return Bucket(
        store,
        PrefixTarget(declared, connection, store),
        S3Prober(connection, modes={name: None}, prefixes=[(name, "tmp/")]),
        name,
        put,
        keys,
    )


class TestMemory(ObjectStoreContract):
    @pytest.fixture
    def bucket_of(self) -> Bucket:
        objects, name = MemoryObjects(chunk=2), "acme"

        def deny(key: str) -> None:
            objects.policies[name, key] = Policy.DENIED

        return Bucket(
            objects,
            MemoryPrefix(objects, name, "tmp/", older_than=timedelta(days=1)),
            MemoryProber(objects),
            name,
            lambda key: objects.put(name, key, modified=datetime.now(UTC)),
            lambda: {key for bucket, key in objects.stored if bucket == name},
            deny,
        )


class TestStub(ObjectStoreContract):
    @pytest.fixture
    def bucket_of(self, stub_s3: Any) -> Bucket:
        stub_s3.create_bucket("acme")
        return in_s3(stub_s3, "acme", ADMIN)


class TestStrict(ObjectStoreContract):
    @pytest.fixture
    def bucket_of(self) -> Iterator[Bucket]:
        with StrictS3() as store:
            store.create_bucket("acme")
            made = in_s3(store, "acme", ADMIN)
            made.deny = lambda key: store.deny("acme", [key])
            yield made


class TestMoto(ObjectStoreContract):
    @pytest.fixture
    def bucket_of(self, moto_s3: Any) -> Bucket:
        moto_s3.create_bucket("acme")
        return in_s3(moto_s3, "acme", ADMIN)


class TestSeaweedFS(ObjectStoreContract):
    @pytest.fixture
    def bucket_of(self, seaweed: Any, bucket: str) -> Bucket:
        made = in_s3(seaweed, bucket, RUNNER)
        made.deny = lambda key: seaweed.deny(bucket, [key], identity=RUNNER)
        return made
