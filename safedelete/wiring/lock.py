"""Choose a job's lock, and prove that it can be taken."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from datetime import datetime

from safedelete.core.item import ObjectRef
from safedelete.declare import Declared, Purge
from safedelete.declare.targets import Rows
from safedelete.errors import ConfigError, SafeDeleteError
from safedelete.ledger.store import SqlLedger
from safedelete.locks.advisory import AdvisoryLock
from safedelete.locks.both import LeaseAnd
from safedelete.locks.lease import LeaseLock
from safedelete.locks.redis import RedisLock
from safedelete.ports import Clock, Lock, Prober, Proof, SecondLock, Verdict
from safedelete.sql.engine import Database
from safedelete.wiring.lease import LeaseProber
from safedelete.wiring.settings import Settings


def lock_of(
    job: Declared, database: Database, ledger: SqlLedger, settings: Settings, clock: Clock
) -> tuple[Lock, tuple[Prober, ...]]:
    """Return a job's lock, and what proves that it can be taken.

    The lease is always taken: beside the rows where there are any, else beside the ledger. What ``lock=`` or
    ``$SAFEDELETE_LOCK`` names beyond it is taken as well.

    Raises:
        ConfigError: The lock that is asked for cannot be had here.
    """
    host, pid = socket.gethostname(), os.getpid()
    has_rows = isinstance(job, Purge) and any(isinstance(target, Rows) for target in job.targets)
    engine, identity = (database.engine, database.identity) if has_rows else (ledger.engine, ledger.database)
    lease = LeaseLock(engine, identity, clock=clock, seconds=settings.lease_seconds, host=host, pid=pid)
    kind = job.lock or settings.lock
    second: SecondLock
    if kind == "advisory":
        second = AdvisoryLock(engine, clock=clock, seconds=settings.lease_seconds, host=host, pid=pid)
    elif kind == "redis":
        if not settings.redis_url:
            raise ConfigError(
                f'{job.name}: lock="redis", but $SAFEDELETE_REDIS_URL is not set.',
                hint="Set SAFEDELETE_REDIS_URL, for example redis://:password@host:6379/0.",
            )
        second = RedisLock(
            settings.redis_url,
            prefix=settings.environment,
            ledger=ledger.database,
            clock=clock,
            seconds=settings.lease_seconds,
            host=host,
            pid=pid,
        )
    else:
        return lease, (LeaseProber(lease),)
    return LeaseAnd(lease, second), (LeaseProber(lease), SecondLockProber(kind, second))


class SecondLockProber:
    """Proves that the lock beside the lease can be taken and given back. Implements ``ports.Prober``.

    Args:
        kind: Its kind, for the proof.
        lock: Takes it.
    """

    def __init__(self, kind: str, lock: SecondLock) -> None:
        self._kind = kind
        self._lock = lock

    def probe(self, as_of: datetime, sample: Sequence[ObjectRef]) -> Sequence[Proof]:  # noqa: ARG002
        """Take the lock of a job that cannot exist, and give it back. Keeps nothing."""
        subject = f"take the {self._kind} lock"
        try:
            self._lock.acquire(f"probe {secrets.token_hex(8)}", owner="probe").release()
        except SafeDeleteError as error:
            verdict = Verdict.DENIED if isinstance(error, ConfigError) else Verdict.UNKNOWN
            return [Proof(subject, verdict, str(error), error.hint)]
        return [Proof(subject, Verdict.ALLOWED)]
