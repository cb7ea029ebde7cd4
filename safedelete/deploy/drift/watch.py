"""Wait until what was just deployed is what the schedules run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from safedelete.deploy.aws.resources import Deployment
from safedelete.deploy.drift.compare import compare
from safedelete.deploy.drift.model import Difference, Kind
from safedelete.deploy.drift.read import Reader, read, read_schedules

EVERY: Final = 5.0
"""Seconds between two looks."""

ARRIVING: Final = frozenset(
    {
        Kind.NO_SCHEDULE,
        Kind.REPOINTED,
        Kind.UNPINNED,
        Kind.SCHEDULE,
        Kind.NO_REVISION,
        Kind.REVISION,
        Kind.HAND_REGISTERED,
    }
)
"""Differences that a deploy which has not arrived yet shows."""


def differences(
    made: Deployment,
    reader: Reader,
    *,
    wait: float = 0,
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> list[Difference]:
    """Return what is different. Reads only.

    Args:
        made: What the repository says.
        reader: Asks AWS.
        wait: Seconds to wait for the schedules to run the revisions that the repository renders.
        now: A clock in seconds.
        sleep: Waits.
    """
    end = now() + wait
    while (left := end - now()) > 0:
        # Not all of it each time: roles alone are four requests for every job.
        if not _arriving(compare(made, read_schedules(made, reader))):
            found = compare(made, read(made, reader))
            if not _arriving(found):
                return found
        sleep(min(EVERY, left))
    return compare(made, read(made, reader))


def _arriving(found: Sequence[Difference]) -> bool:
    return any(difference.kind in ARRIVING for difference in found)
