"""``Purge`` and ``job``: one definition of each scheduled job, checked when it is declared."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from safedelete.core.limits import Guard
from safedelete.core.schedule import check_zone, parse
from safedelete.declare.arguments import known_arguments
from safedelete.declare.function import check_function
from safedelete.declare.orphans import S3Orphans
from safedelete.declare.prefix import S3Prefix
from safedelete.declare.sweeps import check_sweeps
from safedelete.declare.targets import Rows
from safedelete.errors import ConfigError

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
MAX_SEALED: Final = 10_000_000
GRACE: Final = timedelta(seconds=20)
LONGEST: Final = timedelta(days=3653)

_REFERENCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""From where a declaration looks at the gaps of its schedule: fixed, so that a file loads the same way every day."""


class RunContext(Protocol):
    """What a job's function is given."""

    @property
    def dry_run(self) -> bool:
        """Whether the function should only say what it would do."""

    @property
    def deadline(self) -> datetime:
        """When the job's timeout ends, aware UTC; a checkpoint at or after it raises."""

    @property
    def log(self) -> Any:
        """A structlog logger whose lines carry the job's name and the run's id."""

    def checkpoint(self) -> None:
        """Raise when the lock is lost, the deadline has passed or a stop was asked for."""

    def processed(self, items: int) -> None:
        """Add to the number of items done."""

    def failed(self, items: int) -> None:
        """Add to the number of items that failed; any makes the run fail."""

    def exec(
        self,
        arguments: Sequence[str],
        *,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
    ) -> int:
        """Run a program to its end, its output into the log; returns its exit status. In a dry run only logs it.

        No shell reads the arguments. The program and all that it started end with the job: at the deadline, on a stop,
        when the lock is lost, and when this process dies. Blocks; in an ``async def``, await it in a thread
        (``asyncio.to_thread(run.exec, [...])``).

        Args:
            arguments: The program and its arguments. Secrets among them are not logged.
            ok: Exit statuses that are no failure; any other raises ``ProgramError``.
            env: Variables to add to the environment.
            cwd: Where to run it.
        """


LockKind: TypeAlias = Literal["lease", "advisory", "redis"]
"""The lock a job asks for; the lease is taken in any case."""
Target: TypeAlias = Rows | S3Prefix | S3Orphans

JobFunction: TypeAlias = Callable[[RunContext], object]


