"""A hundred thousand rows with a hundred thousand objects: both go, the sums agree, and memory stays flat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from safedelete.testing.servers import ADMIN
from tests.e2e.fast_put import fast_put
from tests.e2e.world import World, metadata

LARGE = 100_000
SMALL = 10_000

MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
"""Starts the command from a small process: a child's peak counts what its parent held, and ours may hold a whole store."""


@dataclass(frozen=True)
class Purged:
    """How a purge of a size went."""

    seconds: float
    peak_kb: int
    document: Any


def key(number: int) -> str:
    return f"up/{number % 97:02}/{number:07}.bin"


def seed(world: World, size: int) -> None:
    """Make rows that are due with their objects, and as many on each of the next two nights without."""
    metadata.create_all(world.engine)
    world.sql(
        "INSERT INTO uploads (id, expires_at, hold, s3_key) SELECT n, now() - interval '1 hour' "
        f"+ interval '1 day' * ((n - 1) / {size}), false, "
        "'up/' || lpad((n %% 97)::text, 2, '0') || '/' || lpad(n::text, 7, '0') || '.bin' "
        f"FROM generate_series(1, {3 * size}) AS n",
        "ANALYZE uploads",
    )


def put(world: World, keys: Iterator[str]) -> None:
    fast_put(world.store.endpoint, ADMIN, world.bucket, keys)


def purged(world: World, size: int, put: Callable[[World, Iterator[str]], None] = put) -> Purged:
    """Purge in a process of its own, whose peak memory is known afterwards."""
    world.sql("DROP TABLE IF EXISTS uploads")
    began = time.monotonic()
    seed(world, size)
    put(world, map(key, range(1, size + 1)))
    print(f"seeded {size:,} in {time.monotonic() - began:.1f} s")
    assert count(world) == size
    jobs = world.jobs()
    world.cli("init", jobs, expect=0)
    out, peak = world.folder / "out.json", world.folder / "peak"
    began = time.monotonic()
    with out.open("wb") as stdout, (world.folder / "err.log").open("wb") as stderr:
        child = subprocess.Popen(
            [
                sys.executable,
                "-c",
                MEASURED,
                str(peak),
                sys.executable,
                "-m",
                "safedelete",
                "run",
                str(jobs),
                "--json",
            ],
            env=world.env(),
            stdout=stdout,
            stderr=stderr,
        )
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    assert child.returncode == 0, (world.folder / "err.log").read_text()[-3000:]
    peak_kb = int(peak.read_text())
    print(
        f"purged {size:,} in {seconds:.1f} s, peak {peak_kb / 1024:.0f} MB, {usage.ru_utime + usage.ru_stime:.1f} s of processor"
    )
    return Purged(seconds, peak_kb, json.loads(out.read_text()))


def count(world: World) -> int:
    pages = world.s3.get_paginator("list_objects_v2").paginate(Bucket=world.bucket, Prefix="up/")
    return sum(page["KeyCount"] for page in pages)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_rows_and_objects_go_in_flat_memory(
    pg_world: World, record_property: pytest.RecordProperty
) -> None:
    world = pg_world
    small = purged(world, SMALL)
    world.sql("DELETE FROM safedelete_batch", "DELETE FROM safedelete_run")
    large = purged(world, LARGE)
    tally = large.document["outcomes"]["uploads"]
    assert (tally["deleted"], tally["deleted"] + sum(tally[n] for n in OTHERS)) == (LARGE, LARGE)
    assert count(world) == 0
    assert world.value("SELECT count(*) FROM uploads WHERE expires_at < now()") == 0
    assert world.value("SELECT count(*) FROM uploads") == 2 * LARGE
    assert world.value("SELECT sum(item_count) FROM safedelete_batch") == LARGE
    assert world.value("SELECT count(*) FROM safedelete_batch WHERE state <> 'done'") == 0
    for name, value in {
        "peak at 10,000": small.peak_kb,
        "peak at 100,000": large.peak_kb,
        "seconds": large.seconds,
    }.items():
        record_property(name, value)
    assert large.peak_kb <= 1.3 * small.peak_kb, (small.peak_kb, large.peak_kb)


OTHERS = ("gone", "changed", "blocked", "failed", "unknown")
