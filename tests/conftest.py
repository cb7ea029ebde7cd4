"""What every test may ask for: private servers, fresh databases and buckets, and an environment without the host's."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import pytest
import structlog
from botocore.loaders import JSONFileLoader
from sqlalchemy import make_url

from safedelete.testing.servers import MariaDB, Moto, Postgres, Redis, SeaweedFS, StubS3
from tests.backends import GivenDatabase, GivenRedis, GivenS3, started
from tests.memory_files import keep_files_in_memory

keep_files_in_memory()

HOST_PREFIXES = ("AWS_", "PG", "MYSQL_", "REDIS_", "SAFEDELETE_", "BOTO_")
HOST_NAMES = (
    "DATABASE_URL",
    "CELERY_BROKER_URL",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
)


@pytest.fixture(autouse=True)
def no_host_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A test must not be able to reach the databases and accounts of whoever runs it, not even by a mistake."""
    for name in tuple(os.environ):
        mine = name.startswith("SAFEDELETE_TEST_")
        if (name.startswith(HOST_PREFIXES) and not mine) or name in HOST_NAMES:
            monkeypatch.delenv(name)
    absent = str(tmp_path_factory.getbasetemp() / "no-such-file")
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": absent,
        "AWS_SHARED_CREDENTIALS_FILE": absent,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1,localhost",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """A command run in this process sets up the logs for its own standard error and level."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session", autouse=True)
def models_read_once() -> Iterator[None]:
    """boto3 reads its models anew for each session, a tenth of a second a time, and the command line makes several a run."""
    real = JSONFileLoader()
    with pytest.MonkeyPatch.context() as patch:
        once = lru_cache(maxsize=None)(real.load_file)
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: once(path))
        yield


# --- servers, one of each for the whole run ---


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres | GivenDatabase]:
    given = os.environ.get("SAFEDELETE_TEST_POSTGRES_URL")
    with started(lambda: GivenDatabase(given) if given else Postgres()) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB | GivenDatabase]:
    given = os.environ.get("SAFEDELETE_TEST_MARIADB_URL")
    with started(lambda: GivenDatabase(given) if given else MariaDB()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis | GivenRedis]:
    given = os.environ.get("SAFEDELETE_TEST_REDIS_URL")
    with started(lambda: GivenRedis(given) if given else Redis()) as server:
        yield server


@pytest.fixture(scope="session")
def seaweed() -> Iterator[SeaweedFS | GivenS3]:
    given = os.environ.get("SAFEDELETE_TEST_S3_URL")
    with started(lambda: GivenS3(given) if given else SeaweedFS()) as server:
        yield server


# --- what one test has for itself ---


@pytest.fixture
def pg_database(postgres: Postgres | GivenDatabase) -> Iterator[str]:
    """SQLAlchemy URL of a fresh PostgreSQL database, dropped afterwards."""
    yield from _fresh(postgres)


@pytest.fixture
def mariadb_database(mariadb: MariaDB | GivenDatabase) -> Iterator[str]:
    """SQLAlchemy URL of a fresh MariaDB database, dropped afterwards."""
    yield from _fresh(mariadb)


def _fresh(server: Postgres | MariaDB | GivenDatabase) -> Iterator[str]:
    url = server.create_database()
    yield url
    name = make_url(url).database
    assert name is not None
    server.drop_database(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """SQLAlchemy URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path / 'test.sqlite3'}"


@pytest.fixture
def bucket(seaweed: SeaweedFS | GivenS3) -> Iterator[str]:
    """Name of a fresh, empty, unversioned bucket on ``seaweed``."""
    name = f"sd-{secrets.token_hex(6)}"
    seaweed.create_bucket(name)
    yield name
    seaweed.lift(name)
    admin = seaweed.client()
    # What is left behind (locked versions, say) ends with the server; its folder is private.
    with suppress(admin.exceptions.ClientError):
        admin.delete_bucket(Bucket=name)


@pytest.fixture
def moto_s3() -> Iterator[Moto]:
    """moto's S3, empty."""
    with started(Moto) as server:
        yield server


@pytest.fixture
def stub_s3() -> Iterator[StubS3]:
    """The stub store, empty and honest."""
    with StubS3() as server:
        yield server
