"""Listing and deleting on a real S3 server, side by side with s5cmd and rclone, and the memory of a planning pass.

Every side lists or deletes the same number of keys on the same server in the same run, in turns; the best of a few turns
counts. Processor time is that of the client alone: of our threads while the call lasts (Python and boto3 are loaded by
then), of a tool's whole process.

    SAFEDELETE_BENCH_KEYS=2000 python -m tests.bench s3      # a quick look; 50,000 keys unless told otherwise
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from safedelete import S3Prefix
from safedelete.phases.seal import OBJECTS_A_BATCH
from safedelete.runner.heap import settled_heap
from safedelete.s3.client import connect
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.testing.servers import ADMIN, SeaweedFS
from safedelete.wiring.settings import SystemClock
from tests.bench.result import Result, compared
from tests.e2e.fast_put import fast_put

KEYS = int(os.environ.get("SAFEDELETE_BENCH_KEYS", "50000"))
TURNS = int(os.environ.get("SAFEDELETE_BENCH_TURNS", "3"))
DELETES = max(1000, KEYS // 5)
"""Keys a turn of deleting; seeding takes longer than all that is measured."""

FOLDERS = 16
AGE = timedelta(days=7)
MICROS_A_DELETE = 20.0
FAST = 1e9


class Later(SystemClock):
    """The host's clock two weeks on, for which everything just stored is old."""

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=14)


@dataclass(frozen=True)
class Cost:
    """What one call took, in seconds."""

    wall: float
    cpu: float


def ours(call: Callable[[], object]) -> Cost:
    # What seeding has left lying about is not the call's to clear away.
    gc.collect()
    with settled_heap():  # as in every run
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def tool(*command: str, env: dict[str, str], lines: int | None = None) -> Cost:
    """Run a tool to its end; of its output only the number of lines is of interest."""
    wall = time.perf_counter()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        counted = sum(chunk.count(b"\n") for chunk in iter(lambda: child.stdout.read(1 << 16), b""))
        said = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode or (lines is not None and counted != lines):
        raise RuntimeError(f"{command[0]} ended with {child.returncode}, {counted} lines: {said[-500:]!r}")
    return Cost(time.perf_counter() - wall, usage.ru_utime + usage.ru_stime)


def best(costs: list[Cost]) -> Cost:
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs))


@dataclass(frozen=True)
class Bench:
    """A running server and the ways to it."""

    server: SeaweedFS
    env: dict[str, str]
    s5cmd: str | None
    rclone: str | None

    @contextmanager
    def seeded(self, keys: int) -> Iterator[str]:
        bucket = f"bench-{uuid.uuid4().hex[:12]}"
        self.server.create_bucket(bucket)
        fast_put(self.server.endpoint, ADMIN, bucket, (f"p/{n % FOLDERS:02}/{n:07}.bin" for n in range(keys)))
        yield bucket
        assert self.server.client().list_objects_v2(Bucket=bucket, Prefix="p/", MaxKeys=1)["KeyCount"] in (
            0,
            1,
        )

    def target(self, bucket: str, *, proven: bool = False) -> PrefixTarget:
        connection = connect(
            endpoint_url=self.server.endpoint, access_key=ADMIN.access_key, secret_key=ADMIN.secret_key
        )
        store = S3ObjectStore(
            connection,
            clock=Later(),
            min_age=AGE,
            max_delete_rate=FAST,
            conditional=[bucket] if proven else (),
        )
        # A first request makes the client load what it needs for every later one.
        store.remaining([])
        connection.reader.list_objects_v2(Bucket=bucket, MaxKeys=1)
        return PrefixTarget(S3Prefix(bucket, "p", older_than=AGE), connection, store)

    def list_s5cmd(self, bucket: str, keys: int) -> Cost:
        assert self.s5cmd is not None
        return tool(
            self.s5cmd,
            "--endpoint-url",
            self.server.endpoint,
            "ls",
            f"s3://{bucket}/p/*",
            env=self.env,
            lines=keys,
        )

    def delete_s5cmd(self, bucket: str, keys: int) -> Cost:
        assert self.s5cmd is not None
        return tool(
            self.s5cmd,
            "--endpoint-url",
            self.server.endpoint,
            "rm",
            f"s3://{bucket}/p/*",
            env=self.env,
            lines=keys,
        )

    def delete_rclone(self, bucket: str, keys: int) -> Cost:
        assert self.rclone is not None
        del keys
        return tool(self.rclone, "delete", f"bench:{bucket}/p", env=self.env)

    def delete_ours(self, bucket: str, keys: int, *, proven: bool = False, named: bool = False) -> Cost:
        """Delete what was listed; ``named``: without the listing's ETags, as what a row names by its key alone."""
        target = self.target(bucket, proven=proven)
        batches = list(target.scan(Later().now(), batch=OBJECTS_A_BATCH, portion=None))
        if named:
            batches = [[ref._replace(etag=None) for ref in batch] for batch in batches]
        assert sum(map(len, batches)) == keys

        def delete() -> None:
            for batch in batches:
                states = {o.state.value for o in target.store.delete(batch, gate=lambda: None).values()}
                assert states == {"deleted"}, states

        return ours(delete)


