"""What ECS says of the task that this process runs in."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

import structlog

from safedelete.errors import ConfigError

log = structlog.get_logger("safedelete.run")

ADDRESS: Final = "ECS_CONTAINER_METADATA_URI_V4"
TIMEOUT: Final = 2.0
"""Seconds for an answer; the endpoint is on the same host."""


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


def require_revision(expected: int) -> None:
    """Raise unless this process runs in a task of this revision. Touches neither database nor bucket.

    Raises:
        ConfigError: It is another revision, it does not run on ECS, or ECS does not say.
    """
    task = this_task()
    if task.revision != expected:
        raise ConfigError(
            f"This is revision {task.revision} of {task.family} ({task.image}); revision {expected} was expected.",
            hint="Start the task with its revision (`--task-definition FAMILY:REVISION`), or wait for the deploy: "
            "safedelete drift FILE --wait 300.",
        )


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
