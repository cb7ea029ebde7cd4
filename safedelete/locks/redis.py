"""A lock in Redis beside the lease: ``SET NX PX`` with a random value, renewed, given back by compare-and-delete.

Redis keeps no promise across a failover or an eviction, so it never is the only lock; what it adds is a lock between
runs that share no database. A key that vanished is a lock that was lost. Calls have short timeouts and are not retried
by the client: what counts is our own deadline, not how long a reply can be waited for.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

from safedelete.errors import ConfigError, LockHeldError, StoreError
from safedelete.locks.watched import SilentError, WatchedHold
from safedelete.ports import Clock

if TYPE_CHECKING:
    from redis import Redis

log = structlog.get_logger("safedelete.lock")

RENEW: Final = """
local found = redis.call('GET', KEYS[1])
if found == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 end
return found or ''
"""
GIVE_BACK: Final = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
)

ANSWER: Final = 1.0
"""Seconds that one call may take; a frozen Redis answers none."""


class RedisLock:
    """Takes locks in one Redis. Implements ``ports.SecondLock``.

    Args:
        url: ``redis://`` or ``rediss://``, with its password if it has one.
        prefix: Of every key; the environment's name, so that staging and production do not meet.
        ledger: Identity of the ledger; tells another job of the same name from another run of the same job.
        clock: For the holder's own deadline.
        seconds: How long the key lives without being renewed.
        host: Name of this host.
        pid: Id of this process.

    Raises:
        ConfigError: The URL cannot be read, or redis-py is not installed.
    """

    def __init__(
        self, url: str, *, prefix: str, ledger: str, clock: Clock, seconds: float, host: str, pid: int
    ) -> None:
        self._where = _redacted(url)
        self._connect = _connector(url)
        self._prefix = prefix
        self._ledger = ledger
        self._clock = clock
        self._seconds = seconds
        self._host = host
        self._pid = pid
        self._warned = False

    def key(self, job: str) -> str:
        """Return the name of a job's key."""
        return f"safedelete:{self._prefix}:{job}"

    def acquire(self, job: str, *, owner: str) -> WatchedHold:
        """Set the job's key, unless somebody else's is there."""
        import redis

        client = self._connect()
        value = json.dumps(
            {
                "secret": secrets.token_hex(16),
                "owner": owner,
                "host": self._host,
                "pid": self._pid,
                "since": self._clock.now().astimezone(UTC).isoformat(timespec="seconds"),
                "ledger": self._ledger,
            }
        )
        keeper = RedisKeeper(client, self.key(job), value, self._seconds)
        asked = self._clock.uptime()
        try:
            # Who may not run the script could take the key, and would lose it in the middle of the work.
            keeper.renew()
            found = keeper.take()
            if found is not None:
                raise self._held(job, found)
            keeper.renew()
            if not self._warned:
                self._warned = True
                _warn_of_eviction(client, job)
        except redis.RedisError as error:
            # The request may have been carried out all the same.
            keeper.give_back()
            if not _refused(error):
                raise StoreError(
                    f"{self._where} does not answer: {error}. The lock of {job} could not be asked for.",
                    hint="Check that Redis runs and can be reached from here ($SAFEDELETE_REDIS_URL).",
                ) from error
            raise ConfigError(
                f"{self._where} refuses us: {error}. The lock of {job} could not be asked for.",
                hint="Correct the user and password in $SAFEDELETE_REDIS_URL; the user needs GET, SET, PEXPIRE, DEL and EVAL.",
            ) from error
        except BaseException:
            client.close()
            raise
        return WatchedHold(job, "Redis lock", keeper, clock=self._clock, seconds=self._seconds, asked=asked)

    def _held(self, job: str, found: str) -> LockHeldError:
        key = self.key(job)
        holder = _read(found)
        if holder is None:
            return LockHeldError(
                f"{job} is locked: the key {key} in {self._where} holds a value that is not ours.",
                hint="Something else uses that key; give the job or $SAFEDELETE_ENVIRONMENT another name.",
            )
        host, pid, since = holder.get("host"), holder.get("pid"), str(holder.get("since"))
        said = f"{job} is locked: {host} (pid {pid}) holds the key {key} in {self._where} since {since}."
        hint = (
            "Another run is working. If that process is dead, the key ends by itself when its time is over."
        )
        if holder.get("ledger") != self._ledger:
            said += f" Its ledger is another one ({holder.get('ledger')}; ours is {self._ledger})."
            hint = (
                "Two jobs share this lock's name by mistake: rename one, or give one of the two another "
                "$SAFEDELETE_ENVIRONMENT. If it is meant, this run was skipped as it should be."
            )
        return LockHeldError(said, holder=f"{host}:{pid}", since=since, hint=hint)


