"""The fault matrix: what goes wrong around a run that lives on, at any boundary of it, and what has to be true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from sqlalchemy import make_url, select, text, update
from sqlalchemy.exc import OperationalError

from safedelete.core.run import BatchState
from safedelete.core.seal import decode
from safedelete.ledger import tables
from safedelete.locks import lease
from safedelete.testing.servers.faults import refusing
from tests.crash.matrix import Case, Start
from tests.crash.promises import lost_versions
from tests.crash.world import Lab, Place, Stores, named_items, places
from tests.servers.proxy import Mode, Proxy

TWO = Start("rows and two objects each")
LAST = (
    Start("hidden objects"),
    Start("hidden folders"),
    Start("hidden orphans"),
    Start("rows and a folder each"),
)
STRUCK = (
    TWO,
    Start("versioned objects"),
    Start("versioned prefix"),
    Start("versioned folders"),
    Start("versioned orphans"),
    *LAST,
)
"""What is struck, those in ``LAST`` by fewer; each has a definition that is the same but for a deadline of seconds."""

ENDS = {0, 3, 4, 6, 7, 8, 9}
"""Every way to end that the exit codes' table has for a store, a lock or a ledger in trouble; 1 is a defect."""
NOTHING_DONE = {3, 9}


class Wired(Lab):
    """A lab on PostgreSQL whose runs reach both stores over wires that can break."""

    def __init__(self, folder: Path, postgres: str) -> None:
        super().__init__(folder, postgres)
        self._wires = ExitStack()
        self._clock = folder / "clock"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clock.write_text("")
        url = make_url(self.url)
        assert url.port is not None
        self.database = self._wires.enter_context(Proxy(url.port))
        self.reached = url.set(port=self.database.port).render_as_string(hide_password=False)
        super().__enter__()
        self.objects = self._wires.enter_context(Proxy(int(self.store.endpoint.rpartition(":")[2])))
        self.endpoint = f"http://127.0.0.1:{self.objects.port}"
        self.variables = {"CRASH_CLOCK": str(self._clock)}
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._wires.close()

    def sql(self, *statements: str) -> bool:
        """Say this to the database beside the run; False where the run's own transaction stands in the way."""
        try:
            with self.engine.begin() as connection:
                connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
                for statement in statements:
                    connection.exec_driver_sql(statement)
        except OperationalError:
            return False
        return True

    def steal(self) -> bool:
        """Take the lease, as a run does that thinks this one dead; False where a batch has it pinned."""
        try:
            with self.engine.begin() as connection:
                connection.execute(text("SET LOCAL lock_timeout = '100ms'"))
                c = lease.table.c
                taken = connection.execute(
                    update(lease.table).where(c.expires_ms > 0).values(owner="a thief", token=c.token + 1)
                )
                return taken.rowcount == 1
        except OperationalError:
            return False

    def begun(self) -> frozenset[Place]:
        """Return the objects of the batches that are in doubt: their fence may be behind them."""
        batch = tables.batch
        with self.ledger.connect() as connection:
            query = select(batch.c.data, batch.c.sha256).where(batch.c.state == BatchState.IN_DOUBT.value)
            found = [decode(*row) for row in connection.execute(query)]
        return places(ref for items in found for _, refs in named_items(items) for ref in refs)

    def move_clock(self, seconds: float) -> bool:
        """Set the run's wall clock forward or back."""
        self._clock.write_text(str(seconds))
        return True

    def heal(self) -> None:
        """All is well again."""
        for wire in (self.database, self.objects):
            wire.be(Mode.PASS)
            wire.cut()
        self.store.behave()
        self._clock.write_text("")
        name = make_url(self.url).database
        with self.engine.connect() as connection:
            connection.execute(text("SET SESSION default_transaction_read_only = off"))
            connection.commit()
            connection.exec_driver_sql(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS full_disk ON safedelete_batch")
            connection.commit()


FULL_DISK = """
CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$
"""


class Fault(NamedTuple):
    """One thing that goes wrong.

    Attributes:
        strike: Makes it so; False where it cannot just then, and is to be tried at the next boundary.
        watched: Whether a call that never returns is to be ended by the command line's watchdog.
    """

    strike: Callable[[Wired], bool]
    watched: bool = False


def _done(_: None) -> bool:
    return True


def _fail_over(lab: Wired) -> bool:
    name = make_url(lab.url).database
    if not lab.sql(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'):
        return False
    lab.database.cut()
    return True


def _expire(lab: Wired) -> bool:
    lab.store.program = lambda _: refusing(400, "ExpiredToken")
    return True


FAULTS = {
    "database cut": Fault(lambda lab: _done(lab.database.cut())),
    "database gone": Fault(lambda lab: _done(lab.database.be(Mode.REFUSE))),
    # What a restart does to whoever is connected; the server itself stays, since others are on it.
    "database ends every session, as a restart does": Fault(
        lambda lab: lab.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    ),
    "database slow": Fault(lambda lab: _done(lab.database.be(Mode.SLOW))),
    "database half-open": Fault(lambda lab: _done(lab.database.be(Mode.HANG)), watched=True),
    "database read-only after a failover": Fault(_fail_over),
    "object store cut": Fault(lambda lab: _done(lab.objects.cut())),
    "object store gone": Fault(lambda lab: _done(lab.objects.be(Mode.REFUSE))),
    "object store slow": Fault(lambda lab: _done(lab.objects.be(Mode.SLOW))),
    "object store half-open": Fault(lambda lab: _done(lab.objects.be(Mode.HANG)), watched=True),
    "credentials expired": Fault(_expire),
    "lock lost": Fault(Wired.steal),
    "ledger's disk full": Fault(
        lambda lab: lab.sql(
            FULL_DISK,
            "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON safedelete_batch EXECUTE FUNCTION full_disk()",
        )
    ),
    "clock two days ahead": Fault(lambda lab: lab.move_clock(172_800)),
    "clock an hour back": Fault(lambda lab: lab.move_clock(-3600)),
}


@dataclass
class _Striker:
    """Strikes at the first boundary where it can.

    Attributes:
        struck: Whether it has.
        found: What was there when the lock was lost.
        begun: Objects of the batches that were begun then: whose request no fence can stop any more.
    """

    lab: Wired
    fault: Fault
    struck: bool = False
    found: Stores | None = None
    begun: frozenset[Place] = frozenset()

    def __call__(self, _label: str) -> bool:
        self.struck = self.fault.strike(self.lab)
        if self.struck and self.fault.strike == Wired.steal:
            self.found, self.begun = self.lab.look(), self.lab.begun()
        return self.struck


class Struck(Case):
    """A run that meets a fault and ends by itself; then a writer, and two runs when all is well again."""

    def __init__(self, lab: Wired, start: Start, fault: Fault) -> None:
        super().__init__(lab, start)
        self.wired, self.fault = lab, fault
        self.struck = False

    def is_struck_at(self, point: int, *, must: bool) -> bool:
        """The first run, to its own end.

        Args:
            point: The boundary from which on it is to strike.
            must: Whether there is no excuse for not having struck.
        """
        before = self._now
        striker = _Striker(self.wired, self.fault)
        purge, verb = (
            (self.change.purge, "run")
            if not self.fault.watched
            else (f"{self.change.purge}, in a hurry", "watched")
        )
        try:
            ended = self.lab.run(purge, verb=verb, at_each=striker, from_each=point)
        finally:
            self.wired.heal()
        self.struck = striker.struck
        self.ends.append(ended.status)
        if must and not self.struck:
            self.broken.append(f"the fault never struck, and the run ended with {ended.status}: {ended.said}")
        self.lab.let_time_pass()
        self._now = self._look()
        runs = self.lab.sealed_and_said()
        if ended.status not in ENDS:
            self.broken.append(f"the struck run ended with {ended.status}: {ended.said}")
        if ended.status in NOTHING_DONE and self._now != before:
            self.broken.append(f"the struck run ended with {ended.status}, and something went")
        if striker.found is not None:
            found = striker.found.shown() if self._hides else striker.found
            self._must("the struck run", nothing_went_after(found, self._now, striker.begun))
        self._went("the struck run", before, runs)
        if ended.status == 7:
            # A store in trouble ends a run with 7 as well; the next one goes on with it, and tells of all that it was to do.
            self._told |= {run.run for run in runs if all(claim.state != "open" for claim in run.claims)}
        if ended.status == 0:
            self._settled("the struck run", runs, 0)
        return self._writes(point)


def nothing_went_after(found: Stores, now: Stores, begun: frozenset[Place]) -> Iterator[str]:
    """No row went since the lock was lost, and no object or version but of the batches that had begun."""
    for row in sorted(found.rows.keys() - now.rows.keys()):
        yield f"row {row} went after the lock was lost"
    gone = found.objects.keys() - now.objects.keys() | lost_versions(found, now).keys()
    for place in sorted(gone - begun):
        yield f"object {place} went after the lock was lost, and its batch had not begun"


def strike(lab: Lab, start: Start, fault: Fault, point: int, *, must: bool) -> Struck:
    """Let a fault meet a run at a boundary, the writer write, and the next two runs go.

    Args:
        lab: Where.
        start: What runs.
        fault: What goes wrong.
        point: The boundary from which on it is to strike.
        must: Whether it counts as broken that it did not: it has been aimed where every fault finds its moment.
    """
    assert isinstance(lab, Wired)
    case = Struck(lab, start, fault)
    _ = case.is_struck_at(point, must=must) and case.goes_on() and case.converges()
    return case
