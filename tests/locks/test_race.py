"""Two processes started together: exactly one works each time, for each lock, on each database.

Twenty rounds here; `make soak` sets SAFEDELETE_SOAK for as many as it says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

import safedelete
from tests.locks.racers import Racers, Seen

ROUNDS = int(os.environ.get("SAFEDELETE_SOAK", "20"))
ROOT = Path(__file__).resolve().parents[2]

PAIRS = [
    ("lease", "postgresql"),
    ("lease", "mariadb"),
    ("lease", "sqlite"),
    ("advisory", "postgresql"),
    ("advisory", "mariadb"),
    ("redis", "postgresql"),
    ("redis", "mariadb"),
    ("redis", "sqlite"),
]


@pytest.fixture(scope="module")
def racers() -> Iterator[Racers]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    try:
        with Racers() as racers:
            yield racers
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.mark.timeout(60 + ROUNDS * 5)
@pytest.mark.parametrize(("lock", "database"), PAIRS, ids=[f"{lock}-{name}" for lock, name in PAIRS])
def test_of_two_processes_started_together_exactly_one_works_each_time(
    lock: str,
    database: str,
    racers: Racers,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = prepared(lock, database, request, monkeypatch)
    rounds = racers.race(os.environ, ROUNDS)
    one_worked_in_each(rounds)
    assert recorded(url) == ROUNDS, "the one that was refused left no trace"


@pytest.mark.timeout(60 + ROUNDS * 5)
@pytest.mark.parametrize(
    ("lock", "database"),
    [("advisory", "postgresql"), ("advisory", "mariadb"), ("redis", "sqlite")],
    ids=["advisory-postgresql", "advisory-mariadb", "redis"],
)
def test_exactly_one_gets_a_lock_that_no_lease_decides_before_it(
    lock: str,
    database: str,
    racers: Racers,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared(lock, database, request, monkeypatch)
    one_worked_in_each(racers.race(os.environ, ROUNDS, alone=True))


def prepared(
    lock: str, database: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> str:
    """Set the environment of both and initialise; returns the database's URL."""
    fixture = {"postgresql": "pg_database", "mariadb": "mariadb_database", "sqlite": "sqlite_url"}[database]
    url: str = request.getfixturevalue(fixture)
    monkeypatch.setenv("SAFEDELETE_DATABASE_URL", url)
    monkeypatch.setenv("SAFEDELETE_ENVIRONMENT", "test")
    monkeypatch.setenv("SAFEDELETE_LOCK", lock)
    if lock == "redis":
        monkeypatch.setenv("SAFEDELETE_REDIS_URL", request.getfixturevalue("redis_server").url)
    safedelete.init([])
    return url


def one_worked_in_each(rounds: Sequence[tuple[Seen, Seen]]) -> None:
    assert len(rounds) == ROUNDS
    for number, seen in enumerate(rounds):
        assert sum(one.worked for one in seen) == 1, f"round {number}: {seen}"
        (said,) = (one.said for one in seen if not one.worked)
        assert "locked" in said, said


def recorded(url: str) -> int:
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        return int(
            connection.exec_driver_sql(
                "SELECT count(*) FROM safedelete_run WHERE state = 'succeeded'"
            ).scalar_one()
        )
