"""A million rows with a million objects, beside a tenth of that: time for each item, and peak memory.

    python -m tests.bench owned         # SAFEDELETE_BENCH_OWNED=20000 for a quick look

The database is PostgreSQL. The object store is the stub, at the other end of HTTP: a real one on the same machine would
take most of the time, and be what is measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import sqlalchemy as sa

from safedelete.testing.servers import Postgres, StubS3
from tests.bench.result import Result, compared
from tests.e2e.test_scale import purged
from tests.e2e.world import World

ITEMS = int(os.environ.get("SAFEDELETE_BENCH_OWNED", "1000000"))


def measure() -> list[Result]:
    """Purge the tenth, then all."""
    with Postgres() as server, StubS3(record=False) as store, tempfile.TemporaryDirectory() as folder:
        url = sa.make_url(server.create_database())
        store.create_bucket("acme")
        world = World("postgresql", url, store, "acme", Path(folder), superuser=url)
        with redirect_stdout(sys.stderr):
            small = purged(world, ITEMS // 10, put)
            world.sql("DELETE FROM safedelete_batch", "DELETE FROM safedelete_run")
            large = purged(world, ITEMS, put)
        assert large.document["outcomes"]["uploads"]["deleted"] == ITEMS
        assert not store.keys("acme")
        world.clean_up()
    tenth, many = f"{ITEMS // 10:,} of them", f"{ITEMS:,} rows with objects"
    return [
        compared(f"{many}, time for a tenth", tenth, large.seconds / 10, small.seconds, 1.2),
        compared(f"{many}, peak MB", tenth, large.peak_kb / 1024, small.peak_kb / 1024, 1.3),
    ]


def put(world: World, keys: Iterator[str]) -> None:
    """Put objects into the stub, past its HTTP."""
    for key in keys:
        world.store.put(world.bucket, key, b"x")
