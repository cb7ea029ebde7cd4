"""``[systemd]`` of ``safedelete.toml``: how the jobs run on a host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from safedelete.core.event import words
from safedelete.deploy.ecs_spec import Variable
from safedelete.deploy.part import Part

Absolute = Annotated[str, StringConstraints(pattern=r"^/[^\s%\"'\\$*?\[\]\x00-\x1f\x7f]*$")]
"""A path as systemd takes it without quoting: blanks, quotes, ``%``, ``$`` and ``*`` have a meaning of their own in a unit."""

Value = Annotated[str, StringConstraints(strip_whitespace=False, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
"""What systemd takes as a variable's value: of control characters, tabs and line ends alone."""


HOMES: Final = ("/home", "/root", "/run/user")
"""What ``ProtectHome=yes`` hides."""


class Systemd(Part):
    """How the jobs run on a host.

    Attributes:
        command: The program and its first arguments, as an absolute path; ``run FILE NAME`` is added.
        job_file: Where the job file lies on the host.
        environment_file: A file of ``NAME=value`` lines, for the URLs; readable by root alone will do.
        variables: Added to every job's environment; what the file names as well comes from the file.
        alert: A program that tells somebody; called with the unit's name when a run fails.
        alert_environment_file: As ``environment_file``, for the alert, which is not given the jobs'.
        user: Who runs it; a user of its own for the time of the run unless said.
        writable: Directories that the job may write, beside its own under /var/lib.
        prefix: What the units' names begin with.
    """

    command: Annotated[list[Absolute], Field(min_length=1)]
    job_file: Absolute
    environment_file: Absolute
    variables: dict[Variable, Value] = Field(default_factory=dict)
    alert: Annotated[list[Absolute], Field(min_length=1)]
    alert_environment_file: Absolute | None = None
    user: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,30}$")] | None = None
    writable: list[Absolute] = Field(default_factory=list)
    prefix: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")] = "safedelete"

    @model_validator(mode="after")
    def _together(self) -> Self:
        if "SAFEDELETE_ENVIRONMENT" in self.variables:
            raise ValueError("SAFEDELETE_ENVIRONMENT is set by the rendering; leave it out of variables")
        for path in (*self.command, self.job_file, *self.alert):
            if any(PurePosixPath(path).is_relative_to(home) for home in HOMES):
                raise ValueError(
                    f"{path} is in a home directory, which the units do not see (ProtectHome=yes); "
                    "put it elsewhere, below /opt for example"
                )
        for sink, home in self._text_files():
            if not any(home.is_relative_to(path) for path in self.writable):
                raise ValueError(
                    f"variables send metrics to {sink}, and {home} is not below any path of writable"
                )
            if self.user is None:
                raise ValueError(
                    f"variables send metrics to {sink}, where a user that exists only while a job runs may not write; "
                    f"make a user that {home} belongs to, and name it as user"
                )
        return self

    def _text_files(self) -> Iterator[tuple[str, PurePosixPath]]:
        for sink in words(self.variables.get("SAFEDELETE_METRICS", "")):
            kind, _, rest = sink.partition(":")
            if kind == "textfile":
                path = PurePosixPath(rest)
                yield sink, path.parent if path.suffix == ".prom" else path
