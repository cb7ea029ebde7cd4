"""What ECS says of the task that this process runs in."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import structlog

from safedelete.errors import ConfigError

log = structlog.get_logger("safedelete.run")

ADDRESS: Final = "ECS_CONTAINER_METADATA_URI_V4"
TIMEOUT: Final = 2.0
"""Seconds for an answer; the endpoint is on the same host."""

_EXPECTED: Final = re.compile(r"(?:[A-Za-z0-9_-]{1,255}:)?[1-9][0-9]{0,9}")


@dataclass(frozen=True, slots=True)
class Task:
    """The task.

    Attributes:
        family: Of its definition.
        revision: Of its definition.
        image: The container's image, with its digest where ECS tells it.
    """

    family: str
    revision: int
    image: str

    def __str__(self) -> str:
        return f"{self.family}:{self.revision} {self.image}".rstrip()


def described(revision: str = "") -> str:
    """Return what the ledger keeps of the task: family, revision, image and the definition it was rendered from.

    A run does not fail because nobody could say where it runs; it is logged, and stays empty.

    Args:
        revision: ``$SAFEDELETE_REVISION``.
    """
    if not os.environ.get(ADDRESS):
        return ""
    try:
        task = this_task()
    except ConfigError as error:
        log.warning("the task's definition is not known", error=str(error))
        return ""
    return f"{task} (definition {revision})" if revision else str(task)


def require_revision(expected: str, job: str, jobs: Collection[str]) -> None:
    """Raise unless this process runs in a task of this revision. Touches neither database nor bucket.

    A number alone means the job's own family, as it is rendered: a prefix, and the job's name. Every family has a
    revision 7, and another one's may hold any image.

    Args:
        expected: ``FAMILY:N``, or ``N``.
        job: The name of the job that is to run.
        jobs: The names of all jobs of the file: a family belongs to the longest name that it ends with.

    Raises:
        ConfigError: It is another revision, it does not run on ECS, ECS does not say, or the family is not the job's.
    """
    family, _, number = expected.rpartition(":")
    if not _EXPECTED.fullmatch(expected):
        raise ConfigError(
            f"--expect-revision {expected}: must be FAMILY:N, or N for the job's own family.",
            hint=f"For example --expect-revision safedelete-{job}:7.",
        )
    task = this_task()
    if not family and job != _job_of(task.family, jobs):
        raise ConfigError(
            f"This is {task}; its family is not known to be that of {job}, so a number alone says nothing.",
            hint=f"Say which family: --expect-revision FAMILY:{number}.",
        )
    if (family or task.family, int(number)) != (task.family, task.revision):
        raise ConfigError(
            f"This is revision {task.revision} of {task.family} ({task.image}); revision {number} of "
            f"{family or task.family} was expected.",
            hint="Start the task with its revision (`--task-definition FAMILY:REVISION`), or wait for the deploy: "
            "safedelete drift FILE --wait 300.",
        )


def _job_of(family: str, jobs: Collection[str]) -> str | None:
    return max((job for job in jobs if f"-{family}".endswith(f"-{job}")), key=len, default=None)


def this_task() -> Task:
    """Ask ECS' metadata endpoint.

    Raises:
        ConfigError: It does not run on ECS, or the endpoint does not answer as documented.
    """
    address = os.environ.get(ADDRESS)
    if not address:
        raise ConfigError(
            f"This process does not run on ECS (${ADDRESS} is not set), so its revision is not known.",
            hint="Leave --expect-revision out here.",
        )
    try:
        mine, whole = _ask(address), _ask(f"{address}/task")
        return Task(str(whole["Family"]), int(whole["Revision"]), _image(mine))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"ECS' metadata endpoint {address} does not say which revision this is: {type(error).__name__}: {error}.",
            hint="Try again; without --expect-revision a run does not need it.",
        ) from error


def _ask(address: str) -> Any:
    if not address.startswith("http://"):
        raise ValueError("it is no http address")
    # Straight to the host: a proxy of the environment is not for link-local addresses.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=TIMEOUT) as answer:
        return json.loads(answer.read(1_000_000))


def _image(container: Any) -> str:
    image, digest = str(container["Image"]), str(container.get("ImageID") or "")
    return image if not digest or digest in image else f"{image} {digest}"
