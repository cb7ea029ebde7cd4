"""``safedelete.toml``: what a deployment needs beside the job file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from safedelete.core.event import ENVIRONMENT_LABEL, JOB_LABEL
from safedelete.deploy.ecs_spec import Ecs
from safedelete.deploy.part import Part, Word
from safedelete.deploy.systemd_spec import Systemd
from safedelete.errors import ConfigError

NAME: Final = "safedelete.toml"


def _unused(name: str) -> str:
    if name in (JOB_LABEL, ENVIRONMENT_LABEL):
        raise ValueError("every alert has this label already")
    return name


Line = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]
Label = Annotated[str, StringConstraints(pattern=r"^_?[A-Za-z][A-Za-z0-9_]*$"), AfterValidator(_unused)]
"""What Prometheus takes as a label's name; those that begin with two underscores are its own."""


class Prometheus(Part):
    """``[prometheus]``: the alert rules.

    Attributes:
        labels: Added to every alert, for routing.
        runbook: An address where each alert is explained; ``{alert}`` and ``{job}`` in it are replaced.
        evaluation_minutes: How often rules are evaluated, at most; the unit tests go by it.
    """

    labels: dict[Label, Word] = Field(default_factory=dict)
    runbook: Word | None = None
    evaluation_minutes: Annotated[int, Field(ge=1, le=60)] = 1


class Grants(Part):
    """``[grants]``: the database's dialect, and the roles that rights are granted to.

    Attributes:
        dialect: Whose SQL.
        runner: Runs the jobs.
        reader: Plans and looks.
        approver: Approves refused plans.
        operator: Pauses jobs, and ends runs at work.
    """

    dialect: Literal["postgresql", "mysql"] = "postgresql"
    runner: Word = "safedelete_runner"
    reader: Word = "safedelete_reader"
    approver: Word = "safedelete_approver"
    operator: Word = "safedelete_operator"


class Spec(Part):
    """The whole file.

    Attributes:
        environment: Name of the environment, which the ledger is bound to.
    """

    environment: Line
    systemd: Systemd | None = None
    prometheus: Prometheus = Prometheus()
    ecs: Ecs | None = None
    grants: Grants = Grants()


def read(path: Path) -> Spec:
    """Read and check ``safedelete.toml``.

    Args:
        path: Where it is.

    Raises:
        ConfigError: It is missing, is not TOML, or has an unknown key or a value out of range; says which.
    """
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: there is no such file.",
            hint=f"Write {NAME} beside the job file, or name it with --config; "
            "docs/reference/safedelete-toml.md lists its keys.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}.", hint="Check its permissions; it is UTF-8 text."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: is not TOML: {error}.",
            hint="docs/reference/safedelete-toml.md lists its keys, with an example.",
        ) from error
    try:
        return Spec.model_validate(found)
    except ValidationError as error:
        raise ConfigError(
            f"{path}: {_said(error)}",
            hint="docs/reference/safedelete-toml.md lists its keys, with an example.",
        ) from error


def _said(error: ValidationError) -> str:
    """Say what is wrong, every mistake on a line of its own."""
    lines = []
    for one in error.errors():
        key = ".".join(str(part) for part in one["loc"])
        match one["type"]:
            case "extra_forbidden":
                lines.append(f"{key} is not a known key.")
            case "missing":
                lines.append(f"{key} is missing.")
            case _ if key.startswith(("ecs.secrets", "ecs.approver_secrets")):
                # What stands there may be the secret itself.
                lines.append(
                    f"{key} is no ARN of a secret or parameter; a secret is named here, never written."
                )
            case "value_error" if isinstance(one["input"], dict):
                lines.append(f"{key}: {one['ctx']['error']}.")
            case "value_error":
                lines.append(f"{key} is {one['input']!r}: {one['ctx']['error']}.")
            case _:
                lines.append(f"{key} is {one['input']!r}: {one['msg'][0].lower()}{one['msg'][1:]}.")
    return "\n  ".join(lines)