def lacking(name: str, base: str, goal: float) -> Result:
    print(f"{base} is not installed: {name} was not compared", file=sys.stderr)
    return Result(
        name=name, ours_s=0.0, base_s=0.0, base=f"{base} (missing)", ratio=0.0, goal=goal, met=False
    )


def listing(bench: Bench) -> Iterator[Result]:
    name = f"s3: plan {KEYS:,} keys, client CPU"
    with bench.seeded(KEYS) as bucket:
        target = bench.target(bucket)

        def plan() -> None:
            plan = target.survey(Later().now(), portion=None, since=None)
            assert plan.items == KEYS, plan.items

        mine: list[Cost] = []
        theirs: list[Cost] = []
        for _ in range(TURNS):
            mine.append(ours(plan))
            if bench.s5cmd:
                theirs.append(bench.list_s5cmd(bucket, KEYS))
    if not theirs:
        yield lacking(name, "s5cmd ls", 1.0)
        return
    yield compared(name, "s5cmd ls", best(mine).cpu, best(theirs).cpu, 1.0)
    yield compared(f"s3: plan {KEYS:,} keys, time", "s5cmd ls", best(mine).wall, best(theirs).wall, None)


def deleting(bench: Bench) -> Iterator[Result]:
    sides: dict[str, Callable[[str, int], Cost]] = {
        "ours": bench.delete_ours,
        "proven": lambda bucket, keys: bench.delete_ours(bucket, keys, proven=True),
        "named": lambda bucket, keys: bench.delete_ours(bucket, keys, named=True),
    }
    if bench.s5cmd:
        sides["s5cmd rm"] = bench.delete_s5cmd
    if bench.rclone:
        sides["rclone delete"] = bench.delete_rclone
    costs: dict[str, list[Cost]] = {side: [] for side in sides}
    for _ in range(TURNS):
        for side, delete in sides.items():
            with bench.seeded(DELETES) as bucket:
                costs[side].append(delete(bucket, DELETES))
            left = bench.server.client().list_objects_v2(Bucket=bucket, Prefix="p/", MaxKeys=1)["KeyCount"]
            assert left == 0, f"{side} left objects behind"
    mine = {
        "each looked at before": best(costs["ours"]),
        "conditions proven": best(costs["proven"]),
        "by name alone": best(costs["named"]),
    }
    for how, cost in mine.items():
        for base, goal in (("s5cmd rm", 1.0), ("rclone delete", 0.77)):
            name = f"s3: delete {DELETES:,} objects, {how}, time"
            if base in costs:
                yield compared(name, base, cost.wall, best(costs[base]).wall, goal)
            else:
                yield lacking(name, base, goal)
    for how, cost in mine.items():
        yield compared(
            f"s3: delete {DELETES:,} objects, {how}, client CPU",
            f"{MICROS_A_DELETE:g} µs an object",
            cost.cpu,
            MICROS_A_DELETE * DELETES / 1e6,
            1.0,
        )
        if "s5cmd rm" in costs:
            name = f"s3: delete {DELETES:,} objects, {how}, client CPU"
            yield compared(name, "s5cmd rm", cost.cpu, best(costs["s5cmd rm"]).cpu, None)


