"""Labs: two of each kind, one for each thread of the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from safedelete.testing.servers import MariaDB, Postgres
from tests.backends import GivenDatabase
from tests.crash.matrix import EVERY_BOUNDARY, WORKERS
from tests.crash.world import Lab

Say = Callable[[str], None]


@pytest.fixture(scope="session")
def sqlite_labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lab]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Lab(tmp_path_factory.mktemp("lab"))) for _ in range(WORKERS)]


@pytest.fixture(scope="session")
def apart_labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Lab]]:
    """The ledger in a database of its own."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Lab(tmp_path_factory.mktemp("lab"), elsewhere=True)) for _ in range(WORKERS)
        ]


@pytest.fixture(scope="session")
def postgres_labs(
    postgres: Postgres | GivenDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Lab]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Lab(tmp_path_factory.mktemp("lab"), postgres.create_database()))
            for _ in range(WORKERS)
        ]


@pytest.fixture(scope="session")
def mariadb_labs(
    mariadb: MariaDB | GivenDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Lab]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Lab(tmp_path_factory.mktemp("lab"), mariadb.create_database()))
            for _ in range(WORKERS if EVERY_BOUNDARY else 1)
        ]


@pytest.fixture(params=["sqlite", "apart", "postgres"])
def labs(request: pytest.FixtureRequest) -> list[Lab]:
    found: list[Lab] = request.getfixturevalue(f"{request.param}_labs")
    return found


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Print though the output is captured: how much was tried belongs into the log of a run that passed."""

    def aloud(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)

    return aloud