class Purge:
    """A scheduled, destructive job.

    Args:
        name: Lower-case letters, digits and ``-``, at most 64; unique in its file, stable over time: the baseline and
            the lock go by it.
        targets: ``Rows``, ``S3Prefix`` and ``S3Orphans``, executed in the order given; children before parents.
        schedule: ``cron(...)``, ``rate(...)``, five crontab fields or an ``OnCalendar`` expression.
        timeout: The run's own deadline, below the shortest gap between two runs.
        guard: Fixed limits; the rolling baseline holds in any case.
        per_run: Drain a backlog: at most this many of the oldest eligible items of each target a run.
        database: An Engine or URL; else ``$SAFEDELETE_DATABASE_URL``, else ``$DATABASE_URL``.
        tz: IANA zone of the schedule; UTC unless said.
        grace: How long a stop may take.
        resume_within: How old an interrupted run may be and still be resumed rather than planned anew.
        max_sealed: Most items a plan may seal.
        allow_ddl: Let DDL through while it runs; else CREATE, ALTER, DROP and TRUNCATE on any engine end the run.
        max_replication_lag: Pause between batches while a replica is further behind than this. A replica whose lag is unknown
            counts as too far; when no answer can be had for a minute, the run stops, resumable.
        replicas: Engines or URLs of the replicas of MariaDB or MySQL, which are asked themselves; PostgreSQL's primary knows.
        pause_when: A function without arguments, called before a batch at most once a second; pause while it returns a reason,
            go on when it returns None. What it raises means that it cannot tell, as above.
        lock: A lock to take beside the lease: ``"advisory"`` (PostgreSQL, MariaDB, MySQL) or ``"redis"``
            (``$SAFEDELETE_REDIS_URL``); ``"lease"`` for none. Else ``$SAFEDELETE_LOCK``.
        elsewhere_ok: Accept that rows which this purge cannot ask own objects of what may be its buckets: those of another
            purge of the file whose ``database`` is not provably the same, or a bucket that is said in two ways (a name and
            an access point). Without it such a file does not load, since an object that they name could be deleted.

    Raises:
        ConfigError: An argument is missing or out of range; says which, what was given and what is allowed.
    """

    kind: Final = "purge"

    @known_arguments
    def __init__(
        self,
        name: str,
        *targets: Target,
        schedule: str,
        timeout: timedelta,
        guard: Guard | None = None,
        per_run: int | None = None,
        database: Engine | URL | str | None = None,
        tz: str = "UTC",
        grace: timedelta = GRACE,
        resume_within: timedelta = timedelta(hours=24),
        max_sealed: int = MAX_SEALED,
        allow_ddl: bool = False,
        max_replication_lag: timedelta | None = None,
        replicas: Sequence[Engine | URL | str] = (),
        pause_when: Callable[[], str | None] | None = None,
        lock: LockKind | None = None,
        elsewhere_ok: bool = False,
    ) -> None:
        self.name = check_name(name, "Purge")
        where = f"Purge({name!r})"
        if not targets:
            raise ConfigError(
                f"{where}: name at least one target: Rows(...), S3Prefix(...) or S3Orphans(...).",
                hint="For example Rows(Upload, older_than(Upload.created_at, days=90)).",
            )
        for target in targets:
            if not isinstance(target, (Rows, S3Prefix, S3Orphans)):
                raise ConfigError(
                    f"{where}: {target!r} is a {type(target).__name__}; targets are Rows, S3Prefix and S3Orphans.",
                    hint="For example Rows(Upload, older_than(Upload.created_at, days=90)).",
                )
        names = [target.name for target in targets]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ConfigError(
                f"{where}: {', '.join(twice)} is a target twice.", hint="Join the predicates with or_()."
            )
        self.targets: tuple[Target, ...] = targets
        self.timeout = check_positive(timeout, "timeout", where, most=LONGEST)
        self.schedule = check_schedule(schedule, where, tz=tz, timeout=self.timeout)
        self.grace = check_positive(grace, "grace", where, most=LONGEST)
        self.resume_within = check_positive(resume_within, "resume_within", where)
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigError(
                f"{where}: guard= takes a Guard; it was given {guard!r}.",
                hint="For example guard=Guard(max_items=200_000, max_fraction=0.10).",
            )
        self.guard = guard or Guard()
        self.per_run = check_whole(per_run, "per_run", where)
        self.max_sealed = check_count(max_sealed, "max_sealed", where)
        self.database = check_database(database, where)
        self.max_replication_lag = (
            None
            if max_replication_lag is None
            else check_positive(max_replication_lag, "max_replication_lag", where)
        )
        self.replicas = _replicas(replicas, where)
        if replicas and max_replication_lag is None:
            raise ConfigError(
                f"{where}: replicas= is given without max_replication_lag=.",
                hint="For example max_replication_lag=timedelta(seconds=10).",
            )
        if pause_when is not None and not callable(pause_when):
            raise ConfigError(
                f"{where}: pause_when={pause_when!r}; must be a function that returns a reason, or None.",
                hint='For example pause_when=lambda: "the backup runs" if backup_runs() else None.',
            )
        self.pause_when = pause_when
        self.lock = check_lock(lock, where, self.database)
        self.tz = tz
        self.allow_ddl = check_flag(allow_ddl, "allow_ddl", where)
        self.elsewhere_ok = check_flag(elsewhere_ok, "elsewhere_ok", where)
        self.beside: tuple[Purge, ...] = ()
        """The other purges of its job file, whose rows may own what this one would take; set when the file loads."""
        check_sweeps([self])


@dataclass(frozen=True, slots=True)
class Job:
    """A scheduled function, made by :func:`job`."""

    name: str
    schedule: str
    timeout: timedelta
    function: JobFunction
    tz: str = "UTC"
    grace: timedelta = GRACE
    kind: Literal["job"] = "job"
    allow_ddl: bool = False
    lock: LockKind | None = None

    def __call__(self, run: RunContext) -> object:
        """Call the function itself, without lock or ledger."""
        return self.function(run)


@known_arguments
def job(
    name: str,
    *,
    schedule: str,
    timeout: timedelta,
    tz: str = "UTC",
    grace: timedelta = GRACE,
    allow_ddl: bool = False,
    lock: LockKind | None = None,
) -> Callable[[JobFunction], Job]:
    """Declare a function as a scheduled job.

    Args:
        name: As for ``Purge``.
        schedule: As for ``Purge``.
        timeout: As for ``Purge``.
        tz: IANA zone of the schedule.
        grace: How long a stop may take.
        allow_ddl: As for ``Purge``.
        lock: As for ``Purge``.

    Returns:
        A decorator that turns the function into a ``Job``.

    Raises:
        ConfigError: An argument is missing or out of range.
    """
    where = f"job({name!r})"
    checked = check_name(name, "job")
    check_positive(timeout, "timeout", where, most=LONGEST)
    check_schedule(schedule, where, tz=tz, timeout=timeout)
    check_positive(grace, "grace", where, most=LONGEST)
    check_flag(allow_ddl, "allow_ddl", where)
    check_lock(lock, where, None)

    def declare(function: JobFunction) -> Job:
        if not callable(function):
            raise ConfigError(
                f"{where}: it decorates {function!r}, a {type(function).__name__}; it takes a function.",
                hint="Put it right above a def.",
            )
        check_function(function, where)
        return Job(checked, schedule, timeout, function, tz, grace, lock=lock, allow_ddl=allow_ddl)

    return declare


