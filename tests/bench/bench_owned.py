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
from typing import TYPE_CHECKING

import sqlalchemy as sa

from safedelete.testing.servers import Postgres, StubS3
from tests.e2e.test_scale import purged
from tests.e2e.world import World

if TYPE_CHECKING:
    from tests.bench.__main__ import Result

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
    each = large.seconds / ITEMS * (ITEMS // 10)
    return [
        {
            "name": f"{ITEMS:,} rows with objects, time for each item",
            "ours_s": round(large.seconds, 1),
            "base_s": round(small.seconds, 1),
            "base": f"{ITEMS // 10:,} of them",
            "ratio": round(each / small.seconds, 2),
            "goal": 1.2,
            "met": each <= 1.2 * small.seconds,
        },
        {
            "name": f"{ITEMS:,} rows with objects, peak memory (MB, not s)",
            "ours_s": round(large.peak_kb / 1024),
            "base_s": round(small.peak_kb / 1024),
            "base": f"{ITEMS // 10:,} of them",
            "ratio": round(large.peak_kb / small.peak_kb, 2),
            "goal": 1.3,
            "met": large.peak_kb <= 1.3 * small.peak_kb,
        },
    ]


def put(world: World, keys: Iterator[str]) -> None:
    """Put objects into the stub, past its HTTP."""
    for key in keys:
        world.store.put(world.bucket, key, b"x")
