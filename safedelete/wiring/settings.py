"""What the environment says, and the host's clocks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from safedelete.errors import ConfigError


class Settings(BaseSettings):
    """What the environment says; each name is prefixed with ``SAFEDELETE_``."""

    model_config = SettingsConfigDict(env_prefix="SAFEDELETE_", extra="ignore")

    database_url: str | None = None
    ledger_url: str | None = None
    revision: str = ""
    environment: Annotated[str, StringConstraints(strip_whitespace=True)] = ""
    lease_seconds: float = Field(default=60.0, ge=1, le=3600)
    lock: Literal["lease", "advisory", "redis"] = "lease"
    redis_url: str | None = None
    file: str | None = None
    metrics: str = "log"
    notify: str = ""

    @classmethod
    def read(cls) -> Settings:
        """Read the environment.

        Raises:
            ConfigError: A variable's value is out of range.
        """
        try:
            return cls()
        except ValidationError as error:
            first = error.errors()[0]
            name = "SAFEDELETE_" + "_".join(str(part) for part in first["loc"]).upper()
            raise ConfigError(
                f"${name}: {first['msg']} (it is {first['input']!r}).",
                hint="Correct the variable, or unset it for its default.",
            ) from error


class SystemClock:
    """The host's clocks. Implements ``ports.Clock``."""

    def now(self) -> datetime:
        """Return the current instant, aware, UTC."""
        return datetime.now(UTC)

    def uptime(self) -> float:
        """Return seconds since boot, time suspended included where the platform can tell."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