Declared: TypeAlias = Purge | Job


def _replicas(given: object, where: str) -> tuple[Engine | URL | str, ...]:
    several = given if isinstance(given, (list, tuple)) else [given]
    found = [check_database(replica, where) for replica in several]
    if None in found:
        raise ConfigError(
            f"{where}: replicas={given!r}; must be a list of Engines or URLs.",
            hint="Leave it out where no lag is to be waited for.",
        )
    return tuple(replica for replica in found if replica is not None)


def check_name(name: object, where: str) -> str:
    """Return a job's name, or say what a name may be."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}({name!r}): a name is 1 to 64 of a-z, 0-9 and '-', not at either end.",
            hint="The lock, the ledger and the deployed resources go by this name.",
        )
    return name


def check_schedule(schedule: object, where: str, *, tz: object, timeout: timedelta) -> str:
    """Return a schedule that can be read, whose zone exists, and whose runs lie further apart than the timeout."""
    if not isinstance(schedule, str) or not schedule.strip():
        raise ConfigError(
            f"{where}: schedule={schedule!r}; give cron(...), rate(...), five crontab fields or an OnCalendar "
            "expression.",
            hint='For example schedule="cron(15 3 * * ? *)".',
        )
    try:
        zone = check_zone(tz)
    except ConfigError as error:
        raise ConfigError(f"{where}: tz={tz!r}: {error}", hint=error.hint) from error
    try:
        parsed = parse(schedule, zone)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", hint=error.hint) from error
    shortest = parsed.gaps(_REFERENCE).shortest
    if shortest is not None and timeout >= shortest:
        raise ConfigError(
            f"{where}: timeout={timeout} reaches the next run; the shortest gap of schedule={schedule!r} is {shortest}.",
            hint="Shorten the timeout, or run less often.",
        )
    return schedule


def check_lock(lock: Any, where: str, database: Engine | URL | str | None) -> LockKind | None:
    """Return the kind of lock, or None; refuses one that the declared database cannot have."""
    if lock not in (None, *get_args(LockKind)):
        raise ConfigError(
            f"{where}: lock={lock!r}; allowed are {', '.join(map(repr, get_args(LockKind)))}.",
            hint="Leave it out for the lease alone, or for what $SAFEDELETE_LOCK says.",
        )
    url = database.url if isinstance(database, Engine) else None if database is None else make_url(database)
    if lock == "advisory" and url is not None and url.get_backend_name() == "sqlite":
        raise ConfigError(
            f'{where}: lock="advisory" needs PostgreSQL, MariaDB or MySQL; sqlite has no advisory locks.',
            hint='Leave lock= out: the lease works on every database. For a lock beside it, lock="redis".',
        )
    kind: LockKind | None = lock
    return kind


def check_positive(value: object, name: str, where: str, *, most: timedelta = timedelta.max) -> timedelta:
    """Return a positive duration, one that can be added to today where it has to be."""
    if not isinstance(value, timedelta) or not timedelta(0) < value <= most:
        limit = "" if most == timedelta.max else f" of at most {most.days:,} days"
        raise ConfigError(
            f"{where}: {name}={value!r}; must be a positive timedelta{limit}.",
            hint=f"For example {name}=timedelta(minutes=20).",
        )
    return value


def check_whole(value: Any, name: str, where: str) -> int | None:
    """Return a whole number of at least 1, or None."""
    return None if value is None else check_count(value, name, where)


def check_count(value: Any, name: str, where: str) -> int:
    """Return a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"{where}: {name}={value!r}; must be a whole number of at least 1.",
            hint=f"For example {name}=100_000.",
        )
    return value


def check_flag(value: object, name: str, where: str) -> bool:
    """Return a flag."""
    if not isinstance(value, bool):
        raise ConfigError(
            f"{where}: {name}={value!r}; must be True or False.", hint=f"Leave {name}= out for False."
        )
    return value


def check_database(database: object, where: str) -> Engine | URL | str | None:
    """Return an Engine or a URL that can be read, or None; opens nothing."""
    if database is None or isinstance(database, (Engine, URL)):
        return database
    if isinstance(database, str):
        try:
            make_url(database)
        except (ArgumentError, ValueError):
            # The text, and the error's own, may hold a password: only the scheme is repeated.
            scheme = database.partition("://")[0] if "://" in database else "without ://"
            raise ConfigError(
                f"{where}: database= is no URL that can be read ({scheme}).",
                hint="For example postgresql+psycopg://user@host/app; leave it out to use $SAFEDELETE_DATABASE_URL.",
            ) from None
        return database
    raise ConfigError(
        f"{where}: database={database!r} is a {type(database).__name__}; allowed are an Engine, a URL or its text.",
        hint="Safedelete works synchronously: give the URL with a synchronous driver, for example postgresql+psycopg://, "
        "in place of an AsyncEngine.",
    )
