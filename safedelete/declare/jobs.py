"""``Purge`` and ``job``: one definition of each scheduled job, checked when it is declared."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from safedelete.core.limits import Guard
from safedelete.declare.targets import Rows, S3Prefix, Target
from safedelete.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine import URL

LockKind: TypeAlias = Literal["lease"]

_NAME: Final = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?$")
MAX_SEALED: Final = 10_000_000
GRACE: Final = timedelta(seconds=20)


class RunContext(Protocol):
    """What a job's function is given."""

    @property
    def dry_run(self) -> bool:
        """Whether the function should only say what it would do."""

    def checkpoint(self) -> None:
        """Raise when the lock is lost, the deadline has passed or a stop was asked for."""

    def processed(self, items: int) -> None:
        """Add to the number of items done."""

    def failed(self, items: int) -> None:
        """Add to the number of items that failed; any makes the run fail."""


JobFunction: TypeAlias = Callable[[RunContext], object]


class Purge:
    """A scheduled, destructive job.

    Args:
        name: Lower-case letters, digits and ``-``, at most 64; unique in its file, stable over time: the baseline and
            the lock go by it.
        targets: ``Rows`` and ``S3Prefix``, executed in the order given; children before parents.
        schedule: ``cron(...)``, ``rate(...)`` or five crontab fields.
        timeout: The run's own deadline.
        guard: Fixed limits; the rolling baseline holds in any case.
        per_run: Drain a backlog: at most this many of the oldest eligible items a run.
        database: An Engine or URL; else ``$SAFEDELETE_DATABASE_URL``, else ``$DATABASE_URL``.
        tz: IANA zone of the schedule; UTC unless said.
        grace: How long a stop may take.
        resume_within: How old an interrupted run may be and still be resumed rather than planned anew.
        max_sealed: Most items a plan may seal.

    Raises:
        ConfigError: An argument is missing or out of range; says which, what was given and what is allowed.
    """

    kind: Final = "purge"

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
    ) -> None:
        self.name = check_name(name, "Purge")
        where = f"Purge({name!r})"
        if not targets:
            raise ConfigError(f"{where}: name at least one target: Rows(...) or S3Prefix(...).")
        for target in targets:
            if not isinstance(target, (Rows, S3Prefix)):
                raise ConfigError(
                    f"{where}: {target!r} is a {type(target).__name__}; targets are Rows and S3Prefix."
                )
        names = [target.name for target in targets]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ConfigError(
                f"{where}: {', '.join(twice)} is a target twice.", hint="Join the predicates with or_()."
            )
        self.targets: tuple[Target, ...] = targets
        self.schedule = check_schedule(schedule, where)
        self.timeout = check_positive(timeout, "timeout", where)
        self.grace = check_positive(grace, "grace", where)
        self.resume_within = check_positive(resume_within, "resume_within", where)
        if guard is not None and not isinstance(guard, Guard):
            raise ConfigError(f"{where}: guard= takes a Guard; it was given {guard!r}.")
        self.guard = guard or Guard()
        self.per_run = check_whole(per_run, "per_run", where)
        self.max_sealed = check_whole(max_sealed, "max_sealed", where) or MAX_SEALED
        self.database = database
        self.tz = tz


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

    def __call__(self, run: RunContext) -> object:
        """Call the function itself, without lock or ledger."""
        return self.function(run)


def job(
    name: str, *, schedule: str, timeout: timedelta, tz: str = "UTC", grace: timedelta = GRACE
) -> Callable[[JobFunction], Job]:
    """Declare a function as a scheduled job.

    Args:
        name: As for ``Purge``.
        schedule: As for ``Purge``.
        timeout: The run's own deadline.
        tz: IANA zone of the schedule.
        grace: How long a stop may take.

    Returns:
        A decorator that turns the function into a ``Job``.

    Raises:
        ConfigError: An argument is missing or out of range.
    """
    where = f"job({name!r})"
    checked = check_name(name, "job")
    check_schedule(schedule, where)
    check_positive(timeout, "timeout", where)
    check_positive(grace, "grace", where)

    def declare(function: JobFunction) -> Job:
        return Job(checked, schedule, timeout, function, tz, grace)

    return declare


Declared: TypeAlias = Purge | Job


def check_name(name: object, where: str) -> str:
    """Return a job's name, or say what a name may be."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ConfigError(
            f"{where}({name!r}): a name is 1 to 64 of a-z, 0-9 and '-', not at either end.",
            hint="The lock, the ledger and the deployed resources go by this name.",
        )
    return name


def check_schedule(schedule: object, where: str) -> str:
    """Return a schedule that has one of the known forms."""
    if not isinstance(schedule, str) or not schedule.strip():
        raise ConfigError(
            f"{where}: schedule={schedule!r}; give cron(...), rate(...) or five crontab fields."
        )
    return schedule


def check_positive(value: object, name: str, where: str) -> timedelta:
    """Return a positive duration."""
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ConfigError(
            f"{where}: {name}={value!r}; must be a positive timedelta.",
            hint=f"For example {name}=timedelta(minutes=20).",
        )
    return value


def check_whole(value: Any, name: str, where: str) -> int | None:
    """Return a whole number of at least 1, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{where}: {name}={value!r}; must be a whole number of at least 1.")
    return value