class RedisKeeper:
    """Speaks with Redis about one key. Implements ``locks.watched.Keeper``."""

    def __init__(self, client: Redis, key: str, value: str, seconds: float) -> None:
        self._client = client
        self._key = key
        self._value = value
        self._ms = int(seconds * 1000)

    def take(self) -> str | None:
        """Set the key; returns the value that is there instead, or None once ours is."""
        for _ in range(3):
            if self._client.set(self._key, self._value, nx=True, px=self._ms):
                return None
            found = self._client.get(self._key)
            # It may have expired in between.
            if found is not None:
                return _text(found)
        return ""

    def prove(self) -> str:
        """Renew the key while it holds our value."""
        import redis

        try:
            found = self.renew()
        except redis.RedisError as error:
            raise SilentError(str(error)) from error
        if found == 1:
            return ""
        if not found:
            return f"the key {self._key} is gone: it expired, was evicted, or Redis was restarted without it"
        return f"another holder has the key {self._key}"

    def renew(self) -> Any:
        """Ask the server to renew the key while it holds our value; returns 1, or what it holds instead."""
        return self._client.eval(RENEW, 1, self._key, self._value, str(self._ms))

    def give_back(self) -> None:
        """Delete the key while it holds our value."""
        import redis

        with suppress(redis.RedisError):
            self._client.eval(GIVE_BACK, 1, self._key, self._value)
        with suppress(redis.RedisError):
            self._client.close()


def _connector(url: str) -> Any:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise ConfigError(
            'lock="redis": redis-py is not installed.',
            hint='Install it: pip install "safedelete-purge[redis]".',
        ) from error

    def connect() -> Redis:
        return redis.Redis.from_url(
            url, socket_timeout=ANSWER, socket_connect_timeout=ANSWER, retry=Retry(NoBackoff(), 0)
        )

    try:
        connect().close()
    except (ValueError, TypeError) as error:
        raise ConfigError(
            "$SAFEDELETE_REDIS_URL cannot be read as a Redis URL.",
            hint="It should look like redis://user:password@host:6379/0, or rediss:// for TLS.",
        ) from error
    return connect


def _refused(error: Exception) -> bool:
    """Whether Redis knows us and will not do it; of a command inside a script it says so by its words alone."""
    import redis

    known = (redis.AuthenticationError, redis.exceptions.NoPermissionError)
    return isinstance(error, known) or "can't run this command" in str(error)


def _warn_of_eviction(client: Redis, job: str) -> None:
    """Say that Redis may throw the key away; whoever may not ask gets no warning, and loses no lock by it."""
    import redis

    try:
        memory: Any = client.info("memory")
    except redis.RedisError:
        return
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if int(memory.get("maxmemory", 0)) and policy != "noeviction":
        log.warning(
            "this Redis may evict the lock's key, which would end the run",
            job=job,
            maxmemory_policy=policy,
            hint="Use a Redis with maxmemory-policy noeviction for locks.",
        )


def _redacted(url: str) -> str:
    """Return where a URL points, without user and password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "Redis"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def _read(value: str) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "host" in found else None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
