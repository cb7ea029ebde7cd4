"""No secret that safedelete is given is in anything it writes: output, log, traceback, ledger, metric, file or page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from safedelete.testing.servers import RUNNER, StubS3
from safedelete.testing.servers.faults import key_errors
from tests.backends import GivenDatabase
from tests.e2e.world import Ended, World, before_execute
from tests.metrics.listening import Listener, listening

MARK = "Pl4nted"
"""Every planted secret begins with it, whatever else becomes of its odd characters."""

OWN_DATABASE = """
import os

from safedelete import Job, job


@job("reminders", schedule="rate(1 hour)", timeout=timedelta(minutes=5))
def reminders(run):
    import structlog

    url = os.environ["SAFEDELETE_DATABASE_URL"]
    structlog.get_logger().warning("connecting", url=url)
    raise RuntimeError(f"could not connect to {url}")


with_its_own = Purge(
    "with-its-own",
    Rows(uploads, past(uploads.c.expires_at)),
    schedule="rate(1 day)",
    timeout=timedelta(minutes=5),
    database="postgresql+psycopg://u:PASSWORD@127.0.0.1:1/app",
)
"""

TOML = """
environment = "test"

[grants]
dialect = "postgresql"

[systemd]
command = ["/usr/bin/safedelete"]
job_file = "/opt/jobs.py"

[prometheus]
runbook = "https://example.com/{alert}"

[ecs]
cluster = "c"
region = "us-east-1"
account = "123456789012"
family_prefix = "p"
image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/x@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
"""


class Looked:
    """Runs commands, and keeps all that they wrote."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: dict[str, str] = {}

    def cli(self, *arguments: object, expect: int | None = None, **more: str) -> Ended:
        ended = self.world.cli("--debug", *arguments, expect=expect, **more)
        said = " ".join(map(str, arguments))
        self.written[f"{len(self.written)} {said} -> {ended.code}"] = ended.out + ended.err
        return ended

    def everything(self) -> Iterator[tuple[str, str]]:
        """Yield all that was written, by where."""
        yield from self.written.items()
        for path in self.world.folder.rglob("*"):
            # Its own job file and settings are where a user may write what he likes.
            if path.is_file() and path.suffix not in (".py", ".toml", ".pyc"):
                yield path.name, path.read_text(encoding="utf-8", errors="replace")
        tables = sa.MetaData()
        tables.reflect(self.world.engine)
        with self.world.engine.connect() as connection:
            for table in tables.sorted_tables:
                if table.name.startswith("safedelete_"):
                    yield table.name, repr(connection.execute(sa.select(table)).all())


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


@pytest.fixture
def looked(
    postgres: object, pg_database: str, stub_s3: StubS3, listener: Listener, tmp_path: Path
) -> Iterator[Looked]:
    if isinstance(postgres, GivenDatabase):
        pytest.skip("this server was given with a password of its own, so none can be planted")
    stub_s3.create_bucket("acme")
    # The server asks for no password, so any will do.
    url = sa.make_url(pg_database).set(password=f"{MARK}@data/base")
    world = World("postgresql", url, stub_s3, "acme", tmp_path)
    there = listener.url.removeprefix("http://")
    world.extra = {
        "SAFEDELETE_REDIS_URL": f"redis://purger:{MARK}redis@127.0.0.1:1/0",
        "SAFEDELETE_METRICS": f"log,textfile:{tmp_path}/metrics.prom,pushgateway:http://u:{MARK}push@{there},"
        f"ping:http://{there}/{MARK}ping",
        "SAFEDELETE_NOTIFY": f"http://{there}/services/T0/{MARK}hook?token={MARK}token",
        "AWS_SESSION_TOKEN": f"{MARK}session",
    }
    yield Looked(world)
    world.clean_up()


IDENTITY = replace(RUNNER, secret_key=f"{MARK}aws")


def test_no_planted_secret_is_in_anything_that_is_written(looked: Looked, listener: Listener) -> None:
    world = looked.world
    world.seed(due=6, nights=6)
    jobs = world.jobs(options="guard=Guard(max_items=8),")
    jobs.write_text(jobs.read_text() + OWN_DATABASE.replace("PASSWORD", f"{MARK}own"))
    (world.folder / "safedelete.toml").write_text(TOML)
    first = "expired-uploads"

    def cli(*arguments: object, expect: int | None = None, **more: str) -> Ended:
        return looked.cli(*arguments, expect=expect, identity=IDENTITY, **more)

    # The purge with a database of its own cannot be reached, and says so.
    cli("init", jobs)
    only = world.jobs(options="guard=Guard(max_items=8),", name="one.py")
    cli("init", only, expect=0)
    cli("check", jobs)
    cli("plan", jobs, "--preflight", "--json")
    cli("plan", only, expect=0)
    done = cli("run", only, "--json", expect=0)
    cli("run", jobs, "with-its-own", expect=7)
    cli("run", jobs, "reminders", expect=1)

    # Refused, and shown.
    world.sql("UPDATE uploads SET expires_at = now() - interval '1 hour' WHERE id <= 24")
    refused = cli("run", only, expect=3)
    cli("history", jobs, first, "--html", world.folder / "page.html", expect=0)
    cli("show", done.run, "--items", "--file", only, expect=0)
    world.sql("UPDATE uploads SET expires_at = now() + interval '1 day' WHERE id > 12")

    # Stores that fail: objects denied, a server that is not there, a lock that nobody keeps, a sink that is down.
    def denied() -> None:
        world.store.always(key_errors({f"up/{number:06}.bin": "AccessDenied" for number in range(1, 40)}))

    with before_execute(denied):
        cli("run", only, expect=7)
    world.store.behave()
    nowhere = world.url.set(port=1)
    for verb in ("run", "plan", "status", "history"):
        looked.cli(verb, only, url=nowhere, identity=IDENTITY)
    listener.status = 500
    cli("run", only)
    for name, value in (
        ("SAFEDELETE_METRICS", f"pushgateway:nonsense://u:{MARK}@x"),
        ("SAFEDELETE_NOTIFY", f"ftp://u:{MARK}@x/{MARK}"),
        ("SAFEDELETE_LEDGER_URL", f"nodriver://u:{MARK}@x/app"),
        ("SAFEDELETE_DATABASE_URL", f"u:{MARK}@x/app"),
        ("SAFEDELETE_REDIS_URL", f"nonsense://:{MARK}@x"),
    ):
        cli("run", only, **{name: value, "SAFEDELETE_LOCK": "redis"})

    for kind in ("cloudformation", "taskdef", "iam", "grants", "systemd", "prometheus"):
        cli("render", kind, only, "--out", world.folder / "deploy")
    cli("drift", only)
    cli("status", only, "--notify")

    assert refused.err
    assert listener.sent, "the sinks were told"
    found = {where: line for where, text in looked.everything() for line in text.splitlines() if MARK in line}
    assert found == {}


def test_a_secret_is_found_where_it_is_written(looked: Looked) -> None:
    """The test above looks where it has to: a job's own print() is not safedelete's to hide."""
    world = looked.world
    jobs = world.ready()
    jobs.write_text(
        jobs.read_text()
        + '\nfrom safedelete import job\n\n@job("loud", schedule="rate(1 day)", timeout=timedelta(minutes=1))\n'
        + 'def loud(run):\n    import os\n    print(os.environ["SAFEDELETE_NOTIFY"])\n'
    )
    looked.cli("run", jobs, "loud", expect=0)
    assert any(MARK in text for _, text in looked.everything())