_MEMORY = """
import resource, sys
from datetime import UTC, datetime, timedelta
from safedelete import S3Prefix
from safedelete.s3.client import Connection
from safedelete.s3.store import S3ObjectStore
from safedelete.s3.target import PrefixTarget
from safedelete.wiring.settings import SystemClock

class Made:
    def __init__(self, keys):
        self.pages = keys // 1000
    def get_bucket_versioning(self, **_):
        return {}
    def list_objects_v2(self, **options):
        at = int(options.get("ContinuationToken", 0))
        if options.get("Delimiter"):
            return {"IsTruncated": False, "CommonPrefixes": [{"Prefix": f"p/{n}/"} for n in range(5)]}
        whole = options["Prefix"] == "p/"
        folder = "p/0/" if whole else options["Prefix"]
        contents = [
            {"Key": f"{folder}{at:05}{n:04}", "ETag": '"e"', "Size": 1, "LastModified": "2026-01-01T00:00:00Z"}
            for n in range(1000)
        ]
        more = whole or at + 1 < self.pages // 5
        return {"IsTruncated": more, "Contents": contents, "NextContinuationToken": str(at + 1)}

keys = int(sys.argv[1])
made = Made(keys)
connection = Connection(made, made, "http://made", "")
store = S3ObjectStore(connection, clock=SystemClock())
target = PrefixTarget(S3Prefix("made", "p", older_than=timedelta(days=7)), connection, store)
now = datetime(2026, 6, 1, tzinfo=UTC)
assert target.survey(now, portion=None, since=None).items == keys
assert sum(len(batch) for batch in target.scan(now, batch=1000, portion=None)) == keys
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_mb(keys: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY, str(keys)], capture_output=True, text=True, check=True, timeout=600
    )
    return int(done.stdout) / 1024


def memory() -> Iterator[Result]:
    """Compare the peak memory of planning and sealing ten times the keys; the figures are megabytes."""
    keys = max(KEYS, 10_000)
    few, many = peak_mb(keys), peak_mb(10 * keys)
    yield compared(
        f"s3: peak MB of planning {10 * keys:,} keys (listing made)", f"of planning {keys:,}", many, few, 1.1
    )


def find(name: str) -> str | None:
    beside = Path(sysconfig.get_path("scripts")) / name
    return str(beside) if beside.exists() else shutil.which(name)


def measure() -> list[Result]:
    with SeaweedFS() as server:
        # Whatever is configured for this account must not reach the tools; rclone 1.60 fails over AWS_CA_BUNDLE.
        env: dict[str, Any] = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RCLONE_"))}
        env |= {
            "AWS_ACCESS_KEY_ID": ADMIN.access_key,
            "AWS_SECRET_ACCESS_KEY": ADMIN.secret_key,
            "AWS_REGION": "us-east-1",
            "RCLONE_CONFIG": os.devnull,
            "RCLONE_CONFIG_BENCH_TYPE": "s3",
            "RCLONE_CONFIG_BENCH_PROVIDER": "Other",
            "RCLONE_CONFIG_BENCH_ENDPOINT": server.endpoint,
            "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": ADMIN.access_key,
            "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": ADMIN.secret_key,
        }
        bench = Bench(server, env, find("s5cmd"), find("rclone"))
        return [*listing(bench), *deleting(bench), *memory()]
